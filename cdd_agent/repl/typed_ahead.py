"""What is typed before anything is asked: the terminal does not show it, and it answers nothing."""

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Iterator

_LOCAL_MODES = 3
"""Which of a terminal's attributes hold the echo."""


def forget_typed_ahead() -> None:
    """Drop keys pressed while something ran: an Enter meant for nobody must not answer, or start the next step."""
    with contextlib.suppress(termios.error, OSError, ValueError):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


class Echo:
    """Whether the terminal shows what is typed.

    It is off while something works, and as it was while a question is asked, while the process is stopped, and at the
    end. A terminal of whose foreground this process is not, or that shows nothing anyway, stays as it is.
    """

    def __init__(self) -> None:
        """Nothing is changed yet."""
        self._is_off = False

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """What is typed while the block runs is not shown."""
        if self._is_off or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGTSTP)
        try:
            self._is_off = _switch(on=False)
            if self._is_off and before == signal.SIG_DFL:
                signal.signal(signal.SIGTSTP, self._stop)
            yield
        finally:
            self.restore()
            if before == signal.SIG_DFL:
                signal.signal(signal.SIGTSTP, before)

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """What is typed while the block runs is shown, within a block that is not."""
        was_off = self._is_off
        self.restore()
        try:
            yield
        finally:
            self._is_off = was_off and _switch(on=False)

    def restore(self) -> None:
        """Leave the terminal as it was."""
        if self._is_off:
            self._is_off = False
            _switch(on=True)

    def _stop(self, number: int, _frame: object) -> None:
        """Ctrl-Z: the shell gets the terminal as it was."""
        with self.on():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            signal.signal(number, self._stop)  # gone on with


ECHO = Echo()
"""Of the one terminal there is."""


def _switch(*, on: bool) -> bool:
    """Have the terminal show what is typed, or not; whether that changed it. Another process's turn is left to it."""
    try:
        terminal = sys.stdin.fileno()
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
