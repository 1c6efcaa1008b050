import json
import os
from importlib.resources import files
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.tickets.graph import Definition, Graph, Node, NodeId, order_subgraphs
from cdd_agent.tickets.graph_file import GraphShape, encode_graph, load_graph, parse_graph, save_graph

SEED = {
    "nodes": [
        {
            "id": "node_001",
            "name": "calculate_mean",
            "type": "function",
            "node_type": "leaf",
            "file_path": "src/stats/descriptive.py",
            "docstring": "Calculate arithmetic mean of numbers.\n\nArgs:\n    numbers: List of floats",
            "dependencies": ["node_002"],
            "subgraph_id": "stats",
        },
        {
            "id": "node_002",
            "name": "check_numbers",
            "type": "function",
            "node_type": "leaf",
            "file_path": "src/stats/checks.py",
            "docstring": "Refuse an empty list.",
            "dependencies": [],
            "subgraph_id": "stats",
        },
    ],
    "edges": [{"source": "node_001", "target": "node_002", "type": "function_call"}],
    "metadata": {"phase": 3, "timestamp": "2026-02-07T10:30:00Z", "nl_spec_path": "docs/nl_spec.md"},
}


def parse(document: object) -> Graph:
    graph, notices = parse_graph(json.dumps(document), path="graph.json")
    assert notices == ()
    return graph


def make_node(id: str, **more: object) -> dict[str, object]:
    return {"id": id, "name": id, "file_path": "src/lib/m.py", "docstring": "Do it.", "type": "function", **more}


def order(graph: Graph) -> list[str]:
    return [id for group in order_subgraphs(graph) for id in group.nodes]


def test_the_usual_form_is_read() -> None:
    graph = parse(SEED)
    assert order(graph) == ["node_002", "node_001"]
    assert graph.nodes[0].place == "$.nodes[0]"
    assert graph.metadata == SEED["metadata"]


@pytest.mark.parametrize("type", ["function_call", "calls", "INVOCATION", "imports", "inherits", "whatever"])
def test_the_source_of_an_edge_needs_the_target(type: str) -> None:
    edge = {"source": "a", "target": "b", "type": type}
    assert order(parse({"nodes": [make_node("a"), make_node("b")], "edges": [edge]})) == ["b", "a"]


@pytest.mark.parametrize("type", ["data_flow", "DATA_FLOW", "data flow", "ordering", "ORDERING"])
def test_a_flow_of_data_runs_to_the_node_that_needs_it(type: str) -> None:
    edge = {"source": "b", "target": "a", "type": type}
    graph = parse({"nodes": [make_node("a"), make_node("b")], "edges": [edge]})
    assert order(graph) == ["b", "a"]
    assert graph.nodes[0].dependencies == ("b",)
    assert json.loads(encode_graph(graph))["edges"] == [edge]


def test_dependencies_count_where_an_edge_contradicts_them() -> None:
    edge = {"source": "b", "target": "a", "type": "function_call"}
    document = {"nodes": [make_node("a", dependencies=["b"]), make_node("b")], "edges": [edge]}
    graph, (notice,) = parse_graph(json.dumps(document), path="graph.json")
    assert str(notice) == "$.edges[0]: 'b' needs 'a' by this edge, but 'a' needs 'b'; that counts"
    assert order(graph) == ["b", "a"]
    assert parse_graph(encode_graph(graph).decode(), path="graph.json") == (graph, ())


def test_a_call_counts_where_a_flow_of_data_contradicts_it() -> None:
    edges = [{"source": "a", "target": "b", "type": "data_flow"}, {"source": "a", "target": "b", "type": "invokes"}]
    graph, notices = parse_graph(json.dumps({"nodes": [make_node("a"), make_node("b")], "edges": edges}), path="g")
    assert order(graph) == ["b", "a"]
    assert [notice.place for notice in notices] == ["$.edges[0]"]


