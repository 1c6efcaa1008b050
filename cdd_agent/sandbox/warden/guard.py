"""Restores protected paths after a run, when all its processes have ended.

A sandbox can protect an existing path but not one that does not exist yet. A changed or new file is moved aside if
there is a folder for that, since the user may have made it. It is never read, so its size does not matter. As this
happens outside every sandbox, links are followed only if they existed before the run.

A guard takes what it finds for the user's files, so only one run at a time may use a guarded folder: otherwise it could
restore a file that another run made and its guard removed.
"""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.warden.supervision import FolderEntry, closing, open_root, resolve_links

_FILE_CAP_BYTES = 1 << 20
_MOST_ENTRIES = 300
"""Entries of a folder, including its subfolders; larger folders are only compared by identity."""
_BLOCK_BYTES = 1 << 16
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ByteBudget:
    """The bytes of file content that may still be kept in memory, for all paths together."""

    def __init__(self, left_bytes: int) -> None:
        """Start with ``left_bytes``."""
        self.left_bytes = left_bytes


class PathState:
    """A file, folder or link before a run."""

    __slots__ = ("bits", "content", "identity", "kind")

    def __init__(self, status: os.stat_result, content: "bytes | str | dict[str, PathState] | None") -> None:
        """``content``: bytes of a file, target of a link, entries of a folder; None if too large to keep."""
        self.kind = stat.S_IFMT(status.st_mode)
        self.bits = stat.S_IMODE(status.st_mode)
        self.identity = _identify(status)
        self.content = content

    def is_unchanged(self, entry: FolderEntry, status: os.stat_result) -> bool:
        """Return whether ``entry`` is still in this state; of a folder, only whether it is the same folder."""
        if stat.S_IFMT(status.st_mode) != self.kind:
            return False
        if isinstance(self.content, bytes):
            is_same = (stat.S_IMODE(status.st_mode), status.st_size) == (self.bits, len(self.content))
            return is_same and _has_content(entry, self.content)
        if isinstance(self.content, str):
            return os.readlink(entry.name, dir_fd=entry.folder) == self.content
        return _identify(status) == self.identity

    def restore(self, entry: FolderEntry) -> bool:
        """Create the path where nothing exists, and return whether that was possible in full."""
        if isinstance(self.content, str):
            os.symlink(self.content, entry.name, dir_fd=entry.folder)
        elif isinstance(self.content, bytes):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(entry.name, flags, 0o600, dir_fd=entry.folder), "wb") as stream:
                stream.write(self.content)
                os.fchmod(stream.fileno(), self.bits)
        elif isinstance(self.content, dict):
            os.mkdir(entry.name, dir_fd=entry.folder)
            with closing(entry.open()) as folder:
                restored = [state.restore(entry.inside(folder, name)) for name, state in self.content.items()]
                os.fchmod(folder, self.bits)
            return all(restored)
        return self.content is not None


def capture(entry: FolderEntry, budget: ByteBudget, *, left: list[int] | None = None) -> PathState | None:
    """Return the state of ``entry``, or None if it does not exist; ``left`` counts the entries of folders to read."""
    status = entry.read_status()
    if status is None:
        return None
    try:
        content = _read_content(entry, status, budget=budget, left=[_MOST_ENTRIES] if left is None else left)
    except OSError:
        content = None
    return PathState(status, content)


def list_names(folder: int, *, known: int = 0) -> list[str] | None:
    """Return the sorted names in a folder; None if there are far more than ``known``."""
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) > known + _MOST_ENTRIES:
                return None
    return sorted(names)


