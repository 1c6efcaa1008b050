"""``cdd tdd``: a feature, one listed test a cycle, PLAN, RED, GREEN and REFACTOR each with an agent of its own."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cdd_agent.cli.invocation import Invocation, headless
from cdd_agent.errors import UsageError

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.workflows.orchestration.feature import Feature
    from cdd_agent.workflows.orchestration.orchestrator import Orchestrator
    from cdd_agent.workflows.orchestration.past.rollback import Site

Find = Callable[["Composition"], "Feature"]
"""Says which feature is meant."""


@click.group(short_help="A feature, one listed test a cycle: PLAN, RED, GREEN, REFACTOR.")
def tdd() -> None:
    """Build a feature test by test: an agent for each phase, a gate after it, a commit and a note for each."""


@tdd.command(short_help="Begin a feature.")
@click.argument("text", nargs=-1, required=True)
@click.option("--allow-dirty", is_flag=True, help="Keep your uncommitted changes as they are, out of every commit.")
@headless
@click.pass_obj
def run(invocation: Invocation, /, text: tuple[str, ...], **given: Any) -> None:
    """Build the feature that TEXT asks for."""
    from cdd_agent.workflows.orchestration.recollection import to_begin

    def find(project: "Composition") -> "Feature":
        return to_begin(project.adapters.root, project.adapters.repository, text=" ".join(text))

    with orchestrator(invocation.with_options(given), find) as made:
        made.run()


@tdd.command(short_help="Go on with a feature.")
@click.option("--allow-dirty", is_flag=True, help="Keep your uncommitted changes as they are, out of every commit.")
@headless
@click.pass_obj
def resume(invocation: Invocation, /, **given: Any) -> None:
    """Go on from the phase after the last one that landed, whatever ended the run."""
    from cdd_agent.workflows.orchestration.recollection import to_resume

    def find(project: "Composition") -> "Feature":
        return to_resume(project.adapters.root, project.adapters.repository)

    with orchestrator(invocation.with_options(given), find) as made:
        made.run()


@tdd.command(short_help="Show where the run stands.")
@headless
@click.pass_obj
def status(invocation: Invocation, /, **given: Any) -> None:
    """Show where the run stands that the newest handoff note on this branch tells of, and what to type next."""
    from cdd_agent.repl.talk import past

    invocation = invocation.with_options(given)
    stands, damages = past.told_standing(past.settled(_site(invocation)))
    if invocation.as_json:
        invocation.sink(stands)
    else:
        past.show_standing(stands, screen=invocation.screen)
    past.show_damages(damages, screen=invocation.screen)


@tdd.command(short_help="Show what the phases handed over, newest first.")
@click.option(
    "-n", "number", type=click.IntRange(0), default=20, metavar="N", help="How many; 0: all. 20 if not given."
)
@headless
@click.pass_obj
def history(invocation: Invocation, /, number: int, **given: Any) -> None:
    """Show the handoff notes on the commits that HEAD comes from, newest first."""
    from cdd_agent.repl.talk import past

    invocation = invocation.with_options(given)
    rows, left_out, damages = past.told_history(past.settled(_site(invocation)), most=number)
    if invocation.as_json:
        for row in rows:
            invocation.sink(row)
    else:
        past.show_history(rows, left_out=left_out, screen=invocation.screen)
    past.show_damages(damages, screen=invocation.screen)


@tdd.command(short_help="Go back to a commit of the run, or undo that.")
@click.argument("commit", required=False)
@click.option("--undo", is_flag=True, help="Bring back what the last rollback took away.")
@headless
@click.pass_obj
def rollback(invocation: Invocation, /, commit: str | None, *, undo: bool, **given: Any) -> None:
    """Go back to COMMIT, one of those that `cdd tdd history` shows: branch, files and index.

    What it means is shown and asked about first. All that goes is kept, and so are your own uncommitted changes and
    files; if they are in the way, nothing is done. `cdd tdd resume` then goes on with the phase after COMMIT's.
    """
    from cdd_agent.repl.talk import past
    from cdd_agent.tdd.recovery import alone
    from cdd_agent.workflows.orchestration.past.going import finish, go
    from cdd_agent.workflows.orchestration.past.rollback import look, look_undo

    invocation = invocation.with_options(given)
    if (commit is None) is not undo:
        happened = "Which commit? None was named." if commit is None else "A commit and --undo do not go together."
        raise UsageError(
            happened, hint="cdd tdd rollback COMMIT, or cdd tdd rollback --undo; cdd tdd history shows them"
        )
    site = _site(invocation)
    with alone(site.repository):
        finish(site)
        way = look(site, commit) if commit is not None else look_undo(site)
        if invocation.as_json:
            invocation.sink(way.as_event())
        else:
            past.show_way(way, screen=invocation.screen)
        if not _may_go(invocation):
            invocation.screen.line("Nothing was changed.", indent=0)
            return
        go(site, way)
    if not invocation.as_json:
        past.say_done(way, screen=invocation.screen)


@tdd.command("repair-notes", short_help="Say what is wrong with the handoff notes, or mend it.")
@click.option("--apply", "applies", is_flag=True, help="Mend what can be mended; the notes as they were are kept.")
@click.option("--merge", "fetched", metavar="REF", help="First take in the notes that were fetched into REF.")
@headless
@click.pass_obj
def repair_notes(invocation: Invocation, /, *, applies: bool, fetched: str | None, **given: Any) -> None:
    """Say what is wrong with the handoff notes and what would be done about it; with --apply, do it."""
    from cdd_agent.clock import SystemClock
    from cdd_agent.events.past import NoteDamaged, NoteRepaired, NotesRepaired
    from cdd_agent.git.notes import repair
    from cdd_agent.repl.talk import past

    invocation = invocation.with_options(given)
    site = past.settled(_site(invocation))
    repository = site.repository
    if fetched is not None:
        past.take_in(fetched, site=site)
    applied = repair.apply(repository, now=SystemClock().now()) if applies else None
    repairs = repair.plan(repository) if applied is None else applied.repairs
    if invocation.as_json:
        for each in repairs:
            if applies and each.mends:
                invocation.sink(NoteRepaired(what=each.what, commit=each.commit, action=each.action))
            else:
                invocation.sink(NoteDamaged(**dataclasses.asdict(each)))
        if applied is not None:
            invocation.sink(NotesRepaired(backup=applied.backup, undo=applied.undo))
    else:
        past.show_repairs(repairs, applied=applied, screen=invocation.screen)


def _site(invocation: Invocation) -> "Site":
    from cdd_agent.workflows.orchestration.past.rollback import site_of

    return site_of(invocation.options.root(), emit=invocation.sink)


def _may_go(invocation: Invocation) -> bool:
    """Whether the way that was shown is gone; raises ``UsageError`` where nobody can say so."""
    if invocation.assume_yes:
        return True
    if not invocation.is_interactive:
        raise UsageError("Nobody is there to say yes, and nothing was changed.", hint="the same command with --yes")
    from cdd_agent.repl.display.question import may_go_back

    return may_go_back(screen=invocation.screen)


@contextmanager
def orchestrator(invocation: Invocation, find: Find) -> Iterator["Orchestrator"]:
    """The orchestrator on the feature that ``find`` names, the events going to the output and to its journal."""
    from cdd_agent.workflows.orchestration.past.going import settle

    settle(_site(invocation))
    with invocation.journaled(find) as (project, feature):
        yield project.orchestrator(feature)
