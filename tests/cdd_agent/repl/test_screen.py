"""What the screen prints, at any width, on any stream."""

import io
import os
import pty
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyte
import pytest
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from cdd_agent.repl.screen import Screen
from tests.fakes.demo import captured

REPLY = """\
# Why

- a **bold** word
> quoted ü漢

| a | b |
|---|---|
| c | d |

```python
x = 1
```

- [x] e

---
"""
ERASE = "\r\x1b[2K"


class Bytes(io.TextIOWrapper):
    """A stream that refuses what its encoding has no bytes for, unless it is told not to."""

    def __init__(self, encoding: str, *, is_terminal: bool) -> None:
        self._bytes = io.BytesIO()
        self._is_terminal = is_terminal
        super().__init__(self._bytes, encoding=encoding, errors="strict", newline="")

    def isatty(self) -> bool:
        return self._is_terminal

    def shown(self) -> str:
        self.flush()
        return self._bytes.getvalue().decode(self.encoding)


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writes.append(text)
        return super().write(text)


@contextmanager
def terminal() -> Iterator[Terminal]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TERM", "xterm-256color")
        environment.setenv("COLUMNS", "80")
        yield Terminal()


def shown_by_a_terminal(written: str) -> list[str]:
    screen = pyte.Screen(80, 60)
    pyte.Stream(screen).feed(written.replace("\n", "\r\n"))
    rows = [row.rstrip() for row in screen.display]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def test_a_line_is_wrapped_at_the_width_and_hangs() -> None:
    with captured(width=20) as (screen, shown):
        screen.line("one two three four five six", indent=2, hang=2)
    assert shown.getvalue() == "  one two three four\n    five six\n"


def test_every_line_of_a_text_keeps_its_own_indentation() -> None:
    with captured(width=24) as (screen, shown):
        screen.line("not valid:\n  plan.md: line 3: no title", hang=0)
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
    assert shown.getvalue() == "I read **the** test\nnext\n"


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


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437", "utf-8"])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_no_encoding_is_too_poor_for_what_is_printed(
    encoding: str, is_terminal: bool, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Bytes(encoding, is_terminal=is_terminal)
    screen = Screen(stream)
    with screen.working("waiting"):
        for piece in (REPLY[at : at + 7] for at in range(0, len(REPLY), 7)):
            screen.stream(piece)
        for symbol in screen.symbols.values():
            screen.line(symbol)
    shown = re.sub(r".*\r\x1b\[2K", "", stream.shown())
    assert shown.count("?") == {"ascii": 2, "utf-8": 0}.get(encoding, 1), "only what the model said is lost: 漢, ü"
    assert ("漢" in shown) == (encoding == "utf-8")
    assert ("│" in shown) == (encoding == "utf-8")


def test_on_a_terminal_a_reply_is_formatted_and_each_row_is_printed_once() -> None:
    with terminal() as stream:
        screen = Screen(stream)
        with screen.working("waiting"):
            for character in REPLY:
                screen.stream(character)
            screen.end_prose()
        written = stream.getvalue()
    rows = shown_by_a_terminal(written)
    assert rows[:4] == ["Why", "", "• a bold word", "│ quoted ü漢"]
    assert not re.search(r"\x1b\[[0-9]*[ABEFHJfsu]", written), "the cursor never leaves its row"
    assert written.count("\n") == len(rows)
    for kept in rows:
        assert not kept or written.count(f"{kept}\n") <= rows.count(kept)


def test_a_row_that_grows_is_not_drawn_with_every_piece() -> None:
    with terminal() as stream:
        screen = Screen(stream)
        with screen.working("waiting"):
            for _ in range(2_000):
                screen.stream("word ")
            screen.end_prose()
        erased = stream.getvalue().count(ERASE)
    rows = 2_000 * 5 // 80
    assert rows / 2 < erased < 2_000 / 3


def test_what_is_erased_and_what_takes_its_place_are_one_write() -> None:
    with terminal() as stream:
        screen = Screen(stream)
        with screen.working("waiting"):
            for _ in range(200):
                screen.stream("some words ")
            screen.end_prose()
        printed = [write for write in stream.writes if "\n" in write]
        assert len(printed) > 20
        assert all(write.startswith(ERASE) for write in printed[1:])
        assert not [write for write in stream.writes[:-1] if write.endswith(ERASE)]


def test_nothing_is_live_unless_something_works() -> None:
    with terminal() as stream:
        screen = Screen(stream)
        screen.stream("half a row")
        assert stream.getvalue() == ""
        screen.line("next")
        assert stream.getvalue() == "half a row\nnext\n"


def test_a_stream_that_is_no_terminal_is_none_though_colors_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    screen = Screen(stream)
    with screen.working("waiting"):
        screen.stream("half a row")
    assert stream.getvalue() == ""


def test_no_color_leaves_weight_and_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with terminal() as stream:
        screen = Screen(stream)
        screen.stream("**bold** `code`\n\n```python\ndef f(): pass  # x\n```\n\n```diff\n+a\n```\n")
        screen.end_prose()
        assert set(re.findall(r"\x1b\[([0-9;]*)m", stream.getvalue())) == {"0", "1", "2"}


def test_a_dumb_terminal_gets_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal() as stream:
        monkeypatch.setenv("TERM", "dumb")
        screen = Screen(stream)
        screen.stream("**bold** `code`\n")
        assert stream.getvalue() == "**bold** `code`\n"


def test_a_new_turn_has_the_width_of_its_terminal() -> None:
    with terminal() as stream:
        screen = Screen(stream)
        for width in (12, 24):
            screen.console.width = width
            screen.stream("one two three four\n")
            screen.end_prose()
        assert stream.getvalue().splitlines() == ["one two", "three four", "one two three four"]


def test_a_reply_stands_as_deep_as_everything_else() -> None:
    with terminal() as stream:
        screen = Screen(stream)
        screen.indent = 4
        screen.console.width = 20
        screen.stream("- one two three four\n\n```\nx\n```\n")
        screen.end_prose()
        rule = "    " + "─" * 16
        assert shown_by_a_terminal(stream.getvalue()) == ["    • one two three", "      four", "", rule, "    x", rule]


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


def test_a_diff_in_a_file_can_be_applied() -> None:
    diff = "--- a\n+++ b\n@@ -1 +1 @@\n-" + "word " * 40 + "\n+" + "other " * 40
    with captured(width=40) as (screen, shown):
        screen.show_diff(diff)
    assert shown.getvalue() == diff + "\n"
