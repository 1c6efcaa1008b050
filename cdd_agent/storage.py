"""Durable files and locks, which survive a crash, a full disk and a second process; and folders that stay in place.

A write is a temporary file, fsync and rename in the same folder, and the rename is the commit. A lock is the kernel's
``flock`` on an open file, which ends with the process. Lock files are never removed: a process that had opened the
removed file would hold a lock that nobody else sees.

A folder that is held in place must stay where it is: if its path leads elsewhere, nothing more is done there.
"""

import codecs
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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, TypeVar

from cdd_agent.errors import AlreadyAtWork, DocumentError, FolderMoved, Problem, UsageError, format_count, format_size

_MARK = ".cdd-"
_LEFTOVER = re.compile(r"\..+\.cdd-[a-z0-9_]{8}\.tmp", re.DOTALL)
_NAME_CAP = 60
"""Characters of a file's name that its temporary file repeats; file systems limit names to 255 bytes."""
_POLL_S = 0.02
_SCRATCH = "cdd-scratch-"
_CHECKED_LEVELS = {"build": 1, "bytecode": 0, "landing": 1, "worktrees": 1}
"""Large folder at the top of ``.cdd`` -> how many levels below it are cdd's own. Git and tests write what is deeper."""
_RULES = b"*\n!config.yaml\n!commands\n!commands/*.md\n"
_EARLIER_RULES = b"*\n!config.yaml\n"
"""What cdd wrote before there were commands of the user's own."""
_BLOCK_BYTES = 512
RECORDS = "cdd"
"""Name of the folder with cdd's records in git's common folder."""
SET_ASIDE = "cdd-set-aside-"
"""How the names of such folders of somebody else begin; a number follows."""
_DEEPEST = 20
"""How many levels of folders ``.cdd`` may have."""


class _Versioned(Protocol):
    @property
    def schema(self) -> int: ...


_Record = TypeVar("_Record", bound=_Versioned)


