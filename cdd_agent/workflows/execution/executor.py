"""The Executor: runs the steps of a plan in the order of their dependencies, each as a cycle.

The state is saved after every change, so ``execution-state.json`` is enough to continue after any interruption.
Between two steps, the user may commit or keep changes, or mark a step as done. The gate judges manual work like the
model's: no step is completed without a run of all tests.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cdd_agent.agent.budget import Meter
from cdd_agent.clock import Clock
from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.events import Committed, GateJudged, StepFinished, StepStarted
from cdd_agent.git import commits
from cdd_agent.git.repository import Repository
from cdd_agent.tdd import verdict
from cdd_agent.tdd.context import (
    Brief,
    BriefFor,
    Context,
    Phase,
    WorkItem,
    describe_item,
    format_reasons,
    read_phase_rules,
    summarize_evidence,
)
from cdd_agent.tdd.cycle import WorkflowRun
from cdd_agent.tdd.recovery import StepRecovery, alone_on
from cdd_agent.tickets.plan import Step
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state as states
from cdd_agent.work import state_file
from cdd_agent.work.order import find_dependents, find_ready, sort_by_dependencies
from cdd_agent.work.state import AttemptRecord, RunState, Status, reconcile
from cdd_agent.workflows.execution.documents import Documents, TicketFiles, make_work_item, step_key
from pytest_tdd_agent.gate import judge
from pytest_tdd_agent.report import Reason, Verdict

_PROMPTS = Path(__file__).parent / "prompts"
_ROLES = {"tools": "executor.md", "blocks": "executor_blocks.md"}
"""Edit format -> role."""
DEFAULT_MESSAGE = "chore: changes made by hand"
_DEPENDENCY_SKIPPED = "it depends on a step that was skipped"


def make_brief_for(edit_format: str = "tools") -> BriefFor:
    """Return the function that makes the brief for a phase of a step."""
    role = (_PROMPTS / _ROLES[edit_format]).read_text(encoding="utf-8")

    def make_brief(item: WorkItem, phase: Phase) -> Brief:
        return Brief(
            phase=phase,
            agent="executor",
            role=role,
            rules=read_phase_rules(phase),
            work=f"executor {item.ticket} step {item.number} {phase}",
            task=f"Carry out step {item.number} of the plan.",
            requirements=describe_item(item, heading=f"Step {item.number}"),
            source="plan.md",
        )

    return make_brief


class Executor(WorkflowRun):
    """Runs the plan of one ticket."""

    def __init__(
        self,
        ticket: Ticket,
        *,
        context: Context,
        clock: Clock,
        refactor: bool = True,
        allow_dirty: bool = False,
        meter: Meter | None = None,
    ) -> None:
        """Read spec, plan and state, or raise ``DocumentError``. ``refactor``: feature steps end with REFACTOR."""
        super().__init__("exec", ticket, context=context, clock=clock, meter=meter)
        self.sandbox = context.suite.sandbox.level
        self.allows_dirty = allow_dirty
        """The user's uncommitted changes may stay, out of every commit."""
        self.keeps_changes = False
        """As ``allows_dirty``, for the next step only."""
        self.files = TicketFiles(repository=context.repository, ticket=ticket)
        self.reported_remarks: tuple[str, ...] = ()
        """Remarks that the user has seen."""
        self._refactor = refactor
        self.read()

    def read(self) -> None:
        """Read the ticket's files again."""
        self.documents = Documents.read(self.ticket)
        self.depends = {step.number: step.depends_on for step in self.documents.plan.steps}
        keys = tuple(step_key(step) for step in self.documents.plan.steps)
        known = state_file.load(self.ticket.state_path)
        self.is_new = known is None
        pending = states.pending_steps(keys)
        first = RunState(ticket_slug=self.ticket.slug, started_at=self.clock.now(), step_executions=pending)
        self.changed = () if known is None else self.documents.list_changes_since(known)
        state, notices = reconcile(known or first, keys)
        self.remarks = (*self.changed, *notices)
        path, copy = self.ticket.state_path, state_file.backup_path(self.ticket.state_path)
        if self.is_new and copy.exists():
            lost = (
                f"{path.name} is missing, so every step counts as pending. {copy.name} holds the state before its last "
                f"change: to continue from there, mv {copy.name} {path.name} in {self.ticket.folder}"
            )
            self.remarks = (lost, *self.remarks)
        self.resume(state)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Lock ticket and repository while steps run, or raise ``UsageError``; save the state when the block ends."""
        with alone_on(self.ticket.folder, context=self.context):
            self.read()  # another process may have worked on the ticket before the lock was taken
            known = self.reported_remarks
            self.reported_remarks = (*self.remarks, *commits.list_warnings(self.context.repository))
            with self.report([remark for remark in self.reported_remarks if remark not in known]):
                yield

    def find_next_step(self) -> Step | None:
        """Return the step to run: the one in progress, else the first pending one whose dependencies are completed."""
        in_progress, pending = self.state.numbers(Status.IN_PROGRESS), self.state.numbers(Status.PENDING)
        can_run = find_ready(self.depends, completed=self.state.numbers(Status.COMPLETED))
        runnable = (*in_progress, *(n for n in sort_by_dependencies(self.depends) if n in can_run and n in pending))
        return self.step(runnable[0]) if runnable else None

    def step(self, number: int) -> Step:
        """Return the step with this number; raises ``UsageError`` if the plan has none."""
        self.state.execution(number)
        return next(step for step in self.documents.plan.steps if step.number == number)

    def list_stale_steps(self) -> tuple[int, ...]:
        """Return the completed steps whose text has changed since."""
        state = self.state
        completed = state.numbers(Status.COMPLETED)
        return tuple(n for n in completed if state.execution(n).text_sha256 != self.step(n).text_sha256)

    def list_blocking_steps(self, step: Step) -> tuple[int, ...]:
        """Return the dependencies of ``step`` that are not completed."""
        return tuple(n for n in step.depends_on if self.state.execution(n).status != Status.COMPLETED)

    def _require_dependencies(self, step: Step) -> None:
        """Raise ``UsageError`` if a dependency of ``step`` is not completed."""
        blocking = self.list_blocking_steps(step)
        if blocking:
            shown = ", ".join(f"step {n} ({self.state.execution(n).status})" for n in blocking)
            hint = f"run that step first, or skip this one: cdd exec {self.ticket.slug} --skip {step.number}"
            raise UsageError(f"Step {step.number} depends on {shown}.", hint=hint)

    def _prepare_repository(self, *, allow_dirty: bool) -> None:
        """Refuse uncommitted changes of the user unless they are allowed, then commit spec and plan."""
        self.files.require_clean(allow_dirty=allow_dirty)
        self.files.commit_documents(self.documents, emit=self.context.emit)

    def _make_recovery(self, number: int) -> StepRecovery:
        """Return the recovery of a step."""
        return StepRecovery(self.ticket.slug, self.state.execution(number), context=self.context)

    def run_step(self, step: Step) -> bool:
        """Run ``step`` and return whether it was completed; roll it back if it fails.

        Raises, before anything changes, ``UsageError`` if a dependency is not completed, or for uncommitted changes or
        a merge in progress, and ``ModelError`` if the model cannot be used.
        """
        number = step.number
        self._require_dependencies(step)
        self.begin_step(number)
        commits.require_finished(self.context.repository)
        recovery = self._make_recovery(number)
        recovery.require_checkpoints()
        is_resumed = recovery.is_underway()
        if not is_resumed:
            self._prepare_repository(allow_dirty=self.allows_dirty or self.keeps_changes)
            if self.state.execution(number).status == Status.IN_PROGRESS:
                self.save(states.retry_step(self.state, number))
        self.start_step(self.documents.record_in(self.state), step_key(step), is_resumed=is_resumed)
        self.context.emit(StepStarted(number=number, total=len(self.documents.plan.steps), title=step.title))
        item = make_work_item(self.ticket, step, spec=self.documents.spec, refactor=self._refactor)
        ending = self.run_cycle(item)
        self.keeps_changes = False
        if ending.how == "done":
            self.end_step(self._record_files(ending.state, number), number)
        else:
            self.end_step(ending.state, number, error=ending.why or ending.how)
        self.context.emit(StepFinished(number=number, status=self.state.execution(number).status, error=ending.why))
        return ending.why is None

    def _record_files(self, state: RunState, number: int) -> RunState:
        base, head = state.execution(number).base_commit, self.context.repository.read_head()
        if base is None or head is None:
            return state
        return states.record_files(state, number, changes=self.context.repository.list_changes(base, head))

    def run_all(self) -> None:
        """Run steps until none can run or one fails. Steps that depend on a skipped step are skipped."""
        for number in find_dependents(self.depends, self.state.numbers(Status.SKIPPED)):
            if self.state.execution(number).status == Status.PENDING:
                self.skip(number, reason=_DEPENDENCY_SKIPPED)
        while (step := self.find_next_step()) is not None:
            if not self.run_step(step):
                return

    def skip(self, number: int, *, reason: str) -> None:
        """Skip a step, undoing it first if it is in progress. Its dependents cannot run."""
        skipped = states.end_step(self.state, number, status=Status.SKIPPED, now=self.clock.now(), error=reason)
        self._make_recovery(number).undo_if_underway(branch=self.state.branch, why="the step is skipped")
        self.save(skipped)
        self.context.emit(StepFinished(number=number, status=Status.SKIPPED, error=reason))

    def retry(self, number: int) -> None:
        """Make a step pending again, and the steps that were skipped because of it; undo it if it is in progress.

        A completed step can only be retried if its text has changed since; its commits stay.
        """
        status = self.state.execution(number).status
        if status == Status.PENDING or (status == Status.COMPLETED and number not in self.list_stale_steps()):
            raise UsageError(
                f"Step {number} is {status}; only a step that is failed, skipped, in progress or stale can be retried.",
                hint=f"list the steps: cdd status {self.ticket.slug}",
            )
        self._make_recovery(number).undo_if_underway(branch=self.state.branch, why="the step is restarted")
        self.save(self._unskip_dependents(states.retry_step(self.state, number), number))

    def _unskip_dependents(self, state: RunState, number: int) -> RunState:
        """Return ``state`` with the steps pending again that were skipped only because they depend on ``number``."""
        for dependent in find_dependents(self.depends, (number,)):
            execution = state.execution(dependent)
            if execution.status == Status.SKIPPED and execution.error == _DEPENDENCY_SKIPPED:
                state = states.retry_step(state, dependent)
        return state

    def list_blocking_changes(self, *, anew: bool) -> tuple[str, ...]:
        """Return the user's uncommitted changes if they prevent the next step.

        ``anew``: a step will be restarted. A step that resumes is not refused: its own files are among the changes.
        """
        if self.allows_dirty or self.keeps_changes or self._find_underway() is not None:
            return ()
        return self.files.list_user_changes() if anew or self.find_next_step() is not None else ()

    def commit_changes(self, message: str = "") -> None:
        """Commit the user's changes and nothing else, as the user; the user's hooks run.

        Raises ``UsageError`` if there are none, or if a file has staged and unstaged changes; ``GateClosed`` if a hook
        refuses the commit.
        """
        repository = self.context.repository
        with alone_on(self.ticket.folder, context=self.context):
            commits.require_finished(repository)
            number = self._find_underway()
            if number is not None:  # cdd cannot distinguish its unfinished files from the user's
                hint = f"press Enter to continue it, or type skip {number} to undo it"
                raise UsageError(f"Step {number} was interrupted, and its files are among the changes.", hint=hint)
            paths = _choose_paths(repository, self.files.list_user_changes())
            commits.require_identity(repository)
            subject = message.strip() or DEFAULT_MESSAGE
            try:
                commit = commits.commit_paths(repository, f"{subject}\n", paths=paths)
            except GateClosed as refused:
                hint = "fix what the hook reports, then type commit again"
                raise GateClosed(refused.happened, hint=hint) from refused
            self.context.emit(Committed(phase="by hand", commit=commit, subject=subject.split("\n", 1)[0]))

    def keep_changes(self) -> None:
        """Let the next step run with the user's changes, which are locked for the model and never committed."""
        if not self.files.list_user_changes():
            raise UsageError("There are no uncommitted changes to keep.", hint="press Enter to continue with the plan")
        self.keeps_changes = True

    def mark_done(self, step: Step) -> None:
        """Complete ``step`` if all tests pass on the committed files, else raise ``UsageError`` or ``GateClosed``."""
        number = step.number
        status = self.state.execution(number).status
        if status in {Status.COMPLETED, Status.IN_PROGRESS}:
            hint = "press Enter to continue with the plan, or type retry to restart a step"
            raise UsageError(f"Step {number} is {status.replace('_', ' ')}.", hint=hint)
        self._require_dependencies(step)
        self._prepare_repository(allow_dirty=False)
        now, head = self.clock.now, self.context.repository.read_head()
        state = states.retry_step(self.documents.record_in(self.state), number)
        state = states.start_step(state, step_key(step), now=now(), base_commit=head)
        self.context.emit(StepStarted(number=number, total=len(self.documents.plan.steps), title=step.title))
        judged, record = self._judge_by_hand(step, state=state)
        if not judged.open:
            codes = ", ".join(dict.fromkeys(reason.code for reason in judged.reasons))
            hint = f"fix and commit it, or let the agent do it: retry {number}"
            raise GateClosed(f"Step {number} is not done: {codes}.", hint=hint)
        state = states.record_attempt(state, number, attempt=record)
        state = states.end_step(state, number, status=Status.COMPLETED, now=now())
        self.save(self._unskip_dependents(state, number))
        self.context.emit(StepFinished(number=number, status=Status.COMPLETED, error=None))

    def _judge_by_hand(self, step: Step, *, state: RunState) -> tuple[Verdict, AttemptRecord]:
        context = self.context
        item = make_work_item(self.ticket, step, spec=self.documents.spec)
        recovery = StepRecovery(self.ticket.slug, state.execution(step.number), context=context)
        path = recovery.report_path("by-hand")
        run = context.run_suite("all tests, for a step done by hand", keep=path)
        if run.report is None:
            judged = verdict.judge_incomplete_run("green", run.problem or "no report")
        else:
            judged = judge("green", run.report, targets=item.tests)
        reasons = format_reasons(judged)
        evidence = summarize_evidence(judged, run.report)
        self.context.emit(GateJudged(phase="green", attempt=1, open=judged.open, reasons=reasons, evidence=evidence))
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
        begun = self.state.numbers(Status.IN_PROGRESS)
        return next((number for number in begun if self._make_recovery(number).is_underway()), None)


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
