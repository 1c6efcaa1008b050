"""The hooks of the controlling process that gather what tests came to, and stream it.

The hooks of the controlling process that note which tests there are to run, and what could not be collected.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Sequence

import pytest

from .. import codec, failure
from ..report import CollectError
from .spool import SEVERITY, Spool, Stream, Tally
from .witness import DESELECTED, SUBTESTS, Guard, Witness, failure_of, outcome_of


class Collected:
    """What was collected, and what of it has not ended."""

    def __init__(self, stream: Stream, *, spool: Spool, guard: Guard, is_each: bool) -> None:
        """Begin with nothing; ``is_each``: every worker of xdist runs every test."""
        self._is_each = is_each
        self._stream = stream
        self._spool = spool
        self._guard = guard
        self.errors: dict[str, CollectError] = {}
        """By node id."""
        self.collected = 0
        self.deselected = 0
        self.awaited: dict[str, int] = {}
        """Node id -> how many tests of it were collected and have not ended."""

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count the tests that are left out."""
        self.deselected += len(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the tests that will run."""
        with self._guard:
            self._collected([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the tests that will run; every worker collects the same."""
        with self._guard:
            if not self.collected:
                self._collected(ids)
            elif self._is_each:
                self._spool.share(ids)

    def _collected(self, ids: Sequence[str]) -> None:
        names = sorted(ids)
        self.awaited.update(dict.fromkeys(names, 1))
        self.collected = len(self.awaited)
        if self.collected != len(names):
            twins = [name for name, following in zip(names, names[1:]) if name == following]
            for name in twins:
                self.awaited[name] += 1
            self._spool.share(twins)
        digest = sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()
        self._stream.send("collected", count=len(names), sha256=digest, nodeids=names)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over how many tests an xdist worker left out; every worker has the same."""
        with self._guard:
            output: dict[str, object] = getattr(node, "workeroutput", {})
            self.deselected = max(self.deselected, int(str(output.get(DESELECTED, 0))))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that could not be collected, once."""
        if report.failed and report.nodeid not in self.errors:
            with self._guard:
                found = failure_of(report, "collect")
                self.errors[report.nodeid] = CollectError(report.nodeid, found)
                self._stream.send("collect_error", nodeid=report.nodeid, failure=codec.failure_to_json(found))


class Recorder:
    """What is known of the tests so far, in its own memory and in the spool."""

    def __init__(self, stream: Stream, *, spool: Spool, collection: Collected, witness: Witness, guard: Guard) -> None:
        """Record to a stream and a spool; collection and witness are those of this process."""
        self.stream = stream
        self.spool = spool
        self.guard = guard
        self._witness = witness
        self.collection = collection
        self.warnings = 0
        self.stopped_with: int | None = None
        """Exit status, if pytest was interrupted or failed itself."""
        self._tally = Tally()
        self._awaited = collection.awaited
        self._reruns: dict[str, int] = {}

    def is_complete(self) -> bool:
        """Say whether every collected test has ended, and is recorded."""
        is_stopped = self.stopped_with is not None
        is_open = is_stopped or self._awaited or self._tally.in_flight() or self.guard.fault
        return not is_open and self.spool.is_whole()

    def pytest_warning_recorded(self) -> None:
        """Count a warning."""
        self.warnings += 1

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Say which test begins: if the process dies in it, this line names it."""
        with self.guard:
            file, line, _ = location
            if os.sep != "/":
                file = file.replace(os.sep, "/")
            reruns = 0 if nodeid in self._awaited else self._ended_before(nodeid)
            self._tally.begin(nodeid, file=file, line=0 if line is None else line + 1, reruns=reruns)
            self.stream.begin(nodeid)

    def _ended_before(self, nodeid: str) -> int:
        """How often a test that is not awaited has ended: some plugins run tests again from the start."""
        if self.spool.is_shared(nodeid):
            return 0
        self.spool.replace_later(nodeid)
        self._reruns[nodeid] = self._reruns.get(nodeid, 0) + 1
        return self._reruns[nodeid]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase."""
        if report.outcome == "passed" and report.__class__ is pytest.TestReport and "wasxfail" not in report.__dict__:
            self._tally.passed(report.nodeid, report.when, duration_s=report.duration)
        else:
            with self.guard:
                self._not_passed(report)

    def _not_passed(self, report: pytest.TestReport) -> None:
        seen = self._witness.testify(report)
        outcome = outcome_of(report)
        if outcome not in SEVERITY:  # a plugin's word, such as "rerun", for a try that does not count
            self.stream.send("rerun", nodeid=report.nodeid, count=self._tally.rerun(report.nodeid))
            return
        is_subtest = type(report).__name__ in SUBTESTS
        if is_subtest and outcome not in ("failed", "error"):
            return
        when = report.when if report.when in ("setup", "call", "teardown") else "call"
        found = None
        if outcome in ("failed", "error"):
            with self.guard:  # whatever cannot be said of the failure, the test has failed
                found = failure_of(report, str(report.when), seen=seen)
        duration = 0.0 if is_subtest else report.duration
        self._tally.phase(report.nodeid, when, outcome=outcome, duration_s=duration, failure=found)
        document = None if found is None else codec.failure_to_json(found)
        self.stream.send("phase", nodeid=report.nodeid, when=when, outcome=outcome, failure=document)
        if when != report.when:
            self.pytest_runtest_logfinish(report.nodeid)  # its worker died, so nobody else says so

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note what a test came to."""
        with self.guard:
            draft = self._tally.finish(nodeid)
            if draft is not None:
                left = self._awaited.pop(nodeid, 1) - 1
                if left > 0:
                    self._awaited[nodeid] = left
                if draft.outcome == "passed" and not draft.reruns:
                    line = codec.passed_line(nodeid, file=draft.file, line=draft.line, phases=draft.phases)
                else:
                    line = codec.case_line(draft.case())
                self.spool.add(line)
                self.stream.end(nodeid, draft.outcome)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note that the run was stopped: by Ctrl-C, ``pytest.exit`` or pytest itself."""
        status: int | None = getattr(excinfo.value, "returncode", None)
        self.stopped_with = int(pytest.ExitCode.INTERRUPTED) if status is None else status
        with self.guard:
            self.stream.send("interrupt", exception=excinfo.typename, message=failure.message_of(excinfo.value))

    def pytest_internalerror(self, excrepr: object) -> None:
        """Note that pytest or a plugin failed."""
        self.stopped_with = int(pytest.ExitCode.INTERNAL_ERROR)
        with self.guard:
            self.stream.send("internal_error", text=str(excrepr)[-failure.TEXT_CAP :])
