"""Finds the lines of a comment again in another version of the code.

In this order: by the offsets of git's hunks, which keep every unchanged line; by the text in the same file; by the text
in the other files that changed. Text counts only where it, with its neighbors, fits best in exactly one place. A line
that was edited in place is found by its likeness.
"""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from cdd_agent.git.repository import Repository, resolve_revision
from cdd_agent.review.comments import WHOLE, Comment, Place, split_lines

MOST_LINES = 200_000
"""Of a longer file the text is not searched."""
_MIN_LIKENESS = 0.6
_MIN_CHARACTERS = 12
"""Text in other files must have as many characters, with its neighbors: a lone ``return None`` is everywhere."""
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


class _Hunk(NamedTuple):
    old: int
    removed: int
    new: int
    added: int


class Anchors:
    """Finds comments in one version of the code, a commit or a tree."""

    def __init__(self, repository: Repository, target: str) -> None:
        """Reads nothing yet."""
        self._repository = repository
        self._target = resolve_revision(repository, target)
        self._hunks: dict[tuple[str, str], tuple[_Hunk, ...] | None] = {}
        self._files: dict[str, tuple[str, ...] | None] = {}
        self._changed: dict[str, tuple[str, ...]] = {}

    def find(self, comment: Comment) -> Place | None:
        """Return where the lines of ``comment`` are now, or None if the comment is outdated."""
        if not comment.file:
            return WHOLE
        lines = self._read(comment.file)
        hunks = self._compare(comment.origin, comment.file)
        if hunks is not None and (shifted := _shift(hunks, start=comment.start, end=comment.end)) is not None:
            return Place(comment.file, *shifted)
        if lines is not None and (found := _search(comment, lines)) is not None:
            return Place(comment.file, found, found + len(comment.lines) - 1)
        if lines is not None and (edited := _find_edited(comment, hunks or (), lines=lines)) is not None:
            return Place(comment.file, *edited)
        return self._search_elsewhere(comment)

    def _search_elsewhere(self, comment: Comment) -> Place | None:
        if sum(len(line.strip()) for line in (*comment.before, *comment.lines, *comment.after)) < _MIN_CHARACTERS:
            return None
        places = []
        for path in self._list_changed(comment.origin):
            lines = self._read(path) if path != comment.file else None
            at = _search(comment, lines, min_neighbors=1) if lines is not None else None
            if at is not None:
                places.append(Place(path, at, at + len(comment.lines) - 1))
        return places[0] if len(places) == 1 else None

    def _read(self, path: str) -> tuple[str, ...] | None:
        if path not in self._files:
            found = self._repository.objects.read(f"{self._target}:{path}")
            is_text = found is not None and found.kind == "blob" and b"\0" not in found.data[:8000]
            lines = split_lines(found.text) if found is not None and is_text else None
            self._files[path] = lines if lines is not None and len(lines) <= MOST_LINES else None
        return self._files[path]

    def _list_changed(self, origin: str) -> tuple[str, ...]:
        if origin not in self._changed:
            differing = self._repository.objects.compare(origin, self._target) if self._exists(origin) else {}
            self._changed[origin] = tuple(path for path, (_, new) in differing.items() if new is not None)
        return self._changed[origin]

    def _exists(self, commit: str) -> bool:
        return self._repository.objects.read(f"{commit}^{{tree}}") is not None

    def _compare(self, origin: str, path: str) -> tuple[_Hunk, ...] | None:
        """Return the hunks between two versions of a file; None if it is not in both, or the commit is lost."""
        if (origin, path) not in self._hunks:
            self._hunks[origin, path] = None
            if self._repository.objects.read(f"{origin}:{path}") is not None and self._read(path) is not None:
                options = ("-r", "-p", "-U0", "--no-renames", "--no-color", "--ignore-submodules=all")
                shown = self._repository.git("diff-tree", *options, origin, self._target, "--", path)
                self._hunks[origin, path] = tuple(
                    _Hunk(int(old), int(removed or 1), int(new), int(added or 1))
                    for old, removed, new, added in _HUNK.findall(shown)
                )
        return self._hunks[origin, path]


def _shift(hunks: Sequence[_Hunk], *, start: int, end: int) -> tuple[int, int] | None:
    """Return the range behind the hunks before it; None if a hunk changes it."""
    offset = 0
    for hunk in hunks:
        # A pure insertion stands behind its old line.
        first, last = (hunk.old + 1, hunk.old) if not hunk.removed else (hunk.old, hunk.old + hunk.removed - 1)
        if first > end:
            break
        if last >= start:
            return None
        offset += hunk.added - hunk.removed
    return start + offset, end + offset


def _search(comment: Comment, lines: Sequence[str], *, min_neighbors: int = 0) -> int | None:
    """Return the line, from 1, where the text of the comment fits best; None if there is not exactly one."""
    wanted = tuple(line.strip() for line in comment.lines)
    if not any(wanted):
        return None
    stripped = [line.strip() for line in lines]
    found: dict[int, int] = {}
    for at in range(len(stripped) - len(wanted) + 1):
        if stripped[at] == wanted[0] and tuple(stripped[at : at + len(wanted)]) == wanted:
            found[at] = _count_neighbors(comment, stripped, at=at)
    best = max(found.values(), default=-1)
    places = [at for at, count in found.items() if count == best]
    # A short line alone, such as a bracket, may be another one; its neighbors have to be the same.
    needed = max(min_neighbors, 1 if len("".join(wanted)) < _MIN_CHARACTERS else 0)
    return places[0] + 1 if len(places) == 1 and best >= needed else None


def _count_neighbors(comment: Comment, stripped: Sequence[str], *, at: int) -> int:
    end = at + len(comment.lines)
    before = zip(reversed(comment.before), reversed(stripped[max(0, at - len(comment.before)) : at]), strict=False)
    after = zip(comment.after, stripped[end : end + len(comment.after)], strict=False)
    return sum(bool(ours.strip()) and ours.strip() == theirs for ours, theirs in (*before, *after))


def _find_edited(comment: Comment, hunks: Sequence[_Hunk], *, lines: Sequence[str]) -> tuple[int, int] | None:
    """Return the lines that replaced those of the comment in one hunk and are like them."""
    for hunk in hunks:
        if hunk.removed and hunk.added and hunk.old <= comment.start and comment.end < hunk.old + hunk.removed:
            count, best, ratio = len(comment.lines), 0, _MIN_LIKENESS
            wanted = "\n".join(line.strip() for line in comment.lines)
            for at in range(hunk.new - 1, hunk.new + hunk.added - count):
                text = "\n".join(line.strip() for line in lines[at : at + count])
                matcher = SequenceMatcher(None, wanted, text, autojunk=False)
                if matcher.quick_ratio() > ratio and (like := matcher.ratio()) > ratio:
                    best, ratio = at + 1, like
            return (best, best + count - 1) if best else None
    return None
