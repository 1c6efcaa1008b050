"""Paths that stay as they are: looked at before a run and after it, when nothing of the run is alive any more.

A sandbox can protect what is there; a file that is not there yet has nothing to be protected by. What came to be, or
was changed, is set aside if there is a place: a user may have made it in the meantime. Nothing of it is read, so that
mending takes no longer for much than for little; and as this happens outside every sandbox, no link is followed that
was not there before.

What lies at a path, to know it again and to put it back; what cannot be kept whole is known by its marks alone.

One run at a time in a folder that is looked after.

A run's guard takes what it finds for the user's. Were another run under way in the same folder, that could be a file
which the other's guard removes in the end, and this one would put it back.
"""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.warden.supervision import Spot, open_root, ways

_FILE_CAP_BYTES = 1 << 20
_ENTRIES = 300
"""Of a folder with more than that, folders inside it counted too, the rest is not looked at."""
_BLOCK_BYTES = 1 << 16
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Budget:
    """Bytes that may still be kept in memory, of all pictures together."""

    def __init__(self, left_bytes: int) -> None:
        """So many at first."""
        self.left_bytes = left_bytes


class Picture:
    """One file, folder or link as it was."""

    __slots__ = ("bits", "content", "kind", "marks")

    def __init__(self, status: os.stat_result, content: "bytes | str | dict[str, Picture] | None") -> None:
        """``content``: bytes of a file, target of a link, entries of a folder; None if it is not kept."""
        self.kind = stat.S_IFMT(status.st_mode)
        self.bits = stat.S_IMODE(status.st_mode)
        self.marks = _marks(status)
        self.content = content

    def is_at(self, spot: Spot, status: os.stat_result) -> bool:
        """Whether it is still there; of a folder only whether that is the same one. Reads no more than was kept."""
        if stat.S_IFMT(status.st_mode) != self.kind:
            return False
        if isinstance(self.content, bytes):
            has_marks = (stat.S_IMODE(status.st_mode), status.st_size) == (self.bits, len(self.content))
            return has_marks and _holds(spot, self.content)
        if isinstance(self.content, str):
            return os.readlink(spot.name, dir_fd=spot.folder) == self.content
        return _marks(status) == self.marks

    def put_back(self, spot: Spot) -> bool:
        """Make it anew where nothing is; whether that could be done in full."""
        if isinstance(self.content, str):
            os.symlink(self.content, spot.name, dir_fd=spot.folder)
        elif isinstance(self.content, bytes):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(spot.name, flags, 0o600, dir_fd=spot.folder), "wb") as stream:
                stream.write(self.content)
                os.fchmod(stream.fileno(), self.bits)
        elif isinstance(self.content, dict):
            os.mkdir(spot.name, dir_fd=spot.folder)
            folder = spot.opened()
            try:
                whole = [picture.put_back(spot.inside(folder, name)) for name, picture in self.content.items()]
                os.fchmod(folder, self.bits)
            finally:
                os.close(folder)
            return all(whole)
        return self.content is not None


def take(spot: Spot, budget: Budget, *, left: list[int] | None = None) -> Picture | None:
    """What is at a spot, None if nothing is; ``left`` holds how many more entries of folders are looked at."""
    status = spot.status()
    if status is None:
        return None
    try:
        content = _content(spot, status, budget=budget, left=[_ENTRIES] if left is None else left)
    except OSError:
        content = None
    return Picture(status, content)


def names_in(folder: int, *, known: int = 0) -> list[str] | None:
    """What a folder holds, sorted; None if that is far more than is ``known``."""
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) > known + _ENTRIES:
                return None
    return sorted(names)


def _content(
    spot: Spot, status: os.stat_result, *, budget: Budget, left: list[int]
) -> bytes | str | dict[str, Picture] | None:
    """What is kept of it, within the bounds."""
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(spot.name, dir_fd=spot.folder)
    if stat.S_ISDIR(status.st_mode):
        return _entries(spot, budget, left=left)
    if not stat.S_ISREG(status.st_mode) or status.st_size > min(_FILE_CAP_BYTES, budget.left_bytes):
        return None
    with open(os.open(spot.name, _READ, dir_fd=spot.folder), "rb") as stream:
        data = stream.read(_FILE_CAP_BYTES + 1)
    budget.left_bytes -= len(data)
    return data


