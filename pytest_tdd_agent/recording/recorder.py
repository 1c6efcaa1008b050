"""Hooks of the controlling process that record collected tests, collection errors and results, and stream them."""

from __future__ import annotations

from hashlib import sha256
from typing import Sequence

import pytest

from .. import codec, failure
from ..report import Case, CollectError
from ..system import SEPARATOR, Shield, bind_builtins, to_plain_text
from .spool import CUT, SEVERITY, Spool, SpoolTally, Stream
from .witness import DESELECTED, SUBTESTS, Guard, Witness, build_failure, find_outcome, is_skipped_subtest

bind_builtins(globals())


class CollectionRecorder:
    """Records the collected tests, the collection errors, and the tests that have not ended."""

    def __init__(self, stream: Stream, *, spool: Spool, guard: Guard, is_each: bool) -> None:
        """Start empty. ``is_each``: every xdist worker runs every test."""
        self._is_each = is_each
        self._stream = stream
        self._spool = spool
        self._guard = guard
        self.errors: dict[str, CollectError] = {}
        """By node id."""
        self._skipped: set[str] = set()
        self.collected = 0
        self.deselected = 0
        self.awaited: dict[str, int] = {}
        """Node id -> number of its collected tests that have not ended."""

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count deselected tests."""
        self.deselected += len(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record the tests that will run."""
        with self._guard:
            self._record_nodeids([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Record the tests that will run; every worker collects the same ones."""
        with self._guard:
            if not self.collected:
                self._record_nodeids(ids)
            elif self._is_each:
                self._spool.share(ids)
                if self._stream.is_whole:
                    self._send_nodeids(sorted(ids))

    def _record_nodeids(self, ids: Sequence[str]) -> None:
        names = sorted(ids)
        self.awaited.update(dict.fromkeys(names, 1))
        self.collected = len(self.awaited)
        if self.collected != len(names):
            duplicates = [name for name, following in zip(names, names[1:]) if name == following]
            for name in duplicates:
                self.awaited[name] += 1
            self._spool.share(duplicates)
        self._send_nodeids(names)

    def _send_nodeids(self, names: list[str]) -> None:
        digest = sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()
        self._stream.send("collected", count=len(names), sha256=digest, nodeids=names)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Read the number of tests that an xdist worker deselected; it is the same for every worker."""
        with self._guard:
            output: dict[str, object] = getattr(node, "workeroutput", {})
            self.deselected = max(self.deselected, int(str(output.get(DESELECTED, 0))))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that could not be collected, or that skipped itself, once."""
        if report.skipped and report.nodeid not in self._skipped:
            with self._guard:
                self._skipped.add(report.nodeid)
                told = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
                reason = told.replace("Skipped: ", "", 1) if told.startswith("Skipped: ") else told
                file = report.nodeid.split("::", 1)[0]
                case = Case(report.nodeid, "skipped", file, 0, 0.0, reason=reason[: failure.MESSAGE_CAP])
                line = codec.case_to_line(case)
                self._spool.add(line)
                if self._stream.is_whole:
                    self._stream.send_case("skipped", line)
        if report.failed and report.nodeid not in self.errors:
            with self._guard:
                found = build_failure(report, "collect")
                self.errors[report.nodeid] = CollectError(report.nodeid, found)
                self._stream.send("collect_error", nodeid=report.nodeid, failure=codec.failure_to_json(found))


class Recorder:
    """Records running tests in memory and finished ones in the spool."""

    def __init__(
        self, stream: Stream, *, spool: Spool, collection: CollectionRecorder, witness: Witness, guard: Guard
    ) -> None:
        """Record to a stream and a spool, with the collection and the witness of this process."""
        self.stream = stream
        self.spool = spool
        self.guard = guard
        self._witness = witness
        self.collection = collection
        self.warnings = 0
        self.stopped_with: int | None = None
        """Exit status, if pytest was interrupted or failed itself."""
        self.internal_error = ""
        """The end of pytest's text about it."""
        self._tally = SpoolTally()
        self._awaited = collection.awaited
        self._reruns: dict[str, int] = {}
        self.not_passed: set[str] = set()
        """Node ids of tests that did not pass in their last try; known only if the stream is whole."""

    def is_complete(self) -> bool:
        """Return whether every collected test has ended and is recorded."""
        is_stopped = self.stopped_with is not None
        is_open = is_stopped or self._awaited or self._tally.list_running_tests() or self.guard.fault
        return not is_open and self.spool.is_intact()

    def pytest_warning_recorded(self) -> None:
        """Count a warning."""
        self.warnings += 1

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Record which test begins: if the process dies, this line names the test."""
        with self.guard:
            file, line, _ = location
            if SEPARATOR != "/":
                file = file.replace(SEPARATOR, "/")
            reruns = 0 if nodeid in self._awaited else self._count_rerun(nodeid)
            self._tally.begin(nodeid, file=file, line=0 if line is None else line + 1, reruns=reruns)
            self.stream.begin(nodeid)

    def _count_rerun(self, nodeid: str) -> int:
        """Return how often a test ended before; some plugins rerun tests from the start."""
        if self.spool.is_shared(nodeid):
            return 0
        self.spool.replace_later(nodeid)
        self._reruns[nodeid] = self._reruns.get(nodeid, 0) + 1
        return self._reruns[nodeid]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a phase."""
        if report.outcome == "passed" and report.__class__ is pytest.TestReport and "wasxfail" not in report.__dict__:
            self._tally.record_passed(report.nodeid, report.when, duration_s=report.duration)
        else:
            with self.guard:
                self._record_phase(report)

    def _record_phase(self, report: pytest.TestReport) -> None:
        seen = self._witness.take_failure(report)
        outcome = find_outcome(report)
        if outcome not in SEVERITY:  # set by a plugin, such as "rerun", for a try that does not count
            self.stream.send("rerun", nodeid=report.nodeid, count=self._tally.begin_rerun(report.nodeid))
            return
        is_subtest = type(report).__name__ in SUBTESTS
        if is_subtest and outcome not in ("failed", "error"):
            is_cut = False
            if is_skipped_subtest(report):
                with self.guard:
                    is_cut = build_failure(report, str(report.when), seen=seen).origin == "project"
            self._tally.record_subtest(report.nodeid, CUT if is_cut else outcome)
            return
        when = report.when if report.when in ("setup", "call", "teardown") else "call"
        found = None
        if outcome in ("failed", "error"):
            with self.guard:  # the test has failed, even if its failure cannot be described
                found = build_failure(report, str(report.when), seen=seen)
        duration = 0.0 if is_subtest else report.duration
        self._tally.record_phase(report.nodeid, when, outcome=outcome, duration_s=duration, failure=found)
        document = None if found is None else codec.failure_to_json(found)
        more = {"subtest": True} if is_subtest else {}
        self.stream.send("phase", nodeid=report.nodeid, when=when, outcome=outcome, failure=document, **more)
        if when != report.when:
            self.pytest_runtest_logfinish(report.nodeid)  # its worker died, so no other report will follow

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Record the result of a test."""
        with self.guard:
            draft = self._tally.finish(nodeid)
            if draft is not None:
                remaining = self._awaited.pop(nodeid, 1) - 1
                if remaining > 0:
                    self._awaited[nodeid] = remaining
                if self.stream.is_whole:
                    draft.failure = None  # sent with its phase
                    if draft.outcome != "passed":
                        self.not_passed.add(nodeid)
                    elif not self.spool.is_shared(nodeid):
                        self.not_passed.discard(nodeid)
                if draft.outcome == "passed" and not draft.reruns:
                    line = codec.format_passed_line(nodeid, file=draft.file, line=draft.line, phases=draft.phases)
                else:
                    line = codec.case_to_line(draft.to_case())
                if self.stream.is_whole:
                    self.stream.send_case("test", line)
                    return
                self.spool.add(line)
                self.stream.end(nodeid, draft.outcome)

    @pytest.hookimpl(tryfirst=True)  # a parent waits for this record, and other hooks render the traceback
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Record that Ctrl-C, ``pytest.exit`` or pytest itself stopped the run."""
        status: int | None = getattr(excinfo.value, "returncode", None)
        self.stopped_with = int(pytest.ExitCode.INTERRUPTED) if status is None else status
        with self.guard:
            self.stream.send("interrupt", exception=excinfo.typename, message=failure.format_message(excinfo.value))

    def pytest_internalerror(self, excrepr: object) -> None:
        """Record that pytest or a plugin failed."""
        self.stopped_with = int(pytest.ExitCode.INTERNAL_ERROR)
        with Shield():  # pytest renders with functions that a test may have replaced
            self.internal_error = to_plain_text(str(excrepr))[-failure.TEXT_CAP :]
        with self.guard:
            self.stream.send("internal_error", text=self.internal_error)
