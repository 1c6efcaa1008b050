"""What keys do: each pressed on a pipe, in the prompt as it is."""

import io
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session, get_app_session
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput
from prompt_toolkit.output.vt100 import Vt100_Output

from cdd_agent.repl.completion import Candidates
from cdd_agent.repl.prompt import make_reader
from cdd_agent.repl.terminal import PromptStatus, ReadLine
from tests.fakes.cases import soak_after

PLACE = PromptStatus(agent="exec", ticket="csv-export", step="2/3")
BLOCK = "\n".join(f"line {number}" for number in range(40))
PASTED = f"\x1b[200~{BLOCK}\x1b[201~"
CANDIDATES = Candidates(
    slugs=lambda: [("csv-export", "Export as CSV")], files=lambda: ["README.md", "src/deep/a.py", "my notes.md"]
)


def reader(history: Path | None = None, candidates: Candidates = CANDIDATES) -> ReadLine:
    return make_reader(history, candidates=candidates)


def vi_reader() -> ReadLine:
    return make_reader(None, candidates=CANDIDATES, editing_mode="vi")


def press_in_turn(
    keys: PipeInput, *pressed: str | Callable[[Buffer], object], pause_s: float = 0.1
) -> threading.Thread:
    """Press keys one after the other, as a person would who looks in between; what is called is waited for.

    The first is pressed at the prompt: what waits for that is read as lines of a terminal.
    """
    session = get_app_session()

    def holds(condition: Callable[[Buffer], object]) -> bool:
        return session.app is not None and session.app.is_running and bool(condition(session.app.current_buffer))

    def press() -> None:
        for key in (lambda _: True, *pressed):
            time.sleep(pause_s)
            if isinstance(key, str):
                keys.send_text(key)
                continue
            end = time.monotonic() + 60
            while not holds(key) and time.monotonic() < end:
                time.sleep(0.02)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def menu(buffer: Buffer) -> bool:
    """Whether there is something to choose from."""
    return buffer.complete_state is not None and bool(buffer.complete_state.completions)


def suggestion(buffer: Buffer) -> bool:
    return buffer.suggestion is not None


# Sending.


@pytest.mark.parametrize(
    ("pressed", "read"),
    [
        ("/status\r", "/status"),
        ("\r", ""),
        ("a\x1b\rb\r", "a\nb"),
        ("a\nb\r", "a\nb"),
        ("some\rtext\r", "some\ntext"),
        ("\x1b[200~one\r\ntwo\rthree\nfour\x1b[201~\r", "one\ntwo\nthree\nfour"),
        ("\x1b[200~one\x1b[201~\r", "one"),
        ("words\x04\r", "words"),
        ("words\x01\x04\r", "ords"),
    ],
)
def test_a_line_is_read_as_it_was_meant(pressed: str, read: str, keys: PipeInput) -> None:
    keys.send_text(pressed)
    assert reader()(PLACE) == read


def test_bytes_that_are_no_text_become_signs_of_that(keys: PipeInput) -> None:
    keys.send_bytes(b"a\xff b\r")
    assert reader()(PLACE) == "a\ufffd b"


def test_keys_pressed_one_by_one_are_not_a_paste(keys: PipeInput) -> None:
    thread = press_in_turn(keys, "a", "\n", "b", "\r", "never read", pause_s=0.05)
    assert reader()(PLACE) == "a\nb"
    thread.join()


def test_alt_enter_breaks_the_line(keys: PipeInput) -> None:
    thread = press_in_turn(keys, "a", "\x1b\r", "b", "\r", pause_s=0.05)
    assert reader()(PLACE) == "a\nb"
    thread.join()


def test_a_second_enter_does_not_reach_the_next_prompt(keys: PipeInput) -> None:
    read = reader()
    keys.send_text("\r\r")
    assert read(PLACE) == ""
    keys.send_text("next\r")
    assert read(PLACE) == "next"


def test_a_paste_longer_than_one_read_of_the_terminal_is_one_message(keys: PipeInput) -> None:
    text = "\n".join("x" * 60 for _ in range(60))
    keys.send_text(text.replace("\n", "\r") + "\r")
    assert reader()(PLACE) == text


# Leaving.


