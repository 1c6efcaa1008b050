"""A command line judged: each simple command in it by itself, the whole by its strictest part.

What does not parse, has a variable in place of a program's name, or is not known, is of the class ``other``. No safety
rests on this: whatever a command does, it does in the sandbox. It decides what a person is asked about.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cdd_agent.guarded.commands.classes import CommandClass, Finding, joined, other
from cdd_agent.guarded.commands.paths import Folders, Ground
from cdd_agent.guarded.commands.simple import Simple
from cdd_agent.guarded.commands.tree import doubts, parsed
from cdd_agent.guarded.commands.walk import Walk

_DEEPEST = 4
"""Lines within lines: ``bash -c`` in ``bash -c``."""
_TOO_LONG = Finding(kind="other", why="it is longer than is looked through", loses="what it would change is not known")
_BREAKS = re.compile(r"[;&|(){}`\n]+|(?:^|(?<=\s))(?:!|if|then|elif|else|do|while|until)(?=\s)")
_MOST_FRAGMENTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One simple command of a line, and what is known about it."""

    text: str
    """In the spelling that all ways to write it have in common."""
    finding: Finding
    content: bytes
    """What a yes to it holds for: its text and folder, and, where these do not say all, the whole line."""
    start: int
    """Where it stands in the line, in characters; ``end`` is one behind."""
    end: int

    @property
    def kind(self) -> CommandClass:
        """Its class."""
        return self.finding.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """What is known about a line before it runs."""

    line: str
    parts: tuple[Part, ...]

    @property
    def kind(self) -> CommandClass:
        """The class of its strictest part."""
        return joined(part.finding for part in self.parts).kind

    @property
    def loses(self) -> str:
        """What would be lost, as a clause; empty: nothing that is known."""
        return joined(part.finding for part in self.parts).loses


def judge(line: str, ground: Ground) -> Judgment:
    """What ``line`` would do, run by ``bash -c`` in the project's folder."""
    first = frozenset({ground.root})
    whole = hashlib.sha256(line.encode("utf-8", "surrogateescape")).hexdigest()
    return Judgment(line=line, parts=tuple(_parts(line, ground, folders=first, outermost=whole, depth=0)))


def _parts(line: str, ground: Ground, *, folders: Folders, outermost: str, depth: int) -> Iterator[Part]:
    """The parts of a line that begins in one of ``folders``, and those of the lines that it runs in its turn."""
    source = line.encode("utf-8", "surrogateescape")
    root = parsed(source) if depth <= _DEEPEST else None
    if root is None:
        yield _whole(line, _TOO_LONG, outermost=outermost)
        return
    walk = Walk(root, ground)
    walk.run(folders)
    unclear = [*walk.doubts, *doubts(root, source)]
    for simple in walk.found:
        bound = walk.taints or bool(unclear) or not simple.is_exact
        part = _part(simple, source, ground=ground, outermost=outermost if bound else "")
        yield part
        for inner in simple.finding.lines:
            for within in _parts(inner, ground, folders=simple.folders, outermost=outermost, depth=depth + 1):
                yield replace(within, start=part.start, end=part.end)
    if unclear:
        yield _whole(line, other(unclear[0]), outermost=outermost)
        yield from _fragments(line, ground, outermost=outermost, depth=depth)


def _fragments(line: str, ground: Ground, *, outermost: str, depth: int) -> Iterator[Part]:
    """What a line that is not understood may do to work or outside, each of its pieces taken for a line."""
    pieces = [piece for piece in _BREAKS.split(line) if piece.strip()]
    if len(pieces) > _MOST_FRAGMENTS:
        yield _whole(line, _TOO_LONG, outermost=outermost)
    elif pieces != [line]:
        for piece in pieces:
            for part in _parts(piece, ground, folders=None, outermost=outermost, depth=depth + 1):
                if part.finding.loses or part.kind == "outside":
                    yield replace(part, start=0, end=len(line))


def _part(simple: Simple, source: bytes, *, ground: Ground, outermost: str) -> Part:
    """A simple command as a part of its line; ``outermost``, if any, is the sha256 of what a yes holds for besides."""
    folder = "" if simple.folders is None else "|".join(sorted(simple.folders)).removeprefix(ground.root)
    return Part(
        text=simple.text,
        finding=simple.finding,
        content="\0".join((folder, simple.text, outermost)).encode("utf-8", "surrogateescape"),
        start=_characters(source, simple.start),
        end=_characters(source, simple.end),
    )


def _characters(source: bytes, at: int) -> int:
    """A place in bytes as one in characters."""
    return at if source.isascii() else len(source[:at].decode("utf-8", "surrogateescape"))


def _whole(line: str, finding: Finding, *, outermost: str) -> Part:
    """A line that is not taken apart."""
    content = f"\0{line}\0{outermost}".encode("utf-8", "surrogateescape")
    return Part(text=line, finding=finding, content=content, start=0, end=len(line))
