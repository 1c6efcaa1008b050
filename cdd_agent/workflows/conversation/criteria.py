"""Acceptance criteria as the model writes them: held to EARS, and given the ids they have or are to have. Pure."""

import itertools
import re
from collections.abc import Sequence

from cdd_agent.tickets.criteria import explain_breach
from cdd_agent.tickets.spec import Criterion


def breaches(texts: Sequence[str], *, known: Sequence[Criterion]) -> tuple[str, ...]:
    """What is wrong with the form of each new sentence; those that the file has already stay as they are."""
    there = {criterion.text for criterion in known}
    ids = {criterion.id for criterion in known}
    sentences = (_named(text.strip(), ids)[1] for text in texts)
    return tuple(
        told for sentence in sentences if sentence and sentence not in there and (told := explain_breach(sentence))
    )


def numbered(texts: Sequence[str], *, known: Sequence[Criterion]) -> tuple[Criterion, ...]:
    """The texts as criteria, each once: one that is there already keeps its id, and so does one that names its id.

    Steps of a plan refer to criteria by id, so a sentence that is put better stays the same criterion. A new one
    gets the next number that is free.
    """
    id_of = {criterion.text: criterion.id for criterion in known}
    ids = {criterion.id for criterion in known}
    given: dict[str, str | None] = {}
    for text in texts:
        named, sentence = _named(text.strip(), ids)
        if sentence:
            given.setdefault(sentence, id_of.get(sentence, named))
    taken = ids | {name for name in given.values() if name}
    free = (f"AC-{number}" for number in itertools.count(1) if f"AC-{number}" not in taken)
    found: dict[str, Criterion] = {}
    for sentence, name in given.items():
        criterion = Criterion(id=name if name and name not in found else next(free), text=sentence)
        found[criterion.id] = criterion
    return tuple(found.values())


def _named(text: str, ids: set[str]) -> tuple[str | None, str]:
    """The id that a sentence begins with, if there is such a criterion, and the sentence without it."""
    name, colon, sentence = text.partition(":")
    if colon and name.strip() in ids:
        return name.strip(), sentence.strip()
    return None, re.sub(r"^AC-\d+:\s*", "", text)
