"""Rows that blocks are put on, with the marks of the quotations and lists round them at the left."""

from collections.abc import Sequence

from rich.text import Text

from cdd_agent.repl.display.markdown.containers import Container, Item, Quote, follow, margin
from cdd_agent.repl.display.markdown.inline import inline
from cdd_agent.repl.display.markdown.look import Look
from cdd_agent.repl.display.markdown.wrap import LEAST_WIDTH, wrapped

RULE_WIDTH = 60
"""Of lines across the text, at most."""

_FRAME = "dim"
_HEADINGS = ("", "bold underline", "bold", "bold italic", "italic", "italic", "italic")
"""By level, from 1 on."""


class Page:
    """The containers that are open, and the rows that were put on."""

    def __init__(self, *, width: int, look: Look) -> None:
        """``width`` of a row."""
        self.look = look
        self.open: list[Container] = []
        self._width = width
        self._gap: int | None = None
        """After blank lines: how many containers were open round them."""
        self._rows: list[Text] = []
        self._is_empty = True

    @property
    def margins(self) -> tuple[str, str]:
        """What stands left of the next row, and of those after it."""
        return margin(self.open, look=self.look, width=self._width)

    @property
    def room(self) -> int:
        """How wide a block may be."""
        return max(LEAST_WIDTH, self._width - len(self.margins[0]))

    def rows(self) -> list[Text]:
        """What was put on since the last time."""
        rows, self._rows = self._rows, []
        return rows

    def begin(self, matched: int, new: Sequence[Container]) -> None:
        """Close the containers from ``matched`` on, and open ``new`` ones."""
        before = self.open[matched] if matched < len(self.open) else None
        self.close(matched)
        if new and isinstance(before, Item) and isinstance(new[0], Item):
            follow(new[0], before)
        self.open += new

    def close(self, count: int) -> None:
        """Leave only ``count`` containers open; an item with nothing in it has its mark on a row."""
        while count < len(self.open):
            innermost = self.open[-1]
            if isinstance(innermost, Item) and not innermost.is_shown:
                self.put([Text()])
            self.open.pop()
        self._gap = None if self._gap is None else min(self._gap, len(self.open))

    def blank(self, matched: int) -> None:
        """A blank line, which ends the containers that it does not continue."""
        self.close(matched)
        if any(isinstance(container, Item) and not container.is_shown for container in self.open):
            self.put([Text()])
        self._gap = len(self.open)

    def end(self) -> None:
        """Nothing is open any more; the next row is the first of a new page."""
        self.close(0)
        self._gap, self._is_empty = None, True

    def put(self, rows: Sequence[Text]) -> None:
        """Put rows on, after one blank row if blank lines came before them."""
        for row in rows:
            if self._gap is not None and not self._is_empty:
                left = margin(self.open[: self._gap], look=self.look, width=self._width)[1]
                self._rows.append(Text(left.rstrip(), _FRAME))
            self._gap, self._is_empty = None, False
            left = self.margins[0]
            style = _FRAME if any(isinstance(container, Quote) for container in self.open) else ""
            self._rows.append(Text(left, style) + row if row else Text(left.rstrip(), style))
            for container in self.open:
                if isinstance(container, Item):
                    container.is_shown = True

    def put_heading(self, text: str, *, level: int) -> None:
        """Put a line on that stands above others."""
        shown, _ = inline(text)
        shown.stylize_before(_HEADINGS[level])
        self.put(wrapped(shown, self.room) if shown else [])

    def put_rule(self, label: str = "") -> None:
        """Put a line across the text on, with a word in it."""
        width = min(RULE_WIDTH, self.room)
        row = f"{self.look.rule * 2} {label} " if label else ""
        self.put([Text((row + self.look.rule * (width - len(row)))[:width], _FRAME)])
