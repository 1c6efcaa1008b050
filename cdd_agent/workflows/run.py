"""A run as whoever watches it is told: that it begins, what is to be known of it, and its status however it ends."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from cdd_agent.clock import Clock
from cdd_agent.events import Notice, RunFinished, RunStarted
from cdd_agent.tdd.context import Workbench
from cdd_agent.work.state import RunState, Status

Workflow: TypeAlias = Literal["exec", "tdd", "green"]


@contextmanager
def told(
    workflow: Workflow,
    ticket: str,
    *,
    bench: Workbench,
    clock: Clock,
    remarks: Iterable[str],
    settle: Callable[[], RunState],
) -> Iterator[None]:
    """Tell that the run begins and how it has ended, an error that passes through included.

    ``settle`` gives the state as it stays, and keeps it durably; where it fails, the run counts as not ended.
    """
    began, status = clock.monotonic(), Status.IN_PROGRESS
    sandbox = bench.suite.sandbox.level
    bench.emit(RunStarted(workflow=workflow, ticket=ticket, model=bench.model.name, sandbox=sandbox))
    for remark in remarks:
        bench.emit(Notice(text=remark))
    try:
        try:
            yield
        finally:
            status = settle().status
    finally:
        took = clock.monotonic() - began
        bench.emit(RunFinished(workflow=workflow, ticket=ticket, status=status, duration_s=took))
