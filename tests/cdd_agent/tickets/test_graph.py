import random
import time
from graphlib import TopologicalSorter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import UsageError
from cdd_agent.tickets.graph import (
    Graph,
    Group,
    ImportCycle,
    Node,
    NodeId,
    find_closure,
    find_cycles,
    find_dependents,
    find_ends,
    find_import_cycles,
    find_needs,
    format_cycle,
    order_subgraphs,
)


def leaf(id: str, *needs: str, subgraph: str = "s", parent: str | None = None, path: str = "src/m.py") -> Node:
    return Node(
        id=NodeId(id),
        name=id.lower(),
        type="function",
        node_type="leaf",
        file_path=path,
        docstring="Do it.",
        dependencies=tuple(map(NodeId, needs)),
        subgraph_id=subgraph,
        parent=None if parent is None else NodeId(parent),
    )


def composite(id: str, *needs: str, subgraph: str = "", parent: str | None = None) -> Node:
    return Node(
        id=NodeId(id),
        name=id.lower(),
        type="module",
        node_type="composite",
        file_path="",
        docstring="",
        dependencies=tuple(map(NodeId, needs)),
        subgraph_id=subgraph,
        parent=None if parent is None else NodeId(parent),
    )


def order(*nodes: Node) -> list[str]:
    return [id for group in order_subgraphs(Graph(nodes=nodes)) for id in group.nodes]


def test_topological_sort_linear_chain() -> None:
    """B needs A, and C needs B: a node comes after what it needs, although arrows are often drawn the other way."""
    assert order(leaf("C", "B"), leaf("B", "A"), leaf("A")) == ["A", "B", "C"]


def test_topological_sort_diamond() -> None:
    assert order(leaf("D", "C", "B"), leaf("C", "A"), leaf("B", "A"), leaf("A")) == ["A", "B", "C", "D"]


def test_cycle_detection() -> None:
    with pytest.raises(UsageError, match=r"circle: a -> b -> a\."):
        order(leaf("A", "B"), leaf("B", "A"), leaf("C"))


def test_a_subgraph_follows_the_ones_it_needs_and_is_not_interleaved_with_others() -> None:
    nodes = (leaf("1", "9", subgraph="a"), leaf("2", subgraph="b"), leaf("9", subgraph="z"), leaf("0", subgraph="b"))
    assert order_subgraphs(Graph(nodes=nodes)) == (
        Group(ids=("b",), nodes=(NodeId("0"), NodeId("2"))),
        Group(ids=("z",), nodes=(NodeId("9"),)),
        Group(ids=("a",), nodes=(NodeId("1"),)),
    )


def test_subgraphs_that_need_each_other_are_one_group() -> None:
    nodes = (leaf("1", "2", subgraph="a"), leaf("2", "3", subgraph="b"), leaf("3", subgraph="a"))
    (group,) = order_subgraphs(Graph(nodes=nodes))
    assert (group.ids, group.nodes, group.name) == (("a", "b"), ("3", "2", "1"), "a and b")


def test_a_composite_is_complete_after_everything_in_it() -> None:
    nodes = (leaf("A", "M"), composite("M"), leaf("Z", parent="M"), leaf("Y", parent="M"))
    assert order(*nodes) == ["Y", "Z", "A"]
    assert find_needs(Graph(nodes=nodes))[NodeId("A")] == ("Z", "Y")


def test_what_a_composite_needs_everything_in_it_needs() -> None:
    nodes = (composite("M", "Z"), composite("N", parent="M"), leaf("A", parent="N"), leaf("Z"))
    assert order(*nodes) == ["Z", "A"]
    assert find_closure(Graph(nodes=nodes), NodeId("A")) == ("A", "Z")
    assert find_dependents(Graph(nodes=nodes), NodeId("Z")) == ("A",)


def test_a_composite_that_lists_its_contents_is_no_cycle() -> None:
    nodes = (composite("M", "A"), leaf("A", parent="M"), leaf("B", "A", parent="M"))
    assert order(*nodes) == ["A", "B"]


def test_a_cycle_through_composites_names_them_and_not_their_contents() -> None:
    nodes = (
        *(composite("M", "N"), composite("N", "M")),
        *(leaf("A", parent="M"), leaf("B", parent="M"), leaf("C", parent="N")),
    )
    assert find_cycles(Graph(nodes=nodes)) == (("M", "N"),)


def test_a_cycle_from_a_leaf_through_a_composite_names_both() -> None:
    nodes = (leaf("A", "M"), composite("M"), leaf("B", "A", parent="M"))
    assert find_cycles(Graph(nodes=nodes)) == (("A", "M", "B"),)


def test_each_dependency_on_a_cycle_is_in_a_cycle_that_is_listed() -> None:
    nodes = (leaf("A", "B", "C"), leaf("B", "A"), leaf("C", "D"), leaf("D", "A"), leaf("E", "E"), leaf("F", "A"))
    assert set(find_cycles(Graph(nodes=nodes))) == {("A", "B"), ("A", "C", "D"), ("E",)}


