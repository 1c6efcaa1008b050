"""The shares of the requests that a server can read from its cache, counted in the requests of a scripted step.

The cache of a server holds beginnings: a request costs what lies behind its common beginning with an earlier one.
"""

import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cdd_agent.model.conversation import Request, ToolCall, Turn, encode_request
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.testrun.interpreter import Interpreter
from tests.bench.bars import Bars
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, FILES, TEST, TEST_FILE, Project, content_as_it_is, item

BAR_LOOP, BAR_NEW = 90.0, 60.0
"""Percent of the bytes."""
_TURNS = 10
PYTHON = Interpreter(path=Path(sys.executable), origin="bench", python="", pytest="")


def encode(request: Request) -> str:
    """Return what the server reads of a request, in its order: tools, system text, messages."""
    body = encode_request(request, model="model")
    text = json.dumps([body.get("tools"), body.get("system"), body["messages"]], ensure_ascii=False)
    return text.replace(', "cache_control": {"type": "ephemeral"}', "")  # marks move, and are no input


def measure_cached(requests: Sequence[str]) -> float:
    """Return the percentage of all requests that is their common beginning with the request before."""
    shared = sum(
        next((at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), len(before))
        for before, after in itertools.pairwise(requests)
    )
    return 100 * shared / sum(map(len, requests[1:]))


def _turns(*last: ToolCall) -> Iterable[Turn]:
    reads = (call("Read", f"r{number}", file_path=f"prices{number}.py") for number in range(_TURNS - 1))
    yield from (says(f"Reading {each.id}.", each) for each in reads)
    yield says(*last, call("CompleteImplementation", "end", implementation_files=[]))


def record_step(folder: Path) -> list[list[str]]:
    """Carry out a step in ten turns per phase, and return the requests of each phase."""
    modules = {
        f"prices{number}.py": "".join(f"def price_{each}(x):\n    return x * {each}\n\n\n" for each in range(12))
        for number in range(_TURNS)
    }
    project = Project.make(
        folder / "shop", interpreter=PYTHON, bytecode=folder / "bytecode", files={**FILES, **modules}
    )
    red, green = call("Write", file_path=TEST_FILE, content=TEST), call("Write", file_path="discount.py", content=CODE)
    model = ScriptedModel([*_turns(red), *_turns(green), content_as_it_is()])
    context = project.context(model)
    policy = replace(context.policy, budget=replace(context.policy.budget, max_turns=_TURNS))
    context = replace(context, policy=policy)
    ending = Cycle(item(), project.start(), context=context, save=lambda _: None).run()
    if ending.how != "done":
        raise SystemExit(f"the step was not completed: {ending.why}")
    encoded = list(map(encode, model.requests))
    return [encoded[:_TURNS], encoded[_TURNS : 2 * _TURNS], encoded[2 * _TURNS :]]


def show(folder: Path) -> bool:
    """Print the shares and the bars; return whether all are kept."""
    print("\nrequests: what a server can read from its cache, in percent of the bytes")
    red, green, refactor = record_step(folder)
    bars = Bars()
    bars.at_least("a loop of ten turns", measure_cached(green), limit=BAR_LOOP)
    for name, before, after in (("GREEN", red, green), ("REFACTOR", green, refactor)):
        bars.at_least(f"a new conversation of the ticket, {name}", measure_cached([before[0], after[0]]), limit=BAR_NEW)
    return bars.are_kept
