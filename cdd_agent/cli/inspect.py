"""``cdd trust``: what the repository brings, whether it may take effect, and which commands may run unasked.

``cdd audit``: what handoff notes claim, held against the history and against tests run anew.

``cdd doctor``: what must work before a run, and what to type where it does not.

``cdd new``, ``cdd status`` and ``cdd review``.
"""

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from cdd_agent.cli.invocation import Invocation, headless
from cdd_agent.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from cdd_agent.config.trust import Approvals, Offer
    from cdd_agent.doctor import Check


@click.command(short_help="Check what handoff notes claim, by running the tests again.")
@click.argument("revisions", metavar="[RANGE]", default="HEAD", required=False)
@headless
@click.pass_obj
def audit(invocation: Invocation, /, revisions: str, **given: Any) -> None:
    """Hold every handoff note in RANGE against the history and against its tests, run again in clean copies.

    RANGE is what git takes, such as main..HEAD; without it, all that leads to HEAD. Nothing of the project changes.
    Exit code 1 if a claim fails, 4 if there are no notes or the tests cannot be run.
    """
    from cdd_agent.repl.workflow_actions import show_audit

    invocation = invocation.with_options(given)
    with invocation.screen.working("reading notes"):
        audited = invocation.project().auditor().run(revisions)
    if not invocation.as_json:
        show_audit(audited, screen=invocation.screen)
    if any(each.failed for each in audited):
        raise click.exceptions.Exit(int(ExitCode.CLOSED))


@click.command(short_help="Look at all that a run needs, and prove the sandbox.")
@headless
@click.pass_obj
def doctor(invocation: Invocation, /, **given: Any) -> None:
    """Look at all that a run needs: a line for each thing, with what to type where something is missing.

    The sandbox is proved: four forbidden acts are tried in it. Asks nothing, and runs nothing that the repository
    brings and that is not approved. Exit code 4 if something is missing.
    """
    from cdd_agent.doctor import run_checks
    from cdd_agent.repl.screen import show_checks

    invocation = invocation.with_options(given)
    with invocation.screen.working("looking"):
        checks = run_checks(invocation.project().adapters.parts())
        is_well = show_checks(_written(checks) if invocation.as_json else checks, screen=invocation.screen)
    if not is_well:
        raise click.exceptions.Exit(int(ExitCode.ENVIRONMENT))


def _written(checks: "Iterable[Check]") -> "Iterator[Check]":
    """The checks, each also a line of JSON on standard output."""
    for check in checks:
        sys.stdout.write(json.dumps({"event": "Checked", **dataclasses.asdict(check)}) + "\n")
        sys.stdout.flush()
        yield check


@click.command(short_help="Make a ticket from the template.")
@click.argument("slug")
@click.option("--title", help="One line; made from the slug if not given.")
@click.option(
    "--type",
    "kind",
    default="feature",
    show_default=True,
    metavar="TYPE",
    help="feature, bug, enhancement, refactor, chore, doc or spike.",
)
@click.pass_obj
def new(invocation: Invocation, *, slug: str, title: str | None, kind: str) -> None:
    """Make the ticket SLUG from the template."""
    from cdd_agent.testrun.root import find_root
    from cdd_agent.tickets.ticket import create

    root = find_root(invocation.options)
    ticket = create(root, slug, title=title or slug.replace("-", " ").capitalize(), type=kind)
    shown = ticket.spec_path.relative_to(root)
    invocation.screen.line(f"Made {shown}. Describe what you want there, then: cdd spec {slug}", hang=2)


@click.command(short_help="Show the tickets, or where one stands.")
@click.argument("slug", required=False)
@headless
@click.pass_obj
def status(invocation: Invocation, /, slug: str | None, **given: Any) -> None:
    """Show the tickets of the project, or where the ticket SLUG stands."""
    from cdd_agent.repl.render import show_ticket, show_tickets
    from cdd_agent.tickets.ticket import all_tickets, find

    invocation = invocation.with_options(given)
    from cdd_agent.testrun.root import find_root

    root = find_root(invocation.options)
    if invocation.as_json:
        from cdd_agent.repl.render import list_steps, summarize_ticket

        found = all_tickets(root) if slug is None else (find(root, slug),)
        for ticket in found:
            invocation.sink(summarize_ticket(ticket))
            for step in () if slug is None else list_steps(ticket):
                invocation.sink(step)
        return
    if slug is None:
        show_tickets(all_tickets(root), screen=invocation.screen)
    else:
        show_ticket(find(root, slug), screen=invocation.screen)


