"""The hooks that see exceptions, in every process that runs tests; and what keeps the plugin's faults off the run."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Generator, Sequence

import pytest

from .. import codec, failure
from ..report import Failure

if TYPE_CHECKING:
    from pluggy import Result

ATTRIBUTE = "tdd_agent"
"""Where a report of pytest carries the failure, as JSON text: the one form that passes between all processes."""

DESELECTED = "tdd_agent_deselected"
"""Key of ``workeroutput`` of xdist: how many tests a worker left out."""

SUBTESTS = ("SubtestReport", "SubTestReport")
"""Classes of the reports of subtests: pytest's own, and the plugin's for older versions."""

_ENTRIES_SHOWN = 3
_OUTPUT_CAP = 2000


def outcome_of(report: pytest.TestReport) -> str:
    """Return what one phase came to, in the words of ``report.OUTCOMES``."""
    if "wasxfail" in report.__dict__:
        return "xpassed" if report.passed else "xfailed" if report.skipped else "failed"
    if report.failed and report.when in ("setup", "teardown"):
        return "error"
    return report.outcome


def failure_of(report: pytest.TestReport | pytest.CollectReport, phase: str) -> Failure:
    """Return why a phase failed, with the text and the output that pytest has of it."""
    attached: str | None = report.__dict__.get(ATTRIBUTE)
    text = _rendered(report.longrepr)
    found = failure.from_text(text, phase) if attached is None else codec.failure_from_line(attached)
    output = "\n".join(f"{title}:\n{content}" for title, content in report.sections)
    return replace(found, text=text[-failure.TEXT_CAP :], output=output[-_OUTPUT_CAP:])


def kind_of(report: pytest.TestReport) -> str | None:
    """Return the kind of the failure that is attached to a report, if there is one."""
    attached: str | None = report.__dict__.get(ATTRIBUTE)
    return None if attached is None else codec.failure_from_line(attached).kind


def _rendered(longrepr: object) -> str:
    """A failure as pytest shows it; of a long traceback the test and the last calls, as rendering it takes long."""
    entries: Sequence[object] = getattr(getattr(longrepr, "reprtraceback", None), "reprentries", ())
    if len(entries) <= _ENTRIES_SHOWN or len(getattr(longrepr, "chain", (None,))) > 1:
        return str(longrepr)  # not longreprtext, which puts a line on the worker before it
    return "\n...\n".join(str(entry) for entry in (entries[0], *entries[1 - _ENTRIES_SHOWN :]))


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
        self._seen: dict[str, tuple[str, BaseException]] = {}
        """Phase -> node id and exception, until the phase is reported."""
        self._last_source = ("", "")

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Take note of an exception, after pytest has put unittest's in its place and before it makes the report.

        No wrapper: that would cost each test that passes three times as much.
        """
        if call.excinfo is not None:
            self._seen[call.when] = (item.nodeid, call.excinfo.value)

    def testify(self, report: pytest.TestReport) -> None:
        """Attach why a test failed, if the exception of this phase was seen."""
        if report.outcome not in ("passed", "failed", "skipped"):
            return  # a plugin's word for a try that does not count; what comes of the last may have the same exception
        nodeid, error = self._seen.pop(str(report.when), ("", None))
        if error is not None and nodeid == report.nodeid and report.outcome == "failed":
            with self._guard:
                self._attach(report, error, phase=str(report.when))

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
        test_file = report.nodeid.split("::", 1)[0]
        with Guard():  # an exception can be so odd that nothing can be asked of it; then its report has to do
            found = failure.describe(error, phase=phase, root=str(root), test_file=test_file, source=self._source)
            report.__dict__[ATTRIBUTE] = codec.failure_line(found)

    def _source(self, name: str) -> str | None:
        """The text of a file below the root directory; the last one is kept, as its other tests may fail too."""
        if self._last_source[0] != name:
            try:
                text = (self._config.rootpath / name).read_text(encoding="utf-8", errors="replace")
            except OSError:
                return None
            self._last_source = (name, text)
        return self._last_source[1]


class WorkerWitness:
    """Hooks of an xdist worker: hand over to the controlling process what only this one knows."""

    def __init__(self, config: pytest.Config, witness: Witness) -> None:
        """Speak for a witness."""
        self._output: dict[str, object] = config.__dict__["workeroutput"]
        self._witness = witness
        self._deselected = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Attach why a test failed, before the report is sent."""
        if report.outcome != "passed":
            self._witness.testify(report)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count the tests that are left out."""
        self._deselected += len(items)

    def pytest_sessionfinish(self) -> None:
        """Hand the count over."""
        self._output[DESELECTED] = self._deselected
