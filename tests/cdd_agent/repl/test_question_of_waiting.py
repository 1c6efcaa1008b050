"""What a person is asked when the model's service wants a long pause."""

import io

import pytest

from cdd_agent.repl.question import ask_to_wait
from tests.fakes.demo import captured


def answered(monkeypatch: pytest.MonkeyPatch, *lines: str) -> tuple[bool, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    with captured() as (screen, shown):
        return ask_to_wait("rate limit reached (429)", 3601, screen=screen), shown.getvalue()


@pytest.mark.parametrize(("said", "waits"), [("y", True), (" Yes ", True), ("n", False), ("", False)])
def test_a_long_pause_is_made_only_after_a_yes(said: str, waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, shown = answered(monkeypatch, said)
    assert answer is waits
    assert "rate limit reached (429): the model's service asks to wait 61 minutes." in shown


def test_it_is_asked_until_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, shown = answered(monkeypatch, "what?", "y")
    assert answer
    assert shown.count("Wait?") == 2


def test_no_answer_at_all_ends_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        answered(monkeypatch)
