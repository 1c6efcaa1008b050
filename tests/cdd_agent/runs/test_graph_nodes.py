"""What happens between two attempts at a node of a planning graph."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cdd_agent.compose import Composition
from cdd_agent.config.options import Choose, Options
from cdd_agent.events import Event, Notice, ToolReturned
from cdd_agent.generation.layout import Layout
from cdd_agent.generation.outcome import GenerationOutcome
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.git.repository import Repository
from cdd_agent.runs.generation_results import NOTHING_TO_WRITE, GenerationResults
from cdd_agent.runs.graph_nodes import GraphNodes
from cdd_agent.runs.output_folder import prepare_output
from cdd_agent.runs.run import Run
from cdd_agent.tdd.step import load_report
from cdd_agent.tickets.graph import Node
from cdd_agent.work.state import StepExecution
from tests.fakes.demo import in_process
from tests.fakes.graphs import leaf, make_graph

pytestmark = pytest.mark.usefixtures("identity")

DOUBLE = leaf("double", "src/kit/first.py", signature="def double(x: int) -> int: ...")
TWICE = leaf("twice", "src/kit/second.py", "double", signature="def twice(x: int) -> int: ...")
COLOR = leaf("Color", "src/kit/color.py", signature="class Color(Enum):\n    RED = 1")
FIRST, SECOND = "src/kit/first.py", "src/kit/second.py"
HEAD = '"""Source."""\n\n'


def write_tests(module: str, name: str, *, before: str = "", after: str = "") -> dict[str, str]:
    """Return three tests; the last has more lines before or after its assertion."""
    text = f"from kit.{module} import {name}\n\n\ndef test_{name}_one():\n    assert {name}(1) == 2\n\n\n"
    text += f"def test_{name}_zero():\n    assert {name}(0) == 0\n\n\n"
    text += f"def test_{name}_two():\n{before}    assert {name}(2) == 4\n{after}"
    return {f"tests/test_{module}.py": text}


def write_body(name: str, body: str) -> str:
    return f'{HEAD}def {name}(x: int) -> int:\n    """Do {name}."""\n{body}'


GOOD = {FIRST: write_body("double", "    return 2 * x\n")}
GIVES_UP = [{"type": "tool_use", "name": "ReportBlocked", "input": {"why": "cannot_be_done", "reason": "no"}}]
BAD = {FIRST: write_body("double", "    return x\n")}


@dataclass
class Kit:
    """A new output folder for a small graph, and turns of a model for it."""

    folder: Path
    nodes: tuple[Node, ...] = (DOUBLE, TWICE)
    runs_pytest: bool = False
    metadata: dict[str, object] = field(default_factory=dict)
    seen: list[Event] = field(default_factory=list)
    turns: list[dict[str, object]] = field(default_factory=list)
    choose: Choose | None = None

    @property
    def plan(self) -> GenerationPlan:
        graph = replace(make_graph(*self.nodes), metadata={"package": "kit", **self.metadata})
        return GenerationPlan(graph=graph, layout=Layout.of(graph, "kit"), source=self.folder / "graph.json")

    def say(self, title: str, phase: str, *attempts: dict[str, str], is_again: bool = False) -> None:
        """Add a turn for each attempt: the files that it writes, or none to give up.

        ``is_again``: its tests exist.
        """
        for number, files in enumerate(attempts, start=1):
            calls: list[dict[str, object]] = []
            for path, text in files.items():
                if phase == "green" or is_again:
                    calls.append({"type": "tool_use", "name": "Read", "input": {"file_path": path}})
                calls.append({"type": "tool_use", "name": "Write", "input": {"file_path": path, "content": text}})
            ends = [{"type": "tool_use", "name": "CompleteImplementation", "input": {"implementation_files": []}}]
            when = f"^Work: generate kit {title} {phase} attempt {number}$"
            self.turns.append({"when": when, "content": [*calls, *(ends if files else GIVES_UP)]})

    def compose(self) -> Composition:
        recording = self.folder.parent / "recording.json"
        recording.write_bytes(msgspec.json.encode(self.turns))
        options = Options(project=self.folder, replay=recording, choose=self.choose)
        made = Composition(options, emit=self.seen.append)
        if not self.runs_pytest:
            vars(made).update(suite=in_process(self.folder))
        return made

    def run(self, *numbers: int) -> list[StepExecution]:
        """Generate some nodes, and return their steps."""
        if not self.folder.exists():
            prepare_output(self.folder, self.plan)
        self.made = self.compose().generation(self.plan, resume="again").run
        with self.made.running():
            for number in numbers:
                self.made.run_step(self.made.step(number))
        return [self.made.state.execution(number) for number in numbers]

    def describe(self) -> GenerationOutcome:
        run: Run[GraphNodes] = self.made
        results = GenerationResults(
            plan=self.plan,
            state=run.state,
            home=Repository(self.folder),
            records=run.context.records.folder,
            resume="again",
        )
        return results.describe(now="2026-01-31T12:00:00Z")

    def read(self, path: str) -> str:
        """Return a file of the private branch."""
        return (self.made.context.workplace.tree.root / path).read_text()

    @property
    def notices(self) -> str:
        return "\n".join(event.text for event in self.seen if isinstance(event, Notice))


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(folder=tmp_path / "kit")


def list_attempts(step: StepExecution) -> list[tuple[str, str]]:
    return [(each.phase, each.verdict) for each in step.attempts]


PASSED = [("red", "open"), ("green", "open")]
AGAIN = [("red", "open"), ("green", "closed"), ("green", "open")]


MEAN = leaf(
    "calculate_mean",
    FIRST,
    docstring="Return the mean of numbers.\n\nArgs:\n    numbers (list[float]): List of floats.\n\nReturns:\n"
    "    float: The mean.\n\nRaises:\n    ValueError: If there are none.",
)
MEAN_TESTS = """\
import pytest

