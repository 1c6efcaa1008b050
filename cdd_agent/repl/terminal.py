"""The terminal as the prompt and the screen share it: its symbols, the status shown, and the keys pressed meanwhile.

Keys that are pressed while cdd works are kept, for the screen to show and the prompt to use. A thread reads them,
because the work occupies the main thread. A line that ends with Enter is queued; the rest is the draft, with which the
prompt begins. Enter alone is not kept, so a stray one cannot start a step.

The prompt appears before the rest of cdd is loaded, so this module imports only the standard library.
"""

import codecs
import contextlib
import os
import re
import select
import signal
import sys
import termios
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import subprocess

_SYMBOL_NAMES = ("open", "closed", "tool", "commit", "back", "note", "todo", "cut", "bar", "full", "empty")
SYMBOLS: Mapping[str, str] = dict(zip(_SYMBOL_NAMES, "✔✘→●↶•○…│█░", strict=True))
ASCII_SYMBOLS: Mapping[str, str] = dict(zip(_SYMBOL_NAMES, "+x>*<-o~|#.", strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStatus:
    """Where the user is, as the prompt and the toolbar show it. Empty fields and None are left out."""

    agent: str = "cdd"
    ticket: str = ""
    step: str = ""
    """``2/3``; empty outside the Executor and a review."""
    phase: str = ""
    """``red``, ``green`` or ``refactor``: the current phase or the last one."""
    gate: str = ""
    """``open`` or ``closed``: the last verdict in that phase."""
    model: str = ""
    context_percent: int | None = None
    """How much of the model's context the last request filled; None if its size is unknown."""
    cost: str = ""
    """The cost of the session as text: ``0.42 USD``, ``cost unknown``."""
    sandbox: str = ""
    """The level that confines the tests, once it is known."""

    question: str = ""
    """The question that waits for an answer; not shown."""

    @property
    def place(self) -> str:
        """Where a line belongs that is typed here."""
        return f"{self.agent} {self.ticket} {self.step} {self.question}"


ReadLine: TypeAlias = Callable[[PromptStatus], str]
"""Returns one line from the user. Raises ``EOFError`` at the end of input and ``KeyboardInterrupt`` for Ctrl-C."""


def choose_symbols(encoding: str | None, *, besides: str = "") -> Mapping[str, str]:
    """Return ``SYMBOLS`` if the encoding has them and the characters in ``besides``, else ``ASCII_SYMBOLS``."""
    try:
        ("".join(SYMBOLS.values()) + besides).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII_SYMBOLS
    return SYMBOLS


_LOCAL, _CHARACTERS = 3, 6
"""Indexes in what ``tcgetattr`` returns."""
_Modes: TypeAlias = list[Any]
ESCAPE_S = 0.05
"""How long after Esc the rest of a key may come that begins with the same byte, such as an arrow."""
BURST_S = 0.01
"""Keys closer together than this were pasted: nobody types that fast."""
SHORTEST_PASTE = 8
"""Fewer keys with an Enter between them may have been typed while the machine was too busy to read them."""
_MOST_BYTES = 1_000_000

_KEY = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\[O]|\x1b(?:\[[0-?]*[ -/]*|O)?\Z|.", re.DOTALL)
"""A character, or all characters that a key such as an arrow sends."""
_UP = ("\x1b[A", "\x1bOA")
_LAST_WORD = re.compile(r"\S*\s*\Z")


class _QueuedLine(NamedTuple):
    text: str
    place: str


class TypedLines:
    """The lines and the draft that keys make up.

    A queued line is carried out by itself only at the place where it was typed, such as a step of a ticket, because
    elsewhere it may mean something else. Commands with a slash, and those of the shell, mean the same everywhere.

    One thread calls ``press`` and ``paste``, another one the rest. No lock is needed, and a signal handler may
    interrupt either: every change is one operation on a deque or an attribute.
    """

    def __init__(self) -> None:
        """Start without anything typed."""
        self.draft = ""
        self.place = PromptStatus().place
        """Where the lines belong that are typed now."""
        self._lines: deque[_QueuedLine] = deque()
        self._unsent: deque[str] = deque()
        """Lines that only the user may send."""
        self._is_held = False

    @property
    def queued(self) -> tuple[str, ...]:
        """The complete lines, oldest first."""
        return tuple(line.text for line in tuple(self._lines))

    def press(self, typed: str) -> None:
        """Add keys, as the terminal sends them."""
        for key in _KEY.findall(typed):
            self._press_key(key)

    def _press_key(self, key: str) -> None:
        match key:
            case "\r" | "\n":
                self._queue_draft()
            case "\x1b\r" | "\x1b\n":
                self.draft += "\n"
            case "\x7f" | "\x08":
                self.draft = self.draft[:-1]
            case "\x17":
                self.draft = _LAST_WORD.sub("", self.draft)
            case "\x15":
                self.draft = ""
            case _ if key in _UP and not self.draft:
                with contextlib.suppress(IndexError):
                    self.draft = self._lines.pop().text
            case _ if key.isprintable():
                self.draft += key

    def paste(self, text: str) -> None:
        """Add a pasted text: its line ends do not send it, except the last one."""
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        is_sent = len(lines) > 1 and not lines[-1]
        shown = ("".join(each for each in line if each.isprintable() or each == "\t") for line in lines)
        self.draft += "\n".join(shown).removesuffix("\n" if is_sent else "")
        if is_sent:
            self._queue_draft()

    def _queue_draft(self) -> None:
        line, self.draft = self.draft, ""
        if line.strip():
            self._lines.append(_QueuedLine(line, self.place))

    def keep(self, line: str) -> None:
        """Let a prompt begin with ``line``, for the user to send."""
        self._unsent.append(line)

    def take_line(self) -> str | None:
        """Return the next line to carry out here.

        None if there is none, if the user stopped the work meanwhile, or if the user has to send it.
        """
        if self._is_held or self._unsent or not self._lines:
            return None
        line = self._lines[0]
        if line.place != self.place and not line.text.startswith(("/", "!")):
            self.hold()
            return None
        return self._lines.popleft().text

    @property
    def has_lines(self) -> bool:
        """Whether a complete line waits to be carried out or sent."""
        return bool(self._lines or self._unsent)

    @property
    def is_restoring(self) -> bool:
        """Whether the next prompt begins with a line that is held back."""
        return self.has_lines and not self.draft

    def take_draft(self) -> str:
        """Return the text with which the prompt begins: the draft, else a line that is held back."""
        if self.is_restoring:
            return self._unsent.popleft() if self._unsent else self._lines.popleft().text
        # The draft is first, because the user is still typing it: the prompt would add the rest to the held line.
        draft, self.draft, self._is_held = self.draft, "", bool(self._lines)
        return draft

    def take_if(self, is_meant: Callable[[str], bool]) -> tuple[str, ...]:
        """Return and remove the queued lines that were typed here and for which ``is_meant`` is true."""
        if self._is_held:
            return ()
        taken = tuple(line for line in tuple(self._lines) if line.place == self.place and is_meant(line.text))
        for line in taken:
            with contextlib.suppress(ValueError):  # the user has just taken it back
                self._lines.remove(line)
        return tuple(line.text for line in taken)

    def hold(self) -> None:
        """Carry out no queued line by itself: each becomes the beginning of a prompt, for the user to send."""
        self._is_held = bool(self._lines)


class Keyboard:
    """Hides the keys while cdd works, except for questions and while the process is suspended."""

    def __init__(self) -> None:
        """Leave the terminal as it is."""
        self.typed = TypedLines()
        self.has_changed = threading.Event()
        """Set when a key was pressed. The screen clears it when it has shown the key."""
        self.can_stop = False
        """Whether Esc stops what runs, as the first Ctrl-C does. It never counts as the second one."""
        self._keeps = False
        self._before: _Modes | None = None
        """The terminal's modes before the keys were hidden; None while they are shown."""
        self._reader: _KeyReader | None = None

    @contextlib.contextmanager
    def keep_keys(self) -> Iterator[None]:
        """Keep for the prompt what is typed while keys are hidden. Otherwise the next program gets it."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False

    @contextlib.contextmanager
    def stop_at_escape(self) -> Iterator[None]:
        """Let Esc stop the block, if its keys are kept."""
        self.can_stop = self._keeps
        try:
            yield
        finally:
            self.can_stop = False

    def _stop(self) -> None:
        if self.can_stop:
            self.can_stop = False
            # The main thread may be blocked in a call, which only its own signal ends.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    @contextlib.contextmanager
    def hide_keys(self) -> Iterator[None]:
        """Hide what is typed while the block runs."""
        if self._is_hiding() or threading.current_thread() is not threading.main_thread():
            yield
            return
        suspend = signal.getsignal(signal.SIGTSTP)
        try:
            self._begin()
            if self._is_hiding() and suspend == signal.SIG_DFL:
                signal.signal(signal.SIGTSTP, self._suspend)
            yield
        finally:
            self.restore()
            if suspend == signal.SIG_DFL:
                signal.signal(signal.SIGTSTP, suspend)

    @contextlib.contextmanager
    def show_keys(self) -> Iterator[None]:
        """Show the keys while the block runs, and leave them for the block to read."""
        was_hiding = self._is_hiding()
        self.restore()
        try:
            yield
        finally:
            if was_hiding:
                self._begin()

    @contextlib.contextmanager
    def lend(self) -> Iterator[None]:
        """Leave the terminal to another program, and bring back the modes that it changed.

        One that is killed while it asks for a password leaves the keys hidden.
        """
        with self.show_keys():
            before = _read_modes()
            try:
                yield
            finally:
                if before is not None and _read_modes() not in (None, before):
                    with contextlib.suppress(termios.error, OSError, ValueError):
                        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)

    def _is_hiding(self) -> bool:
        return self._before is not None

    def restore(self) -> None:
        """Show the keys again if this object has hidden them."""
        with defer_interrupts():
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.stop()
            before, self._before = self._before, None
            if before is not None:
                with contextlib.suppress(termios.error, OSError, ValueError):
                    termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)

    def take_line(self, place: str) -> str | None:
        """Return the next line to carry out at ``place``; None if the user is to type or send one at the prompt."""
        if self.typed.has_lines:
            # Keys that were pressed since the work ended are not yet read; the prompt would add them to a held line.
            with self.hide_keys():
                pass
        self.typed.place = place
        return self.typed.take_line()

    def set_aside(self) -> None:
        """Keep keys that were pressed before a question from answering it, or drop them if nobody keeps them."""
        if not self._keeps:
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcflush(sys.stdin, termios.TCIFLUSH)

    def give_back(self, answer: str) -> bool:
        """Return whether ``answer``, which no question understood, is kept as the beginning of a prompt."""
        is_kept = self._keeps and bool(answer.strip())
        if is_kept:
            self.typed.keep(answer)
        return is_kept

    def _begin(self) -> None:
        with defer_interrupts():
            self._before = _hide(keeps=self._keeps)
            if self._before is not None and self._keeps:
                self._reader = _KeyReader(sys.stdin.fileno(), self.typed, tell=self.has_changed.set, stop=self._stop)

    def _suspend(self, number: int, _frame: object) -> None:
        with self.show_keys():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            signal.signal(number, self._suspend)  # runs after `fg`


KEYBOARD = Keyboard()


class _KeyReader:
    """Reads the terminal in a thread."""

    def __init__(self, terminal: int, typed: TypedLines, *, tell: Callable[[], None], stop: Callable[[], None]) -> None:
        self._terminal = terminal
        self._typed = typed
        self._tell = tell
        self._stop_work = stop
        self._wakes, self._waking = os.pipe()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Keys that are waiting were pressed one by one, while nobody read them.
        self._typed.press(self._decoder.decode(self._read(within_s=0)))
        self._thread = threading.Thread(target=self._run, name="keyboard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take in what has been typed, and stop."""
        os.write(self._waking, b"\0")
        self._thread.join()
        os.close(self._wakes)
        os.close(self._waking)

    def _run(self) -> None:
        is_stopped = False
        while not is_stopped:
            ready, _, _ = select.select([self._terminal, self._wakes], [], [])
            is_stopped = self._wakes in ready
            data = self._read(within_s=0)
            if not data and not is_stopped:
                return  # the terminal was closed
            is_burst = len(data) > 1 or data == b"\x1b"
            if is_burst:
                data += self._read(within_s=ESCAPE_S if data == b"\x1b" else BURST_S)
            if data and not data.strip(b"\x1b") and not is_stopped:
                self._stop_work()
                continue
            text = self._decoder.decode(data, final=is_stopped)
            lines = text.rstrip("\r\n").replace("\r", "\n")
            if is_burst and "\n" in lines and "\x1b" not in text and len(lines) >= SHORTEST_PASTE:
                self._typed.paste(text)
            else:
                self._typed.press(text)
            self._tell()

    def _read(self, *, within_s: float) -> bytes:
        """Return what can be read, until nothing follows ``within_s``."""
        data = b""
        with contextlib.suppress(OSError):
            while len(data) < _MOST_BYTES and select.select([self._terminal], [], [], within_s)[0]:
                piece = os.read(self._terminal, 65_536)
                if not piece:
                    break
                data += piece
        return data


@contextlib.contextmanager
def defer_interrupts() -> Iterator[None]:
    """Deliver Ctrl-C after the block, which would leave something half done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)


def wait_for(process: "subprocess.Popen[bytes]") -> int:
    """Wait for a program that has the terminal, and return its exit status. Ctrl-C belongs to the program."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _read_modes() -> "_Modes | None":
    """Return the terminal's modes; None if it is not ours."""
    try:
        terminal = sys.stdin.fileno()
        # In the background the terminal belongs to another process, usually the shell.
        return termios.tcgetattr(terminal) if os.tcgetpgrp(terminal) == os.getpgrp() else None
    except (termios.error, OSError, ValueError):
        return None


def _hide(*, keeps: bool) -> "_Modes | None":
    """Hide the keys and return the modes before; None if the terminal is not ours or hides them already."""
    before, modes = _read_modes(), _read_modes()
    if before is None or modes is None or not before[_LOCAL] & termios.ECHO:
        return None
    try:
        modes[_LOCAL] &= ~termios.ECHO
        if keeps:
            # Single keys, and Ctrl-C does not throw away what was typed before it.
            modes[_LOCAL] = (modes[_LOCAL] | termios.NOFLSH) & ~(termios.ICANON | termios.IEXTEN)
            modes[_CHARACTERS][termios.VMIN], modes[_CHARACTERS][termios.VTIME] = 1, 0
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)
    except (termios.error, OSError, ValueError):
        return None
    return before
