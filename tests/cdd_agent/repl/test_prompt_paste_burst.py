"""What arrives at once is a paste; what is typed is not."""

import pytest
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress

from cdd_agent.repl.prompt import group_pastes, restore_enter


def pressed(text: str) -> list[KeyPress]:
    keys: list[KeyPress] = []
    parser = Vt100Parser(keys.append)
    parser.feed(text)
    parser.flush()
    return keys


def told(keys: list[KeyPress]) -> list[str]:
    """The keys, a paste as its text in angle brackets."""
    return [f"<{key.data}>" if key.key == "<bracketed-paste>" else key.key for key in keys]


@pytest.mark.parametrize(
    ("burst", "read"),
    [
        ("ab\r", ["a", "b", "c-m"]),
        ("\r\r", ["c-m", "c-m"]),
        ("a\r\r", ["a", "c-m", "c-m"]),
        ("some\ntext\r", ["<some\ntext>", "c-m"]),
        ("some\rtext\r", ["<some\ntext>", "c-m"]),
        ("some\r\ntext\r\n", ["<some\ntext>", "c-j"]),
        ("some\rtext", ["<some\ntext>"]),
        ("a\rb\r", ["a", "c-m", "b", "c-m"]),
        ("if x:\r\ty\r", ["<if x:\n\ty>", "c-m"]),
        ("/st\t\r", ["/", "s", "t", "c-i", "c-m"]),
        ("\x1b[A\r", ["up", "c-m"]),
        ("some\x1b\rtext", ["<some\ntext>"]),
        ("\x1b\r", ["c-j"]),
        ("x" * 40, [f"<{'x' * 40}>"]),
        ("\x1b[200~a\rb\x1b[201~\r", ["<a\rb>", "c-m"]),
        ("日本語の文\r文章\r", ["<日本語の文\n文章>", "c-m"]),
        ("some\rtext\x03", ["<some\ntext>", "c-c"]),
    ],
)
def test_text_that_nobody_has_typed_is_one_paste(burst: str, read: list[str]) -> None:
    assert told(group_pastes(pressed(burst))) == read


@pytest.mark.parametrize(
    ("waiting", "read"), [("a\n", ["a", "c-m"]), ("a\nb\n", ["a", "c-j", "b", "c-m"]), ("ab", ["a", "b"])]
)
def test_an_enter_pressed_before_the_prompt_was_there_is_one(waiting: str, read: list[str]) -> None:
    assert told(restore_enter(pressed(waiting))) == read
