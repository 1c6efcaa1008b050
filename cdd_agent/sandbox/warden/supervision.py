"""Parts shared by the warden and its caller: file access without links, the protocol, buffers and process trees.

Protected files are handled outside the sandbox, so all access goes through open folders and never follows a link: if a
program replaces a folder by a link, opening it fails.

Processes are found by their parents. The warden is a subreaper (``kernel.become_reaper``), so orphans become its
children, and no process leaves its tree by a new group, session or name, or by the end of its parent.
"""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator

TYPE_CHECKING = False  # as in `typing`, whose import would take too long here
if TYPE_CHECKING:
    from typing import TypedDict

    class Paths(TypedDict):
        """The files that Landlock allows; it refuses all others."""

        read: list[str]
        write: list[str]

    class Rules(TypedDict):
        """Restrictions that the kernel enforces; ``kernel.build_filter`` lists those that always apply."""

        paths: Paths | None
        """None: no Landlock, because the sandbox confines files and network otherwise."""
        network: bool
        """Whether the program may use every kind of socket."""

    class Order(TypedDict):
        """One run, serialized with ``marshal``, which needs no import time."""

        argv: list[str]
        environment: dict[str, str]
        cwd: str
        timeout_s: float
        output_cap: int
        limits: list[tuple[int, int]]
        rules: Rules | None
        protected: list[tuple[str, str]]
        """A writable folder, and a path relative to it to restore after the run."""
        aside: str | None
        kill_command: list[str]
        """Ends a program outside the warden's process tree, such as a container; may be empty."""
        locks: list[int]
        """Descriptors of locked folders; the warden keeps them open, the program gets none."""


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_LINKS = 40
_MOST_NUMBERS = 100
"""Numbers to try for a free name before a random one; a program may have taken them all."""


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Yield an open descriptor, and close it after the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class FolderEntry:
    """A name in an open folder."""

    def __init__(self, folder: int, name: str, *, shown: str) -> None:
        """``folder`` is a descriptor that the caller closes; ``shown`` is the path for messages."""
        self.folder = folder
        self.name = name
        self.shown = shown

    def inside(self, folder: int, name: str) -> "FolderEntry":
        """Return an entry of the folder at this entry, whose descriptor is ``folder``."""
        return FolderEntry(folder, name, shown=f"{self.shown}/{name}")

    def read_status(self) -> os.stat_result | None:
        """Return the status without following a link; None if the entry does not exist."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self) -> int:
        """Return a descriptor of the folder at this entry; fails for a link."""
        return os.open(self.name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.folder)

    def grant_access(self) -> None:
        """Restore the owner's permissions of the folder at this entry."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with closing(os.open(self.name, flags, dir_fd=self.folder)) as handle:
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(os.fstat(handle).st_mode) | 0o700)

    def remove(self, left: list[int]) -> None:
        """Delete the entry recursively; raises ``OSError`` after ``left[0]`` entries."""
        status = self.read_status()
        if status is None or not stat.S_ISDIR(status.st_mode):
            os.unlink(self.name, dir_fd=self.folder)
            return
        self.grant_access()
        with closing(self.open()) as folder:
            with os.scandir(folder) as entries:
                names = [entry.name for entry, _ in zip(entries, range(left[0] + 1), strict=False)]
            left[0] -= len(names)
            if left[0] < 0:
                raise OSError(errno.E2BIG, "It holds too many entries")
            for name in names:
                self.inside(folder, name).remove(left)
        os.rmdir(self.name, dir_fd=self.folder)

    def move(self, folder: int, *, before: str = "", after: str = "") -> str:
        """Move the entry into ``folder`` under a free name, and return the name.

        The name has a number, followed by ``before`` and the old name, or preceded by the old name and ``after``.
        """
        start = self.name[:60]
        for number in (*range(1, _MOST_NUMBERS), os.urandom(8).hex()):
            name = f"{number}{before}{start}" if before else f"{start}{after}{number}"
            if FolderEntry(folder, name, shown=name).read_status() is None:
                break
        try:
            os.rename(self.name, name, src_dir_fd=self.folder, dst_dir_fd=folder)
        except PermissionError:  # the program removed permissions
            os.fchmod(self.folder, stat.S_IMODE(os.fstat(self.folder).st_mode) | 0o700)
            status = self.read_status()
            if status is not None and stat.S_ISDIR(status.st_mode):
                self.grant_access()
            os.rename(self.name, name, src_dir_fd=self.folder, dst_dir_fd=folder)
        return name


