"""The descendants of a process, found and ended, whatever they did to get away.

An orphan becomes a child of its nearest ancestor that asked for orphans (``kernel.become_reaper``), so that nothing
leaves the tree of a warden: not by a process group, a session or a name of its own, nor by a parent that ends.
"""

import os
import time

KILL = 9
"""SIGKILL; the module ``signal`` takes long to import."""


def descendants(root: int, *, exactly: bool = False) -> list[int]:
    """The processes below ``root``, parents before children; zombies too.

    The kernel's own lists of children are quick, but may lack one while another ends; ``exactly``: without them.
    """
    listed = _by_parents if exactly else _children
    found = listed(root)
    for pid in found:
        found.extend(listed(pid))
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
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _state_and_parent(int(name))[1] == parent]


def _state_and_parent(pid: int) -> tuple[str, int]:
    """The letter of its state and its parent; ``("", 0)`` if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            state, parent = stream.read().rpartition(b") ")[2].split()[:2]
    except (OSError, ValueError):
        return "", 0
    return state.decode(), int(parent)


def is_alive(pid: int) -> bool:
    """Whether a process does anything yet."""
    return _state_and_parent(pid)[0] not in ("", "Z", "X")


def end_all(root: int, deadline: float) -> int:
    """End everything below ``root`` again and again until nothing is left; how many are, at the ``deadline``.

    What is overlooked in one round is found in the next if it is ``root``'s then: a caller who is not ``root`` itself
    cannot know, so no process is overlooked for it.
    """
    pause_s = 0.0
    while True:
        living = [pid for pid in descendants(root, exactly=root != os.getpid()) if is_alive(pid)]
        for pid in living:
            _kill(pid)
        if not living:
            return 0
        if time.monotonic() > deadline:
            return sum(map(is_alive, living))
        time.sleep(pause_s)
        pause_s = min(pause_s + 0.0002, 0.005)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, KILL)
    except OSError:
        return
