"""The Executor: a plan's steps in the order of their dependencies, each a cycle, the state saved after every change.

``execution-state.json`` is all it needs to go on after any end. The user's own uncommitted changes are refused at the
start, or kept out of every commit when the user says so.

How the Executor is spoken to.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cdd_agent.agent.budget import Meter
from cdd_agent.clock import Clock
from cdd_agent.errors import UsageError
from cdd_agent.events import StepFinished, StepStarted
from cdd_agent.git import commits
from cdd_agent.git.repository import Repository
from cdd_agent.tdd import recovery
from cdd_agent.tdd.context import Brief, BriefFor, Context, Phase, WorkItem, rules_of, stated, told
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tickets.plan import Step
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state as states
from cdd_agent.work import state_file
from cdd_agent.work.order import downstream, order, ready
from cdd_agent.work.state import RunState, Status, StepExecution, reconcile
from cdd_agent.workflows.execution.documents import Documents, require_ready, step_key, work_item

_PROMPTS = Path(__file__).parent / "prompts"
_ROLES = {"tools": "executor.md", "blocks": "executor_blocks.md"}
"""How the model changes files -> who it is told it is."""


def brief_for(edit_format: str = "tools") -> BriefFor:
    """The brief of each phase of each step of a plan."""
    role = (_PROMPTS / _ROLES[edit_format]).read_text(encoding="utf-8")

    def brief(item: WorkItem, phase: Phase) -> Brief:
        return Brief(
            phase=phase,
            agent="executor",
            role=role,
            rules=rules_of(phase),
            work=f"executor {item.ticket} step {item.number} {phase}",
            task=f"Carry out step {item.number} of the plan.",
            stated=stated(item, heading=f"Step {item.number}"),
            source="plan.md",
        )

    return brief


_CUT_OFF = "it depends on a step that was skipped"
"""Why a step is skipped that nobody skipped by name."""


class Executor:
    """Carries the plan of one ticket out."""

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
        """Reads spec, plan and state; raises ``DocumentError`` for what is wrong with them. Changes nothing.

        Without a ``meter`` the calls are counted without limits. ``refactor``: feature and bug
        steps end with REFACTOR.
        """
        self.ticket = ticket
        self.sandbox = context.suite.sandbox.level
        self.clock = clock
        self.allows_dirty = allow_dirty
        """Whether the user's uncommitted changes stay, out of every commit; with ``keeps_changes`` in one step only."""
        self.keeps_changes = False
        self._refactor = refactor
        self._emit = context.emit
        self._meter = meter or Meter(context.model, clock=clock, ticket=ticket.slug, go_on=f"cdd exec {ticket.slug}")
        self.context = replace(context, model=self._meter)
        self.told: tuple[str, ...] = ()
        """Remarks that are known to the user already."""
        self.read()

    def read(self) -> None:
        """Read the ticket's files as they are now."""
        self.documents = Documents.read(self.ticket)
        self.depends = {step.number: step.depends_on for step in self.documents.plan.steps}
        keys = tuple(step_key(step) for step in self.documents.plan.steps)
        known = state_file.load(self.ticket.state_path)
        self.is_new = known is None
        pending = states.pending_steps(keys)
        first = RunState(ticket_slug=self.ticket.slug, started_at=self.clock.now(), step_executions=pending)
        self.changed = () if known is None else self.documents.changed_since(known)
        self.state, found = reconcile(known or first, keys)
        self.remarks = (*_lost_state(self.ticket, is_new=self.is_new), *self.changed, *found)
        self._meter.resume(self.state.usage)
        self._metered: int | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold ticket and repository while steps are run; the state is saved however the block ends.

        The ticket's files are read again first: another process may have gone on with them since.
        Raises ``UsageError`` if another process holds one of them, ``GitUnable`` if no commit could be made.
        """
        with recovery.alone_on(self.ticket.folder, context=self.context):
            self.read()
            found, known = self.state, self.told
            self.told = (*self.remarks, *commits.remarks(self.context.repository))
            with told(
                "exec",
                self.ticket.slug,
                context=self.context,
                clock=self.clock,
                remarks=[remark for remark in self.told if remark not in known],
                settle=lambda: self._settled(found),
            ):
                yield

    def _settled(self, found: RunState) -> RunState:
        """The state as it stays after a run that began with ``found``; saved if anything has changed."""
        self._meter.pause()
        if self._counted(self.state) != found:
            self.save(states.finish(self.state, now=self.clock.now()))
        return self.state

    def next_step(self) -> Step | None:
        """The step to run now: the one in progress, else the first pending one whose dependencies are completed."""
        open_steps = self.state.numbers(Status.IN_PROGRESS, Status.PENDING)
        can_run = ready(self.depends, completed=self.state.numbers(Status.COMPLETED))
        in_progress = self.state.numbers(Status.IN_PROGRESS)
        runnable = (*in_progress, *(n for n in order(self.depends) if n in can_run and n in open_steps))
        return self.step(runnable[0]) if runnable else None

    def step(self, number: int) -> Step:
        """The step of this number; raises ``UsageError`` if the plan has none."""
        self.state.execution(number)
        return next(step for step in self.documents.plan.steps if step.number == number)

    def run_step(self, step: Step) -> bool:
        """Whether ``step`` is completed now; a failed one is rolled back and the state says why.

        Raises, before anything is touched, ``UsageError`` if a step it depends on is not completed or if there are
        uncommitted changes that nobody allowed or a merge in progress, and ``ModelError`` if there is no model to ask.
        """
        require_dependencies(self, step)
        repository = self.context.repository
        item = work_item(self.ticket, step, spec=self.documents.spec, refactor=self._refactor)
        execution = self.state.execution(step.number)
        self._meter.begin(f"step {step.number} of {self.ticket.slug}", used=execution.usage)
        self._metered = step.number
        self._meter.check()
        commits.require_finished(repository)
        _require_checkpoints(execution, ticket=self.ticket, context=self.context)
        goes_on = recovery.is_underway(self.ticket.slug, execution, context=self.context)
        if not goes_on:
            require_ready(
                repository,
                self.ticket,
                documents=self.documents,
                allow_dirty=self.allows_dirty or self.keeps_changes,
                emit=self._emit,
            )
            if execution.status == Status.IN_PROGRESS:
                self.save(states.retry_step(self.state, step.number))
        state = _run_facts(self, goes_on=goes_on)
        self.save(states.start_step(state, step_key(step), now=self.clock.now(), base_commit=repository.head()))
        self._emit(StepStarted(number=step.number, total=len(self.documents.plan.steps), title=step.title))
        ending = Cycle(item, self.state, context=self.context, save=self.save).run()
        state, why = ending.state, ending.why
        if ending.how == "done":
            state = states.complete_step(
                _with_files(state, step.number, repository=self.context.repository), step.number, now=self.clock.now()
            )
        else:
            state = states.fail_step(state, step.number, error=why or ending.how, now=self.clock.now())
        self.keeps_changes = False
        self.save(state)
        self._emit(StepFinished(number=step.number, status=state.execution(step.number).status, error=why))
        return why is None

    def run_all(self) -> None:
        """Run steps until none is left or one fails; what depends on a skipped step is skipped, with the reason."""
        for number in downstream(self.depends, self.state.numbers(Status.SKIPPED)):
            if self.state.execution(number).status == Status.PENDING:
                self.skip(number, reason=_CUT_OFF)
        while (step := self.next_step()) is not None:
            if not self.run_step(step):
                return

    def skip(self, number: int, *, reason: str) -> None:
        """Leave a step out; it does not count as completed for what depends on it. One in progress is undone first."""
        skipped = states.skip_step(self.state, number, reason=reason, now=self.clock.now())
        _take_back(self, number, why="the step is left out")
        self.save(skipped)
        self._emit(StepFinished(number=number, status=Status.SKIPPED, error=reason))

    def retry(self, number: int) -> None:
        """Make a step pending again, from its beginning, and what was skipped because of it; undo it if in progress.

        A completed one only if its text has changed since: its commits stay, and it is done once more on top of them.
        """
        status = self.state.execution(number).status
        if status == Status.PENDING or (status == Status.COMPLETED and number not in stale(self)):
            raise UsageError(
                f"Step {number} is {status}; only a step that is failed, skipped, in progress or stale can be tried "
                "again.",
                hint=f"see where the ticket stands: cdd status {self.ticket.slug}",
            )
        _take_back(self, number, why="the step begins anew")
        self.save(with_dependents(self, states.retry_step(self.state, number), number=number))

    def save(self, state: RunState) -> None:
        """Make ``state`` the present one and write it, with what the model has used so far."""
        state = self._counted(state)
        state_file.save(self.ticket.state_path, state)
        self.state = state

    def _counted(self, state: RunState) -> RunState:
        """``state`` with what has been used so far, by the ticket and by the step that was run last."""
        return states.record_usage(state, self._metered, step=self._meter.step, ticket=self._meter.ticket)


def stale(executor: Executor) -> tuple[int, ...]:
    """The completed steps whose text has changed since."""
    state = executor.state
    return tuple(
        number
        for number in state.numbers(Status.COMPLETED)
        if state.execution(number).text_sha256 != executor.step(number).text_sha256
    )


def blocking_steps(executor: Executor, step: Step) -> tuple[int, ...]:
    """The steps that ``step`` depends on and that are not completed."""
    return tuple(n for n in step.depends_on if executor.state.execution(n).status != Status.COMPLETED)


def with_dependents(executor: Executor, state: RunState, *, number: int) -> RunState:
    """``state`` with the steps pending again that were skipped only because they depend on ``number``."""
    for dependent in downstream(executor.depends, (number,)):
        if state.execution(dependent).status == Status.SKIPPED and state.execution(dependent).error == _CUT_OFF:
            state = states.retry_step(state, dependent)
    return state


def _take_back(executor: Executor, number: int, *, why: str) -> None:
    """Undo a step that is underway."""
    step, slug = executor.state.execution(number), executor.ticket.slug
    recovery.take_back(slug, step, branch=executor.state.branch, why=why, context=executor.context)


def require_dependencies(executor: Executor, step: Step) -> None:
    """Raise ``UsageError`` if a step that ``step`` depends on is not completed."""
    waits_for = blocking_steps(executor, step)
    if waits_for:
        shown = ", ".join(f"step {n} ({executor.state.execution(n).status})" for n in waits_for)
        hint = f"run that first, or leave this one out: cdd exec {executor.ticket.slug} --skip {step.number}"
        raise UsageError(f"Step {step.number} depends on {shown}.", hint=hint)


def _run_facts(executor: Executor, *, goes_on: bool) -> RunState:
    """The state with what the step about to run is carried out with; one that goes on stays on its branch."""
    context, state = executor.context, executor.state
    return replace(
        executor.documents.carried_out(state),
        base_commit=state.base_commit or context.repository.head(),
        branch=state.branch if goes_on else context.repository.branch(),
        sandbox=context.suite.sandbox.level,
        model=context.model.name,
    )


def _lost_state(ticket: Ticket, *, is_new: bool) -> tuple[str, ...]:
    """A sentence about a state that is gone although there was one: what it would take to have it back."""
    copy = state_file.backup_of(ticket.state_path)
    if not is_new or not copy.exists():
        return ()
    name = ticket.state_path.name
    told = f"{name} is gone, so every step counts as not begun; as it was before its last change it lies in {copy.name}"
    return (f"{told}: to go on from there, mv {copy.name} {name} in {ticket.folder}",)


def _require_checkpoints(execution: StepExecution, *, ticket: Ticket, context: Context) -> None:
    """Raise ``UsageError`` if the step was begun and its checkpoints are not there to tell what is the user's."""
    lost = recovery.lost_checkpoint(execution, context=context)
    if execution.status == Status.IN_PROGRESS and lost:
        again = f"cdd exec {ticket.slug} --retry {execution.step_number}"
        raise UsageError(
            f"Step {execution.step_number} was begun, and its checkpoint {lost} is not in this repository.\n"
            "Nothing was touched.",
            hint=f"fetch it from where the step was begun, or begin it anew on what is committed now: {again}",
        )


def _with_files(state: RunState, number: int, *, repository: Repository) -> RunState:
    """``state`` with the files that the step's commits changed."""
    base, head = state.execution(number).base_commit, repository.head()
    if base is None or head is None:
        return state
    changes = repository.changes(base, head)
    created = [change.path for change in changes if change.kind == "created"]
    modified = [change.path for change in changes if change.kind == "modified"]
    deleted = [change.path for change in changes if change.kind == "deleted"]
    return states.record_files(state, number, created=created, modified=modified, deleted=deleted)
