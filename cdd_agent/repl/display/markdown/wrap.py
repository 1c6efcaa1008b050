"""Rows of a paragraph that grows: a row is complete as soon as the next one begins."""

from rich.cells import cell_len
from rich.text import Text

from cdd_agent.repl.display.markdown.words import BREAK

LEAST_WIDTH = 10
"""For text, however deep it is indented."""


class Wrap:
    """Puts words into rows of at most ``width`` cells."""

    def __init__(self, width: int) -> None:
        """The first row is empty."""
        self._width = max(1, width)
        self._row = Text()

    @property
    def row(self) -> str:
        """The row that is not complete."""
        return self._row.plain

    def add(self, text: Text) -> list[Text]:
        """The rows that ``text`` completes; a line feed in it ends one."""
        complete: list[Text] = []
        *ended, begun = text.split("\n", allow_blank=True)
        for line in ended:
            complete += [*self._add(line), _stripped(self._row)]
            self._row = Text()
        return complete + self._add(begun)

    def end(self) -> list[Text]:
        """The last row, if there is anything on it."""
        row, self._row = _stripped(self._row), Text()
        return [row] if row else []

    def _add(self, line: Text) -> list[Text]:
        """The rows that ``line``, which has no line feed, completes."""
        whole = self._row + line
        *complete, self._row = whole.divide(_row_starts(whole.plain, self._width)) if whole else [whole]
        return [_stripped(row) for row in complete]


def wrapped(text: Text, width: int) -> list[Text]:
    """The rows of ``text``, at least one."""
    wrap = Wrap(width)
    return [*wrap.add(text), *wrap.end()] or [Text()]


def hung(text: Text, *, width: int, hang: int) -> list[Text]:
    """The rows of ``text``, every one but the first indented by ``hang``; in no less than ``LEAST_WIDTH`` cells."""
    first, *rest = wrapped(text, max(LEAST_WIDTH, width))
    left = text[len(first) :]
    left = left[len(left) - len(left.plain.lstrip()) :]
    return (
        [first, *(Text(" " * hang) + row for row in wrapped(left, max(LEAST_WIDTH, width - hang)))] if rest else [first]
    )


def _stripped(row: Text) -> Text:
    """``row`` without the blanks at its end."""
    row.rstrip()
    return row


def _row_starts(plain: str, width: int) -> list[int]:
    """Where rows begin after the first one. A word longer than a row has its own rows."""
    starts: list[int] = []
    used, at = 0, 0
    for end in [*(found.end() for found in BREAK.finditer(plain)), len(plain)]:
        word = plain[at:end]
        needed = cell_len(word.rstrip(" \t"))
        if used and used + needed > width:
            starts.append(at)
            used = 0
        while needed > width:
            fits = _fitting(word, width)
            at, word = at + fits, word[fits:]
            starts.append(at)
            needed = cell_len(word.rstrip(" \t"))
        used += cell_len(word)
        at = end
    return starts


def _fitting(word: str, width: int) -> int:
    """How many characters of ``word`` fit into ``width``, at least one."""
    if word[:width].isascii():
        return width
    used = 0
    for number, character in enumerate(word):
        used += cell_len(character)
        if used > width:
            return max(1, number)
    return len(word)
