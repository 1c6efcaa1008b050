"""What differs between two commits, file by file, as text to read."""

import re
from dataclasses import dataclass
from typing import Literal

from cdd_agent.git.repository import Repository, resolved

_HEAD = re.compile(r"^diff --git ", re.MULTILINE)
"""The first line of each file's part: every line of content begins with a blank, a sign or a backslash."""
_HUNK = re.compile(r"^@@ ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """One file before and after."""

    path: str
    kind: Literal["created", "modified", "deleted"]
    added: int | None
    """Lines; None for a file that is no text."""
    removed: int | None
    hunks: str
    """Unified, from the first ``@@`` on; empty where there are no lines to compare."""


def between(repository: Repository, before: str, *, after: str) -> tuple[FileDiff, ...]:
    """What differs between the trees of two commits, in git's order; no program that the repository names is run."""
    compare = ("diff-tree", "-r", "--no-renames", "--no-color")
    commits = (resolved(repository, before), resolved(repository, after), "--")
    counted = repository.git(*compare, "-z", "--numstat", *commits).split("\0")
    parts = _HEAD.split(repository.git(*compare, "-p", *commits))[1:]
    changes = repository.changes(before, after)
    return tuple(
        FileDiff(
            path=change.path,
            kind=change.kind,
            added=_number(counts.split("\t")[0]),
            removed=_number(counts.split("\t")[1]),
            hunks=_hunks(part),
        )
        for change, counts, part in zip(changes, counted, parts, strict=False)
    )


def _number(count: str) -> int | None:
    """A count of git's, which is a dash for a file that is no text."""
    return int(count) if count.isdigit() else None


def _hunks(part: str) -> str:
    """One file's part of a patch without the lines that only name it."""
    first = _HUNK.search(part)
    return part[first.start() :].rstrip("\n") if first else ""
