"""States that a repository may be in: what its owner has begun in it, and what keeps commits from being made. Pure I/O.

Nothing here asks git; each state is a file that git leaves in its folder.
"""

import os
import time
from pathlib import Path

from cdd_agent.git.failure import GitUnable, index_locked
from cdd_agent.git.place import Place
from cdd_agent.storage import read_ordinary

LOCK_WAIT_S = 2.0
"""How long another process may hold the index: an editor's own calls of git do so for a moment."""
_LOCK_PAUSE_S = 0.05
_LIMIT_BYTES = 500_000_000
"""``packed-refs`` holds a line for each ref."""

ROLLBACK = "refs/worktree/cdd/rollback"
"""Names the receipt of a rollback while it is gone; each work tree has one of its own."""

_UNFINISHED = (
    (ROLLBACK, "a rollback of cdd's own", "cdd tdd status, which goes the rest of its way"),
    ("MERGE_HEAD", "a merge", "git merge --continue, or git merge --abort"),
    ("rebase-apply/applying", "git am", "git am --continue, or git am --abort"),
    ("rebase-merge", "a rebase", "git rebase --continue, or git rebase --abort"),
    ("rebase-apply", "a rebase", "git rebase --continue, or git rebase --abort"),
    ("CHERRY_PICK_HEAD", "a cherry-pick", "git cherry-pick --continue, or git cherry-pick --abort"),
    ("REVERT_HEAD", "a revert", "git revert --continue, or git revert --abort"),
    ("sequencer", "a cherry-pick or revert", "git cherry-pick --continue, or git cherry-pick --abort"),
    ("BISECT_LOG", "a bisect", "git bisect reset"),
)
"""Name in git's folder, what is in progress while it is there, and how to end it."""


def in_progress(place: Place) -> tuple[str, str] | None:
    """What was begun in the repository and not ended, and what ends it; None if nothing."""
    for name, state, ends in _UNFINISHED:
        if (place.git_dir / name).exists():
            return state, ends
    return None


def is_unborn(place: Place) -> bool:
    """Whether HEAD names a branch without a commit, rather than one whose file is damaged."""
    try:
        head = _text(place.git_dir / "HEAD").strip()
    except OSError:
        return False
    branch = head.removeprefix("ref: ")
    if not branch.startswith("refs/heads/") or os.path.lexists(place.common_dir / branch):
        return False
    try:
        packed = _text(place.common_dir / "packed-refs")
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return f" {branch}\n" not in packed


def require_usable(place: Place) -> None:
    """Raise ``GitUnable`` if commits and checkpoints could not be made here; a lock may last for a moment."""
    lock = place.git_dir / "index.lock"
    deadline = time.monotonic() + LOCK_WAIT_S
    while lock.exists():
        if time.monotonic() >= deadline:
            raise index_locked(lock)
        time.sleep(_LOCK_PAUSE_S)
    for folder in (place.git_dir, place.common_dir, place.common_dir / "objects", place.common_dir / "refs"):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise GitUnable(
                f"{folder} cannot be written: no commit or checkpoint can be made.",
                hint=f'see whose it is: ls -ld {folder}; make it yours: sudo chown -R "$(id -u)" {place.common_dir}',
            )
    absent = [path for path in _borrowed_from(place.common_dir) if not path.is_dir()]
    if absent:
        raise GitUnable(
            f"The repository borrows objects from {absent[0]}, which is not there.",
            hint=f"bring that folder back, or correct its path: {place.common_dir}/objects/info/alternates",
        )


def _borrowed_from(common_dir: Path) -> tuple[Path, ...]:
    """The folders of objects that the repository shares with others."""
    objects = common_dir / "objects"
    try:
        text = _text(objects / "info" / "alternates")
    except OSError:
        return ()
    return tuple(objects / line for line in text.splitlines() if line and not line.startswith(("#", '"')))


def _text(path: Path) -> str:
    """What is in one of git's own files; ``OSError`` if it is none."""
    return read_ordinary(path, limit_bytes=_LIMIT_BYTES, through_links=True).decode("utf-8", "surrogateescape")
