"""What a reviewer reads and writes: the files that differ between two commits, and comments on their lines.

Comments are saved among cdd's records, one file of JSON lines for each commit. A comment saves the lines that it is
about and their neighbors, so it can be shown when that code is gone, and ``Anchors`` finds it again in later versions.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from cdd_agent.clock import Clock
from cdd_agent.errors import DocumentError, Problem, UsageError, format_count, suggest
from cdd_agent.events import FileDiffed
from cdd_agent.git.repository import CommitId, Repository, resolve_revision
from cdd_agent.storage import exclusive_lock, read_ordinary, write_atomic
from cdd_agent.work.handoff import NUMBER_OPTIONS, read_number
from cdd_agent.work.records import find_records

# No line of content can match these: it begins with a blank, a sign or a backslash.
_FILE = re.compile(r"^diff --git ", re.MULTILINE)
_MOST_RENAMED = 200
"""Pairs of files beyond this number are compared by their names only, because each is compared with each."""
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


class DiffLine(NamedTuple):
    """One line of a unified diff."""

    kind: str
    """Blank for context, ``+``, ``-``, ``@`` for the heading of a hunk, or a backslash for a remark of git."""
    old: int | None
    new: int | None
    """The line's number in the old and in the new file, if it is there."""
    text: str
    """Without the sign."""


def list_lines(file: FileDiffed) -> Iterator[DiffLine]:
    """Yield the headings of a file's hunks and their lines."""
    old = new = 0
    for line in file.hunks.split("\n") if file.hunks else ():
        if heading := _HUNK.match(line):
            old, new = int(heading[1]), int(heading[3])
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


def count_lines(files: Sequence[FileDiffed]) -> tuple[int, int]:
    """Return the numbers of added and of removed lines."""
    return sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFork:
    """A fork of a ticket at its end, whose work tree is still there."""

    name: str
    is_merged: bool
    """Whether the user's branch has everything that is committed in it, and nothing is uncommitted."""
    remove: Callable[[], None]


def describe_size(files: Sequence[FileDiffed]) -> str:
    """Return the number of files and of their changed lines in words."""
    added, removed = count_lines(files)
    return f"{format_count(len(files), 'file')}, +{added} -{removed}"


def diff_commits(repository: Repository, before: str, *, after: str) -> tuple[FileDiffed, ...]:
    """Compare the trees of two commits, without running the repository's diff programs.

    Raises ``UsageError`` if one of the commits no longer exists.
    """
    commits = (resolve_recorded(repository, before), resolve_recorded(repository, after))
    return diff_trees(repository, commits[0], after=commits[1])


def diff_trees(repository: Repository, before: str, *, after: str) -> tuple[FileDiffed, ...]:
    """Compare two trees, given by their ids."""
    compare = ("-r", "--no-renames", "--no-color", "--ignore-submodules=none")
    counts = repository.git("diff-tree", (*compare, "-z", "--numstat"), before, after, ("--",)).split("\0")
    patches = _FILE.split(repository.git("diff-tree", (*compare, "-p"), before, after, ("--",)))[1:]
    # For a file that became a link, or the reverse, there are two patches: a deletion and an addition.
    by_file = [list(parts) for _, parts in groupby(patches, key=lambda patch: patch.partition("\n")[0])]
    diffs = []
    for change, row, parts in zip(repository.list_changes(before, after), counts, by_file, strict=False):
        added, removed = (int(count) if count.isdigit() else None for count in row.split("\t")[:2])
        starts = [(part, _HUNK.search(part)) for part in parts]
        hunks = "\n".join(part[match.start() :].rstrip("\n") for part, match in starts if match)
        diffs.append(FileDiffed(path=change.path, kind=change.kind, added=added, removed=removed, hunks=hunks))
    if not {"created", "deleted"} <= {each.kind for each in diffs}:
        return tuple(diffs)
    renamed = {each.path: each for each in _list_renamed(repository, before, after=after)}
    sources = {each.source for each in renamed.values()}
    return tuple(renamed.get(each.path, each) for each in diffs if each.kind != "deleted" or each.path not in sources)


