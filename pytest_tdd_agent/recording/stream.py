"""The stream of a run: one JSON object a line, each written at once, so that a killed run can still be read.

A ``test`` line that follows the ``begin`` of the same test does not repeat the node id: with it, a test that passes
would cost half as much again.
"""

from __future__ import annotations

from json import dumps, loads
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Iterable

from .appended import AppendedFile

_PASSED = b'{"event":"test","outcome":"passed"}\n'
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
            self._file.write(_PASSED)
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
