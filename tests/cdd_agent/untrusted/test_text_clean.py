"""Nothing that a model, a test or a file says reaches the terminal as more than text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.untrusted.text import clean


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP payload \x1b\\text", "text"),
        ("\x1b]0;no end\nall shown", "0;no end\nall shown"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1bcreset", "reset"),
        ("over\rwritten", "overwritten"),
        ("a\x08b\x00c\x7fd\x9be", "abcde"),
        ("line\r\nline\ttab", "line\nline\ttab"),
        ("right\u202eleft", "right<U+202E>left"),
        ("zero\u200bwidth", "zero<U+200B>width"),
        ("half \udc80 a pair", "half ? a pair"),
        ("tag\U000e0041", "tag<U+E0041>"),
        ("s\u00adoft, a\ufe0f", "s<U+00AD>oft, a<U+FE0F>"),
        ("👩\u200d💻 ❤\ufe0f", "👩\u200d💻 ❤\ufe0f"),
        ("grüße 漢字 ✔", "grüße 漢字 ✔"),
    ],
)
def test_only_text_is_left(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text())
def test_what_is_clean_stays_as_it_is(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(st.text(alphabet="\x1b[]\\;0m\x07\x9bP^_a\r\n"))
def test_no_control_character_is_left_but_line_feed_and_tab(text: str) -> None:
    assert not [character for character in clean(text) if ord(character) < 32 and character not in "\n\t"]
