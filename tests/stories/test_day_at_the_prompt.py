"""A day at the prompt in a real terminal: a question, a request, guidance, a wrong test, a kill, undo and redo."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdd_agent.model import recording
from tests.cdd_agent.repl.terminal_window import Window, needs_tmux
from tests.fakes.demo import fresh
from tests.fakes.messages_server import MessagesServer
from tests.fakes.program import KEY
from tests.stories.conftest import git

pytestmark = [needs_tmux, pytest.mark.slow]

TURNS = recording.load_recording(Path(__file__).with_name("day_at_the_prompt.yaml"))


def ask_and_begin(window: Window) -> None:
    """Ask a question, let a request become a ticket, and guide the model; its first test is wrong."""
    window.type_at("cdd>", "what does minutes read?", "Enter")
    window.screen_with("reads hours and minutes")
    window.type_at("cdd>", "please read days, too", "Enter")
    window.type_at("Which one? [1-3]", "Down")
    window.screen_with("Which one? [1-3] 1")
    window.type("Enter")
    window.screen_with("RED attempt 1")
    window.type("days are whole numbers", "Enter")
    window.screen_with("you  days are whole numbers")
    window.screen_with("the step goes back to RED, once")
    window.screen_with("GREEN again, attempt 1")


def continue_and_approve(window: Window) -> None:
    """Continue the step that the kill interrupted, and approve it."""
    window.screen_with("Enter continues step 1/1: Days, with GREEN")
    window.type_at("exec days>", "Enter")  # Enter alone is not kept before the prompt is drawn
    window.screen_with("a approve", "M durations/reading.py")
    window.type("a")
    window.screen_with("Every completed step is approved")


def confirm(window: Window, command: str, question: str, *, then: str) -> None:
    window.type_at("cdd days>", command, "Enter")
    window.type_at(f"{question} step 1 of days back? [y/N]", "y", "Enter")
    window.screen_with(then)


@pytest.mark.parametrize(("columns", "rows"), [(100, 35), (60, 20)])
def test_a_request_becomes_a_commit_in_spite_of_a_wrong_test_and_a_kill(
    tmp_path: Path, *, columns: int, rows: int
) -> None:
    project = fresh(tmp_path / "project")
    before = git(project, "log", "--format=%s")
    with MessagesServer(TURNS) as server:
        environment = {
            "ANTHROPIC_BASE_URL": server.base_url,
            "ANTHROPIC_API_KEY": KEY,
            "CDD_SANDBOX": "none",
            "COLUMNS": "",
        }
        environment["XDG_STATE_HOME"] = str(tmp_path / "state")

        @contextmanager
        def window(name: str, *arguments: str) -> Iterator[Window]:
            told = ("--model", "claude-loopback", *arguments)
            opened = Window(tmp_path / name, project, columns=columns, environment=environment, arguments=told)
            try:
                opened.resize(columns, rows)
                yield opened
            finally:
                opened.close()

        with window("one") as first:
            ask_and_begin(first)
            first.send(signal.SIGKILL)
            first.wait_until_closed()
        with window("two", "--resume") as second:
            continue_and_approve(second)
            done = git(project, "log", "--format=%s")
            assert done.startswith("feat: Days\n")
            confirm(second, "/undo", "Take", then="was taken back")
            assert git(project, "log", "--format=%s") == f"plan: Days\n{before}"
            confirm(second, "/redo", "Bring", then="is back")
            assert git(project, "log", "--format=%s") == done
            second.type_at("cdd days>", "and now?", "Enter")
            second.screen_with("Still here.")
        assert "days are whole numbers" in "".join(str(request.body) for request in server.requests)
    assert git(project, "status", "--porcelain", "durations", "tests") == ""
