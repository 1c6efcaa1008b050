"""The hooks of the controlling process that gather what tests came to, and stream it."""

from __future__ import annotations

import os

import pytest

from .. import codec, failure
from .collection import Collected
from .spool import Spool
from .stream import Stream
from .tally import SEVERITY, Tally
from .witness import SUBTESTS, Guard, Witness, failure_of, outcome_of


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
