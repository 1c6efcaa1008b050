import json
import os
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import RecordingError
from cdd_agent.model import recording
from cdd_agent.model.conversation import JSON, Text, ToolCall
from cdd_agent.model.recording import RecordedBlock, RecordedTurn
from cdd_agent.work.state import Usage

EXAMPLE = r"""
- content: ["I read the test first.", {type: tool_use, name: Read, input: {file_path: tests/test_csv.py}}]
  usage: {input_tokens: 812, output_tokens: 64}
- when: "^Step 2\\b"
  content: [{type: tool_use, name: CompleteImplementation, input: {implementation_files: [src/csv.py]}}]
  stop_reason: tool_use
"""

ODD_TEXT = st.text() | st.lists(st.sampled_from([" ", "\t", "a", "#", ": ", "- ", "'", "\n", "\r", "\x85", "é"])).map(
    "".join
)
JSON_VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=6,
)
BLOCKS = st.builds(Text, text=ODD_TEXT) | st.builds(
    ToolCall, id=st.uuids().map(str), name=st.text(min_size=1), input=st.dictionaries(ODD_TEXT, JSON_VALUES, max_size=3)
)


@st.composite
def turns(draw: st.DrawFn) -> RecordedTurn:
    content: tuple[RecordedBlock, ...] = tuple(draw(st.lists(BLOCKS, max_size=3)))
    usual = recording.infer_stop_reason(content)
    return RecordedTurn(
        number=1,
        content=content,
        stop_reason=usual
        if usual == "tool_use"
        else draw(st.sampled_from(["end_turn", "max_tokens", "stop_sequence"])),
        usage=Usage(input_tokens=draw(st.integers(0, 10**6)), cache_write_tokens=draw(st.integers(0, 9))),
        when=draw(st.none() | st.sampled_from(["^a$", r"\bStep 2\b", "x\ny"])),
    )


def parse_error(text: str, *, is_json: bool = False) -> str:
    with pytest.raises(RecordingError) as caught:
        recording.parse_recording(text, source="demo.yaml", is_json=is_json)
    assert "demo.yaml" in str(caught.value)
    return str(caught.value)


def test_the_example_of_the_reference_is_read() -> None:
    first, second = recording.parse_recording(EXAMPLE, source="x")
    call = ToolCall(id="toolu_0001_01", name="Read", input={"file_path": "tests/test_csv.py"})
    assert first.content == (Text(text="I read the test first."), call)
    assert first.stop_reason == "tool_use"
    assert first.usage == Usage(input_tokens=812, output_tokens=64)
    assert (second.number, second.when) == (2, r"^Step 2\b")


@given(turns(), st.booleans())
def test_what_is_printed_is_read_back_equal(turn: RecordedTurn, is_json: bool) -> None:
    assert recording.parse_recording(recording.print_turns([turn], is_json=is_json), source="x", is_json=is_json) == (
        turn,
    )


def test_text_of_several_lines_is_printed_as_a_block_and_keeps_its_last_newlines() -> None:
    source = "def f():\n    return 1\n\n"
    call = ToolCall(id="toolu_0001_00", name="Write", input={"file_path": "a.py", "content": source})
    turn = RecordedTurn(number=1, content=(call,), stop_reason="tool_use")
    printed = recording.print_turns([turn])
    assert "content: |+\n" in printed
    assert "\n        def f():\n" in printed
    assert recording.parse_recording(printed, source="x")[0].calls[0].input["content"] == source


def test_ids_are_made_up_alike_at_every_reading() -> None:
    assert recording.parse_recording(EXAMPLE, source="x") == recording.parse_recording(EXAMPLE, source="y")


def test_a_json_recording_is_known_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps([{"content": ["hello"]}]), encoding="utf-8")
    assert recording.load_recording(path)[0].content == (Text(text="hello"),)


def test_an_empty_file_holds_no_turns() -> None:
    assert recording.parse_recording("", source="x") == ()


def test_a_missing_recording_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="There is no recording at") as caught:
        recording.load_recording(tmp_path / "none.yaml")
    assert "--record" in caught.value.hint


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    with path.open("wb") as file:
        file.truncate(100 * recording.MAX_BYTES)
    with pytest.raises(RecordingError, match="It has more than 8000000 bytes"):
        recording.load_recording(path)


