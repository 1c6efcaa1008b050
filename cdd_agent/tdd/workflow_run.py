"""A run of a workflow: its state, saved after every change, and the steps and cycles that change it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from cdd_agent.clock import Clock
from cdd_agent.errors import GateClosed
from cdd_agent.events import Notice, RunFinished, RunStarted
from cdd_agent.hooks import HookReply, HookStream
from cdd_agent.model.budget import Meter
from cdd_agent.tdd.context import Context, WorkItem
from cdd_agent.tdd.cycle import Cycle, Ending
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state import (
    RunState,
    Status,
    StepExecution,
    StepKey,
    add_guidance,
    end_step,
    finish,
    record_files,
    record_usage,
    start_step,
)
from cdd_agent.work.state_file import save_state

Workflow: TypeAlias = Literal["exec", "tdd", "green"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """A step that is about to start."""

    state: RunState
    """Has the step."""
    key: StepKey
    is_resumed: bool


class WorkflowRun:
    """The state of a run, which is saved after every change, and the cycles that change it.

    It subscribes to its own events: a step is saved as started at TaskStart, unless a hook blocks it, and as ended at
    TaskCompletion.
    """

    def __init__(
        self, workflow: Workflow, ticket: Ticket, *, context: Context, clock: Clock, meter: Meter | None
    ) -> None:
        """Begin with an empty state, saving nothing. Without a ``meter``, usage is counted but not limited."""
        resume = context.commands.resume if context.commands else f"cdd exec {ticket.slug}"
        self.meter = meter or Meter(context.model, clock=clock, ticket=ticket.slug, go_on=resume)
        hooks = HookStream(context.hooks, {"TaskStart": self._save_start, "TaskCompletion": self._save_end})
        self.context = replace(context, model=self.meter, hooks=hooks)
        self.clock = clock
        self.state = RunState(ticket_slug=ticket.slug, started_at=clock.now())
        self._workflow = workflow
        self._path = ticket.state_path
        self._step: int | None = None
        self._start: _Start | None = None

    def resume(self, state: RunState) -> None:
        """Continue from ``state``; its usage counts toward the limits."""
        self.state = state
        self.meter.resume(state.usage)
        self._step = None

    def count_usage(self, state: RunState) -> RunState:
        """Return ``state`` with the usage so far, of the ticket and of the last step."""
        return record_usage(state, self._step, step=self.meter.step, ticket=self.meter.ticket)

    def save(self, state: RunState) -> None:
        """Write ``state`` with the usage so far, then make it the current state."""
        state = self.count_usage(state)
        save_state(self._path, state)
        self.state = state

    def start_step(self, state: RunState, key: StepKey, *, is_resumed: bool = False) -> None:
        """Start a step of ``state`` at HEAD, or resume it on the branch where it was started; usage counts for it.

        Raises, before anything is saved, ``BudgetSpent`` or ``ModelError`` if the model cannot be used, and
        ``GateClosed`` if a hook blocks the step.
        """
        step = state.execution(key.number)
        self.require_budget(step)
        self._start = _Start(state=state, key=key, is_resumed=is_resumed)
        if reason := self.context.hooks.run("TaskStart", self._describe_task(step.step_number, step.title)).block:
            name = self.context.step_name(step)
            raise GateClosed(f"A hook blocked {name}: {reason}", hint="do what it asks for first")

    def require_budget(self, step: StepExecution) -> None:
        """Raise ``BudgetSpent`` or ``ModelError`` if the model cannot be used for ``step``."""
        self._step = None  # a save from here on must not count for the step before
        self.meter.begin(f"{self.context.step_name(step)} of {self.state.ticket_slug}", used=step.usage)
        self.meter.check()

    def _save_start(self, _: Mapping[str, object], reply: HookReply) -> None:
        assert self._start is not None
        state, number = self._start.state, self._start.key.number
        repository, context = self.context.repository, self.context
        head = repository.read_head()
        state = replace(
            state,
            base_commit=state.base_commit or head,
            branch=state.branch if self._start.is_resumed else repository.read_branch(),
            sandbox=context.suite.sandbox.level,
            model=context.model.name,
        )
        state = start_step(state, self._start.key, now=self.clock.now(), base_commit=head)
        self._step = number
        self.save(add_guidance(state, number, words=reply.context))

    def complete_step(self, number: int, *, error: str | None = None) -> None:
        """End a step as completed, or as failed with ``error``; raise ``GateClosed`` if a hook wants no further one."""
        step = self.state.execution(number)
        status = Status.COMPLETED if error is None else Status.FAILED
        fields = {**self._describe_task(number, step.title), "status": str(status), "error": error or ""}
        if reason := self.context.hooks.run("TaskCompletion", fields).block:
            happened = f"A hook ended the run after {self.context.step_name(step)}: {reason}"
            raise GateClosed(happened, hint="the step itself is saved; do what the hook asks for, then continue")

    def _save_end(self, fields: Mapping[str, object], _: HookReply) -> None:
        number, status = read_number(fields), Status(str(fields["status"]))
        state = end_step(self.state, number, status=status, now=self.clock.now(), error=str(fields["error"]) or None)
        base, head = state.execution(number).base_commit, self.context.repository.read_head()
        if status == Status.COMPLETED and base is not None and head is not None:
            changes = self.context.repository.list_changes(base, head)
            own = [each for each in changes if not self.context.snapshots.is_excluded(each.path)]
            state = record_files(state, number, changes=own)
        self.save(state)

    def _describe_task(self, number: int, title: str) -> dict[str, object]:
        return {"task_id": f"{self.state.ticket_slug}/{number}", "task_subject": title}

    def run_cycle(self, item: WorkItem) -> Ending:
        """Run the cycle of a step in progress, saving each state."""
        return Cycle(item, self.state, context=self.context, save=self.save).run()

    @contextmanager
    def report(self, remarks: Iterable[str], *, is_open_ended: bool = False) -> Iterator[None]:
        """Emit the events of the run around the block, and save the final state, however the block ends.

        ``is_open_ended``: the steps are not known in advance, so only the block itself sets the final status. If the
        state cannot be saved, the run is reported as still in progress.
        """
        context, began, status, found = self.context, self.clock.monotonic(), Status.IN_PROGRESS, self.state
        workflow, ticket = self._workflow, self.state.ticket_slug
        sandbox = context.suite.sandbox.level
        context.emit(RunStarted(workflow=workflow, ticket=ticket, model=context.model.name, sandbox=sandbox))
        for remark in remarks:
            context.emit(Notice(text=remark))
        try:
            try:
                yield
            finally:
                self.meter.pause()
                if self.count_usage(self.state) != found:
                    self.save(self.state if is_open_ended else finish(self.state, now=self.clock.now()))
                status = self.state.status
        finally:
            took = self.clock.monotonic() - began
            context.emit(RunFinished(workflow=workflow, ticket=ticket, status=status, duration_s=took))


def read_number(fields: Mapping[str, object]) -> int:
    """Return the number of the step that an event is about, such as 2 for the ``task_id`` ``csv-export/2``."""
    return int(str(fields["task_id"]).rpartition("/")[2])
