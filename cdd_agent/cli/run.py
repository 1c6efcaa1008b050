"""The commands that run agents: ``cdd spec``, ``plan``, ``exec``, ``green``, ``tdd`` and ``demo``."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdd_agent.cli.invocation import Invocation, headless, in_run_tree, name_ticket, on_workers
from cdd_agent.errors import GateClosed, UsageError, suggest

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.repl.workflow_actions import RunHistory
    from cdd_agent.runs.artifact import GreenArtifact
    from cdd_agent.runs.feature import Feature
    from cdd_agent.runs.review import Review
    from cdd_agent.runs.run import Run, Source
    from cdd_agent.tickets.ticket import Ticket
    from cdd_agent.work.state import RunState


@click.command(short_help="Socrates asks questions until the spec is complete.")
@name_ticket()
@headless
def spec(invocation: Invocation, slug: str) -> None:
    """Socrates asks questions about the ticket SLUG until its spec.yaml is complete."""
    from cdd_agent.events import Notice

    if invocation.is_interactive:
        _open_prompt(invocation, f"/spec {slug}")
        return
    with _hold_ticket(invocation, slug) as (project, ticket):
        socrates = project.socrates(ticket)
        if socrates.missing:
            socrates.open(somebody_answers=False)
        if socrates.missing:
            raise GateClosed(
                f"The spec is not complete: {'; '.join(socrates.missing)}.",
                hint=f"answer in {ticket.spec_path.relative_to(project.root)}, or, in a terminal: cdd spec {slug}",
            )
        project.emit(Notice(text=f"The spec is complete. Next: cdd plan {slug}"))


@click.command(short_help="The Planner writes a plan from the complete spec.")
@name_ticket()
@headless
def plan(invocation: Invocation, slug: str) -> None:
    """The Planner writes plan.md for the ticket SLUG."""
    from cdd_agent.events import Notice

    if invocation.is_interactive:
        _open_prompt(invocation, f"/plan {slug}")
        return
    with _hold_ticket(invocation, slug) as (project, ticket):
        planner = project.planner(ticket)
        drafted = planner.draft()
        if not invocation.as_json:
            from cdd_agent.repl.render import show_plan

            new = planner.find_new_files(drafted)
            show_plan(drafted, screen=invocation.screen, criteria=planner.criteria, created=new)
        project.emit(Notice(text=f"The plan is saved. Next: cdd exec {slug}"))


@click.command(name="exec", short_help="The Executor carries out the plan, test first.")
@name_ticket()
@click.option("--step", type=int, metavar="N", help="Run only step N.")
@click.option("--retry", type=int, metavar="N", help="Run step N again if it failed or was skipped, then continue.")
@click.option("--guidance", default="", metavar="TEXT", help="With --retry: what the model is told about the step.")
@click.option("--skip", type=int, metavar="N", help="Skip step N, then continue.")
@click.option("--no-review", is_flag=True, help="Approve each step that its gates complete, without showing it.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Let up to N agents work at once, on steps that do not depend on each other. They land in plan order.",
)
@on_workers
@click.option("--anyway", is_flag=True, help="Run it although a ticket that it depends on is not done.")
@in_run_tree
@headless
def exec_(
    invocation: Invocation, slug: str, *, step: int | None, retry: int | None, guidance: str, skip: int | None
) -> None:
    """The Executor carries out the plan of the ticket SLUG, test first, from where it stopped."""
    if guidance and retry is None:
        raise UsageError("--guidance belongs to --retry.", hint=f"cdd exec {slug} --retry N --guidance TEXT")
    if invocation.options.record is not None and invocation.options.jobs > 1:
        raise UsageError("A recording holds the turns of one process, and --jobs starts several.", hint="omit --jobs")
    numbers = [number for number in (step, retry, skip) if number is not None]
    if invocation.is_interactive and not numbers:
        _open_prompt(invocation, f"/exec {slug}")
        return
    with invocation.open_ticket(slug) as (project, ticket):
        executor = project.executor(ticket)
        before = executor.state
        for number in numbers:
            executor.step(number)
        with executor.running():
            if retry is not None:
                executor.retry(retry, guidance=guidance)
            if skip is not None:
                executor.skip(skip, reason="skipped by the user")
            if step is not None:
                executor.run_step(executor.step(step))
            else:
                executor.run_all()
        opened = _approve_completed(executor, before, project=project) if project.options.no_review else None
    _report_steps(executor, before=before, invocation=invocation)
    if opened is not None:
        from cdd_agent.cli.inspect import end_ticket

        end_ticket(opened, invocation=invocation)


def _approve_completed(executor: "Run[Source]", before: "RunState", *, project: "Composition") -> "Review | None":
    """Approve the steps that were completed since ``before``, and return the review if there are any."""
    from cdd_agent.repl.dialogs import list_completed

    numbers = list_completed(before, executor.state)
    if not numbers:
        return None
    opened = project.review(executor.ticket)
    for number in numbers:
        opened.approve(number)
    executor.read()
    return opened


def _report_steps(executor: "Run[Source]", *, before: "RunState", invocation: Invocation) -> None:
    """Show the summary of a run. Raises ``GateClosed`` if a step failed."""
    from cdd_agent.repl.dialogs import show_summary
    from cdd_agent.work.state import Status

    slug = executor.ticket.slug
    if not invocation.as_json:
        invocation.screen.gap()
        show_summary(executor.state, screen=invocation.screen, used=executor.read_usage(), before=before)
    if executor.given_up is not None:
        hint = f"say it in another way: cdd exec {slug} --retry {executor.given_up} --guidance TEXT"
        raise GateClosed(f"Step {executor.given_up} was not changed: no attempt was accepted.", hint=hint)
    for number in executor.state.numbers(Status.FAILED):
        hint = f"change the plan or the code, then: cdd exec {slug} --retry {number}"
        raise GateClosed(f"Step {number} failed: {executor.state.execution(number).title}.", hint=hint)


def answer(invocation: Invocation, words: str) -> None:
    """Answer a question about the project; turn a request into a ticket, or carry it out if it is small."""
    from cdd_agent.conversation.scout import create_ticket
    from cdd_agent.events import Notice
    from cdd_agent.repl.dialogs import show_proposal
    from cdd_agent.repl.render import READY

    if not words:
        raise UsageError("The text after -p is empty.", hint='cdd -p "How are rows sorted?"')
    with closing(invocation.project) as project, invocation.screen.working(READY):
        proposal = project.scout().hear(words)
        if proposal is None:
            return
        if not invocation.as_json:
            show_proposal(proposal, screen=invocation.screen)
        ticket = create_ticket(project.root, proposal, words=words)
        project.follow(ticket.slug)
        if proposal.size == "large":
            text = f"Created {ticket.spec_path.relative_to(project.root)}. Next: cdd spec {ticket.slug}"
            project.emit(Notice(text=text))
            return
        executor = project.executor(ticket)
        before = executor.state
        with executor.running():
            executor.run_all()
    _report_steps(executor, before=before, invocation=invocation)


def _open_prompt(invocation: Invocation, line: str) -> None:
    from cdd_agent.cli.chat import chat

    chat(invocation, first=line)


@contextmanager
def _hold_ticket(invocation: Invocation, slug: str) -> Iterator[tuple["Composition", "Ticket"]]:
    from cdd_agent.work.state import lock_ticket

    with invocation.open_ticket(slug) as (project, ticket), lock_ticket(project.root, ticket.folder):
        yield project, ticket


@click.command(short_help="Write the code for tests that already fail.")
@click.argument("tests", nargs=-1, metavar="TEST...")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the artifact to FILE."
)
@click.option(
    "--title", default="", metavar="TEXT", help="The subject of the commit; the default comes from the tests."
)
@click.option(
    "--kind", type=click.Choice(["feature", "bug"]), help="feat: or fix:; the default depends on the failures."
)
@click.option("--spec", default="", metavar="SLUG", help="Tell the model the text and criteria of this ticket.")
@click.option("--goal", default="", metavar="TEXT", help="Tell the model the purpose of the tests.")
@click.option(
    "--criterion", "criteria", multiple=True, metavar="TEXT", help="An acceptance criterion; may be repeated."
)
@click.option("--spec-id", default="", metavar="ID", help="spec_id of the artifact; default: SLUG, or the run's name.")
@click.option("--request-id", default="", metavar="ID", help="request_id of the artifact; default: a new one.")
@click.option("--anew", is_flag=True, help="Undo an interrupted run and start again.")
@in_run_tree
@headless
def green(invocation: Invocation, tests: tuple[str, ...], *, out: Path | None, anew: bool, **given: Any) -> None:
    """Write the code that makes each TEST pass: a file or node id that fails now. The tests are locked.

    The model makes them pass in the order given. The same command continues an interrupted run.
    """
    from cdd_agent.runs.request import describe_purpose, resolve_targets

    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"The folder {out.parent} for {out.name} does not exist.", hint=f"mkdir -p {out.parent}")

    project = invocation.project
    purpose = {name: given.pop(name) for name in ("spec", "goal", "criteria")}
    wanted = replace(resolve_targets(project.root, tests, here=Path.cwd()), **given)
    wanted = describe_purpose(project.root, wanted, **purpose)
    with invocation.work_on(wanted.slug):
        run = project.green(wanted, anew=anew)
        run.run()
        artifact = run.source.make_artifact(run)
    _deliver(artifact, out=out, invocation=invocation)
    artifact.require_green(wanted.commands.resume)


def _deliver(artifact: "GreenArtifact", *, out: Path | None, invocation: Invocation) -> None:
    # Shown first, because writing the file can fail.
    from cdd_agent.repl.workflow_actions import show_artifact
    from cdd_agent.runs.artifact import encode, encode_event
    from cdd_agent.storage import write_atomic

    if invocation.as_json:
        sys.stdout.write(f"{encode_event(artifact).decode('utf-8')}\n")
        sys.stdout.flush()
    else:
        show_artifact(artifact, screen=invocation.screen)
    if out is not None:
        write_atomic(out.absolute(), encode(artifact))
        invocation.screen.line(f"artifact {out}", style="dim")


@click.group(short_help="Build a feature in cycles of PLAN, RED, GREEN and REFACTOR.")
def tdd() -> None:
    """Build a feature test by test. Each phase has its own agent, gate, commit and note."""


@tdd.command(short_help="Start a feature.")
@click.argument("text", nargs=-1, required=True)
@in_run_tree
@headless
def run(invocation: Invocation, text: tuple[str, ...]) -> None:
    """Build the feature that TEXT describes."""
    from cdd_agent.runs.feature import begin_feature

    words = " ".join(text)
    _orchestrate(invocation, lambda parts: begin_feature(parts.root, parts.repository, text=words))


@tdd.command(short_help="Continue a feature.")
@click.argument("guidance", nargs=-1)
@in_run_tree
@headless
def resume(invocation: Invocation, guidance: tuple[str, ...]) -> None:
    """Continue with the next phase, however the run ended. The model gets GUIDANCE, if any."""
    from cdd_agent.runs.feature import find_resumable

    _orchestrate(invocation, lambda parts: find_resumable(parts.root, parts.repository), guidance=" ".join(guidance))


@tdd.command(short_help="Show the progress of the run.")
@headless
def status(invocation: Invocation) -> None:
    """Show the progress of the run with the newest handoff note on this branch, and what to type next."""
    _history(invocation).show_status()


@tdd.command(short_help="List the phases of the run, newest first.")
@click.option(
    "-n", "number", type=click.IntRange(0), default=20, metavar="N", help="How many; 0 lists all. The default is 20."
)
@headless
def history(invocation: Invocation, number: int) -> None:
    """List the handoff notes in the history of HEAD, newest first."""
    _history(invocation).show_phases(number)


@tdd.command(short_help="Go back to a commit of the run, or undo that.")
@click.argument("commit", required=False)
@click.option("--undo", is_flag=True, help="Undo the last rollback.")
@headless
def rollback(invocation: Invocation, commit: str | None, *, undo: bool) -> None:
    """Go back to COMMIT: branch, files and index. `cdd tdd history` lists the commits.

    cdd shows the effects and asks first. It saves everything that is removed, and keeps your uncommitted changes and
    files. If they are in the way, it does nothing. `cdd tdd resume` then continues with the phase after COMMIT.
    """
    if (commit is None) is not undo:
        happened = "Which commit? None was named." if commit is None else "A commit and --undo exclude each other."
        hint = "cdd tdd rollback COMMIT, or cdd tdd rollback --undo; cdd tdd history lists them"
        raise UsageError(happened, hint=hint)
    from cdd_agent.cli.inspect import go_back

    back = _history(invocation).back
    plan = back.plan_return(is_redo=back.is_undone()) if commit is None else back.plan_commit(commit)
    go_back(back, plan, invocation=invocation)


@tdd.command("repair-notes", short_help="Check the handoff notes, or repair them.")
@click.option("--apply", "applies", is_flag=True, help="Repair the notes; the old ones are saved.")
@click.option("--merge", "fetched", metavar="REF", help="First merge the notes fetched into REF.")
@headless
def repair_notes(invocation: Invocation, *, applies: bool, fetched: str | None) -> None:
    """Show the problems of the handoff notes and their repairs; with --apply, apply these."""
    _history(invocation).repair_notes(fetched, applies=applies)


def _history(invocation: Invocation) -> "RunHistory":
    from cdd_agent.repl.workflow_actions import RunHistory

    return RunHistory(invocation.root, screen=invocation.screen, emit=invocation.sink, as_json=invocation.as_json)


def _orchestrate(invocation: Invocation, find: Callable[["Composition"], "Feature"], *, guidance: str = "") -> None:
    from cdd_agent.runs.listed_tests import require_built

    _history(invocation).back.finish()
    project = invocation.project
    feature = find(project)
    with invocation.work_on(feature.slug):
        require_built(project.orchestrator(feature).run(guidance))


def _list_examples(start: str) -> list[str]:
    from cdd_agent.cli.demo import find_examples

    return [example.name for example in find_examples() if example.name.startswith(start)]


@click.command(short_help="Play an example from its recording, without an API key.")
@click.argument("name", default="csv-export", shell_complete=lambda _, __, start: _list_examples(start))
@click.option("--list", "listed", is_flag=True, help="List the examples.")
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Create the project in DIR, which must not exist."
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Let up to N agents work at once, on parts that do not depend on each other.",
)
@on_workers
@headless
def demo(invocation: Invocation, name: str, *, listed: bool, keep: Path | None) -> None:
    """Play the example NAME with recorded answers: real git, real tests, real gates, no key."""
    from cdd_agent.cli.demo import find_examples, play

    known = {example.name: example for example in find_examples()}
    if listed:
        width = max(map(len, known))
        for example in known.values():
            invocation.screen.line(f"{example.name:<{width}}  {example.script.title}", hang=width + 2)
        return
    if name not in known:
        hint = suggest(name, known, text="did you mean: cdd demo {}", otherwise=f"cdd demo {' | '.join(known)}")
        raise UsageError(f"Unknown example {name!r}.", hint=hint)
    play(invocation, known[name], folder=keep)
