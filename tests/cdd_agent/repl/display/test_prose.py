"""Model text becomes rows that are final when they are given out."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from cdd_agent.repl.display.prose import Prose, marked, rows

WORDS = st.text(alphabet="ab *`\n#-1.é ", max_size=200)


def plain(text: str, *, width: int = 20) -> list[str]:
    prose = Prose(width)
    return [row.plain for row in [*prose.feed(text), *prose.end()]]


@given(text=WORDS, cuts=st.lists(st.integers(0, 200), max_size=12))
def test_however_it_is_cut_a_text_becomes_the_same_rows(text: str, cuts: list[int]) -> None:
    prose = Prose(20)
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    given_out = [row for piece in pieces for row in prose.feed(piece)] + prose.end()
    assert [row.plain for row in given_out] == plain(text)


@given(text=WORDS)
def test_no_row_is_wider_than_the_screen(text: str) -> None:
    assert all(len(row) <= 20 for row in plain(text))


def test_a_row_is_given_out_as_soon_as_the_next_one_begins() -> None:
    prose = Prose(20)
    assert [row.plain for row in prose.feed("one two three four five")] == ["one two three four"]
    assert prose.tail == "five"
    assert [row.plain for row in prose.end()] == ["five"]
    assert prose.tail == ""


def test_bold_and_code_lose_their_marks_and_gain_a_style() -> None:
    text = marked("use **bold** and `code`, 2 * 3 ** 4")
    assert text.plain == "use bold and code, 2 * 3 ** 4"
    assert [(span.start, span.end, span.style) for span in text.spans] == [(4, 8, "bold"), (13, 17, "cyan")]


def test_a_heading_is_bold() -> None:
    assert marked("## Why").plain == "Why"


def test_a_mark_that_is_still_open_holds_its_row_back() -> None:
    prose = Prose(20)
    assert prose.feed("a **bold word that is longer than a row") == []
    assert [row.plain for row in prose.feed("** b\n")] == ["a bold word that is", "longer than a row b"]


def test_the_rows_of_a_list_item_hang_below_its_words() -> None:
    assert plain("- one two three four five") == ["- one two three four", "  five"]


def test_blank_lines_neither_begin_nor_end_a_text() -> None:
    assert plain("\n\none\n\n\ntwo\n\n") == ["one", "", "two"]


def test_code_between_fences_keeps_its_marks() -> None:
    assert plain("```\n**x** = `y`\n```\n**z**") == ["```", "**x** = `y`", "```", "z"]


def test_escape_sequences_are_dropped() -> None:
    assert plain("\x1b[2Jred\x1b]0;title\x07") == ["red"]


def test_wrapped_rows_hang() -> None:
    assert [row.plain for row in rows(Text("one two three four"), width=12, hang=2)] == ["one two", "  three four"]