def test_the_dialect_with_ids_in_the_names_of_keys_is_read() -> None:
    document = {
        "nodes": {
            "m": {"name": "stats", "level": "MODULE", "node_type": "FOLDER_AUGMENTED", "folder_path": "src/stats"},
            "a": make_node("a", node_type="FUNCTION_AUGMENTED", parent_id="m", interface_type="FUNCTION", type=None),
            "b": make_node("b", node_type="FUNCTION_AUGMENTED", level="FEATURE"),
        },
        "edges": [
            {"source_id": "a", "target_id": "b", "edge_type": "INVOCATION"},
            {"source_id": "m", "target_id": "b", "edge_type": "HIERARCHY"},
        ],
    }
    graph, notices = parse_graph(json.dumps(document), path="graph.json")
    assert [node.node_type for node in graph.nodes] == ["composite", "leaf", "leaf"]
    assert [node.parent for node in graph.nodes] == [None, "m", "m"]
    assert order(graph) == ["b", "a"]
    assert [str(notice) for notice in notices] == [
        "$.nodes['m']: the key 'level' of 2 nodes is kept and written again, but not used",
        "$.nodes['m'].node_type, m stats in src/stats: node_type 'FOLDER_AUGMENTED' is read as composite",
        "$.nodes['a'].node_type, a a in src/lib/m.py: node_type 'FUNCTION_AUGMENTED' is read as leaf",
    ]
    assert parse_graph(encode_graph(graph).decode(), path="graph.json")[0] == graph


def test_the_dialect_with_relations_is_read() -> None:
    meta = {"type_name": "function", "path": "lib/m.py:load", "description": "Load a file.", "content": ""}
    document = {
        "repo_name": "my lib",
        "nodes": [
            {"id": "r", "name": "my lib", "node_type": "repo", "meta": {"type_name": "directory", "path": "."}},
            {"id": "a", "name": "load", "node_type": "feature", "meta": meta},
            {"id": "b", "name": "save", "node_type": "feature", "meta": meta | {"path": "lib/n.py"}},
        ],
        "edges": [
            {"src": "r", "dst": "a", "relation": "composes"},
            {"src": "r", "dst": "b", "relation": "contains"},
            {"src": "a", "dst": "b", "relation": "invokes"},
        ],
    }
    graph, _ = parse_graph(json.dumps(document), path="graph.json")
    assert [(node.node_type, node.parent, node.file_path) for node in graph.nodes] == [
        ("composite", None, ""),
        ("leaf", "r", "lib/m.py"),
        ("leaf", "r", "lib/n.py"),
    ]
    assert graph.metadata == {"name": "my lib"}
    assert order(graph) == ["b", "a"]


def test_a_parent_counts_where_an_edge_names_another() -> None:
    nodes = [{"id": id, "name": id, "node_type": "composite"} for id in ("m", "n")]
    edges = [{"source": each, "target": "a", "type": "contains"} for each in ("m", "n", "a")]
    graph, notices = parse_graph(json.dumps({"nodes": [*nodes, make_node("a", parent="m")], "edges": edges}), path="g")
    assert graph.nodes[2].parent == "m"
    assert [notice.place for notice in notices] == ["$.edges[1]", "$.edges[2]"]


def test_all_that_others_wrote_is_written_again() -> None:
    document = {**SEED, "nodes": [make_node("a", level=3, tags=["x"])], "edges": [], "version": {"major": 2}}
    graph, notices = parse_graph(json.dumps(document), path="graph.json")
    assert [notice.message for notice in notices] == [
        f"the key '{key}' of 1 node is kept and written again, but not used" for key in ("level", "tags")
    ]
    written = json.loads(encode_graph(graph))
    assert (written["nodes"][0]["level"], written["nodes"][0]["tags"]) == (3, ["x"])
    assert (written["version"], written["metadata"], written["schema"]) == ({"major": 2}, SEED["metadata"], "cdd/1")


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    ids = draw(st.lists(TEXTS, unique=True, min_size=1, max_size=5))
    nodes = []
    for id in ids:
        is_leaf = draw(st.booleans())
        also = [Definition(name=draw(TEXTS), file_path="b.py", docstring=draw(TEXTS))] if is_leaf else []
        nodes.append(
            Node(
                id=NodeId(id),
                name=draw(TEXTS),
                type=draw(TEXTS.filter(bool)),
                node_type="leaf" if is_leaf else "composite",
                file_path=draw(TEXTS),
                docstring=draw(TEXTS),
                signature=draw(TEXTS),
                also=tuple(also),
                dependencies=tuple(dict.fromkeys(map(NodeId, draw(st.lists(st.sampled_from(ids)))))),
                subgraph_id=draw(TEXTS),
                parent=draw(st.none() | st.sampled_from([*map(NodeId, filter(None, ids)), NodeId("p")])),
                example=draw(TEXTS),
                requirements=tuple(draw(st.lists(TEXTS, max_size=2))),
                code=draw(TEXTS),
                further={"own key": draw(st.integers(-9, 9))},
            )
        )
    return Graph(nodes=tuple(nodes), metadata={"name": draw(TEXTS)}, further={"more": [draw(TEXTS)]})


