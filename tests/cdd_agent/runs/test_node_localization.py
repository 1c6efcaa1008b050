"""The request of a second attempt says where the failures lead; its agent may search, view code and dependencies."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.agent.sessions import load_conversation
from cdd_agent.events import ToolReturned
from cdd_agent.generation.localize import MOST_QUERIES
from cdd_agent.model.conversation import Text, ToolResult
from cdd_agent.tdd.phase_agent import name_conversation
from tests.cdd_agent.runs.test_graph_nodes import (
    AGAIN,
    BAD,
    DOUBLE,
    FIRST,
    GOOD,
    SECOND,
    TWICE,
    Kit,
    list_attempts,
    write_body,
    write_tests,
)

pytestmark = pytest.mark.usefixtures("identity")


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(folder=tmp_path / "kit", nodes=(DOUBLE, replace(TWICE, docstring="Return four times x.")))


def call(name: str, **fields: object) -> dict[str, object]:
    return {"type": "tool_use", "name": name, "input": fields}


def read_conversation(kit: Kit, number: int) -> tuple[list[str], list[str]]:
    """Return the texts and the results of tools in the last conversation of GREEN."""
    saved = load_conversation(kit.made.context.reports / name_conversation(number, "green"))
    assert saved is not None
    blocks = [block for message in saved[1] for block in message.content]
    texts = [block.text for block in blocks if isinstance(block, Text)]
    return texts, [block.content for block in blocks if isinstance(block, ToolResult)]


def test_the_second_attempt_finds_the_fault_in_a_dependency(kit: Kit) -> None:
    kit.say("first.double", "red", write_tests("first", "double"))
    kit.say("first.double", "green", GOOD)
    tests = write_tests("second", "twice")["tests/test_second.py"]
    tests = tests.replace("(1) == 2", "(1) == 4").replace("(2) == 4", "(2) == 8")
    kit.say("second.twice", "red", {"tests/test_second.py": tests})
    wrong = write_body("twice", "    return double(x)\n")
    kit.say("second.twice", "green", {SECOND: wrong}, {SECOND: write_body("twice", "    return double(double(x))\n")})
    queries = [
        call("SearchGraph", query="double", everywhere=True),
        call("ViewCode", place="double"),
        call("ViewDependencies", node="second.twice"),
        call("SearchGraph", query="double", everywhere=True),
    ]
    kit.turns[-1] = {**kit.turns[-1], "content": [*queries, *kit.turns[-1]["content"]]}  # type: ignore[misc]
    _, second = kit.run(1, 2)
    assert list_attempts(second) == AGAIN
    texts, results = read_conversation(kit, 2)
    where = texts[-1].partition("Where to look.")[2]
    assert f"- `twice` ({SECOND}:5), because the code that fails in test_twice_one names it: def twice(x" in where
    assert "up to 20 queries" in where
    search, code, needs, again = results[:4]
    assert "1. first.double (double) [passed] has this name: Do **double**." in search
    assert "    return 2 * x" in code
    assert "`-- first.double (double) [passed]" in needs
    assert "From the log: this was query 1 of this attempt." in again
    log = list(kit.made.context.reports.glob("*-green-localization.json"))
    assert len(log) == 1


def test_the_first_attempt_has_no_further_tools_and_a_limit_ends_the_search(kit: Kit) -> None:
    kit.say("first.double", "red", write_tests("first", "double"))
    kit.say("first.double", "green", BAD, GOOD)
    first, second = kit.turns[-2:]
    first["content"] = [call("SearchGraph", query="double"), *first["content"]]  # type: ignore[misc]
    searches = [call("SearchGraph", query=f"double {number}") for number in range(MOST_QUERIES + 1)]
    kit.turns[-1:] = [
        *({"when": second["when"], "content": searches[at : at + 7]} for at in range(0, len(searches), 7)),
        second,
    ]
    (step,) = kit.run(1)
    assert list_attempts(step) == AGAIN
    answers = [event for event in kit.seen if isinstance(event, ToolReturned) and event.name == "SearchGraph"]
    assert [each.ok for each in answers] == [False, *[True] * MOST_QUERIES, False]
    (path,) = kit.made.context.reports.glob("*-debug-2.md")
    assert (
        f"The agent of first.double has used up its queries about the fault. Its debug context: {path}" in kit.notices
    )
    text = path.read_text()
    assert "assert double(1) == 2" in text
    assert FIRST in text
