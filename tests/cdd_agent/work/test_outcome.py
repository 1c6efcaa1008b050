import pytest

from cdd_agent.work.outcome import (
    Closed,
    Covered,
    Open,
    Outcome,
    Partial,
    RedVerdict,
    get_word,
    is_accepted,
    read_outcome,
)

OUTCOMES: tuple[Outcome, ...] = (
    Open(),
    Open(RedVerdict.VALID),
    Closed(),
    Closed(RedVerdict.TAMPER),
    Closed(had_part=True),
    Partial(),
    Covered(),
    Covered("kept"),
    Covered("dropped"),
    Covered("existing"),
)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=str)
def test_the_words_of_an_outcome_tell_it_from_every_other(outcome: Outcome) -> None:
    assert read_outcome(get_word(outcome), is_open=is_accepted(outcome)) == outcome


def test_a_word_that_no_version_wrote_says_nothing() -> None:
    assert read_outcome("SPLENDID", is_open=True) == Open()
    assert read_outcome("", is_open=False) == Closed()
