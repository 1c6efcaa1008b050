"""A model's words as rows of the terminal: a row is given out once, as soon as nothing that follows can change it.

So text can be printed while it comes, wrapped and with its bold and code marked, without ever drawing over a row.
"""

import re

from rich.console import Console
from rich.text import Text

from cdd_agent.repl.display.clean import clean

_MARKED = re.compile(r"\*\*(?P<bold>[^*\n]+)\*\*|`(?P<code>[^`\n]+)`")
_HEADING = re.compile(r"#{1,6} +")
_LIST_MARK = re.compile(r"\s*(?:[-*+]|\d+[.)]) +")
_RULER = Console(width=80)
"""Wrapping asks for a console, but reads nothing from it."""


def rows(text: Text, *, width: int, hang: int = 0) -> list[Text]:
    """``text``, which is one line, wrapped at ``width``; every row but the first is indented by ``hang``."""
    whole = text.copy()
    whole.expand_tabs(4)
    first = _wrapped(whole, width)[0]
    rest = whole[len(first) :]
    rest = rest[len(rest) - len(rest.plain.lstrip(" ")) :]
    margin = Text(" " * hang)
    return [first, *(margin + row for row in _wrapped(rest, width - hang) if row)]


def _wrapped(text: Text, width: int) -> list[Text]:
    """The rows of ``text``, at least one, without blanks at their ends."""
    wrapped = list(text.wrap(_RULER, max(10, width))) or [Text()]
    for row in wrapped:
        row.rstrip()
    return wrapped


def marked(line: str) -> Text:
    """One line of Markdown with its bold, code and heading shown as such; anything else stays as it is written."""
    heading = _HEADING.match(line)
    if heading:
        return Text(line[heading.end() :], style="bold")
    text, end = Text(), 0
    for found in _MARKED.finditer(line):
        text.append(line[end : found.start()])
        text.append(found["bold"] or found["code"], style="bold" if found["bold"] else "cyan")
        end = found.end()
    return text.append(line[end:])


class Prose:
    """Text that comes in pieces."""

    def __init__(self, width: int) -> None:
        """``width`` of a row."""
        self._width = width
        self._line = ""
        self._given = 0
        """Rows of the present line that were given out."""
        self._blank_lines = 0
        self._has_begun = False
        self._is_code = False

    def feed(self, piece: str) -> list[Text]:
        """The rows that are final after ``piece``."""
        *ended, begun = clean(piece).split("\n")
        final: list[Text] = []
        for part in ended:
            self._line += part
            final += self._end_line()
        self._line += begun
        settled = self._line[: _first_open_mark(self._line)]
        return final + (self._give(self._rows(settled)[:-1]) if settled.strip() else [])

    def end(self) -> list[Text]:
        """The rows that are left; the next piece begins a new text."""
        final = self._end_line()
        self._blank_lines, self._has_begun, self._is_code = 0, False, False
        return final

    @property
    def tail(self) -> str:
        """The last row as far as it has come: what ``feed`` has not given out."""
        left = self._rows(self._line)[self._given :]
        return left[-1].plain if left and self._line.strip() else ""

    def _end_line(self) -> list[Text]:
        """The rest of the present line. Blank lines wait until text follows: they neither begin nor end a text."""
        line, self._line = self._line, ""
        if not line.strip():
            self._blank_lines += 1
            return []
        final = self._give(self._rows(line))
        self._given = 0
        if line.lstrip().startswith("```"):
            self._is_code = not self._is_code
        return final

    def _give(self, wrapped: list[Text]) -> list[Text]:
        """The rows of ``wrapped`` that were not given out yet, after the blank lines before them."""
        fresh = wrapped[self._given :]
        self._given += len(fresh)
        if not fresh:
            return []
        blank = [Text()] * (min(self._blank_lines, 1) if self._has_begun else 0)
        self._blank_lines, self._has_begun = 0, True
        return blank + fresh

    def _rows(self, line: str) -> list[Text]:
        """The present line, or as much of it as there is, wrapped."""
        if self._is_code or line.lstrip().startswith("```"):
            return rows(Text(line, style="cyan"), width=self._width)
        mark = _LIST_MARK.match(line)
        return rows(marked(line), width=self._width, hang=mark.end() if mark else 0)


def _first_open_mark(line: str) -> int:
    """Where a bold or code mark begins that may still be closed, else the end of ``line``."""
    rest = _MARKED.sub(lambda found: "x" * len(found.group()), line)
    places = [rest.find("**"), rest.find("`"), len(rest) - 1 if rest.endswith("*") else -1]
    return min((place for place in places if place >= 0), default=len(line))