def test_ctrl_c_clears_the_line_and_only_then_interrupts(keys: PipeInput) -> None:
    read = reader()
    keys.send_text("some words\x03other words\r")
    assert read(PLACE) == "other words"
    keys.send_text("some words\x03\x03")
    with pytest.raises(KeyboardInterrupt):
        read(PLACE)


def test_a_cleared_line_comes_back_but_is_not_kept(keys: PipeInput, tmp_path: Path) -> None:
    thread = press_in_turn(keys, f"see {PASTED}", "\x03", "\x1b[A", "\r", pause_s=0.05)
    assert reader(tmp_path / "history")(PLACE) == f"see {BLOCK}"
    thread.join()
    keys.send_text("a slip\x03sent\r")
    reader(tmp_path / "history")(PLACE)
    assert "a slip" not in (tmp_path / "history").read_text(encoding="utf-8")


def test_ctrl_d_on_an_empty_line_is_the_end(keys: PipeInput) -> None:
    keys.send_text("\x04")
    with pytest.raises(EOFError):
        reader()(PLACE)


# Pastes.


@soak_after(
    3,
    ("pressed", "read"),
    [
        (f"{PASTED}\r", BLOCK),
        (f"Why? {PASTED} Tell me.\r", f"Why? {BLOCK} Tell me."),
        (f"{PASTED}\x7f\r", ""),
        (f"a{PASTED}b\x7f\x7fc\r", "ac"),
        (f"{PASTED}\x01first: \r", f"first: {BLOCK}"),
        (f"a{PASTED}\x17\x19\r", f"a{BLOCK}"),
        (f"{PASTED}\x7f\x1f\r", BLOCK),
        (f"{PASTED} and {PASTED}\r", f"{BLOCK} and {BLOCK}"),
        ("[pasted 40 lines #1]\r", "[pasted 40 lines #1]"),
        (f"\x1b[200~{'x' * 1_000}\x1b[201~\x7f\r", ""),
        (f"{BLOCK}\x7fshort\r", "short"),
    ],
)
def test_a_long_paste_is_one_thing_that_is_sent_whole(pressed: str, read: str, keys: PipeInput) -> None:
    keys.send_text(pressed)
    assert reader()(PLACE) == read


def test_a_paste_comes_back_from_the_history(keys: PipeInput, tmp_path: Path) -> None:
    keys.send_text(f"Why?\x1b\r{PASTED}\r")
    reader(tmp_path / "history")(PLACE)
    keys.send_text("\x1b[A\r")
    assert reader(tmp_path / "history")(PLACE) == f"Why?\n{BLOCK}"


def test_history_outlives_the_sitting(keys: PipeInput, tmp_path: Path) -> None:
    keys.send_text("/status\r")
    reader(tmp_path / "history")(PLACE)
    keys.send_text("\x1b[A\r")
    assert reader(tmp_path / "history")(PLACE) == "/status"


def test_the_rest_of_an_old_line_is_suggested_and_taken_with_the_right_arrow(keys: PipeInput, tmp_path: Path) -> None:
    in_colors = Vt100_Output(io.StringIO(), get_size=lambda: Size(rows=30, columns=100), term="xterm")
    with create_app_session(input=keys, output=in_colors):
        read = reader(tmp_path / "history")
    keys.send_text("write the header first\r")
    read(PLACE)
    thread = press_in_turn(keys, "write", suggestion, "\x1b[C", "\r")
    assert read(PLACE) == "write the header first"
    thread.join()


# The menu.


def chosen(keys: PipeInput, *pressed: str | Callable[[Buffer], object]) -> str:
    thread = press_in_turn(keys, *pressed)
    read = reader()(PLACE)
    thread.join()
    return read


def test_enter_on_a_command_takes_and_sends_it(keys: PipeInput) -> None:
    assert chosen(keys, "/docto", menu, "\t", "\r") == "/doctor"


@pytest.mark.slow
def test_enter_on_a_ticket_takes_and_sends_it(keys: PipeInput) -> None:
    assert chosen(keys, "/exec c", menu, "\t", "\r") == "/exec csv-export"


@pytest.mark.slow
def test_enter_on_a_command_that_needs_more_only_takes_it(keys: PipeInput) -> None:
    assert chosen(keys, "/ne", menu, "\x1b[B", "\r", "a\r") == "/new a"


