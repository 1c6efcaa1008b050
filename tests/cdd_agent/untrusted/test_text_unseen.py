"""Which characters cannot be seen, and which only look as if they could not."""

import unicodedata

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.untrusted.text import (
    find_controls,
    find_steering,
    find_unseen,
    format_counts,
    format_counts_by_line,
    require_visible,
    show_controls,
    show_unseen,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("right\u202eleft", ["\u202e"]),
        ("zero\u200bwidth\u00ad\ufeff", ["\u200b", "\u00ad", "\ufeff"]),
        ("\U000e0041\U000e007f", ["\U000e0041", "\U000e007f"]),
        ("a\u200db", ["\u200d"]),
        ("a\ufe0fb", ["\ufe0f"]),
        ("☺\ufe01\ufe02\ufe03", ["\ufe01", "\ufe02", "\ufe03"]),
        ("☺\U000e0101", ["\U000e0101"]),
        ("\u115f\u3164\uffa0", ["\u115f", "\u3164", "\uffa0"]),
        ("plain\ttext\r\n\f", []),
    ],
)
def test_what_carries_a_message_unseen_is_found(text: str, found: list[str]) -> None:
    assert find_unseen(text) == found


IGNORABLE = (
    *("00AD", "034F", "061C", "115F-1160", "17B4-17B5", "180B-180F", "200B-200F", "202A-202E", "2060-206F", "3164"),
    *("FE00-FE0F", "FEFF", "FFA0", "FFF0-FFF8", "1BCA0-1BCA3", "1D173-1D17A", "E0000-E0FFF"),
)
"""What Unicode calls ``Default_Ignorable_Code_Point``: shown as nothing where it is not known."""

SEEN = ("0600-0605", "06DD", "070F", "0890-0891", "08E2", "110BD", "110CD")
"""Signs that enclose or stand over numbers and words, and are drawn, though their category is that of formats."""


def characters(*ranges: str) -> set[str]:
    ends = [(first, last or first) for first, _, last in (each.partition("-") for each in ranges)]
    return {chr(code) for first, last in ends for code in range(int(first, 16), int(last, 16) + 1)}


def test_every_character_that_is_drawn_as_nothing_is_found() -> None:
    formats = {character for character in map(chr, range(0x110000)) if unicodedata.category(character) == "Cf"}
    expected = (formats | characters(*IGNORABLE)) - characters(*SEEN)
    assert sorted(character for character in expected if find_unseen(f"a{character}b") != [character]) == []
    assert [character for character in characters(*SEEN) if find_unseen(f"a{character}b")] == []


@pytest.mark.parametrize(
    "text",
    [
        "❤\ufe0f",
        "1\ufe0f\u20e3",
        "👩\u200d💻",
        "❤\ufe0f\u200d🔥",
        "\u0645\u06cc\u200c\u062e\u0648",
        "क्\u200dष",
        "葛\U000e0100",
        "é ü 漢字",
    ],
)
def test_what_a_script_or_an_emoji_needs_is_let_pass(text: str) -> None:
    assert find_unseen(text) == []
    assert show_unseen(text) == text


def test_controls_are_those_of_c0_and_c1_but_for_white_space() -> None:
    assert find_controls("\x1b[2J\x07\x9b\x7f\t\n\r\f") == ["\x1b", "\x07", "\x9b", "\x7f"]
    assert show_controls("a\x1b[0m\tb") == "a<U+001B>[0m\tb"


def test_steering_is_what_code_never_needs() -> None:
    assert find_steering("a\u202eb\u2066c\U000e0041d\u200be") == ["\u202e", "\u2066", "\U000e0041"]


def test_they_are_told_by_number_and_line_and_only_a_few() -> None:
    assert format_counts("\u202e\u200b\u202e") == "2 x U+202E, U+200B"
    assert format_counts("\x00\x01\x02\x03\x04\x05").endswith("2 kinds more")
    lines = dict.fromkeys(range(1, 12), "\u200b")
    assert format_counts_by_line({3: "x", 4: "\u200b\u200b"}) == "line 4 2 x U+200B"
    assert format_counts_by_line(lines).endswith("line 8 U+200B; and 3 more")
    assert format_counts_by_line({1: "plain"}) == ""


@pytest.mark.parametrize("text", ["a\nb\x1b[2J\n", "a\nb\u202e\n", "a\nb\U000e0041\n", "a\nb\x9b\n"])
def test_a_text_that_steers_its_reader_is_refused_unless_it_did_so_before(text: str) -> None:
    with pytest.raises(UsageError, match=r"U\+[0-9A-F]+, first in line 2 of the file") as refused:
        require_visible(text, before="a\n")
    assert "escape sequences" in refused.value.hint
    require_visible(text, before=f"c{text}d")
    require_visible("a\r\n\tb\f👩\u200d💻\u200b", before="")
