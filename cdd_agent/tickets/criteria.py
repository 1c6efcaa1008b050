"""Rules for acceptance criteria: their form, and whether a test can check them. Pure.

The form is EARS (the Easy Approach to Requirements Syntax) or Given/When/Then. Only sentences that an agent writes must
have it; a user may write any sentence. A criterion can be tested unless it has a word that measures nothing and no
number, code in backticks or quoted text that says what is meant.
"""

import re

EXAMPLES = {
    "the": "THE SYSTEM SHALL write amounts with two digits",
    "when": "WHEN the list is empty THE SYSTEM SHALL write the header only",
    "while": "WHILE an export runs THE SYSTEM SHALL refuse a second one",
    "if": "IF the file cannot be written THEN THE SYSTEM SHALL name it and return 1",
    "where": "WHERE a separator is given THE SYSTEM SHALL use it",
    "given": "GIVEN an empty list WHEN it is exported THEN the file has one line",
}
"""First word of a sentence, which decides about its form -> an example, shown if the sentence breaks the rule."""

_SHALL = re.compile(r"\bshall\b(?:\s+not\b)?", re.IGNORECASE)
_THE = re.compile(r"\bthe\b", re.IGNORECASE)
_THEN = re.compile(r"\bthen\b", re.IGNORECASE)
_WHEN = re.compile(r"\bwhen\b", re.IGNORECASE)
_LETTER = re.compile(r"\w")

_WORDS = """\
adequate adequately appropriate appropriately attractive beautiful best better convenient conveniently correctly
decent easily easy efficient efficiently elegant fast faster flexible fluent friendly good gracefully great ideal
ideally improved instantly intuitive intuitively modern neat nice nicely optimal optimally optimized performant
pleasant pretty proper properly quick quicker quickly reasonable reasonably reliable reliably responsive robust
robustly scalable seamless seamlessly sensible sensibly simple simply slick slow smooth smoothly sufficient
sufficiently suitable suitably tba tbd tidy to-do usable useful well works
"""
VAGUE_WORDS = tuple(_WORDS.split())
"""Words that no test can measure."""

VAGUE_PHRASES = (
    *("and so on", "as appropriate", "as expected", "as needed", "as required", "as usual", "easy to use", "etc"),
    *("if appropriate", "if necessary", "if possible", "in a timely manner", "like before", "or similar"),
    *("state of the art", "to be decided", "to be defined", "to be determined", "user-friendly", "user friendly"),
    "where possible",
)
"""Phrases that no test can measure."""

_ANY_VAGUE = "|".join(map(re.escape, [*VAGUE_PHRASES, *VAGUE_WORDS]))
_VAGUE = re.compile(rf"(?<![\w-])(?:{_ANY_VAGUE})(?![\w-])", re.IGNORECASE)
_MEASURE = re.compile(r"\d|`[^`]+`|\"[^\"]+\"|(?<!\w)'[^']+'(?!\w)|\u201c[^\u201d]+\u201d|\u00ab[^\u00bb]+\u00bb")
"""A single quote counts only outside of words, so that an apostrophe is not a quotation mark."""


def find_vague_word(criterion: str) -> str:
    """Return the word or phrase that makes ``criterion`` vague, or an empty string if the criterion can be tested.

    >>> find_vague_word("THE SYSTEM SHALL be Fast"), find_vague_word("THE SYSTEM SHALL be fast: 200 ms")
    ('Fast', '')
    """
    sentence = " ".join(criterion.split())
    found = _VAGUE.search(sentence)
    return "" if found is None or _MEASURE.search(sentence) else found[0]


def explain_breach(sentence: str) -> str:
    """Return the sentence, the rule that it breaks and an example, or an empty string if it breaks none."""
    first, rest = re.split("(?![A-Za-z])", sentence.strip(), maxsplit=1)
    word = first.lower()
    breach = _check_form(word, rest) if word in EXAMPLES else f"it begins with none of {', '.join(EXAMPLES).upper()}"
    return f'"{sentence}": {breach}. For example: {EXAMPLES.get(word, EXAMPLES["when"])}' if breach else ""


def _check_form(word: str, rest: str) -> str:
    if word == "given":
        return _check_scenario(rest)
    shall = _SHALL.search(rest)
    if shall is None:
        return "it does not say what THE SYSTEM SHALL do"
    if not _LETTER.search(rest, shall.end()):
        return "nothing follows SHALL"
    condition = rest[: shall.start()]
    if word == "the":
        return "" if _LETTER.search(condition) else "there is nothing between THE and SHALL"
    actors = list(_THE.finditer(condition))
    if not actors or not _LETTER.search(condition, actors[-1].end()):
        return "THE SYSTEM must come before SHALL"
    if not _LETTER.search(condition[: actors[-1].start()]):
        return "a condition must come before THE SYSTEM SHALL"
    if word == "if":
        then = _THEN.search(condition)
        if then is None or not _LETTER.search(condition[: then.start()]):
            return "IF needs a condition and THEN before THE SYSTEM SHALL"
    return ""


def _check_scenario(rest: str) -> str:
    when = _WHEN.search(rest)
    then = _THEN.search(rest, when.end() if when else 0)
    if when is None or then is None:
        return "GIVEN needs WHEN and THEN"
    parts = (rest[: when.start()], rest[when.end() : then.start()], rest[then.end() :])
    return "" if all(map(_LETTER.search, parts)) else "something must follow each of GIVEN, WHEN and THEN"
