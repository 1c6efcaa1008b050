"""The input of every tool of the model: a checked record or ``UsageError``; a tool itself never raises."""

import json
from random import Random
from typing import TypeAlias, get_type_hints

import msgspec

from cdd_agent.agent.tools import (
    BashInput,
    Completion,
    EditInput,
    GlobInput,
    GrepInput,
    ReadInput,
    RunTestsInput,
    ToolOutput,
    WriteInput,
    define_tool,
    read_input,
)
from cdd_agent.errors import UsageError
from cdd_agent.model.conversation import JSON
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import bent, pick, plain, text, value
from tests.fuzz.trial import Broken, Target, stored_texts

Given: TypeAlias = tuple[int, dict[str, JSON]]
"""Which tool, and its input."""

INPUTS: tuple[type, ...] = (
    *(ReadInput, WriteInput, EditInput, BashInput, GlobInput, GrepInput, RunTestsInput, Completion),
)
_NAMES = tuple(tuple(get_type_hints(inputs)) for inputs in INPUTS)
_KEYS = (
    *("file_path", "offset", "limit", "content", "old_string", "new_string", "replace_all", "command", "timeout_s"),
    *("pattern", "glob", "targets", "implementation_files", "summary", "path", "FilePath"),
)
_USUAL: dict[str, JSON] = {
    "offset": 1,
    "limit": 20,
    "replace_all": True,
    "timeout_s": 5,
    "targets": ["tests/test_a.py"],
    "implementation_files": ["a.py"],
}


def make(random: Random) -> Given:
    """Input that suits one of the tools, most often with something wrong in it."""
    number = random.randrange(len(INPUTS))
    given: dict[str, JSON] = {}
    for name in _NAMES[number]:
        if random.random() < 0.85:
            given[name] = value(random) if random.random() < 0.3 else _USUAL.get(name, text(random))
    if random.random() < 0.2:
        given[pick(random, _KEYS) if random.random() < 0.5 else bent(random, plain(random))] = value(random)
    if random.random() < 0.02:
        given[pick(random, _KEYS)] = _deep(random)
    return number, given


def _deep(random: Random) -> JSON:
    found: JSON = "a"
    for _ in range(random.choice([40, 70, 500, 5000])):
        found = [found] if random.random() < 0.5 else {"a": found}
    return found


_TOOLS = tuple(
    define_tool("Tool", inputs, run=lambda _: ToolOutput(text="ran"), subject=lambda _: "it") for inputs in INPUTS
)


def read(given: Given) -> None:
    """Call the tool with it, and read it."""
    number, fields = given
    inputs, tool = INPUTS[number], _TOOLS[number]
    answer, subject = tool.run(fields), tool.subject(fields)
    answer.text.encode()
    try:
        checked: object = read_input(fields, inputs)
    except UsageError as error:
        if not answer.is_error or subject or len(error.happened) > 2000:
            raise Broken(f"{inputs.__name__} is refused and run all the same, or at length") from error
    else:
        if answer.is_error:
            raise Broken(f"{inputs.__name__} is fit and not run")
        msgspec.json.encode(checked)


TARGET = Target(
    make=make,
    read=read,
    allowed=(),
    corpus=tuple((number, json.loads(found)) for found in stored_texts("tool_input") for number in range(len(INPUTS))),
)


def run(count: int, seed: int) -> Figures:
    """Try ``count`` inputs."""
    return TARGET.run(count, seed)
