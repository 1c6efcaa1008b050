import math
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.events import Event, GateJudged, Notice, decode, encode


def has_finite_numbers(event: Event) -> bool:
    return all(math.isfinite(value) for value in astuple(event) if isinstance(value, float))


@given(st.from_type(Event).filter(has_finite_numbers))  # type: ignore[arg-type]
def test_every_event_reads_back_as_it_was_written(event: Event) -> None:
    assert decode(encode(event)) == event


def test_an_event_is_one_line_with_its_tag() -> None:
    line = encode(GateJudged(phase="red", attempt=1, open=False, reasons=("a: b\nc",), evidence=""))
    assert b"\n" not in line
    assert line.startswith(b'{"event":"GateJudged"')


@pytest.mark.parametrize("line", [b"{}", b'{"event":"Unknown"}', b'{"event":"Notice"}', b"[]", b"nonsense"])
def test_what_is_no_event_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the class is what the reader is promised)
        decode(line)


def test_a_file_name_that_is_not_utf_8_can_be_written() -> None:
    assert decode(encode(Notice(text="caf\udce9"))) == Notice(text="caf\\xe9")