def write_atomic(path: Path, data: bytes, *, mode: int | None = None, is_durable: bool = True) -> None:
    """Write ``data`` to ``path`` so that readers, and a crash, see either the old or the new file.

    Creates missing folders. The file keeps its permissions; a new one gets ``mode``, or 0666 without the umask. Raises
    ``OSError`` naming ``path``, also for a link, folder or pipe, and leaves the old file unless only the last fsync
    failed. A file that is not ``is_durable`` can be made again, so a power cut may take it.
    """
    try:
        try:
            _replace_file(path, data, mode=mode, is_durable=is_durable)
        except FileNotFoundError:  # `git clean` or `git stash -u` of the user took the temporary file or the folder
            _replace_file(path, data, mode=mode, is_durable=is_durable)
        if is_durable:
            _sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _replace_file(path: Path, data: bytes, *, mode: int | None, is_durable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    bits = _choose_mode(path) if mode is None else mode
    handle, name = _create_temporary(path)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), bits)
            if is_durable:
                os.fsync(stream.fileno())
            os.replace(name, path)  # while the file is open and therefore locked against `sweep`
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def append_durably(path: Path, data: bytes, *, after_bytes: int) -> None:
    """Write ``data`` after the first ``after_bytes`` of ``path``, in place of what follows them, and sync it.

    Creates a missing file and its folder. Raises ``OSError`` naming ``path``, also for a file that is shorter or is not
    an ordinary one; the first bytes stay in any case.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o666), "wb") as stream:
            about = os.fstat(stream.fileno())
            _require_ordinary(about.st_mode, path)
            if about.st_size < after_bytes:
                raise OSError(errno.EIO, f"It has {about.st_size} bytes of {after_bytes}")
            os.ftruncate(stream.fileno(), after_bytes)
            stream.seek(after_bytes)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        _sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def read_ordinary(path: Path, *, limit_bytes: int, through_links: bool = False) -> bytes:
    """Return the content of an ordinary file, without ever waiting.

    Raises ``OSError`` for a larger file than ``limit_bytes``, for anything but an ordinary file, and for a link unless
    ``through_links``.
    """
    nofollow = 0 if through_links else os.O_NOFOLLOW
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | nofollow | os.O_CLOEXEC)
    try:
        about = os.fstat(handle)
        _require_ordinary(about.st_mode, path)
        data = b""
        if about.st_size <= limit_bytes:
            with os.fdopen(handle, "rb", closefd=False) as stream:
                data = stream.read(limit_bytes + 1)  # it may have grown, and files in /proc report size 0
    finally:
        os.close(handle)
    if max(about.st_size, len(data)) > limit_bytes:
        raise OSError(errno.EFBIG, f"It has more than {limit_bytes} bytes", str(path))
    return data


def read_text(path: Path, *, limit_bytes: int, missing_hint: str) -> str:
    """Return the text of a file that people write; ``DocumentError`` says why not.

    Raises ``UsageError`` with ``missing_hint`` if it does not exist.
    """
    try:
        return read_ordinary(path, limit_bytes=limit_bytes, through_links=True).decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"it is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}"
        if error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # so does UTF-32
            message = "it is UTF-16 or UTF-32 text, not UTF-8"
        raise DocumentError(str(path), (Problem(line=0, message=message),), hint="save it as UTF-8 text") from error
    except FileNotFoundError as error:
        raise UsageError(f"{path} does not exist.", hint=missing_hint) from error
    except OSError as error:
        is_too_large = error.errno == errno.EFBIG
        message = f"at most {limit_bytes} bytes are read" if is_too_large else (error.strerror or str(error))
        raise DocumentError(str(path), (Problem(line=0, message=message),), hint=f"check it: ls -l {path}") from error


def load_record(path: Path, *, empty: _Record, limit_bytes: int) -> _Record:
    """Return the record in a JSON file of cdd, ``empty`` without the file; ``UsageError`` if it is damaged or newer."""
    import msgspec

    try:
        record = msgspec.json.decode(read_ordinary(path, limit_bytes=limit_bytes), type=type(empty))
    except FileNotFoundError:
        return empty
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = f"move it away: mv {shlex.quote(str(path))} /tmp"
        raise UsageError(f"{path} is damaged: {error}.", hint=hint) from error
    if record.schema > empty.schema:
        raise UsageError(
            f"{path} was written by a newer cdd: it has schema {record.schema}, this version reads {empty.schema}.",
            hint="use that version of cdd",
        )
    return record


def make_folder(folder: Path) -> None:
    """Create a folder if there is none. Raises ``UsageError`` if there is a file of that name."""
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError as error:
        hint = f"move it away: mv {folder} {folder}.moved"
        raise UsageError(f"{folder} is a file, but cdd needs a folder of that name.", hint=hint) from error


def private_folder(project: Path) -> Path:
    """Return the project's ``.cdd`` folder, created if necessary, whose ``.gitignore`` spares what the user writes.

    Raises ``UsageError`` if it is or contains a link, because a repository could use one to make cdd write outside the
    project.
    """
    folder = project / ".cdd"
    if not folder.is_symlink():
        make_folder(folder)
    require_no_links(folder, levels=_CHECKED_LEVELS)
    ignore = folder / ".gitignore"
    # A full disk or a power cut can leave an empty file. A file that the user has changed stays as it is.
    size = ignore.stat().st_size if ignore.exists() else 0
    if not size or (size == len(_EARLIER_RULES) and ignore.read_bytes() == _EARLIER_RULES):
        write_atomic(ignore, _RULES)
    return folder


def require_no_links(
    folder: Path, *, levels: Mapping[str, int] = MappingProxyType({}), most: int = _DEEPEST + 2
) -> None:
    """Raise ``UsageError`` if a file or folder is or contains a link, which would lead what cdd does there elsewhere.

    ``most`` levels of folders are checked; 0 checks the folder itself. ``levels`` says how many below a folder in it.
    """
    for path in _find_links(folder, levels=levels, most=most):
        hint = f"see where it leads, ls -l {shlex.quote(str(path))}, then remove it: rm {shlex.quote(str(path))}"
        raise UsageError(f"{path} is a link, so cdd would write its files elsewhere.", hint=hint)


def _find_links(folder: Path, *, levels: Mapping[str, int], most: int) -> Iterator[Path]:
    if folder.is_symlink():
        yield folder
        return
    folders = [(folder, 0, most)] if most else []
    while folders:
        here, depth, left = folders.pop()
        if depth > _DEEPEST:
            raise UsageError(
                f"{folder} contains folders nested more than {_DEEPEST} deep. cdd did not create them.",
                hint=f"see what they contain, ls -R {folder}, then remove them",
            )
        try:
            with os.scandir(here) as entries:
                found = list(entries)
        except (FileNotFoundError, NotADirectoryError):  # the user deletes the folder in this moment, or it is a file
            continue
        yield from (Path(entry.path) for entry in found if entry.is_symlink())
        for entry in found:
            below = left - 1 if depth else levels.get(entry.name, left)
            if below and entry.is_dir(follow_symlinks=False):
                folders.append((Path(entry.path), depth + 1, below))


class Log:
    """A file to which lines are appended and which only the user may read. A torn line ends before the next one."""

    def __init__(self, path: Path) -> None:
        """Open ``path``, creating it and its folder if missing; raises ``OSError`` unless it is an ordinary file."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        self.descriptor = os.open(path, flags, 0o644)
        try:
            about = os.fstat(self.descriptor)
            _require_ordinary(about.st_mode, path)
            self._is_torn = about.st_size > 0 and os.pread(self.descriptor, 1, about.st_size - 1) != b"\n"
        except BaseException:
            os.close(self.descriptor)
            raise
        with contextlib.suppress(OSError):  # another user's file, or a disk without permissions
            os.fchmod(self.descriptor, 0o600)

    def append(self, line: bytes) -> str | None:
        """Write ``line``, which ends with a newline; return why it could not be written in full, if it was not."""
        data = b"\n" + line if self._is_torn else line
        try:
            written = os.write(self.descriptor, data)
        except OSError as error:
            return error.strerror or str(error)
        if written < len(data):
            self._is_torn = self._is_torn or written > 0
            return "No space left for a whole line"
        self._is_torn = False
        return None

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def _create_temporary(path: Path) -> tuple[int, str]:
    """Return a new file beside ``path``, open and locked, which shows other processes that it is in use."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:_NAME_CAP]}{_MARK}", suffix=".tmp", dir=path.parent)
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(handle, Path(name)):
            return handle, name
        os.close(handle)  # another process swept it before it was locked


def is_leftover(name: str) -> bool:
    """Return whether a file of this name can only come from a killed ``write_atomic``."""
    return _LEFTOVER.fullmatch(name) is not None


def sweep(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Remove leftovers of killed writes directly in ``folders``, and return their paths."""
    swept = []
    for folder in folders:
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            leftovers = [each for each in entries if is_leftover(each.name) and each.is_file(follow_symlinks=False)]
            for path in (Path(each.path) for each in leftovers):
                # The file of a write in progress is locked.
                with contextlib.suppress(OSError), hold(path):
                    path.unlink()
                    swept.append(path)
    return tuple(swept)


