"""The prompt on a real screen, as somebody sees it who uses it for the first time."""

import io
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from cdd_agent.repl.completion import Candidates
from cdd_agent.repl.prompt import count_added_rows, has_reflow, make_reader
from cdd_agent.repl.terminal import PromptStatus
from cdd_agent.work.records import find_records
from tests.cdd_agent.repl.terminal_window import Window, needs_tmux

BLOCK = "".join(f"line {number}\n" for number in range(40))
TOOLBAR = " cdd | claude-opus-5-5"
UNANSWERED = "error: No model is available"

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


@needs_tmux
def test_a_whole_sitting(opened: Open) -> None:
    window = opened()
    window.screen_with("turns a ticket into tested commits", "No API key is set", TOOLBAR, "/help  Ctrl-D leaves")
    window.type("/sta")
    window.screen_with("/status [SLUG]  show all tickets, or the progress of one")
    window.type("tus", "Enter")
    window.screen_with("minutes-lost  Minutes without a unit are lost", "1 of 1")
    window.type_at("cdd>", "/exec minutes-lost", "Enter")
    window.screen_with("✔ completed", "1 of 1 steps are completed; nothing is left to do.")
    window.type_at("cdd minutes-lost>", "words", "C-c")
    window.screen_with("Cleared; the up arrow brings it back.", without=("> words",))
    window.type("C-c")
    window.screen_with("Press Ctrl-C again or Ctrl-D to leave", " cdd | minutes-lost | claude-opus-5-5")
    window.type_at("cdd minutes-lost>", "/exit", "Enter")
    window.wait_until_closed()


@pytest.mark.slow
@needs_tmux
def test_several_lines_and_pastes_are_one_message_each(opened: Open, finished: Path) -> None:
    window = opened()
    window.screen_with(TOOLBAR)
    window.type("one", "M-Enter")
    window.type("two", "C-j", "three")
    window.screen_with("cdd> one\n     two\n     three")
    window.type("C-c")
    window.paste(BLOCK)
    window.type(" what is this?")
    shown = window.screen_with("cdd> [pasted 40 lines #1] what is this?")
    assert "line 7" not in shown
    window.type("Enter")
    window.screen_with(UNANSWERED)
    window.type_at("cdd>")
    window.paste("if a:\n    b()\n", is_bracketed=False)
    window.screen_with(f"cdd> if a:\n         b()\n{UNANSWERED}")
    history = (find_records(finished).folder / "history").read_text(encoding="utf-8")
    assert "+" + BLOCK.replace("\n", "\n+") + " what is this?\n" in history
    assert "+if a:\n+    b()\n" in history


def is_whole(rows: list[str], typed: str, *, columns: int) -> bool:
    """Whether the prompt stands there once, with all that was typed in rows of ``columns``, and the toolbar last."""
    shown = "".join(row[5:].ljust(columns - 5) for row in rows if row[:5] in ("cdd> ", "     "))
    is_once = sum("cdd> a line" in row for row in rows) == 1
    return is_once and shown.strip() == typed.strip() and rows[-1].startswith(" cdd")


@pytest.mark.slow
@needs_tmux
def test_another_size_leaves_no_broken_rows(opened: Open) -> None:
    typed = "a line that is long enough to be wrapped " * 3
    window = opened()
    window.screen_with(TOOLBAR)
    window.type(typed)
    window.screen_with("cdd> a line")
    for columns in (50, 23, 90, 64):
        window.resize(columns)
        end = time.monotonic() + 60
        while not is_whole(window.screen().rstrip().split("\n"), typed, columns=columns):
            assert time.monotonic() < end, window.screen()
            time.sleep(0.05)
    window.resize(100, rows=4)
    window.screen_with("cdd> a line", TOOLBAR)


@pytest.mark.slow
@needs_tmux
def test_vi_and_an_editor_of_ones_own(opened: Open, finished: Path, tmp_path: Path) -> None:
    (finished / ".cdd" / "config.yaml").write_text("editing_mode: vi\n", encoding="utf-8")
    window = opened(environment={"HOME": str(tmp_path), "EDITOR": "no-such-editor"})
    window.screen_with("Let it take effect? [y/N]")
    window.type("y", "Enter")
    window.screen_with(TOOLBAR)
    window.type("one two")
    window.screen_with("cdd> one two")
    window.type("Escape")
    time.sleep(0.2)
    window.type("0", "d", "w")
    window.screen_with("cdd> two\n")
    window.type("C-x", "C-e")
    window.screen_with("Cannot start the editor no-such-editor", "cdd> two\n")


@pytest.mark.slow
@needs_tmux
@pytest.mark.parametrize("variables", [{"PROMPT_TOOLKIT_NO_CPR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_can_do_little_is_enough(variables: dict[str, str], opened: Open) -> None:
    window = opened(environment=variables)
    window.screen_with("cdd>", *([] if "TERM" in variables else [TOOLBAR]))
    window.type("/status", "Enter")
    shown = window.screen_with("minutes-lost  Minutes without a unit are lost", "1 of 1")
    assert "WARNING" not in shown
    window.type_at("cdd>", "C-d")
    window.wait_until_closed()


def drawn(pressed: str, *, color: bool | None, history: Path, encoding: str = "utf-8") -> str:
    """What is written to a terminal of that encoding."""
    written = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace", newline="")
    depth = ColorDepth.from_env()
    output = Vt100_Output(written, lambda: Size(rows=30, columns=100), term="xterm", default_color_depth=depth)
    place = PromptStatus(agent="exec", phase="red", gate="open", model="claude")
    with create_pipe_input() as keys, create_app_session(input=keys, output=output):
        read = make_reader(history, candidates=Candidates(), color=color)
        for line in pressed.splitlines(keepends=True):
            keys.send_text(line)
            read(place)
    written.seek(0)
    return written.read()


COLORS = re.compile(r"\x1b\[[0-9;]*(?<![0-9])(?:3[0-8]|4[0-8]|9[0-7])[;m]")


def test_without_colors_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert COLORS.search(drawn("a\r", color=None, history=tmp_path / "history"))
    assert not COLORS.search(drawn("a\r", color=False, history=tmp_path / "history"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLORS.search(drawn("a\r", color=None, history=tmp_path / "history"))


def test_rows_that_a_narrower_window_breaks_are_counted() -> None:
    assert count_added_rows([100, 0, 60], 70, columns=60) == 2
    assert count_added_rows([100, 100], 30, columns=100) == 0


@pytest.mark.parametrize(
    ("environment", "does"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(379)"}, False),
        ({"TERM": "screen", "STY": "1.pts"}, False),
        ({"TERM": "tmux", "TMUX": "/tmp/x", "XTERM_VERSION": "XTerm(379)"}, True),
        ({"TERM": "linux"}, False),
    ],
)
def test_which_terminals_break_rows_is_known(environment: dict[str, str], does: bool) -> None:
    assert has_reflow(environment) is does
