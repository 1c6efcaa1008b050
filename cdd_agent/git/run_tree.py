"""Run trees: linked work trees in which runs work, so that the user's own files stay untouched.

A run tree has its own HEAD and index and shares the repository's objects and refs. It is kept between runs, because
resetting it is much quicker than a new checkout. What is in it belongs to cdd: a reset deletes everything that the
base commit does not contain.
"""

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.git.repository import CommitId, Repository, resolve_revision
from cdd_agent.git.runner import GitError, GitUnable, RepositoryLocation, Runner
from cdd_agent.storage import read_ordinary, write_atomic

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PATH_BYTES = 100_000
_DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTree:
    """One run tree."""

    repository: Repository
    """Its files and history. Its branch and index are not the user's."""

    @property
    def root(self) -> Path:
        """Its top level."""
        return self.repository.root

    def reset(self, base: CommitId) -> None:
        """Make HEAD, index and files those of ``base``, and delete all other files; raises ``GitUnable`` if it fails.

        HEAD is detached.
        """
        repository, target = self.repository, resolve_revision(self.repository, base)
        self.restore_gitfile()
        (repository.location.git_dir / "index.lock").unlink(missing_ok=True)  # left by a git that was killed
        _clear_way(self.root)
        repository.git("update-ref", "--no-deref", "HEAD", target)
        repository.git("read-tree", "--reset", "-u", target)
        repository.git("clean", "-ffdxq")
        left = repository.git("status", "--porcelain", "-z", "--untracked-files=all", "--ignored", "--no-renames")
        if left:
            raise GitUnable(
                f"The run tree {self.root} cannot be reset: {left.split(chr(0))[0]}.", hint=f"rm -rf {self.root}"
            )

    def restore_gitfile(self) -> None:
        """Write the file ``.git``, by which hooks find the repository; a program in the tree may have changed it."""
        marker, content = self.root / ".git", f"gitdir: {self.repository.location.git_dir}\n".encode()
        with contextlib.suppress(OSError):
            if read_ordinary(marker, limit_bytes=_PATH_BYTES) == content:
                return
        if marker.is_dir() and not marker.is_symlink():
            delete_folder(marker)
        write_atomic(marker, content)


class RunTrees:
    """The run trees of one repository, in one folder."""

    def __init__(self, main: Repository, folder: Path) -> None:
        """Creates nothing. ``main`` is the user's work tree; ``folder`` is ignored by git."""
        self._main = main
        self._folder = folder

    def find(self, name: str) -> RunTree | None:
        """Return the run tree ``name``, or None; raises ``UsageError`` if that cannot be a name."""
        root = self._locate(name)
        admin = self._find_admin(root)
        if admin is None or not root.is_dir():
            return None
        common_dir = self._main.location.common_dir
        repository = Repository(root)
        repository.may_run_hooks = self._main.may_run_hooks
        repository.runner = Runner(root, RepositoryLocation(root=root, git_dir=admin, common_dir=common_dir))
        return RunTree(repository=repository)

    def prepare(self, name: str, *, base: CommitId) -> RunTree:
        """Return the run tree ``name`` with the files of ``base``; it is created if there is none or it is damaged."""
        tree = self.find(name)
        if tree is not None:
            try:
                tree.reset(base)
            except (GitError, OSError):
                self.remove(name)
                tree = None
        if tree is None:
            tree = self._create(name, base=base)
        os.utime(tree.root)
        return tree

    def remove(self, name: str) -> None:
        """Delete the run tree ``name`` and git's record of it; its commits stay in the repository."""
        root = self._locate(name)
        admin = self._find_admin(root)
        if os.path.lexists(root):
            delete_folder(root)
        if admin is not None:
            shutil.rmtree(admin)

    def prune(self, *, days: float, most: int) -> tuple[str, ...]:
        """Delete run trees that were not prepared for ``days``, and the oldest beyond ``most``; return their names."""
        with contextlib.suppress(FileNotFoundError):
            trees = sorted(
                ((entry.stat().st_mtime, entry.name) for entry in os.scandir(self._folder) if entry.is_dir()),
                reverse=True,
            )
            oldest = time.time() - days * _DAY_S
            names = tuple(name for place, (used, name) in enumerate(trees) if place >= most or used < oldest)
            for name in names:
                self.remove(name)
            return names
        return ()

    def _create(self, name: str, *, base: CommitId) -> RunTree:
        root, target = self._locate(name), resolve_revision(self._main, base)
        self.remove(name)
        self._folder.mkdir(parents=True, exist_ok=True)
        # git registers the tree first and then writes it, so a kill leaves at worst a tree that is made anew.
        self._main.git("worktree", "add", "--quiet", "--detach", "--no-checkout", str(root), target)
        tree = self.find(name)
        if tree is None:
            raise GitUnable(f"git did not create the run tree {root}.", hint="see: git worktree list")
        tree.reset(base)
        return tree

    def _locate(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot name a run tree.", hint="use letters, digits, dots and dashes")
        return self._folder.resolve() / name

    def _find_admin(self, root: Path) -> Path | None:
        """Return git's folder of the linked work tree ``root``."""
        for folder in _list_folders(self._main.location.common_dir / "worktrees"):
            with contextlib.suppress(OSError):
                text = read_ordinary(folder / "gitdir", limit_bytes=_PATH_BYTES).decode("utf-8", "surrogateescape")
                if Path(text.rstrip("\n")) == root / ".git":
                    return folder
        return None


def delete_folder(folder: Path) -> None:
    """Delete a folder with everything in it, even where a program took away our own permissions."""
    _clear_way(folder)
    shutil.rmtree(folder)


def _clear_way(top: Path) -> None:
    """Give us full access again to all folders below ``top``, and delete pipes, sockets and devices in them.

    Git cannot enter the first, and does not see the latter.
    """
    waiting = [str(top)]
    while waiting:
        folder = waiting.pop()
        mode = os.lstat(folder).st_mode
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    os.unlink(entry.path)


def _list_folders(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        yield from sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
