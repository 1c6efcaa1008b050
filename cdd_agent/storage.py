"""Durable files: a write is a temporary file, fsync and rename in the same folder, and the rename is the commit."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import filelock

from cdd_agent.errors import UsageError


def write_atomic(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Put ``data`` at ``path`` so that a reader, or a crash, sees the old file or the new one and nothing between.

    Makes missing folders. Keeps the permission bits of a file that is there; a new one gets ``mode``, or what
    the umask leaves of 0666.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), _mode_of(path) if mode is None else mode)
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _mode_of(path: Path) -> int:
    """The permission bits ``path`` has, or those a new file would get."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def exclusive(path: Path, *, purpose: str, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock file ``path`` while the block runs; the file itself is left in place.

    Raises ``UsageError`` naming ``purpose`` and the holder's process id if another process still has it after
    ``wait_s`` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, timeout=wait_s)
    holder = path.with_suffix(".pid")
    try:
        lock.acquire()
    except filelock.Timeout as error:
        known = holder.read_text(encoding="ascii").strip() if holder.exists() else "unknown"
        raise UsageError(
            f"{purpose} is already running in another process (pid {known}).",
            hint="wait for it to end, or stop it, then run the same command again",
        ) from error
    try:
        holder.write_text(str(os.getpid()), encoding="ascii")
        yield
    finally:
        lock.release()
