"""Manual work between two steps: the user commits or keeps changes, or marks a step as done.

The gate judges manual work like the model's: no step is completed without a run of all tests.
"""

from dataclasses import replace

from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.events import Committed, GateJudged, StepFinished, StepStarted
from cdd_agent.git.commits import commit_paths, require_finished, require_identity
from cdd_agent.git.repository import Repository
from cdd_agent.tdd import verdict
from cdd_agent.tdd.context import format_reasons, summarize_evidence
from cdd_agent.tdd.step import StepRecovery, alone_on
from cdd_agent.tickets.plan import Step
from cdd_agent.work import state as states
from cdd_agent.work.state import AttemptRecord, RunState, Status
from cdd_agent.workflows.execution.executor import Executor, make_work_item, step_key
from pytest_tdd_agent.gate import judge
from pytest_tdd_agent.report import Reason, Verdict

DEFAULT_MESSAGE = "chore: changes made by hand"


class Intervention:
    """The user's actions between the steps of an Executor."""

    def __init__(self, executor: Executor) -> None:
        """Changes nothing."""
        self._executor = executor
        self._context = executor.context

    def list_blocking_changes(self, *, anew: bool) -> tuple[str, ...]:
        """Return the user's uncommitted changes if they prevent the next step.

        ``anew``: a step will be restarted. A step that resumes is not refused: its own files are among the changes.
        """
        executor = self._executor
        may_stay = executor.allows_dirty or executor.keeps_changes or executor.leaves_changes
        if may_stay or self._find_underway() is not None:
            return ()
        return executor.files.list_user_changes() if anew or executor.find_next_step() is not None else ()

    def commit_changes(self, message: str = "") -> None:
        """Commit the user's changes and nothing else, as the user; the user's hooks run.

        Raises ``UsageError`` if there are none, or if a file has staged and unstaged changes; ``GateClosed`` if a hook
        refuses the commit.
        """
        executor, repository = self._executor, self._context.repository
        with alone_on(executor.ticket.folder, context=self._context):
            require_finished(repository)
            number = self._find_underway()
            if (
                number is not None and self._context.workplace.is_shared
            ):  # cdd cannot distinguish its unfinished files from the user's
                hint = f"press Enter to continue it, or type skip {number} to undo it"
                raise UsageError(f"Step {number} was interrupted, and its files are among the changes.", hint=hint)
            paths = _choose_paths(repository, executor.files.list_user_changes())
            require_identity(repository)
            subject = message.strip() or DEFAULT_MESSAGE
            try:
                commit = commit_paths(repository, f"{subject}\n", paths=paths)
            except GateClosed as refused:
                hint = "fix what the hook reports, then type commit again"
                raise GateClosed(refused.happened, hint=hint) from refused
            self._context.emit(Committed(phase="by hand", commit=commit, subject=subject.split("\n", 1)[0]))

    def keep_changes(self) -> None:
        """Let the next steps take the user's changes along, which are never committed."""
        self._require_changes("keep")
        self._executor.keeps_changes, self._executor.leaves_changes = True, False

    def leave_changes(self) -> None:
        """Let the next steps run without the user's changes; ``UsageError`` if they work in the user's files."""
        self._require_changes("leave out")
        if self._context.workplace.is_shared:
            hint = "type commit or keep; without --in-place a run has files of its own"
            raise UsageError("The run works in your own files, so it cannot leave your changes out.", hint=hint)
        self._executor.keeps_changes, self._executor.leaves_changes = False, True

    def _require_changes(self, verb: str) -> None:
        if not self._executor.files.list_user_changes():
            raise UsageError(
                f"There are no uncommitted changes to {verb}.", hint="press Enter to continue with the plan"
            )

    def mark_done(self, step: Step) -> None:
        """Complete ``step`` if all tests pass on the committed files, else raise ``UsageError`` or ``GateClosed``."""
        executor, context, number = self._executor, self._context, step.number
        status = executor.state.execution(number).status
        if status in {Status.COMPLETED, Status.IN_PROGRESS}:
            hint = "press Enter to continue with the plan, or type retry to restart a step"
            raise UsageError(f"Step {number} is {status.replace('_', ' ')}.", hint=hint)
        executor.require_dependencies(step)
        executor.prepare_repository(allow_dirty=False)
        now, head = executor.clock.now, context.repository.read_head()
        state = states.retry_step(executor.documents.record_in(executor.state), number)
        state = states.start_step(state, step_key(step), now=now(), base_commit=head)
        context.emit(StepStarted(number=number, total=len(executor.documents.plan.steps), title=step.title))
        judged, record = self._judge(step, state=state)
        if not judged.open:
            codes = ", ".join(dict.fromkeys(reason.code for reason in judged.reasons))
            hint = f"fix and commit it, or let the agent do it: retry {number}"
            raise GateClosed(f"Step {number} is not done: {codes}.", hint=hint)
        state = states.record_attempt(state, number, attempt=record)
        state = states.end_step(state, number, status=Status.COMPLETED, now=now())
        executor.save(executor.unskip_dependents(state, number))
        context.emit(StepFinished(number=number, status=Status.COMPLETED, error=None))

    def _judge(self, step: Step, *, state: RunState) -> tuple[Verdict, AttemptRecord]:
        executor, context = self._executor, self._context
        item = make_work_item(executor.ticket, step, spec=executor.documents.spec)
        recovery = StepRecovery(executor.ticket.slug, state.execution(step.number), context=context)
        path = recovery.report_path("by-hand")
        context.workplace.carries = False
        context.workplace.begin()
        run = context.run_suite("all tests, for a step done by hand", keep=path)
        if run.report is None:
            judged = verdict.judge_incomplete_run("green", run.problem or "no report")
        else:
            judged = judge("green", run.report, targets=item.tests)
        reasons = format_reasons(judged)
        evidence = summarize_evidence(judged, run.report)
        context.emit(GateJudged(phase="green", attempt=1, open=judged.open, reasons=reasons, evidence=evidence))
        untested = "" if item.tests else ", but the step names no tests"
        message = f"the user marked the step done; all tests passed{untested}"
        by_hand = Reason(code="by_hand", nodeid=None, message=message)
        return judged, AttemptRecord(
            phase="green",
            number=1,
            verdict="open" if judged.open else "closed",
            reasons=reasons or format_reasons(replace(judged, reasons=(by_hand,))),
            report=None if run.report is None else str(path.relative_to(context.repository.root)),
        )

    def _find_underway(self) -> int | None:
        begun = self._executor.state.numbers(Status.IN_PROGRESS)
        return next((number for number in begun if self._executor.make_recovery(number).is_underway()), None)


def _choose_paths(repository: Repository, changes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ``changes`` to commit; raises ``UsageError`` if there are none, or if the commit would lose some."""
    if not changes:
        raise UsageError("You have no uncommitted changes.", hint="press Enter to continue with the plan")
    flags = repository.git("ls-files", "-v", "-z").split("\0")
    # skip-worktree, assume-unchanged
    hidden = {entry[2:] for entry in flags if entry[:1] == "S" or entry[:1].islower()}
    paths = tuple(path for path in dict.fromkeys(changes) if path not in hidden)
    if not paths:
        happened = f"git is set to ignore these changes: {', '.join(changes)}."
        raise UsageError(happened, hint="type keep to continue without them")
    options = ("--porcelain", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
    fields = [field for field in repository.git("status", *options).split("\0") if field[3:] in paths]
    there = {path for path in paths if (repository.root / path).is_symlink() or (repository.root / path).is_file()}
    # A commit would hold either the staged or the present content; the other would be lost.
    torn = [f[3:] for f in fields if f[0] != " " and (f[1] != " " or (f[0] == "D" and f[3:] in there))]
    if torn:
        raise UsageError(
            f"The staged content differs from the file: {', '.join(torn)}.\nNothing was touched.",
            hint="commit the staged content with git commit, or stage the files with git add; then press Enter",
        )
    return paths
