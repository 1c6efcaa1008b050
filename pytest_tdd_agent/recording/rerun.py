"""Rerun failed tests alone to detect flaky ones.

Reruns happen in the process that ran the tests, after all of them, because that process has the items. An xdist worker
sends the results when it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generator, Protocol, Sequence

import pytest
from _pytest.runner import runtestprotocol

from ..comparison import find_expected_failures
from ..options import PluginOptions
from ..system import bind_builtins, decode_json, encode_json
from .spool import Spool, Stream
from .witness import SUBTESTS, Guard, Witness, build_failure, find_outcome

if TYPE_CHECKING:
    from pluggy import Result

bind_builtins(globals())


MOST_TESTS = 50
"""Most tests that are rerun, the gate's targets first. If more fail, the run is broken, not flaky."""

_WORKER_OUTPUT = "tdd_agent_reruns"  # in ``workeroutput`` of xdist: node id -> tries, as JSON text
_NEVER_RERUN = frozenset({"timeout", "crash", "resource", "system_exit"})


class Listener(Protocol):
    """Receives the results of reruns."""

    def begin_rerun(self, nodeid: str) -> None:
        """Announce a rerun of a test."""

    def record_tries(self, nodeid: str, tries: Sequence[str]) -> None:
        """Record the reruns so far, oldest first, without the first run: failure kind or outcome."""


class WorkerListener:
    """Sends the results to the controlling process, which alone writes the stream."""

    def __init__(self, config: pytest.Config) -> None:
        """Send as part of an xdist worker's output."""
        self._output: dict[str, object] = config.__dict__["workeroutput"]
        self._tries: dict[str, Sequence[str]] = {}

    def begin_rerun(self, nodeid: str) -> None:
        """Do nothing: if the worker dies, its output is lost."""

    def record_tries(self, nodeid: str, tries: Sequence[str]) -> None:
        """Store the results until the worker ends."""
        self._tries[nodeid] = tries
        self._output[_WORKER_OUTPUT] = encode_json(self._tries)


class ControllerListener:
    """Records the results, including those of workers."""

    def __init__(self, stream: Stream, *, spool: Spool, guard: Guard) -> None:
        """Record to a stream and a spool."""
        self._stream = stream
        self._spool = spool
        self._guard = guard

    def begin_rerun(self, nodeid: str) -> None:
        """Record which test is rerun: if the process dies, this line names the test."""
        self._stream.begin(nodeid)

    def record_tries(self, nodeid: str, tries: Sequence[str]) -> None:
        """Record the results so far."""
        self._spool.record_tries(nodeid, tries)
        self._stream.send("retry", nodeid=nodeid, tries=list(tries))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Record the results of an xdist worker."""
        with self._guard:
            output: dict[str, object] = getattr(node, "workeroutput", {})
            found = decode_json(str(output.get(_WORKER_OUTPUT, "{}")))
            for nodeid, tries in found.items() if isinstance(found, dict) else ():
                self.record_tries(nodeid, tries)


class Rerunner:
    """Hooks that rerun failed tests after all others."""

    def __init__(self, options: PluginOptions, *, witness: Witness, guard: Guard, listener: Listener) -> None:
        """Rerun each failed test that is a target or failed unexpectedly, until it passes."""
        self._options = options
        self._expected = frozenset(find_expected_failures(options.baseline, phase=options.gate))
        self._witness = witness
        self._guard = guard
        self._listener = listener
        self._failed: set[str] = set()
        self._excluded: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record failed tests. Tests with subtests are never rerun, because subtests report separately."""
        if type(report).__name__ in SUBTESTS:
            self._excluded.add(report.nodeid)
        elif report.outcome == "failed":
            self._failed.add(report.nodeid)
            if self._witness.kinds.get(report.nodeid) in _NEVER_RERUN:
                self._excluded.add(report.nodeid)

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Result[object], None]:
        """Rerun failed tests, unless the run was stopped or is being debugged."""
        outcome = yield
        is_stopped = outcome.excinfo is not None or session.shouldstop or session.shouldfail
        is_stopped = is_stopped or bool(self._witness.endless)
        if self._failed and not (is_stopped or session.config.option.usepdb):
            with self._guard:
                items: Sequence[pytest.Item] = getattr(session, "items", ())  # the xdist controller has none
                for item in self._select(items):
                    self._rerun(item)

    def _select(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """Return the tests to rerun, without those that share a node id: it is unknown which of them failed."""
        counts: dict[str, int] = {}
        for item in items:
            counts[item.nodeid] = counts.get(item.nodeid, 0) + 1
        targets = self._options.select_targets(self._failed)
        selected = (self._failed - self._excluded) - (self._expected - targets)
        items_to_rerun = [item for item in items if item.nodeid in selected and counts[item.nodeid] == 1]
        items_to_rerun.sort(key=lambda item: (item.nodeid not in targets, item.nodeid in self._expected))
        return items_to_rerun[:MOST_TESTS]

    def _rerun(self, item: pytest.Item) -> None:
        tries: list[str] = []
        for _ in range(self._options.flaky):
            self._listener.begin_rerun(item.nodeid)
            tries.append(self._run_once(item))
            self._listener.record_tries(item.nodeid, tuple(tries))
            if tries[-1] == "passed" or tries[-1] in _NEVER_RERUN:
                return

    def _run_once(self, item: pytest.Item) -> str:
        reports = run_silently(item)
        for report in reports:
            seen = self._witness.take_failure(report)
            if report.failed:
                return build_failure(report, str(report.when), seen=seen).kind
        has_run = any(report.when == "call" for report in reports)
        return next(filter("passed".__ne__, map(find_outcome, reports)), "passed" if has_run else "error")


class _SilentProtocol:
    """A hook that runs a test instead of pytest and plugins, and logs no reports."""

    def __init__(self) -> None:
        self.reports: Sequence[pytest.TestReport] = ()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        self.reports = runtestprotocol(item, log=False, nextitem=None)
        return True


def run_silently(item: pytest.Item) -> Sequence[pytest.TestReport]:
    """Run a test with all plugin wrappers (warning filters, time limits), without reporting it."""
    plugins = item.config.pluginmanager
    protocol = _SilentProtocol()
    plugins.register(protocol)  # registered last, so called first
    try:
        # item.ihook of an old pluggy does not see plugins registered later
        item.session.gethookproxy(item.path).pytest_runtest_protocol(item=item, nextitem=None)
    finally:
        plugins.unregister(protocol)
    return protocol.reports
