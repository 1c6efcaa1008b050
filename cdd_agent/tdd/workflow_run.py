"""A run of a workflow: its state, saved after every change, and the steps and cycles that change it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, TypeAlias

from cdd_agent.clock import Clock
from cdd_agent.errors import GateClosed
from cdd_agent.events import Notice, RunFinished, RunStarted
from cdd_agent.model.budget import Meter
from cdd_agent.tdd.context import Context, WorkItem
from cdd_agent.tdd.cycle import Cycle, Ending
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state import RunState, Status, StepKey, end_step, finish, record_usage, replace_step, start_step
from cdd_agent.work.state_file import save_state

Workflow: TypeAlias = Literal["exec", "tdd", "green"]


class WorkflowRun:
    """The state of a run, which is saved after every change, and the cycles that change it."""

    def __init__(
        self, workflow: Workflow, ticket: Ticket, *, context: Context, clock: Clock, meter: Meter | None
    ) -> None:
        """Begin with an empty state, saving nothing. Without a ``meter``, usage is counted but not limited."""
        resume = context.commands.resume if context.commands else f"cdd exec {ticket.slug}"
        self.meter = meter or Meter(context.model, clock=clock, ticket=ticket.slug, go_on=resume)
        self.context = replace(context, model=self.meter)
        self.clock = clock
        self.state = RunState(ticket_slug=ticket.slug, started_at=clock.now())
        self._workflow = workflow
        self._path = ticket.state_path
        self._step: int | None = None

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
        """Save ``state`` with the step started at HEAD, or resumed on the branch where it was started."""
        repository, context = self.context.repository, self.context
        head = repository.read_head()
        state = replace(
            state,
            base_commit=state.base_commit or head,
            branch=state.branch if is_resumed else repository.read_branch(),
            sandbox=context.suite.sandbox.level,
            model=context.model.name,
        )
        self.save(start_step(state, key, now=self.clock.now(), base_commit=head))

    def begin_step(self, number: int) -> None:
        """Count usage for a step from now on; raises ``BudgetSpent`` or ``ModelError`` if the model cannot be used."""
        step = self.state.execution(number)
        self.meter.begin(f"{self.context.step_name(step)} of {self.state.ticket_slug}", used=step.usage)
        self._step = number
        self.meter.check()
        reply = self.context.hooks.run("TaskStart", self._describe_task(number))
        if reply.block:
            happened = f"A hook blocked {self.context.step_name(step)}: {reply.block}"
            raise GateClosed(happened, hint="do what it asks for first")
        if reply.context not in step.guidance:  # a resumed step has it already
            guidance = "\n".join(filter(None, (step.guidance, reply.context)))
            self.save(replace_step(self.state, replace(step, guidance=guidance)))

    def complete_task(self, number: int) -> None:
        """Run the hooks for the end of a step; raise ``GateClosed`` if one wants no further step."""
        step = self.state.execution(number)
        fields = {**self._describe_task(number), "status": str(step.status), "error": step.error or ""}
        if reason := self.context.hooks.run("TaskCompletion", fields).block:
            happened = f"A hook ended the run after {self.context.step_name(step)}: {reason}"
            raise GateClosed(happened, hint="the step itself is saved; do what the hook asks for, then continue")

    def _describe_task(self, number: int) -> dict[str, object]:
        step = self.state.execution(number)
        return {"task_id": f"{self.state.ticket_slug}/{number}", "task_subject": step.title}

    def run_cycle(self, item: WorkItem) -> Ending:
        """Run the cycle of a step in progress, saving each state."""
        return Cycle(item, self.state, context=self.context, save=self.save).run()

    def end_step(self, state: RunState, number: int, *, error: str | None = None) -> None:
        """Save ``state`` with the step completed, or failed with ``error``."""
        status = Status.COMPLETED if error is None else Status.FAILED
        self.save(end_step(state, number, status=status, now=self.clock.now(), error=error))

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