def _list_renamed(repository: Repository, before: str, *, after: str) -> Iterator[FileDiffed]:
    """Yield the files that have another path, and most of their lines."""
    compare = ("-r", "-M", f"-l{_MOST_RENAMED}", "--diff-filter=R", "--no-color")
    fields = repository.git("diff-tree", (*compare, "-z", "--numstat"), before, after, ("--",)).split("\0")
    patches = _FILE.split(repository.git("diff-tree", (*compare, "-p"), before, after, ("--",)))[1:]
    for counts, source, path, patch in zip(fields[::3], fields[1::3], fields[2::3], patches, strict=False):
        added, removed = (int(count) if count.isdigit() else None for count in counts.split("\t")[:2])
        match = _HUNK.search(patch)
        hunks = patch[match.start() :].rstrip("\n") if match else ""
        yield FileDiffed(path=path, source=source, kind="modified", added=added, removed=removed, hunks=hunks)


def resolve_recorded(repository: Repository, commit: str) -> CommitId:
    """Return the full id of a recorded commit. Raises ``UsageError`` if it no longer exists."""
    name = resolve_revision(repository, commit)
    if " commit " not in repository.git("cat-file", ("--batch-check",), stdin=f"{name}\n".encode()):
        raise UsageError(
            f"This repository no longer has the commit {name[:10]} of this ticket, so it cannot be reviewed.",
            hint="a rebase replaced it, or a copy left it out; see the commits: git log",
        )
    return CommitId(name)


Author: TypeAlias = Literal["user", "ai"]
Side: TypeAlias = Literal["old", "new"]

