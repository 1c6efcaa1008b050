"""The tests that have ended, kept in a file beside the report until the run ends: memory does not grow with them.

A file that grows by whole lines, each in one write, whatever the tests of the process do.

Tests may patch, freeze or close what they like: the primitives are held from load time, and a closed descriptor is
opened again. A forked child that goes on running tests writes nothing.

The stream of a run: one JSON object a line, each written at once, so that a killed run can still be read.

A ``test`` line that follows the ``begin`` of the same test does not repeat the node id: with it, a test that passes
would cost half as much again.

The phases of each test put together to one outcome. Pure but for its own state.

The worst phase counts, never the last; a failed subtest fails its test; a run again makes the earlier try void.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from json import dumps, loads
from json.encoder import encode_basestring_ascii
from os import O_APPEND, O_CREAT, O_TRUNC, O_WRONLY, close, dup2, getpid, write
from os import open as open_descriptor
from pathlib import Path
from typing import Collection, Iterable, Iterator, Sequence

from .. import codec
from ..report import Case, Failure

if sys.platform != "win32":
    from fcntl import F_DUPFD_CLOEXEC, fcntl

_LOWEST_DESCRIPTOR = 200


class AppendedFile:
    """An open file, new when it is opened."""

    def __init__(self, path: Path) -> None:
        """Open the file; raises OSError. What another run of that name still writes does not get into it."""
        with suppress(OSError):
            path.unlink()
        self.path = path
        self._pid = getpid()
        self._descriptor = self._open(O_TRUNC)

    def _open(self, flags: int) -> int:
        descriptor = open_descriptor(str(self.path), O_WRONLY | O_CREAT | O_APPEND | flags, 0o666)
        if sys.platform == "win32":
            return descriptor
        try:
            high = fcntl(descriptor, F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
        except OSError:
            return descriptor  # so many are not allowed
        close(descriptor)
        return high

    def is_ours(self) -> bool:
        """Say whether this is the process that opened the file, not a fork of it."""
        return getpid() == self._pid

    def write(self, content: bytes) -> None:
        """Append whole lines."""
        if getpid() != self._pid:
            return
        try:
            write(self._descriptor, content)
        except OSError:
            self._reopen()
            write(self._descriptor, content)

    def _reopen(self) -> None:
        """Open the file at its old descriptor: any other may be the one that another file of ours takes for its own."""
        descriptor = self._open(0)
        if descriptor != self._descriptor:
            dup2(descriptor, self._descriptor, inheritable=False)
            close(descriptor)

    def close(self) -> None:
        """Close the file."""
        close(self._descriptor)


_PASSED_LINE = b'{"event":"test","outcome":"passed"}\n'
_quote = encode_basestring_ascii


class Stream:
    """An open stream file, emptied when it is opened."""

    def __init__(self, path: Path) -> None:
        """Open the file; raises OSError."""
        self._file = AppendedFile(path)
        self._last_begun = ""

    def is_ours(self) -> bool:
        """Say whether this is the process that opened the stream, not a fork of it."""
        return self._file.is_ours()

    def send(self, event: str, **values: object) -> None:
        """Write one event; the values are plain JSON values."""
        self._last_begun = ""
        self._file.write(dumps({"event": event, **values}).encode("ascii") + b"\n")

    def begin(self, nodeid: str) -> None:
        """Say that a test begins."""
        self._last_begun = nodeid
        self._file.write(b'{"event":"begin","nodeid":%s}\n' % _quote(nodeid).encode("ascii"))

    def end(self, nodeid: str, outcome: str) -> None:
        """Say what a test came to."""
        if nodeid != self._last_begun:
            self.send("test", nodeid=nodeid, outcome=outcome)
        elif outcome == "passed":
            self._file.write(_PASSED_LINE)
        else:
            self.send("test", outcome=outcome)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def in_flight(lines: Iterable[bytes]) -> tuple[str, ...]:
    """Return the tests that had begun and not ended when the stream broke off; damaged lines are passed over.

    Any test can write to the file, so a line may hold anything.
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
"""Outcome -> how much it counts among the phases of a test."""


