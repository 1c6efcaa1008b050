"""Comments on commits: one file of JSON lines for each commit, in ``.cdd/comments``.

A comment saves the lines that it is about and their neighbors, so it can be found again in later versions of the code,
and can be shown when that code is gone.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from cdd_agent.clock import Clock
from cdd_agent.errors import DocumentError, Problem, UsageError, suggest
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.review.diff import resolve_recorded
from cdd_agent.storage import exclusive_lock, private_folder, read_ordinary, require_private, write_atomic

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
        end = f"-{self.end}" if self.end > self.start else ""
        removed = " (removed line)" if self.side == "old" else ""
        return f"{self.file}:{self.start}{end}{removed}" if self.file else "the whole commit"


class Place(NamedTuple):
    """A range of lines."""

    path: str
    start: int
    end: int


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
        raise UsageError(f"{text!r} does not name lines of a file.", hint="for example: src/table.py:12 or :12-15")
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
        return self._project / ".cdd" / "comments"

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
        trailers = "%(trailers:key=Ticket,valueonly)%x00%(trailers:key=Cycle,valueonly)"
        shown = self.repository.git("log", "-1", f"--format={trailers}", commit, "--")
        ticket, _, step = (field.strip() for field in shown.partition("\0"))
        return (ticket, int(step)) if ticket and step.isdecimal() else ("", 0)

    def _replace(self, identifier: str, change: Callable[[Comment], Comment]) -> Comment:
        known = self.find(identifier)
        with self._change(known.commit) as comments:
            at = next(index for index, comment in enumerate(comments) if comment.id == known.id)
            comments[at] = change(comments[at])
            return comments[at]

    @contextmanager
    def _change(self, commit: str) -> Iterator[list[Comment]]:
        """Yield the comments of a commit, and save them after the block. Other processes wait meanwhile."""
        folder = private_folder(self._project) / "comments"
        path = folder / f"{commit}.jsonl"
        with exclusive_lock(folder / "lock", purpose="Comments", wait_s=_WAIT_S):
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
        require_private(path)  # a model reads the comments as the user's words
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
