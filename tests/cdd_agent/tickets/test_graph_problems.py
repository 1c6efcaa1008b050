import random
import time
from dataclasses import replace
from graphlib import TopologicalSorter

import pytest

from cdd_agent.tickets.graph import Definition, Edge, Graph, Node, NodeId, order_subgraphs
from cdd_agent.tickets.graph_problems import GraphProblem, find_problems, make_error

NODE = Node(
    id=NodeId("n1"),
    name="mean",
    type="function",
    node_type="leaf",
    file_path="src/stats/descriptive.py",
    docstring="Return the mean.",
    subgraph_id="stats",
    place="$.nodes[0]",
)
MODULE = replace(NODE, id=NodeId("m"), name="stats", node_type="composite", file_path="src/stats", docstring="")


def find(*nodes: Node, edges: tuple[Edge, ...] = ()) -> list[GraphProblem]:
    return list(find_problems(Graph(nodes=nodes, edges=edges)))


def find_one(*nodes: Node, edges: tuple[Edge, ...] = ()) -> str:
    (problem,) = find(*nodes, edges=edges)
    return str(problem)


def test_a_problem_says_where_it_is_and_what_to_do() -> None:
    assert find_one(replace(NODE, docstring=" \n")) == (
        "$.nodes[0].docstring, n1 mean in src/stats/descriptive.py: the docstring is empty, so nothing says what to "
        "generate (describe arguments, result and errors, or repeat the signature)"
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "file_path is missing"),
        ("../x.py", "leads out of its folder with .."),
        ("src/../../x.py", "leads out of its folder with .."),
        ("/etc/x.py", "is absolute"),
        ("~/x.py", "is absolute"),
        ("C:/x.py", "is absolute"),
        ("src\\x.py", "has a backslash"),
        ("src/x.txt", "is not a Python file"),
        ("src/stats", "is not a Python file"),
        ("src/conftest.py", "pytest obeys it"),
        ("pytest.ini", "pytest obeys it"),
        ("src/sitecustomize.py", "run by every Python"),
        ("src/UserCustomize.py", "run by every Python"),
        (".git/hooks/x.py", "belongs to git or cdd"),
        ("src/.CDD/x.py", "belongs to git or cdd"),
        ("venv/x.py", "interpreter of the tests"),
        ("src/my-lib/x.py", "cannot be imported"),
        ("src/class/x.py", "contains the keyword 'class'"),
        ("src/a b.py", "cannot be imported"),
        ("src//x.py", "cannot be imported"),
        ("src/a/./x.py", "cannot be imported"),
        ("src/x\n.py", "cannot be shown"),
        ("src/test_x.py", "for tests"),
        ("src/" + "x" * 201 + ".py", "too long"),
        ("src/" + "x/" * 300 + "x.py", "too long"),
        ("src/ﬁle.py", "Python reads the name 'ﬁle' as 'file'"),
    ],
)
def test_a_path_that_no_node_may_write_is_refused(path: str, message: str) -> None:
    assert message in find_one(replace(NODE, file_path=path))


@pytest.mark.parametrize(
    "path", ["src/stats.py", "stats/__init__.py", "src/__init__.py", "./src/a/b.py", "src/größe.py"]
)
def test_a_path_of_a_module_is_accepted(path: str) -> None:
    assert find(replace(NODE, file_path=path)) == []


@pytest.mark.parametrize("path", ["", "src", "src/stats/", "src/stats/descriptive.py"])
def test_a_composite_may_be_a_folder(path: str) -> None:
    assert find(replace(MODULE, file_path=path), replace(NODE, parent=MODULE.id)) == []


@pytest.mark.parametrize("name", ["", "a b", "lambda", "Reader.class", "Reader.", "1st", "f()", "a" * 201, "ﬁ"])
def test_a_name_that_is_none_in_python_is_refused(name: str) -> None:
    assert "$.nodes[0].name" in find_one(replace(NODE, name=name))


def test_methods_and_further_definitions_are_checked_as_the_first_one() -> None:
    assert find(replace(NODE, name="Reader.__init__")) == []
    other = Definition(name="x-y", file_path="/x.py", docstring="")
    places = [problem.place for problem in find(replace(NODE, also=(other,)))]
    assert places == [f"$.nodes[0].also[0].{key}" for key in ("name", "file_path", "docstring")]
    marked = Definition(name="median", file_path=NODE.file_path, docstring="", signature="def median(x): ...")
    assert find(replace(NODE, also=(marked,))) == []


def test_unknown_and_duplicate_ids_are_refused() -> None:
    node = replace(NODE, dependencies=(NodeId("n9"),), parent=NodeId("p"))
    twin = replace(NODE, name="median", place="$.nodes[1]")
    edge = Edge(source=NodeId("n1"), target=NodeId("n8"), type="call", place="$.edges[0]")
    texts = [str(problem).partition(" (")[0] for problem in find(node, twin, edges=(edge,))]
    assert texts == [
        "$.nodes[1].id, n1 median in src/stats/descriptive.py: the id is that of $.nodes[0], too",
        "$.nodes[0].dependencies, n1 mean in src/stats/descriptive.py: it needs 'n9', which is not a node",
        "$.nodes[0].parent, n1 mean in src/stats/descriptive.py: its parent 'p' is not a node",
        "$.edges[0], n8: the edge from 'n1' to 'n8' has an end that is not a node: 'n8'",
    ]


