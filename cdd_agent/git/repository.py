"""One git work tree, asked and changed through the ``git`` program.

States that a repository may be in: what its owner has begun in it, and what keeps commits from being made. Pure I/O.

Nothing here asks git; each state is a file that git leaves in its folder.
"""

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NewType

from cdd_agent.errors import UsageError
from cdd_agent.git import hardening
from cdd_agent.git.runner import Call, GitError, GitUnable, Place, Runner, index_locked, look_up, run_once
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


CommitId = NewType("CommitId", str)
"""Forty hexadecimal digits, or sixty-four where the repository uses SHA-256."""

_OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs between two trees."""

    path: str
    kind: Literal["created", "modified", "deleted"]


class Repository:
    """A work tree with its history."""

    def __init__(self, root: Path) -> None:
        """``root`` is the top level of the work tree; see ``find``."""
        self.root = root
        self.may_run_hooks: Callable[[], bool] = lambda: False
        """Whether the hooks that are in force here may take part in commits; set by whoever can ask the user."""
        self.runner = Runner(root)
        """What calls git; it knows the configuration that is in force."""

    @classmethod
    def find(cls, folder: Path) -> "Repository":
        """The repository whose work tree holds ``folder``.

        Raises ``EnvironmentMissing``, each with its own words: git is not installed or too old, there is no
        repository, it is bare, another user's, or its work tree is somewhere else.
        """
        place = look_up(folder)
        found = cls(place.root)
        found.runner.settle(place)
        return found

    @classmethod
    def create(cls, folder: Path, *, branch: str = "main", template: bool = True) -> "Repository":
        """A new repository in ``folder``; without the user's ``template`` it has no hooks.

        Raises ``UsageError`` if ``folder`` is a repository already.
        """
        if (folder / ".git").exists():
            raise UsageError(f"{folder} is a git repository already.", hint="name a folder that is none")
        plain = () if template else ("--template=",)
        call = Call(arguments=("init", "--quiet", *plain, f"--initial-branch={branch}"), variables={})
        run_once(call, folder=folder, settings=hardening.settings_for((), hooks=False, signs=False))
        return cls(folder)

    @property
    def place(self) -> Place:
        """The folders of this work tree and its repository."""
        return self.runner.place

    def git(
        self,
        *arguments: str,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
        hooks: bool = False,
    ) -> str:
        """What ``git ARGUMENTS`` prints; raises ``GitError`` with git's own words if it fails.

        Only with ``hooks`` does the user's signing take part, and do hooks if they may.
        """
        taking_part = hooks and self.may_run_hooks()
        return self.runner.run(
            Call(arguments=arguments, stdin=stdin, variables=variables or {}, hooks=taking_part, signs=hooks)
        )

    def head(self) -> CommitId | None:
        """The commit that HEAD names, or None before the first commit; ``GitUnable`` if HEAD is damaged."""
        try:
            return CommitId(self.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip())
        except GitUnable:
            raise
        except GitError as error:
            if is_unborn(self.place):
                return None
            raise GitUnable(
                f"HEAD of {self.root} names no commit that can be read. {error.happened}",
                hint="see what is wrong: git fsck --full; where HEAD was before: git reflog",
            ) from error

    def branch(self) -> str | None:
        """The branch that HEAD is on, or None if it is detached."""
        try:
            return self.git("symbolic-ref", "--quiet", "--short", "HEAD").strip()
        except GitError:
            return None

    def unfinished(self) -> tuple[str, str] | None:
        """What was begun in the repository and not ended, and what ends it; None if nothing."""
        begun = in_progress(self.place)
        if begun is None and self.git("ls-files", "--unmerged", "-z"):
            return "a merge with conflicts", "git add the files once they are right, or git checkout -- them"
        return begun

    def uncommitted(self) -> tuple[str, ...]:
        """Paths that are staged, changed or untracked and not ignored, in git's order.

        Files that git was told not to look at are looked at: see ``candid_index``.
        """
        with candid_index(self) as index:
            found = self.git("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", variables=index)
        return tuple(field[3:] for field in found.split("\0") if field)

    def ignored(self) -> tuple[str, ...]:
        """Files that are ignored, and folders (ending in a slash) that an ignore rule names as a whole."""
        fields = self.git("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignored=matching")
        return tuple(field[3:] for field in fields.split("\0") if field.startswith("!! "))

    def apart(self) -> frozenset[str]:
        """Repositories in the work tree that are not part of it, and submodules that stand at another commit."""
        nested = self.git("ls-files", "--others", "--exclude-standard", "-z").split("\0")
        moved = self.git("diff-files", "--raw", "-z", "--ignore-submodules=dirty").split("\0")
        submodules = {path for about, path in zip(moved[0::2], moved[1::2], strict=False) if about[8:14] == "160000"}
        return frozenset(path for path in nested if path.endswith("/")) | submodules

    def changes(self, before: str, after: str, *, submodules: bool = True) -> tuple[Change, ...]:
        """Paths that differ between two trees, or the trees of two commits, in git's order."""
        which = "none" if submodules else "all"
        before, after = resolved(self, before), resolved(self, after)
        compare = ("diff-tree", "-r", "-z", "--no-renames", "--name-status", f"--ignore-submodules={which}")
        fields = self.git(*compare, before, after, "--").split("\0")
        kinds: dict[str, Literal["created", "modified", "deleted"]] = {"A": "created", "D": "deleted"}
        return tuple(
            Change(path=path, kind=kinds.get(status, "modified"))
            for status, path in zip(fields[0::2], fields[1::2], strict=False)
        )


