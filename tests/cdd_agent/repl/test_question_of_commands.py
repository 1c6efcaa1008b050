"""What a person sees of a command before it runs, and what counts as which answer."""

import io
import sys
from dataclasses import replace

import pytest

from cdd_agent.repl.question import MOST_ROWS, ask_permission
from cdd_agent.shell.permission import CommandAnswer, CommandQuestion
from tests.fakes.demo import captured

LINE = "git status && npm test --silent"
QUESTION = CommandQuestion(line=LINE, start=14, end=len(LINE), kind="other", why="npm is not known to be harmless")


def asked(question: CommandQuestion, typed: str, *, monkeypatch: pytest.MonkeyPatch) -> tuple[CommandAnswer, str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    with captured() as (screen, stream):
        answer = ask_permission(question, screen=screen)
    return answer, stream.getvalue()


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y\n", CommandAnswer(verdict="once")),
        ("YES\n", CommandAnswer(verdict="once")),
        ("a\n", CommandAnswer(verdict="always")),
        ("n\n", CommandAnswer(verdict="no")),
        ("\n", CommandAnswer(verdict="no")),
        ("n use pytest instead\n", CommandAnswer(verdict="no", reason="use pytest instead")),
        ("no, use pytest\n", CommandAnswer(verdict="no", reason="use pytest")),
        ("what?\nyse\nalways\n", CommandAnswer(verdict="always")),
    ],
)
def test_only_yes_and_always_let_it_run(typed: str, answer: CommandAnswer, *, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(QUESTION, typed, monkeypatch=monkeypatch)[0] == answer


def test_no_answer_stops_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        asked(QUESTION, "", monkeypatch=monkeypatch)


def test_the_whole_command_the_part_and_its_class_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    _, shown = asked(QUESTION, "n\n", monkeypatch=monkeypatch)
    assert shown.splitlines()[:5] == [
        "The agent asks to run:",
        f"  │ {LINE}",
        "This part needs your approval:",
        "  │ npm test --silent",
        "Another command: npm is not known to be harmless.",
    ]


def test_what_always_covers_is_shown_if_it_is_more_than_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    _, shown = asked(replace(QUESTION, pattern="node <file>"), "n\n", monkeypatch=monkeypatch)
    assert "Always would cover: node <file>\n" in shown
    assert "Always would cover" not in asked(QUESTION, "n\n", monkeypatch=monkeypatch)[1]


def test_a_command_of_one_part_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, shown = asked(replace(QUESTION, start=0), "n\n", monkeypatch=monkeypatch)
    assert "This part" not in shown


def test_a_long_command_is_folded_and_its_end_is_never_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "npm run " + "x" * 300 + " && rm -rf /"
    _, shown = asked(replace(QUESTION, line=line, start=0, end=len(line)), "n\n", monkeypatch=monkeypatch)
    rows = [row.removeprefix("  │ ") for row in shown.splitlines() if row.startswith("  │ ")]
    assert "".join(rows) == line
    assert all(len(row) <= 80 for row in shown.splitlines())


def test_of_a_very_long_one_the_rows_left_out_are_counted_and_the_end_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "\n".join(f"npm run {number}" for number in range(100)) + "\nrm -rf /"
    _, shown = asked(replace(QUESTION, line=line, start=0, end=len(line)), "n\n", monkeypatch=monkeypatch)
    assert shown.count("  │ ") == MOST_ROWS
    assert f"and {101 - MOST_ROWS} more rows" in shown
    assert "  │ rm -rf /\n" in shown


def test_nothing_in_a_command_can_hide_or_forge_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "npm \x1b[2Jtest\r [bold]x[/bold] \u202e y\x1b]0;t\x07 # harmless"
    _, shown = asked(replace(QUESTION, line=line, start=0, end=len(line)), "n\n", monkeypatch=monkeypatch)
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "[bold]x[/bold] <U+202E> y" in shown
