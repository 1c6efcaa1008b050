"""Tells which files programs open or change in some folders, whichever program it is: the kernel's inotify reports it.

The kernel reports by file, not by path, so a program that finds the folder at another path is seen too.
"""

import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Iterable

OPENED = 0x20
CHANGED = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""Modified, other attributes, closed after writing, moved, created, deleted."""
_ONLY_FOLDERS = 0x01000000
_OVERFLOW = 0x4000
_CLOSED_ON_EXEC, _WITHOUT_WAITING = 0o2000000, 0o4000
_HEAD = struct.Struct("iIII")
_READ_BYTES = 1 << 16
_MOST_FOLDERS = 6_000
"""The kernel allows each user 8,192 folders or more."""


class Watch:
    """Watches some folders, not those inside them. Close it after use."""

    def __init__(self, folders: Iterable[str], *, events: int, has_many: bool = False) -> None:
        """Begin to watch; raises ``OSError`` if the kernel does not offer it, or for too many folders.

        ``has_many``: a thread reads the events while they come, because the kernel keeps only some thousand.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, "inotify is not available")
        self._fd: int = libc.inotify_init1(_CLOSED_ON_EXEC | _WITHOUT_WAITING)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be used")
        self._folders: dict[int, str] = {}
        self._seen: set[tuple[str, str]] = set()
        self._is_whole = True
        try:
            for folder in folders:
                number = libc.inotify_add_watch(self._fd, os.fsencode(folder), events | _ONLY_FOLDERS)
                if number < 0 or len(self._folders) >= _MOST_FOLDERS:
                    raise OSError(ctypes.get_errno() or errno.ENOSPC, "the folder cannot be watched", folder)
                self._folders[number] = folder
        except OSError:
            os.close(self._fd)
            raise
        self._stop, self._stopped = os.pipe()
        self._reader = threading.Thread(target=self._read_until_closed, daemon=True)
        if has_many:
            self._reader.start()

    def is_triggered(self) -> bool:
        """Return whether there was an event, or some were lost. Not for a watch that ``has_many``."""
        self._read()
        return bool(self._seen) or not self._is_whole

    def close(self) -> frozenset[tuple[str, str]] | None:
        """End, and return the folders and names of all events; None if some were lost. A folder itself has no name."""
        os.close(self._stopped)
        if self._reader.ident is not None:
            self._reader.join()
        self._read()
        os.close(self._stop)
        os.close(self._fd)
        return frozenset(self._seen) if self._is_whole else None

    def _read_until_closed(self) -> None:
        while self._stop not in select.select((self._fd, self._stop), (), ())[0]:
            self._read()

    def _read(self) -> None:
        while True:
            try:
                events = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                self._is_whole = False
                return
            at = 0
            while at < len(events):
                number, mask, _, length = _HEAD.unpack_from(events, at)
                name = os.fsdecode(events[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0"))
                at += _HEAD.size + length
                self._is_whole &= not mask & _OVERFLOW
                self._seen.add((self._folders.get(number, ""), name))
