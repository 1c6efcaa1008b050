"""A limit on the time of work that a model asks for: an expression, or a piece of text, can be made to take years.

The limit is an alarm signal, which cuts into a search of ``re`` too, on every Python from 3.11 on: such a search looks
for signals now and then. So does Ctrl-C, which passes as it would without a limit.
"""

import signal
from collections.abc import Callable
from typing import TypeVar

from cdd_agent.errors import UsageError

T = TypeVar("T")


class _TimeIsUp(BaseException):
    """Not an ``Exception``: nothing on the way takes it for an error of its own."""


def within(seconds: float, work: Callable[[], T], *, hint: str) -> T:
    """What ``work`` returns; ``UsageError`` with ``hint`` if it takes longer.

    Only for the main thread, where agents work, and for work that may be cut off anywhere.
    """
    is_running = True

    def ring(_number: int, _frame: object) -> None:
        if is_running:
            raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return work()
    except _TimeIsUp as error:
        raise UsageError(f"It was given up after {seconds:g} s.", hint=hint) from error
    finally:
        is_running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
