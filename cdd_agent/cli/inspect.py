"""The commands that prepare, show and decide.

These are ``cdd init``, ``doctor``, ``trust``, ``new``, ``status``, ``review``, ``comment``, ``checkpoint`` and
``audit``.
"""

import dataclasses
import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdd_agent.cli.invocation import Invocation, headless, name_ticket, refuse_in_place
from cdd_agent.errors import ExitCode, UsageError, format_count

if TYPE_CHECKING:
    from cdd_agent.config.trust import Approvals, Offer
    from cdd_agent.doctor import Check
    from cdd_agent.repl.checkpoint_actions import CheckpointView
    from cdd_agent.repl.screen import Screen
    from cdd_agent.review import Comment
    from cdd_agent.runs.back import Back, MovePlan
    from cdd_agent.runs.review import Review
    from cdd_agent.tickets.ticket import Ticket


@click.command(short_help="Check the claims of handoff notes by running the tests again.")
@click.argument("revisions", metavar="[RANGE]", default="HEAD", required=False)
@click.option("--strict", is_flag=True, help="End with exit code 1 if a claim is undecided, too.")
@headless
def audit(invocation: Invocation, revisions: str, *, strict: bool) -> None:
    """Check every handoff note in RANGE against the history and against its tests, run again in clean copies.

    RANGE is a git range such as main..HEAD; the default is the whole history of HEAD. The project is not changed. Exit
    code 1 if a claim is false, 4 if notes are missing or the tests cannot run.
    """
    from cdd_agent.repl.workflow_actions import show_audit

    with invocation.screen.working("reading notes"):
        audited = invocation.project.auditor().run(revisions)
    if not invocation.as_json:
        show_audit(audited, screen=invocation.screen)
    undecided = any(claim.holds is None for each in audited for claim in each.claims)
    if any(each.failed for each in audited) or (strict and undecided):
        raise click.exceptions.Exit(int(ExitCode.CLOSED))


@click.command(short_help="Check everything a run needs, and test the sandbox.")
@headless
def doctor(invocation: Invocation) -> None:
    """Check everything a run needs. Each problem comes with its fix.

    The sandbox is tested: cdd tries forbidden acts in it. Nothing is asked, and nothing that the repository brings
    runs without approval. Exit code 4 if something is missing.
    """
    from cdd_agent.doctor import run_checks
    from cdd_agent.repl.screen import show_checks

    with invocation.screen.working("checking"):
        checks = run_checks(invocation.project.asking_nobody())
        is_well = show_checks(_print_json(checks) if invocation.as_json else checks, screen=invocation.screen)
    if not is_well:
        raise click.exceptions.Exit(int(ExitCode.ENVIRONMENT))


def _print_json(checks: "Iterable[Check]") -> "Iterator[Check]":
    for check in checks:
        sys.stdout.write(json.dumps({"event": "Checked", **dataclasses.asdict(check)}) + "\n")
        sys.stdout.flush()
        yield check


@click.command(short_help="Create the settings file and the folder of tickets.")
@headless
def init(invocation: Invocation) -> None:
    """Create .cdd/config.yaml and tickets/, and show how cdd runs the project's tests.

    The settings file states the defaults, as comments. What exists already stays as it is, and nothing else is changed.
    """
    from cdd_agent.config.settings import create_file
    from cdd_agent.doctor import check_project
    from cdd_agent.repl.screen import show_check
    from cdd_agent.tickets.ticket import create_folder

    project, screen = invocation.project.asking_nobody(), invocation.screen
    for path, is_new in (create_file(project.root, project.trust.approvals), create_folder(project.root)):
        screen.line(f"{path.relative_to(project.root)} {'created' if is_new else 'exists already'}")
    with screen.working("looking for the tests"):
        for check in _print_json(check_project(project)) if invocation.as_json else check_project(project):
            show_check(check, screen=screen)
    screen.line("Next: commit .cdd; cdd doctor checks everything else that a run needs; cdd new SLUG creates a ticket.")