_held: dict[str, int] = {}
"""Path -> descriptor of the folders that are held in place."""
_kept: dict[str, str] = {}
"""Path -> where it really leads, for folders that may be deleted and made again, but must not lead elsewhere."""
_STARTS = "subprocess.Popen"
_TOUCHES = frozenset(
    {"open", "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
    | {"os.utime", "shutil.rmtree"}
)
"""What Python audits before it opens or changes a path."""


@contextlib.contextmanager
def hold_in_place(folder: Path) -> Iterator[None]:
    """Do nothing at the path of ``folder`` during the block once it leads elsewhere, also for its owner.

    Whatever would open or change something there, or start a program, raises ``FolderMoved`` instead.
    """
    path = os.path.realpath(folder)
    if path in _held:
        yield
        return
    _watch_paths()
    # Without O_PATH, as on macOS, the folder must be readable.
    handle = os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    _held[path] = handle
    try:
        yield
    finally:
        del _held[path]
        os.close(handle)


@contextlib.contextmanager
def keep_from_links(folder: Path) -> Iterator[None]:
    """Do nothing at the path of ``folder`` during the block once a link leads elsewhere, as ``hold_in_place`` does.

    The folder need not exist, and may be deleted and made again.
    """
    path = os.path.abspath(folder)
    if path in _kept:
        yield
        return
    _watch_paths()
    _kept[path] = os.path.realpath(path)
    try:
        yield
    finally:
        del _kept[path]


def require_in_place() -> None:
    """Raise ``FolderMoved`` if a folder that is held was moved, deleted or replaced, or is behind a link now."""
    for path, real in tuple(_kept.items()):
        if (now := os.path.realpath(path)) != real:
            raise FolderMoved(
                f"Behind a link, {path} leads to {now} since cdd works in it. cdd stopped, and wrote nothing there.",
                hint=f"find the link and remove it: ls -ld {shlex.quote(os.path.dirname(path))} {shlex.quote(path)}; "
                "then run the same command again",
            )
    for path, handle in tuple(_held.items()):
        try:
            is_there = os.path.samestat(os.fstat(handle), os.lstat(path))
        except OSError:
            is_there = False
        if not is_there:
            raise _describe_move(path, handle)


def _describe_move(path: str, handle: int) -> FolderMoved:
    try:
        now = os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        now = ""
    if now == path:
        return FolderMoved(
            f"Something was mounted over {path} while cdd worked in it. cdd stopped, and wrote nothing there since.",
            hint=f"see what it is: findmnt {shlex.quote(path)}; remove it, then run the same command again",
        )
    instead = ""
    if os.path.lexists(path):
        instead = f" At its path there is now {'a link' if os.path.islink(path) else 'something else'}."
    if not now or not os.path.isdir(now):  # the kernel adds a word to the path of a deleted folder
        return FolderMoved(
            f"{path} was deleted or moved while cdd worked in it.{instead} cdd stopped, and wrote nothing there since.",
            hint=f"see what is there: ls -ld {shlex.quote(path)}",
        )
    away = "" if not instead else f"mv {shlex.quote(path)} {shlex.quote(path)}.other && "
    return FolderMoved(
        f"{path} was moved to {now} while cdd worked in it.{instead} cdd stopped, and wrote nothing there since.",
        hint=f"move it back: {away}mv {shlex.quote(now)} {shlex.quote(path)}; then run the same command again",
    )


@cache  # Python never removes such a hook
def _watch_paths() -> None:
    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if (_held or _kept) and (event == _STARTS or (event in _TOUCHES and any(map(_leads_there, arguments)))):
            require_in_place()

    sys.addaudithook(watch)


def _leads_there(argument: object) -> bool:
    # A name relative to a descriptor needs no check: its folder was opened by a path.
    if not isinstance(argument, str | bytes | os.PathLike):
        return False
    path = os.fsdecode(argument)
    return any(
        path.startswith(folder) and path[len(folder) : len(folder) + 1] in ("", "/") for folder in (*_held, *_kept)
    )


def find_deleted(path: Path) -> Path | None:
    """Return the folder around ``path`` that cdd made and that is gone: for temporary files, or in ``.cdd``."""
    for folder in (*reversed(path.parents), path):
        is_own = folder.name.startswith(_SCRATCH) or ".cdd" in (folder.parent.name, folder.parent.parent.name)
        if is_own and not os.path.lexists(folder):
            return folder
    return None


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Provide a folder for all temporary files of this process, and remove it after the block."""
    before = tempfile.tempdir
    with temporary_folder(Path(tempfile.gettempdir())) as folder:
        tempfile.tempdir = str(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = before


@contextlib.contextmanager
def temporary_folder(home: Path) -> Iterator[Path]:
    """Provide a new folder in ``home``, and remove it after the block.

    First removes the folders of killed processes: each process locks its folder while it lives.
    """
    for leftover in home.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError), hold(leftover, is_folder=True):
            shutil.rmtree(leftover, ignore_errors=True)
    with contextlib.ExitStack() as lock:
        while True:
            folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=home))
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                lock.enter_context(hold(folder, is_folder=True))
                if folder.exists():  # otherwise another process removed it before it was locked
                    break
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def hold(path: Path, *, is_folder: bool = False) -> Iterator[None]:
    """Hold the lock on an existing file, which stays as it is; raises ``BlockingIOError`` if it is held."""
    kind = os.O_DIRECTORY if is_folder else os.O_NONBLOCK
    handle = os.open(path, os.O_RDONLY | kind | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # The folder for temporary files is shared: never remove another user's folder.
        if is_folder and os.fstat(handle).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "It belongs to another user", str(path))
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def measure_folder(top: Path) -> int:
    """Return how many bytes of the disk the files below ``top`` take."""
    size_bytes, waiting = 0, [str(top)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                size_bytes += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return size_bytes


_LEAST_FREE_BYTES = 1 << 20
"""A disk with less counts as full: a run writes records of some KB, and files with bytecode."""
_LEAST_FREE_INODES = 8
_MENTIONED_BYTES = 100_000_000
"""A run tree is named if it takes so much, or ``_MENTIONED_SHARE`` of the disk."""
_MENTIONED_SHARE = 0.05
_MOST_MEASURED = 300_000
"""Number of files that are measured in a run tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDisk:
    """A disk on which no file can be written, and what a run has left there."""

    folder: Path
    """A folder on it."""
    lacks: Literal["room", "inodes"]
    tree: Path | None = None
    """The run tree that takes much of it."""
    taken: int = 0
    """Size of the run tree: in bytes, or the number of its files."""
    largest: Path | None = None
    """The largest file in it, or the folder with the most files."""
    part: int = 0
    """Size of ``largest``, in the same unit."""

    @property
    def happened(self) -> str:
        """The disk that is full, and the run tree and the file that take much of it."""
        has_room = self.lacks == "inodes"
        why = f"The disk of {self.folder} {'has room, but no inodes left for new files' if has_room else 'is full'}."
        if self.tree is None:
            return why
        tree = f"The run tree {self.tree} holds {self._format(self.taken)}"
        if self.largest is None or self.largest == self.tree:
            return f"{why} {tree}."
        return f"{why} {tree}, {self._format(self.part)} of them in {self.largest.relative_to(self.tree)}."

    @property
    def hint(self) -> str:
        """What to remove, or how to find it."""
        if self.largest is not None and str(self.largest).isprintable():
            return f"remove it: rm -r {shlex.quote(str(self.largest))}"
        if self.tree is not None:  # a name that cannot be shown as it is
            return f"remove the run tree, which cdd makes again: rm -rf {shlex.quote(str(self.tree))}"
        option = "-h" if self.lacks == "room" else "-i"
        return f"see how much room is left: df {option} {shlex.quote(str(self.folder))}"

    def _format(self, amount: int) -> str:
        if self.lacks == "inodes":
            return format_count(amount, "file")
        return format_size(amount)


def find_full_disk(place: Path) -> FullDisk | None:
    """Return the disk of ``place`` if it is full, with the run tree around ``place`` or below a folder above it."""
    folder = next((each for each in (place, *place.absolute().parents) if each.is_dir()), Path("/"))
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    # Some file systems have no fixed number of inodes, and report none.
    lacks: Literal["room", "inodes"] = "inodes" if disk.f_files and disk.f_favail < _LEAST_FREE_INODES else "room"
    if lacks == "room" and disk.f_bavail * disk.f_frsize >= _LEAST_FREE_BYTES:
        return None
    whole = disk.f_files if lacks == "inodes" else disk.f_blocks * disk.f_frsize
    most = whole * _MENTIONED_SHARE if lacks == "inodes" else min(whole * _MENTIONED_SHARE, _MENTIONED_BYTES)
    measured = [(*_measure_tree(tree, lacks), tree) for tree in _list_run_trees(folder.absolute())]
    taken, part, largest, tree = max(measured, default=(0, 0, folder, folder))
    if taken < most:
        return FullDisk(folder=folder, lacks=lacks)
    return FullDisk(folder=folder, lacks=lacks, tree=tree, taken=taken, largest=largest, part=part)


def _list_run_trees(folder: Path) -> list[Path]:
    for each in (folder, *folder.parents):
        if each.parent.name == "worktrees" and each.parent.parent.name == ".cdd":
            return [each]
        with contextlib.suppress(OSError), os.scandir(each / ".cdd" / "worktrees") as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def _measure_tree(top: Path, lacks: Literal["room", "inodes"]) -> tuple[int, int, Path]:
    """Return what a run tree takes, and what its largest file, or its folder with the most files, takes of that."""
    taken, count, largest, waiting = 0, 0, (0, str(top)), [str(top)]
    while waiting and count < _MOST_MEASURED:
        folder = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as opened:
            entries = list(opened)
            count += len(entries)
            waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            if lacks == "inodes":
                taken, largest = taken + len(entries), max(largest, (len(entries), folder))
                continue
            sizes = [(entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES, entry.path) for entry in entries]
            taken, largest = taken + sum(size for size, _ in sizes), max((largest, *sizes))
    return taken, largest[0], Path(largest[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """The process that holds a lock, as recorded in the lock file."""

    pid: int
    host: str
    since: str
    """In UTC."""
    command: str

    def __str__(self) -> str:
        """Return the holder, such as ``pid 4711 on bench since 2026-01-31T12:00:00Z: cdd exec csv``."""
        return f"pid {self.pid} on {self.host} since {self.since}: {self.command}"


@contextlib.contextmanager
def exclusive_lock(path: Path, *, purpose: str, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock file ``path``, and yield whether its last holder was killed; the file is not removed.

    Raises ``AlreadyAtWork`` with ``purpose`` and the holder if another process, or another block of this one, still
    holds it after ``wait_s`` seconds. Programs that this process starts do not inherit the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _acquire(path, deadline=time.monotonic() + wait_s)
    if handle is None:
        holder = read_holder(path)
        stop = f"or stop it (kill {holder.pid}), " if holder and holder.host == socket.gethostname() else ""
        raise AlreadyAtWork(
            f"{purpose} is already in progress: {holder or 'by an unknown process'}.",
            hint=f"wait for it to end, {stop}then run the same command again; cdd status works meanwhile",
        )
    try:
        was_killed = os.fstat(handle).st_size > 0
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(_describe_this_process())).encode() + b"\n", 0)
        yield was_killed
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
        os.close(handle)


def read_holder(path: Path) -> LockHolder | None:
    """Return the holder that the lock file ``path`` names; None if it is not readable."""
    try:
        return LockHolder(**json.loads(read_ordinary(path, limit_bytes=10_000)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _acquire(path: Path, *, deadline: float) -> int | None:
    """Return the open and locked file, or None if another process holds the lock until ``deadline``."""
    while True:
        handle = _open_lock(path)
        try:
            _require_ordinary(os.fstat(handle).st_mode, path)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):  # otherwise somebody removed the folder
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


def _open_lock(path: Path) -> int:
    flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        with contextlib.suppress(OSError):  # the file of another user, or on a read-only disk, can be locked too
            return os.open(path, os.O_RDONLY | flags)
        raise


def _is_at(handle: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    return False


def _describe_this_process() -> LockHolder:
    name = Path(sys.argv[0]).name.replace("__main__.py", "cdd")
    return LockHolder(
        pid=os.getpid(),
        host=socket.gethostname(),
        since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=shlex.join([name, *sys.argv[1:]])[:200],
    )


def _choose_mode(path: Path) -> int:
    """Return the permissions of ``path``, or of a new file; raises ``OSError`` unless it can be replaced."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        _require_ordinary(mode, path)
        return mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _require_ordinary(mode: int, path: Path) -> None:
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "It is a link, not an ordinary file", str(path))
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "It is a folder, not an ordinary file", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.ENXIO, "It is a pipe or a device, not an ordinary file", str(path))


def _sync_folder(folder: Path) -> None:
    # Without this, a power cut may undo the rename.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot sync folders
            raise
    finally:
        os.close(handle)
