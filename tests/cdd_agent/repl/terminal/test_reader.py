"""The line editor: keys, history, completion, toolbar; and a real screen."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from cdd_agent.repl.place import Place, Read
from cdd_agent.repl.terminal.reader import terminal_reader, toolbar_text
from tests.cdd_agent.repl.terminal.window import Window, needs_tmux

PLACE = Place(agent="exec", ticket="csv-export", step="2/3", sandbox="bwrap")


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys


def reader(history: Path | None = None) -> Read:
    return terminal_reader(history, slugs=lambda: ["csv-export"], model="claude")


def test_a_line_ends_with_enter(keys: PipeInput) -> None:
    keys.send_text("/status\r")
    assert reader()(PLACE) == "/status"


def test_enter_alone_is_an_empty_line(keys: PipeInput) -> None:
    keys.send_text("\r")
    assert reader()(PLACE) == ""


def test_ctrl_c_and_ctrl_d_are_told_apart(keys: PipeInput) -> None:
    read = reader()
    keys.send_text("some words\x03")
    with pytest.raises(KeyboardInterrupt):
        read(PLACE)
    keys.send_text("\x04")
    with pytest.raises(EOFError):
        read(PLACE)


def test_ctrl_d_behind_text_leaves_it(keys: PipeInput) -> None:
    keys.send_text("words\x04\r")
    assert reader()(PLACE) == "words"


def test_a_pasted_text_keeps_its_lines(keys: PipeInput) -> None:
    keys.send_text("\x1b[200~one\r\ntwo\x1b[201~\r")
    assert reader()(PLACE) == "one\ntwo"


def test_history_outlives_the_sitting(keys: PipeInput, tmp_path: Path) -> None:
    keys.send_text("/status\r")
    reader(tmp_path / "history")(PLACE)
    keys.send_text("\x1b[A\r")
    assert reader(tmp_path / "history")(PLACE) == "/status"


def test_the_toolbar_names_agent_ticket_step_model_and_sandbox() -> None:
    text = toolbar_text(PLACE, model="claude", width=100)
    assert text.startswith(" exec | csv-export | step 2/3 | claude | sandbox bwrap ")
    assert text.endswith("/help  Ctrl-D leaves ")
    assert len(text) == 100


@pytest.mark.parametrize("width", [10, 20, 31, 40, 53, 60])
def test_a_narrow_toolbar_drops_what_matters_least(width: int) -> None:
    text = toolbar_text(PLACE, model="claude", width=width)
    assert len(text) <= width
    assert text.startswith(" exec")


def test_outside_of_an_agent_the_toolbar_is_short() -> None:
    assert toolbar_text(Place(), model="claude", width=20) == " cdd | claude"


@needs_tmux
def test_a_real_screen(finished: Path, tmp_path: Path) -> None:
    window = Window(tmp_path / "tmux", finished)
    try:
        window.screen_with("turns a ticket into tested commits", " cdd | claude-opus-5-5", "/help  Ctrl-D leaves")
        window.type("/sta")
        window.screen_with("/status [SLUG]  the tickets, or where one stands")
        window.type("tus", "Enter")
        window.screen_with("minutes-lost  Minutes without a unit are lost", "1 of 1")
        window.type("/exec minutes-lost", "Enter")
        window.screen_with("✔ completed", "1 of 1 steps are completed; nothing is left to do.", "cdd minutes-lost>")
        window.type("words", "C-c")
        window.screen_with("Ctrl-D or /exit leaves")
        window.type("/exit", "Enter")
        end = time.monotonic() + 10
        while window.is_open():
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        window.close()
