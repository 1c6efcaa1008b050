"""Words that do not depend on how a text came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.markdown import LONGEST, Words

TEXTS = st.text(alphabet="ab \t\n\r漢。\x1b[]\x07m\u200d👩\x9b", max_size=80)


def words(text: str) -> list[str]:
    cutter = Words()
    return cutter.feed(text) + cutter.end()


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("one two", ["one ", "two\n"]),
        ("  one  \ttwo  \nthree\n", ["  ", "one  \t", "two  \n", "three\n"]),
        ("a\r\n\r\n", ["a\n", "\n"]),
        ("漢字。or 漢", ["漢", "字。or ", "漢\n"]),
        ("漢。字", ["漢。", "字\n"]),
        ("a \x1b]0;the title\x07b c\nd e", ["a ", "b c\n", "d ", "e\n"]),
        ("", []),
    ],
)
def test_a_text_is_cut_where_a_row_can_end(text: str, cut: list[str]) -> None:
    assert words(text) == cut


@given(text=TEXTS)
def test_however_it_comes_it_is_cut_the_same(text: str) -> None:
    cutter = Words()
    assert [word for character in text for word in cutter.feed(character)] + cutter.end() == words(text)


@given(text=TEXTS)
def test_the_words_are_the_text_cleaned(text: str) -> None:
    assert "".join(words(text)).rstrip("\n") == clean(text).rstrip("\n")


def test_a_word_without_an_end_is_cut() -> None:
    assert [len(word) for word in words("x" * (2 * LONGEST + 5))] == [LONGEST, LONGEST, 6]
    assert len(words("x" * LONGEST)) == 1
