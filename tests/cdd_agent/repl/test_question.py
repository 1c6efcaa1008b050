"""What a person is asked, and what counts as yes."""

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.config.settings import CONFIG_FILE, DEFAULT_MODEL
from cdd_agent.config.trust import Offer
from cdd_agent.repl.question import MOST_LINES, ask_approval, ask_choice, match_choice
from cdd_agent.repl.terminal import KEYBOARD
from tests.cdd_agent.repl.terminal_window import Window, needs_tmux
from tests.fakes.demo import captured

OFFER = Offer(subject="settings", source=".cdd/config.yaml", shown=("model: x", "max_turns: 3"), content=b"")


def asked(offer: Offer, typed: str, *, monkeypatch: pytest.MonkeyPatch, changed: bool = False) -> tuple[bool, str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    with captured() as (screen, stream):
        answer = ask_approval(offer, changed, screen=screen)
    return answer, stream.getvalue()


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("what?\ny\n", True), ("yse\n\n", False)],
)
def test_only_yes_is_yes(typed: str, answer: bool, *, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(OFFER, typed, monkeypatch=monkeypatch)[0] is answer


def test_a_number_that_is_no_choice_is_asked_for_again_and_not_kept_for_the_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("9\n2\n"))
    with KEYBOARD.keep_keys(), captured() as (screen, stream):
        assert ask_choice("Which?", ("this", "that"), screen=screen) == 1
    assert "Type a number from 1 to 2, or words of one choice." in stream.getvalue()
    assert "Kept for the prompt" not in stream.getvalue()


def test_a_choice_is_named_by_its_number_its_words_or_both(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = ("merge: take both", "mine: keep my files", "theirs: replace my files", "later: I decide later")
    offers = ("change it now: one step", "make it a ticket, and let Socrates ask", "neither; I say what I want")
    rows = {
        (merge, "theirs"): 2,
        (merge, "Theirs."): 2,
        (merge, "3"): 2,
        (merge, "3."): 2,
        (merge, "#3"): 2,
        (merge, "3) theirs"): 2,
        (merge, "theirs: replace my files"): 2,
        (merge, "2. theirs"): None,
        (merge, "my files"): None,
        (merge, "replace"): None,
        (merge, "not theirs"): None,
        (merge, "th"): None,
        (merge, "5"): None,
        (merge, "0"): None,
        (merge, "  "): None,
        (offers, "now"): 0,
        (offers, "a ticket"): 1,
        (offers, "it"): None,
        (offers, "change it now"): 0,
        (offers, "neither"): 2,
        (("pytest", "unittest (the standard library)"), "unittest"): 1,
        (("nothing: stay here", "#2  before RED", "#12  before RED"), "12"): None,
        (("日本", "中国"), "日本"): 0,
    }
    assert {(choices, typed): match_choice(typed, choices) for choices, typed in rows} == rows
    monkeypatch.setattr(sys, "stdin", io.StringIO("their\ntheirs\n"))
    KEYBOARD.typed.take_draft()
    with KEYBOARD.keep_keys(), captured() as (screen, stream):
        assert ask_choice("Which?", merge, screen=screen) == 2
    assert "Kept for the prompt, where Enter sends it: their\n" in stream.getvalue()
    assert (KEYBOARD.typed.take_line(), KEYBOARD.typed.take_draft()) == (None, "their")


def test_no_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        asked(OFFER, "", monkeypatch=monkeypatch)


def test_what_would_take_effect_is_shown_and_what_happens_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    _, shown = asked(OFFER, "n\n", monkeypatch=monkeypatch)
    assert shown.startswith("This repository contains settings for cdd, in .cdd/config.yaml:\n  │ model: x\n")
    assert "If you say no, cdd uses the defaults" in shown
    assert "changed" not in shown


def test_a_change_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "It has changed since you decided" in asked(OFFER, "n\n", monkeypatch=monkeypatch, changed=True)[1]


def test_nothing_that_is_shown_can_hide_or_forge_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    tricks = ("\x1b[2J\x1b[1;1Hmodel: safe", "a" * 500 + "rm -rf", "x\u202ey", "[bold]model[/bold]", "a\rb")
    _, shown = asked(replace(OFFER, shown=tricks), "n\n", monkeypatch=monkeypatch)
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "x<U+202E>y" in shown
    assert "[bold]model[/bold]" in shown
    assert "arm -rf\n" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_what_is_too_long_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = tuple(f"line {number}" for number in range(MOST_LINES + 4))
    _, shown = asked(replace(OFFER, shown=lines), "n\n", monkeypatch=monkeypatch)
    assert f"line {MOST_LINES - 1}\n" in shown
    assert f"line {MOST_LINES}\n" not in shown
    assert "and 4 more lines; read all of .cdd/config.yaml" in shown


@pytest.mark.slow
@needs_tmux
@pytest.mark.parametrize(("key", "model"), [("y", "some-model"), ("n", DEFAULT_MODEL)])
def test_a_question_at_a_real_terminal(project: Path, tmp_path: Path, *, key: str, model: str) -> None:
    (project / CONFIG_FILE).parent.mkdir()
    (project / CONFIG_FILE).write_text("model: some-model\n")
    window = Window(tmp_path / "tmux", project)
    try:
        window.screen_with("│ model: some-model", "Let it take effect? [y/N]")
        window.type(key, "Enter")
        window.screen_with(f" cdd | {model}", "/help  Ctrl-D leaves")
    finally:
        window.close()
