"""A repository is generated for tests that exist: they open the gates of the nodes that they enter."""

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import Event, GateJudged, Notice
from cdd_agent.generation.given_tests import SETTINGS, read_tests, write_settings
from cdd_agent.generation.plan import load_plan
from cdd_agent.runs.output_folder import has_user_tests, prepare_output
from cdd_agent.work.state import RunState, Status
from tests.fakes.approval import approves

pytestmark = pytest.mark.usefixtures("identity")

NODES = {
    "_add": ("def _add(numbers): ...", [], "numbers", "sum(numbers)"),
    "total": ("def total(numbers): ...", ["_add"], "Return the sum.", "_add(numbers)"),
    "describe": ("def describe(numbers): ...", ["total"], "Return the sum in words.", 'f"{total(numbers)} in all"'),
    "unused": ("def unused(): ...", [], "Return 1.", "1"),
}
TESTS = """\
import shop


def test_total():
    assert shop.total([1, 2]) == 3


def test_of_nothing():
    assert shop.total([]) == 0


def test_describe():
    try:
        words = shop.describe([1])
    except Exception as error:
        words = str(error)
    assert words == "1 in all"


def test_of_the_machine():
    assert shop.total([1]) == "missing"
"""


def write_graph(folder: Path) -> Path:
    nodes = [
        {
            "id": name,
            "name": name,
            "type": "function",
            "node_type": "leaf",
            "file_path": "src/shop.py",
            "subgraph_id": "shop",
            "dependencies": needs,
            "docstring": docstring,
            "signature": signature,
        }
        for name, (signature, needs, docstring, _) in NODES.items()
    ]
    path = folder / "shop.json"
    path.write_bytes(msgspec.json.encode({"schema": "cdd/1", "nodes": nodes, "metadata": {"package": "shop"}}))
    return path


def write_recording(folder: Path, bodies: dict[str, list[str]], *, harm: str = "") -> Path:
    """Write a recording; ``bodies``: node -> what its attempts return, where it is not the right value.

    Empty: the attempt changes nothing, and the next one begins with the stub again. The first attempt at the node
    ``harm`` also changes what ``total`` returns.
    """
    turns: list[dict[str, Any]] = []
    for name, (_, _, docstring, right) in NODES.items():
        stub = '    """{}"""\n    {}'
        before = "raise NotImplementedError"
        for number, value in enumerate(bodies.get(name, [right]), start=1):
            after = f"return {value}" if value else "raise NotImplementedError"
            old, new = stub.format(docstring, before), stub.format(docstring, after)
            before = after
            edit = {"file_path": "src/shop.py", "old_string": old, "new_string": new}
            done = {"implementation_files": [], "summary": "done"}
            calls: list[tuple[str, dict[str, Any]]] = [("Edit", edit)] if value else []
            if name == harm and number == 1:
                change = {"old_string": "return _add(numbers)", "new_string": "return 0"}
                calls.append(("Edit", {"file_path": "src/shop.py", **change}))
                before = "raise NotImplementedError"
            calls.append(("CompleteImplementation", done))
            content = [{"type": "tool_use", "name": tool, "input": given} for tool, given in calls]
            turns.append({"when": f"^Work: generate shop {name} green attempt {number}$", "content": content})
    path = folder / "recording.json"
    path.write_bytes(msgspec.json.encode(turns))
    return path


@dataclass
class Output:
    folder: Path
    seen: list[Event]

    def run(self, place: Path, bodies: dict[str, list[str]], *, harm: str = "") -> RunState:
        place.mkdir(exist_ok=True)
        plan = replace(load_plan(write_graph(place)), has_user_tests=True)
        given = place / "given"
        given.mkdir(exist_ok=True)
        (given / "test_shop.py").write_text(TESTS)
        more = {**read_tests(given), SETTINGS: write_settings(given).encode()}
        prepare_output(self.folder, plan, more=more)
        options = Options(project=self.folder, replay=write_recording(place, bodies, harm=harm), ask=approves)
        generation = Composition(options, emit=self.seen.append).generation(plan, resume="cdd generate again")
        generation.installer = replace(generation.installer, python=self.folder / "no-python")
        return generation.carry_out()

    @property
    def gates(self) -> list[str]:
        return [each.evidence for each in self.seen if isinstance(each, GateJudged)]

    def read(self, path: str) -> str:
        return (self.folder / path).read_text()

    def git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Output:
    output = Output(tmp_path_factory.mktemp("generated") / "shop", [])
    state = output.run(tmp_path_factory.mktemp("given"), {"total": ["1", "_add(numbers)", "", "_add(numbers)"]})
    assert state.numbers(Status.COMPLETED) == (1, 2, 3, 4)
    return output


