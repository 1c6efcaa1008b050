"""Views of code and of dependencies."""

import json
import time
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.generation.views import MOST_BRANCHES, CodeView, GraphNeeds, to_json, view_file
from cdd_agent.symbols.index import Index
from cdd_agent.tickets.graph import NodeId
from tests.fakes.graphs import leaf, make_graph

SOURCE = '''"""Numbers."""

LIMIT = 3


def calculate_mean(numbers: list[float], by: int) -> float:
    """Return the mean."""
    return sum(numbers) / len(numbers)


class Reader:
    """Reads."""

    def read(self, path: str) -> bytes:
        raise NotImplementedError
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text(SOURCE)
    return tmp_path


def view(project: Path, path: str = "m.py", *names: str) -> CodeView:
    return view_file(path, Index(project), read=lambda path: (project / path).read_text().splitlines(), names=names)


def test_code_view_signatures(project: Path) -> None:
    assert str(view(project)).splitlines() == [
        "m.py: 3 definitions",
        "     6-8\tcalculate_mean: def calculate_mean(numbers: list[float], by: int) -> float:  # Return the mean.",
        "    11-15\tReader: class Reader:  # Reads.",
        "    14-15\tReader.read: def read(self, path: str) -> bytes:  # not yet generated",
    ]


def test_a_definition_is_shown_whole_with_its_lines(project: Path) -> None:
    shown = str(view(project, "m.py", "calculate_mean"))
    assert shown.startswith("m.py, calculate_mean:\n     6\tdef calculate_mean(")
    assert "     8\t    return sum(numbers) / len(numbers)\n" in shown
    assert "m.py, Reader.read (not yet generated):" in str(view(project, "m.py", "read"))
    with pytest.raises(UsageError, match=r"m\.py does not define mean\.") as caught:
        view(project, "m.py", "mean")
    assert "calculate_mean, Reader, Reader.read" in caught.value.hint


def test_a_file_that_cannot_be_parsed_has_its_problem_in_the_view(project: Path) -> None:
    (project / "broken.py").write_text("def f(:\n")
    assert "cannot be parsed" in str(view(project, "broken.py", "f"))


def test_a_view_follows_the_file(project: Path) -> None:
    index = Index(project)

    def read(path: str) -> list[str]:
        return (project / path).read_text().splitlines()

    assert "total" not in str(view_file("m.py", index, read=read))
    (project / "m.py").write_text(f"{SOURCE}\n\ndef total() -> int:\n    return 1\n")
    assert "    return 1" in str(view_file("m.py", index, read=read, names=["total"]))


def test_both_views_have_a_json_form(project: Path) -> None:
    found = json.loads(to_json(view(project, "m.py", "calculate_mean")))
    assert found["bodies"][0]["lines"][-1] == "    return sum(numbers) / len(numbers)"
    assert [each["name"] for each in found["interfaces"]] == ["calculate_mean", "Reader", "Reader.read"]
    tree = json.loads(to_json(link("a b", "b c").view(NodeId("b"), status_of=lambda _: "passed")))
    assert [each["node"] for each in tree["needs"]["further"]] == ["c"]


def link(*edges: str) -> GraphNeeds:
    """Return the dependencies of a graph: ``a b`` says that a needs b."""
    names = dict.fromkeys(name for edge in edges for name in edge.split())
    needs = {name: [edge.split()[1] for edge in edges if edge.split()[:1] == [name] and " " in edge] for name in names}
    return GraphNeeds(make_graph(*(leaf(name, "src/app/m.py", *needs[name]) for name in names)), title_of=str)


def test_dependency_traversal() -> None:
    shown = str(link("a b", "b c").view(NodeId("b"), status_of=lambda node: "failed" if node == "c" else "pending"))
    assert shown.splitlines() == [
        "b (b) [pending]",
        "It needs:",
        "`-- c (c) [failed]  <-- FAILED, it may be the cause",
        "It is needed by:",
        "`-- a (a) [pending]",
    ]


def test_dependencies_are_followed_two_steps_far() -> None:
    shown = str(link("a b", "a x", "b c", "c d").view(NodeId("a"), status_of=lambda _: "passed"))
    assert shown.splitlines() == [
        "a (a) [passed]",
        "It needs:",
        "|-- b (b) [passed]",
        "|   `-- c (c) [passed]",
        "`-- x (x) [passed]",
        "It is needed by: nothing",
    ]


def test_a_node_without_dependencies_has_none() -> None:
    shown = str(link("a").view(NodeId("a"), status_of=lambda _: "passed"))
    assert shown == "a (a) [passed]\nIt needs: nothing\nIt is needed by: nothing"


def test_failed_ones_are_shown_first_of_many() -> None:
    graph = link(*(f"a n{number:03}" for number in range(100)))
    shown = str(graph.view(NodeId("a"), status_of=lambda node: "failed" if node == "n099" else "passed"))
    assert shown.splitlines()[2] == "|-- n099 (n099) [failed]  <-- FAILED, it may be the cause"
    assert f"`-- ... and {100 - MOST_BRANCHES} more" in shown


def test_large_graphs_and_files_are_viewed_in_time(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(10_000)]
    nodes = [leaf(name, f"src/app/m{at // 50}.py", *names[max(0, at - 3) : at]) for at, name in enumerate(names)]
    graph = GraphNeeds(make_graph(*nodes), title_of=str)
    (tmp_path / "m.py").write_text("".join(f"def f{number}():\n    return {number}\n\n\n" for number in range(500)))
    index = Index(tmp_path)
    view(tmp_path, "m.py")
    began = time.process_time()
    graph.view(NodeId("f5000"), status_of=lambda _: "passed")
    assert time.process_time() - began < 0.2
    began = time.process_time()
    view_file("m.py", index, read=lambda path: (tmp_path / path).read_text().splitlines(), names=["f7"])
    assert time.process_time() - began < 0.1
