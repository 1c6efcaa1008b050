"""A real terminal, a real client: what is cut off in the middle is gone on with."""

import signal
from pathlib import Path

import pytest

from cdd_agent.model import recording
from cdd_agent.model.conversation import JSON, Text
from cdd_agent.model.recording import RecordedTurn
from tests.cdd_agent.repl.terminal_window import Window, needs_tmux
from tests.fakes.demo import EXAMPLE, SLUG
from tests.fakes.messages_server import STREAM_HEAD, Fault, MessagesServer, event_bytes, turn_events
from tests.fakes.program import KEY

pytestmark = needs_tmux

TURNS = recording.load_recording(EXAMPLE.recording)
QUESTION = "What should `1h90` be?"
COMPLETE = f"The spec of {SLUG} is complete"


def saved(path: Path, *turns: RecordedTurn) -> str:
    path.write_text(recording.print_turns(turns), encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_a_killed_conversation_is_gone_on_with_to_a_complete_spec(project: Path, tmp_path: Path) -> None:
    before = saved(tmp_path / "before.yaml", *TURNS[:2])
    window = Window(tmp_path / "one", project, columns=80, arguments=("--replay", before))
    try:
        window.type_at("cdd>", "/spec", "Enter")
        window.screen_with(QUESTION, f"spec {SLUG}>")
        window.send(signal.SIGKILL)
        window.wait_until_closed()
    finally:
        window.close()
    after = saved(tmp_path / "after.yaml", *TURNS[2:4])
    window = Window(tmp_path / "two", project, columns=80, arguments=("--replay", after))
    try:
        window.type_at("cdd>", "/resume", "Enter")
        window.screen_with(f"/spec {SLUG}", QUESTION, "2  An error")
        window.type_at(f"spec {SLUG}>", "2", "Enter")
        window.screen_with("Save this? [Y/n, or n and why]")
        window.type("Enter")
        window.screen_with(COMPLETE, f"spec {SLUG}>")
    finally:
        window.close()
    assert "THE SYSTEM SHALL" in (project / "tickets" / SLUG / "spec.yaml").read_text(encoding="utf-8")


def half_an_answer(text: str) -> Fault:
    """The beginning of a turn, and then nothing for a long time."""
    turn = RecordedTurn(number=1, content=(Text(text=text),), stop_reason="end_turn")
    events = [event_bytes(event) for event in turn_events(turn)]
    return Fault(raw=(STREAM_HEAD, *events[:-3], 60.0))


def said(body: dict[str, JSON]) -> str:
    return str(body["messages"])


@pytest.mark.slow
def test_what_ctrl_c_cut_off_is_part_of_the_conversation_also_after_the_end(project: Path, tmp_path: Path) -> None:
    turns = [
        RecordedTurn(number=number, content=(Text(text=text),), stop_reason="end_turn")
        for number, text in enumerate(("Whole again.", "Still here."), start=1)
    ]
    with MessagesServer(turns, faults=[half_an_answer("Half of what I wanted to say about it.")]) as server:
        environment = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY}
        window = Window(tmp_path / "one", project, environment=environment, arguments=("--model", "claude-loopback"))
        try:
            window.type_at("cdd>", "/spec", "Enter")
            window.screen_with("Half of what")
            window.type("C-c")
            window.screen_with("Stopped. The conversation so far is saved")
            window.type_at(f"spec {SLUG}>", "Say that again.", "Enter")
            window.screen_with("Whole again.", f"spec {SLUG}>")
            window.send(signal.SIGTERM)
            window.wait_until_closed()
        finally:
            window.close()
        window = Window(tmp_path / "two", project, environment=environment, arguments=("--model", "claude-loopback"))
        try:
            window.type_at("cdd>", "/resume", "Enter")
            window.screen_with("you  Say that again.", "Whole again.")
            window.type_at(f"spec {SLUG}>", "And now?", "Enter")
            window.screen_with("Still here.")
            window.type_at(f"spec {SLUG}>", "/exit", "Enter")
            window.wait_until_closed()
        finally:
            window.close()
    assert [("Half of what" in said(request.body), len(server.requests)) for request in server.requests] == [
        (False, 3),
        (True, 3),
        (True, 3),
    ]
    assert "Whole again." in said(server.requests[2].body)
    assert not any(KEY in path.read_text(encoding="utf-8") for path in (project / ".cdd").rglob("*.jsonl"))
