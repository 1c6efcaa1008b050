import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import ModelError, RecordingError
from cdd_agent.events import AnswerLost, Event
from cdd_agent.model import recording as recorded
from cdd_agent.model.conversation import Model, Opaque, Request, Text, Turn, UserMessage
from cdd_agent.model.recording import (
    PrivateData,
    RecordedTurn,
    RecordingModel,
    ReplayModel,
    get_last_line,
    make_pattern,
)
from cdd_agent.untrusted.keys import Secret
from cdd_agent.work.state import Usage
from tests.fakes.model import ScriptedModel, call, says

SYSTEM = "You write tests.\n\nagent: executor, step 2 of 3 (parse.py), RED, attempt 1\n"
PRIVATE = PrivateData(folders=("/home/ann", "/srv/shop"), user="ann")


def ask(model: Model, system: str = SYSTEM) -> Turn:
    request = Request(system=system, messages=(UserMessage(content=(Text(text="go"),)),))
    return model.reply(request, emit=lambda event: None)


def recording(path: Path, *turns: Turn) -> RecordingModel:
    return RecordingModel(ScriptedModel(turns), path, private=PRIVATE)


def test_what_was_recorded_is_replayed_alike(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    said = says("Reading.", call("Read", "toolu_0001_01", file_path="a.py"), tokens=7)
    model = recording(path, said, says("Done.", tokens=3))
    ask(model)
    ask(model)
    replay = ReplayModel.load(path)
    assert (ask(replay), ask(replay)) == (said, says("Done.", tokens=3))


def test_each_turn_waits_for_the_last_line_of_its_system_prompt(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    ask(recording(path, says("hi")))
    (turn,) = recorded.load_recording(path)
    assert turn.when == r"^agent: executor, step 2 of 3 \(parse\.py\), RED, attempt 1$"
    with pytest.raises(RecordingError, match="no turn that matches"):
        ask(ReplayModel.load(path), system=SYSTEM.replace("attempt 1", "attempt 12"))


@given(st.text().filter(str.strip))
def test_the_pattern_matches_the_prompt_it_was_made_from(system: str) -> None:
    turn = RecordedTurn(
        number=1, content=(Text(text="hi"),), stop_reason="end_turn", when=make_pattern(get_last_line(system))
    )
    assert ask(ReplayModel([turn]), system=system).text == "hi"


def test_a_prompt_without_words_makes_a_turn_that_anything_matches(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    ask(recording(path, says("hi")), system="\n")
    assert recorded.load_recording(path)[0].when is None


def test_thinking_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    thought = Opaque(wire={"type": "thinking", "thinking": "hmm", "signature": "x"})
    turn = ask(recording(path, says(thought, "hi")))
    assert thought in turn.content
    assert "hmm" not in path.read_text(encoding="utf-8")


def test_every_turn_is_in_the_file_before_the_next_one_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    script = ScriptedModel([says("one"), ModelError("down", hint="wait")])
    model = RecordingModel(script, path, private=PRIVATE)
    ask(model)
    with pytest.raises(ModelError):
        ask(model)
    assert [turn.content for turn in recorded.load_recording(path)] == [(Text(text="one"),)]


def test_a_recording_is_gone_on_with_and_keeps_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("# the first day\n- content: [one]", encoding="utf-8")
    ask(recording(path, says(call("Read"))))
    assert path.read_text(encoding="utf-8").startswith("# the first day\n- content: [one]\n- when:")
    assert recorded.load_recording(path)[1].calls[0].id == "toolu_0002_00"


def test_a_json_recording_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    ask(recording(path, says("one")))
    ask(recording(path, says("two")))
    assert [turn.number for turn in recorded.load_recording(path)] == [1, 2]


@pytest.mark.parametrize("text", ["[{content: [one]}]", "  - content: [one]", "- content: [one]\n...\n"])
def test_a_file_that_cannot_grow_is_refused_before_the_model_is_asked(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordingError, match="Turns cannot be appended"):
        recording(path, says("two"))
    assert path.read_text(encoding="utf-8") == text


def test_a_stop_reason_that_is_not_the_usual_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    ask(recording(path, Turn(content=(Text(text="and so"),), stop_reason="max_tokens", usage=Usage())))
    assert recorded.load_recording(path)[0].stop_reason == "max_tokens"


@pytest.mark.parametrize(
    ("turn", "what"),
    [
        (says("the key is sk-ant-api03-AbC_9"), "an API key"),
        (says(call("Write", content=f"TOKEN = 'ghp_{'AbC_9'.replace('_', '') * 9}'")), "a text shaped like"),
        (says(call("Read", file_path="/srv/shop/src/a.py")), "the absolute path /srv/shop"),
        (says(call("Bash", command="cd /srv/shop && ls")), "the absolute path /srv/shop"),
        (says(call("Bash", env={"k": ["/home/ann/.ssh"]})), "the absolute path /home/ann"),
        (says(call("Bash", env={"/mnt/ann/x": 1})), "the user name ann"),
        (says("see C:\\Users\\ann."), "the user name ann"),
    ],
)
def test_a_turn_with_a_secret_is_not_written(tmp_path: Path, turn: Turn, what: str) -> None:
    path = tmp_path / "run.yaml"
    model = recording(path, says("one"), turn)
    ask(model)
    before = path.read_bytes()
    with pytest.raises(RecordingError, match="Turn 2 was not saved") as caught:
        ask(model)
    assert what in str(caught.value)
    assert "AbC_9" not in str(caught.value)
    assert path.read_bytes() == before


def test_what_a_turn_that_is_not_written_has_cost_is_told(tmp_path: Path) -> None:
    seen: list[Event] = []
    model = recording(tmp_path / "run.yaml", says("see C:\\Users\\ann.", tokens=7))
    with pytest.raises(RecordingError, match="Turn 1 was not saved"):
        model.reply(Request(system="", messages=()), emit=seen.append)
    (lost,) = (event for event in seen if isinstance(event, AnswerLost))
    assert (lost.model, lost.input_tokens, lost.output_tokens, lost.cost_usd) == ("scripted", 7, 7, None)


@pytest.mark.parametrize(
    "text", ["use proxy-key-0123456789abcdef", "proxy-key-0123456789", "cHJveHkta2V5LTAxMjM0NTY3ODlhYmNkZWY="]
)
def test_the_key_itself_is_not_written_whatever_its_shape(tmp_path: Path, text: str) -> None:
    private = PrivateData(key=Secret("proxy-key-0123456789abcdef"))
    model = RecordingModel(ScriptedModel([says(text)]), tmp_path / "run.yaml", private=private)
    with pytest.raises(RecordingError, match="it contains the API key"):
        ask(model)
    assert not (tmp_path / "run.yaml").exists()


def test_a_key_of_digits_is_not_written_as_a_number_either(tmp_path: Path) -> None:
    inner = ScriptedModel([says(call("Pay", account=[471108154711]))])
    model = RecordingModel(inner, tmp_path / "run.yaml", private=PrivateData(key=Secret("471108154711")))
    with pytest.raises(RecordingError, match="it contains the API key"):
        ask(model)


@pytest.mark.parametrize("name", ["run.yaml", "run.json"])
def test_a_file_that_somebody_put_a_key_into_is_not_played(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('[{"content": ["sk-ant-api03-0123456789"]}]', encoding="ascii")
    with pytest.raises(RecordingError, match="shaped like a key") as caught:
        ReplayModel.load(tmp_path / name)
    assert "0123456789" not in str(caught.value)


def test_a_path_in_the_system_prompt_is_not_written_either(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    with pytest.raises(RecordingError, match="/srv/shop"):
        ask(recording(path, says("hi")), system="You work in /srv/shop")
    assert not path.exists()


@pytest.mark.parametrize("text", ["/home/anna", "annual report", "src/ann.py", "ann", "/srv/shop-2/x", "sk-antelope"])
def test_what_only_resembles_a_secret_is_written(text: str) -> None:
    assert PRIVATE.find_in(text) is None


def test_the_users_own_places_are_found_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOGNAME", "zoe")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert PrivateData.on_this_machine(tmp_path / "link") == PrivateData(
        folders=(str(tmp_path / "home"), str(tmp_path / "link"), str(tmp_path / "real")), user="zoe"
    )


def test_a_home_that_is_the_root_forbids_nothing() -> None:
    assert PrivateData(folders=("/",)).find_in("/usr/bin") is None


def test_a_file_that_cannot_be_written_is_told_before_the_model_is_asked(tmp_path: Path) -> None:
    inner = ScriptedModel([says("hello")])
    model = RecordingModel(inner, tmp_path / "nowhere" / "r.yaml", private=PRIVATE)
    with pytest.raises(RecordingError, match="cannot be written"):
        ask(model)
    assert inner.requests == []
    assert not (tmp_path / "nowhere").exists()


def test_a_pipe_is_refused_without_waiting_for_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.yaml")
    with pytest.raises(RecordingError, match="It is a pipe or a device"):
        recording(tmp_path / "run.yaml", says("one"))


def test_a_recording_never_grows_beyond_what_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    model = recording(path, says("one"), says("x" * recorded.MAX_BYTES))
    ask(model)
    with pytest.raises(RecordingError, match="would exceed 8000000 bytes"):
        ask(model)
    assert len(recorded.load_recording(path)) == 1


def test_a_prompt_with_a_very_long_last_line_is_recognized_by_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    ask(recording(path, says("hi")), system="(" * 100_000)
    when = recorded.load_recording(path)[0].when
    assert when is not None
    assert re.search(when, "(" * 100_000)
