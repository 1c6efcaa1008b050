"""Names in open folders, so that no link is followed: neither on the way to a path nor at its end.

Whoever puts a link in the place of a folder makes the opening fail, and nothing below it is reached.

What a warden is told, and what it answers.

The output of a program whose end nobody knows, in little memory: its head and its tail.

The descendants of a process, found and ended, whatever they did to get away.

An orphan becomes a child of its nearest ancestor that asked for orphans (``kernel.become_reaper``), so that nothing
leaves the tree of a warden: not by a process group, a session or a name of its own, nor by a parent that ends.
"""

import errno
import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Paths(TypedDict):
        """The files that Landlock allows; every other is refused."""

        read: list[str]
        write: list[str]

    class Rules(TypedDict):
        """What the kernel refuses the program, besides keys and what else ``seccomp.instructions`` always does."""

        paths: Paths | None
        """None: no Landlock, since something else keeps files and network away."""
        network: bool
        """Whether every socket is left to the program."""

    class Order(TypedDict):
        """One run; passed as ``marshal`` does, which both ends have at no cost."""

        argv: list[str]
        environment: dict[str, str]
        cwd: str
        timeout_s: float
        output_cap: int
        limits: list[tuple[int, int]]
        rules: Rules | None
        kept: list[tuple[str, str]]
        """Folder that the program may write to, and a path relative to it that stays as it is."""
        aside: str | None
        ending: list[str]
        """A command that ends what is no descendant of the warden, such as a container; may be empty."""
        held: list[int]
        """Descriptors that keep other runs away as long as the warden has them; the program gets none."""


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


"""As in ``typing``, which is not imported here: it takes long."""


FIELDS = 6
"""Numbers before an answer's text: errno of a failed start, exit status, dropped bytes, time-out, survivors, head.

Each ends with a NUL; after them come head and tail of the output, the last number being the size of the head."""

MENDED = b"m"
"""Said to a warden that has answered: what stays as it is has been compared; it does so itself unless it hears that."""

GRACE_S = 0.5
"""From the polite signal to the one that cannot be caught."""
SWEEP_S = 1.2
"""For ending what does not want to be ended; together less than the two seconds that a call may take longer."""


class Ring:
    """Keeps the first and the last bytes of what it is fed."""

    __slots__ = ("_half", "_head", "_tail", "_total")

    def __init__(self, cap: int) -> None:
        """``cap`` bytes are kept in all."""
        self._half = cap // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Take what came next."""
        self._total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half + 65_536:
            del self._tail[: -(self._half + 1)]

    def kept(self) -> tuple[bytes, bytes, int]:
        """Head and tail of what came, and how many bytes are missing between them; all of it is the head."""
        if self._total <= 2 * self._half:
            return bytes(self._head + self._tail), b"", 0
        tail = self._tail[-self._half :] if self._half else b""
        return bytes(self._head), bytes(tail), self._total - len(self._head) - len(tail)


_DEAD = ("", "Z", "X")
"""States of what does nothing any more."""
_ENOUGH_LOOKS = 2
_KILL = 9
"""SIGKILL; the module ``signal`` takes long to import."""


def _stat(pid: int) -> tuple[str, int, int]:
    """The letter of its state, its parent and its process group; ``("", 0, 0)`` if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            state, parent, group = stream.read().rpartition(b") ")[2].split()[:3]
    except (OSError, ValueError):
        return "", 0, 0
    return state.decode(), int(parent), int(group)


def is_alive(pid: int) -> bool:
    """Whether a process does anything yet."""
    return _stat(pid)[0] not in _DEAD


def end_all(root: int, deadline: float) -> int:
    """End everything below ``root`` again and again until nothing is left; how many are, at the ``deadline``.

    Whole process groups are ended: one signal of the kernel's reaches all of a group, however quickly it forks.
    Nothing is left once two looks in a row find nothing. Only a parent can be sure, by having no child to wait for:
    a process may fork after the look has passed the child and end before the look comes to it.
    """
    pause_s = 0.0
    spared = {os.getpgrp(), _stat(root)[2]}
    empty_looks = 0
    while empty_looks < _ENOUGH_LOOKS:
        living = living_below(root)
        empty_looks = 0 if living else empty_looks + 1
        for pid, group in living.items():
            _kill(-group if group not in spared else pid)
        if time.monotonic() > deadline:
            return sum(map(is_alive, living))
        if living:
            time.sleep(pause_s)
            pause_s = min(pause_s + 0.0002, 0.005)
    return 0


def living_below(root: int) -> dict[int, int]:
    """Process and process group of whatever does anything yet below ``root``, from one look at all processes.

    Empty where the system does not list processes under ``/proc``.
    """
    try:
        listed = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return {}
    table = {pid: _stat(pid) for pid in listed}
    below = {root}
    found = [root]
    for known in found:
        more = [pid for pid, (_, parent, _) in table.items() if parent == known and pid not in below]
        below.update(more)
        found.extend(more)
    return {pid: table[pid][2] for pid in found[1:] if table[pid][0] not in _DEAD}


def _kill(pid: int) -> None:
    try:
        os.kill(pid, _KILL)
    except OSError:
        return
