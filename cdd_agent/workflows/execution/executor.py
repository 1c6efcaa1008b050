"""The Executor: runs the steps of a plan in the order of their dependencies, each as a cycle.

The state is saved after every change, so ``execution-state.json`` is enough to continue after any interruption.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdd_agent.agent.budget import Meter
from cdd_agent.clock import Clock
from cdd_agent.errors import UsageError
from cdd_agent.events import StepFinished, StepStarted
from cdd_agent.git import commits
from cdd_agent.tdd.context import Brief, BriefFor, Context, Phase, WorkItem, describe_item, read_phase_rules
from cdd_agent.tdd.cycle import WorkflowRun
from cdd_agent.tdd.step import StepRecovery, alone_on
from cdd_agent.tickets.plan import Step
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state as states
from cdd_agent.work.order import find_dependents, find_ready, sort_by_dependencies
from cdd_agent.work.state import RunState, Status, backup_path, load_state, reconcile
from cdd_agent.workflows.execution.documents import Documents, TicketFiles, make_work_item, step_key

_PROMPTS = Path(__file__).parent / "prompts"
_ROLES = {"tools": "executor.md", "blocks": "executor_blocks.md"}
"""Edit format -> role."""
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


class Executor:
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
        self.ticket = ticket
        self.sandbox = context.suite.sandbox.level
        self.clock = clock
        self.allows_dirty = allow_dirty
        """The user's uncommitted changes are taken along, and stay out of every commit."""
        self.keeps_changes = False
        """As ``allows_dirty``, from the next step on."""
        self.leaves_changes = False
        """The next steps run without the user's uncommitted changes."""
        self.files = TicketFiles(repository=context.repository, ticket=ticket)
        self.reported_remarks: tuple[str, ...] = ()
        """Remarks that the user has seen."""
        self._refactor = refactor
        self._has_checked = False
        """Uncommitted changes since then are not the run's concern."""
        self._emit = context.emit
        self._run = WorkflowRun("exec", ticket, context=context, clock=clock, meter=meter)
        self.context = self._run.context
        self.save = self._run.save
        self.read()

    @property
    def state(self) -> RunState:
        """The current state."""
        return self._run.state

    def read(self) -> None:
        """Read the ticket's files again."""
        self.documents = Documents.read(self.ticket)
        self.depends = {step.number: step.depends_on for step in self.documents.plan.steps}
        keys = tuple(step_key(step) for step in self.documents.plan.steps)
        known = load_state(self.ticket.state_path)
        self.is_new = known is None
        pending = states.pending_steps(keys)
        first = RunState(ticket_slug=self.ticket.slug, started_at=self.clock.now(), step_executions=pending)
        self.changed = () if known is None else self.documents.list_changes_since(known)
        state, notices = reconcile(known or first, keys)
        self.remarks = (*self.changed, *notices)
        path, copy = self.ticket.state_path, backup_path(self.ticket.state_path)
        if self.is_new and copy.exists():
            lost = (
                f"{path.name} is missing, so every step counts as pending. {copy.name} holds the state before its last "
                f"change: to continue from there, mv {copy.name} {path.name} in {self.ticket.folder}"
            )
            self.remarks = (lost, *self.remarks)
        self._run.resume(state)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Lock ticket and repository while steps run, or raise ``UsageError``; save the state when the block ends."""
        with alone_on(self.ticket.folder, context=self.context):
            self._has_checked = False
            self.read()  # another process may have worked on the ticket before the lock was taken
            known = self.reported_remarks
            self.reported_remarks = (*self.remarks, *commits.list_warnings(self.context.repository))
            with self._run.report([remark for remark in self.reported_remarks if remark not in known]):
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

    def require_dependencies(self, step: Step) -> None:
        """Raise ``UsageError`` if a dependency of ``step`` is not completed."""
        blocking = self.list_blocking_steps(step)
        if blocking:
            shown = ", ".join(f"step {n} ({self.state.execution(n).status})" for n in blocking)
            hint = f"run that step first, or skip this one: cdd exec {self.ticket.slug} --skip {step.number}"
            raise UsageError(f"Step {step.number} depends on {shown}.", hint=hint)

    def prepare_repository(self, *, allow_dirty: bool) -> None:
        """Refuse uncommitted changes of the user unless they are allowed, then commit spec and plan.

        In a run tree, changes that the user makes while steps run concern nobody.
        """
        self.files.require_clean(allow_dirty=allow_dirty or self.leaves_changes or self._has_checked)
        self._has_checked = not self.context.workplace.is_shared
        self.files.commit_documents(self.documents, emit=self._emit)

    def make_recovery(self, number: int) -> StepRecovery:
        """Return the recovery of a step."""
        return StepRecovery(self.ticket.slug, self.state.execution(number), context=self.context)

    def run_step(self, step: Step) -> bool:
        """Run ``step`` and return whether it was completed; roll it back if it fails.

        Raises, before anything changes, ``UsageError`` if a dependency is not completed, or for uncommitted changes or
        a merge in progress, and ``ModelError`` if the model cannot be used.
        """
        number = step.number
        self.require_dependencies(step)
        self._run.begin_step(number)
        commits.require_finished(self.context.repository)
        recovery = self.make_recovery(number)
        recovery.require_checkpoints()
        is_resumed = recovery.is_underway()
        if not is_resumed:
            self.prepare_repository(allow_dirty=self.allows_dirty or self.keeps_changes)
            if self.state.execution(number).status == Status.IN_PROGRESS:
                self.save(states.retry_step(self.state, number))
        self._run.start_step(self.documents.record_in(self.state), step_key(step), is_resumed=is_resumed)
        self._emit(StepStarted(number=number, total=len(self.documents.plan.steps), title=step.title))
        item = make_work_item(self.ticket, step, spec=self.documents.spec, refactor=self._refactor)
        self.context.workplace.carries = self.allows_dirty or self.keeps_changes
        ending = self._run.run_cycle(item)
        if ending.how == "done":
            self._run.end_step(self._record_files(ending.state, number), number)
        else:
            self._run.end_step(ending.state, number, error=ending.why or ending.how)
        self._emit(StepFinished(number=number, status=self.state.execution(number).status, error=ending.why))
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
        self.make_recovery(number).undo_if_underway(why="the step is skipped")
        self.save(skipped)
        self._emit(StepFinished(number=number, status=Status.SKIPPED, error=reason))

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
        self.make_recovery(number).undo_if_underway(why="the step is restarted")
        self.save(self.unskip_dependents(states.retry_step(self.state, number), number))

    def unskip_dependents(self, state: RunState, number: int) -> RunState:
        """Return ``state`` with the steps pending again that were skipped only because they depend on ``number``."""
        for dependent in find_dependents(self.depends, (number,)):
            execution = state.execution(dependent)
            if execution.status == Status.SKIPPED and execution.error == _DEPENDENCY_SKIPPED:
                state = states.retry_step(state, dependent)
        return state
