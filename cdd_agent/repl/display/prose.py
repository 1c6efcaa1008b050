"""A model's words as rows of the terminal: a row is given out once, as soon as nothing that follows can change it.

So text can be printed while it comes, without ever drawing over a row. Only the last one, which is not complete, is
shown apart, and anew with every piece.
"""

from typing import Protocol

from rich.text import Text

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.markdown.blocks import Blocks
from cdd_agent.repl.display.markdown.look import Look
from cdd_agent.repl.display.markdown.words import Words
from cdd_agent.repl.display.markdown.wrap import LEAST_WIDTH


class Prose(Protocol):
    """Text that comes in pieces."""

    def feed(self, piece: str) -> list[Text]:
        """The rows that are final after ``piece``."""

    def end(self) -> list[Text]:
        """The rows that are left; the next piece begins a new text."""

    @property
    def tail(self) -> str:
        """What has come of the next row."""


class Formatted:
    """Markdown for a terminal."""

    def __init__(self, width: int, *, look: Look) -> None:
        """``width`` of a row; on a screen that is narrower than ``LEAST_WIDTH`` the terminal wraps."""
        self._width, self._cut = max(LEAST_WIDTH, width), look.cut
        self._words = Words()
        self._blocks = Blocks(width=self._width, look=look)

    def feed(self, piece: str) -> list[Text]:
        """The rows that are final after ``piece``."""
        for word in self._words.feed(piece):
            self._blocks.write(word)
        return self._blocks.rows()

    def end(self) -> list[Text]:
        """The rows that are left; the next piece begins a new text."""
        for word in self._words.end():
            self._blocks.write(word)
        self._blocks.end()
        return self._blocks.rows()

    @property
    def tail(self) -> str:
        """What has come of the next row; the end of it, if that is more than a row."""
        tail = self._blocks.tail(self._words.begun)
        return tail if len(tail) <= self._width else self._cut + tail[len(tail) - self._width :].partition(" ")[2]


class Written:
    """Text as it was written, line by line: what a file or another program is to have."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._begun: list[str] = []
        self._blank_lines = 0
        self._has_begun = False

    def feed(self, piece: str) -> list[Text]:
        """The lines that end in ``piece``."""
        first, *others = piece.split("\n")
        self._begun.append(first)
        lines: list[Text] = []
        for other in others:
            lines += self._end_line()
            self._begun.append(other)
        return lines

    def end(self) -> list[Text]:
        """The line that did not end. Blank lines neither begin nor end a text."""
        lines = self._end_line()
        self._blank_lines, self._has_begun = 0, False
        return lines

    @property
    def tail(self) -> str:
        """Nothing: there is nobody who watches."""
        return ""

    def _end_line(self) -> list[Text]:
        """The line that has come, after the blank ones before it."""
        line = clean("".join(self._begun)).rstrip()
        self._begun.clear()
        if not line:
            self._blank_lines += 1
            return []
        blank = [Text()] * (self._blank_lines if self._has_begun else 0)
        self._blank_lines, self._has_begun = 0, True
        return [*blank, Text(line)]
