"""Inputs of a megabyte, each one thing over and over: a reader takes a second at most, or refuses the size."""

import json
from collections.abc import Callable, Iterator
from random import Random
from time import thread_time

from cdd_agent.agent import blocks, editing
from cdd_agent.agent.tools import EditInput, read_input
from cdd_agent.config import settings
from cdd_agent.errors import RecordingError, UsageError
from cdd_agent.model import recording
from cdd_agent.tickets import plan, plan_markdown, spec, yaml
from cdd_agent.work.state_file import decode_state
from pytest_tdd_agent import codec
from pytest_tdd_agent.recording.spool import find_running_tests
from tests.fuzz.figures import Figures
from tests.fuzz.trial import deadline

SIZE = 1_000_000
LIMIT_S = 1.0
_GIVEN_UP_S = 30.0

_WORDS = (
    *(
        "a",
        " ",
        "a b ",
        "a, ",
        "(a) ",
        "((",
        "))",
        "[a](b) ",
        "[[",
        "](",
        "`a`` ",
        "`a ``b ```c ",
        "a and b ",
        "1-999, ",
    ),
    *(
        "1, ",
        "999999999, ",
        "step 1 ",
        "a/b.py ",
        "::",
        "<!-- --> ",
        "--><!-- ",
        "'a' ",
        '"a" ',
        "- a\n",
        "a: b\n",
        "- - ",
        "\n\n",
    ),
    *(
        "# a\n",
        "### Step 1: a\n",
        "- Files: a\n",
        "- Depends on: 1\n",
        "  a\n",
        "- [ ] a\n",
        "1.1",
        "step 1.",
        "#" * 7 + "\n",
    ),
    *(
        '{"a":',
        '{"a": 1},',
        '"a": 1, ',
        '"\\u0041',
        "[1],",
        "{},",
        "0",
        "1e",
        "\\\\",
        '\\"',
        "&a a\n",
        "*a ",
        "{a: ",
        "? a\n",
    ),
    *(
        "- content: [a]\n",
        "  - a\n",
        "a:\n",
        "```\n",
        "~~~\na\n~~~\n",
        "|\n",
        "''",
        '""',
        ">\n  a\n",
        "!!str a ",
        "%a\n",
        "---\n",
    ),
)

_PLAN = (
    "",
    "### Step 1: a\n",
    "### Step 1: a\n- Files: ",
    "### Step 1: a\n- Depends on: ",
    "### Step 1: a\n- Criteria: ",
)
_SPEC = ("", "title: ", "acceptance_criteria:\n  - ", "other: ", 'other: "')
_STATE = ("", '{"schema": 1, "x": ', '{"schema": 1, "ticket_slug": "')
_RECORDING = ("", "- content: [", "- content:\n  - ", '- content: ["', "- when: ")
_RECORDING_JSON = ("", "[", '[{"content": [', '[{"content": ["')
_REPORT = ("", '{"schema": 1, "tests": [', '{"schema": 1, "complete": "')
_STREAM = ("", '{"event": "begin", "nodeid": "a"}\n', '{"event": "')
_SETTINGS = ("", "model: ", 'model: "')
_BLOCKS = ("", "```a.py\n", "```python:a.py\n# ... ", "~~~ path=")


def _read_plan(document: str) -> None:
    found = plan_markdown.parse(document, path="plan.md")
    plan.find_problems(found, criteria=("AC-1",))


def _read_report(document: str) -> None:
    codec.from_json(json.loads(document))


def _read_blocks(document: str) -> None:
    for block in blocks.parse_files(f"{document}\n```"):
        editing.find_elisions(block.content, before="", name=block.path)


def _read_tool_input(document: str) -> None:
    for fields in ({"file_path": "a", "old_string": document, "new_string": ""}, {document: 1}):
        read_input(fields, EditInput)


_JUST_FITS = yaml.LIMIT_BYTES - 100
_SETTINGS_FIT = settings.MAX_SIZE_BYTES - 100

_READERS: tuple[tuple[str, Callable[[str], object], tuple[str, ...], int], ...] = (
    ("plan", _read_plan, _PLAN, SIZE),
    ("spec", lambda document: spec.parse(document, path="spec.yaml"), _SPEC, _JUST_FITS),
    ("state", lambda document: decode_state(document.encode(), path="state.json"), _STATE, SIZE),
    ("recording", lambda document: recording.parse_recording(document, source="run.yaml"), _RECORDING, SIZE),
    (
        "recording.json",
        lambda document: recording.parse_recording(document, source="run.json", is_json=True),
        _RECORDING_JSON,
        SIZE,
    ),
    ("report", _read_report, _REPORT, SIZE),
    ("stream", lambda document: find_running_tests(document.encode().splitlines(keepends=True)), _STREAM, SIZE),
    ("settings", lambda document: settings.parse_settings(document.encode()), _SETTINGS, _SETTINGS_FIT),
    ("tool input", _read_tool_input, ("",), SIZE),
    ("blocks", _read_blocks, _BLOCKS, SIZE),
)
_REFUSALS = (UsageError, RecordingError, ValueError, RecursionError)
"""The last two: of ``json.loads``, from which ``codec.load`` makes its own."""


def inputs() -> Iterator[tuple[Callable[[str], object], str, str]]:
    """Every reader with every repeated thing: the reader, the document, and what to call it."""
    for name, read, beginnings, size in _READERS:
        for beginning in beginnings:
            for word in _WORDS:
                yield (
                    read,
                    beginning + word * (size // len(word)),
                    f"{name}: {beginning!r}, then {word!r} over and over",
                )


def run(count: int, seed: int) -> Figures:
    """Try ``count`` of the inputs; those that an order by ``seed`` puts first."""
    order = list(range(sum(len(beginnings) for _, _, beginnings, _ in _READERS) * len(_WORDS)))
    Random(seed).shuffle(order)
    chosen = frozenset(order[:count])
    bad, example, slowest = 0, "", 0.0
    for number, (read, document, name) in enumerate(inputs()):
        if number not in chosen:
            continue
        taken, wrong = _tried(read, document)
        if wrong or taken > LIMIT_S:
            bad += 1
            example = example or f"{name}: {wrong or f'{taken:.2f} s of CPU'}"
        slowest = max(slowest, taken)
    return Figures(tried=len(chosen), bad=bad, example=example, slowest_s=slowest)


def _tried(read: Callable[[str], object], document: str) -> tuple[float, str]:
    """The CPU seconds it took, and which exception came that should not."""
    started, wrong = thread_time(), ""
    try:
        with deadline(_GIVEN_UP_S):
            read(document)
    except _REFUSALS:
        pass
    except Exception as error:  # noqa: BLE001 - any other exception is what is looked for
        wrong = f"{type(error).__name__}: {error!s:.100}"
    return thread_time() - started, wrong
