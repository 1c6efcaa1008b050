"""One run of a workflow: its saved state, its counted model, and its events."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from cdd_agent.agent.budget import Meter
from cdd_agent.clock import Clock
from cdd_agent.events import Notice, RunFinished, RunStarted
from cdd_agent.tdd.context import Context, WorkItem
from cdd_agent.tdd.cycle import Cycle, Ending
from cdd_agent.work import state_file
from cdd_agent.work.state import RunState, Status, complete_step, fail_step, record_usage

Workflow: TypeAlias = Literal["exec", "tdd", "green"]


class WorkflowRun:
    """The state of a run, which is saved after every change, and the cycles that change it."""

    def __init__(
        self, workflow: Workflow, state: RunState, *, path: Path, context: Context, clock: Clock, meter: Meter | None
    ) -> None:
        """Saves nothing. ``path`` is the state file. Without a ``meter``, usage is counted but not limited."""
        ticket = state.ticket_slug
        resume = context.commands.resume if context.commands else f"cdd exec {ticket}"
        self.meter = meter or Meter(context.model, clock=clock, ticket=ticket, go_on=resume)
        self.context = replace(context, model=self.meter)
        self.clock = clock
        self.state = state
        self._workflow = workflow
        self._path = path
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
        state_file.save(self._path, state)
        self.state = state

    def begin_step(self, number: int) -> None:
        """Count usage for a step from now on; raises ``BudgetSpent`` or ``ModelError`` if the model cannot be used."""
        step = self.state.execution(number)
        self.meter.begin(f"{self.context.step_name(step)} of {self.state.ticket_slug}", used=step.usage)
        self._step = number
        self.meter.check()

    def run_cycle(self, item: WorkItem) -> Ending:
        """Run the cycle of a step in progress, saving each state."""
        return Cycle(item, self.state, context=self.context, save=self.save).run()

    def end_step(self, state: RunState, number: int, *, error: str | None = None) -> None:
        """Save ``state`` with the step completed, or failed with ``error``."""
        now = self.clock.now()
        if error is None:
            self.save(complete_step(state, number, now=now))
        else:
            self.save(fail_step(state, number, error=error, now=now))

    @contextmanager
    def report(self, remarks: Iterable[str], *, settle: Callable[[], None]) -> Iterator[None]:
        """Emit the events of the run around the block, however it ends.

        ``settle`` saves the final state. If it fails, the run is reported as still in progress.
        """
        context, began, status = self.context, self.clock.monotonic(), Status.IN_PROGRESS
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
                settle()
                status = self.state.status
        finally:
            took = self.clock.monotonic() - began
            context.emit(RunFinished(workflow=workflow, ticket=ticket, status=status, duration_s=took))