def _read_content(
    entry: FolderEntry, status: os.stat_result, *, budget: ByteBudget, left: list[int]
) -> bytes | str | dict[str, PathState] | None:
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(entry.name, dir_fd=entry.folder)
    if stat.S_ISDIR(status.st_mode):
        with closing(entry.open()) as folder:
            names = list_names(folder)
            left[0] -= _MOST_ENTRIES + 1 if names is None else len(names)
            if names is None or left[0] < 0:
                return None
            states = {name: capture(entry.inside(folder, name), budget, left=left) for name in names}
            return {name: state for name, state in states.items() if state is not None}
    if not stat.S_ISREG(status.st_mode) or status.st_size > min(_FILE_CAP_BYTES, budget.left_bytes):
        return None
    with open(os.open(entry.name, _READ, dir_fd=entry.folder), "rb") as stream:
        data = stream.read(_FILE_CAP_BYTES + 1)
    budget.left_bytes -= len(data)
    return data


def _has_content(entry: FolderEntry, content: bytes) -> bool:
    try:
        handle = os.open(entry.name, _READ, dir_fd=entry.folder)
    except OSError:
        return False
    with open(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return False
        position = 0
        while block := stream.read(_BLOCK_BYTES):
            if content[position : position + len(block)] != block:
                return False
            position += len(block)
    return position == len(content)


def _identify(status: os.stat_result) -> tuple[int, ...]:
    # No program can set ctime, so it shows a changed file even if its content is not known.
    if stat.S_ISREG(status.st_mode):
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino


_CONTENT_BYTES = 8 << 20
"""Content of all files together; a change of further files is noticed but cannot be undone."""
_MOST_REMOVED = 200
"""Largest number of entries to remove with a new folder; a larger folder is renamed instead."""


class Guard:
    """Remembers the states of paths, and restores them."""

    def __init__(self, protected: list[tuple[str, str]], aside: str | None) -> None:
        """Read the state of each path, given as a folder and a name below it, and of the targets of links."""
        self._aside = None if aside is None else os.path.realpath(aside)
        self._remarks: list[str] = []
        budget = ByteBudget(_CONTENT_BYTES)
        names = dict.fromkeys((root, path) for root, name in protected for path in resolve_links(root, name))
        before = []
        for root, name in names:
            try:
                before.append((root, name, _capture_path(root, name, budget=budget)))
            except OSError:
                continue  # the path is not readable
        # Links first: only then do the other paths lead where they led before.
        self._before = sorted(before, key=lambda each: each[2] is None or not stat.S_ISLNK(each[2].kind))

    def repair(self) -> list[str]:
        """Restore what changed, and return one remark for each path."""
        self._remarks = []
        for root, name, before in self._before:
            try:
                self._check(root, name, before=before)
            except OSError as error:
                self._remarks.append(f"{name} may have been changed by a program in the sandbox: {error}")
        return self._remarks

    def _check(self, root: str, name: str, *, before: PathState | None) -> None:
        if before is None and not os.path.exists(root):
            return
        try:
            folder = open_root(root)
        except PermissionError:
            os.chmod(root, 0o700)
            folder = open_root(root)
        *above, last = name.split("/")
        try:
            for number, part in enumerate(above, start=1):
                entry = FolderEntry(folder, part, shown="/".join(above[:number]))
                if not self._clear_path(entry, is_needed=before is not None):
                    return
                inner = _open_folder(entry)
                os.close(folder)
                folder = inner
            self._compare(FolderEntry(folder, last, shown=name), before)
        finally:
            os.close(folder)

    def _clear_path(self, entry: FolderEntry, *, is_needed: bool) -> bool:
        """Move anything but a folder aside, create a needed folder, and return whether it exists now."""
        status = entry.read_status()
        if status is not None and not stat.S_ISDIR(status.st_mode):
            if not is_needed and not stat.S_ISLNK(status.st_mode):
                return False
            self._remarks.append(self._set_aside(entry, existed=False))
            status = None
        if status is None and is_needed:
            os.mkdir(entry.name, dir_fd=entry.folder)
        return status is not None or is_needed

    def _compare(self, entry: FolderEntry, before: PathState | None) -> None:
        status = entry.read_status()
        if before is None:
            if status is not None:
                self._remarks.append(self._set_aside(entry, existed=False))
            return
        if status is not None and isinstance(before.content, dict) and stat.S_ISDIR(status.st_mode):
            if self._compare_entries(entry, before.content):
                return
        elif status is not None and before.is_unchanged(entry, status):
            return
        if status is None:
            remark, end = f"{entry.shown} was removed by a program in the sandbox", ", and is restored"
        else:
            remark, end = self._set_aside(entry, existed=True), ""
        is_complete = before.restore(entry)
        self._remarks.append(remark + (end if is_complete else "; it was too large to be restored in full"))

    def _compare_entries(self, entry: FolderEntry, before: dict[str, PathState]) -> bool:
        """Compare each entry of a folder; return False if too many are new, so that the folder must be replaced."""
        with closing(_open_folder(entry)) as folder:
            names = list_names(folder, known=len(before))
            for name in () if names is None else sorted({*names, *before}):
                self._compare(entry.inside(folder, name), before.get(name))
        return names is not None

    def _set_aside(self, entry: FolderEntry, *, existed: bool) -> str:
        what = "was changed" if existed else "appeared"
        remark = f"{entry.shown} {what} while a program ran in the sandbox, and is"
        path = self._move(entry)
        if self._aside is None:
            try:
                FolderEntry(entry.folder, os.path.basename(path), shown=path).remove([_MOST_REMOVED])
            except OSError:
                pass  # the new name already makes it harmless
            else:
                return f"{remark} removed"
        return f"{remark} set aside as {path}"

    def _move(self, entry: FolderEntry) -> str:
        if self._aside is not None:
            # It fails if the folder has become a link, or is on another file system.
            with contextlib.suppress(OSError), closing(_make_folder(self._aside)) as folder:
                return os.path.join(self._aside, entry.move(folder, before="-"))
        # No program looks for a file with this name.
        return os.path.join(os.path.dirname(entry.shown), entry.move(entry.folder, after=".cdd-"))


def _capture_path(root: str, name: str, *, budget: ByteBudget) -> PathState | None:
    *above, last = name.split("/")
    try:
        folder = open_root(root)
    except FileNotFoundError:
        return None
    try:
        for part in above:
            inner = FolderEntry(folder, part, shown=name).open()
            os.close(folder)
            folder = inner
        return capture(FolderEntry(folder, last, shown=name), budget)
    except (FileNotFoundError, NotADirectoryError):
        return None
    finally:
        os.close(folder)


def _open_folder(entry: FolderEntry) -> int:
    try:
        return entry.open()
    except PermissionError:  # the program removed permissions
        entry.grant_access()
        return entry.open()


def _make_folder(path: str) -> int:
    """Return a descriptor of a folder; its last two parts are created if missing, and must not be links."""
    above, last = os.path.split(path)
    top, middle = os.path.split(above)
    folder = open_root(top)
    for name in (middle, last):
        with closing(folder):
            entry = FolderEntry(folder, name, shown=name)
            if entry.read_status() is None:
                os.mkdir(name, 0o700, dir_fd=folder)
            folder = entry.open()
    return folder


PATIENCE_S = 900.0
_TICK_S = 0.02


@contextlib.contextmanager
def lock_roots(roots: Iterable[str]) -> Iterator[tuple[int, ...]]:
    """Wait until no other run uses one of the folders, and yield the descriptors that lock them.

    A folder stays locked until every process with its descriptor has closed it, which includes a warden whose caller
    was killed and that is still restoring files. Missing folders, and folders without locks, are not locked.
    Raises ``EnvironmentMissing`` after ``PATIENCE_S``.
    """
    deadline = time.monotonic() + PATIENCE_S
    locks: list[int] = []
    try:
        for root in sorted({os.path.realpath(root) for root in roots}):
            with contextlib.suppress(OSError):
                locks.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                while not _is_locked(locks[-1]):
                    if time.monotonic() > deadline:
                        raise EnvironmentMissing(
                            f"Another run in {root} has not ended for {PATIENCE_S / 60:.0f} minutes.",
                            hint=f"see which process uses the folder: fuser -v {root}",
                        )
                    time.sleep(_TICK_S)
        yield tuple(locks)
    finally:
        for descriptor in locks:
            os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Return whether we hold the lock now; raises ``OSError`` if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
