import re
import time
from pathlib import Path

import pytest

from cdd_agent.tickets.spec import EXAMPLES, VAGUE_PHRASES, VAGUE_WORDS, explain_breach, find_vague_word

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "ticket.md"


@pytest.mark.parametrize(("form", "sentence"), EXAMPLES.items(), ids=list(EXAMPLES))
def test_each_example_has_the_form_it_shows(form: str, sentence: str) -> None:
    assert explain_breach(sentence) == ""
    assert explain_breach(sentence.lower()) == ""
    assert explain_breach(sentence.split(maxsplit=1)[0]).endswith(f"For example: {EXAMPLES[form]}")


@pytest.mark.parametrize(
    ("sentence", "form"),
    [
        ("The system shall not ask twice", "the"),
        ("The header of the table shall be bold", "the"),
        ("WHEN the user asks where the file is, THE SYSTEM SHALL name it", "when"),
        ("While offline, when a row is saved, the ledger shall keep it", "while"),
        ("WHILE an export runs, IF the disk is full, THEN THE SYSTEM SHALL stop", "while"),
        ("If the name is empty, then the form of the page shall say so", "if"),
        ("Where a locale is set, when a date is shown, the system shall use it", "where"),
        ("given: a list when: it is empty then: nothing is written", "given"),
        ("GIVEN a list, then sorted, WHEN it is shown THEN it is short", "given"),
        ("  Given an empty list, when it is exported,\nthen the file has one line", "given"),
    ],
)
def test_other_systems_and_combinations_have_the_form_of_their_first_word(sentence: str, form: str) -> None:
    assert explain_breach(sentence) == ""
    assert explain_breach(sentence.split(maxsplit=1)[0]).endswith(f"For example: {EXAMPLES[form]}")


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("Export is fast", "it begins with none of THE, WHEN, WHILE, IF, WHERE, GIVEN"),
        ("", "it begins with none of THE, WHEN, WHILE, IF, WHERE, GIVEN"),
        ("Whenever it rains THE SYSTEM SHALL wait", "it begins with none of"),
        ("WHEN the list is empty the header is written", "it does not say what THE SYSTEM SHALL do"),
        ("WHEN the list is empty THE SYSTEM SHALL", "nothing follows SHALL"),
        ("THE SYSTEM SHALL NOT.", "nothing follows SHALL"),
        ("THE SHALL write", "there is nothing between THE and SHALL"),
        ("WHEN it is empty it SHALL write", "THE SYSTEM must come before SHALL"),
        ("WHEN THE SYSTEM SHALL write", "a condition must come before THE SYSTEM SHALL"),
        ("IF it is empty THE SYSTEM SHALL write", "IF needs a condition and THEN before THE SYSTEM SHALL"),
        ("IF THEN THE SYSTEM SHALL write", "IF needs a condition and THEN before THE SYSTEM SHALL"),
        ("GIVEN a list THEN it is written", "GIVEN needs WHEN and THEN"),
        ("GIVEN a list WHEN it is empty", "GIVEN needs WHEN and THEN"),
        ("GIVEN a list WHEN THEN it is written", "something must follow each of GIVEN, WHEN and THEN"),
    ],
)
def test_a_breach_names_the_sentence_the_rule_and_an_example(sentence: str, rule: str) -> None:
    explained = explain_breach(sentence)

    assert explained.startswith(f'"{sentence}": {rule}')
    assert explained.partition(" For example: ")[2] in EXAMPLES.values()


@pytest.mark.parametrize("text", ["when the ", "given when ", "if then the ", "the shall "])
def test_a_long_sentence_is_judged_in_time_that_grows_with_its_length(text: str) -> None:
    started = time.thread_time()
    explain_breach(text * (60_000 // len(text)))
    assert time.thread_time() - started < 1


def test_the_reference_shows_every_example() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    assert [example for example in EXAMPLES.values() if f"| `{example}` |" not in text] == []


def test_each_listed_word_makes_a_criterion_vague() -> None:
    words = [*VAGUE_WORDS, *VAGUE_PHRASES]
    assert [find_vague_word(f"THE SYSTEM SHALL be {word}.") for word in words] == words
    loud = [word.upper() for word in words]
    assert [find_vague_word(f"{word}, THE SYSTEM SHALL be") for word in loud] == loud


@pytest.mark.parametrize("measure", ["200 ms", "`--fast`", '"done"', "'done'", "\u201cdone\u201d", "\u00abfait\u00bb"])
def test_a_number_code_or_a_quoted_text_says_what_is_meant(measure: str) -> None:
    assert find_vague_word(f"THE SYSTEM SHALL be fast: {measure}") == ""


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
    assert find_vague_word(sentence) == ""


def test_an_apostrophe_is_no_quotation() -> None:
    assert find_vague_word("THE SYSTEM SHALL show the user's list fast and the guest's list too") == "fast"


def test_a_phrase_may_go_on_in_the_next_line() -> None:
    assert find_vague_word("THE SYSTEM SHALL work as\n  expected") == "as expected"


def test_the_vague_word_of_a_long_sentence_is_found_in_time_that_grows_with_its_length() -> None:
    started = time.thread_time()
    for text in ("fas ", "'a ", '"', "as "):
        find_vague_word(text * (60_000 // len(text)))
    assert time.thread_time() - started < 1


def test_the_reference_lists_every_find_vague_word() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    quoted = " ".join(line.removeprefix("> ") for line in text.splitlines() if line.startswith("> "))
    listed = set()
    for part in re.split(r"[,;] ", quoted):
        stem, _, ending = part.partition("(")
        listed |= {stem, *([stem + ending.rstrip(")")] if ending else [])}
    assert listed == {*VAGUE_WORDS, *VAGUE_PHRASES}
