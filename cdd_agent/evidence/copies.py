"""Clean copies for the checks of one phase: checks of the same trees use the same copy, one after the other.

A copy is lent again only if it is as it was made. What was added to it is deleted. All files are read again, because on
some file systems a program can write to a file without changing its times; if one differs, the copy is made anew.
"""

import hashlib
import os
import stat
import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cdd_agent.evidence.clean_copy import clean_copy, find_layout
from cdd_agent.git.repository import Repository
from cdd_agent.git.run_tree import clear_way, delete_folder
from cdd_agent.testrun.suite import Suite


class CleanCopies:
    """The clean copies of one project. They are deleted by ``close``, or together with this object."""

    def __init__(self, repository: Repository, suite: Suite) -> None:
        """Make nothing before the first use."""
        self._repository, self._suite = repository, suite
        self._free: defaultdict[tuple[str, str], list[_Copy]] = defaultdict(list)
        self._stack = ExitStack()
        weakref.finalize(self, self._stack.close)

    @contextmanager
    def lend(self, *, green: str, red: str) -> Iterator[Suite]:
        """Lend the suite in a copy of ``green`` with the protected files of ``red``; see ``clean_copy``."""
        free = self._free[green, red]
        copy = free.pop() if free else None
        if copy is None or not copy.clean():
            copy = self._make(green=green, red=red)
        try:
            yield copy.suite
        finally:
            free.append(copy)

    def _make(self, *, green: str, red: str) -> "_Copy":
        suite = self._stack.enter_context(clean_copy(self._repository, self._suite, green=green, red=red))
        project = find_layout(self._repository, self._suite).project
        return _Copy(suite, suite.root.parents[project.count("/")] if project else suite.root)

    def close(self) -> None:
        """Delete all copies."""
        self._free.clear()
        self._stack.close()


class _Copy:
    """A copy, and what was in it when it was made."""

    def __init__(self, suite: Suite, top: Path) -> None:
        self.suite = suite
        self._top = top
        clear_way(top)  # now too, because it changes the modes of git's objects
        self._made = {path: (_describe(about), _read(path, about)) for path, about in _walk(top)}

    def clean(self) -> bool:
        """Delete what was added, and return whether the rest is as it was."""
        missing = set(self._made)
        try:
            clear_way(self._top)
            for path, about in _walk(self._top):
                if path not in missing:
                    delete_folder(Path(path)) if stat.S_ISDIR(about.st_mode) else os.unlink(path)
                # The description first: a program may have left a file of any size.
                elif self._made[path][0] != _describe(about) or self._made[path][1] != _read(path, about):
                    return False
                missing.discard(path)
        except OSError:
            return False
        return not missing


def _walk(top: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what is in a folder; the caller may delete it."""
    waiting = [str(top)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            found = [(entry.path, entry.stat(follow_symlinks=False)) for entry in entries]
        yield from found
        waiting += [path for path, about in found if stat.S_ISDIR(about.st_mode) and os.path.lexists(path)]


def _describe(about: os.stat_result) -> tuple[int, ...]:
    """Return what a file is without its content; of a folder only the mode counts."""
    # Through a second name, a later write would reach the file.
    return (about.st_mode,) if stat.S_ISDIR(about.st_mode) else (about.st_mode, about.st_size, about.st_nlink)


def _read(path: str, about: os.stat_result) -> bytes:
    if stat.S_ISLNK(about.st_mode):
        return os.fsencode(os.readlink(path))
    return hashlib.sha256(Path(path).read_bytes()).digest() if stat.S_ISREG(about.st_mode) else b""
