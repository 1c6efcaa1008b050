"""The form of an acceptance criterion: EARS, the Easy Approach to Requirements Syntax, or Given/When/Then. Pure.

Only what an agent writes is held to it; a sentence that a person put into the file stays as it is.
"""

import re
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["ubiquitous", "event", "state", "unwanted", "optional", "scenario"]
"""Which rule a sentence follows; of a combination, that of its first word."""

EXAMPLES: dict[Form, str] = {
    "ubiquitous": "THE SYSTEM SHALL write amounts with two digits",
    "event": "WHEN the list is empty THE SYSTEM SHALL write the header only",
    "state": "WHILE an export runs THE SYSTEM SHALL refuse a second one",
    "unwanted": "IF the file cannot be written THEN THE SYSTEM SHALL name it and return 1",
    "optional": "WHERE a separator is given THE SYSTEM SHALL use it",
    "scenario": "GIVEN an empty list WHEN it is exported THEN the file has one line",
}
"""Form -> a sentence that has it, as it is shown to whoever wrote another."""

_FORM_OF: dict[str, Form] = {
    "the": "ubiquitous",
    "when": "event",
    "while": "state",
    "if": "unwanted",
    "where": "optional",
    "given": "scenario",
}
_WORD = re.compile(r"[A-Za-z]+")
_SHALL = re.compile(r"\bshall\b(?:\s+not\b)?", re.IGNORECASE)
_THE = re.compile(r"\bthe\b", re.IGNORECASE)
_THEN = re.compile(r"\bthen\b", re.IGNORECASE)
_WHEN = re.compile(r"\bwhen\b", re.IGNORECASE)
_LETTER = re.compile(r"\w")


def form_of(sentence: str) -> Form | None:
    """The form that ``sentence`` has, whatever its case; None if it has none.

    >>> form_of("While it runs, when the user quits, the program shall ask first")
    'state'
    """
    form, rest = _begun(sentence)
    return None if form is None or _breach(form, rest) else form


def breach(sentence: str) -> str:
    """What keeps ``sentence`` from being a criterion: the sentence, the rule, an example; empty if nothing does."""
    form, rest = _begun(sentence)
    told = _breach(form, rest) if form else "it begins with none of THE, WHEN, WHILE, IF, WHERE, GIVEN"
    return f'"{sentence}": {told}. For example: {EXAMPLES[form or "event"]}' if told else ""


def _begun(sentence: str) -> tuple[Form | None, str]:
    """The form that the first word of ``sentence`` announces, and what follows that word."""
    sentence = sentence.strip()
    first = _WORD.match(sentence)
    return (_FORM_OF.get(first[0].lower()), sentence[first.end() :]) if first else (None, "")


def _breach(form: Form, rest: str) -> str:
    """The rule of ``form`` that a sentence with this ``rest`` does not keep; empty if it keeps all."""
    if form == "scenario":
        return _scenario_breach(rest)
    shall = _SHALL.search(rest)
    if shall is None:
        return "it does not say what THE SYSTEM SHALL do"
    if not _LETTER.search(rest, shall.end()):
        return "nothing follows SHALL"
    condition = rest[: shall.start()]
    if form == "ubiquitous":
        return "" if _LETTER.search(condition) else "nothing stands between THE and SHALL"
    actors = list(_THE.finditer(condition))
    if not actors or not _LETTER.search(condition, actors[-1].end()):
        return "THE SYSTEM has to stand before SHALL"
    if not _LETTER.search(condition[: actors[-1].start()]):
        return "no condition stands before THE SYSTEM SHALL"
    if form == "unwanted":
        then = _THEN.search(condition)
        if then is None or not _LETTER.search(condition[: then.start()]):
            return "IF needs a condition and THEN before THE SYSTEM SHALL"
    return ""


def _scenario_breach(rest: str) -> str:
    """The same of what follows GIVEN."""
    when = _WHEN.search(rest)
    then = _THEN.search(rest, when.end() if when else 0)
    if when is None or then is None:
        return "GIVEN needs WHEN and THEN"
    parts = (rest[: when.start()], rest[when.end() : then.start()], rest[then.end() :])
    return "" if all(map(_LETTER.search, parts)) else "something has to follow each of GIVEN, WHEN and THEN"