def _entries(spot: Spot, budget: Budget, *, left: list[int]) -> dict[str, Picture] | None:
    folder = spot.opened()
    try:
        names = names_in(folder)
        left[0] -= _ENTRIES + 1 if names is None else len(names)
        if names is None or left[0] < 0:
            return None
        found = {name: take(spot.inside(folder, name), budget, left=left) for name in names}
        return {name: picture for name, picture in found.items() if picture is not None}
    finally:
        os.close(folder)


def _holds(spot: Spot, content: bytes) -> bool:
    """Whether the file's bytes are these; read in blocks."""
    try:
        handle = os.open(spot.name, _READ, dir_fd=spot.folder)
    except OSError:
        return False
    with open(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return False
        place = 0
        while block := stream.read(_BLOCK_BYTES):
            if content[place : place + len(block)] != block:
                return False
            place += len(block)
    return place == len(content)


def _marks(status: os.stat_result) -> tuple[int, ...]:
    """By what something is known whose content is not: no program can set the time of a file's last change."""
    if stat.S_ISREG(status.st_mode):
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino


_KEPT_BYTES = 8 << 20
"""Of all files together; of those beyond that a change is noticed, and cannot be put back."""


_MOST_REMOVED = 200
"""A folder with more entries in all stays, under another name, where nothing can be set aside."""


class Guard:
    """Knows what its paths were, and puts them back."""

    def __init__(self, kept: list[tuple[str, str]], aside: str | None) -> None:
        """Look at each path, given as a folder and a name below it; a link stands with what it leads to."""
        self._aside = None if aside is None else os.path.realpath(aside)
        self._remarks: list[str] = []
        budget = Budget(_KEPT_BYTES)
        names = dict.fromkeys((root, way) for root, name in kept for way in ways(root, name))
        before = []
        for root, name in names:
            try:
                before.append((root, name, _taken(root, name, budget=budget)))
            except OSError:
                continue  # nobody may look there
        self._before = sorted(before, key=lambda seen: seen[2] is None or not stat.S_ISLNK(seen[2].kind))

    def mend(self) -> list[str]:
        """Put back what is no more as it was, links first; one remark each."""
        self._remarks = []
        for root, name, before in self._before:
            try:
                self._look(root, name, before=before)
            except OSError as error:
                self._remarks.append(f"{name} may have been changed by a program in the sandbox: {error}")
        return self._remarks

    def _look(self, root: str, name: str, *, before: Picture | None) -> None:
        """Compare what is at ``name``; a link that has come to be on the way is out of it first."""
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
                spot = Spot(folder, part, shown="/".join(above[:number]))
                if not self._is_passable(spot, is_needed=before is not None):
                    return
                inner = _entered(spot)
                os.close(folder)
                folder = inner
            self._compare(Spot(folder, last, shown=name), before)
        finally:
            os.close(folder)

    def _is_passable(self, spot: Spot, *, is_needed: bool) -> bool:
        """Whether a folder is at a spot on the way; one that is needed is made."""
        status = spot.status()
        if status is not None and not stat.S_ISDIR(status.st_mode):
            if not is_needed and not stat.S_ISLNK(status.st_mode):
                return False
            self._remarks.append(self._set_aside(spot, was_there=False))
            status = None
        if status is None and is_needed:
            os.mkdir(spot.name, dir_fd=spot.folder)
        return status is not None or is_needed

    def _compare(self, spot: Spot, before: Picture | None) -> None:
        status = spot.status()
        if before is None:
            if status is not None:
                self._remarks.append(self._set_aside(spot, was_there=False))
            return
        if status is not None and isinstance(before.content, dict) and stat.S_ISDIR(status.st_mode):
            if self._compare_entries(spot, before.content):
                return
        elif status is not None and before.is_at(spot, status):
            return
        if status is None:
            said, end = f"{spot.shown} was removed by a program in the sandbox", ", and is put back"
        else:
            said, end = self._set_aside(spot, was_there=True), ""
        is_whole = before.put_back(spot)
        self._remarks.append(said + (end if is_whole else "; not all of it could be kept to put it back"))

    def _compare_entries(self, spot: Spot, before: dict[str, Picture]) -> bool:
        """Compare each entry of a folder, unless there are so many new ones that it is no more the folder it was."""
        folder = _entered(spot)
        try:
            names = names_in(folder, known=len(before))
            for name in () if names is None else sorted({*names, *before}):
                self._compare(spot.inside(folder, name), before.get(name))
        finally:
            os.close(folder)
        return names is not None

    def _set_aside(self, spot: Spot, *, was_there: bool) -> str:
        """Move what is at a spot out of the way; the remark that tells of it."""
        what = "was changed" if was_there else "came to be"
        said = f"{spot.shown} {what} while a program ran in the sandbox, and is"
        place = self._moved(spot)
        if self._aside is None:
            try:
                Spot(spot.folder, os.path.basename(place), shown=place).remove([_MOST_REMOVED])
            except OSError:
                pass  # it is not in the way any more
            else:
                return f"{said} removed"
        return f"{said} set aside as {place}"

    def _moved(self, spot: Spot) -> str:
        """Move what is at a spot to the folder for that; if that cannot be, give it a name that nobody obeys."""
        if self._aside is not None:
            try:
                folder = _made(self._aside)
                try:
                    return os.path.join(self._aside, spot.move(folder, before="-"))
                finally:
                    os.close(folder)
            except OSError:
                pass  # it is a link now, or on another file system
        return os.path.join(os.path.dirname(spot.shown), spot.move(spot.folder, after=".cdd-"))


def _taken(root: str, name: str, *, budget: Budget) -> Picture | None:
    """What is at a name; None if that, or a folder above it, is missing."""
    *above, last = name.split("/")
    try:
        folder = open_root(root)
    except FileNotFoundError:
        return None
    try:
        for part in above:
            inner = Spot(folder, part, shown=name).opened()
            os.close(folder)
            folder = inner
        return take(Spot(folder, last, shown=name), budget)
    except (FileNotFoundError, NotADirectoryError):
        return None
    finally:
        os.close(folder)


def _entered(spot: Spot) -> int:
    """A descriptor of the folder at a spot, even if the run took away the right to look into it."""
    try:
        return spot.opened()
    except PermissionError:
        spot.allow()
        return spot.opened()


def _made(path: str) -> int:
    """A descriptor of a folder, of which the last two parts are made if missing, and are no links."""
    above, last = os.path.split(path)
    top, middle = os.path.split(above)
    folder = open_root(top)
    for name in (middle, last):
        try:
            spot = Spot(folder, name, shown=name)
            if spot.status() is None:
                os.mkdir(name, 0o700, dir_fd=folder)
            inner = spot.opened()
        finally:
            os.close(folder)
        folder = inner
    return folder


PATIENCE_S = 900.0
"""Longer than a run may take."""
_TICK_S = 0.02


@contextlib.contextmanager
def turn(roots: Iterable[str]) -> Iterator[tuple[int, ...]]:
    """Wait until no other run looks after one of the folders; gives the descriptors that hold them locked.

    A folder stays locked until every process that got its descriptor has closed it, and so until a warden whose
    caller was killed has put everything back. A folder that is missing or cannot be locked has no turns.
    Raises ``EnvironmentMissing`` after ``PATIENCE_S``.
    """
    deadline = time.monotonic() + PATIENCE_S
    held: list[int] = []
    try:
        for root in sorted({os.path.realpath(root) for root in roots}):
            with contextlib.suppress(OSError):
                held.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                while not _is_ours(held[-1]):
                    if time.monotonic() > deadline:
                        raise EnvironmentMissing(
                            f"Another run in {root} has not ended for {PATIENCE_S / 60:.0f} minutes.",
                            hint=f"see who holds the folder: fuser -v {root}",
                        )
                    time.sleep(_TICK_S)
        yield tuple(held)
    finally:
        for descriptor in held:
            os.close(descriptor)


def _is_ours(descriptor: int) -> bool:
    """Whether the folder is locked for us now; raises ``OSError`` where folders have no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
