"""A model's words as rows of the terminal: a row is given out once, as soon as nothing that follows can change it.

So text can be printed while it comes, without ever drawing over a row. Only the last one, which is not complete, is
shown apart, and anew with every piece.
"""

from typing import Protocol

from rich.text import Text

from cdd_agent.repl.display.clean import clean


class Prose(Protocol):
    """Text that comes in pieces."""

    def feed(self, piece: str) -> list[Text]:
        """The rows that are final after ``piece``."""

    def end(self) -> list[Text]:
        """The rows that are left; the next piece begins a new text."""

    @property
    def tail(self) -> str:
        """What has come of the next row."""


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
