import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cdd_agent.agent.editing import Edited, replace, split_lines
from cdd_agent.errors import UsageError
from tests.fakes.cases import soak_after
from tests.fakes.examples import fewer

CODE = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"


def refused(text: str, old: str, new: str = "new", *, replace_all: bool = False) -> str:
    with pytest.raises(UsageError) as refusal:
        replace(text, old, new=new, replace_all=replace_all)
    return refusal.value.happened


def test_the_only_match_is_replaced() -> None:
    edited = replace(CODE, "return 2", new="return 3")
    assert edited == Edited(text=CODE.replace("return 2", "return 3"), lines=(6,), ignored=None)


def test_two_matches_are_refused_with_their_lines() -> None:
    said = refused(CODE, "    return")
    assert "2 times" in said
    assert "     2 |     return 1\n     6 |     return 2" in said


def test_overlapping_matches_are_two_matches() -> None:
    assert "2 times" in refused("aXaXa\n", "aXa")


def test_every_match_is_replaced_if_asked_for() -> None:
    edited = replace(CODE, "return", new="yield", replace_all=True)
    assert edited.text == CODE.replace("return", "yield")
    assert edited.lines == (2, 6)


def test_many_matches_are_counted_and_not_all_listed() -> None:
    said = refused("x\n" * 100, "x")
    assert "100 times" in said
    assert "and 80 more" in said


def test_the_same_text_and_no_text_are_refused() -> None:
    assert "the same" in refused(CODE, "one", "one")
    assert "empty" in refused(CODE, "")


def test_a_file_without_a_newline_at_its_end_stays_so() -> None:
    assert replace("a\nb", "b", new="c").text == "a\nc"
    edited = replace("a\nb", "b\n", new="c\nd\n")
    assert edited == Edited(text="a\nc\nd", lines=(2,), ignored="the newline at the end of the file")


def test_white_space_at_the_ends_of_lines_is_looked_past_and_kept_where_nothing_changed() -> None:
    edited = replace("if x:  \n    y = 1 \n", "if x:\n    y = 1\n", new="if x:\n    y = 2\n")
    assert edited.text == "if x:  \n    y = 2\n"
    assert edited.ignored == "white space at the ends of lines"


def test_a_block_without_its_indentation_is_found_and_the_new_one_indented() -> None:
    text = "class A:\n    def f(self):\n\n        return 1\n"
    edited = replace(text, "def f(self):\n\n    return 1\n", new="def f(self):\n\n    if x:\n        return 2\n")
    assert edited.text == "class A:\n    def f(self):\n\n        if x:\n            return 2\n"
    assert edited.ignored == "the kind and depth of indentation"


def test_a_block_with_too_much_indentation_is_found_and_the_new_one_outdented() -> None:
    edited = replace("def f():\n    return 1\n", "    def f():\n        return 1", new="    def f():\n        return 2")
    assert edited.text == "def f():\n    return 2\n"
    assert "not in the file" in refused("def f():\n    return 1\n", "    def f():\n        return 1", "x = 1")


def test_spaces_for_tabs_are_found_and_the_new_text_gets_tabs() -> None:
    text = "def f():\n\tif x:\n\t\treturn 1\n"
    edited = replace(text, "    if x:\n        return 1\n", new="    if x:\n        y()\n        return 1\n")
    assert edited.text == "def f():\n\tif x:\n\t\ty()\n\t\treturn 1\n"
    assert edited.ignored == "the kind and depth of indentation"


def test_tabs_for_spaces_are_found_and_the_new_text_gets_spaces() -> None:
    edited = replace("if x:\n  if y:\n    z\n", "if x:\n\tif y:\n\t\tz\n", new="if x:\n\tif y:\n\t\tw\n")
    assert edited.text == "if x:\n  if y:\n    w\n"


def test_new_lines_get_tabs_where_the_passage_lacks_the_tabs_of_the_file() -> None:
    edited = replace("if x:\n\ty()\n\tw()\n", "y()\nw()\n", new="if z:\n    y()\nw()\n")
    assert edited.text == "if x:\n\tif z:\n\t\ty()\n\tw()\n"


def test_typographic_characters_are_found_by_plain_ones_and_kept_where_nothing_changed() -> None:
    text = "t = \N{LEFT DOUBLE QUOTATION MARK}a\N{RIGHT DOUBLE QUOTATION MARK}\nx\N{NO-BREAK SPACE}= 1\n"
    edited = replace(text, 't = "a"\nx = 1\n', new='t = "a"\nx = 2\n')
    assert edited.text == split_lines(text)[0] + "x = 2\n"
    assert edited.ignored == "characters that look alike"


