"""What is typed before anything is asked."""

import contextlib
import sys
import termios


def forget_typed_ahead() -> None:
    """Drop keys pressed while something ran: an Enter meant for nobody must not answer, or start the next step."""
    with contextlib.suppress(termios.error, OSError, ValueError):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
