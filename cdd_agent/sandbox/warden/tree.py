"""The descendants of a process, found and ended, whatever they did to get away.

An orphan becomes a child of its nearest ancestor that asked for orphans (``kernel.become_reaper``), so that nothing
leaves the tree of a warden: not by a process group, a session or a name of its own, nor by a parent that ends.
"""

import os
import time

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
