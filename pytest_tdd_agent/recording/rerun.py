"""Running failed tests again, alone: what passes then is flaky, what fails again is meant.

It happens in the process that ran the tests, after all of them: that process has the items. An xdist worker hands the
outcome over when it ends.
"""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, Collection, Generator, Iterator, Sequence

import pytest
from _pytest.runner import runtestprotocol

from .witness import SUBTESTS, Guard, Witness, failure_of, kind_of, outcome_of

if TYPE_CHECKING:
    from pluggy import Result

MOST_TESTS = 50
"""A run in which more tests fail unexpectedly is broken, not flaky: the first so many are run again."""

WORKER_OUTPUT = "tdd_agent_reruns"
"""Key of ``workeroutput`` of xdist: ``Rerunner.tries`` as JSON text."""

_NOT_AGAIN = frozenset({"timeout", "crash", "resource", "system_exit"})


class Rerunner:
    """Hooks that run failed tests again when the others have ended."""

    def __init__(self, *, limit: int, spared: Collection[str], witness: Witness, guard: Guard) -> None:
        """Run each failed test again up to ``limit`` times, until it passes; not those of ``spared``."""
        self._limit = limit
        self._spared = spared
        self._witness = witness
        self._guard = guard
        self._failed: set[str] = set()
        self._never_again: set[str] = set()
        self.tries: dict[str, tuple[str, ...]] = {}
        """Node id -> what running it again came to, oldest first: a failure's kind, else the outcome."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what failed; a test with subtests is not run again, as those report for themselves."""
        if type(report).__name__ in SUBTESTS:
            self._never_again.add(report.nodeid)
        elif report.outcome == "failed" and report.nodeid not in self._spared:
            self._failed.add(report.nodeid)
            with self._guard:
                if kind_of(report) in _NOT_AGAIN:
                    self._never_again.add(report.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Result[object], None]:
        """Run what failed again, unless the run was stopped or somebody debugs it."""
        outcome = yield
        is_stopped = outcome.excinfo is not None or session.shouldstop or session.shouldfail
        if self._failed and not (is_stopped or session.config.option.usepdb):
            with self._guard:
                self._run_again(session)

    def _run_again(self, session: pytest.Session) -> None:
        again = self._failed - self._never_again
        items: Sequence[pytest.Item] = getattr(session, "items", ())  # under xdist, the controlling process has none
        for item in [item for item in items if item.nodeid in again][:MOST_TESTS]:
            self.tries[item.nodeid] = tuple(self._tries(item))
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[WORKER_OUTPUT] = dumps(self.tries)

    def _tries(self, item: pytest.Item) -> Iterator[str]:
        for _ in range(self._limit):
            came = self._try(item)
            yield came
            if came == "passed" or came in _NOT_AGAIN:
                return

    def _try(self, item: pytest.Item) -> str:
        """What one more run of a test comes to."""
        reports = runtestprotocol(item, log=False, nextitem=None)
        for report in reports:
            self._witness.testify(report)
            if report.failed:
                return failure_of(report, str(report.when)).kind
        return next((outcome_of(report) for report in reports if not report.passed), "passed")
