"""The line below the last one printed: what is going on now, and for how long. It is gone when there is more to print.

A thread redraws it, because whoever works holds the main thread. Off a terminal nothing of it is ever written, and
none of it while nothing works: at the prompt the terminal belongs to the prompt. What is erased and what is printed in
its place go to the terminal in one write, so that nobody sees the row empty.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

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