NEIGHBORS = 3
"""How many lines before and after the range are saved."""
MAX_TEXT = 20_000
"""Characters of a comment or reply."""
_SCHEMA = 1
_LIMIT_BYTES = 10_000_000
_WAIT_S = 5.0
_PLACE = re.compile(r"(?P<path>.+?):(?P<start>[1-9]\d{0,8})(?:-(?P<end>[1-9]\d{0,8}))?")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to a comment."""

    author: Author
    text: str
    time: str


class Comment(msgspec.Struct, frozen=True, kw_only=True):
    """A remark about lines of a commit, or about the whole commit."""

    id: str
    commit: str
    file: str
    """Relative to the work tree; empty for the whole commit."""
    side: Side = "new"
    """``old``: the lines are in the files before the change."""
    base: str | None = None
    """For ``old``: the commit before the change."""
    start: int = 0
    end: int = 0
    """The first and the last line, from 1. 0 for the whole commit."""
    lines: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """The lines of the range, and up to three on each side of it."""
    text: str
    author: Author = "user"
    time: str
    resolved: bool = False
    replies: tuple[Reply, ...] = ()
    ticket: str = ""
    step: int = 0
    """The ticket and step of the commit; empty and 0 if a step did not make it."""
    schema: int = _SCHEMA

    @property
    def origin(self) -> str:
        """The commit with the lines that the comment is about."""
        return self.base if self.side == "old" and self.base else self.commit

    def as_fields(self) -> dict[str, object]:
        """Return the comment as values of JSON."""
        return cast("dict[str, object]", msgspec.to_builtins(self))

    @property
    def place(self) -> str:
        """The place in words, such as ``src/a.py:3-5``."""
        removed = " (removed line)" if self.side == "old" else ""
        return f"{Place(self.file, self.start, self.end)}{removed}" if self.file else "the whole commit"


class Place(NamedTuple):
    """A range of lines."""

    path: str
    start: int
    end: int

    def __str__(self) -> str:
        """Return the place as it is typed: ``src/a.py:3-5``."""
        return f"{self.path}:{self.start}" + (f"-{self.end}" if self.end > self.start else "")


WHOLE = Place("", 0, 0)
"""The place of a comment on a whole commit."""


def parse_place(text: str) -> Place:
    """Return the place that ``FILE:LINE[-LINE]`` names. Raises ``UsageError``.

    >>> parse_place("src/a.py:3-5")
    Place(path='src/a.py', start=3, end=5)
    """
    match = _PLACE.fullmatch(text)
    start, end = (int(match["start"]), int(match["end"] or match["start"])) if match else (0, 0)
    if match is None or end < start:
        raise UsageError(
            f"{text!r} does not name lines of a file.", hint="for example: src/table.py:12 or src/table.py:12-15"
        )
    return Place(match["path"].removeprefix("./"), start, end)


class Comments:
    """The comments of one project."""

    def __init__(self, repository: Repository, project: Path, *, clock: Clock) -> None:
        """Reads and creates nothing yet."""
        self.repository = repository
        self._project = project
        self._clock = clock

    def add(
        self,
        place: Place,
        text: str,
        *,
        commit: str,
        side: Side = "new",
        base: str | None = None,
        author: Author = "user",
    ) -> Comment:
        """Save a comment on lines of ``commit``, or of ``base`` on the side ``old``, and return it.

        Raises ``UsageError`` if the text is empty, or if the commit, the file or the line does not exist.
        """
        _require_text(text)
        name = resolve_recorded(self.repository, commit)
        old = resolve_recorded(self.repository, base) if base and side == "old" else None
        lines = self._read_lines(old or name, place)
        ticket, step = self._read_step(name)
        start, end = place.start - 1, place.end
        comment = Comment(
            id=secrets.token_hex(4),
            commit=name,
            file=place.path,
            side=side,
            base=old,
            start=place.start,
            end=place.end,
            lines=lines[start:end] if place.path else (),
            before=lines[max(0, start - NEIGHBORS) : start] if place.path else (),
            after=lines[end : end + NEIGHBORS],
            text=text.strip(),
            author=author,
            time=self._clock.now(),
            ticket=ticket,
            step=step,
        )
        with self._change(name) as comments:
            comments.append(comment)
        return comment

    def reply(self, identifier: str, text: str, *, author: Author = "user") -> Comment:
        """Append a reply to a comment, and return the comment. Raises ``UsageError`` for an unknown or ambiguous id."""
        _require_text(text)
        reply = Reply(author=author, text=text.strip(), time=self._clock.now())
        return self._replace(
            identifier, lambda comment: msgspec.structs.replace(comment, replies=(*comment.replies, reply))
        )

    def edit(self, identifier: str, text: str) -> Comment:
        """Give a comment another text, and return it. Raises ``UsageError`` as ``reply`` does."""
        _require_text(text)
        return self._replace(identifier, lambda comment: msgspec.structs.replace(comment, text=text.strip()))

    def resolve(self, identifier: str, *, resolved: bool = True) -> Comment:
        """Mark a comment as resolved, or as open again, and return it. Raises ``UsageError`` as ``reply`` does."""
        return self._replace(identifier, lambda comment: msgspec.structs.replace(comment, resolved=resolved))

    def list_all(self) -> tuple[Comment, ...]:
        """Return all comments of the project, oldest first. Raises ``DocumentError`` for a damaged file."""
        paths = sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else []
        found = [comment for path in paths for comment in _load(path)]
        return tuple(sorted(found, key=lambda comment: comment.time))

    def list_of_step(self, ticket: str, number: int) -> tuple[Comment, ...]:
        """Return the comments on commits of one step, oldest first; those of its earlier versions too."""
        return tuple(each for each in self.list_all() if (each.ticket, each.step) == (ticket, number))

    def find(self, identifier: str) -> Comment:
        """Return the comment whose id begins with ``identifier``. Raises ``UsageError`` without exactly one."""
        comments = self.list_all()
        found = [comment for comment in comments if identifier and comment.id.startswith(identifier)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(comment.id for comment in found)
            raise UsageError(f"Several comments begin with {identifier!r}: {ids}.", hint="type more of the id")
        near = suggest(identifier, [comment.id for comment in comments], text="did you mean {}? ")
        raise UsageError(f"No comment has the id {identifier!r}.", hint=f"{near}cdd comment list shows all")

    @property
    def _folder(self) -> Path:
        return find_records(self._project).folder / "comments"

    def _read_lines(self, commit: str, place: Place) -> tuple[str, ...]:
        if not place.path:
            return ()
        found = self.repository.objects.read(f"{commit}:{place.path}")
        if found is None or found.kind != "blob":
            raise UsageError(
                f"The commit {commit[:10]} has no file {place.path}.",
                hint="name a file relative to the top of the repository; to comment on another commit: --commit REV",
            )
        lines = split_lines(found.text)
        if place.end > len(lines):
            raise UsageError(
                f"{place.path} has {len(lines)} lines in {commit[:10]}, so line {place.end} does not exist.",
                hint="the line numbers are those of the commit, not of files that were changed since",
            )
        return lines

    def _read_step(self, commit: CommitId) -> tuple[str, int]:
        trailers = f"%(trailers:key=Ticket,valueonly)%x00%(trailers:{NUMBER_OPTIONS},valueonly)"
        shown = self.repository.git("log", ("-1", f"--format={trailers}"), commit, ("--",))
        ticket, _, step = (field.strip() for field in shown.partition("\0"))
        return (ticket, read_number(step)) if ticket and read_number(step) else ("", 0)

    def _replace(self, identifier: str, change: Callable[[Comment], Comment]) -> Comment:
        known = self.find(identifier)
        with self._change(known.commit) as comments:
            at = next(index for index, comment in enumerate(comments) if comment.id == known.id)
            comments[at] = change(comments[at])
            return comments[at]

    @contextmanager
    def _change(self, commit: str) -> Iterator[list[Comment]]:
        """Yield the comments of a commit, and save them after the block. Other processes wait meanwhile."""
        path = self._folder / f"{commit}.jsonl"
        with exclusive_lock(self._folder / "lock", purpose="Comments", wait_s=_WAIT_S):
            comments = _load(path)
            yield comments
            write_atomic(path, b"".join(msgspec.json.encode(comment) + b"\n" for comment in comments), mode=0o600)


def split_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a file as git counts them, in text that every encoder accepts."""
    shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    lines = shown.split("\n")
    return tuple(lines[:-1] if lines[-1] == "" else lines)


