"""The hooks that see exceptions, in every process that runs tests; and what keeps the plugin's faults off the run."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
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


def failure_of(report: pytest.TestReport | pytest.CollectReport, phase: str, *, seen: Failure | None = None) -> Failure:
    """Return why a phase failed, with the text and the output that pytest has of it.

    ``seen``: what a witness of this process says; another process's word is attached to the report.
    """
    attached: str | None = report.__dict__.get(ATTRIBUTE)
    text = _rendered(report.longrepr)
    found = seen or (failure.from_text(text, phase) if attached is None else codec.failure_from_line(attached))
    output = "\n".join(f"{title}:\n{content}" for title, content in report.sections)
    return replace(found, text=text[-failure.TEXT_CAP :], output=output[-_OUTPUT_CAP:])


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
    """Hooks of every process that runs tests: they see the exceptions, and know what those stand for."""

    def __init__(self, config: pytest.Config, guard: Guard) -> None:
        """Watch the tests of one process."""
        self._config = config
        self._guard = guard
        self._seen: dict[str, tuple[str, BaseException]] = {}
        """Phase -> node id and exception, until the phase is reported."""
        self.kinds: dict[str, str] = {}
        """Node id of a test that failed -> the kind of its last failure."""

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Take note of an exception, after pytest has put unittest's in its place and before it makes the report.

        No wrapper: that would cost each test that passes three times as much.
        """
        if call.excinfo is not None:
            self._seen[call.when] = (item.nodeid, call.excinfo.value)

    def testify(self, report: pytest.TestReport) -> Failure | None:
        """Return why a test failed, if the exception of this phase was seen."""
        if report.outcome not in ("passed", "failed", "skipped"):
            return None  # a plugin's word for a try that does not count; the last may have the same exception
        nodeid, error = self._seen.pop(str(report.when), ("", None))
        if error is None or nodeid != report.nodeid or report.outcome != "failed":
            return None
        found = self._described(error, phase=str(report.when), nodeid=nodeid)
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
                attach(report, self._described(cause, phase="collect", nodeid=report.nodeid))

    def _described(self, error: BaseException, *, phase: str, nodeid: str) -> Failure | None:
        """What an exception stands for; nothing if it is so odd that it cannot be asked: then its report has to do."""
        root, test_file = str(self._config.rootpath), nodeid.split("::", 1)[0]
        with Guard():
            return failure.describe(
                error,
                phase=phase,
                root=root,
                test_file=test_file,
                source=lambda name: _source(os.path.join(root, name)),
            )
        return None


@lru_cache(maxsize=8)
def _source(path: str) -> str | None:
    """The text of a file; kept, as other tests of it may fail too."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def attach(report: pytest.TestReport | pytest.CollectReport, found: Failure | None) -> None:
    """Put a failure on a report, so that it reaches the controlling process."""
    if found is not None:
        report.__dict__[ATTRIBUTE] = codec.failure_line(found)


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
            attach(report, self._witness.testify(report))

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count the tests that are left out."""
        self._deselected += len(items)

    def pytest_sessionfinish(self) -> None:
        """Hand the count over."""
        self._output[DESELECTED] = self._deselected
