"""The terminal: lines are wrapped and printed once, the model's words as they come, and what is going on below them.

The line below the last one printed: what is going on now, and for how long. It is gone when there is more to print.

A thread redraws it, because whoever works holds the main thread. Off a terminal nothing of it is ever written, and
none of it while nothing works: at the prompt the terminal belongs to the prompt. What is erased and what is printed in
its place go to the terminal in one write, so that nobody sees the row empty.

A model's words as rows of the terminal: a row is given out once, as soon as nothing that follows can change it.

So text can be printed while it comes, without ever drawing over a row. Only the last one, which is not complete, is
shown apart, and anew with every piece.

What is drawn besides letters, on the screen and below the prompt, and what takes its place in ASCII.

What the doctor found, a line for each thing, and what to type where something is missing.
"""

import io
import math
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Protocol, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.control import Control
from rich.segment import ControlType, Segment
from rich.text import Text

from cdd_agent.doctor import Check, State
from cdd_agent.repl.markdown import MarkdownStream
from cdd_agent.repl.rows import ASCII, UNICODE, wrap_hanging
from cdd_agent.repl.status_line import SYMBOLS, symbols_for
from cdd_agent.repl.typed_ahead import ECHO
from cdd_agent.untrusted.text import clean

TICK_S = 0.1
PATIENCE_S = 0.4
"""What ends sooner is not announced."""
APART_S = 0.05
"""Between two drawings of a row that grows, at least."""


class LiveLine:
    """At most one row, the last one of the terminal."""

    def __init__(self, console: Console, *, frames: str, enabled: bool) -> None:
        """``frames`` are shown in turn before what is going on."""
        self._console = console
        self._frames = frames
        self._enabled = enabled and console.is_terminal and not console.is_dumb_terminal
        self._lock = threading.RLock()
        self._label = ""
        self._tail = ""
        self._since_s = 0.0
        self._drawn_s = 0.0
        self._for_s: float | None = None
        self._is_drawn = False
        self._depth = 0

    @contextmanager
    def working(self, label: str) -> Iterator[None]:
        """Keep the line up to date while the block runs, and erase it after."""
        if not self._enabled or self._depth:
            yield
            return
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(done,), name="live-line", daemon=True)
        self._depth = 1
        self.say(label)
        ticker.start()
        try:
            yield
        finally:
            self._depth = 0
            done.set()
            ticker.join()
            with self.hidden():
                self._tail = ""

    def say(self, label: str, *, for_s: float | None = None) -> None:
        """What is going on from now on; with ``for_s`` it is waited for so long, and the seconds are counted down."""
        with self._lock:
            self._label, self._since_s, self._for_s = label, time.monotonic(), for_s

    def show(self, tail: str) -> None:
        """The beginning of a row that is not complete; empty for none. A row that grows fast is not drawn each time."""
        with self._lock:
            now = time.monotonic()
            self._tail, self._since_s = tail, now
            if not tail:
                with self.hidden():
                    return
            if not self._is_drawn or now - self._drawn_s >= APART_S:
                self._draw(tail, style="")

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Nothing of the line is on the terminal while the block prints; what it prints is written at its end."""
        with self._lock, self._console:
            if self._is_drawn:
                self._console.control(_ERASE)
                self._is_drawn = False
            yield

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing is drawn while the block runs."""
        with self._lock:
            with self.hidden():
                pass
            yield

    def _tick(self, done: threading.Event) -> None:
        """Redraw until the work is done."""
        while not done.wait(TICK_S):
            with self._lock:
                passed_s = time.monotonic() - self._since_s
                if done.is_set():
                    continue
                if passed_s < PATIENCE_S:
                    if self._tail and self._drawn_s < self._since_s:
                        self._draw(self._tail, style="")
                    continue
                frame = self._frames[int(time.monotonic() / TICK_S) % len(self._frames)]
                if self._tail:
                    self._draw(f"{self._tail} {frame}", style="")
                else:
                    shown_s = passed_s if self._for_s is None else max(0, math.ceil(self._for_s - passed_s))
                    self._draw(f"{frame} {self._label}  {shown_s:.0f} s, Ctrl-C stops", style="dim")

    def _draw(self, text: str, *, style: str) -> None:
        """Put ``text`` in place of what the line holds, cut to the width."""
        if not self._enabled or not self._depth:
            return
        row = Text(text, style=style, no_wrap=True)
        row.truncate(max(1, self._console.width - 3))  # room for the ^C that a terminal echoes
        with self._console:
            self._console.control(_ERASE)
            self._console.print(row, end="", soft_wrap=True)
        self._is_drawn, self._drawn_s = True, time.monotonic()


_ERASE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


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


_NAME_WIDTH = 13
_LOOK = {"ok": ("open", "green"), "note": ("note", "yellow"), "missing": ("closed", "bold red")}


def show_checks(checks: Iterable[Check], *, screen: Screen) -> bool:
    """Show each check as it comes, then what they come to; whether nothing is missing."""
    missing = 0
    for check in checks:
        missing += check.state == "missing"
        _show(check, screen=screen)
    screen.gap()
    if missing:
        things = "1 thing is missing; what to type stands below it."
        if missing > 1:
            things = f"{missing} things are missing; what to type stands below each."
        screen.line(things, style="bold red", indent=0, hang=2)
    else:
        screen.line("Everything that a run needs is there.", style="bold green", indent=0)
    return not missing


def _show(check: Check, *, screen: Screen) -> None:
    """One check: its mark, its name, what was seen, and below that what to type."""
    state: State = check.state
    symbol, style = _LOOK[state]
    head = Text.assemble((f"{screen.symbols[symbol]} ", style), (f"{check.name:<{_NAME_WIDTH}}", "bold"))
    screen.line(head + clean(check.told), indent=0, hang=_NAME_WIDTH + 2)
    for detail in check.details:
        loud = detail.startswith("NOT")
        screen.line(detail, style="bold red" if loud else "dim", indent=_NAME_WIDTH + 2, hang=2)
    if check.fix:
        screen.line(Text.assemble(("fix: ", "bold yellow"), clean(check.fix)), indent=_NAME_WIDTH + 2, hang=5)
