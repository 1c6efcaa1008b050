"""Handoff notes: whatever is in a line, the note gives back the same lines; a note bent by others is read as lines."""

import json
from random import Random
from typing import TypeAlias

from cdd_agent.git.notes.store import lines_of, text_of
from cdd_agent.model.conversation import JSON
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import bent, text
from tests.fuzz.trial import Broken, Target, stored_texts

Given: TypeAlias = tuple[tuple[str, ...], str]
"""Lines as they are written, and the note as it may have become."""


def make(random: Random) -> Given:
    """A few lines, and a note of them, most often bent."""
    lines = tuple(
        json.dumps(_note(random), separators=(",", ":"), ensure_ascii=False) for _ in range(random.randint(0, 4))
    )
    note = text_of(lines)
    return lines, bent(random, note) if random.random() < 0.6 else note


def _note(random: Random) -> JSON:
    reasons: list[JSON] = [text(random) for _ in range(random.randint(0, 2))]
    return {"v": 1, "id": text(random, most=1), "currentTest": {"description": text(random)}, "reasons": reasons}


def read(given: Given) -> None:
    """Read the lines back, and whatever became of the note."""
    lines, note = given
    if lines_of(text_of(lines)) != lines:
        raise Broken("the lines are not those that were written")
    if lines_of(text_of(lines_of(note))) != lines_of(note):
        raise Broken("the lines of a note are others once it was written again")


TARGET: Target[Given] = Target(
    make=make, read=read, allowed=(), corpus=tuple(((), note) for note in stored_texts("notes"))
)


def run(count: int, seed: int) -> Figures:
    """Try ``count`` notes."""
    return TARGET.run(count, seed)