class Draft:
    """A test that has begun and not ended."""

    __slots__ = ("failure", "file", "line", "nodeid", "outcome", "phases", "reruns")

    def __init__(self, nodeid: str, *, file: str, line: int, reruns: int) -> None:
        """Begin without a phase."""
        self.nodeid = nodeid
        self.file = file
        self.line = line
        self.reruns = reruns
        self.outcome = ""
        self.phases: dict[str, float] = {}
        self.failure: Failure | None = None

    def case(self) -> Case:
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


class Tally:
    """What is known of the tests that are running."""

    def __init__(self) -> None:
        """Begin with no test."""
        self._drafts: dict[str, Draft] = {}

    def begin(self, nodeid: str, *, file: str, line: int, reruns: int = 0) -> None:
        """Note that a test starts; ``reruns``: how often it has ended before."""
        if nodeid not in self._drafts:
            self._drafts[nodeid] = Draft(nodeid, file=file, line=line, reruns=reruns)

    def passed(self, nodeid: str, when: str, *, duration_s: float) -> None:
        """Note a phase that passed, as most do, in as few calls as can be."""
        if nodeid in self._drafts and when not in self._drafts[nodeid].phases:
            draft = self._drafts[nodeid]
            draft.phases[when] = duration_s
            if when == "call":
                draft.outcome = draft.outcome or "passed"
        else:
            self.phase(nodeid, when, outcome="passed", duration_s=duration_s)

    def phase(self, nodeid: str, when: str, *, outcome: str, duration_s: float, failure: Failure | None = None) -> None:
        """Note the outcome of a phase (``setup``, ``call`` or ``teardown``)."""
        draft = self._drafts.get(nodeid)
        if draft is None:
            draft = self._drafts[nodeid] = Draft(nodeid, file=nodeid.split("::", 1)[0], line=0, reruns=0)
        phases = draft.phases
        phases[when] = phases[when] + duration_s if when in phases else duration_s
        if outcome == "passed" and when != "call":
            return  # has the body run? with --setup-only it has not
        if not draft.outcome or SEVERITY[outcome] > SEVERITY[draft.outcome]:
            draft.outcome = outcome
            draft.failure = failure

    def rerun(self, nodeid: str) -> int:
        """Void what a test came to, as it will be run again; return how often it has been."""
        draft = self._drafts[nodeid]
        draft.outcome, draft.phases, draft.failure = "", {}, None
        draft.reruns += 1
        return draft.reruns

    def finish(self, nodeid: str) -> Draft | None:
        """Return what is known of a test that ended; None if its body has not run, or will again."""
        draft = self._drafts.get(nodeid)
        if draft is None or not draft.outcome:
            return None
        return self._drafts.pop(nodeid)

    def in_flight(self) -> tuple[str, ...]:
        """Tests that have begun and not ended."""
        return tuple(self._drafts)


_LINES_A_WRITE = 256
_PASSED_KEYS = '","outcome":"passed","file":"'
"""In the line of a test that passed, and in no other: quotes inside a node id are escaped."""
_AT_ONCE = '"reruns":0,"failure":null}'
"""At the end of the line of a test that passed, unless it has been run again."""
_END = -len(_AT_ONCE)


