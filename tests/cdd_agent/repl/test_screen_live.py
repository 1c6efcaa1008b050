"""The line below the last one."""

import io
import re
from collections.abc import Callable

import pyte
import pytest
from rich.console import Console

from cdd_agent.repl.screen import LiveLine


class Terminal(io.StringIO):
    """A stream that a terminal emulator shows."""

    def __init__(self) -> None:
        super().__init__()
        self.screen = pyte.Screen(30, 4)
        self._stream = pyte.Stream(self.screen)

    def write(self, text: str) -> int:
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    @property
    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.screen.display if row.strip()]


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def live_on(terminal: Terminal, *, enabled: bool = True) -> tuple[LiveLine, Callable[[str], None]]:
    console = Console(file=terminal, force_terminal=True, width=30, _environ={"TERM": "xterm"})
    return LiveLine(console, frames="|", enabled=enabled), console.print


def wait_for(condition: Callable[[], bool]) -> None:
    """The thread of the line redraws at least every tenth of a second."""
    import time

    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _counted(rows: list[str]) -> list[str]:
    """The rows, the seconds left open: a busy machine takes its time."""
    return [re.sub(r"\d+ s", "N s", row) for row in rows]


def test_it_says_what_is_going_on_below_what_was_printed(terminal: Terminal) -> None:
    live, show = live_on(terminal)
    with live.working("waiting"):
        with live.hide():
            show("a line")
        live.say("pytest")
        wait_for(lambda: _counted(terminal.rows) == ["a line", "| pytest  N s, Ctrl-C stops"])
        with live.hide():
            show("another")
    assert terminal.rows == ["a line", "another"]


def test_a_wait_is_counted_down(terminal: Terminal) -> None:
    live, _ = live_on(terminal)
    seen: list[str] = []

    def is_over() -> bool:
        seen.extend(row[6:9] for row in terminal.rows)
        return "0 s" in seen

    with live.working("waiting"):
        live.say("in", for_s=1.4)
        wait_for(is_over)
    counted = list(dict.fromkeys(seen))
    assert counted == sorted(counted, reverse=True)
    assert set(counted) > {"0 s"}
    assert set(counted) <= {"2 s", "1 s", "0 s"}


def test_it_shows_a_row_that_is_not_complete_and_cuts_it_at_the_width(terminal: Terminal) -> None:
    live, _ = live_on(terminal)
    with live.working("waiting"):
        live.show("a row that is longer than the terminal is wide")
        assert terminal.rows == ["a row that is longer than t"]
        live.show("")
        assert terminal.rows == []


def test_what_ends_soon_is_not_announced(terminal: Terminal) -> None:
    live, _ = live_on(terminal)
    with live.working("waiting"):
        pass
    assert terminal.rows == []


def test_switched_off_it_writes_nothing(terminal: Terminal) -> None:
    live, _ = live_on(terminal, enabled=False)
    with live.working("waiting"):
        live.show("text")
    assert terminal.rows == []
