import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.model.api import sse
from cdd_agent.model.conversation import JSON


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers(), max_size=3)), st.integers(1, 9), st.booleans())
def test_events_are_the_same_however_they_are_cut(sent: list[dict[str, JSON]], size: int, windows: bool) -> None:
    end = "\r\n" if windows else "\n"
    data = "".join(f"event: x{end}data: {json.dumps(event, ensure_ascii=False)}{end}{end}" for event in sent).encode()
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert list(sse.events(chunks)) == sent


def test_an_event_cut_off_at_the_end_is_left_out() -> None:
    assert list(sse.events([b'data: {"a": 1}\n\ndata: {"b"'])) == [{"a": 1}]


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
    with pytest.raises(ValueError, match=said):
        list(sse.events([data]))


def test_an_object_may_stand_on_several_lines() -> None:
    assert list(sse.events([b'data: {"a":\ndata: 1}\n\n'])) == [{"a": 1}]


def test_a_long_line_costs_no_more_in_small_pieces() -> None:
    line = b'data: {"a": "' + b"x" * 2_000_000 + b'"}\n\n'
    (event,) = sse.events(line[start : start + 64] for start in range(0, len(line), 64))
    assert len(str(event["a"])) == 2_000_000