@click.command(short_help="Look at what completed steps changed, and approve it.")
@click.argument("slug")
@click.option("--approve", type=int, multiple=True, metavar="N", help="Approve step N; may be said several times.")
@click.option("--full", is_flag=True, help="Show every diff, however long.")
@headless
@click.pass_obj
def review(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """Show what the completed steps of the ticket SLUG changed, on what evidence, and what was decided about them."""
    invocation = invocation.with_options(given)
    if invocation.is_interactive and not given["approve"]:
        from cdd_agent.cli.chat import chat

        chat(invocation, first=f"/review {slug}")
        return
    from cdd_agent.repl.dialogs import MOST_LINES, show_overview, show_step
    from cdd_agent.review import decide, load_completed_steps

    with invocation.ticket(slug) as (project, ticket):
        for number in given["approve"]:
            decide(ticket, number, decision="approved", project=project.adapters.root)
        steps = load_completed_steps(ticket, project.adapters.repository, project=project.adapters.root)
    if invocation.as_json:
        for step in steps:
            invocation.sink(step.as_event(slug))
        return
    for step in steps:
        most_lines = sys.maxsize if given["full"] else MOST_LINES
        show_step(step, count=len(steps), screen=invocation.screen, most_lines=most_lines)
        invocation.screen.gap()
    show_overview(steps, screen=invocation.screen)


@click.command(short_help="Decide whether what this repository brings may take effect.")
@click.option("--digest", "digests", multiple=True, metavar="SHA", help="Approve what has this sha256, unseen; for CI.")
@click.option("--forget", is_flag=True, help="Forget all decisions about this project.")
@click.pass_obj
def trust(invocation: Invocation, *, digests: tuple[str, ...], forget: bool) -> None:
    """Show the settings, the interpreter and the commit hooks that this repository brings, and ask about each.

    Without a terminal they are shown with their digests, and nothing is decided. Nothing of them is ever run here.
    Commands that the agent may run here unasked are listed.
    """
    from cdd_agent.doctor import list_offers

    parts = invocation.project().adapters.parts()
    approvals = parts.approvals
    if forget:
        count = approvals.forget()
        decisions = "1 decision" if count == 1 else f"{count} decisions"
        invocation.screen.line(f"Forgot {decisions} about {parts.root}.", hang=2)
        return
    found = list_offers(parts)
    if digests:
        known = {offer.digest: offer for offer in found}
        for digest in digests:
            if digest not in known:
                raise UsageError(
                    f"Nothing here has the digest {digest}: it has changed, or is not there any more.",
                    hint=f"{approvals.decided_by} shows what there is now",
                )
        for digest in digests:
            approvals.record(known[digest], approved=True)
            invocation.screen.line(f"Approved: {known[digest].name} ({known[digest].source}).")
        return
    _list_commands(approvals, invocation=invocation)
    if not found:
        invocation.screen.line("This repository brings nothing that needs your approval.")
        return
    _go_through(found, approvals, invocation=invocation)


def _list_commands(approvals: "Approvals", *, invocation: Invocation) -> None:
    """The commands that run unasked, a line of each."""
    commands = approvals.list_commands()
    if commands:
        screen = invocation.screen
        screen.line(
            f"Commands that the agent may run here unasked; {approvals.decided_by} --forget drops them:",
            indent=0,
            hang=2,
        )
        for command in commands:
            first, *more = command.splitlines() or [""]
            screen.line(f"{first} ..." if more else first, indent=2, hang=2)
        screen.gap()


def _go_through(found: "Iterable[Offer]", approvals: "Approvals", *, invocation: Invocation) -> None:
    """Show each offer with what was decided about it, and ask if somebody is there.

    Raises ``UsageError`` if something stays open.
    """
    from rich.text import Text

    from cdd_agent.repl.question import ask_approval, show_offer

    screen = invocation.screen
    undecided = 0
    for offer in found:
        decision = approvals.find_decision(offer)
        if invocation.is_interactive and not decision:
            changed = decision is None and approvals.has_changed(offer)
            decision = ask_approval(offer, changed, screen=screen)
            approvals.record(offer, approved=decision)
            screen.line("Approved." if decision else f"Declined: {offer.without}.", style="bold", indent=0)
            continue
        screen.gap()
        show_offer(offer, screen=screen)
        undecided += decision is None
        said = {True: "approved", False: "declined", None: "not decided"}[decision]
        screen.show(Text(f"{said}, sha256 {offer.digest}", style="dim" if decision else "bold"), wrap=False)
    if undecided:
        screen.gap()
        raise UsageError(
            f"{undecided} of them wait for your decision, and nobody is there to ask.",
            hint=f"{approvals.decided_by} in a terminal; or, once you know what it is: "
            f"{approvals.decided_by} --digest SHA",
        )
