"""The files that differ between two commits, and the lines of their diffs with their numbers."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from cdd_agent.errors import UsageError, format_count
from cdd_agent.events import ChangeKind
from cdd_agent.git.repository import CommitId, Repository, resolve_revision

# No line of content can match these: it begins with a blank, a sign or a backslash.
_FILE = re.compile(r"^diff --git ", re.MULTILINE)
_HUNK = re.compile(r"^@@ ", re.MULTILINE)


_HEADING = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


class DiffLine(NamedTuple):
    """One line of a unified diff."""

    kind: str
    """Blank for context, ``+``, ``-``, ``@`` for the heading of a hunk, or a backslash for a remark of git."""
    old: int | None
    new: int | None
    """The line's number in the old and in the new file, if it is there."""
    text: str
    """Without the sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """One file before and after."""

    path: str
    kind: ChangeKind
    added: int | None
    """The number of lines. None for a binary file."""
    removed: int | None
    hunks: str
    """The unified diff from the first ``@@`` on. Empty without lines to compare."""

    @property
    def counts(self) -> str:
        """The numbers of added and removed lines, such as ``+3 -1``."""
        return "binary" if self.added is None else f"+{self.added} -{self.removed}"

    def list_lines(self) -> Iterator[DiffLine]:
        """Yield the headings of the hunks and their lines."""
        old = new = 0
        for line in self.hunks.split("\n") if self.hunks else ():
            if heading := _HEADING.match(line):
                old, new = int(heading[1]), int(heading[2])
                yield DiffLine("@", None, None, line)
            elif line.startswith("+"):
                yield DiffLine("+", None, new, line[1:])
                new += 1
            elif line.startswith("-"):
                yield DiffLine("-", old, None, line[1:])
                old += 1
            elif line.startswith("\\"):
                yield DiffLine("\\", None, None, line)
            else:
                yield DiffLine(" ", old, new, line[1:])
                old, new = old + 1, new + 1


def count_lines(files: Sequence[FileDiff]) -> tuple[int, int]:
    """Return the numbers of added and of removed lines."""
    return sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)


def describe_size(files: Sequence[FileDiff]) -> str:
    """Return the number of files and of their changed lines in words."""
    added, removed = count_lines(files)
    return f"{format_count(len(files), 'file')}, +{added} -{removed}"


def diff_commits(repository: Repository, before: str, *, after: str) -> tuple[FileDiff, ...]:
    """Compare the trees of two commits, without running the repository's diff programs.

    Raises ``UsageError`` if one of the commits no longer exists.
    """
    commits = (resolve_recorded(repository, before), resolve_recorded(repository, after))
    return diff_trees(repository, commits[0], after=commits[1])


def diff_trees(repository: Repository, before: str, *, after: str) -> tuple[FileDiff, ...]:
    """Compare two trees, given by their ids."""
    compare = ("diff-tree", "-r", "--no-renames", "--no-color", "--ignore-submodules=none")
    counts = repository.git(*compare, "-z", "--numstat", before, after, "--").split("\0")
    patches = _FILE.split(repository.git(*compare, "-p", before, after, "--"))[1:]
    # For a file that became a link, or the reverse, there are two patches: a deletion and an addition.
    by_file = [list(parts) for _, parts in groupby(patches, key=lambda patch: patch.partition("\n")[0])]
    diffs = []
    for change, row, parts in zip(repository.list_changes(before, after), counts, by_file, strict=False):
        added, removed = (int(count) if count.isdigit() else None for count in row.split("\t")[:2])
        starts = [(part, _HUNK.search(part)) for part in parts]
        hunks = "\n".join(part[match.start() :].rstrip("\n") for part, match in starts if match)
        diffs.append(FileDiff(path=change.path, kind=change.kind, added=added, removed=removed, hunks=hunks))
    return tuple(diffs)


def resolve_recorded(repository: Repository, commit: str) -> CommitId:
    """Return the full id of a recorded commit. Raises ``UsageError`` if it no longer exists."""
    name = resolve_revision(repository, commit)
    if " commit " not in repository.git("cat-file", "--batch-check", stdin=f"{name}\n".encode()):
        raise UsageError(
            f"This repository no longer has the commit {name[:10]} of this ticket, so it cannot be reviewed.",
            hint="a rebase replaced it, or a copy left it out; see the commits: git log",
        )
    return CommitId(name)
