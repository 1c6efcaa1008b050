"""The toolbar says where the user is, in one row, and leaves out what matters least."""

import pytest
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.utils import get_cwidth

from cdd_agent.repl.prompt import build_toolbar, fit_width
from cdd_agent.repl.terminal import ASCII_SYMBOLS, PromptStatus, choose_symbols

PLACE = PromptStatus(
    agent="exec",
    ticket="csv-export",
    step="2/3",
    phase="green",
    gate="closed",
    model="claude",
    context_percent=42,
    cost="0.42 USD",
    sandbox="bwrap",
)


def text(place: PromptStatus, width: int) -> str:
    return fragment_list_to_text(build_toolbar(place, width=width))


def style_of(place: PromptStatus, part: str) -> str:
    return next(fragment[0] for fragment in build_toolbar(place, width=200) if fragment[1] == part)


def test_it_names_everything_and_the_keys_at_the_end() -> None:
    shown = text(PLACE, 140)
    assert shown.startswith(
        " exec | csv-export | step 2/3 | green ✘ gate closed | claude | context 42% | 0.42 USD | sandbox bwrap "
    )
    assert shown.endswith("/help  Ctrl-D leaves ")
    assert get_cwidth(shown) == 140


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, " exec | csv-export | step 2/3 | green ✘ gate closed | claude | context 42% | 0.42 USD"),
        (75, " exec | csv-export | step 2/3 | green ✘ gate closed | 0.42 USD"),
        (60, " exec | csv-export | step 2/3 | green ✘ gate closed"),
        (45, " exec | step 2/3 | green ✘ gate closed"),
        (20, " exec | step 2/3"),
        (10, " exec"),
        (4, " ex…"),
    ],
)
def test_what_matters_most_in_the_moment_stays(width: int, shown: str) -> None:
    assert text(PLACE, width) == shown


def test_it_never_needs_a_second_row() -> None:
    wide = PromptStatus(agent="日本語", ticket="日本語の券", step="2/3", gate="open", phase="赤", cost="cost unknown")
    for width in range(1, 160):
        assert get_cwidth(text(PLACE, width)) <= width
        assert get_cwidth(text(wide, width)) <= width


def test_a_context_that_is_nearly_full_matters_more_than_what_it_cost() -> None:
    full = PromptStatus(agent="spec", ticket="a", context_percent=85, cost="12.10 USD", model="claude")
    assert text(full, 26) == " spec | a | context 85%"
    assert style_of(full, "context 85%") == "class:toolbar.warning"


def test_outside_of_an_agent_it_is_short() -> None:
    assert text(PromptStatus(model="claude"), 20) == " cdd | claude"


def test_the_gate_has_the_color_of_its_verdict() -> None:
    assert style_of(PLACE, "green ✘ gate closed") == "class:toolbar.closed"
    opened = PromptStatus(phase="red", gate="open")
    assert style_of(opened, "red ✔ gate open") == "class:toolbar.open"


def test_that_nothing_is_confined_is_said_as_a_warning() -> None:
    assert style_of(PromptStatus(sandbox="none"), "no sandbox") == "class:toolbar.warning"


def test_what_it_is_given_is_shown_as_text() -> None:
    assert text(PromptStatus(agent="a\x1b[2J\nb", ticket="\u202ec"), 60).startswith(" a b | <U+202E>c")


def test_a_terminal_without_the_symbols_gets_ascii() -> None:
    assert choose_symbols("ascii") is ASCII_SYMBOLS
    assert choose_symbols("utf-8") is not ASCII_SYMBOLS
    assert choose_symbols("no-such-encoding") is ASCII_SYMBOLS
    assert fragment_list_to_text(build_toolbar(PLACE, width=100, symbols=ASCII_SYMBOLS)).isascii()


def test_a_text_is_cut_by_the_columns_that_it_takes() -> None:
    assert fit_width("日本語", 5) == "日本…"
    assert fit_width("abc", 3) == "abc"
    assert fit_width("abcd", 3, cut="~") == "ab~"
