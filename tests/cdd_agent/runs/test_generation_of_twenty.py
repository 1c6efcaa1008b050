"""A generation of 20 nodes in 3 subgraphs: it can stop anywhere and continue."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from typing import Any

import msgspec
import pytest

from cdd_agent.events import AttemptStarted, Committed, Event, StepStarted
from cdd_agent.generation.plan import load_plan
from tests.cdd_agent.runs.test_generation import ROOT, Output

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("identity")]
SIZES = {"base": 8, "middle": 7, "top": 5}
COUNT = sum(SIZES.values())
STEPS = [(number, name) for number, name in enumerate((g for g, n in SIZES.items() for _ in range(n)), start=1)]
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.cdd_agent.runs.test_generation_of_twenty import make_output, stop_after

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

make_output(Path(sys.argv[1])).run(emit=stop_after(12, kill))
"""


def make_output(folder: Path, *, broken: int = 0) -> Output:
    """Return an output for a graph in which each node adds 1 to what the one before it returns.

    The body of the node ``broken`` cannot be written.
    """
    nodes, turns = [], list[dict[str, Any]]()
    for number, group in STEPS:
        name, path = f"step_{number:02}", f"src/{group}/m{number}.py"
        nodes.append(
            {
                "id": name,
                "name": name,
                "type": "function",
                "node_type": "leaf",
                "file_path": path,
                "subgraph_id": group,
                "dependencies": [f"step_{number - 1:02}"] if number > 1 else [],
                "docstring": f"Return the number and {number}.\n\nRaises:\n    TypeError: If it is no number.",
                "signature": f"def {name}(x: int) -> int: ...",
            }
        )
        module, title = f"twenty.{group}.m{number}", f"{group}.m{number}.{name}"
        tests = f"import pytest\nfrom {module} import {name}\n\n\n"
        for value in (0, 5):
            tests += f"def test_{name}_{value}():\n    assert {name}({value}) == {value + number}\n\n\n"
        tests += f'def test_{name}_text():\n    with pytest.raises(TypeError):\n        {name}("a")\n'
        before = f"step_{number - 1:02}(x)" if number > 1 else "x"
        calls = [("Write", {"file_path": f"tests/test_m{number}.py", "content": tests})]
        turns.append(make_turn(f"{title} red", calls))
        stub = {"file_path": f"src/twenty/{group}/m{number}.py", "old_string": "    raise NotImplementedError"}
        calls = [("Edit", {**stub, "new_string": f"    return {before} + 1"})] if number != broken else []
        turns.append(make_turn(f"{title} green", calls))
    for group in SIZES:
        numbers = [number for number, each in STEPS if each == group]
        names = [f"step_{number:02}" for number in (numbers[0], numbers[-1])]
        tests = "".join(f"from twenty.{group}.m{n} import step_{n:02}\n" for n in (numbers[0], numbers[-1]))
        tests += f"\n\ndef test_path_1():\n    assert {names[1]}({names[0]}(0)) == {numbers[0] + numbers[-1]}\n"
        call = ("Write", {"file_path": f"tests/integration/test_{group}.py", "content": tests})
        turns.append(make_turn(f"integration of {group}", [call]))
    folder.mkdir(parents=True, exist_ok=True)
    graph, recording = folder / "twenty.json", folder / "recording.json"
    graph.write_bytes(msgspec.json.encode({"schema": "cdd/1", "nodes": nodes, "metadata": {"package": "twenty"}}))
    recording.write_bytes(msgspec.json.encode(turns))
    return Output(folder=folder / "out", plan=load_plan(graph), recording=recording)


def make_turn(work: str, calls: list[tuple[str, dict[str, str]]]) -> dict[str, Any]:
    ends = ("CompleteImplementation", {"implementation_files": [], "summary": "done"})
    if not calls:
        ends = ("ReportBlocked", {"why": "cannot_be_done", "reason": "no"})
    content = [{"type": "tool_use", "name": name, "input": given} for name, given in [*calls, ends]]
    return {"when": f"^Work: generate twenty {work}.* attempt 1$", "content": content}


def stop_after(count: int, stop: Callable[[], None]) -> Callable[[Event], None]:
    """Return an ``Emit`` that stops when this many bodies have landed."""
    left = [count]

    def hear(event: Event) -> None:
        left[0] -= isinstance(event, Committed) and event.phase == "green"
        if not left[0]:
            stop()

    return hear


def interrupt() -> None:
    raise KeyboardInterrupt


def find_attempted(output: Output) -> set[int]:
    return {event.step for event in output.seen if isinstance(event, AttemptStarted) and event.step <= COUNT}


def test_twenty_nodes_are_ordered_within_a_second(tmp_path: Path) -> None:
    plan, began = make_output(tmp_path).plan, time.monotonic()
    assert [node.id for node in plan.nodes] == [f"step_{number:02}" for number, _ in STEPS]
    assert [group.name for group in plan.groups] == [*SIZES]
    assert time.monotonic() - began < 1


def test_a_run_that_stopped_at_node_10_skips_those_before(tmp_path: Path) -> None:
    output = make_output(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        output.run(emit=stop_after(9, interrupt))
    saved = output.statuses.count("completed")
    assert saved in (8, 9)
    output.run()
    assert min(find_attempted(output)) == saved + 1
    assert set(output.statuses[:COUNT]) == {"completed"}


def test_a_run_that_was_killed_after_node_12_completes_the_others(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -SIGKILL, killed.stderr
    output = make_output(tmp_path)
    assert output.landed[0].startswith("feat: complete base")
    output.run()
    assert find_attempted(output) == {*range(13, COUNT + 1)}
    assert set(output.statuses[:COUNT]) == {"completed"}


def test_nodes_that_need_a_failed_one_are_skipped_and_the_rest_is_exported(tmp_path: Path) -> None:
    output = make_output(tmp_path, broken=18)
    output.run()
    assert output.statuses[:COUNT] == ["completed"] * 17 + ["failed", "skipped", "skipped"]
    assert {event.number for event in output.seen if isinstance(event, StepStarted)}.isdisjoint({19, 20})
    assert "feat: complete part of top (2 of 5 nodes)" in output.landed
    again = replace(make_output(tmp_path), seen=[])
    again.run()
    assert find_attempted(again) == {18, 19, 20}
