import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from cdd_agent.events import Event, GateJudged, Notice, decode, encode
from pytest_tdd_agent.report import Reason
from tests.fakes.reasons import make_reason


def has_finite_numbers(event: Event) -> bool:
    return all(math.isfinite(value) for value in astuple(event) if isinstance(value, float))


st.register_type_strategy(Reason, st.builds(make_reason, st.text()))


@given(st.from_type(Event).filter(has_finite_numbers))  # type: ignore[arg-type]
def test_every_event_reads_back_as_it_was_written(event: Event) -> None:
    assert decode(encode(event)) == event


def test_an_event_is_one_line_with_its_tag() -> None:
    line = encode(GateJudged(phase="red", attempt=1, open=False, reasons=(make_reason("a: b\nc"),), evidence=""))
    assert b"\n" not in line
    assert line.startswith(b'{"event":"GateJudged"')


@pytest.mark.parametrize("line", [b"{}", b'{"event":"Unknown"}', b'{"event":"Notice"}', b"[]", b"nonsense"])
def test_what_is_no_event_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the class is what the reader is promised)
        decode(line)


def test_a_file_name_that_is_not_utf_8_can_be_written() -> None:
    assert decode(encode(Notice(text="caf\udce9"))) == Notice(text="caf\\xe9")


def test_half_a_character_can_be_written() -> None:
    assert decode(encode(Notice(text="a \ud800 test said"))) == Notice(text="a \\ud800 test said")


def test_what_would_act_on_a_terminal_is_escaped_and_reads_back() -> None:
    hostile = Notice(text="\x1b[2J\x9b2J\x7f\u202e\u200b\U000e0041 é 漢")
    line = encode(hostile)
    assert line == (
        rb'{"event":"Notice","text":"\u001b[2J\u009b2J\u007f\u202e\u200b\udb40\udc41 ' + "é 漢".encode() + b'"}'
    )
    assert decode(line) == hostile
