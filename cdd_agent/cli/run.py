"""``cdd tdd``: a feature, one listed test a cycle, PLAN, RED, GREEN and REFACTOR each with an agent of its own.

``cdd spec``, ``cdd plan``, ``cdd exec``: the agents without a prompt, or the prompt opened in one of them.

``cdd green``: code for tests that fail already, and the artifact of what was made.

``cdd demo``: an example carried from spec to commits by a recording.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdd_agent.cli.invocation import Invocation, headless
from cdd_agent.errors import GateClosed, UsageError

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.history.rollback import Rollbacks
    from cdd_agent.tickets.ticket import Ticket
    from cdd_agent.work.state import RunState
    from cdd_agent.workflows.execution.executor import Executor
    from cdd_agent.workflows.green.artifact import GreenArtifact
    from cdd_agent.workflows.green.request import Wanted
    from cdd_agent.workflows.orchestration.feature import Feature
    from cdd_agent.workflows.orchestration.orchestrator import Orchestrator


@click.command(short_help="Socrates questions a ticket until its spec is complete.")
@click.argument("slug")
@headless
@click.pass_obj
def spec(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """Socrates questions the ticket SLUG until its spec.yaml is complete."""
    from cdd_agent.events import Notice

    invocation = invocation.with_options(given)
    if invocation.is_interactive:
        _open(invocation, f"/spec {slug}")
        return
    with _alone_on(invocation, slug) as (project, ticket):
        socrates = project.socrates(ticket)
        if socrates.missing:
            socrates.open(somebody_answers=False)
        if socrates.missing:
            raise GateClosed(
                f"The spec is not complete: {'; '.join(socrates.missing)}.",
                hint=f"answer in {ticket.spec_path.relative_to(project.adapters.root)}, "
                f"or, in a terminal: cdd spec {slug}",
            )
        project.adapters.emit(Notice(text=f"The spec is complete. Next: cdd plan {slug}"))


@click.command(short_help="The Planner writes the plan of a complete spec.")
@click.argument("slug")
@headless
@click.pass_obj
def plan(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """The Planner writes plan.md for the ticket SLUG."""
    from cdd_agent.events import Notice

    invocation = invocation.with_options(given)
    if invocation.is_interactive:
        _open(invocation, f"/plan {slug}")
        return
    with _alone_on(invocation, slug) as (project, ticket):
        planner = project.planner(ticket)
        drafted = planner.draft()
        if not invocation.as_json:
            from cdd_agent.repl.render import show_plan

            show_plan(
                drafted, screen=invocation.screen, criteria=planner.criteria, created=planner.find_new_files(drafted)
            )
        project.adapters.emit(Notice(text=f"The plan is saved. Next: cdd exec {slug}"))


@click.command(name="exec", short_help="The Executor carries the plan out, test first.")
@click.argument("slug")
@click.option("--step", type=int, metavar="N", help="Run only step N.")
@click.option("--retry", type=int, metavar="N", help="Try the failed or skipped step N again, then go on.")
@click.option("--skip", type=int, metavar="N", help="Leave step N out, then go on.")
@click.option("--allow-dirty", is_flag=True, help="Keep your uncommitted changes as they are, out of every commit.")
@headless
@click.pass_obj
def exec_(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """The Executor carries the plan of the ticket SLUG out, test first, from where it stopped."""
    invocation = invocation.with_options(given)
    if invocation.is_interactive and not any(given[name] is not None for name in ("step", "retry", "skip")):
        _open(invocation, f"/exec {slug}")
        return
    with invocation.ticket(slug) as (project, ticket):
        executor = project.executor(ticket)
        _carry_out(executor, given)
    if not invocation.as_json:
        from cdd_agent.repl.executor_view import show_summary

        invocation.screen.gap()
        show_summary(executor.state, screen=invocation.screen)
    _require_completed(executor.state)


def _open(invocation: Invocation, said: str) -> None:
    """The prompt, with what is said first in it."""
    from cdd_agent.cli.chat import chat

    chat(invocation, first=said)


@contextmanager
def _alone_on(invocation: Invocation, slug: str) -> Iterator[tuple["Composition", "Ticket"]]:
    """The project and a ticket of it that nobody else writes while the block runs."""
    from cdd_agent.work.state_file import lock_ticket

    with invocation.ticket(slug) as (project, ticket), lock_ticket(project.adapters.root, ticket.folder):
        yield project, ticket


def _carry_out(executor: "Executor", given: dict[str, Any]) -> None:
    """Run what the options name: one step, or all that are left."""
    for name in ("step", "retry", "skip"):
        if given[name] is not None:
            executor.step(given[name])
    with executor.running():
        if given["retry"] is not None:
            executor.retry(given["retry"])
        if given["skip"] is not None:
            executor.skip(given["skip"], reason="skipped by the user")
        if given["step"] is not None:
            executor.run_step(executor.step(given["step"]))
        else:
            executor.run_all()


def _require_completed(state: "RunState") -> None:
    """Raise ``GateClosed`` naming the first step that failed."""
    from cdd_agent.work.state import Status

    for number in state.numbers(Status.FAILED):
        raise GateClosed(
            f"Step {number} failed: {state.execution(number).title}.",
            hint=f"change the plan or the code, then: cdd exec {state.ticket_slug} --retry {number}",
        )


@click.command(short_help="Write the code for tests that fail already.")
@click.argument("tests", nargs=-1, metavar="TEST...")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the artifact there."
)
@click.option("--title", metavar="TEXT", help="What the commit is called; made from the tests if not given.")
@click.option(
    "--kind", type=click.Choice(["feature", "bug"]), help="feat: or fix:; told from the failures if not given."
)
@click.option("--spec-id", metavar="ID", help="Of the artifact; the run's name if not given.")
@click.option("--request-id", metavar="ID", help="Of the artifact; made if not given.")
@click.option("--anew", is_flag=True, help="Take back what an interrupted run has done, and begin again.")
@click.option("--allow-dirty", is_flag=True, help="Keep your uncommitted changes as they are, out of every commit.")
@headless
@click.pass_obj
def green(invocation: Invocation, /, tests: tuple[str, ...], **given: Any) -> None:
    """Write the code that makes each TEST pass, a file or node id that fails now; tests are locked.

    The same command goes on with a run that was interrupted.
    """
    from cdd_agent.workflows.green.request import resolve_targets

    invocation = invocation.with_options(given)
    out: Path | None = given["out"]
    _require_place(out)

    def find(project: "Composition") -> "Wanted":
        return replace(
            resolve_targets(project.adapters.root, tests, here=Path.cwd()),
            title=given["title"] or "",
            kind=given["kind"],
            spec_id=given["spec_id"] or "",
            request_id=given["request_id"] or "",
        )

    with invocation.journaled(find) as (project, wanted):
        artifact = project.green(wanted).run(anew=given["anew"])
    _hand_over(artifact, out=out, invocation=invocation)
    artifact.require_green(wanted.commands.resume)


def _require_place(out: Path | None) -> None:
    """Raise ``UsageError`` before the work begins if its artifact could not be written."""
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {out.parent} for {out.name}.", hint=f"make it: mkdir -p {out.parent}")


def _hand_over(artifact: "GreenArtifact", *, out: Path | None, invocation: Invocation) -> None:
    """Show the artifact, as JSON to a program, in words to a person; then, as that may fail, write it down."""
    from cdd_agent.repl.workflow_actions import show_artifact
    from cdd_agent.storage import write_atomic
    from cdd_agent.workflows.green.artifact import encode, encode_event

    if invocation.as_json:
        sys.stdout.write(f"{encode_event(artifact).decode('utf-8')}\n")
        sys.stdout.flush()
    else:
        show_artifact(artifact, screen=invocation.screen)
    if out is not None:
        write_atomic(out.absolute(), encode(artifact))
        invocation.screen.line(f"artifact {out}", style="dim", indent=0)


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
    from cdd_agent.workflows.orchestration.feature import begin_feature

    def find(project: "Composition") -> "Feature":
        return begin_feature(project.adapters.root, project.adapters.repository, text=" ".join(text))

    with orchestrator(invocation.with_options(given), find) as made:
        made.run()


@tdd.command(short_help="Go on with a feature.")
@click.option("--allow-dirty", is_flag=True, help="Keep your uncommitted changes as they are, out of every commit.")
@headless
@click.pass_obj
def resume(invocation: Invocation, /, **given: Any) -> None:
    """Go on from the phase after the last one that landed, whatever ended the run."""
    from cdd_agent.workflows.orchestration.feature import find_resumable

    def find(project: "Composition") -> "Feature":
        return find_resumable(project.adapters.root, project.adapters.repository)

    with orchestrator(invocation.with_options(given), find) as made:
        made.run()


@tdd.command(short_help="Show where the run stands.")
@headless
@click.pass_obj
def status(invocation: Invocation, /, **given: Any) -> None:
    """Show where the run stands that the newest handoff note on this branch tells of, and what to type next."""
    from cdd_agent.repl import workflow_actions

    invocation = invocation.with_options(given)
    stands, damages = workflow_actions.find_run_status(workflow_actions.finish_pending_rollback(_rollbacks(invocation)))
    if invocation.as_json:
        invocation.sink(stands)
    else:
        workflow_actions.show_run_status(stands, screen=invocation.screen)
    workflow_actions.show_damages(damages, screen=invocation.screen)


@tdd.command(short_help="Show what the phases handed over, newest first.")
@click.option(
    "-n", "number", type=click.IntRange(0), default=20, metavar="N", help="How many; 0: all. 20 if not given."
)
@headless
@click.pass_obj
def history(invocation: Invocation, /, number: int, **given: Any) -> None:
    """Show the handoff notes on the commits that HEAD comes from, newest first."""
    from cdd_agent.repl import workflow_actions

    invocation = invocation.with_options(given)
    rows, hidden, damages = workflow_actions.list_history(
        workflow_actions.finish_pending_rollback(_rollbacks(invocation)), most=number
    )
    if invocation.as_json:
        for row in rows:
            invocation.sink(row)
    else:
        workflow_actions.show_history(rows, hidden=hidden, screen=invocation.screen)
    workflow_actions.show_damages(damages, screen=invocation.screen)


@tdd.command(short_help="Go back to a commit of the run, or undo that.")
@click.argument("commit", required=False)
@click.option("--undo", is_flag=True, help="Bring back what the last rollback took away.")
@headless
@click.pass_obj
def rollback(invocation: Invocation, /, commit: str | None, *, undo: bool, **given: Any) -> None:
    """Go back to COMMIT, one of those that `cdd tdd history` shows: branch, files and index.

    What it means is shown and asked about first. All that goes is kept, and so are your own uncommitted changes and
    files; if they are in the plan, nothing is done. `cdd tdd resume` then goes on with the phase after COMMIT's.
    """
    from cdd_agent.repl import workflow_actions
    from cdd_agent.tdd.recovery import alone

    invocation = invocation.with_options(given)
    if (commit is None) is not undo:
        happened = "Which commit? None was named." if commit is None else "A commit and --undo do not go together."
        raise UsageError(
            happened, hint="cdd tdd rollback COMMIT, or cdd tdd rollback --undo; cdd tdd history shows them"
        )
    rollbacks = _rollbacks(invocation)
    with alone(rollbacks.repository):
        rollbacks.finish()
        plan = rollbacks.plan(commit) if commit is not None else rollbacks.plan_undo()
        if invocation.as_json:
            invocation.sink(plan.as_event())
        else:
            workflow_actions.show_rollback(plan, screen=invocation.screen)
        if not _may_go(invocation):
            invocation.screen.line("Nothing was changed.", indent=0)
            return
        rollbacks.apply(plan)
    if not invocation.as_json:
        workflow_actions.report_rollback(plan, screen=invocation.screen)


@tdd.command("repair-notes", short_help="Say what is wrong with the handoff notes, or mend it.")
@click.option("--apply", "applies", is_flag=True, help="Mend what can be mended; the notes as they were are kept.")
@click.option("--merge", "fetched", metavar="REF", help="First take in the notes that were fetched into REF.")
@headless
@click.pass_obj
def repair_notes(invocation: Invocation, /, *, applies: bool, fetched: str | None, **given: Any) -> None:
    """Say what is wrong with the handoff notes and what would be done about it; with --apply, do it."""
    from cdd_agent.clock import SystemClock
    from cdd_agent.events import NoteDamaged, NoteRepaired, NotesRepaired
    from cdd_agent.git import notes_repair
    from cdd_agent.repl import workflow_actions

    invocation = invocation.with_options(given)
    rollbacks = workflow_actions.finish_pending_rollback(_rollbacks(invocation))
    repository = rollbacks.repository
    if fetched is not None:
        workflow_actions.merge_notes(fetched, rollbacks=rollbacks)
    applied = notes_repair.apply_repairs(repository, now=SystemClock().now()) if applies else None
    repairs = notes_repair.plan_repairs(repository) if applied is None else applied.repairs
    if invocation.as_json:
        for each in repairs:
            if applies and each.mends:
                invocation.sink(NoteRepaired(what=each.what, commit=each.commit, action=each.action))
            else:
                invocation.sink(NoteDamaged(**dataclasses.asdict(each)))
        if applied is not None:
            invocation.sink(NotesRepaired(backup=applied.backup, undo=applied.undo))
    else:
        workflow_actions.show_repairs(repairs, applied=applied, screen=invocation.screen)


def _rollbacks(invocation: Invocation) -> "Rollbacks":
    from cdd_agent.history.rollback import Rollbacks
    from cdd_agent.testrun.root import find_root

    return Rollbacks.of_project(find_root(invocation.options), emit=invocation.sink)


def _may_go(invocation: Invocation) -> bool:
    """Whether the rollback that was shown is applied; raises ``UsageError`` where nobody can say so."""
    if invocation.assume_yes:
        return True
    if not invocation.is_interactive:
        raise UsageError("Nobody is there to say yes, and nothing was changed.", hint="the same command with --yes")
    from cdd_agent.repl.question import ask_to_roll_back

    return ask_to_roll_back(screen=invocation.screen)


@contextmanager
def orchestrator(invocation: Invocation, find: Find) -> Iterator["Orchestrator"]:
    """The orchestrator on the feature that ``find`` names, the events going to the output and to its journal."""

    _rollbacks(invocation).finish_interrupted()
    with invocation.journaled(find) as (project, feature):
        yield project.orchestrator(feature)


@click.command(short_help="Run an example from its recording, without a key.")
@click.argument("name", default="csv-export")
@click.option("--list", "listed", is_flag=True, help="Name the examples.")
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Where to put the project; must not exist."
)
@headless
@click.pass_obj
def demo(invocation: Invocation, /, name: str, *, listed: bool, keep: Path | None, **given: Any) -> None:
    """Run spec, plan and exec on the example NAME from its recording: real git, real tests, real gates, no key."""
    from cdd_agent.cli.demo import find_examples, play

    invocation = invocation.with_options(given)
    known = {example.name: example for example in find_examples()}
    if listed:
        width = max(map(len, known))
        for example in known.values():
            invocation.screen.line(f"{example.name:<{width}}  {example.script.title}", hang=width + 2)
        return
    if name not in known:
        import difflib

        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean: cdd demo {near[0]}" if near else f"cdd demo {' | '.join(known)}"
        raise UsageError(f"There is no example {name!r}.", hint=hint)
    play(invocation, known[name], folder=keep)
