"""Whether a criterion can be tested, by a rule that anybody can look up: a closed list of words that measure nothing.

A criterion with such a word is vague, unless a number, code in backticks or a quoted text in it says what is meant.
Pure.
"""

import re

_WORDS = """\
adequate adequately appropriate appropriately attractive beautiful best better convenient conveniently correctly
decent easily easy efficient efficiently elegant fast faster flexible fluent friendly good gracefully great ideal
ideally improved instantly intuitive intuitively modern neat nice nicely optimal optimally optimized performant
pleasant pretty proper properly quick quicker quickly reasonable reasonably reliable reliably responsive robust
robustly scalable seamless seamlessly sensible sensibly simple simply slick slow smooth smoothly sufficient
sufficiently suitable suitably tba tbd tidy to-do usable useful well works
"""

VAGUE = tuple(_WORDS.split())
"""Words that no test can measure."""

VAGUE_PHRASES = (
    "and so on",
    "as appropriate",
    "as expected",
    "as needed",
    "as required",
    "as usual",
    "easy to use",
    "etc",
    "if appropriate",
    "if necessary",
    "if possible",
    "in a timely manner",
    "like before",
    "or similar",
    "state of the art",
    "to be decided",
    "to be defined",
    "to be determined",
    "user-friendly",
    "user friendly",
    "where possible",
)
"""Phrases of the same kind."""

_VAGUE = re.compile(
    rf"(?<![\w-])(?:{'|'.join(map(re.escape, [*VAGUE_PHRASES, *VAGUE]))})(?![\w-])",
    re.IGNORECASE,
)
_MEASURE = re.compile(r"\d|`[^`]+`|\"[^\"]+\"|(?<!\w)'[^']+'(?!\w)|\u201c[^\u201d]+\u201d|\u00ab[^\u00bb]+\u00bb")


def vague_word(criterion: str) -> str:
    """The word or phrase that makes ``criterion`` vague, as it is written there; empty if it can be tested.

    >>> vague_word("THE SYSTEM SHALL be Fast"), vague_word("THE SYSTEM SHALL be fast: 200 ms")
    ('Fast', '')
    """
    sentence = " ".join(criterion.split())
    found = _VAGUE.search(sentence)
    return "" if found is None or _MEASURE.search(sentence) else found[0]
