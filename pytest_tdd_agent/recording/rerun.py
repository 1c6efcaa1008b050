"""Running failed tests again, alone: what passes then is flaky, what fails again is meant.

It happens in the process that ran the tests, after all of them: that process has the items. An xdist worker hands the
outcome over when it ends.
"""

from __future__ import annotations

from collections import Counter
from json import dumps, loads
from typing import TYPE_CHECKING, Generator, Protocol, Sequence

import pytest
from _pytest.runner import runtestprotocol

from ..comparison import expected_failures
from ..options import Options
from .spool import Spool, Stream
from .witness import SUBTESTS, Guard, Witness, failure_of, outcome_of

if TYPE_CHECKING:
    from pluggy import Result

MOST_TESTS = 50
"""A run in which more tests fail unexpectedly is broken, not flaky: so many are run again, the gate's targets first."""

_WORKER_OUTPUT = "tdd_agent_reruns"  # in ``workeroutput`` of xdist: node id -> tries, as JSON text
_NOT_AGAIN = frozenset({"timeout", "crash", "resource", "system_exit"})


class Listener(Protocol):
    """Who is told of the tries."""

    def begins_again(self, nodeid: str) -> None:
        """Hear that a test is run again."""

    def tried(self, nodeid: str, tries: Sequence[str]) -> None:
        """Hear what the tries so far came to, oldest first, without the first: a failure's kind, else the outcome."""


class WorkerListener:
    """Hands the tries over to the controlling process, whose stream only that process writes."""

    def __init__(self, config: pytest.Config) -> None:
        """Speak for an xdist worker."""
        self._output: dict[str, object] = config.__dict__["workeroutput"]
        self._tries: dict[str, Sequence[str]] = {}

    def begins_again(self, nodeid: str) -> None:
        """Say nothing: if the worker dies, nothing that it says arrives."""

    def tried(self, nodeid: str, tries: Sequence[str]) -> None:
        """Keep what the tries came to for the end of the worker."""
        self._tries[nodeid] = tries
        self._output[_WORKER_OUTPUT] = dumps(self._tries)


class ControllerListener:
    """Records the tries, those that the workers hand over too."""

    def __init__(self, stream: Stream, *, spool: Spool, guard: Guard) -> None:
        """Record to a stream and a spool."""
        self._stream = stream
        self._spool = spool
        self._guard = guard

    def begins_again(self, nodeid: str) -> None:
        """Say which test is run again: if the process dies in it, this line names it."""
        self._stream.begin(nodeid)

    def tried(self, nodeid: str, tries: Sequence[str]) -> None:
        """Record what the tries so far came to."""
        self._spool.tried(nodeid, tries)
        self._stream.send("retry", nodeid=nodeid, tries=list(tries))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over the tries of an xdist worker."""
        with self._guard:
            output: dict[str, object] = getattr(node, "workeroutput", {})
            for nodeid, tries in loads(str(output.get(_WORKER_OUTPUT, "{}"))).items():
                self.tried(nodeid, tries)


class Rerunner:
    """Hooks that run failed tests again when the others have ended."""

    def __init__(self, options: Options, *, witness: Witness, guard: Guard, listener: Listener) -> None:
        """Run each test that failed unexpectedly, or is a target, again as often as asked, until it passes."""
        self._options = options
        self._expected = frozenset(expected_failures(options.baseline, phase=options.gate))
        self._witness = witness
        self._guard = guard
        self._listener = listener
        self._failed: set[str] = set()
        self._never_again: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what failed; a test with subtests is not run again, as those report for themselves."""
        if type(report).__name__ in SUBTESTS:
            self._never_again.add(report.nodeid)
        elif report.outcome == "failed":
            self._failed.add(report.nodeid)
            if self._witness.kinds.get(report.nodeid) in _NOT_AGAIN:
                self._never_again.add(report.nodeid)

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Result[object], None]:
        """Run what failed again, unless the run was stopped or somebody debugs it; inside what others put round it."""
        outcome = yield
        is_stopped = outcome.excinfo is not None or session.shouldstop or session.shouldfail
        if self._failed and not (is_stopped or session.config.option.usepdb):
            with self._guard:
                items: Sequence[pytest.Item] = getattr(session, "items", ())  # none where xdist controls
                for item in self._chosen(items):
                    self._run_again(item)

    def _chosen(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """What to run again; of tests that share a node id nobody knows which has failed."""
        counts = Counter(item.nodeid for item in items)
        targets = self._options.targets_among(self._failed)
        again = (self._failed - self._never_again) - (self._expected - targets)
        chosen = [item for item in items if item.nodeid in again and counts[item.nodeid] == 1]
        chosen.sort(key=lambda item: (item.nodeid not in targets, item.nodeid in self._expected))
        return chosen[:MOST_TESTS]

    def _run_again(self, item: pytest.Item) -> None:
        tries: list[str] = []
        for _ in range(self._options.flaky):
            self._listener.begins_again(item.nodeid)
            tries.append(self._try(item))
            self._listener.tried(item.nodeid, tuple(tries))
            if tries[-1] == "passed" or tries[-1] in _NOT_AGAIN:
                return

    def _try(self, item: pytest.Item) -> str:
        """What one more run of a test comes to."""
        reports = run_unheard(item)
        for report in reports:
            seen = self._witness.testify(report)
            if report.failed:
                return failure_of(report, str(report.when), seen=seen).kind
        has_run = any(report.when == "call" for report in reports)
        return next(filter("passed".__ne__, map(outcome_of, reports)), "passed" if has_run else "error")


class _Unheard:
    """A hook that runs a test in the place of pytest's own and of plugins', and tells nobody."""

    def __init__(self) -> None:
        self.reports: Sequence[pytest.TestReport] = ()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        self.reports = runtestprotocol(item, log=False, nextitem=None)
        return True


def run_unheard(item: pytest.Item) -> Sequence[pytest.TestReport]:
    """Run a test as pytest does, with all that plugins put round it (warning filters, time limits), but for itself."""
    plugins = item.config.pluginmanager
    unheard = _Unheard()
    plugins.register(unheard)  # last of all, and so the first to be asked
    try:
        # not item.ihook: with an old pluggy that may not know what was registered since it was made
        item.session.gethookproxy(item.path).pytest_runtest_protocol(item=item, nextitem=None)
    finally:
        plugins.unregister(unheard)
    return unheard.reports