def test_enter_on_a_file_only_takes_it(keys: PipeInput) -> None:
    assert chosen(keys, "read @notes", menu, "\x1b[B", "\r", " twice\r") == 'read @"my notes.md" twice'


def test_enter_sends_what_was_typed_if_nothing_was_chosen(keys: PipeInput) -> None:
    assert chosen(keys, "read @READ", menu, "\r") == "read @READ"


@pytest.mark.slow
def test_a_slow_listing_holds_up_no_enter(keys: PipeInput) -> None:
    go_on = threading.Event()

    def slow() -> list[str]:
        go_on.wait(20)
        return ["late.py"]

    thread = press_in_turn(keys, "@la", "te", "\r")
    started = time.monotonic()
    assert reader(candidates=Candidates(files=slow))(PLACE) == "@late"
    assert time.monotonic() - started < 10
    go_on.set()
    thread.join()


# vi.


def test_in_vi_mode_commands_edit_the_line(keys: PipeInput) -> None:
    thread = press_in_turn(keys, "one two", "\x1b", "0", "d", "w", "\r")
    assert vi_reader()(PLACE) == "two"
    thread.join()


def test_in_vi_mode_alt_enter_and_ctrl_j_break_the_line(keys: PipeInput) -> None:
    thread = press_in_turn(keys, "a", "\x1b\r", "b", "\n", "c", "\r", pause_s=0.05)
    assert vi_reader()(PLACE) == "a\nb\nc"
    thread.join()


def test_in_vi_mode_ctrl_c_clears_and_ctrl_d_leaves(keys: PipeInput) -> None:
    thread = press_in_turn(keys, "words", "\x03", "\x04", pause_s=0.05)
    with pytest.raises(EOFError):
        vi_reader()(PLACE)
    thread.join()


# The editor.


def editor(folder: Path, program: str) -> str:
    """The command of an editor that does ``program`` with the text of the file, ``text``, and leaves the result."""
    script = folder / "editor.py"
    script.write_text(
        "import sys, pathlib\npath = pathlib.Path(sys.argv[-1])\ntext = path.read_text()\n"
        f"{program}\npath.write_text(text)\npathlib.Path(__file__).with_name('done').touch()\n",
        encoding="utf-8",
    )
    return f'"{sys.executable}" {script} --wait'


def test_the_editor_gets_pastes_in_full_and_gives_the_text_back(
    keys: PipeInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", editor(tmp_path, 'text = text.upper() + "more\\n"'))
    thread = press_in_turn(keys, f"see: {PASTED}", "\x18\x05", lambda _: (tmp_path / "done").exists(), "\r")
    assert reader()(PLACE) == f"see: {BLOCK}".upper() + "\nmore"
    thread.join()


def test_the_text_lies_where_nobody_else_can_look_and_is_removed(
    keys: PipeInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    program = f'pathlib.Path({str(seen)!r}).write_text(f"{{path}} {{path.parent.stat().st_mode}}")'
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor(tmp_path, program))
    thread = press_in_turn(keys, "secret", "\x18\x05", lambda _: (tmp_path / "done").exists(), "\r")
    assert reader()(PLACE) == "secret"
    thread.join()
    path, mode = seen.read_text(encoding="utf-8").split()
    assert stat.S_IMODE(int(mode)) == 0o700
    assert not Path(path).parent.exists()


@pytest.mark.slow
@pytest.mark.parametrize("named", ["no-such-editor", "false", 'vi "', "/etc/hostname"])
def test_an_editor_that_does_not_work_leaves_the_text(
    named: str, keys: PipeInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", named)
    thread = press_in_turn(keys, "words", "\x18\x05", "\r", pause_s=0.4)
    assert reader()(PLACE) == "words"
    thread.join()


@pytest.mark.slow
def test_no_room_for_the_text_of_an_editor_leaves_it_in_the_line(
    keys: PipeInput, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VISUAL", "true")
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    thread = press_in_turn(keys, "words", "\x18\x05", "\r", pause_s=0.4)
    assert reader()(PLACE) == "words"
    thread.join()
    assert "Traceback" not in "".join(capsys.readouterr())
