"""Where the fault of a node may be: the section and the tools for its attempts after the first one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.agent.tools import Tool
from cdd_agent.clock import Clock
from cdd_agent.events import Notice
from cdd_agent.generation.localize import LocalizationLog, Localizer, Round, StatusOf
from cdd_agent.generation.outcome import NODE_STATUSES
from cdd_agent.generation.views import Definitions
from cdd_agent.tdd.context import Context, WorkItem
from cdd_agent.tdd.phase_task import list_attempts
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import load_report
from cdd_agent.tickets.graph import Node
from cdd_agent.work.state import RunState, Status
from pytest_tdd_agent.report import SuiteReport


@dataclass(frozen=True, kw_only=True)
class NodeLocalization:
    """Localizes the fault of one node in its GREEN."""

    localizer: Localizer
    node: Node
    item: WorkItem
    context: Context
    definitions: Definitions
    clock: Clock
    read_state: Callable[[], RunState]
    """Returns the state as it is saved: without the attempt that begins."""

    def make_tools(self, number: int) -> tuple[Tool, ...]:
        """Return the tools for an attempt."""
        return self._make_round(number).make_tools()

    def describe_places(self, number: int) -> str:
        """Return where the failures of the attempt before this one lead."""
        return self._make_round(number).describe_where()

    def export_debug_context(self, report: SuiteReport, *, votes: str) -> Path:
        """Write everything that is known about the failures of the last attempt for a person, and return the path."""
        number = len(list_attempts("green", self.read_state().execution(self.item.number))) + 1
        return replace(self._make_round(number), report=report, votes=votes).export()

    def _make_round(self, number: int) -> Round:
        state, context = self.read_state(), self.context
        step = state.execution(self.item.number)
        recovery = StepRecovery(self.item.ticket, step, context=context)
        attempts = list_attempts("green", step)
        diagnosis = attempts[-1].diagnosis if attempts else None
        votes = () if diagnosis is None else diagnosis.votes
        return Round(
            localizer=self.localizer,
            node=self.node,
            number=number,
            log=LocalizationLog(recovery.report_path(recovery.name_attempt("green", "localization")), clock=self.clock),
            definitions=self.definitions,
            workspace=context.workspace,
            status_of=self._read_statuses(state),
            report=load_report(attempts[-1], root=context.records.folder) if attempts else None,
            votes="\n".join((f"{diagnosis}\n", *(f"- {vote}" for vote in votes))) if diagnosis is not None else "",
            debug_path=recovery.report_path(recovery.name_attempt("green", f"debug-{number}")).with_suffix(".md"),
            tell=lambda text: context.emit(Notice(text=text)),
        )

    def _read_statuses(self, state: RunState) -> StatusOf:
        by_title = {step.title: step.status for step in state.step_executions.values()}
        graph, layout = self.localizer.graph, self.localizer.layout
        return lambda node: NODE_STATUSES[by_title.get(layout.title_of(graph.by_id[node]), Status.PENDING)]
