"""A paragraph that grows. Its rows are given out while no mark is open that what follows could end."""

import re

from rich.cells import cell_len
from rich.text import Text

from cdd_agent.repl.display.markdown.inline import MARK, inline
from cdd_agent.repl.display.markdown.wrap import Wrap

LONGEST_OPEN = 2_000
"""Characters after an open mark, about a screenful. When more have come it is taken for text."""

_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9-]*(?:[\s/>]|$)|<!--")
_LOUD = re.compile(r"\*\*+|~~|`")
"""Marks that are not shown while it is open what they mark."""
_PATIENCE = 1.25
"""How much longer an open text must be before it is read again: so each character is read a few times at most."""


class Paragraph:
    """Text between blank lines.

    The first line is held back while it fits into a row, since the next line may make a heading of it; a line that
    begins with ``|`` is held back until it is over, since the next line may make a table of it.
    """

    def __init__(self, width: int) -> None:
        """Nothing has come."""
        self._width = width
        self._wrap = Wrap(width)
        self._chunk = ""
        self._try_at = 0
        self._keeps_breaks = False
        self.held: str | None = ""
        """The line that is held back."""
        self.is_first_line = True

    def tail(self, begun: str) -> str:
        """What has come and was not given out, ``begun`` being the beginning of a word."""
        return self._wrap.row + _LOUD.sub("", self._chunk + (self.held or "") + begun).replace("\n", " ")

    def next_line(self, *, held: bool) -> list[Text]:
        """Begin another line, which is to be held back or not."""
        rows = self.release()
        self.is_first_line = False
        self.held = "" if held else None
        return rows

    def write(self, text: str) -> list[Text]:
        """The rows that are complete after ``text``: a word, or a whole line."""
        text = text.replace("\t", " ")
        if self.held is None:
            return self._flow(text)
        self.held += text
        waits = text.endswith("\n") or self.held.startswith("|") or cell_len(self.held) <= self._width
        return [] if waits else self.release()

    def release(self) -> list[Text]:
        """The line that was held back is text."""
        held, self.held = self.held, None
        if held and self.is_first_line:
            self._keeps_breaks = _TAG.match(held) is not None
        return self._flow(held) if held else []

    def end(self) -> list[Text]:
        """The rows that are left."""
        rows = self.release()
        self._chunk = self._chunk.rstrip()
        return [*rows, *self._take(inline(self._chunk)[0]), *self._wrap.end()]

    def _flow(self, text: str) -> list[Text]:
        """The rows that are complete after ``text``, which is no heading and no table."""
        if self._keeps_breaks and text.endswith("\n"):
            text = f"{text.rstrip()}  \n"
        self._chunk += text
        if not MARK.search(self._chunk):
            fits = len(self._wrap.row) + len(self._chunk) <= self._width
            return [] if fits else self._take(inline(self._chunk)[0])
        if len(self._chunk) < self._try_at:
            return []
        shown, is_settled = inline(self._chunk)
        ends_in_a_break = self._chunk.endswith("\\\n")  # which is a backslash at the end of the paragraph
        if (is_settled and not ends_in_a_break) or len(self._chunk) > LONGEST_OPEN:
            return self._take(shown)
        self._try_at = int(len(self._chunk) * _PATIENCE) + 1
        return []

    def _take(self, shown: Text) -> list[Text]:
        """Put the chunk into rows."""
        self._chunk, self._try_at = "", 0
        return self._wrap.add(shown)
