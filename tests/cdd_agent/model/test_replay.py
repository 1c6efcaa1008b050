import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import RecordingError, TurnMissing
from cdd_agent.events import Event, TextDelta
from cdd_agent.model import recording
from cdd_agent.model.conversation import Message, Model, Request, Text, ToolResult, Turn, UserMessage
from cdd_agent.model.recording import ReplayModel
from tests.fakes.cases import soak_after

ROOT = Path(__file__).parents[3]


def asking(text: str, system: str = "You write tests.\nStep 1, RED, attempt 1\n") -> Request:
    return Request(system=system, messages=(UserMessage(content=(Text(text=text),)),))


def playing(text: str) -> ReplayModel:
    return ReplayModel(recording.parse_recording(text, source="demo.yaml"), source="demo.yaml")


def answer(model: Model, request: Request) -> Turn:
    return model.reply(request, emit=lambda event: None)


def test_turns_are_played_in_their_order() -> None:
    model = playing("- content: [one]\n- content: [two]\n")
    assert [answer(model, asking("x")).text, answer(model, asking("x")).text] == ["one", "two"]


def test_a_loaded_recording_is_named_after_its_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text("- content: [one]\n", encoding="utf-8")
    model = ReplayModel.load(path)
    assert (model.name, len(model.unused)) == ("replay:demo.yaml", 1)
    assert answer(model, asking("x")).stop_reason == "end_turn"
    assert model.unused == ()


def test_text_is_emitted_in_pieces_that_add_up() -> None:
    long_text = "word " * 60
    seen: list[Event] = []
    turn = playing(f"- content: ['{long_text}', tail]\n").reply(asking("x"), emit=seen.append)
    assert len(seen) > 2
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == turn.text == f"{long_text}tail"


def test_a_turn_waits_for_the_request_that_matches_it() -> None:
    model = playing("- {when: '^Step 2', content: [second]}\n- {when: '^Step 1', content: [first]}\n")
    assert answer(model, asking("x")).text == "first"
    assert answer(model, asking("x", system="Step 2")).text == "second"


def test_an_optional_request_uses_up_no_turn_of_others() -> None:
    optional = replace(asking("Step 1, GREEN", system="Be strict.\nStep 1, examples\n"), is_optional=True)
    others = playing("- content: [any]\n- {when: 'Step 1', content: [a]}\n- {when: 'GREEN', content: [b]}\n")
    with pytest.raises(TurnMissing, match=r"demo.yaml has no turn for 'Step 1, examples'"):
        answer(others, optional)
    assert len(others.unused) == 3
    assert answer(playing("- content: [any]\n- {when: '^Step 1, examples$', content: [own]}\n"), optional).text == "own"


def test_the_last_user_message_is_searched_with_its_tool_results() -> None:
    results: tuple[Message, ...] = (
        UserMessage(content=(Text(text="needle in an older message"),)),
        UserMessage(
            content=(ToolResult(tool_use_id="a", content="3 failed"), ToolResult(tool_use_id="b", content="ok"))
        ),
    )
    model = playing("- {when: needle, content: [older]}\n- {when: '^3 failed$', content: [latest]}\n")
    assert answer(model, Request(system="s", messages=results)).text == "latest"


def test_a_recording_that_ran_out_shows_the_request() -> None:
    model = playing("- content: [one]\n")
    answer(model, asking("x"))
    with pytest.raises(RecordingError) as caught:
        answer(model, asking("please " * 200))
    said = str(caught.value)
    assert "demo.yaml has no turn left for this request (1 of 1 turns used)" in said
    assert "  | Step 1, RED, attempt 1" in said
    assert "  | please please" in said
    assert len(said) < 1000


def test_a_request_that_no_turn_matches_is_shown_with_the_turns_left() -> None:
    model = playing("- {when: '^Step 7', content: [one]}\n- {when: other, content: [two]}\n")
    with pytest.raises(RecordingError) as caught:
        answer(model, asking("x"))
    assert "Unused turns (2):\n  turn 1, when: ^Step 7\n  turn 2, when: other" in str(caught.value)
    assert len(model.unused) == 2


def test_an_empty_request_is_shown_as_such() -> None:
    with pytest.raises(RecordingError, match=r"\(nothing\)"):
        answer(playing(""), Request(system="", messages=()))


@soak_after(2, "module", ["recording", "anthropic", "conversation", "stream"])
def test_no_model_module_imports_the_sdk(module: str) -> None:
    code = (
        f"import sys, cdd_agent.model.{module}; print([m for m in ('anthropic', 'httpx2', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_whole_replay_runs_without_the_sdk(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text("- content: [one]\n", encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from cdd_agent.model.recording import ReplayModel\n"
        "from cdd_agent.model.conversation import Request\n"
        f"model = ReplayModel.load(Path({str(tmp_path / 'demo.yaml')!r}))\n"
        "print(model.reply(Request(system='', messages=()), emit=lambda event: None).text, 'anthropic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "one False"
