"""The prompt over a project, its lines from a pipe."""

import io
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.work.records import find_records
from tests.cdd_agent.repl.terminal_window import Window, needs_tmux
from tests.fakes.demo import RECORDING, SLUG
from tests.fakes.program import command, environment


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    return monkeypatch


def chat(project: Path, lines: str, *flags: str, types: pytest.MonkeyPatch) -> int:
    types.setattr(sys, "stdin", io.StringIO(lines))
    return run(["--project", str(project), *flags])


def test_lines_are_carried_out_until_they_end(
    finished: Path, types: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(finished, f"/status\n/exec {SLUG}\n", types=types) == 0
    assert "nothing is left to do." in capsys.readouterr().out


def test_a_line_that_fails_gives_the_exit_code_and_stops_nothing(
    finished: Path, types: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(finished, "/wat\n/status\n", types=types) == 2
    output = capsys.readouterr().out
    assert "Unknown command /wat." in output
    assert SLUG in output


def test_with_json_events_go_to_standard_output_and_words_to_standard_error(
    project: Path, types: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(project, "/spec\n/status\n", "--json", "--replay", str(RECORDING), types=types) == 0
    output = capsys.readouterr()
    assert "ToolCalled" in {json.loads(line)["event"] for line in output.out.splitlines()}
    assert "Minutes without a unit" in output.err


def test_the_events_go_to_the_journal_of_the_ticket(project: Path, types: pytest.MonkeyPatch) -> None:
    chat(project, "/spec\n", "--replay", str(RECORDING), types=types)
    journal = find_records(project).folder / "journal" / SLUG / "events.jsonl"
    assert "TurnEnded" in journal.read_text(encoding="utf-8")


@pytest.fixture
def window(project: Path, tmp_path: Path) -> Iterator[Window]:
    window = Window(tmp_path / "tmux", project)
    window.screen_with("cdd>", "Ctrl-D leaves")
    yield window
    window.close()


@pytest.mark.slow
@needs_tmux
def test_the_first_line_is_carried_out_like_any_other(window: Window) -> None:
    window.type("/status", "Enter")
    window.screen_with("Minutes without a unit")


@pytest.mark.slow
@needs_tmux
def test_ctrl_c_before_the_first_line_ends_nothing(window: Window) -> None:
    window.type("C-c")
    window.screen_with("Press Ctrl-C again or Ctrl-D to leave")


@pytest.mark.slow
@needs_tmux
def test_ctrl_c_while_the_first_line_is_being_loaded_ends_nothing(window: Window) -> None:
    window.type("/status")
    window.screen_with("cdd> /status")
    window.type("Enter")
    window.screen_with("cdd> /status", without=("Ctrl-D leaves",))
    window.type("C-c")
    # It comes while cdd is being loaded, while the line is carried out, or at the next prompt.
    window.screen_with("/help  Ctrl-D leaves")
    window.type_at("cdd>", "/cost", "Enter")
    window.screen_with("this session: the model was not called")


@pytest.mark.slow
@needs_tmux
def test_keys_pressed_while_the_model_is_waited_for_begin_the_next_prompt(project: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        variables = {"ANTHROPIC_API_KEY": "sk-ant-none", "ANTHROPIC_BASE_URL": url}
        window = Window(tmp_path / "tmux", project, environment=variables)
        try:
            window.screen_with("cdd>", "Ctrl-D leaves")
            window.type("/spec", "Enter")
            window.screen_with("waiting for the model")
            window.type("C-r", "xyz")
            window.screen_with("> xyz")
            window.type("C-c")
            shown = window.screen_with("Stopped.", "Ctrl-D leaves", f"spec {SLUG}> xyz")
        finally:
            window.close()
    assert "^R" not in shown


@pytest.mark.slow
@needs_tmux
def test_ctrl_d_at_once_leaves(window: Window) -> None:
    window.type("C-d")
    window.wait_until_closed()


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "ascii"},
        *(pytest.param(each, marks=pytest.mark.slow) for each in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"})),
    ],
)
def test_a_pipe_gets_plain_lines_whatever_the_environment(
    finished: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    done = subprocess.run(
        command("--project", str(finished)),
        input=b"/status\n/plan\n/cost\n/back\n/exit\n/wat\n",
        env=environment(tmp_path, **variables),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    assert b"\r" not in done.stdout
    assert b"> " not in done.stdout
    assert b"ticket        title" in done.stdout
    assert b"the model was not called" in done.stdout
    assert b"/wat" not in done.stdout
    if "PYTHONIOENCODING" in variables:
        assert done.stdout.isascii()


@pytest.mark.slow
def test_bytes_of_a_pipe_that_are_no_text_stop_nothing(finished: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        command("--project", str(finished)),
        input=b"/status caf\xe9\n/status\n",
        env=environment(tmp_path, PYTHONIOENCODING="utf-8:strict"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, b"")
    assert b"ticket        title" in done.stdout


def test_a_sitting_that_says_nothing_to_an_agent_leaves_no_session(finished: Path, types: pytest.MonkeyPatch) -> None:
    chat(finished, "/status\n/cost\n", types=types)
    assert not (find_records(finished).folder / "sessions").exists()


def test_what_was_said_can_be_resumed_by_the_next_start(
    project: Path, types: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat(project, "/spec\n", "--replay", str(RECORDING), types=types)
    capsys.readouterr()
    assert chat(project, "/resume\n", "--replay", str(RECORDING), types=types) == 0
    told = capsys.readouterr().out
    assert f"/spec {SLUG}" in told
    assert "What should `1h90` be?" in told


def test_the_conventions_of_the_project_are_told_once(
    project: Path, types: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "AGENTS.md").write_text("Tabs.\n", encoding="utf-8")
    chat(project, "/spec\n/spec\n", "--replay", str(RECORDING), types=types)
    assert capsys.readouterr().out.count("Project memory: AGENTS.md (6 bytes)") == 1


@pytest.mark.slow
@needs_tmux
def test_an_exit_and_a_start_name_the_session_that_can_be_continued(project: Path, tmp_path: Path) -> None:
    window = Window(tmp_path / "one", project, arguments=("--replay", str(RECORDING)))
    try:
        window.type_at("cdd>", "/spec", "Enter")
        window.keep_open()
        window.type_at(f"spec {SLUG}>", "/exit", "Enter")
        shown = window.screen_with("Continue this session: cdd --resume ")
    finally:
        window.close()
    name = shown.partition("cdd --resume ")[2].split()[0]
    window = Window(tmp_path / "two", project)
    try:
        window.screen_with(f"/resume continues the session {name}.")
    finally:
        window.close()
    window = Window(tmp_path / "three", project, arguments=("--replay", str(RECORDING), "--resume", name))
    try:
        window.screen_with("Continuing the session of ", f"spec {SLUG}>")
    finally:
        window.close()


@pytest.mark.parametrize(
    "case",
    [
        (("--resume",), "There is no earlier session to resume."),
        (("--resume", "20261125-100000-abc"), "There is no session 20261125-100000-abc."),
        (("--resume=", "status"), "--resume and status exclude each other."),
        (("--resume=", "-p", "Why?"), "-p and --resume exclude each other."),
    ],
)
def test_a_session_that_cannot_be_continued_is_told(
    project: Path, types: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, case: tuple[tuple[str, ...], str]
) -> None:
    arguments, told = case
    assert chat(project, "", *arguments, types=types) == 2
    output = capsys.readouterr()
    assert told in output.out + output.err
