"""The hooks that see exceptions, in every process that runs tests; and what keeps the plugin's faults off the run."""

from __future__ import annotations

from json import dumps
from types import TracebackType
from typing import TYPE_CHECKING, Generator, Sequence

import pytest

from .. import codec, failure

if TYPE_CHECKING:
    from pluggy import Result

ATTRIBUTE = "tdd_agent"
"""Where a report of pytest carries the failure, as JSON text: the one form that passes between all processes."""


class Guard:
    """A context that keeps a fault of the plugin away from the run, and remembers the first."""

    def __init__(self) -> None:
        """Begin without a fault."""
        self.fault: str | None = None

    def __enter__(self) -> None:
        """Watch what follows."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        """Keep an Exception; let KeyboardInterrupt and its like pass."""
        if isinstance(error, Exception):
            self.fault = self.fault or f"{type(error).__name__}: {failure.message_of(error)}"
            return True
        return False


class Witness:
    """Hooks of every process that runs tests: they see the exceptions, and attach to reports what those stand for."""

    def __init__(self, config: pytest.Config, guard: Guard) -> None:
        """Watch the tests of one process."""
        self._config = config
        self._guard = guard
        self._deselected = 0

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Result[pytest.TestReport], None]:
        """Attach why a test failed."""
        outcome = yield
        if call.excinfo is not None:
            with self._guard:
                report = outcome.get_result()
                if report.failed:
                    self._attach(report, call.excinfo.value, phase=call.when)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, Result[pytest.CollectReport], None]:
        """Attach why a file could not be collected."""
        outcome = yield
        with self._guard:
            report = outcome.get_result()
            call: pytest.CallInfo[object] | None = report.__dict__.get("call")
            if report.failed and call is not None and call.excinfo is not None:
                error = call.excinfo.value
                is_wrapped = isinstance(error, pytest.Collector.CollectError) and error.__cause__ is not None
                self._attach(report, error.__cause__ if is_wrapped and error.__cause__ else error, phase="collect")

    def _attach(self, report: pytest.TestReport | pytest.CollectReport, error: BaseException, *, phase: str) -> None:
        """Put the failure on the report as JSON text."""
        root = self._config.rootpath

        def source(name: str) -> str | None:
            try:
                return (root / name).read_text(encoding="utf-8", errors="replace")
            except OSError:
                return None

        test_file = report.nodeid.split("::", 1)[0]
        found = failure.describe(error, phase=phase, root=str(root), test_file=test_file, source=source)
        report.__dict__[ATTRIBUTE] = dumps(codec.failure_to_json(found))

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count for the controlling process, which under xdist is not told."""
        self._deselected += len(items)

    def pytest_sessionfinish(self) -> None:
        """Hand the count over."""
        output: dict[str, object] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["tdd_agent_deselected"] = self._deselected
