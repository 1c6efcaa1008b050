"""What lies at a path, to know it again and to put it back; what cannot be kept whole is known by its marks alone."""

import os
import stat

from cdd_agent.sandbox.warden.below import Spot

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
