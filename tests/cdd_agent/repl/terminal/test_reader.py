"""The prompt on a real screen, as somebody sees it who uses it for the first time."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cdd_agent.repl.terminal.window import Window, needs_tmux

BLOCK = "".join(f"line {number}\n" for number in range(40))
TOOLBAR = " cdd | claude-opus-5-5"

Open = Callable[..., Window]


@pytest.fixture
def opened(finished: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens windows in a project whose only ticket is carried out."""
    windows: list[Window] = []

    def open_window(**told: object) -> Window:
        windows.append(Window(tmp_path / f"tmux{len(windows)}", finished, **told))  # type: ignore[arg-type]
        return windows[-1]

    yield open_window
    for window in windows:
        window.close()


def wait_until_closed(window: Window) -> None:
    end = time.monotonic() + 10
    while window.is_open():
        assert time.monotonic() < end
        time.sleep(0.05)


@needs_tmux
def test_a_whole_sitting(opened: Open) -> None:
    window = opened()
    window.screen_with("turns a ticket into tested commits", TOOLBAR, "/help  Ctrl-D leaves")
    window.type("/sta")
    window.screen_with("/status [SLUG]  the tickets, or where one stands")
    window.type("tus", "Enter")
    window.screen_with("minutes-lost  Minutes without a unit are lost", "1 of 1")
    window.type("/exec minutes-lost", "Enter")
    window.screen_with("✔ completed", "1 of 1 steps are completed; nothing is left to do.", "cdd minutes-lost>")
    window.type("words", "C-c")
    window.screen_with("Cleared; the up arrow brings it back.", without=("> words",))
    window.type("C-c")
    window.screen_with("Ctrl-D or /exit leaves", " cdd | minutes-lost | claude-opus-5-5")
    window.type("/exit", "Enter")
    wait_until_closed(window)