def resolved(repository: Repository, name: str) -> str:
    """The full object id that ``name`` stands for: an id as it is, a branch, tag or ref by its commit.

    The name may come from a file that somebody else wrote. One that git would not take for a ref, or that would be
    read as an option, raises ``UsageError``; nothing but an id is passed on.
    """
    if _OBJECT_ID.fullmatch(name):
        return name
    try:
        if not name.startswith("refs/") and name != "HEAD":
            repository.git("check-ref-format", "--branch", name)
        return repository.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
    except GitUnable:
        raise
    except GitError as error:
        raise UsageError(
            f"{name!r} names no commit of this repository.",
            hint="see what there is: git branch --all, git log --oneline",
        ) from error


def branch_ref(repository: Repository, branch: str) -> str:
    """The full ref of a branch whose name may come from a file of somebody else's; ``UsageError`` if it can be none."""
    ref = f"refs/heads/{branch}"
    try:
        repository.git("check-ref-format", ref)
    except GitUnable:
        raise
    except GitError as error:
        raise UsageError(f"{branch!r} cannot be a branch.", hint="see the branches: git branch --all") from error
    return ref


def encoded(text: str) -> bytes:
    """``text`` as git reads it from its input: paths keep the bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def listing(names: Iterable[str]) -> bytes:
    """Commits, refs or objects, one a line, as git reads them from its input."""
    return encoded("".join(f"{name}\n" for name in names))


@contextlib.contextmanager
def private_index(seed: Path | None = None) -> Iterator[dict[str, str]]:
    """The variables that make git use an index of its own, optionally a copy of ``seed``, gone after the block.

    A git that a signal cut off at its very start may still write there: what it leaves goes with the other temporary
    files.
    """
    with tempfile.TemporaryDirectory(prefix="cdd-index-", ignore_cleanup_errors=True) as folder:
        index = Path(folder) / "index"
        if seed is not None and seed.exists():
            shutil.copy2(seed, index)  # with its time, by which git knows what may have changed in the same moment
        yield {"GIT_INDEX_FILE": str(index)}


@contextlib.contextmanager
def candid_index(repository: Repository) -> Iterator[dict[str, str]]:
    """A private copy of the user's index by which git looks at every file, also where it was told not to.

    The marks ``skip-worktree`` and ``assume-unchanged`` are how users keep changes of their own to themselves. They
    stay on the files that a sparse checkout leaves away.
    """
    with private_index(repository.place.git_dir / "index") as index:
        tagged = repository.git("ls-files", "-v", "-z", variables=index).split("\0")
        hidden = [(entry[0], entry[2:]) for entry in tagged if entry and (entry[0] == "S" or entry[0].islower())]
        if hidden and _is_sparse(repository):
            hidden = [(tag, path) for tag, path in hidden if _is_there(repository.root, path)]
        assumed = encoded("".join(f"{path}\0" for tag, path in hidden if tag.islower()))
        skipped = encoded("".join(f"{path}\0" for tag, path in hidden if tag in "sS"))
        if assumed:
            repository.git("update-index", "--no-assume-unchanged", "-z", "--stdin", stdin=assumed, variables=index)
        if skipped:
            repository.git("update-index", "--no-skip-worktree", "-z", "--stdin", stdin=skipped, variables=index)
        yield index


def _is_sparse(repository: Repository) -> bool:
    """Whether files may be left away by a sparse checkout."""
    said = [each.value for each in repository.runner.configuration() if each.key == "core.sparsecheckout"]
    return bool(said) and said[-1].lower() not in ("false", "no", "off", "0")


def _is_there(root: Path, path: str) -> bool:
    """Whether something is at ``path`` in the work tree itself, not behind a link to somewhere else."""
    target = root / path
    return os.path.lexists(target) and target.parent.resolve() == root.resolve() / Path(path).parent
