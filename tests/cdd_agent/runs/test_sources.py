"""Every source of the product has all that belongs to a workflow. A new one fails here until it has it."""

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

from cdd_agent.cli.app import cdd
from cdd_agent.compose import Composition
from cdd_agent.config.settings import GreenSettings
from cdd_agent.generation.plan import load_plan
from cdd_agent.git.repository import Repository
from cdd_agent.runs.failing_tests import FailingTests
from cdd_agent.runs.feature import Feature
from cdd_agent.runs.graph_nodes import GraphNodes
from cdd_agent.runs.listed_tests import ListedTests
from cdd_agent.runs.places import locate_run
from cdd_agent.runs.plan_steps import PlanSteps
from cdd_agent.runs.request import Wanted
from cdd_agent.runs.run import Run, Source
from cdd_agent.tdd.context import ResumeCommands
from cdd_agent.tickets.ticket import Ticket
from tests.fakes.program import EXAMPLES

ROOT = Path(__file__).parents[3]
RUNS = ROOT / "cdd_agent" / "runs"
_MEMBERS = {"next", "accept", "brief"}


def list_source_classes() -> Iterator[str]:
    """Yield ``module.Class`` for each class that is a source by its methods."""
    for path in sorted(RUNS.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name != "Source":
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                if methods >= _MEMBERS:
                    yield f"{path.stem}.{node.name}"


def make_sources(folder: Path) -> list[Source]:
    """Return one source of each kind; mypy says what a new one lacks for a run."""
    repository = Repository(folder)
    feature = Feature(slug="tdd-sum", text="A sum", folder=locate_run(folder, "tdd-sum").folder)
    wanted = Wanted(targets=("tests/test_sum.py",))
    return [
        PlanSteps(Ticket(slug="sum", folder=folder / "tickets" / "sum"), repository=repository),
        ListedTests(feature, repository=repository, project=folder),
        FailingTests(wanted, GreenSettings(), ticket=wanted.find_run(folder)),
        GraphNodes(
            load_plan(EXAMPLES / "wordkit" / "graph.json"),
            ticket=locate_run(folder, "wordkit"),
            branch=None,
            commands=ResumeCommands(resume="cdd generate GRAPH --out DIR", restart="", unit="node"),
        ),
    ]


def test_each_source_of_the_product_is_known_here(tmp_path: Path) -> None:
    made = {type(source) for source in make_sources(tmp_path)}
    known = {f"{each.__module__.rpartition('.')[2]}.{each.__name__}" for each in made}
    assert set(list_source_classes()) - known == set(), "add it to make_sources"


def test_each_source_is_composed_into_a_run_by_the_program(tmp_path: Path) -> None:
    made = {get_type_hints(method).get("return") for method in vars(Composition).values() if callable(method)}
    for source in make_sources(tmp_path):
        assert Run[type(source)] in made, f"a method of Composition that returns Run[{type(source).__name__}]"  # type: ignore[misc]


def test_the_command_that_continues_a_run_is_one_of_the_program(tmp_path: Path) -> None:
    words = [shlex.split(source.commands.resume) for source in make_sources(tmp_path)]
    assert [program for program, *_ in words] == ["cdd"] * len(words)
    assert {command for _, command, *_ in words} <= set(cdd.commands)


def test_each_workflow_has_a_page_and_a_row_among_the_workflows(tmp_path: Path) -> None:
    pages = [page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md")]
    overview = (ROOT / "docs" / "architecture.md").read_text()
    for source in make_sources(tmp_path):
        command = f"`cdd {source.workflow} "
        first = [line for page in pages for line in page.splitlines()[:6]]
        assert any(command in line for line in first), f"a page that begins with when to use {command}"
        module = type(source).__module__.replace(".", "/").removeprefix("cdd_agent/")
        rows = [line for line in overview.splitlines() if line.startswith("| ") and command in line]
        assert any(f"`{module}.py`" in row for row in rows), f"a row of {command} in docs/architecture.md"


def test_sources_do_not_know_each_other(tmp_path: Path) -> None:
    contract = (ROOT / "pyproject.toml").read_text().partition("sources of runs do not know each other")[2]
    modules = contract.partition("modules = [")[2].partition("]")[0]
    assert all(f'"{type(source).__module__}"' in modules for source in make_sources(tmp_path))


def test_nothing_in_the_product_asks_which_workflow_a_run_is_of() -> None:
    asking = []
    for path in (ROOT / "cdd_agent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            sides = (node.left, *node.comparators) if isinstance(node, ast.Compare) else ()
            subjects = (node.subject,) if isinstance(node, ast.Match) else sides
            if any("workflow" in (getattr(side, "attr", ""), getattr(side, "id", "")) for side in subjects):
                asking.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}")
    assert asking == []
