"""``execution-state.json``: a state or ``DocumentError``; what is read is written and read back the same."""

from random import Random

from cdd_agent.errors import DocumentError
from cdd_agent.model.conversation import JSON
from cdd_agent.work.state_file import decode_state, encode_state
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import as_bytes, as_json, bent, nested, pick, text, value
from tests.fuzz.trial import Broken, Target, stored

_TOKENS = (
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "1e999",
    "NaN",
    "-1",
    "9" * 5000,
    '"schema":1,',
    '"status":"failed",',
    "\\ud800",
    "\0",
)


def _maybe(random: Random, usual: JSON) -> JSON:
    """What is usually there, and now and then anything."""
    return usual if random.random() < 0.97 else value(random)


def _step(random: Random, number: int) -> JSON:
    attempt: JSON = {"phase": "red", "number": 1, "outcome": {"type": "open"}, "reasons": [text(random, most=1)]}
    return {
        "step_number": _maybe(random, number),
        "title": _maybe(random, text(random, most=2)),
        "text_sha256": _maybe(random, "abc"),
        "status": _maybe(random, pick(random, ("pending", "in_progress", "completed", "failed", "skipped"))),
        "phase": _maybe(random, pick(random, ("red", "green", "refactor"))),
        "attempts": _maybe(random, [attempt] * random.randint(0, 2)),
        "commits": _maybe(random, {"red": "abc"}),
    }


def make(random: Random) -> bytes:
    """A state, most often bent."""
    numbers = range(1, random.randint(1, 4))
    document: JSON = {
        "schema": _maybe(random, 1),
        "ticket_slug": _maybe(random, "csv"),
        "started_at": _maybe(random, "2026-01-31T12:00:00Z"),
        "usage": _maybe(random, {"input_tokens": 5, "cost_usd": 0.5}),
        "step_executions": _maybe(random, {str(number): _step(random, number) for number in numbers}),
    }
    written = as_json(random, document)
    if random.random() < 0.02:
        written = written[:-1] + ', "x": ' + nested(random, pick(random, ("[", '{"a":')), closing="]")
    return as_bytes(random, bent(random, written, tokens=_TOKENS) if random.random() < 0.5 else written)


def read(data: bytes) -> None:
    """Decode it, and once more after encoding it."""
    state = decode_state(data, path="execution-state.json")
    if decode_state(encode_state(state), path="execution-state.json") != state:
        raise Broken("the state is another one after it was written")


TARGET = Target(make=make, read=read, allowed=(DocumentError,), corpus=stored("state"))


def run(count: int, seed: int) -> Figures:
    """Try ``count`` files."""
    return TARGET.run(count, seed)
