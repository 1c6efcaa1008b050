"""The files of a work tree as they are on disk: ids of their bytes, before any filter of git's, and permissions."""

import hashlib
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

_BLOCK_BYTES = 1 << 20
_SETTLED_NS = 1_000_000_000
"""A file that was changed less long ago may change again without a trace in its times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """An ordinary file."""

    blob: str
    """The id of a blob that holds just its bytes."""
    bits: int
    """Its permissions, without set-uid and the like."""


class Files:
    """Looks at files, and remembers the ids of those that stay as they are."""

    def __init__(self, root: Path) -> None:
        """Paths are relative to ``root``."""
        self._root = str(root)
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def look(self, path: str, *, like: str) -> Exact | None:
        """The file at ``path``, its id of the kind that ``like`` is; None if there is no ordinary file to be read."""
        try:
            about = os.lstat(os.path.join(self._root, path))
            if not stat.S_ISREG(about.st_mode):
                return None
            known = self._known.get(path)
            if known is not None and known[0] == _state(about) and len(known[1]) == len(like):
                return Exact(blob=known[1], bits=about.st_mode & 0o777)
            return self._read(path, like=like)
        except OSError:
            return None

    def bits(self, path: str) -> int | None:
        """The permissions of the file at ``path``; None if there is no ordinary file."""
        try:
            mode = os.lstat(os.path.join(self._root, path)).st_mode
        except OSError:
            return None
        return mode & 0o777 if stat.S_ISREG(mode) else None

    def _read(self, path: str, *, like: str) -> Exact | None:
        """What ``look`` says, from the bytes themselves."""
        begun = time.time_ns()
        handle = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            about = os.fstat(stream.fileno())
            if not stat.S_ISREG(about.st_mode):
                return None
            digest = hashlib.new("sha1" if len(like) == 40 else "sha256", usedforsecurity=False)
            digest.update(b"blob %d\0" % about.st_size)
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
            after = os.fstat(stream.fileno())
        blob = digest.hexdigest()
        if _state(after) == _state(about) and max(about.st_mtime_ns, about.st_ctime_ns) < begun - _SETTLED_NS:
            self._known[path] = (_state(about), blob)
        return Exact(blob=blob, bits=about.st_mode & 0o777)


def _state(about: os.stat_result) -> tuple[int, ...]:
    """What changes when the file does."""
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns
