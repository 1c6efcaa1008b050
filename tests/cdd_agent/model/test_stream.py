import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import ModelError
from cdd_agent.model import recording
from cdd_agent.model.conversation import JSON, Turn
from cdd_agent.model.stream import MAX_DEPTH, RequestFailed, StreamedTurn, parse_events, parse_object
from tests.cdd_agent.model.test_recording_recorded import turns
from tests.fakes.messages_server import Fault, turn_events


def assembled(events: list[dict[str, JSON]]) -> StreamedTurn:
    arrived = StreamedTurn()
    for event in events:
        arrived.feed(event)
    return arrived


def error_of(turn: str, fault: Fault) -> ModelError:
    (only,) = recording.parse_recording(turn, source="x")
    with pytest.raises(ModelError) as caught:
        assembled(list(turn_events(only, fault))).build()
    return caught.value


CALL = "- content: [{type: tool_use, name: Read, input: {file_path: a.py}}]"


@given(turns())
def test_a_streamed_turn_is_put_together_equal(turn: recording.RecordedTurn) -> None:
    arrived = assembled(list(turn_events(turn)))
    assert arrived.is_complete
    assert arrived.build() == Turn(content=turn.content, stop_reason=turn.stop_reason, usage=turn.usage)


def test_a_turn_that_was_cut_off_is_not_over() -> None:
    (turn,) = recording.parse_recording(CALL, source="x")
    assert not assembled(list(turn_events(turn, Fault(without_stop=True)))).is_complete


def test_a_call_without_an_input_gets_an_empty_object() -> None:
    (turn,) = recording.parse_recording(CALL, source="x")
    assert assembled(list(turn_events(turn, Fault(tool_json="")))).build().calls[0].input == {}


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
    (turn,) = recording.parse_recording(CALL, source="x")
    (call,) = assembled(list(turn_events(turn, Fault(tool_json=text)))).build().calls
    assert "not one complete JSON object" in str(call.defect)


def test_of_a_turn_cut_off_at_max_tokens_the_words_are_kept_and_no_call() -> None:
    (turn,) = recording.parse_recording("- content: [Now., {type: tool_use, name: Write, input: {}}]", source="x")
    fault = Fault(tool_json='{"file_path": "src/very', stop_reason="max_tokens")
    cut = assembled(list(turn_events(turn, fault))).build()
    assert (cut.text, cut.calls, cut.stop_reason) == ("Now.", (), "max_tokens")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("refusal", "refused to answer: stop reason refusal (cyber)"),
        ("model_context_window_exceeded", "no longer fits the model's context window"),
        ("compaction", "an unknown reason: compaction"),
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
        StreamedTurn().feed(event)


def test_a_block_that_begins_twice_is_refused() -> None:
    arrived = StreamedTurn()
    begin: dict[str, JSON] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    arrived.feed(begin)
    with pytest.raises(ModelError, match="is out of order"):
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
    (turn,) = recording.parse_recording("- content: [hi]", source="x")
    events = list(turn_events(turn))
    events.insert(3, {"type": "content_block_delta", "index": 0, "delta": {"type": "sparkle_delta", "sparkle": 1}})
    events.insert(1, {"type": "weather", "sunny": True})
    assert assembled(events).build().text == "hi"


# Server-sent events.


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers(), max_size=3)), st.integers(1, 9), st.booleans())
def test_events_are_the_same_however_they_are_cut(sent: list[dict[str, JSON]], size: int, windows: bool) -> None:
    end = "\r\n" if windows else "\n"
    data = "".join(f"event: x{end}data: {json.dumps(event, ensure_ascii=False)}{end}{end}" for event in sent).encode()
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert list(parse_events(chunks)) == sent


def test_an_event_cut_off_at_the_end_is_left_out() -> None:
    assert list(parse_events([b'data: {"a": 1}\n\ndata: {"b"'])) == [{"a": 1}]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"data: {oops\n\n", "property name"),
        (b"data: [1]\n\n", "not an object"),
        (b"data: {} {}\n\n", "Extra data"),
        (b'data: {"a": "\xff"}\n\n', "can't decode"),
    ],
)
def test_data_that_is_no_object_is_an_error(data: bytes, said: str) -> None:
    with pytest.raises(RequestFailed) as caught:
        list(parse_events([data]))
    assert caught.value.cause == "garbled"
    assert said in caught.value.message


def test_an_object_may_stand_on_several_lines() -> None:
    assert list(parse_events([b'data: {"a":\ndata: 1}\n\n'])) == [{"a": 1}]


def test_a_long_line_costs_no_more_in_small_pieces() -> None:
    line = b'data: {"a": "' + b"x" * 2_000_000 + b'"}\n\n'
    (event,) = parse_events(line[start : start + 64] for start in range(0, len(line), 64))
    assert len(str(event["a"])) == 2_000_000


# Strict JSON.


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_json_writes_is_read_equal(value: dict[str, object]) -> None:
    assert parse_object(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "'a' occurs twice"),
        ('{"b": {"a": 1, "\\u0061": 2}}', "'a' occurs twice"),
        ('{"a": NaN}', "not finite"),
        ('{"a": -Infinity}', "not finite"),
        ('{"a": 1e999}', "not finite"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        ('{"a": 1} {}', "Extra data"),
        ('{"a": 1', "delimiter"),
        ("[1]", "a list, not an object"),
        ("null", "a NoneType, not an object"),
        ("", "Expecting value"),
        ('{"a": "\\ud800"}', "surrogates"),
        ('{"\\udfff": 1}', "surrogates"),
        ('{"a": "\n"}', "control character"),
        (nested(MAX_DEPTH + 1), "too deeply"),
        (nested(200_000), "too deeply"),
        ('{"a":' + "[" * 200_000, "too deeply"),
        ("\ufeff{}", "BOM"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_object(text)


def test_nesting_is_read_up_to_its_limit() -> None:
    assert parse_object(nested(MAX_DEPTH))


@given(st.text() | st.text(alphabet='{}[]",:0123456789.eE+-truefalsn\\u '))
def test_nothing_but_an_object_or_a_value_error_comes_out(text: str) -> None:
    try:
        value = parse_object(text)
    except ValueError:
        return
    assert isinstance(value, dict)
