"""Write the stream of events and the spool of finished tests.

The stream has one JSON object per line, each written at once, so that the stream of a killed run can be read. It goes
to a file beside the report, or through a ``Channel`` to another process, which gets the finished tests with it and
writes the report itself. For a report file, the spool holds the finished tests in a file beside it until the run ends,
so that memory does not grow with their number. ``SpoolTally`` combines the phases of a test into one outcome.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from hashlib import blake2b
from json import loads
from json.encoder import encode_basestring_ascii
from os import O_APPEND, O_CREAT, O_TRUNC, O_WRONLY
from pathlib import Path
from typing import Collection, Iterable, Iterator, Sequence

from .. import codec
from ..report import Case, Failure, replace
from ..system import System, bind_builtins, encode_json

bind_builtins(globals())


if sys.platform != "win32":
    from fcntl import F_DUPFD_CLOEXEC, fcntl
    from resource import RLIMIT_NOFILE, getrlimit

_LOWEST_DESCRIPTOR = 200
_HIGHEST_DESCRIPTOR = 16_000

RECORDS = "PYTEST_TDD_AGENT_RECORDS"
"""Environment variable with the number of the descriptor for the records; the plugin removes it."""

DIGEST_BYTES = 8


class Channel:
    """The end of a socket or pipe through which another process gets lines as they are written.

    Before each line stands a digest of all lines so far. Code under test knows the descriptor, but not these lines: one
    has a random text that nobody keeps. A forked child that continues to run tests writes nothing.
    """

    def __init__(self, descriptor: int) -> None:
        """Take over a descriptor; no program that a test starts gets it. Raises OSError."""
        self._pid = System.getpid()
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self._descriptor = _move_up(descriptor)
        # What Python printed into the descriptor when it started may lack the end of its line.
        self._send(b"\n")

    @property
    def descriptor(self) -> int:
        """The number of the descriptor."""
        return self._descriptor

    def is_ours(self) -> bool:
        """Return whether this process took over the descriptor; False in a fork."""
        return System.getpid() == self._pid

    def write(self, content: bytes) -> None:
        """Send one line; raises OSError if a test has closed the descriptor."""
        if System.getpid() == self._pid:
            digest = self._digest
            digest.update(content)
            self._send(b"%s %s" % (digest.hexdigest().encode("ascii"), content))

    def _send(self, content: bytes) -> None:
        sent = System.write(self._descriptor, content)
        while sent < len(content):  # a signal can interrupt it
            sent += System.write(self._descriptor, content[sent:])

    def close(self) -> None:
        """Close the descriptor."""
        System.close(self._descriptor)


def _move_up(descriptor: int) -> int:
    """Move a descriptor to where tests that close the first thousands do not find it; children do not inherit it."""
    if sys.platform == "win32":
        os.set_inheritable(descriptor, False)
        return descriptor
    most = getrlimit(RLIMIT_NOFILE)[0]
    lowest = _HIGHEST_DESCRIPTOR if most < 0 else min(_HIGHEST_DESCRIPTOR, max(_LOWEST_DESCRIPTOR, most - 8))
    try:
        high = fcntl(descriptor, F_DUPFD_CLOEXEC, lowest)
    except OSError:
        high = fcntl(descriptor, F_DUPFD_CLOEXEC, 3)
    System.close(descriptor)
    return high


class AppendedFile:
    """A new file that grows by whole lines, whatever the tests in the process do.

    A forked child that continues to run tests writes nothing.
    """

    # A test may close all descriptors: then it is opened again.

    def __init__(self, path: Path) -> None:
        """Open the file; raises OSError."""
        # A new inode, because another run may still write to the old one.
        with suppress(OSError):
            path.unlink()
        self.path = str(path)
        self._pid = System.getpid()
        self._descriptor = self._open(O_TRUNC)

    def _open(self, flags: int) -> int:
        descriptor = System.open(self.path, O_WRONLY | O_CREAT | O_APPEND | flags, 0o666)
        if sys.platform == "win32":
            return descriptor
        try:
            high = fcntl(descriptor, F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
        except OSError:
            return descriptor  # the limit on descriptors is lower
        System.close(descriptor)
        return high

    @property
    def descriptor(self) -> int:
        """The number of the descriptor."""
        return self._descriptor

    def is_ours(self) -> bool:
        """Return whether this process opened the file; False in a fork."""
        return System.getpid() == self._pid

    def write(self, content: bytes) -> None:
        """Append whole lines."""
        if System.getpid() != self._pid:
            return
        try:
            System.write(self._descriptor, content)
        except OSError:
            self._reopen()
            System.write(self._descriptor, content)

    def _reopen(self) -> None:
        # Keep the old number: a new number may be that of our other file, which would then write here.
        descriptor = self._open(0)
        if descriptor != self._descriptor:
            System.dup2(descriptor, self._descriptor, inheritable=False)
            System.close(descriptor)

    def close(self) -> None:
        """Close the file."""
        System.close(self._descriptor)


_PASSED_LINE = b'{"event":"test","outcome":"passed"}\n'
_quote = encode_basestring_ascii


class Stream:
    """The stream of a run."""

    def __init__(self, output: Path | Channel) -> None:
        """Write to a new file, or to a channel; raises OSError."""
        self._file = output if isinstance(output, Channel) else AppendedFile(output)
        self.is_whole = isinstance(output, Channel)
        """Whether it contains everything that the report needs."""
        self._last_begun = ""
        self.sent = 0
        """The number of events, without the ends of passed tests."""

    @property
    def descriptor(self) -> int:
        """The descriptor to which it is written."""
        return self._file.descriptor

    def is_ours(self) -> bool:
        """Return whether this process opened the stream; False in a fork."""
        return self._file.is_ours()

    def send(self, event: str, **values: object) -> None:
        """Write one event; the values are plain JSON values."""
        self._last_begun = ""
        self.sent += 1
        self._file.write(encode_json({"event": event, **values}).encode("ascii") + b"\n")

    def begin(self, nodeid: str) -> None:
        """Write that a test begins."""
        self._last_begun = nodeid
        self.sent += 1
        self._file.write(b'{"event":"begin","nodeid":%s}\n' % _quote(nodeid).encode("ascii"))

    def send_case(self, event: str, line: str) -> None:
        """Write an event with a test, as written by ``codec.case_to_line``."""
        self._file.write(b'{"event":"%s","case":%s}\n' % (event.encode("ascii"), line.encode("ascii")))

    def end(self, nodeid: str, outcome: str) -> None:
        """Write only the outcome of a test."""
        # The node id is not repeated after ``begin``: it would make the stream half as large again.
        if nodeid != self._last_begun:
            self.send("test", nodeid=nodeid, outcome=outcome)
        elif outcome == "passed":
            self._file.write(_PASSED_LINE)
        else:
            self.send("test", outcome=outcome)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def find_running_tests(lines: Iterable[bytes]) -> tuple[str, ...]:
    """Return the tests that had begun and not ended when the stream stopped.

    Damaged lines are ignored: any test can write to the file.
    """
    running: dict[str, None] = {}
    last = ""
    for line in lines:
        if not line.startswith(b"{"):
            continue
        try:
            event = loads(line)
        except (ValueError, RecursionError):
            continue
        kind, nodeid = event.get("event"), event.get("nodeid", last)
        if not isinstance(nodeid, str):
            continue
        if kind == "begin":
            running[nodeid] = None
        elif kind in ("test", "retry"):
            running.pop(nodeid, None)
        last = nodeid if kind == "begin" else ""
    return tuple(running)


SEVERITY = {"passed": 0, "xfailed": 1, "xpassed": 1, "skipped": 1, "failed": 2, "error": 3}
"""Outcome -> severity; the most severe phase decides the outcome of a test."""


CUT = "cut"
"""Outcome of a subtest that the product ended as skipped or as an expected failure."""


class CaseDraft:
    """A running test."""

    __slots__ = ("failure", "file", "line", "nodeid", "outcome", "phases", "reruns", "subtests")

    def __init__(self, nodeid: str, *, file: str, line: int, reruns: int) -> None:
        """Start without phases."""
        self.nodeid = nodeid
        self.file = file
        self.line = line
        self.reruns = reruns
        self.outcome = ""
        self.phases: dict[str, float] = {}
        self.failure: Failure | None = None
        self.subtests: set[str] = set()
        """The outcomes of its subtests that did not fail."""

    def to_case(self) -> Case:
        """Return the record of the test."""
        return Case(
            nodeid=self.nodeid,
            outcome=self.outcome,
            file=self.file,
            line=self.line,
            duration_s=round(sum(self.phases.values()), 6),
            phases={when: round(seconds, 6) for when, seconds in self.phases.items()},
            reruns=self.reruns,
            failure=self.failure,
        )


class SpoolTally:
    """Combines the phases of running tests. The worst phase counts, and a rerun voids the earlier try."""

    def __init__(self) -> None:
        """Start without tests."""
        self._drafts: dict[str, CaseDraft] = {}

    def begin(self, nodeid: str, *, file: str, line: int, reruns: int = 0) -> None:
        """Note that a test starts; ``reruns``: how often it has ended before."""
        if nodeid not in self._drafts:
            self._drafts[nodeid] = CaseDraft(nodeid, file=file, line=line, reruns=reruns)

    def record_passed(self, nodeid: str, when: str, *, duration_s: float) -> None:
        """Record a passed phase. Most phases pass, so this is fast."""
        if nodeid in self._drafts and when not in self._drafts[nodeid].phases:
            draft = self._drafts[nodeid]
            draft.phases[when] = duration_s
            if when == "call":
                draft.outcome = draft.outcome or "passed"
        else:
            self.record_phase(nodeid, when, outcome="passed", duration_s=duration_s)

    def record_phase(
        self, nodeid: str, when: str, *, outcome: str, duration_s: float, failure: Failure | None = None
    ) -> None:
        """Record the outcome of a phase (``setup``, ``call`` or ``teardown``)."""
        draft = self._drafts.get(nodeid)
        if draft is None:
            draft = self._drafts[nodeid] = CaseDraft(nodeid, file=nodeid.split("::", 1)[0], line=0, reruns=0)
        phases = draft.phases
        phases[when] = phases[when] + duration_s if when in phases else duration_s
        if outcome == "passed" and when != "call":
            return  # with --setup-only the body does not run
        if not draft.outcome or SEVERITY[outcome] > SEVERITY[draft.outcome]:
            draft.outcome = outcome
            draft.failure = failure

    def record_subtest(self, nodeid: str, outcome: str) -> None:
        """Record a subtest that did not fail."""
        if nodeid in self._drafts:
            self._drafts[nodeid].subtests.add(outcome)

    def begin_rerun(self, nodeid: str) -> int:
        """Void the results of a test that will be rerun; return the number of reruns."""
        draft = self._drafts[nodeid]
        draft.outcome, draft.phases, draft.failure, draft.subtests = "", {}, None, set()
        draft.reruns += 1
        return draft.reruns

    def finish(self, nodeid: str) -> CaseDraft | None:
        """Return a finished test; None if its body has not run or will be rerun."""
        draft = self._drafts.get(nodeid)
        if draft is None or not draft.outcome:
            return None
        # Pytest reports such a test as passed, although it has shown nothing, or the product decided what it checked.
        found = draft.subtests
        if draft.outcome == "passed" and found and (CUT in found or found <= {"skipped", "xfailed"}):
            draft.outcome = "skipped"
        return self._drafts.pop(nodeid)

    def list_running_tests(self) -> tuple[str, ...]:
        """Return the running tests."""
        return tuple(self._drafts)


_LINES_A_WRITE = 256
_BLOCK_BYTES = 1 << 16
_PASSED_KEYS = '","outcome":"passed","file":"'
"""Occurs only in the line of a passed test: quotes inside a node id are escaped."""
_FIRST_TRY_END = '"reruns":0,"failure":null}'
"""The end of the line of a test that passed in the first try."""
_END_OFFSET = -len(_FIRST_TRY_END)


class Spool:
    """The lines of the report's ``tests``, in the order in which the tests ended."""

    def __init__(self, path: Path | None) -> None:
        """Open an empty file; raises OSError. None: the stream contains the tests, so they are not stored here."""
        self._file = None if path is None else AppendedFile(path)
        self._waiting: list[str] = []
        self._room = _LINES_A_WRITE
        self._size = 0
        self._ended_twice: set[str] = set()
        self._shared: frozenset[str] = frozenset()
        self._tries: dict[str, tuple[str, ...]] = {}

    def add(self, line: str) -> None:
        """Add a test as written by ``codec.case_to_line``."""
        if self._file is None:
            return
        self._waiting.append(line)
        self._room -= 1
        if not self._room:
            self._flush()

    def replace_later(self, nodeid: str) -> None:
        """Count only the last line of a test, because it runs again."""
        self._ended_twice.add(nodeid)

    def share(self, nodeids: Collection[str]) -> None:
        """Count only the worst line of node ids that several tests share."""
        self._shared = frozenset(nodeids)

    def is_shared(self, nodeid: str) -> bool:
        """Return whether several tests share a node id."""
        return nodeid in self._shared

    def record_tries(self, nodeid: str, tries: Sequence[str]) -> None:
        """Record the reruns of a failed test, oldest first, without the first run."""
        self._tries[nodeid] = tuple(tries)

    def list_rescued(self) -> set[str]:
        """Return the failed tests that passed in a recorded rerun."""
        return {nodeid for nodeid, tries in self._tries.items() if "passed" in tries}

    def _flush(self) -> None:
        if self._file is not None and self._waiting:
            content = ("\n".join(self._waiting) + "\n").encode("ascii")
            self._file.write(content)
            self._size += len(content)
            self._waiting.clear()
            self._room = _LINES_A_WRITE

    def iterate_cases(self) -> Iterator[tuple[str, Case | None]]:
        """Yield each test once: its line, and its record unless it passed in one try."""
        self._flush()
        counted = self._find_counted_lines() if self._ended_twice or self._shared else {}
        number = -1
        for lines in self._iterate_blocks():
            for text in lines:
                number += 1
                if _PASSED_KEYS in text and text[_END_OFFSET:] == _FIRST_TRY_END and not counted:
                    yield text, None
                    continue
                case = codec.case_from_line(text)
                if counted.get(case.nodeid, number) != number:
                    continue
                line = text
                if case.nodeid in self._tries:
                    case = add_tries(case, self._tries[case.nodeid])
                    line = codec.case_to_line(case)
                yield line, None if case.outcome == "passed" and not case.reruns else case

    def iterate_lines(self) -> Iterator[str]:
        """Yield the lines only, without parsing them if none must change."""
        if self._ended_twice or self._shared or self._tries:
            yield from (line for line, _ in self.iterate_cases())
            return
        self._flush()
        for lines in self._iterate_blocks():
            yield from lines

    def _iterate_blocks(self) -> Iterator[list[str]]:
        """Yield the lines of the file, many at a time."""
        if self._file is None:
            return
        with open(self._file.path, "rb") as file:
            rest = ""
            while True:
                block = file.read(_BLOCK_BYTES)
                if not block:
                    return
                lines = (rest + block.decode("ascii")).split("\n")
                rest = lines.pop()
                yield lines

    def _find_counted_lines(self) -> dict[str, int]:
        """Return the number of the line that counts for each node id with several lines."""
        found: dict[str, tuple[int, int]] = {}
        lines = (line for block in self._iterate_blocks() for line in block)
        for number, line in enumerate(lines):
            case = codec.case_from_line(line)
            nodeid = case.nodeid
            if nodeid in self._shared:
                found[nodeid] = max(found.get(nodeid, (-1, 0)), (SEVERITY[case.outcome], number))
            elif nodeid in self._ended_twice:
                found[nodeid] = (0, number)
        return {nodeid: number for nodeid, (_, number) in found.items()}

    def is_intact(self) -> bool:
        """Return whether the file contains exactly the added lines."""
        self._flush()
        return self._file is None or System.stat(self._file.path).st_size == self._size

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None and self._file.is_ours():
            self._file.close()
            System.unlink(self._file.path)


def remove_abandoned(report: Path) -> None:
    """Remove files that killed runs left beside a report; raises OSError."""
    for name in os.listdir(str(report.parent)):
        if name.startswith(f"{report.name}.") and name.endswith(".part"):
            pid = name[len(report.name) + 1 : -len(".part")]
            if pid.isdigit() and not _is_alive(int(pid)):
                with suppress(FileNotFoundError):
                    report.with_name(name).unlink()


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # on Windows, os.kill would interrupt the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def add_tries(case: Case, later: tuple[str, ...]) -> Case:
    """Return a failed test with its reruns, oldest first."""
    first = case.outcome if case.failure is None else case.failure.kind
    outcome = "passed" if "passed" in later else case.outcome
    return replace(case, outcome=outcome, reruns=case.reruns + len(later), tries=(first, *later))
