"""Where a repository lies, from what git prints, and what is said where there is none that will do."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.git.failure import GitUnable
from cdd_agent.storage import read_ordinary

_GITFILE = re.compile(r"gitdir: (?P<path>.+?)\n*", re.DOTALL)
_PATH_BYTES = 100_000
"""A file that holds one path is smaller than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folders of one work tree, absolute, without links."""

    root: Path
    """The top level of the work tree."""
    git_dir: Path
    """What git keeps of this work tree: HEAD, index, what is in progress."""
    common_dir: Path
    """What all work trees of the repository share: objects, refs, configuration."""

    QUESTION: ClassVar = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--show-toplevel")
    """What to ask git; ``read`` understands the answer."""

    @classmethod
    def read(cls, answer: str, *, folder: Path) -> "Place":
        """The place in git's answer; raises ``EnvironmentMissing`` if the work tree is not where its ``.git`` is."""
        lines = answer.removesuffix("\n").split("\n")
        if len(lines) != 3 or not all(line.startswith("/") for line in lines):
            raise EnvironmentMissing(
                f"git {folder} does not say where its repository is: git is too old, or a path holds a line break.",
                hint="install git 2.31 or newer; see what you have: git --version",
            )
        git_dir, common_dir, root = (Path(line) for line in lines)
        place = cls(root=root.resolve(), git_dir=git_dir.resolve(), common_dir=common_dir.resolve())
        if _leads_to(place.root / ".git") != place.git_dir:
            raise EnvironmentMissing(
                f"The repository {place.git_dir} says that its work tree is {place.root}, a folder above or beside it.",
                hint=f"take that setting out: git --git-dir={place.git_dir} config --unset core.worktree",
            )
        return place

    def require_own_common_dir(self) -> None:
        """Raise ``GitUnable`` if the repository has come to say that its shared folder is another than it was.

        git takes refs from there whatever ``GIT_COMMON_DIR`` says.
        """
        said = self.git_dir / "commondir"
        try:
            named = read_ordinary(said, limit_bytes=_PATH_BYTES).decode("utf-8", "surrogateescape").rstrip("\r\n")
            shared = (self.git_dir / named).resolve()
        except FileNotFoundError:
            shared = self.git_dir
        except (OSError, ValueError, RuntimeError):  # no ordinary file, no path, a ring of links
            shared = None
        if shared != self.common_dir:
            raise GitUnable(
                f"{said} names another repository than when the program started.",
                hint=f"see who wrote it: ls -l {said}; if this is no linked work tree, remove it: rm {said}",
            )


def missing(said: str, *, folder: Path) -> EnvironmentMissing | None:
    """The error for ``folder`` after git has refused to find its repository; None if its words tell something else."""
    for words, happened, hint in _REFUSALS:
        if re.search(words, said):
            return EnvironmentMissing(happened.format(folder=folder), hint=hint.format(folder=folder))
    return None


_REFUSALS = (
    (
        "dubious ownership",
        "The repository of {folder} belongs to another user, so git does not trust it, and neither does cdd.",
        'take the folder over: sudo chown -R "$(id -u)" {folder}; or, if you trust its owner: '
        "git config --global --add safe.directory {folder}",
    ),
    (
        "cannot use bare repository|must be run in a work tree",
        "{folder} is a bare repository, or the inside of one: it has no files to work on.",
        "make a work tree of it: git -C {folder} worktree add ../work; then: cd {folder}/../work",
    ),
    (
        r"invalid gitfile|not a git repository: (?!\(or any)",
        "{folder} was a work tree or submodule of a repository that is not there any more.",
        "see what its file .git names: cat {folder}/.git; if the repository has moved: git worktree repair",
    ),
    (
        "not a git repository",
        "{folder} is not in a git work tree: commits and checkpoints need one.",
        "git init {folder} && git -C {folder} add -A && git -C {folder} commit -m 'first commit'",
    ),
)
"""git's words, what happened, what to type. The first that fits counts."""


def _leads_to(entry: Path) -> Path | None:
    """The repository that a work tree's ``.git``, a folder or a file, stands for."""
    if entry.is_dir():
        return entry.resolve()
    try:
        text = read_ordinary(entry, limit_bytes=_PATH_BYTES, through_links=True).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    named = _GITFILE.fullmatch(text)
    return None if named is None else (entry.parent / named["path"]).resolve()
