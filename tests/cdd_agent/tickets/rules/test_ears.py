import time
from pathlib import Path

import pytest

from cdd_agent.tickets.rules.ears import EXAMPLES, Form, breach, form_of


@pytest.mark.parametrize(("form", "sentence"), EXAMPLES.items(), ids=list(EXAMPLES))
def test_each_example_has_the_form_it_shows(form: Form, sentence: str) -> None:
    assert form_of(sentence) == form
    assert form_of(sentence.lower()) == form
    assert breach(sentence) == ""


@pytest.mark.parametrize(
    ("sentence", "form"),
    [
        ("The system shall not ask twice", "ubiquitous"),
        ("The header of the table shall be bold", "ubiquitous"),
        ("WHEN the user asks where the file is, THE SYSTEM SHALL name it", "event"),
        ("While offline, when a row is saved, the ledger shall keep it", "state"),
        ("WHILE an export runs, IF the disk is full, THEN THE SYSTEM SHALL stop", "state"),
        ("If the name is empty, then the form of the page shall say so", "unwanted"),
        ("Where a locale is set, when a date is shown, the system shall use it", "optional"),
        ("given: a list when: it is empty then: nothing is written", "scenario"),
        ("  Given an empty list, when it is exported,\nthen the file has one line", "scenario"),
    ],
)
def test_other_systems_and_combinations_have_the_form_of_their_first_word(sentence: str, form: Form) -> None:
    assert form_of(sentence) == form
    assert breach(sentence) == ""


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("Export is fast", "it begins with none of THE, WHEN, WHILE, IF, WHERE, GIVEN"),
        ("", "it begins with none of THE, WHEN, WHILE, IF, WHERE, GIVEN"),
        ("Whenever it rains THE SYSTEM SHALL wait", "it begins with none of"),
        ("WHEN the list is empty the header is written", "it does not say what THE SYSTEM SHALL do"),
        ("WHEN the list is empty THE SYSTEM SHALL", "nothing follows SHALL"),
        ("THE SYSTEM SHALL NOT.", "nothing follows SHALL"),
        ("THE SHALL write", "nothing stands between THE and SHALL"),
        ("WHEN it is empty it SHALL write", "THE SYSTEM has to stand before SHALL"),
        ("WHEN THE SYSTEM SHALL write", "no condition stands before THE SYSTEM SHALL"),
        ("IF it is empty THE SYSTEM SHALL write", "IF needs a condition and THEN before THE SYSTEM SHALL"),
        ("IF THEN THE SYSTEM SHALL write", "IF needs a condition and THEN before THE SYSTEM SHALL"),
        ("GIVEN a list THEN it is written", "GIVEN needs WHEN and THEN"),
        ("GIVEN a list WHEN it is empty", "GIVEN needs WHEN and THEN"),
        ("GIVEN a list WHEN THEN it is written", "something has to follow each of GIVEN, WHEN and THEN"),
    ],
)
def test_a_breach_names_the_sentence_the_rule_and_an_example(sentence: str, rule: str) -> None:
    told = breach(sentence)

    assert form_of(sentence) is None
    assert told.startswith(f'"{sentence}": {rule}')
    assert told.partition(" For example: ")[2] in EXAMPLES.values()


@pytest.mark.parametrize("text", ["when the ", "given when ", "if then the ", "the shall "])
def test_a_long_sentence_is_judged_in_time_that_grows_with_its_length(text: str) -> None:
    started = time.thread_time()
    breach(text * (60_000 // len(text)))
    assert time.thread_time() - started < 1


def test_the_reference_shows_every_example() -> None:
    text = (Path(__file__).parents[4] / "docs" / "reference" / "ticket.md").read_text(encoding="utf-8")
    assert [example for example in EXAMPLES.values() if f"| `{example}` |" not in text] == []