@pytest.mark.parametrize("id", ["", " ", "a\nb", "x" * 201])
def test_an_id_that_cannot_be_shown_is_refused(id: str) -> None:
    assert "$.nodes[0].id" in find_one(replace(NODE, id=NodeId(id)))


def test_one_name_twice_in_one_file_is_refused() -> None:
    other = replace(NODE, id=NodeId("n2"), file_path="stats/descriptive.py")
    assert "'n1' defines mean in this file, too" in find_one(NODE, other)


def test_names_that_differ_only_in_case_are_refused() -> None:
    other = replace(NODE, id=NodeId("n2"), file_path="src/Stats/other.py")
    assert "'Stats' and 'stats' differ only in case" in find_one(NODE, other)


@pytest.mark.parametrize(
    ("path", "message"),
    [("src/json/x.py", "standard library"), ("io.py", "standard library"), ("pytest/x.py", "tests")],
)
def test_a_top_level_name_that_hides_another_module_is_refused_once(path: str, message: str) -> None:
    nodes = (replace(NODE, file_path=path), replace(NODE, id=NodeId("n2"), name="median", file_path=path))
    assert message in find_one(*nodes)


def test_only_the_top_level_after_the_layout_counts() -> None:
    graph = Graph(nodes=(replace(NODE, file_path="src/json/x.py"),))
    assert find_problems(graph, lambda _: lambda path: path.replace("src/", "src/lib/")) == ()


def test_a_layout_never_sees_a_path_that_was_refused() -> None:
    def lay_out(graph: Graph) -> None:
        raise AssertionError(graph)

    assert len(find_problems(Graph(nodes=(replace(NODE, file_path="../x.py"),)), lay_out)) == 1  # type: ignore[arg-type]


def test_every_cycle_is_a_problem() -> None:
    ids = [NodeId(id) for id in "abcd"]
    needs = {"a": "b", "b": "a", "c": "d", "d": "c"}
    nodes = [replace(NODE, id=id, name=f"f_{id}", dependencies=(NodeId(needs[id]),)) for id in ids]
    assert [problem.message for problem in find(*nodes)] == [
        "nodes need each other in a circle: f_a -> f_b -> f_a",
        "nodes need each other in a circle: f_c -> f_d -> f_c",
    ]


def test_contradictions_between_contents_and_dependencies_are_refused() -> None:
    first = replace(MODULE, parent=NodeId("p"), place="$.nodes[1]")
    second = replace(MODULE, id=NodeId("p"), name="pack", parent=MODULE.id, place="$.nodes[2]")
    assert [problem.message for problem in find(NODE, first, second)] == [
        "nodes contain each other: stats -> pack -> stats"
    ]
    inner = replace(NODE, parent=MODULE.id, dependencies=(MODULE.id,))
    assert "it needs 'm', which contains it" in find_one(MODULE, inner)
    assert "is a leaf, which contains nothing" in find_one(
        NODE, replace(NODE, id=NodeId("n2"), name="median", parent=NODE.id)
    )


def test_a_graph_without_leaves_is_refused() -> None:
    assert "the graph has no nodes" in find_one()
    assert "no nodes that could be generated" in find_one(MODULE)


def test_an_error_lists_the_first_problems() -> None:
    nodes = [replace(NODE, id=NodeId(f"n{i}"), name=f"f{i}", docstring="", place=f"$.nodes[{i}]") for i in range(60)]
    error = make_error(tuple(find(*nodes)), path="graph.json")
    assert error.happened.startswith("graph.json is not valid:\n  $.nodes[0].docstring, n0 f0 in ")
    assert error.happened.endswith("\n  and 10 more problems")


def test_deep_nesting_is_refused_before_it_costs_time() -> None:
    ids = [NodeId(f"m{number}") for number in range(20_000)]
    nodes = [
        replace(MODULE, id=id, parent=ids[number - 1], place=f"$.nodes[{number}]") for number, id in enumerate(ids)
    ]
    nodes[0] = replace(nodes[0], parent=None)
    assert "$.nodes[51].parent, m51 stats in src/stats: more than 50 composites" in find_one(*nodes)


def test_modules_that_need_too_many_modules_are_refused() -> None:
    ids = [NodeId(f"m{number}") for number in range(3)]
    modules = [replace(MODULE, id=id, dependencies=tuple(ids[:number])) for number, id in enumerate(ids)]
    leaves = [replace(NODE, id=NodeId(f"n{i}"), name=f"f{i}", parent=ids[i % 3]) for i in range(2_700)]
    assert "the leaves need 2430000 others" in find_one(*modules, *leaves)
    assert find(*modules, *leaves[:2_400]) == []


def test_checking_and_ordering_cost_at_most_five_times_what_graphlib_takes() -> None:
    source = random.Random(1)
    needs = [{NodeId(f"n{source.randrange(i):05}") for _ in range(3)} if i else set() for i in range(10_000)]
    nodes = tuple(
        replace(NODE, id=NodeId(f"n{i:05}"), name=f"f{i}", dependencies=tuple(each), subgraph_id=f"s{i // 200}")
        for i, each in enumerate(needs)
    )

    def measure_s() -> tuple[float, float]:
        start = time.process_time()
        list(TopologicalSorter({node.id: node.dependencies for node in nodes}).static_order())
        middle = time.process_time()
        graph = Graph(nodes=nodes)
        assert find_problems(graph) == ()
        order_subgraphs(graph)
        return middle - start, time.process_time() - middle

    theirs, ours = map(min, zip(*(measure_s() for _ in range(5)), strict=True))
    assert ours < 5 * theirs