@given(graphs())
def test_what_is_written_is_read_back(graph: Graph) -> None:
    assert parse_graph(encode_graph(graph).decode(), path="graph.json")[0] == graph
    jsonschema.validate(json.loads(encode_graph(graph)), json.loads(read_schema()))


def read_schema() -> bytes:
    return files("cdd_agent.tickets").joinpath("graph.schema.json").read_bytes()


def test_the_schema_that_ships_is_that_of_the_reader() -> None:
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "cdd planning graph"}
    made = msgspec.json.format(msgspec.json.encode(about | msgspec.json.schema(GraphShape)), indent=2) + b"\n"
    assert read_schema() == made
    jsonschema.validate(SEED, json.loads(made))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("[]", 'a graph is an object with "nodes", a list'),
        ('{"nodes": 3}', 'a graph is an object with "nodes", a list'),
        ('{"nodes": [],\n "edges": [}', "line 2: JSON is malformed: invalid character"),
        ('{"nodes": [\n', "line 2: Input data was truncated"),
        ('{"nodes": [],\n"x": NaN}', "line 2: NaN is not a number in JSON (write null, or a number)"),
        ('{"nodes": [], "x": -Infinity}', "line 1: Infinity is not a number in JSON"),
        ('{"nodes": [], "nodes": []}', "the key 'nodes' occurs twice"),
        ('{"nodes": [], "x": ' + "[" * 150 + "]" * 150 + "}", "it is nested too deeply; 100 levels"),
        ("[" * 100_000, "it is nested too deeply; 100 levels"),
        ('{"nodes": [], "schema": "cdd/9"}', "the schema is 'cdd/9', and this version reads 'cdd/1'"),
        ('{"nodes": [], "edges": {}}', "$.edges: edges is a list"),
        ('{"nodes": [], "metadata": []}', "metadata is an object"),
        ('{"nodes": [1]}', "$.nodes[0]: a node is an object"),
        ('{"nodes": [{"id": "a"}]}', "$.nodes[0], a: Object missing required field `name`"),
        ('{"nodes": [{"id": "a", "name": 1}]}', "$.nodes[0].name, a 1: Expected `str`, got `int`"),
        ('{"nodes": [], "edges": [{"source": "a"}]}', "$.edges[0]: Object missing required field `target`"),
    ],
)
def test_a_file_that_is_no_graph_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_graph(text, path="graph.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("graph.json is not valid:\n")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(SEED), encoding="utf-16")
    with pytest.raises(DocumentError, match="it is UTF-16 or UTF-32 text, not UTF-8"):
        load_graph(path)
    path.write_text(json.dumps(SEED), encoding="utf-16-le")
    with pytest.raises(DocumentError, match="it is UTF-16 or UTF-32 text, not UTF-8"):
        load_graph(path)
    with pytest.raises(DocumentError, match="It is a folder"):
        load_graph(tmp_path)
    with pytest.raises(DocumentError, match="pipe or a device"):
        load_graph(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match="pipe or a device"):
        load_graph(tmp_path / "pipe")
    with pytest.raises(UsageError, match="does not exist"):
        load_graph(tmp_path / "none.json")
    with path.open("wb") as stream:
        stream.truncate(200_000_000)
    with pytest.raises(DocumentError, match="at most 100000000 bytes"):
        load_graph(path)


def test_a_saved_graph_is_loaded_unless_it_has_problems(tmp_path: Path) -> None:
    graph = parse(SEED)
    save_graph(graph, tmp_path / "docs" / "rpg.json")
    assert load_graph(tmp_path / "docs" / "rpg.json") == (graph, ())
    save_graph(Graph(nodes=()), tmp_path / "graph.json")
    with pytest.raises(DocumentError, match="the graph has no nodes"):
        load_graph(tmp_path / "graph.json")