def test_a_loose_match_in_two_places_is_refused_even_if_all_are_asked_for() -> None:
    for replace_all in (False, True):
        said = refused("a  \nb\na \n", "a\n", "c\n", replace_all=replace_all)
        assert "2 times (ignoring white space at the ends of lines)" in said


def test_an_exact_match_is_never_weighed_against_a_loose_one() -> None:
    assert replace("  x = 1\nx = 1 \n", "x = 1 \n", new="x = 2\n").text == "  x = 1\nx = 2\n"


def test_a_miss_shows_the_nearest_lines_and_marks_the_first_difference() -> None:
    said = refused(CODE, "def two():\n    return 3\n")
    assert "     5 | def two():\n>    6 |     return 2\n  old_string has here:     return 3" in said


def test_a_miss_of_one_line_shows_the_line_that_is_most_like_it() -> None:
    assert ">    1 | def one():\n  old_string has here: def once():" in refused(CODE, "def once():")


def test_a_miss_of_something_unlike_everything_shows_no_lines() -> None:
    assert refused(CODE, "%%%%") == "old_string is not in the file. Nothing was changed."
    assert refused("", "x") == "old_string is not in the file. Nothing was changed."


def test_a_miss_says_that_the_new_text_is_already_there() -> None:
    assert "new_string is already in the file, at line 6" in refused(CODE, "return 9", "return 2")


def test_similar_text_is_never_replaced() -> None:
    assert "not in the file" in refused("total = price * count\n", "total = price * counts\n")


def test_only_a_newline_ends_a_line() -> None:
    assert split_lines("a\x0cb\u2028c\nd") == ["a\x0cb\u2028c\n", "d"]


@fewer()
@given(before=st.text(max_size=60), old=st.text(min_size=1, max_size=20), after=st.text(max_size=60), new=st.text())
def test_every_character_outside_the_only_match_is_kept(*, before: str, old: str, after: str, new: str) -> None:
    try:
        edited = replace(before + old + after, old, new=new)
    except UsageError:
        return
    assume(edited.ignored is None)
    assert edited.text.startswith(before)
    assert edited.text.endswith(after)


@fewer()
@given(
    lines=st.lists(st.sampled_from(["a", " a", "\ta", "a ", "", "b", "a\N{NO-BREAK SPACE}b"]), max_size=8),
    old=st.lists(st.sampled_from(["a", "  a", "b", "", "a b"]), min_size=1, max_size=3),
    new=st.sampled_from(["", "new", "new\nlines", "a\nnew\n"]),
)
def test_lines_outside_a_loose_match_are_kept(*, lines: list[str], old: list[str], new: str) -> None:
    text = "\n".join(lines)
    try:
        edited = replace(text, "\n".join(old), new=new)
    except UsageError:
        return
    assume(edited.ignored is not None)
    first = edited.lines[0] - 1
    kept = lines[first + len(old) :]
    assert split_lines(edited.text)[:first] == split_lines(text)[:first]
    assert edited.text.endswith("\n".join(kept))


@soak_after(
    1,
    ("text", "old", "said"),
    [
        ("x\n" * 130_000, "x\n" * 10_000 + "y\n", "is not in the file"),
        ("x \n" * 3_000, "x\n" * 1_500, "nearly match at 67 places or more"),
        ("x \n" * 80_000, "x\n" * 2, "nearly match at"),
        ("\tx \n   x\n" * 20_000, " x\nx\n" * 5_000, "nearly match at"),
    ],
    ids=["one line is missing", "long blocks", "many places", "unlike each other"],
)
def test_a_text_that_repeats_itself_is_no_work_for_hours(text: str, old: str, said: str) -> None:
    started = time.monotonic()
    with pytest.raises(UsageError, match=said):
        replace(text, old, new="z\n")
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_a_text_that_would_grow_beyond_all_measure_is_refused() -> None:
    with pytest.raises(UsageError, match="too large"):
        replace("x" * 200_000, "x", new="y" * 16_000, replace_all=True)


def test_lines_that_nearly_stand_there_can_be_taken_out() -> None:
    assert replace("a\n  b \nc\n", "  b\n", new="").text == "a\nc\n"
