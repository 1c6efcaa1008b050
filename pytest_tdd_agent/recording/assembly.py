"""Assemble the report of a run from its records, outside the process that runs the tests, and judge the records. Pure.

The plugin sends each record as it happens: a line with a digest of all records so far, a space, and one event of the
stream as JSON. Code under test shares the process with the plugin, so it can write into the same descriptor. It can
neither take back what was sent nor continue the digests, because the first record contains a random text.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from json import loads
from typing import Callable

from .. import codec, failure
from ..codec import ReportError, Value
from ..report import (
    FAILING,
    OUTCOMES,
    SCHEMA,
    Case,
    Clause,
    CollectError,
    Failure,
    Part,
    Sign,
    StreamProblem,
    SuiteReport,
    replace,
)
from ..system import bind_builtins
from .spool import DIGEST_BYTES, SEVERITY, add_tries

bind_builtins(globals())


UNFINISHED = ("no_start", "no_finish", "endless_test")
"""Codes of records that may be true and are not all."""

LINE_LIMIT_BYTES = 64 * 1024 * 1024
LIMIT_BYTES = 1024 * 1024 * 1024
_NOISE_LIMIT_BYTES = 1024 * 1024
"""Before the first record, what Python's own start printed is passed over."""
_OWN_STATUSES = (2, 3, 4)
"""Exit statuses of a run that was interrupted, failed itself, or was refused."""
_LATE_EVENTS = ("interrupt", "internal_error", "finish", "end")
_DAMAGED = (ReportError, ValueError, RecursionError, OverflowError)


@dataclass(frozen=True)
class Recording:
    """The contents of the records of a run."""

    report: SuiteReport | None
    """Not complete if there is a problem; None if no record came."""
    problem: StreamProblem | None
    running: tuple[str, ...]
    """The tests that had begun and not ended when the records ended."""


_DUMP = b"Timeout ("
"""The beginning of what ``faulthandler`` writes, without a digest, before it ends the process."""

Listener = Callable[[Value, bytes], object]
"""Receives a record and its JSON."""


class _Refusal(Exception):
    def __init__(self, code: str, nodeid: str = "", **parts: Part) -> None:
        super().__init__(code)
        self.problem = StreamProblem(code, nodeid, parts)


class _Try:
    """A running test."""

    __slots__ = ("phases", "reruns", "worst")

    def __init__(self, reruns: int) -> None:
        self.reruns = reruns
        self.phases: set[str] = set()
        """Those that did not pass."""
        self.worst: tuple[str, Failure | None] = ("", None)


