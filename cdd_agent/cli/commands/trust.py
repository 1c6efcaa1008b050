"""``cdd trust``: what the repository brings, whether it may take effect, and which commands may run unasked."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from cdd_agent.cli.invocation import Invocation
from cdd_agent.errors import UsageError

if TYPE_CHECKING:
    from cdd_agent.trust import Approvals, Offer


@click.command(short_help="Decide whether what this repository brings may take effect.")
@click.option("--digest", "digests", multiple=True, metavar="SHA", help="Approve what has this sha256, unseen; for CI.")
@click.option("--forget", is_flag=True, help="Forget all decisions about this project.")
@click.pass_obj
def trust(invocation: Invocation, *, digests: tuple[str, ...], forget: bool) -> None:
    """Show the settings, the interpreter and the commit hooks that this repository brings, and ask about each.

    Without a terminal they are shown with their digests, and nothing is decided. Nothing of them is ever run here.
    Commands that the agent may run here unasked are listed.
    """
    from cdd_agent.doctor.offers import offers

    premises = invocation.project().adapters.premises()
    approvals = premises.approvals
    if forget:
        count = approvals.forget()
        decisions = "1 decision" if count == 1 else f"{count} decisions"
        invocation.screen.line(f"Forgot {decisions} about {premises.root}.", hang=2)
        return
    found = offers(premises)
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
    commands = approvals.commands()
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

    from cdd_agent.repl.display.question import may_take_effect, show

    screen = invocation.screen
    undecided = 0
    for offer in found:
        decision = approvals.decision(offer)
        if invocation.is_interactive and not decision:
            changed = decision is None and approvals.has_changed(offer)
            decision = may_take_effect(offer, changed, screen=screen)
            approvals.record(offer, approved=decision)
            screen.line("Approved." if decision else f"Declined: {offer.without}.", style="bold", indent=0)
            continue
        screen.gap()
        show(offer, screen=screen)
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
