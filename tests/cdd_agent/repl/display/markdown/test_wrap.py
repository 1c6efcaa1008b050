"""Rows of a paragraph that grows."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from cdd_agent.repl.markdown import Wrap, hung, wrapped

WORDS = st.lists(st.sampled_from(["a", "bcd", "long-word-of-twenty!", "漢字", "👩", "e\n"]), max_size=30)


def plain(rows: list[Text]) -> list[str]:
    return [row.plain for row in rows]


@given(words=WORDS)
def test_word_by_word_it_is_wrapped_as_at_once(words: list[str]) -> None:
    wrap = Wrap(10)
    rows = [row for word in words for row in wrap.add(Text(f"{word} "))] + wrap.end()
    assert plain(rows) == (plain(wrapped(Text(" ".join(words)), 10)) if words else [])


@given(words=WORDS)
def test_no_row_is_too_wide_and_no_word_is_lost(words: list[str]) -> None:
    rows = plain(wrapped(Text(" ".join(words)), 10))
    assert all(cell_len(row) <= 10 for row in rows)
    assert "".join("".join(rows).split()) == "".join("".join(words).split())


def test_styles_stay_with_their_words() -> None:
    rows = wrapped(Text.assemble("one ", ("two three", "bold"), " four"), 8)
    assert plain(rows) == ["one two", "three", "four"]
    assert [(span.start, span.end) for row in rows for span in row.spans] == [(4, 7), (0, 5)]


def test_a_word_longer_than_a_row_has_its_own_rows() -> None:
    assert plain(wrapped(Text("a bcdefghijklmn o"), 5)) == ["a", "bcdef", "ghijk", "lmn o"]


def test_text_without_blanks_fills_its_rows() -> None:
    assert plain(wrapped(Text("漢字。漢字漢字"), 8)) == ["漢字。漢", "字漢字"]


def test_rows_hang() -> None:
    assert plain(hung(Text("one two three four"), width=12, hang=2)) == ["one two", "  three four"]
    assert plain(hung(Text("a" * 25), width=12, hang=2)) == ["a" * 12, "  " + "a" * 10, "  aaa"]
