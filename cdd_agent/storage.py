"""Durable files and locks: what a crash, a full disk or a second process can do to a file of ours, and no more.

A write is a temporary file, fsync and rename in the same folder, and the rename is the commit. A lock is the kernel's
``flock`` on an open file: it ends with the process, however that ends, and its file is never removed, because whoever
opened the removed one would hold a lock that nobody else sees.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import shlex
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from cdd_agent.errors import AlreadyAtWork, DocumentError, Problem

_MARK = ".cdd-"
_LEFTOVER = re.compile(r"\..+\.cdd-[a-z0-9_]{8}\.tmp", re.DOTALL)
_NAME_CAP = 60
"""Characters of a file's name that its temporary one repeats: a name has at most 255 bytes."""
_POLL_S = 0.02
_SCRATCH = "cdd-scratch-"


def write_atomic(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Put ``data`` at ``path`` so that a reader, or a crash, sees the old file or the new one and nothing between.

    Makes missing folders. Keeps the permission bits of a file that is there; a new one gets ``mode``, or what
    the umask leaves of 0666. Raises ``OSError`` naming ``path``, with nothing beside it, and with the old file as it
    was, unless only the last thing failed, to make the new one survive a power cut. A link, a folder or a pipe at
    ``path`` is such an error.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        bits = _bits_for(path) if mode is None else mode
        handle, name = _temporary(path)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fchmod(stream.fileno(), bits)
                os.fsync(stream.fileno())
                os.replace(name, path)  # while the file is open, and so locked
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def read_ordinary(path: Path, *, limit_bytes: int, through_links: bool = False) -> bytes:
    """The bytes of an ordinary file; ``OSError`` for anything else, and for more than ``limit_bytes``. Never waits.

    A link is something else too, except with ``through_links``.
    """
    nofollow = 0 if through_links else os.O_NOFOLLOW
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | nofollow | os.O_CLOEXEC)
    try:
        about = os.fstat(handle)
        _require_ordinary(about.st_mode, path)
        data = b""
        if about.st_size <= limit_bytes:
            with os.fdopen(handle, "rb", closefd=False) as stream:
                data = stream.read(limit_bytes + 1)  # it may have grown, and some files say that they are empty
    finally:
        os.close(handle)
    if max(about.st_size, len(data)) > limit_bytes:
        raise OSError(errno.EFBIG, f"It has more than {limit_bytes} bytes", str(path))
    return data


def read_text(path: Path, *, limit_bytes: int) -> str:
    """Return the text of a file that people write, with its line ends. Never waits, not even for a pipe.

    Raises ``FileNotFoundError``, and ``DocumentError`` for a file that is not UTF-8 or has more than ``limit_bytes``.
    """
    try:
        return read_ordinary(path, limit_bytes=limit_bytes, through_links=True).decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"it is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}"
        raise DocumentError(str(path), (Problem(line=0, message=message),), hint="save it as UTF-8 text") from error
    except FileNotFoundError:
        raise
    except OSError as error:
        is_too_large = error.errno == errno.EFBIG
        message = f"at most {limit_bytes} bytes are read" if is_too_large else (error.strerror or str(error))
        raise DocumentError(str(path), (Problem(line=0, message=message),), hint=f"check it: ls -l {path}") from error


def _open_log(path: Path) -> tuple[int, bool]:
    """An ordinary file open for appending, made if missing with its folder, and whether its last line is unfinished.

    Raises ``OSError`` naming ``path`` for anything else; never waits.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o644)
    try:
        about = os.fstat(handle)
        _require_ordinary(about.st_mode, path)
        is_torn = about.st_size > 0 and os.pread(handle, 1, about.st_size - 1) != b"\n"
    except BaseException:
        os.close(handle)
        raise
    return handle, is_torn


class Log:
    """A file of lines that are appended as things happen; nobody but the user may read it.

    A line that could not be finished is ended before the next one, so that only it is lost.
    """

    def __init__(self, path: Path) -> None:
        """Opens ``path`` for appending and makes its folder; raises ``OSError``."""
        self.path = path
        self.descriptor, self._is_torn = _open_log(path)
        with contextlib.suppress(OSError):  # somebody else's file, or a disk without permissions
            os.fchmod(self.descriptor, 0o600)

    def append(self, line: bytes) -> str | None:
        """Write ``line``, which ends with a newline; why it is not whole in the file, or nothing if it is."""
        whole = b"\n" + line if self._is_torn else line
        try:
            written = os.write(self.descriptor, whole)
        except OSError as error:
            return error.strerror or str(error)
        if written < len(whole):
            self._is_torn = self._is_torn or written > 0
            return "No space left for a whole line"
        self._is_torn = False
        return None

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)


def _temporary(path: Path) -> tuple[int, str]:
    """A new file beside ``path``, open and locked for as long as it is: so others know that somebody writes it."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:_NAME_CAP]}{_MARK}", suffix=".tmp", dir=path.parent)
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(handle, Path(name)):
            return handle, name
        os.close(handle)  # swept away before it was locked


