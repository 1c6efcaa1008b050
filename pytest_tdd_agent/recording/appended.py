"""A file that grows by whole lines, each in one write, whatever the tests of the process do.

Tests may patch, freeze or close what they like: the primitives are held from load time, and a closed descriptor is
opened again. A forked child that goes on running tests writes nothing.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from os import O_APPEND, O_CREAT, O_TRUNC, O_WRONLY, close, dup2, getpid, write
from os import open as open_descriptor
from pathlib import Path

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
