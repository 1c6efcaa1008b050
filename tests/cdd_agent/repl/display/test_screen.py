"""What the screen prints, at any width, on any stream."""

import io
import os
import pty

from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from cdd_agent.repl.display.screen import Screen
from tests.fakes.demo import captured


def test_a_line_is_wrapped_at_the_width_and_hangs() -> None:
    with captured(width=20) as (screen, shown):
        screen.line("one two three four five six", indent=2, hang=2)
    assert shown.getvalue() == "  one two three four\n    five six\n"


def test_every_line_of_a_text_keeps_its_own_indentation() -> None:
    with captured(width=24) as (screen, shown):
        screen.line("not valid:\n  plan.md: line 3: no title")
    assert shown.getvalue() == "not valid:\n  plan.md: line 3: no\n  title\n"


def test_gaps_do_not_add_up() -> None:
    with captured() as (screen, shown):
        screen.gap()
        screen.line("one")
        screen.gap()
        screen.gap()
        screen.line("two")
    assert shown.getvalue() == "one\n\ntwo\n"


def test_streamed_text_ends_before_anything_else_is_printed() -> None:
    with captured() as (screen, shown):
        screen.stream("I read **the** ")
        screen.stream("test")
        screen.line("next")
    assert shown.getvalue() == "I read the test\nnext\n"


def test_an_error_in_a_file_is_not_wrapped() -> None:
    with captured(width=20) as (screen, shown):
        screen.error("There is no ticket of this name.", hint="make it with: cdd new name")
    assert shown.getvalue() == "error: There is no ticket of this name.\nhint: make it with: cdd new name\n"


def test_control_sequences_of_others_are_not_printed() -> None:
    with captured() as (screen, shown):
        screen.line("\x1b[2Jone")
        screen.stream("\x1b]0;title\x07two\n")
        screen.error("\x1b[31mthree", hint="\x1b[0mfour")
    assert shown.getvalue() == "one\ntwo\nerror: three\nhint: four\n"


def test_whatever_rich_is_given_is_cleaned() -> None:
    with captured() as (screen, shown):
        screen.line(Text("\x1b[2Jone"))
        screen.show(Panel("\x1b]8;;http://x\x1b\\two\x9b"))
        screen.show(Markdown("**\u202ethree** [four](file:///etc/passwd)"))
    assert not set(shown.getvalue()) & set("\x1b\x07\x9b\u202e")
    assert [word for word in ("one", "two", "<U+202E>three", "four") if word in shown.getvalue()] == [
        "one",
        "two",
        "<U+202E>three",
        "four",
    ]


def test_a_stream_without_our_symbols_gets_others() -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    screen = Screen(stream)
    screen.line(f"{screen.symbols['open']} grüße")
    stream.flush()
    assert written.getvalue() == b"+ gr??e\n"


def test_without_a_terminal_nothing_is_drawn_over() -> None:
    with captured() as (screen, shown), screen.working("waiting"):
        screen.say("thinking")
        screen.stream("half a row")
        screen.line("done")
    assert shown.getvalue() == "half a row\ndone\n"


def test_on_a_terminal_what_is_going_on_is_shown_and_gone_at_the_end() -> None:
    ours, theirs = pty.openpty()
    os.environ.setdefault("TERM", "xterm")
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        screen = Screen(stream)
        with screen.working("waiting for the model"):
            seen = b""
            while b"waiting for the model" not in seen:
                seen += os.read(ours, 1000)
        screen.show(Text("done"))
        while b"done" not in seen:
            seen += os.read(ours, 1000)
    os.close(ours)
    assert seen.rpartition(b"Ctrl-C stops")[2].replace(b"\x1b[0m", b"") == b"\r\x1b[2Kdone\r\n"
