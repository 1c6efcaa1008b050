"""What a person does by hand between two steps: changes to files, committed or kept, and steps that are done already.

The gate judges the tree as it is, whoever made it so; nothing here passes a step without a run of all tests.
"""

from dataclasses import replace

from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.events import Committed, GateJudged, StepFinished, StepStarted
from cdd_agent.git.commits import commit_paths, require_finished, require_identity
from cdd_agent.git.repository import Repository
from cdd_agent.tdd import context as briefing
from cdd_agent.tdd import recovery, verdict
from cdd_agent.tickets.plan import Step
from cdd_agent.work import state as states
from cdd_agent.work.state import AttemptRecord, RunState, Status
from cdd_agent.workflows.execution.documents import changes_of_users, require_ready, step_key, work_item
from cdd_agent.workflows.execution.executor import Executor, require_dependencies, with_dependents
from pytest_tdd_agent.gate import judge
from pytest_tdd_agent.report import Reason, Verdict

MESSAGE = "chore: changes made by hand"
"""Of a commit of them, unless the user says otherwise."""


def in_the_way(executor: Executor, *, anew: bool) -> tuple[str, ...]:
    """The user's uncommitted changes that the next step would be refused for; ``anew``: it is begun once more.

    None if they are kept, and none of a step that goes on where it was interrupted: its own files are among them.
    """
    if executor.allows_dirty or executor.keeps_changes or _underway(executor) is not None:
        return ()
    nothing_runs = executor.next_step() is None and not anew
    return () if nothing_runs else changes_of_users(executor.context.repository, executor.ticket)


def commit_changes(executor: Executor, message: str = "") -> None:
    """Commit the user's changes, and nothing else, in the user's name; the user's hooks take part.

    Files that git was told not to look at are left as they are. Raises ``UsageError`` if there are none, or if what is
    staged of one is not what it holds; ``GateClosed`` if a hook refuses them.
    """
    repository = executor.context.repository
    with recovery.alone_on(executor.ticket.folder, context=executor.context):
        require_finished(repository)
        number = _underway(executor)
        if number is not None:  # its half-done files cannot be told from the user's
            raise UsageError(
                f"Step {number} was interrupted, and its files are among the changes.",
                hint=f"Enter goes on with it; skip {number} undoes it",
            )
        paths = _to_commit(repository, changes_of_users(repository, executor.ticket))
        require_identity(repository)
        subject = message.strip() or MESSAGE
        try:
            commit = commit_paths(repository, f"{subject}\n", paths=paths)
        except GateClosed as refused:
            raise GateClosed(refused.happened, hint="mend what the hook names, then say commit again") from refused
        executor.context.emit(Committed(phase="by hand", commit=commit, subject=subject.split("\n", 1)[0]))


def keep_changes(executor: Executor) -> None:
    """Let the next step run with the user's changes in the work tree, out of every commit and locked for the model."""
    if not changes_of_users(executor.context.repository, executor.ticket):
        raise UsageError("There are no uncommitted changes to keep.", hint="Enter goes on with the plan")
    executor.keeps_changes = True


def mark_done(executor: Executor, step: Step) -> None:
    """Take ``step`` as completed by what is committed, if all tests pass and those of the step are among them.

    Raises ``UsageError`` if it cannot be done now, ``GateClosed`` with the reasons if the tests say otherwise.
    """
    context, number = executor.context, step.number
    status = executor.state.execution(number).status
    if status in {Status.COMPLETED, Status.IN_PROGRESS}:
        shown = status.replace("_", " ")
        raise UsageError(f"Step {number} is {shown}.", hint="Enter goes on with the plan; retry begins a step anew")
    require_dependencies(executor, step)
    require_ready(
        context.repository, executor.ticket, documents=executor.documents, allow_dirty=False, emit=context.emit
    )
    now = executor.clock.now
    again = states.retry_step(executor.documents.carried_out(executor.state), number)
    begun = states.start_step(again, step_key(step), now=now(), base_commit=context.repository.head())
    context.emit(StepStarted(number=number, total=len(executor.documents.plan.steps), title=step.title))
    judged, record = _judged(executor, step, begun=begun)
    if not judged.open:
        codes = ", ".join(dict.fromkeys(reason.code for reason in judged.reasons))
        hint = f"mend and commit that, or let the agent do it: retry {number}"
        raise GateClosed(f"Step {number} is not taken as done: {codes}.", hint=hint)
    done = states.complete_step(states.record_attempt(begun, number, attempt=record), number, now=now())
    executor.save(with_dependents(executor, done, number=number))
    context.emit(StepFinished(number=number, status=Status.COMPLETED, error=None))


def _to_commit(repository: Repository, changes: tuple[str, ...]) -> tuple[str, ...]:
    """Which of the user's ``changes`` a commit of all of them takes; raises ``UsageError`` if none, or if some is lost.

    A file of which one thing is staged and another there is lost in part, whichever of both is committed.
    """
    if not changes:
        raise UsageError("There are no changes of yours to commit.", hint="Enter goes on with the plan")
    tagged = repository.git("ls-files", "-v", "-z").split("\0")
    hidden = {entry[2:] for entry in tagged if entry[:1] == "S" or entry[:1].islower()}
    paths = tuple(path for path in dict.fromkeys(changes) if path not in hidden)
    if not paths:
        shown = ", ".join(changes)
        raise UsageError(
            f"git was told to leave these changes alone: {shown}.", hint="keep goes on with them as they are"
        )
    looked = ("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
    fields = [field for field in repository.git(*looked).split("\0") if field[3:] in paths]
    there = {path for path in paths if (repository.root / path).is_symlink() or (repository.root / path).is_file()}
    apart = [f[3:] for f in fields if f[0] != " " and (f[1] != " " or (f[0] == "D" and f[3:] in there))]
    if apart:
        raise UsageError(
            f"What is staged is not what the file holds: {', '.join(apart)}.\nNothing was touched.",
            hint="git commit takes what is staged, git add what is there; then Enter looks again",
        )
    return paths


def _judged(executor: Executor, step: Step, *, begun: RunState) -> tuple[Verdict, AttemptRecord]:
    """What the gate says of the tree as it is: nothing fails, and the step's tests pass."""
    context = executor.context
    item = work_item(executor.ticket, step, spec=executor.documents.spec)
    path = recovery.report_path(begun.execution(step.number), "by-hand", context=context)
    run = context.run_suite("all tests, for a step done by hand", keep=path)
    if run.report is None:
        judged = verdict.not_run("green", run.problem or "no report")
    else:
        judged = judge("green", run.report, targets=item.tests)
    reasons = briefing.reason_lines(judged)
    evidence = briefing.evidence(judged, run.report)
    context.emit(GateJudged(phase="green", attempt=1, open=judged.open, reasons=reasons, evidence=evidence))
    told = "the user marked the step done; all tests passed" + (
        "" if item.tests else ", and none of them is the step's"
    )
    by_hand = Reason(code="by_hand", nodeid=None, message=told)
    return judged, AttemptRecord(
        phase="green",
        number=1,
        verdict="open" if judged.open else "closed",
        reasons=reasons or briefing.reason_lines(replace(judged, reasons=(by_hand,))),
        report=None if run.report is None else str(path.relative_to(context.repository.root)),
    )


def _underway(executor: Executor) -> int | None:
    """The step that goes on where it was interrupted, if there is one."""
    slug, state, context = executor.ticket.slug, executor.state, executor.context
    begun = state.numbers(Status.IN_PROGRESS)
    return next((n for n in begun if recovery.is_underway(slug, state.execution(n), context=context)), None)