class Spool:
    """Lines of the report's ``tests``, in the order in which the tests ended."""

    def __init__(self, path: Path) -> None:
        """Open an empty file; raises OSError."""
        self._file = AppendedFile(path)
        self._waiting: list[str] = []
        self._room = _LINES_A_WRITE
        self._size = 0
        self._ended_twice: set[str] = set()
        self._twins: frozenset[str] = frozenset()
        self._tries: dict[str, tuple[str, ...]] = {}

    def add(self, line: str) -> None:
        """Take over a test, as ``codec.case_line`` writes it."""
        self._waiting.append(line)
        self._room -= 1
        if not self._room:
            self._flush()

    def replace_later(self, nodeid: str) -> None:
        """Let only the last line of a test count, as it runs again."""
        self._ended_twice.add(nodeid)

    def share(self, nodeids: Collection[str]) -> None:
        """Let the worst line count of node ids that several tests have."""
        self._twins = frozenset(nodeids)

    def is_shared(self, nodeid: str) -> bool:
        """Say whether several tests have a node id."""
        return nodeid in self._twins

    def tried(self, nodeid: str, tries: Sequence[str]) -> None:
        """Note what running a failed test again came to; ``tries`` are oldest first, without the first."""
        self._tries[nodeid] = tuple(tries)

    def _flush(self) -> None:
        if self._waiting:
            content = ("\n".join(self._waiting) + "\n").encode("ascii")
            self._file.write(content)
            self._size += len(content)
            self._waiting.clear()
            self._room = _LINES_A_WRITE

    def lines(self) -> Iterator[tuple[str, Case | None]]:
        """Yield every test once: its line, and the test itself unless it simply passed."""
        self._flush()
        counting = self._counting() if self._ended_twice or self._twins else {}
        with self._file.path.open(encoding="ascii") as file:
            for number, text in enumerate(file):
                line = text[:-1]
                if _PASSED_KEYS in line and line[_END:] == _AT_ONCE and not counting:
                    yield line, None
                    continue
                case = codec.case_from_line(line)
                if counting.get(case.nodeid, number) != number:
                    continue
                if case.nodeid in self._tries:
                    case = _with_tries(case, self._tries[case.nodeid])
                    line = codec.case_line(case)
                yield line, None if case.outcome == "passed" and not case.reruns else case

    def texts(self) -> Iterator[str]:
        """Yield the lines alone, without a look at what they hold if none is to change."""
        if self._ended_twice or self._twins or self._tries:
            yield from (line for line, _ in self.lines())
            return
        self._flush()
        with self._file.path.open(encoding="ascii") as file:
            yield from map(str.rstrip, file)

    def _counting(self) -> dict[str, int]:
        """Of each node id that has several lines, the number of the one that counts."""
        found: dict[str, tuple[int, int]] = {}
        with self._file.path.open(encoding="ascii") as file:
            for number, line in enumerate(file):
                document = loads(line)
                nodeid = document["nodeid"]
                if nodeid in self._twins:
                    found[nodeid] = max(found.get(nodeid, (-1, 0)), (SEVERITY[document["outcome"]], number))
                elif nodeid in self._ended_twice:
                    found[nodeid] = (0, number)
        return {nodeid: number for nodeid, (_, number) in found.items()}

    def is_whole(self) -> bool:
        """Say whether the file holds what was put into it, and no more."""
        self._flush()
        return self._file.path.stat().st_size == self._size

    def close(self) -> None:
        """Remove the file."""
        if self._file.is_ours():
            self._file.close()
            os.unlink(str(self._file.path))


def remove_abandoned(report: Path) -> None:
    """Remove the files that killed runs have left beside a report; raises OSError."""
    for name in os.listdir(str(report.parent)):
        if name.startswith(f"{report.name}.") and name.endswith(".part"):
            pid = name[len(report.name) + 1 : -len(".part")]
            if pid.isdigit() and not _is_alive(int(pid)):
                with suppress(FileNotFoundError):
                    report.with_name(name).unlink()


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # there, to ask is to interrupt
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _with_tries(case: Case, later: tuple[str, ...]) -> Case:
    first = case.outcome if case.failure is None else case.failure.kind
    outcome = "passed" if "passed" in later else case.outcome
    return replace(case, outcome=outcome, reruns=case.reruns + len(later), tries=(first, *later))
