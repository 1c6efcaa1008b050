"""The stream of a run: one JSON object a line, each written at once, so that a killed run can still be read.

Tests may patch, freeze or close what they like: the primitives are held from load time, and a closed descriptor is
opened again.
"""

from __future__ import annotations

import sys
from json import dumps
from os import O_APPEND, O_CREAT, O_TRUNC, O_WRONLY, close, getpid, write
from os import open as open_descriptor
from pathlib import Path

if sys.platform != "win32":
    from fcntl import F_DUPFD_CLOEXEC, fcntl

_LOWEST_DESCRIPTOR = 200


class Stream:
    """An open stream file, emptied when it is opened; writes by forked children are dropped."""

    def __init__(self, path: Path) -> None:
        """Open the file; raises OSError."""
        self._path = str(path)
        self._pid = getpid()
        self._descriptor = self._open(O_TRUNC)

    def _open(self, flags: int) -> int:
        descriptor = open_descriptor(self._path, O_WRONLY | O_CREAT | O_APPEND | flags, 0o666)
        if sys.platform == "win32":
            return descriptor
        high = fcntl(descriptor, F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
        close(descriptor)
        return high

    def is_ours(self) -> bool:
        """Say whether this is the process that opened the stream, not a fork of it."""
        return getpid() == self._pid

    def send(self, event: str, **values: object) -> None:
        """Write one event; the values are plain JSON values."""
        if not self.is_ours():
            return
        line = dumps({"event": event, **values}).encode("ascii") + b"\n"
        try:
            write(self._descriptor, line)
        except OSError:
            self._descriptor = self._open(0)
            write(self._descriptor, line)

    def close(self) -> None:
        """Close the file."""
        close(self._descriptor)
