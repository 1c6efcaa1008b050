"""Hooks that see exceptions in every process that runs tests, and the guard against errors in the plugin."""

from __future__ import annotations

from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Generator, Sequence

import pytest

from .. import codec, failure
from ..report import Failure, replace
from ..system import SEPARATOR, bind_builtins, read_bytes, to_plain_text

if TYPE_CHECKING:
    from pluggy import Result

bind_builtins(globals())


ATTRIBUTE = "tdd_agent"
"""Attribute of a pytest report that carries the failure as JSON text, which every process can pass on."""

DESELECTED = "tdd_agent_deselected"
"""Key of xdist's ``workeroutput`` for the number of deselected tests."""

SUBTESTS = ("SubtestReport", "SubTestReport")
"""Report classes of subtests: pytest's own, and that of the pytest-subtests plugin."""

_ENTRIES_SHOWN = 3
_OUTPUT_CAP = 2000


def find_outcome(report: pytest.TestReport) -> str:
    """Return the outcome of one phase, one of ``report.OUTCOMES``."""
    if "wasxfail" in report.__dict__:
        return "xpassed" if report.passed else "xfailed" if report.skipped else "failed"
    if report.failed and report.when in ("setup", "teardown"):
        return "error"
    return report.outcome


def is_skipped_subtest(report: pytest.TestReport) -> bool:
    """Return whether a subtest ended early as skipped or as an expected failure."""
    return type(report).__name__ in SUBTESTS and report.outcome == "skipped"


def build_failure(
    report: pytest.TestReport | pytest.CollectReport, phase: str, *, seen: Failure | None = None
) -> Failure:
    """Return why a phase failed, with pytest's text and output.

    ``seen`` is the failure that this process saw; another process attaches it to the report.
    """
    attached: str | None = report.__dict__.get(ATTRIBUTE)
    text = ""
    with Guard():  # pytest renders with functions that the test may have replaced
        text = to_plain_text(_render(report.longrepr))
    found = seen or (failure.from_text(text, phase) if attached is None else codec.failure_from_line(attached))
    output = "\n".join(f"{title}:\n{content}" for title, content in report.sections)
    return replace(found, text=text[-failure.TEXT_CAP :], output=output[-_OUTPUT_CAP:])


def _render(longrepr: object) -> str:
    # Rendering a long traceback is slow: show only the test and the last calls.
    entries: Sequence[object] = getattr(getattr(longrepr, "reprtraceback", None), "reprentries", ())
    if len(entries) <= _ENTRIES_SHOWN or len(getattr(longrepr, "chain", (None,))) > 1:
        return str(longrepr)  # longreprtext would add a line about the worker
    return "\n...\n".join(str(entry) for entry in (entries[0], *entries[1 - _ENTRIES_SHOWN :]))


class Guard:
    """A context that suppresses errors in the plugin and remembers the first."""

    def __init__(self) -> None:
        """Start without an error."""
        self.fault: str | None = None

    def __enter__(self) -> None:
        """Enter the context."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        """Suppress an Exception, but not KeyboardInterrupt and similar."""
        if isinstance(error, Exception):
            self.fault = self.fault or f"{type(error).__name__}: {failure.format_message(error)}"
            return True
        return False


class Witness:
    """Hooks of every process that runs tests; they see exceptions and describe them."""

    def __init__(self, config: pytest.Config, guard: Guard) -> None:
        """Observe the tests of one process."""
        self._places = failure.Places(str(config.rootpath))
        self._guard = guard
        self._seen: dict[str, tuple[str, BaseException]] = {}
        """Phase -> node id and exception, until the phase is reported."""
        self.kinds: dict[str, str] = {}
        """Node id of a failed test -> kind of its last failure."""
        self.endless: dict[str, Failure] = {}
        """Node id of a test that did not end within the time limit -> where it was then."""

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Record an exception, after pytest has substituted unittest's and before it makes the report."""
        # This is not a hook wrapper, which would cost three times as much for each passing test.
        if call.excinfo is not None:
            self._seen[call.when] = (item.nodeid, call.excinfo.value)

    def take_failure(self, report: pytest.TestReport) -> Failure | None:
        """Return why a phase failed and forget it; None if no exception was seen."""
        if report.outcome not in ("passed", "failed", "skipped"):
            return None  # a plugin's outcome for a try that does not count; the last try may have the same exception
        nodeid, error = self._seen.pop(str(report.when), ("", None))
        if report.outcome == "failed" and report.nodeid in self.endless:
            # Not its exception: the test may have caught the one that interrupted it, and raised another.
            self.kinds[report.nodeid] = "timeout"
            return self.endless[report.nodeid]
        if error is None or nodeid != report.nodeid:
            return None
        if is_skipped_subtest(report):
            before = error.__context__
            if before is not None and failure.is_instance_of(before, "SkipTest", package="unittest"):
                error = before  # pytest raises its own exception instead, elsewhere
            return self._describe(error, phase=str(report.when), nodeid=nodeid)
        if report.outcome != "failed":
            return None
        found = self._describe(error, phase=str(report.when), nodeid=nodeid)
        if found is not None:
            self.kinds[nodeid] = found.kind
        return found

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
                cause = error.__cause__ if is_wrapped and error.__cause__ else error
                attach(report, self._describe(cause, phase="collect", nodeid=report.nodeid))

    def _describe(self, error: BaseException, *, phase: str, nodeid: str) -> Failure | None:
        """Return the failure of an exception; None if describing it raises, as hostile exceptions can."""
        with Guard():
            return failure.describe(
                error, phase=phase, places=self._places, test_file=nodeid.split("::", 1)[0], source=self._read_source
            )
        return None

    def note_endless(self, nodeid: str, frame: FrameType | None, *, phase: str, limit_s: float) -> None:
        """Record where a test was when its time was over; ``frame`` is the innermost call, None if that is unknown."""
        stack = [*self._places.iterate_frames(frame)][::-1]
        self.endless[nodeid] = failure.describe_endless(
            stack, limit_s=limit_s, phase=phase, places=self._places, test_file=nodeid.split("::", 1)[0]
        )

    def _read_source(self, name: str) -> bytes | None:
        try:
            return read_bytes(f"{self._places.root}{SEPARATOR}{name}")
        except (OSError, ValueError):
            return None


def attach(report: pytest.TestReport | pytest.CollectReport, found: Failure | None) -> None:
    """Attach a failure to a report for the controlling process."""
    if found is not None:
        report.__dict__[ATTRIBUTE] = codec.failure_to_line(found)


class WorkerWitness:
    """Hooks of an xdist worker that send its failures to the controlling process."""

    def __init__(self, config: pytest.Config, witness: Witness) -> None:
        """Send the failures of ``witness``."""
        self._output: dict[str, object] = config.__dict__["workeroutput"]
        self._witness = witness
        self._deselected = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Attach the failure before the report is sent."""
        if report.outcome != "passed":
            attach(report, self._witness.take_failure(report))

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count deselected tests."""
        self._deselected += len(items)

    def pytest_sessionfinish(self) -> None:
        """Send the count."""
        self._output[DESELECTED] = self._deselected