from kit.first import calculate_mean


def test_calculate_mean():
    assert calculate_mean([1.0, 2.0, 6.0]) == 3.0


def test_calculate_mean_of_one_of_the_numbers():
    assert calculate_mean([5.0]) == 5.0


def test_calculate_mean_of_nothing():
    with pytest.raises(ValueError):
        calculate_mean([])
"""
MEAN_BODY = """\
    if not numbers:
        raise ValueError("there are no numbers")
    return sum(numbers) / len(numbers)
"""


def replace_stub(text: str, body: str) -> dict[str, str]:
    return {FIRST: text.replace("    raise NotImplementedError\n", body)}


@pytest.fixture
def mean(kit: Kit) -> tuple[Kit, str]:
    """A node without a signature, and its module in the skeleton."""
    kit.nodes = (MEAN,)
    prepare_output(kit.folder, kit.plan)
    return kit, (kit.folder / FIRST).read_text()


def test_generate_test_from_docstring(mean: tuple[Kit, str]) -> None:
    """The model gets docstring and derived signature, and its pytest functions open RED because the body is missing."""
    kit, skeleton = mean
    assert "def calculate_mean(numbers: list[float]) -> float:" in skeleton
    kit.say("first.calculate_mean", "red", {"tests/test_first.py": MEAN_TESTS})
    kit.say("first.calculate_mean", "green", replace_stub(skeleton, MEAN_BODY))
    told = kit.plan.describe(MEAN)
    assert "numbers (list[float]): List of floats." in told
    (step,) = kit.run(1)
    assert list_attempts(step) == PASSED
    added = kit.made.context.repository.git("show", ("--format=",), step.commits["red"])
    assert added.count("+def test_calculate_mean") == 3


def test_unit_test_generation(mean: tuple[Kit, str]) -> None:
    """Fewer than three tests do not open RED."""
    kit, skeleton = mean
    two = MEAN_TESTS.partition("\n\ndef test_calculate_mean_of_nothing")[0]
    three = {"tests/test_first.py": MEAN_TESTS}
    kit.say("first.calculate_mean", "red", {"tests/test_first.py": two}, three)
    kit.say("first.calculate_mean", "green", replace_stub(skeleton, MEAN_BODY))
    (step,) = kit.run(1)
    assert list_attempts(step) == [("red", "closed"), *PASSED]
    assert [reason.code for reason in step.attempts[0].reasons] == ["too_few_tests"]


def test_generate_implementation_from_spec(mean: tuple[Kit, str]) -> None:
    """The body that lands runs: its three tests pass at the first try, within 5 s by real pytest."""
    kit, skeleton = mean
    kit.runs_pytest = True
    kit.say("first.calculate_mean", "red", {"tests/test_first.py": MEAN_TESTS})
    kit.say("first.calculate_mean", "green", replace_stub(skeleton, MEAN_BODY))
    (step,) = kit.run(1)
    assert list_attempts(step) == PASSED
    report = load_report(step.attempts[1], root=kit.made.context.records.folder)
    assert report is not None
    assert [case.outcome for case in report.tests] == ["passed"] * 3
    assert report.duration_s < 5
    names = dict[str, Any]()
    exec(compile(kit.read(FIRST), FIRST, "exec"), names)
    assert names["calculate_mean"]([1.0, 2.0]) == 1.5


def test_an_off_by_one_is_mended_within_three_rounds(mean: tuple[Kit, str]) -> None:
    kit, skeleton = mean
    wrong, worse = (MEAN_BODY.replace("len(numbers)", each) for each in ("(len(numbers) - 1)", "(len(numbers) + 1)"))
    kit.say("first.calculate_mean", "red", {"tests/test_first.py": MEAN_TESTS})
    kit.say("first.calculate_mean", "green", *(replace_stub(skeleton, each) for each in (wrong, worse, MEAN_BODY)))
    (step,) = kit.run(1)
    assert list_attempts(step) == [("red", "open"), ("green", "closed"), ("green", "closed"), ("green", "open")]
    (node,) = kit.describe().nodes
    assert (node.status, node.rounds) == ("passed", 2)


def test_syntax_validation(kit: Kit) -> None:
    """A body that Python cannot parse never lands."""
    kit.say("first.double", "red", write_tests("first", "double"))
    kit.say("first.double", "green", {FIRST: write_body("double", "    return 2 *\n")}, GOOD)
    (step,) = kit.run(1)
    assert list_attempts(step) == AGAIN
    (refused,) = (event.summary for event in kit.seen if isinstance(event, ToolReturned) and not event.ok)
    assert "would no longer be valid Python. Nothing was changed: line 5: invalid syntax" in refused
    assert kit.read(FIRST) == GOOD[FIRST]


def test_sandbox_timeout(kit: Kit) -> None:
    """An endless loop in the code is ended by the limit of one test; the next attempt gets its place."""
    kit.runs_pytest, kit.metadata = True, {"seconds_per_test": 2}
    kit.say("first.double", "red", write_tests("first", "double"))
    kit.say("first.double", "green", {FIRST: write_body("double", "    while True:\n        x += 0\n")}, GOOD)
    began = time.monotonic()
    (step,) = kit.run(1)
    assert time.monotonic() - began < 20
    assert list_attempts(step) == AGAIN
    cause = step.attempts[1].diagnosis
    assert cause is not None
    assert (cause.kind, cause.place.rpartition(":")[0]) == ("code", FIRST)
    assert f"cdd adds: {cause.why} double loops or waits at {cause.place}" in step.attempts[1].words


def test_tests_that_wait_for_input_are_written_anew_at_most_twice(kit: Kit) -> None:
    for _ in range(3):
        kit.say("first.double", "red", write_tests("first", "double", after="    input()\n"))
        kit.say("first.double", "green", GOOD)
    kit.turns.append({"when": "green attempt 2$", "content": GIVES_UP})
    (step,) = kit.run(1)
    assert step.times_sent_back == 2
    assert list_attempts(step) == [("red", "open"), ("green", "closed"), ("green", "closed")]
    assert step.status == "failed"
    assert kit.notices.count("waits for input at tests/test_first.py:14") == 2


def test_a_test_that_fails_every_third_run_is_reported_and_fails_no_node(kit: Kit, tmp_path: Path) -> None:
    count = f"    from pathlib import Path\n    runs = Path({str(tmp_path)!r}) / 'runs'\n"
    count += "    seen = len(runs.read_text()) + 1 if runs.exists() else 1\n    runs.write_text('.' * seen)\n"
    count += "    assert seen % 3\n"
    kit.say("first.double", "red", write_tests("first", "double", before=count))
    kit.say("first.double", "green", GOOD)
    kit.say("second.twice", "red", write_tests("second", "twice"))
    kit.say("second.twice", "green", {SECOND: write_body("twice", "    return double(x)\n")})
    first, second = kit.run(1, 2)
    assert (list_attempts(first), list_attempts(second)) == (PASSED, PASSED)
    assert kit.notices.count("Flaky: tests/test_first.py::test_double_two failed") == 1
    assert [node.flaky for node in kit.describe().nodes] == [1, 0]
    # The node lacked an import, which only one module can mean.
    assert "from kit.first import double" in kit.read(SECOND)


def test_a_missing_foreign_package_skips_the_node_and_is_named_with_its_command(kit: Kit) -> None:
    kit.say("first.double", "red", write_tests("first", "double"))
    kit.say("first.double", "green", {FIRST: write_body("double", "    import quite_absent\n    return 2 * x\n")})
    (step,) = kit.run(1)
    assert (step.status, list_attempts(step)) == ("skipped", [("red", "open"), ("green", "closed")])
    assert str(step.error).endswith("-m pip install quite_absent")
    assert "raise NotImplementedError" in kit.read(FIRST)
    outcome = kit.describe()
    assert outcome.missing_packages == ("quite_absent",)
    (node, _) = outcome.nodes
    assert (node.status, node.advice.partition(" -m ")[2]) == ("skipped", "pip install quite_absent")


def test_a_missing_import_is_added_if_only_one_module_can_be_meant(kit: Kit) -> None:
    kit.say("first.double", "red", write_tests("first", "double"))
    kit.say("first.double", "green", {FIRST: write_body("double", "    return math.floor(x + x)\n")})
    (step,) = kit.run(1)
    assert list_attempts(step) == PASSED
    assert "\nimport math\n" in kit.read(FIRST)
    assert f"{FIRST}: added import math." in kit.notices


def test_regression_detection(kit: Kit) -> None:
    """A change that breaks a passed node is refused and reverted byte for byte, and counts as a regression."""
    kit.say("first.double", "red", write_tests("first", "double"))
    kit.say("first.double", "green", GOOD)
    kit.say("second.twice", "red", write_tests("second", "twice"))
    body = {SECOND: write_body("twice", "    return 2 * x\n")}
    kit.say("second.twice", "green", {**body, **BAD}, body)
    first, second = kit.run(1, 2)
    assert (list_attempts(first), list_attempts(second)) == (PASSED, AGAIN)
    assert {reason.code for reason in second.attempts[1].reasons} == {"broke_others"}
    assert kit.read(FIRST) == GOOD[FIRST]
    outcome = kit.describe()
    assert outcome.regressions == 1


def test_revert_on_failure(kit: Kit) -> None:
    """A node that fails leaves the files as they were."""
    kit.say("first.double", "red", write_tests("first", "double"))
    kit.say("first.double", "green", BAD, {})
    prepare_output(kit.folder, kit.plan)
    before = (kit.folder / FIRST).read_text()
    (step,) = kit.run(1)
    assert (step.status, kit.read(FIRST)) == ("failed", before)
    tree = kit.made.context.workplace.tree
    assert not (tree.root / "tests/test_first.py").exists()
    assert kit.made.context.repository.git("log", ("--format=%s",)).splitlines() == [
        "chore: scaffold and skeleton of kit (2 nodes)"
    ]


def test_a_node_that_means_something_else_now_gets_other_tests(kit: Kit) -> None:
    kit.nodes = (DOUBLE,)
    kit.say("first.double", "red", write_tests("first", "double"))
    kit.say("first.double", "green", GOOD)
    kit.run(1)
    kit.turns.clear()
    kit.nodes = (replace(DOUBLE, docstring="Do double, and change the sign."),)
    tests = {path: text.replace("== ", "== -") for path, text in write_tests("first", "double").items()}
    kit.say("first.double", "red", tests, is_again=True)
    kit.say("first.double", "green", {FIRST: write_body("double", "    return -2 * x\n")})
    made = kit.compose().generation(kit.plan, resume="again").run
    with made.running():
        made.source.least_tests = 1
        made.retry(1, guidance="The graph has changed.")
        made.run_step(made.step(1))
    step = made.state.execution(1)
    assert (step.status, list_attempts(step)) == ("completed", PASSED)
    tree = made.context.workplace.tree.root
    assert (tree / "tests/test_first.py").read_text() == tests["tests/test_first.py"]
    assert "return -2 * x" in (tree / FIRST).read_text()


def test_leaves_that_the_skeleton_completes_pass_without_the_model(kit: Kit) -> None:
    kit.nodes = (replace(COLOR, subgraph_id="colors"), replace(DOUBLE, subgraph_id="first"))
    kit.run()
    (color, double) = kit.describe().nodes
    assert (color.status, color.reason) == ("passed", NOTHING_TO_WRITE)
    colors, first = kit.describe().subgraphs
    assert (colors.proved, first.proved) == (1, 0)
    assert double.status == "pending"


def test_a_stub_may_raise_what_no_docstring_can_name(kit: Kit) -> None:
    raising = "Do double.\n\nRaises:\n    Exception: Always."
    kit.nodes = (leaf("double", FIRST, signature="def double(x: int) -> int: ...", docstring=raising),)
    kit.run()
    assert kit.made.step(1).expects == ("BaseException",)


def test_the_second_attempt_corrects_the_body_alone_and_cannot_rename_what_the_graph_names(kit: Kit) -> None:
    kit.say("first.double", "red", write_tests("first", "double"))
    kit.say("first.double", "green", BAD)
    place = {"file_path": FIRST, "name": "double"}
    calls = [
        ("RenameSymbol", {**place, "new_name": "times_two"}),
        ("ReplaceSymbolBody", {**place, "body": "return 2 * x"}),
        ("CompleteImplementation", {"implementation_files": []}),
    ]
    content = [{"type": "tool_use", "name": name, "input": fields} for name, fields in calls]
    kit.turns.append({"when": "^Work: generate kit first.double green attempt 2$", "content": content})
    (step,) = kit.run(1)
    answers = [event for event in kit.seen if isinstance(event, ToolReturned)]
    assert "the graph names it, in first.double" in next(each.summary for each in answers if not each.ok)
    assert list_attempts(step) == AGAIN
    assert kit.read(FIRST) == GOOD[FIRST]