@click.command(short_help="Create a ticket from the template.")
@click.argument("slug")
@click.option("--title", default="", help="One line; the default comes from the slug.")
@click.option(
    "--type",
    "kind",
    default="feature",
    show_default=True,
    metavar="TYPE",
    help="feature, bug, enhancement, refactor, chore, doc or spike.",
)
@click.pass_obj
def new(invocation: Invocation, *, slug: str, title: str, kind: str) -> None:
    """Create the ticket SLUG from the template."""
    from cdd_agent.tickets.ticket import create

    root = invocation.root
    ticket = create(root, slug, title=title, type=kind)
    path = ticket.spec_path.relative_to(root)
    invocation.screen.line(f"Created {path}. Describe there what you want, then: cdd spec {slug}")


@click.command(short_help="Show all tickets, or the progress of one.")
@name_ticket(required=False, or_run=True)
@headless
def status(invocation: Invocation, slug: str | None) -> None:
    """Show all tickets of the project and the other runs that are not complete, or the progress of the one SLUG."""
    from cdd_agent.repl.render import list_steps, show_other_runs, show_ticket, show_tickets, summarize_ticket
    from cdd_agent.runs.places import find_run, is_of_project, list_present
    from cdd_agent.tickets.ticket import list_tickets
    from cdd_agent.work.journal import journal_path

    root = invocation.root
    if invocation.as_json:
        found = (*list_tickets(root), *list_present(root)) if slug is None else (find_run(root, slug),)
        for ticket in found:
            invocation.sink(summarize_ticket(ticket))
            for step in () if slug is None else list_steps(ticket):
                invocation.sink(step)
        return
    if slug is None:
        tickets, runs = list_tickets(root), list_present(root)
        if tickets or not any(map(is_of_project, runs)):
            show_tickets(tickets, screen=invocation.screen)
        show_other_runs(runs, screen=invocation.screen)
    else:
        run = find_run(root, slug)
        show_ticket(run, screen=invocation.screen, journal=journal_path(root, slug))
        if not run.has_documents:
            _show_measures(run, root, screen=invocation.screen)
        _show_current_fork(root, slug, screen=invocation.screen)


def _show_measures(run: "Ticket", root: Path, *, screen: "Screen") -> None:
    """Show which targets the last report of a generation has reached."""
    from cdd_agent.generation.generation_report import REPORT
    from cdd_agent.runs.story import load_metrics
    from cdd_agent.work.state_file import load_state

    state = load_state(run.state_path)
    if state is None or not state.makes_project:
        return
    known = [each for each in load_metrics(root) if each.is_reached is not None]
    missed = ", ".join(each.name for each in known if not each.is_reached)
    if known:
        reached = sum(each.is_reached is True for each in known)
        text = f"targets {reached} of {len(known)} reached{f', not: {missed}' if missed else ''}; see {REPORT}"
        screen.line(text, indent=2, style="yellow" if missed else "dim")


def _show_current_fork(root: Path, slug: str, *, screen: "Screen") -> None:
    from cdd_agent.work.records import find_records

    if not (
        find_records(root).repository / "forks.json"
    ).is_file():  # most projects have no forks: nothing to load then
        return
    from cdd_agent.git.fork import Forks

    forks = Forks(root)
    if fork := forks.find_current(slug):
        typed = screen.as_typed(f"cdd --project {shlex.quote(str(forks.find_project(fork)))} status {slug}")
        screen.line(f"The run works in the fork {fork.name} now. Its progress: {typed}")


