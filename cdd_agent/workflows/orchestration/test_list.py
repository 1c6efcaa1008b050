"""The test list of a feature: Markdown checkboxes, one a test, read as people and models write them. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

NAME = "test-list.md"
"""In the project's folder."""
LONGEST_LINE = 1_000
"""Characters; what is longer lists no test."""
COVERED = "(covered)"
"""What stands behind a test that passed at once, so that it needed no code."""

_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_BOX = re.compile(r"\s*(?:>\s*)*(?:[-*+•]|\d{1,9}[.)])\s*\[(?P<mark>[^\[\]]?)\]\s*(?P<text>\S.*)")
_MARK = re.compile(r"\s*(?:-|\u2013|\u2014|:|,)?\s*[*_]*[(\[]\s*(?:already\s+)?covered\s*[)\]][*_]*\s*$", re.IGNORECASE)
_DECORATION = re.compile(r"[*_`~]+")
_DONE = frozenset("xX✓✔☑~")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One test of the list."""

    text: str
    """What it is to show, without its mark."""
    line: int
    """1-based."""
    is_done: bool
    """Its box is ticked."""
    is_covered: bool = False
    """It is marked as one that passed at once."""


def parse(text: str) -> tuple[Entry, ...]:
    """The tests of a list, in its order; everything that is no checkbox is the writer's own, fenced code too."""
    return tuple(_entries(text.removeprefix("\ufeff")))


def _entries(text: str) -> Iterator[Entry]:
    fence = ""
    for number, line in enumerate(text.split("\n"), start=1):
        opened = _FENCE.match(line)
        if fence or opened:
            is_end = bool(fence and opened and opened[1].startswith(fence) and not line.strip().strip(fence[0]))
            fence = "" if is_end else fence or (opened[1] if opened else "")
            continue
        box = _BOX.fullmatch(line.rstrip()) if len(line) <= LONGEST_LINE else None
        if box is None:
            continue
        said = _MARK.sub("", box["text"]).strip()
        is_covered = said != box["text"].strip()
        if said:
            yield Entry(
                text=said, line=number, is_done=box["mark"] in _DONE and bool(box["mark"]), is_covered=is_covered
            )


def same(description: str) -> str:
    """What two descriptions of one test have in common: case, decoration, spaces and a full stop tell nothing.

    >>> same("**Adds** `two` numbers.") == same("adds two  numbers")
    True
    """
    plain = _DECORATION.sub("", _MARK.sub("", description))
    return " ".join(plain.split()).rstrip(".!;").rstrip().casefold()


def find(entries: tuple[Entry, ...], description: str) -> Entry | None:
    """The entry of this description; of several the first one that is open."""
    alike = [entry for entry in entries if same(entry.text) == same(description)]
    return next((entry for entry in alike if not entry.is_done), alike[0] if alike else None)


def open_ones(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """The descriptions of those that are still to do."""
    return tuple(entry.text for entry in entries if not entry.is_done)
