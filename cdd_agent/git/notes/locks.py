"""git's own lock of a ref: a file that says nothing of who made it, and stays if that process is killed."""

import contextlib
import os
import time
from pathlib import Path

from cdd_agent.git.place import Place

STALE_S = 600.0
"""How long a lock must have been there to be one that a killed process left: git holds it for a moment."""
_PROCESSES = Path("/proc")


def lock_of(place: Place, ref: str) -> Path:
    """Where git locks ``ref``."""
    return place.common_dir / f"{ref}.lock"


def stale_lock(place: Place, ref: str) -> Path | None:
    """The lock of ``ref`` if it has been there for ``STALE_S``: nothing can be written while it is."""
    lock = lock_of(place, ref)
    with contextlib.suppress(OSError):
        if time.time() - lock.lstat().st_mtime >= STALE_S:
            return lock
    return None


def owner(lock: Path, *, place: Place) -> str | None:
    """Who may hold ``lock``: a process that has it open, or a git that is at work in the repository; None if nobody.

    A git whose folder cannot be seen, another user's, may be at work here.
    """
    if not (_PROCESSES / "self" / "fd").is_dir():
        return "a process that this system does not show"
    for process in _PROCESSES.glob("[0-9]*"):
        name = _name(process)
        at_work = name.split("-")[0] == "git" and _is_in(process, folders=(place.root, place.common_dir))
        if at_work or str(lock) in _opened(process):
            return f"{name} (process {process.name})"
    return None


def _name(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "comm").read_text(errors="replace").strip()
    return ""


def _is_in(process: Path, *, folders: tuple[Path, ...]) -> bool:
    """Whether a process stands in one of ``folders``, as far as can be seen."""
    try:
        cwd = Path(os.readlink(process / "cwd"))
    except PermissionError:
        return True
    except OSError:  # it has ended
        return False
    return any(cwd.is_relative_to(folder) for folder in folders)


def _opened(process: Path) -> frozenset[str]:
    """What a process has open; nothing of those that may not be looked at."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(process / "fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(process / "fd" / name))
    return frozenset(found)
