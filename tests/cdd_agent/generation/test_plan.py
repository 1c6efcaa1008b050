import json
from pathlib import Path

import pytest

from cdd_agent.errors import DocumentError
from cdd_agent.generation.plan import adopt_answers, list_open, load_plan
from tests.fakes.graphs import composite, leaf, make_graph


def make_node(id: str, **more: object) -> dict[str, object]:
    return {"id": id, "name": id, "type": "function", "file_path": f"src/json/{id}.py", "docstring": "Do it.", **more}


def write(folder: Path, *nodes: dict[str, object], **metadata: object) -> Path:
    path = folder / "graph.json"
    path.write_text(json.dumps({"nodes": nodes, "metadata": metadata}), encoding="utf-8")
    return path


def test_names_of_the_standard_library_count_after_the_layout(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="standard library"):
        load_plan(write(tmp_path, make_node("a")))
    assert load_plan(write(tmp_path, make_node("a"), make_node("b", file_path="src/io/b.py"))).layout.package == "graph"


def test_a_step_waits_for_everything_in_a_module_that_it_needs(tmp_path: Path) -> None:
    module: dict[str, object] = {"id": "m", "name": "lib", "node_type": "composite", "dependencies": ["d"]}
    nodes = (make_node("a", dependencies=["m"]), make_node("b", parent="m"), make_node("c", parent="m"), make_node("d"))
    plan = load_plan(write(tmp_path, module, *(node | {"file_path": f"src/lib/{node['id']}.py"} for node in nodes)))
    numbers = {key.title.rpartition(".")[2]: key.number for key in plan.number_steps(None)}
    assert plan.order_dependencies(plan.number_steps(None)) == {
        numbers["a"]: tuple(sorted((numbers["b"], numbers["c"]))),
        numbers["b"]: (numbers["d"],),
        numbers["c"]: (numbers["d"],),
        numbers["d"]: (),
    }


@pytest.mark.parametrize(
    ("wanted", "limit_s"), [(3, 3.0), (0.5, 0.5), (0, 30.0), (-1, 30.0), (True, 30.0), ("3", 30.0), (1e9, 30.0)]
)
def test_the_metadata_may_limit_the_time_of_a_test(tmp_path: Path, wanted: object, limit_s: float) -> None:
    file = {"file_path": "src/lib/a.py"}
    assert load_plan(write(tmp_path, make_node("a", **file), seconds_per_test=wanted)).seconds_per_test == limit_s
    assert load_plan(write(tmp_path, make_node("a", **file))).seconds_per_test == 30.0


def test_earlier_answers_count_while_the_text_of_the_node_is_the_same() -> None:
    known = make_graph(
        leaf("load", signature="def load(path: str): ..."),
        leaf("save", signature="def save(row: int): ..."),
        leaf("find", signature="def find(key: int): ..."),
        composite("m", code="LIMIT = 3"),
        leaf("gone", signature="def gone(): ..."),
    )
    graph = make_graph(
        leaf("load"),
        leaf("save", docstring="Save it elsewhere."),
        leaf("find", signature="def find(): ..."),
        composite("m", code="LIMIT = = 3"),
    )
    found = adopt_answers(graph, known)
    assert [node.signature for node in found.leaves] == ["def load(path: str): ...", "", "def find(): ..."]
    assert found.nodes[3].code == "LIMIT = 3"
    assert [each.name for each in list_open(found)] == ["save"]
