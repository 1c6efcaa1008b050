"""Names in open folders, so that no link is followed: neither on the way to a path nor at its end.

Whoever puts a link in the place of a folder makes the opening fail, and nothing below it is reached.
"""

import errno
import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_HOPS = 40
"""Links on one way, as for the kernel."""
_PLACES = 100
"""Numbers that are tried for a name before one is drawn: somebody may have taken them all."""


class Spot:
    """A name in an open folder, and as what it is shown."""

    def __init__(self, folder: int, name: str, *, shown: str) -> None:
        """``folder`` is a descriptor that stays its owner's."""
        self.folder = folder
        self.name = name
        self.shown = shown

    def inside(self, folder: int, name: str) -> "Spot":
        """A name in the folder at this spot, which ``opened`` has opened."""
        return Spot(folder, name, shown=f"{self.shown}/{name}")

    def status(self) -> os.stat_result | None:
        """What is there, of a link the link; None if nothing is."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def opened(self) -> int:
        """A descriptor of the folder that is there."""
        return os.open(self.name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.folder)

    def allow(self) -> None:
        """Give ourselves back the right to look into the folder that is there, and to move it."""
        handle = os.open(self.name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.folder)
        try:
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(os.fstat(handle).st_mode) | 0o700)
        finally:
            os.close(handle)

    def remove(self, left: list[int]) -> None:
        """Delete what is there; raises ``OSError`` where it is more than the entries that ``left`` holds."""
        status = self.status()
        if status is None or not stat.S_ISDIR(status.st_mode):
            os.unlink(self.name, dir_fd=self.folder)
            return
        self.allow()
        folder = self.opened()
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry, _ in zip(entries, range(left[0] + 1), strict=False)]
            left[0] -= len(names)
            if left[0] < 0:
                raise OSError(errno.E2BIG, "It holds too much")
            for name in names:
                self.inside(folder, name).remove(left)
        finally:
            os.close(folder)
        os.rmdir(self.name, dir_fd=self.folder)

    def move(self, folder: int, *, before: str = "", after: str = "") -> str:
        """Move what is there into ``folder``, under a free name that is told; its number comes at one of its ends."""
        start = self.name[:60]
        for number in (*range(1, _PLACES), os.urandom(8).hex()):
            name = f"{number}{before}{start}" if before else f"{start}{after}{number}"
            if Spot(folder, name, shown=name).status() is None:
                break
        try:
            os.rename(self.name, name, src_dir_fd=self.folder, dst_dir_fd=folder)
        except PermissionError:
            os.fchmod(self.folder, stat.S_IMODE(os.fstat(self.folder).st_mode) | 0o700)
            status = self.status()
            if status is not None and stat.S_ISDIR(status.st_mode):
                self.allow()
            os.rename(self.name, name, src_dir_fd=self.folder, dst_dir_fd=folder)
        return name


def open_root(root: str) -> int:
    """A descriptor of a folder above which nobody but the user has changed anything."""
    return os.open(root, _FOLDER)


def ways(root: str, name: str) -> list[str]:
    """``name`` and each link by which it leads elsewhere, as names below ``root`` without a link above them.

    The last is where ``name`` leads in the end, unless that is outside ``root``: nothing there is ours to keep.
    """
    found: list[str] = []
    done: list[str] = []
    left = name.split("/")[::-1]
    while left and len(found) < _HOPS:
        part = left.pop()
        if part == ".." and not done:
            return found + _back_inside(root, "/".join(("..", *left[::-1])))
        if part == "..":
            done.pop()
            continue
        if part in ("", "."):
            continue
        path = "/".join((*done, part))
        try:
            target = os.readlink(os.path.join(root, path))
        except OSError:
            done.append(part)
            continue
        found.append(path)
        if target.startswith(root.rstrip("/") + "/"):
            done, target = [], target[len(root) :]
        elif target.startswith("/"):
            return found + _back_inside(root, "/".join((target, *left[::-1])))
        left += target.split("/")[::-1]
    return [*found, "/".join(done)] if done and not left else found


def _back_inside(root: str, path: str) -> list[str]:
    """Where a path that leaves the root leads, if that is in the root after all."""
    top = os.path.realpath(root)
    real = os.path.realpath(os.path.join(root, path))
    return [os.path.relpath(real, top)] if real.startswith(top.rstrip("/") + "/") else []