def test_no_tests_are_written_and_those_of_the_user_stay(made: Output) -> None:
    assert has_user_tests(made.folder)
    assert made.git("log", "--format=%s", "--grep=^test:") == ""
    assert made.read("tests/test_shop.py") == TESTS
    assert made.git("log", "--format=%h", "--", "tests").count("\n") == 1


def test_the_tests_that_enter_a_node_open_its_gate_and_those_that_wait_do_not_close_it(made: Output) -> None:
    # _add: no test enters it yet. total: wrong, then right three times but for the test of the machine, which no code
    # passes, so the part lands. describe: its test catches what the stub raises. unused: no test enters it.
    assert made.gates == [
        "4 failed (4 failed before)",
        "4 failed (1 failed before)",
        *["2 passed, 2 failed (1 failed before)"] * 3,
        "attempt 4 fixed 2 of the tests: tests/test_shop.py::test_total, tests/test_shop.py::test_of_nothing",
        "3 passed, 1 failed (1 failed before)",
        "3 passed, 1 failed (1 failed before)",
    ]


def test_a_change_of_a_node_that_has_passed_runs_the_tests_that_enter_it(tmp_path: Path) -> None:
    output = Output(tmp_path / "shop", [])
    total = ["_add(numbers)", "", "_add(numbers)"]
    output.run(tmp_path / "given", {"total": total, "unused": ["1", "1"]}, harm="unused")
    *_, refused, last = [each for each in output.seen if isinstance(each, GateJudged)]
    assert [reason.code for reason in refused.reasons] == ["broke_others"] * 2
    assert last.open
    assert "- **Regression Tests**: 1 regression found and reverted" in output.read("docs/generation_report.md")


def test_nodes_are_written_without_tests_while_a_conftest_waits_for_code(tmp_path: Path) -> None:
    output = Output(tmp_path / "shop", [])
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "conftest.py").write_text(
        "import shop\n\nLIMIT = shop.total([3])\n\n\ndef pytest_collection_modifyitems(items):\n"
        "    items[:] = [item for item in items if item.name != 'test_of_the_machine']\n"
    )
    state = output.run(tmp_path, {})
    assert state.numbers(Status.COMPLETED) == (1, 2, 3, 4)
    assert output.gates == [
        "1 not importable (1 failed before)",
        "1 not importable (1 failed before)",
        "3 passed",
        "3 passed",
    ]
    waiting = "tests/conftest.py needs code that is not written yet, so no test can run until it is."
    assert [each.text for each in output.seen if isinstance(each, Notice)].count(waiting) == 1


def test_a_conftest_that_waits_for_nothing_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "conftest.py").write_text("import there_is_no_such_module\n")
    with pytest.raises(EnvironmentMissing, match=r"No test can run(.|\n)*conftest.py:1: in <module>"):
        Output(tmp_path / "shop", []).run(tmp_path, {})


def test_the_report_names_what_no_test_proves(made: Output) -> None:
    report = made.read("docs/generation_report.md")
    assert "**Nodes Proved**: 1 of 4" in report
    assert "unused (unused): no test that passes enters it" in report
    assert "total (total): tests that enter it fail: tests/test_shop.py::test_of_the_machine" in report
    assert "- **Given Tests**: 4 given, 3 passing (75%); none were written" in report
    assert made.git("tag") == ""


def test_audit_leaves_open_what_no_test_shows(made: Output) -> None:
    audited = Composition(Options(project=made.folder, ask=approves), emit=lambda _: None).auditor().run()
    chains = [claim.text for each in audited for claim in each.claims if claim.name == "chain"]
    # The second node has landed in part: its gate was closed.
    assert {each.cycle for each in audited if each.failed} == {2}
    assert [text.startswith("It has no RED, and it names no test") for text in chains] == [True, False, False, True], (
        chains
    )


def test_the_same_command_changes_nothing(made: Output, tmp_path: Path) -> None:
    again = Output(tmp_path / "shop", [])
    shutil.copytree(made.folder, again.folder, symlinks=True)
    (doubts,) = again.folder.glob(".git/cdd/**/doubts.json")
    found = doubts.read_bytes()
    doubts.unlink()
    again.run(tmp_path / "given", {})
    assert doubts.read_bytes() == found  # the checks have run again
    assert [each for each in again.seen if isinstance(each, GateJudged)] == []
    assert again.git("rev-parse", "HEAD^{tree}") == made.git("rev-parse", "HEAD^{tree}")
    assert not [each for each in again.seen if isinstance(each, Notice) and "Landed" in each.text]
