import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import ModelError
from cdd_agent.model import recorded, stream
from cdd_agent.model.conversation import JSON, Turn
from tests.cdd_agent.model.test_recorded import turns
from tests.fakes.messages_server import Fault, turn_events


def assembled(events: list[dict[str, JSON]]) -> stream.StreamedTurn:
    arrived = stream.StreamedTurn()
    for event in events:
        arrived.feed(event)
    return arrived


def error_of(turn: str, fault: Fault) -> ModelError:
    (only,) = recorded.parse(turn, source="x")
    with pytest.raises(ModelError) as caught:
        assembled(list(turn_events(only, fault))).turn()
    return caught.value


CALL = "- content: [{type: tool_use, name: Read, input: {file_path: a.py}}]"


@given(turns())
def test_a_streamed_turn_is_put_together_equal(turn: recorded.RecordedTurn) -> None:
    arrived = assembled(list(turn_events(turn)))
    assert arrived.is_over
    assert arrived.turn() == Turn(content=turn.content, stop_reason=turn.stop_reason, usage=turn.usage)


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers(), max_size=3)), st.integers(1, 9), st.booleans())
def test_events_are_the_same_however_they_are_cut(sent: list[dict[str, JSON]], size: int, windows: bool) -> None:
    end = "\r\n" if windows else "\n"
    data = "".join(f"event: x{end}data: {json.dumps(event, ensure_ascii=False)}{end}{end}" for event in sent).encode()
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert list(stream.events(chunks)) == sent


def test_an_event_cut_off_at_the_end_is_left_out() -> None:
    assert list(stream.events([b'data: {"a": 1}\n\ndata: {"b"'])) == [{"a": 1}]


@pytest.mark.parametrize("data", [b"data: {oops\n\n", b"data: [1]\n\n", b"data: {} {}\n\n"])
def test_data_that_is_no_object_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        list(stream.events([data]))


def test_a_turn_that_was_cut_off_is_not_over() -> None:
    (turn,) = recorded.parse(CALL, source="x")
    assert not assembled(list(turn_events(turn, Fault(without_stop=True)))).is_over


def test_a_call_without_an_input_gets_an_empty_object() -> None:
    (turn,) = recorded.parse(CALL, source="x")
    assert assembled(list(turn_events(turn, Fault(tool_json="")))).turn().calls[0].input == {}


@pytest.mark.parametrize("text", ['{"file_path": "src/very', '{"a": oops}', "[1]", '{"a": NaN}', '{"a": 1} x'])
def test_a_tool_input_that_is_not_one_json_object_is_never_run(text: str) -> None:
    assert "called Read with an input that is not a JSON object" in str(error_of(CALL, Fault(tool_json=text)))


def test_a_call_cut_off_at_max_tokens_asks_for_smaller_steps() -> None:
    error = error_of(CALL, Fault(tool_json='{"file_path": "src/very', stop_reason="max_tokens"))
    assert "max_tokens" in str(error)
    assert "smaller steps" in error.hint


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("refusal", "refused to answer: stop reason refusal (cyber)"),
        ("model_context_window_exceeded", "no longer fits the model's context window"),
        ("compaction", "a reason this program does not know: compaction"),
    ],
)
def test_a_turn_that_ended_badly_says_how(reason: str, said: str) -> None:
    assert said in str(error_of("- content: [hm]", Fault(stop_reason=reason)))


def test_a_call_with_another_stop_reason_is_refused() -> None:
    assert "it calls a tool but ends with end_turn" in str(error_of(CALL, Fault(stop_reason="end_turn")))


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_start", "index": 0},
        {"type": "message_start"},
    ],
)
def test_a_malformed_event_is_refused(event: dict[str, JSON]) -> None:
    with pytest.raises(ModelError, match="does not follow the Messages API"):
        stream.StreamedTurn().feed(event)


def test_unknown_events_and_deltas_are_ignored() -> None:
    (turn,) = recorded.parse("- content: [hi]", source="x")
    events = list(turn_events(turn))
    events.insert(3, {"type": "content_block_delta", "index": 0, "delta": {"type": "sparkle_delta", "sparkle": 1}})
    events.insert(1, {"type": "weather", "sunny": True})
    assert assembled(events).turn().text == "hi"