@click.command(short_help="See what completed steps changed, and approve them.")
@name_ticket(or_run=True)
@click.option("--approve", type=int, multiple=True, metavar="N", help="Approve step N; can be repeated.")
@click.option("--examples", type=int, multiple=True, metavar="N", help="Add step N's further examples to the tests.")
@click.option("--full", is_flag=True, help="Show every diff, however long.")
@headless
def review(
    invocation: Invocation, slug: str, *, approve: tuple[int, ...], examples: tuple[int, ...], full: bool
) -> None:
    """Show the changes, the evidence and the decisions of the completed steps of the ticket or run SLUG.

    In place of a ticket, SLUG may be a commit, such as HEAD: then it is shown with its evidence and comments.
    """
    if not (approve or examples) and _show_commit(invocation, slug, full=full):
        return
    if invocation.is_interactive and not (approve or examples):
        from cdd_agent.cli.chat import chat

        chat(invocation, first=f"/review {slug}")
        return
    from cdd_agent.repl.review_actions import MOST_LINES, show_overview, show_step

    with invocation.open_run(slug) as (project, ticket):
        opened = project.review(ticket)
        for number in approve:
            opened.approve(number)
        for number in examples:
            opened.add_examples(number)
        steps = project.review(ticket).steps if examples else opened.steps
    if invocation.as_json:
        for step in steps:
            invocation.sink(step.as_event(slug))
        if approve:
            end_ticket(opened, invocation=invocation)
        return
    from cdd_agent.repl.review_actions import show_comments

    comments = project.comments()
    for step in steps:
        rest = f"cdd review {slug} --full"
        show_step(step, screen=invocation.screen, most_lines=sys.maxsize if full else MOST_LINES, rest=rest)
        if found := comments.list_of_step(slug, step.number):
            show_comments(found, comments, screen=invocation.screen)
        invocation.screen.gap()
    show_overview(steps, screen=invocation.screen)
    if approve:
        end_ticket(opened, invocation=invocation)


def end_ticket(opened: "Review", *, invocation: Invocation) -> None:
    """End the ticket if every step is approved: show what it changed, and archive its sessions."""
    from cdd_agent.agent.sessions import ARCHIVED
    from cdd_agent.repl.review_actions import show_end, show_undecided
    from cdd_agent.runs.review import archive_finished

    if (end := opened.finish()) is None:
        if not (opened.remaining or invocation.as_json):
            show_undecided(opened.list_undecided(), screen=invocation.screen)
        return
    archived = archive_finished(invocation.project.root)
    if invocation.as_json:
        return
    show_end(end, screen=invocation.screen)
    for name in archived:
        invocation.screen.line(f"Its session is archived: cdd --resume {ARCHIVED}{name}")


def _show_commit(invocation: Invocation, name: str, *, full: bool) -> bool:
    """Show the commit ``name`` unless a ticket has this name; return whether it is one."""
    from cdd_agent.repl.review_actions import MOST_LINES, find_commit, show_full_screen, show_step

    project, screen = invocation.project, invocation.screen
    commit = find_commit(name, project)
    if commit is None:
        return False
    if invocation.as_json:
        invocation.sink(commit.as_event(""))
    elif not invocation.is_interactive or show_full_screen(commit, project.comments(), screen=screen) is None:
        rest = f"cdd review {name} --full"
        show_step(commit, screen=screen, most_lines=sys.maxsize if full else MOST_LINES, rest=rest)
    return True


@click.group(short_help="Comment on lines of a commit, or answer comments.")
def comment() -> None:
    """Comment on lines of a commit. The comments follow the lines when the code moves."""


@comment.command("add", short_help="Comment on lines of a commit.")
@click.argument("place")
@click.argument("text", nargs=-1, required=True)
@click.option("--commit", default="HEAD", metavar="REV", help="The commit; the default is HEAD.")
@click.option("--ai", is_flag=True, help="A program wrote the comment, not a person.")
@headless
def add_comment(invocation: Invocation, *, place: str, text: tuple[str, ...], commit: str, ai: bool) -> None:
    """Comment on PLACE: FILE:LINE or FILE:FIRST-LAST in the commit, or the word commit for all of it."""
    from cdd_agent.repl.review_actions import parse_target

    comments = invocation.project.comments()
    added = comments.add(parse_target(place), " ".join(text), commit=commit, author="ai" if ai else "user")
    _report_comments(invocation, [added])


@comment.command("list", short_help="List the comments.")
@click.option("--open", "only_open", is_flag=True, help="Leave resolved comments out.")
@headless
def list_comments(invocation: Invocation, *, only_open: bool) -> None:
    """List all comments, oldest first, with the lines where they are in HEAD now."""
    found = invocation.project.comments().list_all()
    shown = [each for each in found if not (only_open and each.resolved)]
    if found and not shown and not invocation.as_json:
        invocation.screen.line(f"No open comments; {len(found)} resolved: cdd comment list")
        return
    _report_comments(invocation, shown)


