"""One git work tree, asked and changed through the ``git`` program.

Every call is a list of arguments with an environment built here, so that neither the user's ``GIT_*`` variables nor
a pager, prompt or hook of the repository takes part, except the user's own commit hooks where a caller asks for them.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NewType

from cdd_agent.errors import CddError, EnvironmentMissing, ExitCode
from cdd_agent.sandbox.processes import end_group

CommitId = NewType("CommitId", str)
"""Forty hexadecimal digits."""

TIMEOUT_S = 120.0
HOOKS_TIMEOUT_S = 1800.0
"""For a call in which the user's hooks take part: they may run a whole test suite."""


_QUIET = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.quotePath=false"),
    *("-c", "core.pager=cat"),
    *("-c", "advice.addEmbeddedRepo=false"),
    *("-c", "gc.auto=0"),
    *("-c", "diff.external="),
)
_NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}")


_UNFINISHED = (
    ("MERGE_HEAD", "a merge", "git merge --continue, or git merge --abort"),
    ("rebase-merge", "a rebase", "git rebase --continue, or git rebase --abort"),
    ("rebase-apply", "a rebase", "git rebase --continue, or git rebase --abort (git am: git am --abort)"),
    ("CHERRY_PICK_HEAD", "a cherry-pick", "git cherry-pick --continue, or git cherry-pick --abort"),
    ("REVERT_HEAD", "a revert", "git revert --continue, or git revert --abort"),
    ("sequencer", "a cherry-pick or revert", "git cherry-pick --continue, or git cherry-pick --abort"),
    ("BISECT_LOG", "a bisect", "git bisect reset"),
)
"""Name in git's folder, what is in progress while it is there, and how to end it."""


class GitError(CddError):
    """git answered with an error; holds what it said."""


class GitTimeout(GitError):
    """git, or a hook that it ran, did not end in time; says nothing about what it was asked."""

    exit_code = ExitCode.ENVIRONMENT


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

    @classmethod
    def find(cls, folder: Path) -> "Repository":
        """The repository whose work tree holds ``folder``.

        Raises ``EnvironmentMissing`` if there is none, if it is bare, or if git is not installed.
        """
        if shutil.which("git") is None:
            raise EnvironmentMissing("git is not installed.", hint="install git, for example: apt-get install git")
        try:
            top = cls(folder).git("rev-parse", "--show-toplevel").strip()
        except GitError as error:
            raise EnvironmentMissing(
                f"{folder} is not in a git work tree: commits and checkpoints need one.",
                hint=f"git init {folder} && git -C {folder} add -A && git -C {folder} commit -m 'first commit'",
            ) from error
        return cls(Path(top))

    @classmethod
    def create(cls, folder: Path) -> "Repository":
        """A new repository in ``folder``, on the branch ``main``."""
        repository = cls(folder)
        repository.git("init", "--quiet", "--initial-branch=main")
        return repository

    def git(
        self,
        *arguments: str,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
        hooks: bool = False,
    ) -> str:
        """What ``git ARGUMENTS`` prints; raises ``GitError`` with git's own words if it fails."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "ANTHROPIC_"))}
        environment |= {
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_EDITOR": "true",
        }
        argv = ["git", *_QUIET, *(() if hooks else _NO_HOOKS), *arguments]
        limit_s = HOOKS_TIMEOUT_S if hooks else TIMEOUT_S
        status, out, err = _run(
            argv, cwd=self.root, stdin=stdin, env=environment | dict(variables or {}), limit_s=limit_s
        )
        if status != 0:
            said = err.decode("utf-8", "replace").strip() or f"exit status {status}"
            raise GitError(f"git {arguments[0]} failed: {said}", hint="mend what git names, then try again")
        return out.decode("utf-8", "surrogateescape")

    def head(self) -> CommitId | None:
        """The commit that HEAD names, or None before the first commit."""
        try:
            return CommitId(self.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip())
        except GitError:
            return None

    def branch(self) -> str | None:
        """The branch that HEAD is on, or None if it is detached."""
        try:
            return self.git("symbolic-ref", "--quiet", "--short", "HEAD").strip()
        except GitError:
            return None

    def common_dir(self) -> Path:
        """The folder that every work tree of this repository shares."""
        return (self.root / self.git("rev-parse", "--git-common-dir").strip()).resolve()

    def unfinished(self) -> tuple[str, str] | None:
        """What the user has begun with git and not ended, and what ends it; None if nothing."""
        folder = self.root / self.git("rev-parse", "--git-dir").strip()
        for name, state, ends in _UNFINISHED:
            if (folder / name).exists():
                return state, ends
        if self.git("ls-files", "--unmerged", "-z"):
            return "a merge with conflicts", "git add the files once they are right, or git checkout -- them"
        return None

    def uncommitted(self) -> tuple[str, ...]:
        """Paths that are staged, changed or untracked and not ignored, in git's order."""
        fields = self.git("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames").split("\0")
        return tuple(field[3:] for field in fields if field)

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
        compare = ("diff-tree", "-r", "-z", "--no-renames", "--name-status", f"--ignore-submodules={which}")
        fields = self.git(*compare, before, after, "--").split("\0")
        kinds: dict[str, Literal["created", "modified", "deleted"]] = {"A": "created", "D": "deleted"}
        return tuple(
            Change(path=path, kind=kinds.get(status, "modified"))
            for status, path in zip(fields[0::2], fields[1::2], strict=False)
        )


def _run(
    argv: Sequence[str], *, cwd: Path, stdin: bytes, env: Mapping[str, str], limit_s: float
) -> tuple[int, bytes, bytes]:
    """Exit status, output and errors of ``argv``, run in a session of its own that does not outlive the call.

    Raises ``GitTimeout`` if it takes longer than ``limit_s``.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        out, err = process.communicate(stdin, timeout=limit_s)
    except BaseException as error:
        end_group(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if isinstance(error, subprocess.TimeoutExpired):
            command = " ".join(word for word in argv if word not in {*_QUIET, *_NO_HOOKS})
            raise GitTimeout(
                f"{command} did not end within {limit_s:g} seconds and was stopped.",
                hint="see what holds it, a hook or a lock for example, by running it yourself, then try again",
            ) from error
        raise
    return process.returncode, out, err


def encoded(text: str) -> bytes:
    """``text`` as git reads it from its input: paths keep the bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


@contextlib.contextmanager
def private_index(seed: Path | None = None) -> Iterator[dict[str, str]]:
    """The variables that make git use an index of its own, optionally a copy of ``seed``, gone after the block."""
    with tempfile.TemporaryDirectory(prefix="cdd-index-") as folder:
        index = Path(folder) / "index"
        if seed is not None and seed.exists():
            shutil.copyfile(seed, index)
        yield {"GIT_INDEX_FILE": str(index)}
