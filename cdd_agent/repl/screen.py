"""The screen: wrapped lines, the model's words as they arrive, and a live line below them with the current activity.

A thread redraws the live line, because the work occupies the main thread. The line is drawn only on a terminal and only
while something runs: at the prompt, the terminal belongs to the prompt. The model's text is printed row by row. A row
is printed once nothing that follows can change it; the incomplete last row is part of the live line.
"""

import io
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.control import Control
from rich.segment import ControlType, Segment
from rich.text import Text

from cdd_agent.doctor import Check
from cdd_agent.errors import format_count
from cdd_agent.repl.commands import as_shell_command
from cdd_agent.repl.markdown import MarkdownStream
from cdd_agent.repl.rows import ASCII, UNICODE, wrap_hanging
from cdd_agent.repl.terminal import KEYBOARD, SYMBOLS, Keyboard, choose_symbols
from cdd_agent.untrusted.text import clean

TICK_S = 0.1
PATIENCE_S = 0.4
"""Activities that end sooner are not shown."""
MIN_REDRAW_S = 0.05
"""Least time between two drawings of a growing row."""
_ERASE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
_ERASE_ABOVE = Control((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"


class LiveLine:
    """The live line: the last row of the terminal, and one more below it while something is typed."""

    def __init__(self, console: Console, *, frames: str, enabled: bool, keyboard: Keyboard = KEYBOARD) -> None:
        """Draw nothing yet. ``frames`` are the pictures of the spinner."""
        self._console = console
        self._frames = frames
        self._enabled = enabled and console.is_terminal and not console.is_dumb_terminal
        self._keyboard = keyboard
        self._lock = threading.RLock()
        self._label = ""
        self._tail = ""
        self.status = ""
        """A row above the activity that stays until another one is set."""
        self._since_s = 0.0
        self._drawn_s = 0.0
        self._for_s: float | None = None
        self._drawn: tuple[tuple[str, str], ...] = ()
        """The rows that are on the terminal, each with its style."""
        self._is_working = False

    @contextmanager
    def working(self, label: str) -> Iterator[None]:
        """Keep the line up to date while the block runs, and erase it afterwards."""
        if not self._enabled or self._is_working:
            yield
            return
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(done,), name="live-line", daemon=True)
        self._is_working = True
        self.say(label)
        ticker.start()
        try:
            yield
        finally:
            self._is_working = False
            done.set()
            self._keyboard.has_changed.set()  # so that the ticker need not wait
            ticker.join()
            with self.hide():
                self._tail = self.status = ""

    def say(self, label: str, *, for_s: float | None = None) -> None:
        """Set the activity and restart its clock; with ``for_s`` the clock counts down from there."""
        with self._lock:
            self._label, self._since_s, self._for_s = label, time.monotonic(), for_s

    def show(self, tail: str) -> None:
        """Show an incomplete row; empty for none. A row that grows fast is not redrawn each time."""
        with self._lock:
            now = time.monotonic()
            self._tail, self._since_s = tail, now
            if not tail:
                with self.hide():
                    return
            if not self._drawn or now - self._drawn_s >= MIN_REDRAW_S:
                self._draw()

    @contextmanager
    def hide(self) -> Iterator[None]:
        """Erase the line while the block prints."""
        # The console buffers until the end of the block. One write erases and prints, so the row never flickers.
        with self._lock, self._console:
            self._erase()
            yield

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Draw nothing while the block runs."""
        with self._lock:
            with self.hide():
                pass
            yield

    def _tick(self, done: threading.Event) -> None:
        while not done.is_set():
            self._keyboard.has_changed.wait(TICK_S)
            self._keyboard.has_changed.clear()
            with self._lock:
                if not done.is_set():
                    self._draw()

    def _draw(self) -> None:
        """Draw the rows unless they are there already."""
        rows = tuple(self._list_rows())
        if not self._enabled or not self._is_working or rows == self._drawn:
            return
        with self._console:
            self._erase()
            for number, (text, style) in enumerate(rows):
                row = Text(text, style=style, no_wrap=True)
                row.truncate(self._width)
                self._console.print(row, end="" if number == len(rows) - 1 else "\n", soft_wrap=True)
        self._drawn, self._drawn_s = rows, time.monotonic()

    def _erase(self) -> None:
        for number in range(len(self._drawn)):
            self._console.control(_ERASE if number == 0 else _ERASE_ABOVE)
        self._drawn = ()

    @property
    def _width(self) -> int:
        return max(1, self._console.width - 3)  # room for the ^C that a terminal echoes

    @property
    def is_enabled(self) -> bool:
        """Whether it is ever drawn."""
        return self._enabled

    def _list_rows(self) -> Iterator[tuple[str, str]]:
        if self.status:
            yield self.status, "cyan"
        passed_s = time.monotonic() - self._since_s
        frame = self._frames[int(time.monotonic() / TICK_S) % len(self._frames)]
        if self._tail:
            yield (f"{self._tail} {frame}" if passed_s >= PATIENCE_S else self._tail), ""
        elif passed_s >= PATIENCE_S:
            shown_s = passed_s if self._for_s is None else max(0, math.ceil(self._for_s - passed_s))
            keys = "Esc or Ctrl-C" if self._keyboard.can_stop else "Ctrl-C"
            yield f"{frame} {self._label}  {shown_s:.0f} s, {keys} stops", "dim"
        typed = self._keyboard.typed
        if row := format_typed(typed.queued, typed.draft, width=self._width):
            yield row, "cyan"


def format_typed(queued: Sequence[str], draft: str, *, width: int) -> str:
    """Return in one row what was typed while cdd works: the queued lines, and the end of the line without Enter.

    >>> format_typed(["/status", "/cost"], "no, wr", width=60)
    'queued: /status; /cost  > no, wr'
    """
    lines, rest = (clean(" ".join(text.split("\n"))) for text in ("; ".join(queued), draft))
    while cell_len(rest) > width * 2 // 3:
        rest = rest[1:]
    head = Text(f"queued: {lines}" if lines else "")
    head.truncate(width - cell_len(rest) - 4 if rest else width, overflow="ellipsis")
    return "  ".join(part for part in (head.plain, f"> {rest}" if rest else "") if part)


class PlainStream:
    """Text for a file or another program, line by line as the model wrote it."""

    tail = ""
    """Always empty: an incomplete row is shown only on a terminal."""

    def __init__(self) -> None:
        """Start with an empty text."""
        self._pieces: list[str] = []
        self._blank: list[Text] = []
        """The blank lines that are printed if more text follows."""
        self._has_begun = False

    def feed(self, piece: str) -> list[Text]:
        """Return the lines that ``piece`` completes."""
        *ended, rest = piece.split("\n")
        lines: list[Text] = []
        for end in ended:
            self._pieces.append(end)
            lines += self.end()
        self._pieces.append(rest)
        return lines

    def end(self) -> list[Text]:
        """Return the current line, below the blank lines before it; nothing if it is blank."""
        line = clean("".join(self._pieces)).rstrip()
        self._pieces.clear()
        if not line:
            if self._has_begun:
                self._blank.append(Text())
            return []
        blank, self._blank, self._has_begun = self._blank, [], True
        return [*blank, Text(line)]


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield ``renderable`` without control characters and links."""
        # Everything passes here, texts, tables and Markdown, so no caller can forget to clean untrusted text. A link
        # is dropped because the reader cannot see its target.
        for text, style, control in super().render(renderable, options):
            if control is not None:
                continue
            shown = text if text.isascii() and text.isprintable() else clean(text)
            yield Segment(shown, style.update_link(None) if style is not None and style.link else style)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would end the process


class Screen:
    """Prints everything that a person reads."""

    def __init__(self, stream: TextIO = sys.stdout, *, color: bool | None = None, animated: bool = True) -> None:
        """With ``color`` None, the terminal and ``NO_COLOR`` decide. ``animated`` shows a live line on a terminal."""
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
        no_color = None if color is None else not color
        self.console: Console = _Console(file=stream, no_color=no_color, highlight=False, markup=False, emoji=False)
        self.symbols: Mapping[str, str] = choose_symbols(stream.encoding, besides=_FRAMES + UNICODE.symbols)
        has_unicode = self.symbols is SYMBOLS
        has_colors = self.console.color_system is not None and not self.console.no_color
        self._look = replace(UNICODE if has_unicode else ASCII, color=has_colors)
        self._is_terminal = stream.isatty()
        frames = _FRAMES if has_unicode else _ASCII_FRAMES
        self._live = LiveLine(self.console, frames=frames, enabled=animated and self._is_terminal)
        self.indent = 0
        """The indentation of the model's text and of diffs."""
        self.shows_changes = self._is_terminal
        """Whether the change of a file is shown when the model makes it."""
        self.as_typed: Callable[[str], str] = as_shell_command
        """Turns the commands in a text, of a shell or of the prompt, into those that the reader types here."""
        self._prose: MarkdownStream | PlainStream | None = None
        self._is_blank = True

    @contextmanager
    def working(self, label: str) -> Iterator[None]:
        """Show an activity while the block runs: ``label``, then the last one passed to ``say``. Hide typed keys."""
        with KEYBOARD.hide_keys() if self._is_terminal else nullcontext(), self._live.working(clean(label)):
            yield

    @property
    def has_status(self) -> bool:
        """Whether a status is shown."""
        return self._live.is_enabled

    def set_status(self, text: str) -> None:
        """Show ``text`` above the activity until the work ends."""
        self._live.status = clean(text.replace("\n", " "))

    def say(self, label: str, *, for_s: float | None = None) -> None:
        """Set the activity in the live line; with ``for_s`` its clock counts down from there."""
        self._live.say(clean(" ".join(label.split())), for_s=for_s)

    def line(self, text: str | Text, *, style: str = "", indent: int = 0, hang: int = 2) -> None:
        """Print ``text``, wrapped at the width; continuation rows are indented by ``hang`` more."""
        self.end_prose()
        whole = text if isinstance(text, Text) else Text(clean(text), style=style)
        for part in whole.split("\n", allow_blank=True):
            own = len(part.plain) - len(part.plain.lstrip(" "))
            part.expand_tabs(4)
            self._print_rows(wrap_hanging(part, width=self.console.width - indent, hang=hang + own), indent)

    def note(self, text: str, *, indent: int = 0) -> None:
        """Print a remark behind the symbol for notes."""
        self.line(f"{self.symbols['note']} {text}", style="yellow", indent=indent)

    def fields(self, rows: Iterable[tuple[str, str]], *, error: str = "") -> None:
        """Print names and texts in two columns, and the text of the field named ``error`` in red."""
        for name, text in rows:
            style = "bold red" if name and name == error else ""
            self.line(Text.assemble((f"{name:<9}", "dim"), (clean(text), style)), hang=9)

    def items(self, texts: Sequence[str | Text], *, most: int, hang: int = 2) -> None:
        """Print ``most`` of the texts, indented, and how many there are besides."""
        for text in texts[:most]:
            # Each is one line, also a path with line ends in it, which could pass for several.
            self.line(text.replace("\n", "<U+000A>") if isinstance(text, str) else text, indent=2, hang=hang)
        if len(texts) > most:
            self.line(f"and {len(texts) - most} more", indent=2)

    def gap(self) -> None:
        """Print a blank line, unless the last line is blank."""
        self.end_prose()
        if not self._is_blank:
            self._print_rows([Text()], 0)

    def show(self, content: RenderableType, *, wrap: bool = True) -> None:
        """Print a table or anything else that rich can print."""
        self.end_prose()
        with self._live.hide():
            self.console.print(content, soft_wrap=not wrap)
        self._is_blank = False

    def show_diff(self, diff: str, *, most: int | None = None) -> None:
        """Print a unified diff in color: wrapped on a terminal, with its lines unchanged elsewhere.

        Of a longer one only ``most`` lines, and how many there are besides.
        """
        lines = diff.splitlines()
        for line in lines[:most]:
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
            text = Text(clean(line), style="bold" if line.startswith(("+++", "---")) else style)
            if self._is_terminal:
                self.line(text, indent=self.indent, hang=1)
            else:
                self.show(text, wrap=False)
        if most is not None and len(lines) > most:
            rest, typed = format_count(len(lines) - most, "more line"), self.as_typed("cdd diff")
            hint = f"; {typed} shows all" if typed != "cdd diff" else ""  # the command line has no such command
            self.line(f"{rest}{hint}", style="dim", indent=self.indent)

    def error(self, happened: str, *, hint: str) -> None:
        """Print an error and its hint: wrapped on a terminal, one line each elsewhere."""
        for text in (
            Text.assemble(("error: ", "bold red"), clean(happened)),
            Text.assemble(("hint: ", "bold yellow"), clean(self.as_typed(hint))),
        ):
            if self.console.is_terminal:
                self.line(text)
            else:
                self.show(text, wrap=False)

    def ask(self, question: str, *, words: Sequence[str] = ()) -> str:
        """Return what the user types after ``question``. Raises ``KeyboardInterrupt`` if the user does not answer.

        In a terminal, the arrow keys go through ``words``.
        """
        self.end_prose()
        with self._live.pause(), KEYBOARD.show_keys():
            try:
                # Typed before, so it does not answer this question; it must not seem lost.
                typed = KEYBOARD.typed
                if row := format_typed(typed.queued, typed.draft, width=self.console.width - 1):
                    self.console.print(Text(row, style="cyan"), soft_wrap=True)
                self._is_blank = False
                if self.has_full_screen:
                    self.console.file.flush()
                    return _read_line(clean(question), words)
                self.console.print(Text(clean(question)), end=" ", soft_wrap=True)
                self.console.file.flush()
                return input()
            except (EOFError, KeyboardInterrupt) as stop:
                self.console.print()  # what follows starts in a new row
                raise KeyboardInterrupt from stop

    @contextmanager
    def lend(self) -> Iterator[None]:
        """Leave the terminal and its keys to the block, such as a full-screen view or another program."""
        self.end_prose()
        with self._live.pause(), KEYBOARD.lend():
            yield

    @property
    def has_full_screen(self) -> bool:
        """Whether a full-screen view can be shown and operated."""
        return self._is_terminal and sys.stdin.isatty() and not self.console.is_dumb_terminal

    def _print_rows(self, rows: list[Text], depth: int) -> None:
        with self._live.hide():
            for row in rows:
                self.console.print(Text(" " * depth if row else "") + row, soft_wrap=True)
                self._is_blank = not row

    def stream(self, text: str) -> None:
        """Print the rows of the model's text that ``text`` completes, and show the beginning of the next one.

        A terminal shows formatted Markdown; a file or a program gets what the model wrote.
        """
        if self._prose is None:
            is_seen = self.console.is_terminal and not self.console.is_dumb_terminal
            width = self.console.width - self.indent
            self._prose = MarkdownStream(width, look=self._look) if is_seen else PlainStream()
        final = self._prose.feed(text)
        tail = self._prose.tail
        shown = " " * self.indent + tail if tail else ""
        if not final:
            self._live.show(shown)
            return
        with self._live.hide():
            self._print_rows(final, self.indent)
            self._live.show(shown)

    def end_prose(self) -> None:
        """Print the rest of the model's text."""
        if self._prose is not None:
            prose, self._prose = self._prose, None
            with self._live.hide():
                self._live.show("")
                self._print_rows(prose.end(), self.indent)


_NAME_WIDTH = 13
_CHECK_LOOK = {"ok": ("open", "green"), "note": ("note", "yellow"), "missing": ("closed", "bold red")}


def show_checks(checks: Iterable[Check], *, screen: Screen) -> bool:
    """Show each check of the doctor as it ends, then the result. Return whether nothing is missing."""
    missing = 0
    for check in checks:
        missing += check.state == "missing"
        show_check(check, screen=screen)
    screen.gap()
    if missing:
        screen.line(f"{format_count(missing, 'problem')}, each with its fix.", style="bold red")
    else:
        screen.line("Everything that a run needs is there.", style="bold green")
    return not missing


def show_check(check: Check, *, screen: Screen) -> None:
    """Show one check of the doctor, with its fix if something is missing."""
    symbol, style = _CHECK_LOOK[check.state]
    head = Text.assemble((f"{screen.symbols[symbol]} ", style), (f"{check.name:<{_NAME_WIDTH}}", "bold"))
    screen.line(head + clean(check.told), hang=_NAME_WIDTH + 2)
    for detail in check.details:
        style = "bold red" if detail.startswith("NOT") else "dim"
        screen.line(detail, style=style, indent=_NAME_WIDTH + 2)
    if check.fix:
        screen.line(Text.assemble(("fix: ", "bold yellow"), clean(check.fix)), indent=_NAME_WIDTH + 2, hang=5)


def _read_line(question: str, words: Sequence[str]) -> str:
    # With readline, a line can be edited, and its history is what the arrow keys go through.
    with suppress(ImportError):
        import readline

        readline.clear_history()
        readline.set_auto_history(False)
        for word in reversed(words):
            readline.add_history(word)
        for keys, move in (("A", "next"), ("B", "previous")):  # up, down: the first word is the last of the history
            for start in ("[", "O"):
                readline.parse_and_bind(rf'"\e{start}{keys}": {move}-history')
    return input(f"{question} ")
