"""Model text becomes rows that are final when they are given out."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.rows import ASCII, UNICODE
from cdd_agent.repl.display.prose import Prose, Written
from cdd_agent.repl.markdown import MarkdownStream

MARKS = st.sampled_from(
    [
        *(
            "a",
            "bb ",
            "ccc",
            " ",
            "\n",
            "\n\n",
            "  \n",
            "\r\n",
            "\t",
            "    ",
            "\\",
            "&amp;",
            "漢",
            "字",
            "👩\u200d",
        ),
        *("*", "**", "_", "~~", "`", "``", "[", "](", "]", ")", "(", "!", "<", "<b>", "`x`", "**b**", "http://x.y"),
        *("```", "~~~", "> ", "- ", "+ ", "1. ", "# ", "|", "| a |", "|-|-|", "---", "===", "[x] ", "\x1b[1m", "\x1b"),
    ]
)
TEXTS = st.lists(MARKS, max_size=50).map("".join)
SENTENCES = st.lists(st.sampled_from(["one", "two,", "three", "**four**", "`five`", "six."]), min_size=1, max_size=60)
NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u200d\u202e]")


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places)]


def given_out(prose: Prose, pieces: list[str]) -> list[Text]:
    return [row for piece in pieces for row in prose.feed(piece)] + prose.end()


def seen(rows: list[Text]) -> list[tuple[str, list[tuple[int, int, str]]]]:
    return [(row.plain, [(span.start, span.end, str(span.style)) for span in row.spans]) for row in rows]


def formatted(text: str, *, width: int = 20) -> list[str]:
    return [row.plain for row in given_out(MarkdownStream(width, look=UNICODE), [text])]


@given(text=TEXTS, cuts=st.lists(st.integers(0, 200), max_size=12), width=st.sampled_from([12, 20, 40]))
def test_however_it_is_cut_a_text_becomes_the_same_rows(text: str, cuts: list[int], *, width: int) -> None:
    whole = seen(given_out(MarkdownStream(width, look=UNICODE), [text]))
    assert seen(given_out(MarkdownStream(width, look=UNICODE), pieces_of(text, cuts))) == whole
    assert seen(given_out(MarkdownStream(width, look=UNICODE), list(text))) == whole


@given(text=TEXTS, cuts=st.lists(st.integers(0, 200), max_size=12))
def test_however_it_is_cut_a_text_is_written_the_same(text: str, cuts: list[int]) -> None:
    assert seen(given_out(Written(), pieces_of(text, cuts))) == seen(given_out(Written(), [text]))


@given(text=TEXTS)
def test_a_row_is_nothing_but_text(text: str) -> None:
    assert not NOT_TEXT.findall("".join(formatted(text)).replace("👩\u200d👩", ""))


@given(words=SENTENCES, indent=st.sampled_from(["", "> ", "- ", "1. ", "- > "]))
def test_no_row_of_text_is_wider_than_the_screen(words: list[str], indent: str) -> None:
    assert all(cell_len(row) <= 20 for row in formatted(indent + " ".join(words)))


@given(text=TEXTS)
def test_every_word_that_can_be_seen_is_there(text: str) -> None:
    """On a screen so wide that no word is folded; of what follows a fence only the name of a language is shown."""
    shown = " ".join(formatted(text.replace("```", "").replace("~~", ""), width=5_000))
    for word in ("bb", "ccc", "http", "字"):
        assert shown.count(word) >= clean(text).count(word), word


def test_a_row_is_given_out_when_the_next_one_begins() -> None:
    prose = MarkdownStream(20, look=UNICODE)
    assert [row.plain for row in prose.feed("one two three four five six")] == ["one two three four"]
    assert prose.tail == "five six"
    assert [row.plain for row in prose.end()] == ["five six"]
    assert prose.tail == ""


def test_a_mark_that_is_still_open_holds_its_row_back() -> None:
    prose = MarkdownStream(20, look=UNICODE)
    assert prose.feed("a **bold word that is longer than a row") == []
    assert prose.tail == "…longer than a row"
    assert [row.plain for row in prose.feed("** b\n\n")] == ["a bold word that is", "longer than a row b"]


def test_a_mark_that_stays_open_for_a_screenful_is_text() -> None:
    prose = MarkdownStream(80, look=UNICODE)
    rows = prose.feed("an *open " + "word " * 600)
    assert len(rows) > 20
    assert rows[0].plain.startswith("an *open word")


def test_a_paragraph_without_an_end_is_given_out_while_it_comes() -> None:
    prose = MarkdownStream(80, look=UNICODE)
    given = [len(prose.feed("word " * 16)) for _ in range(50)]
    assert sum(given) >= 48
    assert max(given) <= 2


@pytest.mark.parametrize("text", ["x" * 5_000, "漢" * 5_000, "漢字 and " * 600])
def test_text_without_blanks_is_given_out_too(text: str) -> None:
    prose = MarkdownStream(80, look=UNICODE)
    assert len(prose.feed(text)) >= len(text) // 80 - 15
    assert all(row.cell_len <= 80 for row in prose.end())


@pytest.mark.parametrize("width", [-3, 0, 1, 9])
def test_a_screen_too_narrow_for_anything_shows_ten_columns(width: int) -> None:
    text = "> - one two three\n\n| a | b |\n|---|---|\n| c | d |\n\n```py\nx\n```\n"
    assert formatted(text, width=width) == formatted(text, width=10)


def test_blank_lines_neither_begin_nor_end_a_text() -> None:
    assert formatted("\n\none\n\n\ntwo\n\n") == ["one", "", "two"]


def test_a_text_that_ended_leaves_nothing_to_the_next_one() -> None:
    prose = MarkdownStream(20, look=ASCII)
    given_out(prose, ["- a\n\n```\nx = 1"])
    assert [row.plain for row in given_out(prose, ["b\n"])] == ["b"]


def test_escape_sequences_are_dropped_wherever_they_are_cut() -> None:
    text = "\x1b[2Jred\x1b]0;a title\x07 \x1b]8;;http://x y\x1b\\link"
    assert formatted(text) == ["red link"]
    assert [row.plain for row in given_out(MarkdownStream(20, look=UNICODE), list(text))] == ["red link"]


def test_off_a_terminal_a_text_stays_as_it_was_written() -> None:
    text = "\n# Why\n\n\n- **bold** and `code`, much longer than a row\n\n```\n\x1b[1mx = 1\n```\n\n"
    assert [row.plain for row in given_out(Written(), [text])] == [
        *("# Why", "", "", "- **bold** and `code`, much longer than a row", "", "```", "x = 1", "```"),
    ]
