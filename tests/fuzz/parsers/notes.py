"""Handoff notes: whatever is in a line, the note gives back the same lines; a note bent by others is read as lines.

A line of it is a handoff or it is none, and nothing is raised; what was read is written as a line that reads the same.
"""

import json
from random import Random
from typing import TypeAlias

from cdd_agent.git.notes import format_note, split_note
from cdd_agent.model.conversation import JSON
from cdd_agent.work.handoff import decode_line, encode
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
    note = format_note(lines)
    return lines, bent(random, note) if random.random() < 0.6 else note


def _note(random: Random) -> JSON:
    version = random.choice((1, 2))
    reasons: list[JSON] = [text(random) if version == 1 else _reason(random) for _ in range(random.randint(0, 2))]
    phase = random.choice(("RED", "GREEN", "REFACTOR"))
    return {
        **({"v": version} if random.random() < 0.9 else {"v": random.choice((0, 1, 2, 3, "1", None))}),
        "seq": random.randint(0, 9),
        "id": text(random, most=1) if random.random() < 0.2 else f"{random.getrandbits(64):016x}",
        "ticket": text(random),
        "phase": phase,
        "nextPhase": "COMPLETE",
        "cycleNumber": random.randint(0, 9),
        "currentTest": {"description": text(random), "testFile": text(random), "implFile": text(random)},
        "completedTests": [text(random)],
        "pendingTests": [],
        "testResult": random.choice(("PASS", "FAIL", None)),
        "error": random.choice((None, text(random) if version == 1 else _reason(random))),
        "errorDetails": None,
        "retryCount": random.randint(0, 3),
        "commit": f"{random.getrandbits(160):040x}",
        "checkpoint": random.choice((None, "refs/cdd/checkpoints/csv/1")),
        "gate": {"phase": phase.lower(), "open": True, "reasons": reasons, "report_sha256": None},
    }


def _reason(random: Random) -> JSON:
    values: tuple[JSON, ...] = (text(random), 1, 1.5, ["a"], {"case": "a", "parts": {}})
    return {"code": text(random), "nodeid": None, "case": text(random), "parts": {text(random): random.choice(values)}}


def read(given: Given) -> None:
    """Read the lines back, and whatever became of the note."""
    lines, note = given
    if split_note(format_note(lines)) != lines:
        raise Broken("the lines are not those that were written")
    if split_note(format_note(split_note(note))) != split_note(note):
        raise Broken("the lines of a note are others once it was written again")
    for line in split_note(note):
        handoff = decode_line(line)
        if handoff is not None and decode_line(encode(handoff)) != handoff:
            raise Broken("a handoff is another once it was written again")


TARGET: Target[Given] = Target(
    make=make, read=read, allowed=(), corpus=tuple(((), note) for note in stored_texts("notes"))
)


def run(count: int, seed: int) -> Figures:
    """Try ``count`` notes."""
    return TARGET.run(count, seed)
