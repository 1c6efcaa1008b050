"""``cdd graph draft`` and ``cdd graph from``, with a recording."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.tickets.graph_file import load_graph
from cdd_agent.tickets.ticket import create

WORDS = "a library that adds numbers"
NODE = {
    **{"id": "add", "name": "add", "file_path": "src/sums/basic.py", "docstring": "Return the sum of two numbers."},
    **{"signature": "def add(first: int, second: int) -> int: ...", "subgraph_id": "basics"},
}
SPEC = """\
title: Sums
description: Add numbers.
acceptance_criteria:
- WHEN two numbers are given THE SYSTEM SHALL return their sum
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(*drafts: dict[str, object], agent: str = "graph") -> list[str]:
    """Return the options that play the drafts back."""
    turns = [
        {"when": f"^Work: architect {agent}$", "content": [{"type": "tool_use", "name": "WriteGraph", "input": draft}]}
        for draft in drafts
    ]
    Path("recording.json").write_text(json.dumps(turns), encoding="utf-8")
    return ["--replay", "recording.json"]


def submit(*nodes: Mapping[str, object]) -> dict[str, object]:
    return {"nodes": list(nodes), "is_complete": True, "name": "sums"}


def test_words_become_a_graph_that_is_shown_and_saved(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {**NODE, "dependencies": ["subtract"]}
    assert run([*record(submit(bad), submit(NODE)), "graph", "draft", *WORDS.split()]) == 0
    printed = capsys.readouterr().out
    assert "Draft 1 refused" in printed
    assert "it needs 'subtract', which is not a node" in " ".join(printed.split())
    assert "graph.json: 1 node in 1 file, 1 subgraph, package sums" in printed
    assert printed.endswith("The graph is saved. Next: cdd generate graph.json --out DIR\n")
    graph, notices = load_graph(here / "graph.json")
    assert notices == ()
    assert [node.id for node in graph.nodes] == ["add"]
    assert graph.metadata["request"] == WORDS
    assert graph.metadata["name"] == "sums"
    assert {"model", "time"} <= graph.metadata.keys()


def test_a_file_is_named_in_the_graph_beside_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "docs").mkdir()
    (here / "docs" / "nl_spec.md").write_text("Add numbers.", encoding="utf-8")
    assert run([*record(submit(NODE)), "graph", "draft", "docs/nl_spec.md"]) == 0
    assert load_graph(here / "docs" / "graph.json")[0].metadata["nl_spec_path"] == "nl_spec.md"
    capsys.readouterr()
    assert run([*record(submit(NODE)), "--json", "graph", "draft", "docs/nl_spec.md", "--out", "sums.json"]) == 0
    assert load_graph(here / "sums.json")[0].metadata["nl_spec_path"] == "docs/nl_spec.md"
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"event": "GraphDrafted", "number": 1, "nodes": 1, "problems": []}.items() <= {
        key: value for event in events if event["event"] == "GraphDrafted" for key, value in event.items()
    }.items()


def test_the_graph_of_a_ticket_is_in_its_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ticket = create(here, "sums")
    (here / "sums").mkdir()
    assert run([*record(), "graph", "draft", "sums"]) == 2
    assert "The spec of sums is not complete" in capsys.readouterr().err
    ticket.spec_path.write_text(SPEC, encoding="utf-8")
    assert run([*record(submit(NODE), agent="sums"), "graph", "draft", "sums"]) == 0
    assert load_graph(ticket.folder / "graph.json")[0].metadata["nl_spec_path"] == "spec.yaml"


def test_an_existing_file_is_replaced_only_after_a_yes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "graph.json").write_text("mine", encoding="utf-8")
    assert run([*record(submit(NODE)), "graph", "draft", WORDS]) == 2
    assert "the same command with --yes" in capsys.readouterr().err
    assert (here / "graph.json").read_text() == "mine"
    assert run([*record(submit(NODE)), "graph", "draft", WORDS, "--yes"]) == 0
    assert load_graph(here / "graph.json")[0].nodes[0].id == "add"


def test_a_place_that_cannot_be_written_is_refused_before_the_first_request(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "folder").mkdir()
    for name in ("no/graph.json", "folder"):
        assert run([*record(), "graph", "draft", WORDS, "--out", name]) == 2
        assert "--out" in capsys.readouterr().err


def test_a_refused_draft_stays_in_a_file_of_its_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = submit({**NODE, "file_path": "conftest.py"})
    assert run([*record(bad, bad, bad), "graph", "draft", WORDS]) == 1
    error = capsys.readouterr().err
    assert "no node may write 'conftest.py'" in error
    assert "cdd graph check graph.refused.json" in error
    assert not (here / "graph.json").exists()
    assert run(["graph", "check", "graph.refused.json"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [("sumz", "There is no ticket 'sumz'"), ("no.md", "no.md does not exist"), ("/dev/null", "/dev/null is not valid")],
)
def test_one_word_that_names_nothing_is_an_error(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*record(), "graph", "draft", words]) == 2
    assert said in capsys.readouterr().err


PLAN = """\
# Implementation Plan: Sums

## Steps

### Step 1: Add
- Depends on: none
- Files: `src/sums/basic.py`
- Tests: `tests/test_basic.py::test_add`
- Criteria: AC-1
- Kind: feature

Write `add(first: int, second: int) -> int`, which returns the sum.
"""


def test_a_plan_that_writes_its_functions_needs_no_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "plan.md").write_text(PLAN, encoding="utf-8")
    assert run(["graph", "from", "plan.md"]) == 0
    printed = capsys.readouterr().out
    assert "1 add" in printed
    assert printed.endswith("The graph is saved. Next: cdd generate graph.json --out DIR\n")
    graph = load_graph(here / "graph.json")[0]
    assert graph.leaves[0].signature == "def add(first: int, second: int) -> int:\n    ..."
    assert graph.metadata == {"name": "Sums", "nl_spec_path": "plan.md"}
    assert run(["graph", "from", "plan.md"]) == 2
    assert run(["graph", "from", "plan.md", "--yes", "--json"]) == 0


def test_the_architect_closes_the_gaps_of_tasks(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = {"master": {"tasks": [{"id": 1, "title": "Add", "description": "Add numbers.", "status": "pending"}]}}
    (here / "tasks.json").write_text(json.dumps(tasks), encoding="utf-8")
    inside = {**NODE, "parent": "task-1", "subgraph_id": ""}
    assert run([*record(submit(inside)), "graph", "from", "tasks.json"]) == 0
    assert "task 1 (Add) writes no function or class as code" in capsys.readouterr().out
    graph = load_graph(here / "graph.json")[0]
    assert dict(graph.subgraphs) == {"add": "task-1"}


def test_a_plan_whose_graph_has_problems_is_not_saved(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "plan.md").write_text(PLAN.replace("src/sums/basic.py", "src/sums/../basic.py"), encoding="utf-8")
    assert run(["graph", "from", "plan.md"]) == 2
    assert "leads out of its folder" in capsys.readouterr().err
    assert not (here / "graph.json").exists()


def test_another_kind_of_file_makes_no_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph", "from", "notes.txt"]) == 2
    assert "a plan.md or a tasks.json" in capsys.readouterr().err
