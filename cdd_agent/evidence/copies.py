"""The clean copies of one project, which all checks of a step share.

Checks of the same trees use one copy, in turn, as long as it is unchanged. Files that a check added are deleted. A
file with other times is read again; where a program can write to a file without changing its times, all files are. If
one differs, the copy is made anew. If a copy has many files, and checks of other trees need one, it is changed to these
trees.
"""

import contextlib
import hashlib
import mmap
import os
import stat
import tempfile
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cdd_agent.evidence.clean_copy import CopyFolder, find_layout, find_protected_entries, make_folder
from cdd_agent.git.repository import Repository, is_sparse
from cdd_agent.git.run_tree import clear_way, delete_folder
from cdd_agent.git.runner import GitError
from cdd_agent.testrun.suite import Suite

_CLOCK_TICK_S = 0.02
"""File systems may tell times apart only by 10 ms."""


_MANY_FILES = 1000
"""Writing so many takes longer than changing another copy."""


class CleanCopies:
    """The clean copies of one project. They are deleted by ``close``, or together with this object."""

    def __init__(self, repository: Repository, suite: Suite, *, many_files: int = _MANY_FILES) -> None:
        """Make nothing before the first use. A free copy with ``many_files`` or more is changed to other trees."""
        self._many_files = many_files
        self._repository, self._suite = repository, suite
        self._free: defaultdict[tuple[str, ...], list[_Copy]] = defaultdict(list)
        self._alone = threading.Lock()
        self._stack = ExitStack()
        weakref.finalize(self, self._stack.close)

    @contextmanager
    def lend(self, *, green: str, red: str) -> Iterator[Suite]:
        """Lend the suite in a copy of ``green`` with the protected files of ``red``; see ``clean_copy``."""
        layout, objects = find_layout(self._repository, self._suite), self._repository.objects
        with self._alone:  # a repository answers one thread at a time
            others = find_protected_entries(self._repository, green=green, red=red, layout=layout)
            key = objects.require(f"{green}^{{tree}}").id, *map(str, others.items())
            copy = self._reuse(key, green=green, red=red)
            if copy is None:
                place = self._stack.enter_context(make_folder(self._repository))
                copy = self._fill(place, green=green, red=red)
        try:
            yield copy.suite
        finally:
            self._free[key].append(copy)

    def _reuse(self, key: tuple[str, ...], *, green: str, red: str) -> "_Copy | None":
        """Return a free copy, the files of another one changed to those of ``green`` and ``red``; None without one."""
        same = self._free[key]
        free = same or next((each for each in self._free.values() if each and self._may_change(each[-1])), [])
        copy = free.pop() if free else None
        if copy is None or not copy.clean():
            return None
        if free is same:
            return copy
        with contextlib.suppress(GitError, OSError):
            copy.place.clear()
            return self._fill(copy.place, green=green, red=red)
        return None

    def _may_change(self, copy: "_Copy") -> bool:
        # A setup or a submodule writes files that git's index does not know.
        is_known = not self._suite.setup and self._repository.submodules == () and not is_sparse(self._repository)
        # The first files of a small copy are likely to be wanted again.
        return is_known and copy.size >= self._many_files

    def _fill(self, place: CopyFolder, *, green: str, red: str) -> "_Copy":
        suite = place.fill(self._suite, green=green, red=red)
        layout = find_layout(self._repository, self._suite)
        objects = self._repository.objects  # a reference to ``self`` would keep the copies

        def read(path: str) -> bytes | None:
            found = objects.read(f"{red if layout.is_test(path) else green}:{path}")
            return found.data if found is not None and found.kind == "blob" else None

        return _Copy(suite, place, read=read)

    def close(self) -> None:
        """Delete all copies."""
        self._free.clear()
        self._stack.close()


class _Copy:
    """A copy, and what was in it when it was made."""

    def __init__(self, suite: Suite, place: CopyFolder, *, read: Callable[[str], bytes | None]) -> None:
        """``read`` returns what git has in a path; None: nothing."""
        self.suite = suite
        self.place = place
        self._top = top = place.folder
        self._read = read
        clear_way(top)  # now too, because it changes the modes of git's objects
        temporary = top.parent.parent  # the same folder for all copies, so that one look is enough
        is_read = not shows_writes(temporary.stat().st_dev, temporary)
        self._made = {path: (_describe(about), _digest(path, about) if is_read else b"") for path, about in _walk(top)}

    @property
    def size(self) -> int:
        """The number of files and folders."""
        return len(self._made)

    def clean(self) -> bool:
        """Delete what was added, and return whether the rest is as it was."""
        missing = set(self._made)
        try:
            clear_way(self._top)
            for path, about in _walk(self._top):
                if path not in missing:
                    delete_folder(Path(path)) if stat.S_ISDIR(about.st_mode) else os.unlink(path)
                elif not self._matches(path, about):
                    return False
                missing.discard(path)
        except OSError:
            return False
        return not missing

    def _matches(self, path: str, about: os.stat_result) -> bool:
        (made, digest), now = self._made[path], _describe(about)
        if made == now and not digest:
            return True
        # The description first: a program may have left a file of any size.
        if made.kept != now.kept or not stat.S_ISREG(about.st_mode):
            return False
        if digest:
            return digest == _digest(path, about)
        original = self._read(os.path.relpath(path, self._top))
        return original is not None and Path(path).read_bytes() == original


@lru_cache
def shows_writes(_device: int, folder: Path) -> bool:
    """Return whether a file system changes a file's times if a program writes to it through its memory."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"1")
        file.flush()
        before = os.fstat(file.fileno()).st_ctime_ns
        time.sleep(_CLOCK_TICK_S)
        with mmap.mmap(file.fileno(), 1) as content:
            content[:] = content[:].replace(b"1", b"2")  # read first: then a file in memory can be written unseen
        return os.fstat(file.fileno()).st_ctime_ns != before


def _walk(top: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what is in a folder; the caller may delete it."""
    waiting = [str(top)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            found = [(entry.path, entry.stat(follow_symlinks=False)) for entry in entries]
        yield from found
        waiting += [path for path, about in found if stat.S_ISDIR(about.st_mode) and os.path.lexists(path)]


class _Description(NamedTuple):
    """The attributes of a file; of a folder only the mode counts."""

    kept: tuple[int, ...]
    """Also after the file was written again."""
    version: tuple[int, ...] = ()
    """Another one after each change, whose time no program can choose."""


def _describe(about: os.stat_result) -> _Description:
    if stat.S_ISDIR(about.st_mode):
        return _Description((about.st_mode,))
    # Through a second name, a later write would reach the file.
    kept = (about.st_mode, about.st_size, about.st_nlink)
    return _Description(kept, (about.st_ino, about.st_mtime_ns, about.st_ctime_ns))


def _digest(path: str, about: os.stat_result) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest() if stat.S_ISREG(about.st_mode) else b""