@comment.command("reply", short_help="Reply to a comment.")
@click.argument("identifier", metavar="ID")
@click.argument("text", nargs=-1, required=True)
@click.option("--ai", is_flag=True, help="A program wrote the reply, not a person.")
@headless
def reply_to_comment(invocation: Invocation, *, identifier: str, text: tuple[str, ...], ai: bool) -> None:
    """Reply to the comment whose id begins with ID."""
    comments = invocation.project.comments()
    _report_comments(invocation, [comments.reply(identifier, " ".join(text), author="ai" if ai else "user")])


@comment.command("edit", short_help="Change the text of a comment.")
@click.argument("identifier", metavar="ID")
@click.argument("text", nargs=-1, required=True)
@headless
def edit_comment(invocation: Invocation, *, identifier: str, text: tuple[str, ...]) -> None:
    """Replace the text of the comment whose id begins with ID."""
    _report_comments(invocation, [invocation.project.comments().edit(identifier, " ".join(text))])


@comment.command("resolve", short_help="Mark a comment as resolved.")
@click.argument("identifier", metavar="ID")
@click.option("--reopen", is_flag=True, help="Mark it as open again.")
@headless
def resolve_comment(invocation: Invocation, identifier: str, *, reopen: bool) -> None:
    """Mark the comment whose id begins with ID as resolved."""
    _report_comments(invocation, [invocation.project.comments().resolve(identifier, resolved=not reopen)])


def _report_comments(invocation: Invocation, found: "list[Comment]") -> None:
    from cdd_agent.repl.review_actions import show_comments
    from cdd_agent.review import Anchors

    comments = invocation.project.comments()
    if not invocation.as_json:
        show_comments(found, comments, screen=invocation.screen)
        return
    anchors = Anchors(comments.repository, "HEAD")
    for each in found:
        place = anchors.find(each)
        now = None if place is None else {"file": place.path, "start": place.start, "end": place.end}
        sys.stdout.write(json.dumps({"event": "CommentListed", **each.as_fields(), "now": now}) + "\n")


@click.group(short_help="Save your files as they are, and go back.")
def checkpoint() -> None:
    """Save the files as they are on disk, and restore them. Your index, HEAD, stash and ignored files never change."""


@checkpoint.command("create", short_help="Save the files as they are now.")
@click.argument("name", nargs=-1)
@headless
def create_checkpoint(invocation: Invocation, name: tuple[str, ...]) -> None:
    """Save the files as they are now, with the name NAME if given."""
    from cdd_agent.git.tree_store import Description
    from cdd_agent.repl.checkpoint_actions import require_name

    about = Description(kind="manual", name=require_name(" ".join(name)))
    _checkpoints(invocation).report(invocation.project.save_files(about))


@checkpoint.command("list", short_help="List the checkpoints.")
@click.option("-n", "most", type=click.IntRange(0), default=20, metavar="N", help="How many; 0 lists all.")
@headless
def list_checkpoints(invocation: Invocation, *, most: int) -> None:
    """List the newest checkpoints, with the files that have changed since."""
    _checkpoints(invocation).show_all(most)


@checkpoint.command("diff", short_help="Show what has changed since a checkpoint.")
@click.argument("one", metavar="ID")
@click.argument("other", metavar="[ID]", required=False)
@headless
def diff_checkpoints(invocation: Invocation, *, one: str, other: str | None) -> None:
    """Show the changes from a checkpoint, by its number or name, to the files now or to another checkpoint."""
    _checkpoints(invocation).show_diff(one, other)


@checkpoint.command("restore", short_help="Restore the files of a checkpoint.")
@click.argument("name", metavar="ID")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@headless
def restore_checkpoint(invocation: Invocation, name: str, *, dry_run: bool) -> None:
    """Make your files those of a checkpoint. The files before become a checkpoint too."""
    back = invocation.project.back
    go_back(back, back.plan_files(back.checkpoints.find(name)), invocation=invocation, dry_run=dry_run)


@checkpoint.command("undo", short_help="Return to where you were before the last restore.")
@headless
def undo_restore(invocation: Invocation) -> None:
    """Return to where you were before the last restore, rewind, `/undo` or rollback."""
    back = invocation.project.back
    go_back(back, back.plan_return(), invocation=invocation)


