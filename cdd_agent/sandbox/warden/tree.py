"""The descendants of a process, found and ended, whatever they did to get away.

An orphan becomes a child of its nearest ancestor that asked for orphans (``kernel.become_reaper``), so that nothing
leaves the tree of a warden: not by a process group, a session or a name of its own, nor by a parent that ends.
"""

import os
import time

_DEAD = ("", "Z", "X")
"""States of what does nothing any more."""
KILL = 9
"""SIGKILL; the module ``signal`` takes long to import."""


def descendants(root: int) -> list[int]:
    """The processes below ``root``, parents before children; zombies too."""
    found = _children(root)
    for pid in found:
        found.extend(_children(pid))
    return found


def _children(pid: int) -> list[int]:
    """The children of all threads of a process; none if it has ended."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as stream:
                found.extend(map(int, stream.read().split()))
    except FileNotFoundError:
        return found if _KERNEL_LISTS_CHILDREN else _by_parents(pid)
    except (OSError, ValueError):
        return found
    return found


_KERNEL_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _by_parents(parent: int) -> list[int]:
    """The children of a process where the kernel does not list them."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _stat(int(name))[1] == parent]


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
    """
    pause_s = 0.0
    spared = {os.getpgrp(), _stat(root)[2]}
    while True:
        living = _living_below(root)
        for pid, group in living.items():
            _kill(-group if group not in spared else pid)
        if not living:
            return 0
        if time.monotonic() > deadline:
            return sum(map(is_alive, living))
        time.sleep(pause_s)
        pause_s = min(pause_s + 0.0002, 0.005)


def _living_below(root: int) -> dict[int, int]:
    """Process and process group of whatever does anything yet below ``root``, from one look at all processes."""
    table = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    below = {root}
    found = [root]
    for known in found:
        more = [pid for pid, (_, parent, _) in table.items() if parent == known and pid not in below]
        below.update(more)
        found.extend(more)
    return {pid: table[pid][2] for pid in found[1:] if table[pid][0] not in _DEAD}


def _kill(pid: int) -> None:
    try:
        os.kill(pid, KILL)
    except OSError:
        return
