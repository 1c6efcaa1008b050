"""Saving is agreed to with Enter, and asked about until there is an answer."""

import pytest

from cdd_agent.repl.question import ask_objection
from tests.fakes.demo import captured


@pytest.mark.parametrize(
    ("typed", "against"),
    [("", None), ("y", None), ("YES", None), ("n", ""), ("no, use cents", "use cents"), ("what?\nno", "")],
)
def test_the_answer_is_yes_unless_it_is_no(monkeypatch: pytest.MonkeyPatch, *, typed: str, against: str | None) -> None:
    answers = iter(typed.split("\n"))
    monkeypatch.setattr("builtins.input", lambda: next(answers))
    with captured() as (screen, shown):
        assert ask_objection(screen=screen) == against
    assert shown.getvalue().startswith("Save this? [Y/n, or n and why]")


def test_where_no_answer_comes_nothing_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends() -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", ends)
    with captured() as (screen, _), pytest.raises(KeyboardInterrupt):
        ask_objection(screen=screen)
