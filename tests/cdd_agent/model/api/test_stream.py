import pytest
from hypothesis import given

from cdd_agent.errors import ModelError
from cdd_agent.model import recorded
from cdd_agent.model.api import stream
from cdd_agent.model.calls import why_unusable
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


def test_a_turn_that_was_cut_off_is_not_over() -> None:
    (turn,) = recorded.parse(CALL, source="x")
    assert not assembled(list(turn_events(turn, Fault(without_stop=True)))).is_over


def test_a_call_without_an_input_gets_an_empty_object() -> None:
    (turn,) = recorded.parse(CALL, source="x")
    assert assembled(list(turn_events(turn, Fault(tool_json="")))).turn().calls[0].input == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"file_path": "src/very',
        '{"a": oops}',
        "[1]",
        '{"a": NaN}',
        '{"a": 1} x',
        '{"a": 1, "a": 2}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        '{"a":' * 70 + "1" + "}" * 70,
        '{"a":' * 100_000,
    ],
)
def test_a_tool_input_that_is_not_one_strict_json_object_is_never_run(text: str) -> None:
    (turn,) = recorded.parse(CALL, source="x")
    (call,) = assembled(list(turn_events(turn, Fault(tool_json=text)))).turn().calls
    assert "not one complete JSON object" in str(why_unusable(call))


def test_of_a_turn_cut_off_at_max_tokens_the_words_are_kept_and_no_call() -> None:
    (turn,) = recorded.parse("- content: [Now., {type: tool_use, name: Write, input: {}}]", source="x")
    fault = Fault(tool_json='{"file_path": "src/very', stop_reason="max_tokens")
    cut = assembled(list(turn_events(turn, fault))).turn()
    assert (cut.text, cut.calls, cut.stop_reason) == ("Now.", (), "max_tokens")


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
        {"type": "content_block_delta", "index": -1, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "message_start"},
        {"type": "message_delta"},
    ],
)
def test_a_malformed_event_is_refused(event: dict[str, JSON]) -> None:
    with pytest.raises(ModelError, match="does not follow the Messages API"):
        stream.StreamedTurn().feed(event)


def test_a_block_that_begins_twice_is_refused() -> None:
    arrived = stream.StreamedTurn()
    begin: dict[str, JSON] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    arrived.feed(begin)
    with pytest.raises(ModelError, match="comes out of turn"):
        arrived.feed(begin)


def test_an_answer_of_more_blocks_than_a_model_writes_is_refused() -> None:
    block: dict[str, JSON] = {"type": "tool_use", "id": "", "name": "Read", "input": {}}
    begin: list[dict[str, JSON]] = [
        {"type": "content_block_start", "index": index, "content_block": block} for index in range(501)
    ]
    arrived = assembled(begin[:500])
    with pytest.raises(ModelError, match="it has more than 500 content blocks"):
        arrived.feed(begin[500])


def test_a_turn_that_ends_to_call_a_tool_and_calls_none_is_refused() -> None:
    assert "it calls no tool but ends with tool_use" in str(error_of("- content: [hm]", Fault(stop_reason="tool_use")))


def test_unknown_events_and_deltas_are_ignored() -> None:
    (turn,) = recorded.parse("- content: [hi]", source="x")
    events = list(turn_events(turn))
    events.insert(3, {"type": "content_block_delta", "index": 0, "delta": {"type": "sparkle_delta", "sparkle": 1}})
    events.insert(1, {"type": "weather", "sunny": True})
    assert assembled(events).turn().text == "hi"