@checkpoint.command("redo", short_help="Redo what was undone last.")
@headless
def redo_restore(invocation: Invocation) -> None:
    """Return to where you were before the last undo."""
    back = invocation.project.back
    go_back(back, back.plan_return(is_redo=True), invocation=invocation)


@checkpoint.command("prune", short_help="Delete old checkpoints.")
@click.option(
    "--keep", type=click.IntRange(0), default=100, metavar="N", help="How many of each ticket stay. The default is 100."
)
@headless
def prune_checkpoints(invocation: Invocation, *, keep: int) -> None:
    """Delete the oldest checkpoints of each ticket. Those with a name stay."""
    deleted = _checkpoints(invocation).checkpoints.prune(keep=keep)
    invocation.screen.line(f"Deleted {format_count(deleted, 'checkpoint')}.")


def _checkpoints(invocation: Invocation) -> "CheckpointView":
    from cdd_agent.repl.checkpoint_actions import CheckpointView

    return CheckpointView(invocation.project.back, screen=invocation.screen, as_json=invocation.as_json)


def go_back(back: "Back", plan: "MovePlan", *, invocation: Invocation, dry_run: bool = False) -> None:
    """Show what a move would change and, if the user agrees, make it."""
    from cdd_agent.repl.checkpoint_actions import CheckpointView, ask_about

    view = CheckpointView(back, screen=invocation.screen, as_json=invocation.as_json and not dry_run)
    view.show_plan(plan)
    if not dry_run and invocation.is_agreed(ask_about(plan)):
        view.report_move(plan, back.go(plan))


@click.command(short_help="Tell what happened in a ticket, as text or as a page of HTML.")
@name_ticket(or_run=True)
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write a page of HTML to FILE.")
@headless
def report(invocation: Invocation, slug: str, *, page: Path | None) -> None:
    """Tell what happened in the ticket or run SLUG: attempts and gates, evidence, changes, comments, cost and tests.

    The page of HTML is one file with pictures and diffs. It needs no network and no script.
    """
    from cdd_agent.cli.report import format_page, show_story
    from cdd_agent.runs.places import find_run
    from cdd_agent.runs.story import load_story
    from cdd_agent.storage import write_atomic

    project = invocation.project
    found = find_run(project.root, slug)
    story = load_story(found, project=project.root, comments=project.comments(), forks=project.forks)
    if page is not None:
        try:
            write_atomic(page, format_page(story).encode("utf-8", "replace"))
        except OSError as error:
            happened = f"{page} cannot be written: {error.strerror or error}."
            raise UsageError(happened, hint="name another file: --html report.html") from error
        invocation.screen.line(f"The report is in {page}.")
    elif invocation.as_json:
        import msgspec  # the help of a command works without it

        from cdd_agent.work.wording import add_messages

        steps = tuple(
            dataclasses.replace(step, runs=tuple(dataclasses.replace(run, landed=None) for run in step.runs))
            for step in story.steps
        )
        fields = add_messages(msgspec.to_builtins(dataclasses.replace(story, steps=steps)))
        sys.stdout.write(json.dumps({"event": "TicketReported"} | msgspec.convert(fields, dict)) + "\n")
    else:
        show_story(story, screen=invocation.screen)