def open_root(root: str) -> int:
    """Return a descriptor of a folder whose parents only the user can change."""
    return os.open(root, _FOLDER)


def resolve_links(root: str, name: str) -> list[str]:
    """Return the links between ``name`` and its target, and the target, as names below ``root``; none outside it."""
    found: list[str] = []
    done: list[str] = []
    left = name.split("/")[::-1]
    while left and len(found) < _MOST_LINKS:
        part = left.pop()
        if part == ".." and not done:
            return found + _resolve_outside(root, "/".join(("..", *left[::-1])))
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
            return found + _resolve_outside(root, "/".join((target, *left[::-1])))
        left += target.split("/")[::-1]
    return [*found, "/".join(done)] if done and not left else found


def _resolve_outside(root: str, path: str) -> list[str]:
    # A path that leaves the root may still lead back into it.
    top = os.path.realpath(root)
    real = os.path.realpath(os.path.join(root, path))
    return [os.path.relpath(real, top)] if real.startswith(top.rstrip("/") + "/") else []


FIELDS = 6
"""Numbers at the start of an answer, each followed by a NUL: errno of a failed start, exit status, dropped bytes,
timeout, survivors, size of the head. The head and tail of the output follow."""

REPAIRED = b"m"
"""Tells the warden that protected paths are restored; otherwise it does so itself."""

GRACE_S = 0.5
SWEEP_S = 1.2
"""Time to end the remaining processes. Both together stay below two seconds, which a call may last longer."""


class OutputBuffer:
    """Keeps the first and last bytes of an output, in limited memory."""

    __slots__ = ("_half", "_head", "_tail", "_total")

    def __init__(self, cap: int) -> None:
        """``cap`` is the number of bytes to keep."""
        self._half = cap // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        self._total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half + 65_536:
            del self._tail[: -(self._half + 1)]

    def read(self) -> tuple[bytes, bytes, int]:
        """Return head, tail and the number of bytes dropped between them; the head is everything if none are."""
        if self._total <= 2 * self._half:
            return bytes(self._head + self._tail), b"", 0
        tail = self._tail[-self._half :] if self._half else b""
        return bytes(self._head), bytes(tail), self._total - len(self._head) - len(tail)


_DEAD = ("", "Z", "X")
_ENOUGH_LOOKS = 2
_KILL = 9  # SIGKILL; importing `signal` takes too long


def _read_stat(pid: int) -> tuple[str, int, int]:
    """Return state, parent and process group; ``("", 0, 0)`` if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            state, parent, group = stream.read().rpartition(b") ")[2].split()[:3]
    except (OSError, ValueError):
        return "", 0, 0
    return state.decode(), int(parent), int(group)


def is_alive(pid: int) -> bool:
    """Return whether a process is running."""
    return _read_stat(pid)[0] not in _DEAD


def end_all(root: int, deadline: float) -> int:
    """Kill everything below ``root`` until nothing is left or the ``deadline`` passes; return how many are left.

    Only a parent without children to wait for can be certain: a process may fork after its child was listed and end
    before it is listed itself. Therefore two empty lists in a row are needed.
    """
    pause_s = 0.0
    spared = {os.getpgrp(), _read_stat(root)[2]}
    empty_looks = 0
    while empty_looks < _ENOUGH_LOOKS:
        living = list_living(root)
        empty_looks = 0 if living else empty_looks + 1
        for pid, group in living.items():
            # One signal reaches the whole group, however fast it forks.
            _kill(-group if group not in spared else pid)
        if time.monotonic() > deadline:
            return sum(map(is_alive, living))
        if living:
            time.sleep(pause_s)
            pause_s = min(pause_s + 0.0002, 0.005)
    return 0


def list_living(root: int) -> dict[int, int]:
    """Return process -> process group of all running processes below ``root``; empty without ``/proc``."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return {}
    table = {pid: _read_stat(pid) for pid in pids}
    below = {root}
    found = [root]
    for known in found:
        more = [pid for pid, (_, parent, _) in table.items() if parent == known and pid not in below]
        below.update(more)
        found.extend(more)
    return {pid: table[pid][2] for pid in found[1:] if table[pid][0] not in _DEAD}


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, _KILL)
