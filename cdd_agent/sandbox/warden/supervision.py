"""Parts shared by the warden and its caller: the protocol, buffers and process trees.

Processes are found by their parents. The warden is a subreaper (``kernel.become_reaper``), so orphans become its
children, and no process leaves its tree by a new group, session or name, or by the end of its parent.
"""

import contextlib
import os
import time

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
        """None: no Landlock and no limit on sockets, because the sandbox confines files and network otherwise."""

    class Order(TypedDict):
        """One run, serialized with ``marshal``, which needs no import time."""

        argv: list[str]
        environment: dict[str, str]
        cwd: str
        timeout_s: float
        output_cap: int
        limits: list[tuple[int, int]]
        rules: Rules | None
        stdin: int
        """The warden's descriptor for the program's standard input, a socket; -1: the program reads nothing."""
        stdout: int
        """The warden's descriptor for the program's standard output; -1: it belongs to the output."""
        kill_command: list[str]
        """Ends a program outside the warden's process tree, such as a container; may be empty."""


FIELDS = 6
"""Numbers at the start of an answer, each followed by a NUL: errno of a failed start, exit status, dropped bytes,
timeout, survivors, size of the head. The head and tail of the output follow."""

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
    # To the system, the groups -1, 0 and 1 mean other processes than those of one group.
    spared = {os.getpgrp(), _read_stat(root)[2], -1, 0, 1}
    empty_looks = 0
    while empty_looks < _ENOUGH_LOOKS:
        below = list_below(root)
        living = [pid for pid in below if is_alive(pid)]
        empty_looks = 0 if living else empty_looks + 1
        # One signal reaches a whole group, however fast it forks. The groups of ended processes too: one that forks on
        # and ends may be missing in every list of living ones.
        for group in {*below.values()} - spared:
            _kill(-group)
        for pid in living:
            if below[pid] in spared:
                _kill(pid)
        if time.monotonic() > deadline:
            return sum(map(is_alive, living))
        if living:
            time.sleep(pause_s)
            pause_s = min(pause_s + 0.0002, 0.005)
    return 0


def list_below(root: int) -> dict[int, int]:
    """Return process -> process group of all processes below ``root``, also ended ones; empty without ``/proc``."""
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
    return {pid: table[pid][2] for pid in found[1:]}


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, _KILL)
