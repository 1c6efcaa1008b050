"""One git work tree, asked and changed through the ``git`` program.

Every call is a list of arguments with an environment built here, so that neither the user's ``GIT_*`` variables nor
a pager, prompt or hook of the repository takes part; only ``commit`` runs the user's own commit hooks and signing.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NewType

from cdd_agent.errors import CddError, EnvironmentMissing, GateClosed

CommitId = NewType("CommitId", str)
"""Forty hexadecimal digits."""

TIMEOUT_S = 120.0

_QUIET = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.quotePath=false"),
    *("-c", "core.pager=cat"),
    *("-c", "advice.addEmbeddedRepo=false"),
    *("-c", "gc.auto=0"),
    *("-c", "diff.external="),
)
_NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}")


class GitError(CddError):
    """git answered with an error; holds what it said."""


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
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_EDITOR": "true",
        }
        result = subprocess.run(
            ["git", *_QUIET, *(() if hooks else _NO_HOOKS), *arguments],
            cwd=self.root,
            input=stdin,
            env=environment | dict(variables or {}),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if result.returncode != 0:
            said = result.stderr.decode("utf-8", "replace").strip() or f"exit status {result.returncode}"
            raise GitError(f"git {arguments[0]} failed: {said}", hint="mend what git names, then try again")
        return result.stdout.decode("utf-8", "surrogateescape")

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

    def uncommitted(self) -> tuple[str, ...]:
        """Paths that are staged, changed or untracked and not ignored, in git's order."""
        fields = self.git("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames").split("\0")
        return tuple(field[3:] for field in fields if field)

    def require_identity(self) -> None:
        """Raise ``EnvironmentMissing`` unless git knows who commits."""
        try:
            self.git("var", "GIT_COMMITTER_IDENT")
        except GitError as error:
            raise EnvironmentMissing(
                "git does not know who commits here.",
                hint="git config user.name 'Your Name' && git config user.email you@example.org",
            ) from error

    def changes(self, before: str, after: str) -> tuple[Change, ...]:
        """Paths that differ between the trees of two commits, in git's order."""
        fields = self.git("diff-tree", "-r", "-z", "--no-renames", "--name-status", before, after, "--").split("\0")
        kinds: dict[str, Literal["created", "modified", "deleted"]] = {"A": "created", "D": "deleted"}
        return tuple(
            Change(path=path, kind=kinds.get(status, "modified"))
            for status, path in zip(fields[0::2], fields[1::2], strict=False)
        )

    def commit(self, message: str, paths: Iterable[str]) -> CommitId:
        """Commit the present content of ``paths`` and nothing else; the rest of the user's index stays as it is.

        Returns HEAD as it is if none of them differs from it. The user's commit hooks and signing take part; their
        refusal is a ``GateClosed`` with their words.
        """
        named = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
        head = self.head()
        with private_index() as index:
            if head is not None:
                self.git("read-tree", head, variables=index)
            self.git(
                "update-index",
                "--add",
                "--remove",
                "--replace",
                "-z",
                "--stdin",
                stdin=named,
                variables=index,
            )
            tree = self.git("write-tree", variables=index).strip()
            if head is not None and tree == self.git("rev-parse", f"{head}^{{tree}}").strip():
                return head
            try:
                self.git("commit", "--quiet", "-F", "-", stdin=message.encode(), variables=index, hooks=True)
            except GitError as error:
                raise GateClosed(
                    f"The commit was refused. {error.happened}",
                    hint="mend what the hook names, then retry the step",
                ) from error
        self.refresh_index(named)
        made = self.head()
        if made is None:
            raise GitError("git commit reported success but HEAD names no commit.", hint="run: git status")
        return made

    def refresh_index(self, named: bytes) -> None:
        """Make the user's index agree with HEAD for the NUL-terminated paths ``named``, and only for them."""
        self.git("reset", "--quiet", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=named)

    def move_head(self, to: CommitId, *, expected: CommitId, why: str) -> None:
        """Make the present branch name ``to`` if it still names ``expected``; index follows, work tree does not."""
        paths = [change.path for change in self.changes(expected, to)]
        self.git("update-ref", "-m", f"cdd: {why}", "HEAD", to, expected)
        self.refresh_index("".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape"))

    def commit_with_trailer(self, key: str, value: str, *, since: CommitId | None) -> CommitId | None:
        """The newest commit after ``since`` whose trailer ``key`` is ``value``."""
        span = "HEAD" if since is None else f"{since}..HEAD"
        for line in self.git("log", f"--format=%H %(trailers:key={key},valueonly,separator=%x2C)", span).splitlines():
            commit, _, found = line.partition(" ")
            if found.strip() == value:
                return CommitId(commit)
        return None


@contextlib.contextmanager
def private_index(seed: Path | None = None) -> Iterator[dict[str, str]]:
    """The variables that make git use an index of its own, optionally a copy of ``seed``, gone after the block."""
    with tempfile.TemporaryDirectory(prefix="cdd-index-") as folder:
        index = Path(folder) / "index"
        if seed is not None and seed.exists():
            shutil.copyfile(seed, index)
        yield {"GIT_INDEX_FILE": str(index)}
