"""The terminal: lines are wrapped and printed once, the model's words as they come, and what is going on below them."""

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.live import LiveLine
from cdd_agent.repl.display.prose import Prose, Written
from cdd_agent.repl.display.symbols import SYMBOLS, symbols_for
from cdd_agent.repl.markdown import MarkdownStream
from cdd_agent.repl.rows import ASCII, UNICODE, wrap_hanging
from cdd_agent.repl.terminal.typed_ahead import ECHO

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
        self.symbols: Mapping[str, str] = symbols_for(stream.encoding, besides=_FRAMES + UNICODE.symbols)
        speaks_unicode = self.symbols is SYMBOLS
        has_colors = self.console.color_system is not None and not self.console.no_color
        self._look = replace(UNICODE if speaks_unicode else ASCII, color=has_colors)
        frames = _FRAMES if speaks_unicode else _ASCII_FRAMES
        self._is_terminal = stream.isatty()
        self._live = LiveLine(self.console, frames=frames, enabled=animated and self._is_terminal)
        self.indent = 0
        """Of everything for which nothing else is said."""
        self._prose: Prose | None = None
        self._is_blank = True

    @contextmanager
    def working(self, label: str) -> Iterator[None]:
        """While the block runs, show that ``label``, or what ``say`` says since, is going on, and no key pressed."""
        with ECHO.off() if self._is_terminal else nullcontext(), self._live.working(clean(label)):
            yield

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
            self._print_rows(_hung(part, width=self.console.width - depth, hang=hang + own), depth)

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
        """Print a unified diff, its lines colored by what they do; wrapped for a person, as they are for a file."""
        for line in diff.splitlines():
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
            told = Text(clean(line), style="bold" if line.startswith(("+++", "---")) else style)
            if self._is_terminal:
                self.line(told, hang=1)
            else:
                self.show(told, wrap=False)

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
        """What a person types after ``question``, nothing else being printed meanwhile.

        Raises ``KeyboardInterrupt`` where no answer comes; what is told next begins a row of its own.
        """
        self.end_prose()
        with self._live.still(), ECHO.on():
            try:
                self._is_blank = False
                self.console.print(Text(clean(question)), end=" ", soft_wrap=True)
                self.console.file.flush()
                return input()
            except (EOFError, KeyboardInterrupt) as stop:
                self.console.print()
                raise KeyboardInterrupt from stop

    def _print_rows(self, wrapped: list[Text], depth: int) -> None:
        """Print rows that fit the width as they are."""
        with self._live.hidden():
            for row in wrapped:
                self.console.print(Text(" " * depth if row else "") + row, soft_wrap=True)
                self._is_blank = not row

    def stream(self, text: str) -> None:
        """Print the rows of the model's text that ``text`` completes, and show the beginning of the next one.

        Markdown is formatted for a person; a file, or a program, gets what the model wrote.
        """
        if self._prose is None:
            is_seen = self.console.is_terminal and not self.console.is_dumb_terminal
            self._prose = MarkdownStream(self.console.width - self.indent, look=self._look) if is_seen else Written()
        final = self._prose.feed(text)
        tail = self._prose.tail
        shown = " " * self.indent + tail if tail else ""
        if not final:
            self._live.show(shown)
            return
        with self._live.hidden():
            self._print_rows(final, self.indent)
            self._live.show(shown)

    def end_prose(self) -> None:
        """Print what is left of the model's text."""
        if self._prose is not None:
            prose, self._prose = self._prose, None
            with self._live.hidden():
                self._live.show("")
                self._print_rows(prose.end(), self.indent)


def _hung(line: Text, *, width: int, hang: int) -> list[Text]:
    """The rows of ``line``, which has no line feed; those after the first are indented by ``hang``."""
    whole = line.copy()
    whole.expand_tabs(4)
    return wrap_hanging(whole, width=width, hang=hang)