@click.command(short_help="Approve the settings, interpreter and hooks of this repository.")
@click.option(
    "--digest",
    "digests",
    multiple=True,
    metavar="SHA",
    help="Approve the content with this sha256 without showing it; for CI.",
)
@click.option("--forget", is_flag=True, help="Forget all decisions about this project.")
@click.option(
    "--records", is_flag=True, help="Show the records that cdd does not read, and ask whether they are yours."
)
@refuse_in_place
@click.pass_obj
def trust(invocation: Invocation, *, digests: tuple[str, ...], forget: bool, records: bool) -> None:
    """Show the settings, the interpreter, the hooks and the list of ignored files, and ask about each.

    Without a terminal, cdd shows them with their digests and decides nothing. It never runs them here. The commands
    that the agent may run without asking are listed too.

    With --records, it shows sessions, comments and reports that cdd found and did not write for you, such as those of
    an archive, and takes them over if you say yes.
    """
    from cdd_agent.doctor import list_offers

    if records:
        _ask_about_records(invocation, digests)
        return

    project = invocation.project.asking_nobody()
    approvals = project.trust.approvals
    if forget:
        decisions = format_count(approvals.forget(), "decision")
        invocation.screen.line(f"Forgot {decisions} about {project.root}.")
        return
    found = list_offers(project)
    if digests:
        known = {offer.digest: offer for offer in found}
        for digest in digests:
            if digest not in known:
                raise UsageError(
                    f"Nothing here has the digest {digest}. The content was changed or removed.",
                    hint=f"see the current content: {approvals.decided_by}",
                )
        for digest in digests:
            approvals.record(known[digest], approved=True)
            invocation.screen.line(f"Approved: {known[digest].name} ({known[digest].source}).")
        return
    _list_commands(approvals, screen=invocation.screen)
    if not found:
        invocation.screen.line("Nothing in this repository needs your approval.")
        return
    _ask_about(found, approvals, invocation=invocation)


_ARE_YOURS = "cdd would treat them as its own records, and their content as your words. Take them over? [y/N]"


def _ask_about_records(invocation: Invocation, digests: tuple[str, ...]) -> None:
    from cdd_agent.repl.question import confirm, show_offer
    from cdd_agent.runs.earlier import COMMAND, list_foreign, take_over

    root, screen = invocation.root, invocation.screen
    found = list_foreign(root)
    known = {each.offer.digest for each in found}
    if unknown := [digest for digest in digests if digest not in known]:
        hint = f"see the current content: {COMMAND}"
        raise UsageError(f"No records here have the digest {unknown[0]}. They were changed or removed.", hint=hint)
    if not found:
        screen.line("cdd reads all records that it found in this project.")
    undecided = 0
    for each in found:
        if digests:
            is_agreed = each.offer.digest in digests
        else:
            show_offer(each.offer, screen=screen)
            is_agreed = invocation.is_interactive and confirm(_ARE_YOURS, screen=screen)
        if is_agreed:
            screen.line(take_over(each, root))
        elif not (digests or invocation.is_interactive):
            undecided += 1
            screen.line(f"not read, sha256 {each.offer.digest}", style="bold")
    if undecided:
        hint = f"in a terminal: {COMMAND}; or after reading them: {COMMAND} --digest SHA"
        raise UsageError("These records need your decision, and cdd cannot ask you here.", hint=hint)


def _list_commands(approvals: "Approvals", *, screen: "Screen") -> None:
    if commands := approvals.list_commands():
        forget = f"{approvals.decided_by} --forget"
        screen.line(f"Commands that the agent may run here without asking. To forget them: {forget}")
        for command in commands:
            first, *more = command.splitlines() or [""]
            screen.line(f"{first} ..." if more else first, indent=2)
        screen.gap()


def _ask_about(found: "Iterable[Offer]", approvals: "Approvals", *, invocation: Invocation) -> None:
    from rich.text import Text

    from cdd_agent.repl.question import ask_approval, show_offer

    screen = invocation.screen
    undecided, are_declined = 0, False  # hooks are part of the settings
    for offer in found:
        decision = approvals.find_decision(offer)
        if offer.subject == "agent hooks" and are_declined:
            continue
        if invocation.is_interactive and not decision:
            changed = decision is None and approvals.has_changed(offer)
            decision = ask_approval(offer, changed, screen=screen)
            approvals.record(offer, approved=decision)
            screen.line("Approved." if decision else f"Declined: {offer.without}.", style="bold")
            are_declined |= offer.subject == "settings" and not decision
            continue
        screen.gap()
        show_offer(offer, screen=screen)
        undecided += decision is None
        state = {True: "approved", False: "declined", None: "not decided"}[decision]
        screen.show(Text(f"{state}, sha256 {offer.digest}", style="dim" if decision else "bold"), wrap=False)
    if undecided:
        screen.gap()
        hint = f"in a terminal: {approvals.decided_by}; or after reading it: {approvals.decided_by} --digest SHA"
        one = f"{undecided} of them needs" if undecided == 1 else f"{undecided} of them need"
        raise UsageError(f"{one} your decision, and cdd cannot ask you here.", hint=hint)