def _load(path: Path) -> list[Comment]:
    try:
        data = read_ordinary(path, limit_bytes=_LIMIT_BYTES)
    except FileNotFoundError:
        return []
    comments = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            comment = msgspec.json.decode(line, type=Comment)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _refuse(path, number, why=str(error)) from error
        if comment.schema > _SCHEMA:
            raise _refuse(path, number, why=f"schema {comment.schema} is of a newer cdd")
        comments.append(comment)
    return comments


def _refuse(path: Path, line: int, *, why: str) -> DocumentError:
    return DocumentError(
        str(path), (Problem(line=line, message=why),), hint=f"mend that line, or move the file: mv {path} /tmp"
    )


def _require_text(text: str) -> None:
    if not text.strip():
        raise UsageError("The comment has no text.", hint="/comment src/table.py:12 This fails for an empty list")
    if len(text) > MAX_TEXT:
        raise UsageError(f"The comment has {len(text)} characters; at most {MAX_TEXT} are saved.", hint="shorten it")


MOST_LINES = 200_000
"""Of a longer file the text is not searched."""
_MIN_LIKENESS = 0.6
_MIN_CHARACTERS = 12
"""Text in other files must have as many characters, with its neighbors: a lone ``return None`` is everywhere."""


class _Hunk(NamedTuple):
    old: int
    removed: int
    new: int
    added: int


class Anchors:
    """Finds the lines of comments again in one version of the code, a commit or a tree.

    In this order: by the offsets of git's hunks, which keep every unchanged line; by the text in the same file; by the
    text in the other files that changed. Text counts only where it, with its neighbors, fits best in exactly one place.
    A line that was edited in place is found by its likeness, and a range by the lines of it that are unchanged.
    """

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
        if (rest := _find_rest(comment, hunks or ())) is not None:
            return Place(comment.file, *rest)
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
            objects = self._repository.objects
            exists = objects.read(f"{origin}^{{tree}}") is not None
            differing = objects.compare(origin, self._target) if exists else {}
            self._changed[origin] = tuple(path for path, (_, new) in differing.items() if new is not None)
        return self._changed[origin]

    def _compare(self, origin: str, path: str) -> tuple[_Hunk, ...] | None:
        """Return the hunks between two versions of a file; None if it is not in both, or the commit is lost."""
        if (origin, path) not in self._hunks:
            self._hunks[origin, path] = None
            if self._repository.objects.read(f"{origin}:{path}") is not None and self._read(path) is not None:
                options = ("-r", "-p", "-U0", "--no-renames", "--no-color", "--ignore-submodules=all")
                shown = self._repository.git("diff-tree", options, origin, self._target, ("--",), path)
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


def _find_rest(comment: Comment, hunks: Sequence[_Hunk]) -> tuple[int, int] | None:
    """Return the range from the first to the last unchanged line, if at least half of the lines are unchanged."""
    numbers = [number for number, line in enumerate(comment.lines, comment.start) if line.strip()]
    rest = [found for number in numbers if (found := _shift(hunks, start=number, end=number))] if hunks else []
    return (rest[0][0], rest[-1][1]) if rest and 2 * len(rest) >= len(numbers) else None


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