def test_a_long_cycle_is_shortened_and_equal_names_get_their_ids() -> None:
    ring = Graph(nodes=tuple(leaf(f"n{i:05}", f"n{(i + 1) % 20_000:05}") for i in range(20_000)))
    (cycle,) = find_cycles(ring)
    assert len(cycle) == 20_000
    assert format_cycle(ring, cycle).count("->") == 13
    assert "-> ... 19988 more ... ->" in format_cycle(ring, cycle)
    twins = Graph(nodes=(leaf("X", "x"), leaf("x", "X")))
    assert format_cycle(twins, find_cycles(twins)[0]) == "x (X) -> x (x) -> x (X)"


def test_circles_of_composites_do_not_hang() -> None:
    nodes = (composite("M", parent="N"), composite("N", parent="M"), leaf("A", "M", parent="M"))
    assert find_cycles(Graph(nodes=nodes)) == ()
    assert order(*nodes) == ["A"]


def test_a_leaf_without_subgraph_is_in_that_of_its_composite_or_its_folder() -> None:
    nodes = (
        *(composite("P", subgraph="stats"), composite("M", parent="P"), composite("N")),
        *(leaf("A", subgraph="", parent="M"), leaf("B", subgraph="", parent="N")),
        *(leaf("C", subgraph="", path="src/lib/io/csv.py"), leaf("D", subgraph="", path="src/lib/cli.py")),
    )
    named = Graph(nodes=tuple(each for each in nodes if each.parent is None or each.id == "M"))
    assert dict(Graph(nodes=nodes).subgraphs) == {"A": "stats", "B": "N", "C": "lib", "D": "lib"}
    assert dict(named.subgraphs) == {"C": "io", "D": "lib"}


def test_entries_need_nothing_of_their_subgraph_and_nothing_needs_the_exits() -> None:
    nodes = (leaf("A", "O"), leaf("B", "A"), leaf("C", "B"), leaf("D"), leaf("O", subgraph="o"))
    assert find_ends(Graph(nodes=nodes), ("s",)) == (("A", "D"), ("C", "D"))


def test_circular_imports_are_named_with_the_dependency_that_closes_them() -> None:
    nodes = (
        leaf("A", path="a.py"),
        leaf("B", "A", path="b.py"),
        leaf("C", "B", path="a.py"),
        leaf("D", "C", path="d.py"),
    )
    assert find_import_cycles(Graph(nodes=nodes), lambda path: path.removesuffix(".py")) == (
        ImportCycle(modules=("b", "a"), source=NodeId("C"), target=NodeId("B")),
    )


@given(st.randoms(use_true_random=False))
def test_any_graph_is_ordered_after_its_needs_whatever_the_order_of_the_file(source: random.Random) -> None:
    ids = [f"n{number}" for number in range(12)]
    nodes = [composite(id, *source.sample(ids, 1), parent=source.choice(ids)) for id in ids[:4]]
    nodes += [
        leaf(
            id,
            *source.sample(ids[4 : 4 + number] or ["n4"], 1 if number else 0),
            subgraph=source.choice("abc"),
            parent=source.choice((None, *ids[:4])),
        )
        for number, id in enumerate(ids[4:])
    ]
    graph = Graph(nodes=tuple(nodes))
    cycles = find_cycles(graph)
    if cycles:
        for cycle in cycles:
            assert len(set(cycle)) == len(cycle)
        with pytest.raises(UsageError):
            order_subgraphs(graph)
        return
    groups = order_subgraphs(graph)
    position = {id: number for number, id in enumerate(id for group in groups for id in group.nodes)}
    assert position.keys() == {node.id for node in graph.leaves}
    for id, needs in find_needs(graph).items():
        assert all(position[each] < position[id] for each in needs)
        assert {id, *needs} <= set(find_closure(graph, id))
    source.shuffle(nodes)
    assert order_subgraphs(Graph(nodes=tuple(nodes))) == groups


def test_ordering_costs_at_most_twice_what_graphlib_takes() -> None:
    source = random.Random(1)
    needs = {f"n{i:05}": [f"n{source.randrange(i):05}" for _ in range(3)] if i else [] for i in range(10_000)}
    nodes = tuple(leaf(id, *dict.fromkeys(needed), subgraph=f"s{int(id[1:]) // 200}") for id, needed in needs.items())

    def measure_s() -> tuple[float, float]:
        start = time.process_time()
        list(TopologicalSorter({node.id: node.dependencies for node in nodes}).static_order())
        middle = time.process_time()
        order_subgraphs(Graph(nodes=nodes))
        return middle - start, time.process_time() - middle

    theirs, ours = map(min, zip(*(measure_s() for _ in range(5)), strict=True))
    assert ours < 2 * theirs
