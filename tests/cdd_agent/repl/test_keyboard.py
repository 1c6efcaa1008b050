"""Keys pressed while cdd works become queued lines, and the draft with which the prompt begins."""

import pytest

from cdd_agent.repl.screen import format_typed
from cdd_agent.repl.terminal import TypedLines


def pressed(*keys: str) -> TypedLines:
    typed = TypedLines()
    for key in keys:
        typed.press(key)
    return typed


@pytest.mark.parametrize(
    ("keys", "queued", "draft"),
    [
        ("abc", (), "abc"),
        ("abc\r", ("abc",), ""),
        ("abc\nde", ("abc",), "de"),
        ("\r\r  \r", (), ""),
        ("abd\x7fc\r", ("abc",), ""),
        ("one two \x17", (), "one "),
        ("wrong\x15right", (), "right"),
        ("a\x1b\rb\r", ("a\nb",), ""),
        ("l\x1b[Do\x1b[1;5Ct\x1bOH\x1b[24;80R", (), "lot"),
        ("a\x00\x04\x07\tb", (), "ab"),
        ("naïve 日本\r", ("naïve 日本",), ""),
        ("cut off\x1b[", (), "cut off"),
    ],
)
def test_keys_make_lines_and_a_draft(keys: str, queued: tuple[str, ...], draft: str) -> None:
    typed = pressed(keys)
    assert (typed.queued, typed.draft) == (queued, draft)


def test_up_takes_the_last_line_back() -> None:
    typed = pressed("one\rtwo\r", "\x1b[A")
    assert (typed.queued, typed.draft) == (("one",), "two")
    typed.press("\x1b[A")
    assert typed.draft == "two"


def test_a_paste_is_one_message_which_only_its_last_line_end_sends() -> None:
    typed = pressed("see: ")
    typed.paste("a\r\n\tb")
    assert (typed.queued, typed.draft) == ((), "see: a\n\tb")
    typed.paste("\rc\r")
    assert (typed.queued, typed.draft) == (("see: a\n\tb\nc",), "")


def test_lines_are_taken_in_order_and_the_draft_remains_for_the_prompt() -> None:
    typed = pressed("one\rtwo\rthr")
    assert [typed.take_line(), typed.take_line(), typed.take_line()] == ["one", "two", None]
    assert typed.take_draft() == "thr"
    assert typed.draft == ""


def test_after_a_stop_each_line_waits_in_the_prompt() -> None:
    typed = pressed("one\rtwo\rthr")
    typed.hold()
    assert typed.take_line() is None
    assert typed.take_if(lambda _: True) == ()
    assert [typed.take_draft() for _ in range(4)] == ["thr", "one", "two", ""]
    typed.press("four\r")
    assert typed.take_line() == "four"


def test_what_is_being_typed_goes_on_at_the_prompt_before_a_line_that_waits() -> None:
    typed = pressed("/doctor\r/q")
    typed.hold()
    assert (typed.is_restoring, typed.take_draft()) == (False, "/q")
    typed.press("/w")  # while the line that began with /q is carried out
    assert (typed.take_line(), typed.is_restoring, typed.take_draft()) == (None, False, "/w")
    assert (typed.take_line(), typed.is_restoring, typed.take_draft()) == (None, True, "/doctor")


def test_a_line_is_carried_out_by_itself_only_where_it_was_typed() -> None:
    typed = pressed("skip\r/status\r!ls\ruse tabs\r")
    typed.place = "exec export 2/3"
    assert typed.take_if(lambda _: True) == ()
    assert (typed.take_line(), typed.is_restoring) == (None, True)
    assert [typed.take_draft() for _ in range(5)] == ["skip", "/status", "!ls", "use tabs", ""]
    typed.press("/status\rmore\r")
    typed.place = "exec export 3/3"
    assert [typed.take_line(), typed.take_line(), typed.take_draft()] == ["/status", None, "more"]


def test_a_line_that_is_kept_is_never_carried_out_by_itself() -> None:
    typed = pressed("use tabs\r")
    typed.keep("theirs")
    assert (typed.take_line(), typed.take_if(lambda line: line == "theirs")) == (None, ())
    assert (typed.is_restoring, typed.take_draft()) == (True, "theirs")
    assert typed.take_line() == "use tabs"  # the user has sent the other one


def test_some_lines_can_be_taken_by_the_work() -> None:
    typed = pressed("use tabs\r/status\rand no semicolons\r")
    assert typed.take_if(lambda line: not line.startswith("/")) == ("use tabs", "and no semicolons")
    assert typed.queued == ("/status",)


@pytest.mark.parametrize(
    ("queued", "draft", "row"),
    [
        ((), "", ""),
        (("/status",), "", "queued: /status"),
        ((), "no, wr", "> no, wr"),
        (("a\nb", "/cost"), "c\nd", "queued: a b; /cost  > c d"),
        (("a long line that was typed",), "the end", "queued: a long lin…  > the end"),
        ((), "a long line without its beginning", "> ithout its beginning"),
        (("\x1b[31mred",), "", "queued: red"),
    ],
)
def test_what_is_typed_is_shown_in_one_row(queued: tuple[str, ...], draft: str, row: str) -> None:
    shown = format_typed(queued, draft, width=30)
    assert shown == row
    assert len(shown) <= 30
