"""What it costs to show a reply while it comes."""

import time

import pytest

from cdd_agent.repl.rows import UNICODE
from cdd_agent.repl.markdown import MarkdownStream
from tests.cdd_agent.repl.markdown import streaming

UNITS = [
    *("a b ", "x", "漢", "*a ", "**a b** ", "[", "![", "[a](", "`a ", "_a ", "\\\n", "&amp; ", "> a\n", "- a\n"),
    *("| a ", "| a |\n", "| a |\n|---|\n", "```py\nx = '''\n", "  - a\n\n", "# a\n", "a\n=\n", " ", "\n"),
    *("\x1b[", "- - "),
]


def test_eight_thousand_characters_cost_a_tenth_of_drawing_all_anew_at_most() -> None:
    """Of the naive way each tenth drawing is made; ten times that is what all of them take."""
    assert streaming.measured(8_000, every=10).ratio <= 1 / 10


@pytest.mark.slow
def test_eight_thousand_characters_cost_a_tenth_of_drawing_all_anew_with_each_piece() -> None:
    assert streaming.measured(8_000).ratio <= 1 / 10


@pytest.mark.parametrize("size", [1, 20])
def test_a_reply_that_is_longer_costs_more_only_in_line_with_its_length(size: int) -> None:
    short, long = (
        min(streaming.ours(streaming.reply(length), size=size) for _ in range(3)) for length in (8_000, 20_000)
    )
    assert long < 5 * short


@pytest.mark.parametrize("unit", UNITS)
def test_no_text_takes_time_with_the_square_of_its_length(unit: str) -> None:
    """Far more text than a reply has, all of it hard to read, within seconds."""
    prose = MarkdownStream(80, look=UNICODE)
    started = time.process_time()
    for piece in streaming.pieces(unit * (24_000 // len(unit)), size=7):
        prose.feed(piece)
        assert len(prose.tail) <= 90
    prose.end()
    assert time.process_time() - started < 8
