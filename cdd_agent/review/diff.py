"""What differs between two commits, file by file, as text to read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.git.repository import CommitId, Repository, resolved

_HEAD = re.compile(r"^diff --git ", re.MULTILINE)
"""The first line of each file's part: every line of content begins with a blank, a sign or a backslash."""
_HUNK = re.compile(r"^@@ ", re.MULTILINE)

Kind: TypeAlias = Literal["created", "modified", "deleted"]
_KINDS: Mapping[str, Kind] = {"A": "created", "D": "deleted"}
_OF_ANOTHER_TYPE = "T"
"""What git calls a file that became a link, or a link that became one: its patch removes the one and adds the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """One file before and after."""

    path: str
    kind: Kind
    added: int | None
    """Lines; None for a file that is no text."""
    removed: int | None
    hunks: str
    """Unified, from the first ``@@`` on; empty where there are no lines to compare."""


def between(repository: Repository, before: str, *, after: str) -> tuple[FileDiff, ...]:
    """What differs between the trees of two commits, in git's order; no program that the repository names is run.

    Raises ``UsageError`` if one of the commits is no longer there.
    """
    compare = ("diff-tree", "-r", "--no-renames", "--no-color", "--ignore-submodules=none")
    commits = (kept(repository, before), kept(repository, after), "--")
    named = repository.git(*compare, "-z", "--name-status", *commits).split("\0")
    counted = repository.git(*compare, "-z", "--numstat", *commits).split("\0")
    parts = iter(_HEAD.split(repository.git(*compare, "-p", *commits))[1:])
    return tuple(
        FileDiff(
            path=path,
            kind=_KINDS.get(status, "modified"),
            added=_number(counts.split("\t")[0]),
            removed=_number(counts.split("\t")[1]),
            hunks="\n".join(filter(None, map(_hunks, islice(parts, 2 if status == _OF_ANOTHER_TYPE else 1)))),
        )
        for status, path, counts in zip(named[0::2], named[1::2], counted, strict=False)
    )


def kept(repository: Repository, commit: str) -> CommitId:
    """The full id of a commit that was recorded; raises ``UsageError`` if it is no longer in the repository."""
    name = resolved(repository, commit)
    if " commit " not in repository.git("cat-file", "--batch-check", stdin=f"{name}\n".encode()):
        raise UsageError(
            f"The commit {name[:10]} of this ticket is not in this repository any more, so it cannot be reviewed.",
            hint="it was replaced by a rebase or left out of a copy; see what is there: git log",
        )
    return CommitId(name)


def _number(count: str) -> int | None:
    """A count of git's, which is a dash for a file that is no text."""
    return int(count) if count.isdigit() else None


def _hunks(part: str) -> str:
    """One file's part of a patch without the lines that only name it."""
    first = _HUNK.search(part)
    return part[first.start() :].rstrip("\n") if first else ""
