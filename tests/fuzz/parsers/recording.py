"""A recording, YAML or JSON: turns or ``RecordingError``; what is read can be printed, read back and put on record."""

from random import Random
from typing import TypeAlias

from msgspec import structs

from cdd_agent.errors import RecordingError
from cdd_agent.events import TurnEnded, encode
from cdd_agent.model import recording
from cdd_agent.model.conversation import JSON, Text
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import as_json, bent, nested, pick, text, value
from tests.fuzz.trial import Broken, Target, stored_texts

Given: TypeAlias = tuple[str, bool]
"""The text, and whether it is to be read as JSON."""

_WHEN = (
    "^Step 1",
    "a|b",
    "(",
    "a{99999999999999999999}",
    "(?P<a",
    "[[:x:]]",
    "((((a))))",
    "\\",
    "(?<=a+)b",
    "(?i)a",
    "a(?i)",
)
_TOKENS = (
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    ": ",
    "- ",
    "*a",
    "&a ",
    "!!int ''",
    "!!set ",
    "<<: *a",
    "\\ud800",
    "\n",
    "0x_",
    "2026-99-99",
    "\0",
)

_TURN = TurnEnded(agent="a", text="", stop_reason="", input_tokens=0, output_tokens=0, cache_read_tokens=0)


def _block(random: Random) -> JSON:
    if random.random() < 0.4:
        return text(random)
    inputs: JSON = {"file_path": text(random, most=1), "content": value(random)}
    call: dict[str, JSON] = {"type": "tool_use", "name": pick(random, ("Read", "Bash", "")), "input": inputs}
    return call | ({"id": text(random, most=1)} if random.random() < 0.2 else {})


def make(random: Random) -> Given:
    """A recording, most often bent."""
    turns: list[JSON] = []
    for _ in range(random.randint(0, 3)):
        turn: dict[str, JSON] = {"content": [_block(random) for _ in range(random.randint(0, 2))]}
        if random.random() < 0.4:
            turn["when"] = pick(random, _WHEN)
        if random.random() < 0.2:
            turn["usage"] = {"input_tokens": value(random)}
        if random.random() < 0.2:
            turn["stop_reason"] = pick(random, ("end_turn", "tool_use", "max_tokens", "refusal"))
        turns.append(turn)
    is_json = random.random() < 0.5
    written = as_json(random, turns) if is_json or random.random() < 0.3 else _yaml(random, turns)
    if random.random() < 0.02:
        written = written.replace(
            "a", nested(random, pick(random, ("[", "{a: ", '{"a":')), closing=pick(random, "]}")), 1
        )
    return (bent(random, written, tokens=_TOKENS) if random.random() < 0.6 else written), is_json


def _yaml(random: Random, turns: list[JSON]) -> str:
    """The turns as a person writes them."""
    lines = []
    for turn in turns:
        assert isinstance(turn, dict)
        content = turn["content"]
        assert isinstance(content, list)
        lines.append("- content:")
        for block in content:
            if isinstance(block, str):
                lines.append(f"  - {block}" if random.random() < 0.5 else f"  - |\n    {block}")
            else:
                lines.append(f"  - {{type: tool_use, name: Read, input: {{a: {text(random, most=2)}}}}}")
        lines += [f"  when: {turn['when']}"] if "when" in turn else []
    return "\n".join(lines)


def read(given: Given) -> None:
    """Read it; print it in both forms and read those; put every turn into the journal's form."""
    written, is_json = given
    turns = recording.parse_recording(written, source="run.yaml", is_json=is_json)
    for form in (False, True):
        if recording.parse_recording(recording.print_turns(turns, is_json=form), source="again", is_json=form) != turns:
            raise Broken(f"printed as {'JSON' if form else 'YAML'} the turns read back differently")
    for turn in turns:
        said = "".join(block.text for block in turn.content if isinstance(block, Text))
        encode(structs.replace(_TURN, text=said, stop_reason=turn.stop_reason))


TARGET = Target(
    make=make,
    read=read,
    allowed=(RecordingError,),
    corpus=tuple((document, is_json) for document in stored_texts("recording") for is_json in (False, True)),
)


def run(count: int, seed: int) -> Figures:
    """Try ``count`` recordings."""
    return TARGET.run(count, seed)