def test_a_pipe_or_a_device_is_refused_without_waiting_for_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path / "pipe.yaml", Path("/dev/zero")):
        with pytest.raises(RecordingError, match=f"{path} cannot be read: It is a pipe or a device"):
            recording.load_recording(path)


def test_a_recording_may_be_named_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(EXAMPLE, encoding="utf-8")
    (tmp_path / "link.yaml").symlink_to("run.yaml")
    assert recording.load_recording(tmp_path / "link.yaml") == recording.load_recording(tmp_path / "run.yaml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RecordingError, match="cannot be read"):
        recording.load_recording(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("content: [hi]", "expected a list of turns, not a dict"),
        ("- content: [hi\n- x", "line 3: did not find"),
        ("- content: hi", "turn 1: Expected `array`, got `str` - at `content`"),
        ("- content: [a]\n- contents: [b]", "turn 2:"),
        ("- content: [a]\n  temperature: 1", "temperature"),
        ("- content: [5]", "content[0]"),
        ("- content: [{type: tool_use, name: Read}]", "`input`"),
        ("- content: [{type: tool_use, name: '', input: {}}]", "content[0].name is empty"),
        ("- content: [{type: thinking, thinking: x}]", "thinking"),
        ("- content: [{type: tool_use, name: Read, input: {day: 2026-01-31}}]", "content[0].input.day is a date"),
        ("- content: [{type: tool_use, name: Read, input: {a: {1: 2}}}]", "content[0].input.a has the key 1"),
        ("- content: [{type: tool_use, name: Read, input: {a: .nan}}]", "content[0].input.a is a float"),
        ("- content: [{type: tool_use, name: Read, input: {a: &a [*a]}}]", "the alias *a is not allowed"),
        ("- content: [a]\n  stop_reason: pause_turn", "'pause_turn' is not one of end_turn"),
        ("- content: [a]\n  stop_reason: tool_use", "the turn calls no tool"),
        ("- content: [{type: tool_use, name: R, input: {}}]\n  stop_reason: end_turn", "the turn calls a tool"),
        ("- content: [a]\n  when: '('", "when is not a regular expression"),
        ("- content: [a]\n  when: 'a{99999999999999999999}'", "the repetition number is too large"),
        (f"- content: [a]\n  when: {'x' * 10_001}", "when has 10001 characters"),
        ("- content: [" + "[" * 900, "more than 50 levels"),
        ("- content: [{type: tool_use, name: R, input: {a: !!int ''}}]", "line 1: the tag tag:yaml.org,2002:int"),
        ("- content: [{type: tool_use, name: R, input: {a: 0x" + "f" * 5000 + "}}]", "thousands of digits"),
        ("- content: [a]\n  content: [b]", "line 2: the key 'content' occurs twice"),
        ("- content: [\ud800]", "lone surrogate"),
        ("- content: [" + "x" * 8_000_000 + "]", "at most 8000000 are read"),
        (
            "- content: [{type: tool_use, id: a, name: R, input: {}}, {type: tool_use, id: a, name: R, input: {}}]",
            "turn 1 already uses the id 'a'",
        ),
    ],
)
def test_an_invalid_recording_names_its_turn_and_place(text: str, said: str) -> None:
    assert said in parse_error(text)


def test_invalid_json_names_the_file() -> None:
    assert "malformed" in parse_error("[{]", is_json=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"content": ["a"], "content": ["b"]}]', "the key 'content' occurs twice"),
        ("[" * 100_000, "recursion"),
        ('[{"content": ["\\ud800"]}]', "truncated"),
        ('[{"content": ["\ud800"]}]', "lone surrogate"),
        ('[{"content": [], "usage": {"input_tokens": ' + "9" * 5000 + "}}]", "out of range"),
        ('["' + "x" * 8_000_000 + '"]', "at most 8000000 are read"),
    ],
)
def test_json_that_readers_take_differently_is_refused(text: str, said: str) -> None:
    assert said in parse_error(text, is_json=True)


def test_a_pattern_that_a_later_python_reads_otherwise_warns_nobody() -> None:
    with warnings.catch_warnings(record=True) as caught:
        recording.parse_recording("- content: []\n  when: '[[:x:]]'", source="x")
    assert caught == []
