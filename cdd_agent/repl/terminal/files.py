"""The files of a project that a person can name: as git knows them, else as they lie there."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cdd_agent.errors import EnvironmentMissing

if TYPE_CHECKING:
    from multiprocessing.pool import AsyncResult

    from cdd_agent.git.repository import Repository

MOST_LISTED = 20_000
"""Files that are looked at; of a larger project the first ones."""
DEEPEST = 12
"""Folders within each other that are walked into where there is no git."""
WALK_S = 2.0

REMEMBERED_S = 2.0
"""How long a listing is taken for true."""
FIRST_LISTING_S = 1.0
"""How long the first listing is waited for."""
NEXT_LISTING_S = 0.2
"""How long a newer one is waited for before the old one serves."""


def project_files(root: Path, repository: "Callable[[], Repository]") -> list[str]:
    """Paths below ``root`` that are tracked, or untracked and not ignored; without a repository, those found there.

    Raises ``GitError`` if git cannot say.
    """
    try:
        found = repository()
    except EnvironmentMissing:
        return list(_walked(root))
    listed = found.git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate").split("\0")
    start = os.path.relpath(root, found.root).replace(os.sep, "/")
    within = "" if start == "." else f"{start}/"
    names = (path.removeprefix(within) for path in listed if path.startswith(within) and not path.endswith("/"))
    present = (name for name in names if name and os.path.lexists(root / name))
    return [name for _, name in zip(range(MOST_LISTED), present, strict=False)]


def _walked(root: Path) -> Iterator[str]:
    """Files below ``root``, those near it first; hidden folders and what tools make are left out."""
    from cdd_agent.workspace.files import SKIPPED_FOLDERS

    end = time.monotonic() + WALK_S
    count = 0
    folders = [("", 0)]
    for within, depth in folders:
        for entry in _entries(root / within):
            name = f"{within}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if depth < DEEPEST and entry.name not in SKIPPED_FOLDERS and not entry.name.startswith("."):
                    folders.append((f"{name}/", depth + 1))
                continue
            yield name
            count += 1
            if count == MOST_LISTED or time.monotonic() > end:
                return


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    """What lies in ``folder``, by name; nothing if it may not be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


class Remembered:
    """A listing that takes a while, kept for a moment, and asked for again beside what waits for it."""

    def __init__(self, ask: Callable[[], list[str]]) -> None:
        """Nothing is asked yet."""
        self._ask = ask
        self._known: list[str] | None = None
        self._asked_at = -REMEMBERED_S
        self._running: AsyncResult[list[str]] | None = None
        self._lock = threading.Lock()

    @property
    def is_running(self) -> bool:
        """Whether a listing is not done yet, so that the next answer may be another one."""
        return self._running is not None

    def __call__(self) -> list[str]:
        """The newest listing there is; an older one, or an empty one, if the next is not done in time or fails."""
        with self._lock:
            if self._running is None and time.monotonic() - self._asked_at >= REMEMBERED_S:
                self._asked_at = time.monotonic()
                self._running = _started(self._ask)
            running = self._running
        if running is not None:
            running.wait(FIRST_LISTING_S if self._known is None else NEXT_LISTING_S)
            self._keep(running)
        return self._known or []

    def _keep(self, asked: "AsyncResult[list[str]]") -> None:
        """Take what ``asked`` has found for known, unless it has not ended, or failed."""
        with self._lock:
            if self._running is asked and asked.ready():
                self._running = None
                if asked.successful():
                    self._known = asked.get()


def _started(ask: Callable[[], list[str]]) -> "AsyncResult[list[str]]":
    """What ``ask`` will have said, in a thread that the end of the program does not wait for."""
    from multiprocessing.pool import ThreadPool

    pool = ThreadPool(1)
    asked = pool.apply_async(ask)
    pool.close()
    return asked