class Assembler:
    """Takes the bytes of a stream as they come. After the first problem, it keeps nothing more."""

    def __init__(self, nonce: str, *, listen: Listener | None = None) -> None:
        """Wait for the first record of the run with this nonce; pass each record that is trusted to ``listen``."""
        self._nonce = nonce
        self._listen = listen
        self._rest = bytearray()
        self._size = 0
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self._count = 0
        self._is_ended = False
        self._problem: StreamProblem | None = None
        self._head: SuiteReport | None = None
        self._audited = self._is_each = False
        self._most_tries = 0
        self._limit_s = 0.0
        """Of one test; 0: none."""
        self._dump: list[bytes] = []
        """What ``faulthandler`` wrote."""
        self._fingerprints: dict[str, str] = {}
        self._awaited: dict[str, int] | None = None
        """Node id -> number of its collected tests that have not ended."""
        self._shared: set[str] = set()
        self._known: set[str] = set()
        self._running: dict[str, _Try] = {}
        self._cases: dict[str, Case] = {}
        self._tries: dict[str, tuple[str, ...]] = {}
        self._ends: dict[str, int] = {}
        self._errors: dict[str, CollectError] = {}
        self._signs: dict[Sign, None] = {}
        self._internal_error = ""
        self._is_stopped = False
        self._finish: Value | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether the run was interrupted or failed itself."""
        return self._is_stopped

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._problem is not None:
            return
        self._size += len(data)
        self._rest += data
        if b"\n" in data:
            *lines, rest = self._rest.split(b"\n")
            self._rest = rest
            for line in lines:
                self._read_line(bytes(line))
        limit = LINE_LIMIT_BYTES if self._head is not None else _NOISE_LIMIT_BYTES
        if len(self._rest) > limit or self._size > LIMIT_BYTES:
            self._refuse(StreamProblem("too_large"))

    def finish(self, status: int = 1) -> Recording:
        """Return the recording after the last byte; ``status``: the exit status of a run that did not report one."""
        if self._problem is None and self._rest and self._finish is not None:
            self._refuse(StreamProblem("damaged", parts={"error": Clause("torn_line")}))
        running = tuple(self._running)
        if self._head is None:
            return Recording(None, self._problem or StreamProblem("no_start"), running)
        if self._problem is None and self._finish is None:
            code = "endless_test" if self._dump else "no_finish"
            self._problem = StreamProblem(code, nodeid=running[0] if running else "")
            if self._dump:
                self._add_endless_test(running[0], root=self._head.rootdir)
        return Recording(self._assemble(self._head, status), self._problem, running)

    def _refuse(self, problem: StreamProblem) -> None:
        self._problem = self._problem or problem
        self._rest.clear()

    def _read_line(self, line: bytes) -> None:
        if self._problem is not None or not line:
            return
        digest, _, text = line.partition(b" ")
        try:
            if self._is_ended:
                raise _Refusal("after_end")
            if self._head is None:
                self._start(digest, text)
                return
            if self._dump or (self._limit_s and self._running and line.startswith(_DUMP)):
                self._dump.append(line)
                return
            record = Value(loads(text), "$")
            event = record["event"].text()
            self._check_digest(digest, text)
            self._count += 1
            if self._finish is not None and event not in _LATE_EVENTS:
                raise _Refusal("after_finish", record.get("nodeid", "").text(), event=event)
            read = _READERS.get(event)
            if read is None:
                raise _Refusal("unexpected", event=event[:80])
            read(self, record)
            if self._listen is not None:
                self._listen(record, text)
        except _Refusal as refusal:
            self._refuse(refusal.problem)
        except _DAMAGED as error:
            self._refuse(StreamProblem("damaged", parts={"error": str(error)[:200]}))

    def _add_endless_test(self, nodeid: str, *, root: str) -> None:
        """Add the test that did not end, even by an exception, so that the process was ended."""
        lines = [line.decode("ascii", "replace") for line in self._dump]
        file = nodeid.split("::", 1)[0]
        stack = failure.parse_dumped_stack(lines)
        why = failure.describe_endless(
            stack, limit_s=self._limit_s, phase="call", places=failure.Places(root), test_file=file
        )
        why = replace(why, text="\n".join(lines)[-failure.TEXT_CAP :])
        self._cases[nodeid] = Case(nodeid, "failed", file, 0, self._limit_s, failure=why)

    def _check_digest(self, digest: bytes, text: bytes) -> None:
        self._digest.update(text + b"\n")
        if digest != self._digest.hexdigest().encode("ascii"):
            raise _Refusal("wrong_digest", count=self._count)

    def _start(self, digest: bytes, text: bytes) -> None:
        """Read the first record; anything else is noise."""
        try:
            record = Value(loads(text), "$")
            is_ours = record["event"].text() == "start" and record["nonce"].text() == self._nonce
        except _DAMAGED:
            return
        if not is_ours:
            return
        if record["schema"].integer() > SCHEMA:
            raise _Refusal("damaged", error=Clause("newer_records"))
        self._check_digest(digest, text)
        self._count = 1
        if self._listen is not None:
            self._listen(record, text)
        self._head = SuiteReport(
            complete=False,
            exit_status=1,
            nonce=self._nonce,
            python=record["python"].text(),
            pytest=record["pytest"].text(),
            rootdir=record["rootdir"].text(),
            started_at=record["time"].text(),
            duration_s=0.0,
        )

    def _read_settings(self, record: Value) -> None:
        if self._count != 2:
            raise _Refusal("unexpected", event="settings")
        self._audited, self._is_each = record["audited"].flag(), record["each"].flag()
        self._most_tries = record["flaky"].integer()
        self._limit_s = record.get("test_timeout_s", 0).number()
        self._fingerprints = {name: each.text() for name, each in record["fingerprints"].entries().items()}

    def _read_collected(self, record: Value) -> None:
        names = [nodeid.text() for nodeid in record["nodeids"].items()]
        if self._known:
            if not self._is_each:
                raise _Refusal("unexpected", event="collected")
            self._shared.update(names)
            self._known.update(names)
            return
        self._awaited = {}
        for name in names:
            if name in self._awaited:
                self._shared.add(name)
            self._awaited[name] = self._awaited.get(name, 0) + 1
        self._known.update(names)

    def _read_skipped(self, record: Value) -> None:
        case = codec.read_case(record["case"])
        if case.outcome != "skipped" or case.nodeid in self._known or case.nodeid in self._cases:
            raise _Refusal("unexpected", case.nodeid, event="skipped")
        self._cases[case.nodeid] = case

    def _read_collect_error(self, record: Value) -> None:
        nodeid = record["nodeid"].text()
        if nodeid in self._errors:
            raise _Refusal("unexpected", nodeid, event="collect_error")
        self._errors[nodeid] = CollectError(nodeid, codec.read_failure(record["failure"]))

    def _read_begin(self, record: Value) -> None:
        nodeid = self._read_nodeid(record)
        if nodeid in self._running:
            return  # a plugin that reports only the last try, or another test with this node id
        ended = self._cases.get(nodeid)
        is_shared = nodeid in self._shared
        if ended is not None and ended.outcome == "passed" and not is_shared:
            raise _Refusal("try_after_pass", nodeid)
        self._running[nodeid] = _Try(0 if is_shared else self._ends.get(nodeid, 0))

    def _read_nodeid(self, record: Value) -> str:
        nodeid = record["nodeid"].text()
        if nodeid not in self._known:
            raise _Refusal("unknown_test", nodeid)
        return nodeid

    def _find_try(self, nodeid: str) -> _Try:
        running = self._running.get(nodeid)
        if running is None:
            if nodeid in self._cases and nodeid not in self._shared:
                raise _Refusal("repeated_result", nodeid)
            # The process of a worker can end before it reports that its test has begun.
            running = self._running[nodeid] = _Try(0)
        return running

    def _read_phase(self, record: Value) -> None:
        nodeid = self._read_nodeid(record)
        when, outcome = record["when"].one_of(("setup", "call", "teardown")), record["outcome"].one_of(OUTCOMES)
        failure = record["failure"].maybe(codec.read_failure)
        running = self._find_try(nodeid)
        if outcome == "passed":
            return
        is_again = when in running.phases and nodeid not in self._shared and not record.get("subtest", False).flag()
        if is_again:
            raise _Refusal("repeated_phase", nodeid, phase=when)
        if not record.get("subtest", False).flag():
            running.phases.add(when)
        worst = running.worst[0]
        if not worst or SEVERITY[outcome] > SEVERITY[worst]:
            running.worst = outcome, failure

    def _read_rerun(self, record: Value) -> None:
        nodeid = self._read_nodeid(record)
        running = self._find_try(nodeid)
        if record["count"].integer() != running.reruns + 1:
            raise _Refusal("wrong_try", nodeid)
        self._running[nodeid] = _Try(running.reruns + 1)

    def _read_test(self, record: Value) -> None:
        case = codec.read_case(record["case"])
        nodeid = self._read_nodeid(record["case"])
        running = self._find_try(nodeid)
        if case.reruns != running.reruns or case.tries:
            raise _Refusal("wrong_try", nodeid)
        outcome, failure = running.worst
        # A test whose subtests were all skipped counts as skipped, although it passed.
        if case.outcome != outcome and (outcome or case.outcome not in ("passed", "skipped")):
            raise _Refusal("other_outcome", nodeid, before=outcome or "passed", now=case.outcome)
        del self._running[nodeid]
        self._ends[nodeid] = self._ends.get(nodeid, 0) + 1
        if self._awaited is not None and nodeid in self._awaited:
            self._awaited[nodeid] -= 1
            if not self._awaited[nodeid]:
                del self._awaited[nodeid]
        before = self._cases.get(nodeid)
        if before is not None and nodeid in self._shared and SEVERITY[case.outcome] < SEVERITY[before.outcome]:
            return
        self._cases.pop(nodeid, None)
        self._cases[nodeid] = case if failure is None else replace(case, failure=failure)

    def _read_retry(self, record: Value) -> None:
        nodeid = self._read_nodeid(record)
        tries = tuple(each.text() for each in record["tries"].items())
        before = self._tries.get(nodeid, ())
        if not self._is_each:
            case = self._cases.get(nodeid)
            if case is None or case.outcome not in FAILING or "passed" in (*before, *tries[:-1]):
                raise _Refusal("try_after_pass", nodeid)
            if not len(before) < len(tries) <= self._most_tries or tries[: len(before)] != before:
                raise _Refusal("wrong_try", nodeid)
        self._tries[nodeid] = tries
        self._running.pop(nodeid, None)

    def _read_interrupt(self, _: Value) -> None:
        self._is_stopped = True

    def _read_internal_error(self, record: Value) -> None:
        self._is_stopped = True
        self._internal_error = self._internal_error or record["text"].text()

    def _read_finish(self, record: Value) -> None:
        """Read the end of the session. It may be reported again, and takes nothing back."""
        self._is_stopped |= record["exit_status"].integer() in _OWN_STATUSES
        self._signs.update(dict.fromkeys(codec.read_sign(sign) for sign in record["signs"].items()))
        for key in ("warnings", "deselected"):
            record[key].integer()
        record["duration_s"].number()
        self._finish = record
        fault = record["fault"].maybe(Value.text)
        if fault is not None:
            raise _Refusal("plugin_failed", error=fault)

    def _read_end(self, _: Value) -> None:
        if self._finish is None:
            raise _Refusal("unexpected", event="end")
        self._is_ended = True

    def _assemble(self, head: SuiteReport, status: int) -> SuiteReport:
        last = self._finish
        is_open = self._problem or self._is_stopped or self._awaited or self._running
        cases = self._cases.values()
        return replace(
            head,
            complete=last is not None and not is_open,
            exit_status=status if last is None else last["exit_status"].integer(),
            duration_s=0.0 if last is None else last["duration_s"].number(),
            tests=tuple(
                add_tries(case, self._tries[case.nodeid]) if case.nodeid in self._tries else case for case in cases
            ),
            collect_errors=tuple(self._errors.values()),
            fingerprints=self._fingerprints,
            collected=len(self._known),
            deselected=0 if last is None else last["deselected"].integer(),
            warnings=0 if last is None else last["warnings"].integer(),
            audited=self._audited,
            signs=tuple(self._signs),
            internal_error=self._internal_error,
        )


_READERS = {
    "settings": Assembler._read_settings,
    "collected": Assembler._read_collected,
    "skipped": Assembler._read_skipped,
    "collect_error": Assembler._read_collect_error,
    "begin": Assembler._read_begin,
    "phase": Assembler._read_phase,
    "rerun": Assembler._read_rerun,
    "test": Assembler._read_test,
    "retry": Assembler._read_retry,
    "interrupt": Assembler._read_interrupt,
    "internal_error": Assembler._read_internal_error,
    "finish": Assembler._read_finish,
    "end": Assembler._read_end,
}
