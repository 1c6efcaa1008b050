import re
import time
from pathlib import Path

import pytest

from cdd_agent.tickets.rules.ears import EXAMPLES
from cdd_agent.tickets.rules.testable import VAGUE, VAGUE_PHRASES, vague_word


@pytest.mark.parametrize("word", [*VAGUE, *VAGUE_PHRASES])
def test_each_listed_word_makes_a_criterion_vague(word: str) -> None:
    assert vague_word(f"THE SYSTEM SHALL be {word}.") == word
    assert vague_word(f"{word.upper()}, THE SYSTEM SHALL be") == word.upper()


@pytest.mark.parametrize("measure", ["200 ms", "`--fast`", '"done"', "'done'", "\u201cdone\u201d", "\u00abfait\u00bb"])
def test_a_number_code_or_a_quoted_text_says_what_is_meant(measure: str) -> None:
    assert vague_word(f"THE SYSTEM SHALL be fast: {measure}") == ""


@pytest.mark.parametrize(
    "sentence",
    [
        *EXAMPLES.values(),
        "THE SYSTEM SHALL print breakfast and wellness",
        "WHEN the password is correct THE SYSTEM SHALL clear the list",
        "THE SYSTEM SHALL write a pretty-printed file",
        "Commas: are quoted",
    ],
)
def test_what_can_be_observed_is_not_vague(sentence: str) -> None:
    assert vague_word(sentence) == ""


def test_an_apostrophe_is_no_quotation() -> None:
    assert vague_word("THE SYSTEM SHALL show the user's list fast and the guest's list too") == "fast"


def test_a_phrase_may_go_on_in_the_next_line() -> None:
    assert vague_word("THE SYSTEM SHALL work as\n  expected") == "as expected"


def test_a_long_sentence_is_judged_in_time_that_grows_with_its_length() -> None:
    started = time.thread_time()
    for text in ("fas ", "'a ", '"', "as "):
        vague_word(text * (60_000 // len(text)))
    assert time.thread_time() - started < 1


def test_the_reference_lists_every_vague_word() -> None:
    text = (Path(__file__).parents[4] / "docs" / "reference" / "ticket.md").read_text(encoding="utf-8")
    quoted = " ".join(line.removeprefix("> ") for line in text.splitlines() if line.startswith("> "))
    listed = set()
    for part in re.split(r"[,;] ", quoted):
        stem, _, ending = part.partition("(")
        listed |= {stem, *([stem + ending.rstrip(")")] if ending else [])}
    assert listed == {*VAGUE, *VAGUE_PHRASES}
