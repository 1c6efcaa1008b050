"""The terminal: lines are wrapped and printed once, the model's words as they come, and what is going on below them."""

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.live import LiveLine
from cdd_agent.repl.display.prose import Prose, rows

_SYMBOLS = {"open": "✔", "closed": "✘", "tool": "→", "commit": "●", "back": "↶", "note": "•", "todo": "○", "cut": "…"}
_ASCII = {"open": "+", "closed": "x", "tool": ">", "commit": "*", "back": "<", "note": "-", "todo": "o", "cut": "~"}
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"


class _Console(Console):
    """A console that prints text and colors only, and leaves it to its caller what a reader who has gone away means.

    Whatever rich is given, a text, a table or Markdown, comes through ``render``: nobody can forget to clean it.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """What ``renderable`` looks like, without control characters, and without links, whose target nobody sees."""
        for text, style, control in super().render(renderable, options):
            if control is not None:
                continue
            shown = text if text.isascii() and text.isprintable() else clean(text)
            yield Segment(shown, style.update_link(None) if style is not None and style.link else style)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Screen:
    """Where everything is printed that a person reads."""

    def __init__(self, stream: TextIO = sys.stdout, *, color: bool | None = None, animated: bool = True) -> None:
        """``color`` None: as the terminal and ``NO_COLOR`` say. ``animated``: show what is going on, on a terminal."""
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
        no_color = None if color is None else not color
        self.console: Console = _Console(file=stream, no_color=no_color, highlight=False, markup=False, emoji=False)
        speaks_unicode = _can_encode(stream, "".join(_SYMBOLS.values()) + _FRAMES)
        self.symbols: Mapping[str, str] = _SYMBOLS if speaks_unicode else _ASCII
        self._live = LiveLine(self.console, frames=_FRAMES if speaks_unicode else _ASCII_FRAMES, enabled=animated)
        self.indent = 0
        """Of everything for which nothing else is said."""
        self._prose: Prose | None = None
        self._is_blank = True

    def working(self, label: str) -> AbstractContextManager[None]:
        """Show that ``label``, or what ``say`` says since, is going on while the block runs."""
        return self._live.working(clean(label))

    def say(self, label: str, *, for_s: float | None = None) -> None:
        """What is going on from now on, if the screen shows it; with ``for_s`` the seconds are counted down."""
        self._live.say(clean(" ".join(label.split())), for_s=for_s)

    def line(self, text: str | Text, *, style: str = "", indent: int | None = None, hang: int = 0) -> None:
        """Print ``text`` at the present indentation, wrapped at the width; rows after the first hang deeper."""
        self.end_prose()
        depth = self.indent if indent is None else indent
        whole = text if isinstance(text, Text) else Text(clean(text), style=style)
        for part in whole.split("\n", allow_blank=True):
            own = len(part.plain) - len(part.plain.lstrip(" "))
            self._print_rows(rows(part, width=self.console.width - depth, hang=hang + own), depth)

    def gap(self) -> None:
        """A blank line, unless the last one is."""
        self.end_prose()
        if not self._is_blank:
            self._print_rows([Text()], 0)

    def show(self, content: RenderableType, *, wrap: bool = True) -> None:
        """Print a table or anything else that rich can."""
        self.end_prose()
        with self._live.hidden():
            self.console.print(content, soft_wrap=not wrap)
        self._is_blank = False

    def show_diff(self, diff: str) -> None:
        """Print a unified diff, its lines colored by what they do."""
        for line in diff.splitlines():
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
            self.line(line, style="bold" if line.startswith(("+++", "---")) else style, hang=1)

    def error(self, happened: str, *, hint: str) -> None:
        """Print what happened and what can be typed; wrapped for a person, in one line each for a file."""
        for told in (
            Text.assemble(("error: ", "bold red"), clean(happened)),
            Text.assemble(("hint: ", "bold yellow"), clean(hint)),
        ):
            if self.console.is_terminal:
                self.line(told, indent=0, hang=2)
            else:
                self.show(told, wrap=False)

    def ask(self, question: str) -> str:
        """What a person types after ``question``, nothing else being printed meanwhile; raises ``EOFError``."""
        self.end_prose()
        with self._live.hidden():
            self.console.print(Text(clean(question)), end=" ", soft_wrap=True)
            self.console.file.flush()
            self._is_blank = False
            return input()

    def _print_rows(self, wrapped: list[Text], depth: int) -> None:
        """Print rows that fit the width as they are."""
        with self._live.hidden():
            for row in wrapped:
                self.console.print(Text(" " * depth if row else "") + row, soft_wrap=True)
                self._is_blank = not row

    def stream(self, text: str) -> None:
        """Print the rows of the model's text that ``text`` completes, and show the beginning of the next one."""
        if self._prose is None:
            self._prose = Prose(self.console.width - self.indent)
        self._print_rows(self._prose.feed(text), self.indent)
        tail = self._prose.tail
        self._live.show(" " * self.indent + tail if tail else "")

    def end_prose(self) -> None:
        """Print what is left of the model's text."""
        if self._prose is not None:
            prose, self._prose = self._prose, None
            self._live.show("")
            self._print_rows(prose.end(), self.indent)


def _can_encode(stream: TextIO, text: str) -> bool:
    """Whether ``stream`` can write ``text``."""
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