def is_leftover(name: str) -> bool:
    """Whether a file of this name can only be what a killed ``write_atomic`` left."""
    return _LEFTOVER.fullmatch(name) is not None


def sweep(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Remove what killed writes left in ``folders``, and say what that was; those below them are not looked at.

    A write in progress has such a file too, but it is locked.
    """
    swept = []
    for folder in folders:
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            found = [Path(entry.path) for entry in entries if is_leftover(entry.name) and _is_file(entry)]
            for path in found:
                with contextlib.suppress(OSError), _locked_file(path):
                    path.unlink()
                    swept.append(path)
    return tuple(swept)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that holds all temporary files of this process while the block runs, and is removed after it.

    What killed processes left is removed first: each holds a lock on its folder for as long as it lives.
    """
    before = tempfile.tempdir
    home = Path(tempfile.gettempdir())
    for left in home.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError), _locked_folder(left):
            shutil.rmtree(left, ignore_errors=True)
    with contextlib.ExitStack() as held:
        folder = _own_folder(home, held)
        tempfile.tempdir = str(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = before
            shutil.rmtree(folder, ignore_errors=True)


def _own_folder(home: Path, held: contextlib.ExitStack) -> Path:
    """A new folder whose lock is held; another process may sweep it away before it is, and then there is one more."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=home))
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            held.enter_context(_locked_folder(folder))
            if folder.exists():
                return folder


@contextlib.contextmanager
def _locked_file(path: Path) -> Iterator[None]:
    """Hold the lock of an ordinary file; ``OSError`` if somebody holds it."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of ours; ``OSError`` if somebody holds it, or if it is a link or somebody else's."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "It belongs to somebody else", str(folder))
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lock, as its file says."""

    pid: int
    host: str
    since: str
    """In UTC."""
    command: str

    def __str__(self) -> str:
        """``pid 4711 on bench since 2026-01-31T12:00:00Z: cdd exec csv``."""
        return f"pid {self.pid} on {self.host} since {self.since}: {self.command}"


@contextlib.contextmanager
def exclusive(path: Path, *, purpose: str, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock file ``path`` while the block runs; the file itself stays.

    Yields whether the one who held it before was killed. Raises ``AlreadyAtWork`` naming ``purpose`` and who has it if
    another process, or another block of this one, still does after ``wait_s`` seconds. The lock is this process's
    alone: programs that it starts do not inherit it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _locked(path, deadline=time.monotonic() + wait_s)
    if handle is None:
        holder = holder_of(path)
        stop = f"or stop it (kill {holder.pid}), " if holder and holder.host == socket.gethostname() else ""
        raise AlreadyAtWork(
            f"{purpose} is already going on: {holder or 'by a process that has not said which'}.",
            hint=f"wait for it to end, {stop}then run the same command again; cdd status works meanwhile",
        )
    try:
        was_killed = os.fstat(handle).st_size > 0
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(_this_process())).encode() + b"\n", 0)
        yield was_killed
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
        os.close(handle)


def holder_of(path: Path) -> Holder | None:
    """Who the lock file ``path`` says holds it, or held it when killed; None if it says nothing readable."""
    try:
        return Holder(**json.loads(read_ordinary(path, limit_bytes=10_000)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _locked(path: Path, *, deadline: float) -> int | None:
    """The open file that carries the lock, or None if somebody else has it until ``deadline``."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            _require_ordinary(os.fstat(handle).st_mode, path)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):
                return handle
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(handle)
                return None
            time.sleep(_POLL_S)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Whether the open file is still what ``path`` names: somebody may have removed the folder meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    return False


def _this_process() -> Holder:
    name = Path(sys.argv[0]).name.replace("__main__.py", "cdd")
    return Holder(
        pid=os.getpid(),
        host=socket.gethostname(),
        since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=shlex.join([name, *sys.argv[1:]])[:200],
    )


def _bits_for(path: Path) -> int:
    """The permission bits ``path`` has, or those a new file would get; ``OSError`` unless it can be replaced."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        _require_ordinary(mode, path)
        return mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _require_ordinary(mode: int, path: Path) -> None:
    """Raise ``OSError`` unless ``mode`` is that of an ordinary file."""
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "It is a link, not an ordinary file", str(path))
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "It is a folder, not an ordinary file", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.ENXIO, "It is a pipe or a device, not an ordinary file", str(path))


def _is_file(entry: "os.DirEntry[str]") -> bool:
    return entry.is_file(follow_symlinks=False)


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot, and need not
            raise
    finally:
        os.close(handle)
