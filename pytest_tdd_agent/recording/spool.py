"""The tests that have ended, kept in a file beside the report until the run ends: memory does not grow with them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from json import loads
from pathlib import Path
from typing import Collection, Iterator, Sequence

from .. import codec
from ..report import Case
from .appended import AppendedFile
from .tally import SEVERITY

_LINES_A_WRITE = 256
_PASSED = '","outcome":"passed","file":"'
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
                if _PASSED in line and line[_END:] == _AT_ONCE and not counting:
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
