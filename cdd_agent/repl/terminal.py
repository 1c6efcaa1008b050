"""The terminal as the prompt and the screen share it: keys typed ahead, the echo, the status shown, and its symbols.

The prompt appears before the rest of cdd is loaded, so this module imports only the standard library.
"""

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

_LOCAL_MODES = 3
"""Index of the flags, among them ECHO, in what ``tcgetattr`` returns."""
_SYMBOL_NAMES = ("open", "closed", "tool", "commit", "back", "note", "todo", "cut", "bar")
SYMBOLS: Mapping[str, str] = dict(zip(_SYMBOL_NAMES, "✔✘→●↶•○…│", strict=True))
ASCII_SYMBOLS: Mapping[str, str] = dict(zip(_SYMBOL_NAMES, "+x>*<-o~|", strict=True))


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


ReadLine: TypeAlias = Callable[[PromptStatus], str]
"""Returns one line from the user. Raises ``EOFError`` at the end of input and ``KeyboardInterrupt`` for Ctrl-C."""


def choose_symbols(encoding: str | None, *, besides: str = "") -> Mapping[str, str]:
    """Return ``SYMBOLS`` if the encoding has them and the characters in ``besides``, else ``ASCII_SYMBOLS``."""
    try:
        ("".join(SYMBOLS.values()) + besides).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII_SYMBOLS
    return SYMBOLS


def discard_typed_ahead() -> None:
    """Drop the keys pressed while something ran.

    Otherwise an Enter pressed earlier would answer the question that comes next, or start the next step.
    """
    with contextlib.suppress(termios.error, OSError, ValueError):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


class Echo:
    """Switches off the terminal's echo while cdd works, except for questions and while the process is suspended."""

    def __init__(self) -> None:
        """Leave the terminal as it is."""
        self._is_off = False

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        """Hide what is typed while the block runs."""
        if self._is_off or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGTSTP)
        try:
            self._is_off = _switch_echo(on=False)
            if self._is_off and before == signal.SIG_DFL:
                signal.signal(signal.SIGTSTP, self._suspend)
            yield
        finally:
            self.restore()
            if before == signal.SIG_DFL:
                signal.signal(signal.SIGTSTP, before)

    @contextlib.contextmanager
    def enable(self) -> Iterator[None]:
        """Show what is typed while the block runs, inside a block that hides it."""
        was_off = self._is_off
        self.restore()
        try:
            yield
        finally:
            self._is_off = was_off and _switch_echo(on=False)

    def restore(self) -> None:
        """Switch the echo on again if this object switched it off."""
        if self._is_off:
            self._is_off = False
            _switch_echo(on=True)

    def _suspend(self, number: int, _frame: object) -> None:
        with self.enable():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            signal.signal(number, self._suspend)  # runs after `fg`


ECHO = Echo()


def _switch_echo(*, on: bool) -> bool:
    """Switch the echo and return whether that changed anything."""
    try:
        terminal = sys.stdin.fileno()
        # In the background the terminal belongs to another process, usually the shell.
        if os.tcgetpgrp(terminal) != os.getpgrp():
            return False
        attributes = termios.tcgetattr(terminal)
        if bool(attributes[_LOCAL_MODES] & termios.ECHO) == on:
            return False
        attributes[_LOCAL_MODES] ^= termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    except (termios.error, OSError, ValueError):
        return False
    return True
