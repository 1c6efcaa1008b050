"""Reads and writes the JSON of a planning graph. ``docs/reference/graph.md`` describes it.

Three dialects are read, and the first is written:

- ``source``, ``target``, ``type`` of edges; ``node_type`` is leaf or composite.
- ``source_id``, ``target_id``, ``edge_type``; ``parent_id``; ``node_type`` is FUNCTION_AUGMENTED and others.
- ``src``, ``dst``, ``relation``; ``meta`` of a node has path, type and description.

A file can come from anywhere, so its size, depth and counts are limited.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from cdd_agent.errors import DocumentError, Problem
from cdd_agent.storage import read_text, write_atomic
from cdd_agent.tickets.graph import Definition, Edge, Graph, Node, NodeId, NodeType
from cdd_agent.tickets.graph_problems import GraphProblem, MapPath, describe_node, find_problems, make_error
from cdd_agent.untrusted import documents

SCHEMA = "cdd/1"
LIMIT_BYTES = 100_000_000
MOST_NODES = 200_000
MOST_EDGES = 2_000_000
_MOST_LEVELS = 100

_CONTAINS = frozenset({"hierarchy", "hierarchical", "composes", "contains", "parent_of"})
"""Types of edges whose source contains the target."""
_FORWARD = frozenset(
    {"data_flow", "dataflow", "feeds", "flow", "order", "ordering", "precedes", "produces", "before", "temporal"}
)
"""Types of edges whose arrow runs from what comes first: the target needs the source."""
_LEAF_TYPES = frozenset({"class", "function", "function_augmented", "method", "async_function", "property"})
_COMPOSITE_TYPES = frozenset(
    {"component", "composite", "directory", "file", "file_augmented", "folder", "folder_augmented", "functionality"}
    | {"module", "package", "repo", "repository", "subgraph"}
)

_Text: TypeAlias = str | None
_Id: TypeAlias = str | int


class AlsoShape(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A further definition of a leaf, which is written with it because they need each other."""

    name: str
    file_path: str = ""
    docstring: str = ""
    signature: str = ""


class NodeShape(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A function, class or method to generate (leaf), or a module or package that contains some (composite)."""

    id: _Id
    name: str
    type: str = ""
    node_type: str = ""
    file_path: _Text = None
    docstring: _Text = None
    signature: _Text = None
    dependencies: list[_Id] | None = None
    subgraph_id: _Id | None = None
    parent: _Id | None = None
    example: _Text = None
    requirements: list[str] | None = None
    code: _Text = None
    also: list[AlsoShape] | None = None


class EdgeShape(msgspec.Struct, kw_only=True):
    """An arrow. For a call or an import, the source needs the target; the reference lists the other types."""

    source: _Id
    target: _Id
    type: str = "dependency"


class GraphShape(msgspec.Struct, kw_only=True):
    """A planning graph."""

    nodes: Annotated[list[NodeShape], msgspec.Meta(min_length=1)]
    schema: str = SCHEMA
    edges: list[EdgeShape] = []
    metadata: dict[str, Annotated[object, msgspec.Meta(extra_json_schema={"description": "Any value; kept."})]] = {}


_Shape = TypeVar("_Shape", NodeShape, EdgeShape)
_NODE_KEYS = frozenset(NodeShape.__struct_fields__)
_EDGE_KEYS = (("source", "source_id", "src"), ("target", "target_id", "dst"), ("type", "edge_type", "relation"))
"""The names of a key in the three dialects."""


def load_graph(path: Path, lay_out: Callable[[Graph], MapPath] | None = None) -> tuple[Graph, tuple[GraphProblem, ...]]:
    """Return the graph in a file, and remarks on what was read in another way than it is written.

    Raises ``DocumentError`` with all problems of a graph that cannot be generated. ``lay_out`` is that of
    ``find_problems``.
    """
    graph, notices = read_graph(path)
    if problems := find_problems(graph, lay_out):
        raise make_error(problems, path=str(path))
    return graph, notices


def read_graph(path: Path) -> tuple[Graph, tuple[GraphProblem, ...]]:
    """Return the graph in a file with all its problems, as ``load_graph`` does without."""
    hint = "check the path; cdd schema graph describes the format"
    return parse_graph(read_text(path, limit_bytes=LIMIT_BYTES, missing_hint=hint), path=str(path))


def save_graph(graph: Graph, path: Path) -> None:
    """Write a graph to a file."""
    write_atomic(path, encode_graph(graph))


def parse_graph(text: str, *, path: str) -> tuple[Graph, tuple[GraphProblem, ...]]:
    """Return the graph in ``text``, and remarks; raise ``DocumentError`` for anything but JSON of the right form."""
    document = _load_json(text, path)
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list | dict):
        message = 'a graph is an object with "nodes", a list'
        raise DocumentError(path, (Problem(line=0, message=message),), hint="cdd schema graph describes the format")
    schema = document.get("schema", SCHEMA)
    if schema != SCHEMA:
        message = f"the schema is {schema!r}, and this version reads {SCHEMA!r}"
        raise DocumentError(path, (Problem(line=0, message=message),), hint=f'use that version of cdd, or "{SCHEMA}"')
    edges = [] if document.get("edges") is None else document["edges"]
    problems = [*_check_counts(document["nodes"], edges)]
    reader = _GraphReader()
    if not problems:
        items = document["nodes"].items() if isinstance(document["nodes"], dict) else enumerate(document["nodes"])
        for key, item in items:
            reader.read_node(item, place=f"$.nodes[{key!r}]" if isinstance(key, str) else f"$.nodes[{key}]", key=key)
        for number, item in enumerate(edges):
            reader.read_edge(item, place=f"$.edges[{number}]")
        problems = reader.problems
    metadata = {} if document.get("metadata") is None else document["metadata"]
    if not isinstance(metadata, dict):
        problems.append(GraphProblem(message="metadata is an object", place="$.metadata"))
    if problems:
        raise make_error(tuple(problems), path=path)
    if "name" not in metadata and isinstance(name := document.get("repo_name"), str):
        metadata = {"name": name, **metadata}
    further = {key: value for key, value in document.items() if key not in GraphShape.__struct_fields__}
    graph = reader.connect(metadata=metadata, further=further)
    return graph, tuple(reader.notices)


def encode_graph(graph: Graph) -> bytes:
    """Return the file of a graph, which is read back as the same graph."""
    document = {
        "schema": SCHEMA,
        "nodes": [encode_node(node) for node in graph.nodes],
        "edges": [_encode_edge(edge) for edge in graph.edges],
        "metadata": dict(graph.metadata),
        **graph.further,
    }
    return msgspec.json.format(documents.encode_json(document), indent=2) + b"\n"


def encode_node(node: Node) -> dict[str, object]:
    """Return a node as JSON."""
    fields: dict[str, object] = {
        "id": node.id,
        "name": node.name,
        "type": node.type,
        "node_type": node.node_type,
        "file_path": node.file_path,
        "docstring": node.docstring,
        "dependencies": list(node.dependencies),
        "subgraph_id": node.subgraph_id,
    }
    optional: dict[str, object] = {
        "signature": node.signature,
        "parent": node.parent,
        "example": node.example,
        "requirements": list(node.requirements),
        "code": node.code,
        "also": [_encode_definition(each) for each in node.also],
    }
    return fields | {key: value for key, value in optional.items() if value} | dict(node.further)


def _encode_definition(definition: Definition) -> dict[str, str]:
    fields = {"name": definition.name, "file_path": definition.file_path, "docstring": definition.docstring}
    return fields | ({"signature": definition.signature} if definition.signature else {})


def _encode_edge(edge: Edge) -> dict[str, object]:
    ends = (edge.target, edge.source) if _normalize(edge.type) in _FORWARD else (edge.source, edge.target)
    return {"source": ends[0], "target": ends[1], "type": edge.type}


_BYTE = re.compile(r" \(byte (\d+)\)$")
_BAD_NUMBERS = ("NaN", "Infinity")


def _load_json(text: str, path: str) -> object:
    """Return the value; the first parser knows the place of an error, the second one finds duplicate keys."""
    data = text.removeprefix("\ufeff").encode("utf-8", "replace")
    try:
        _check_depth(msgspec.json.decode(data))
        return documents.load_json(data.decode("utf-8"))
    except RecursionError:
        problem = Problem(line=0, message=f"it is nested too deeply; {_MOST_LEVELS} levels are allowed")
    except msgspec.DecodeError as error:
        problem = _locate(str(error), data)
    except documents.UnfitError as error:
        problem = Problem(line=error.line, message=str(error), hint=error.hint)
    except ValueError as error:
        problem = Problem(line=0, message=f"it is not JSON: {error}")
    raise DocumentError(path, (problem,), hint="correct the file; cdd schema graph describes the format")


def _locate(message: str, data: bytes) -> Problem:
    found = _BYTE.search(message)
    offset = int(found[1]) if found else len(data)
    line = data.count(b"\n", 0, offset) + 1
    if b"\0" in data[:4]:
        return Problem(line=0, message="it is UTF-16 or UTF-32 text, not UTF-8", hint="save it as UTF-8 text")
    if not data.strip():
        return Problem(line=0, message="the file is empty")
    if number := next((each for each in _BAD_NUMBERS if data.startswith(each.encode(), offset)), None):
        return Problem(line=line, message=f"{number} is not a number in JSON", hint="write null, or a number")
    return Problem(line=line, message=_BYTE.sub("", message))


def _check_depth(document: object) -> None:
    waiting = [(document, 1)]
    while waiting:
        value, level = waiting.pop()
        if level > _MOST_LEVELS:
            raise documents.UnfitError(f"it is nested too deeply; {_MOST_LEVELS} levels are allowed")
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [(each, level + 1) for each in inner if isinstance(each, dict | list)]


def _check_counts(nodes: object, edges: object) -> Iterator[GraphProblem]:
    assert isinstance(nodes, list | dict)
    if len(nodes) > MOST_NODES:
        yield GraphProblem(message=f"it has {len(nodes)} nodes; at most {MOST_NODES} are read", place="$.nodes")
    if not isinstance(edges, list):
        yield GraphProblem(message="edges is a list", place="$.edges")
    elif len(edges) > MOST_EDGES:
        yield GraphProblem(message=f"it has {len(edges)} edges; at most {MOST_EDGES} are read", place="$.edges")


def _normalize(word: str) -> str:
    return re.sub(r"[\s-]+", "_", word.strip().lower())


class _GraphReader:
    """Collects the nodes and edges of a document, and what is wrong or odd about them."""

    def __init__(self) -> None:
        """Begin without nodes."""
        self.problems: list[GraphProblem] = []
        self.notices: list[GraphProblem] = []
        self._nodes: list[tuple[NodeShape, dict[str, object], str]] = []
        """Shape, further keys and place."""
        self._edges: list[Edge] = []
        """As they are drawn."""
        self._unknown: dict[tuple[str, str], tuple[int, str]] = {}
        """``node`` or ``edge``, and key -> the count and the first place."""

    def read_node(self, item: object, *, place: str, key: str | int) -> None:
        """Add a node. ``key``: in an object of nodes, the id of one without ``id``."""
        if not isinstance(item, dict):
            self.problems.append(GraphProblem(message="a node is an object", place=place))
            return
        fields = {"id": key, **item} if isinstance(key, str) else dict(item)
        fields = _translate(fields)
        shape = self._convert(fields, NodeShape, place=place)
        if shape is not None:
            further = {name: value for name, value in fields.items() if name not in _NODE_KEYS}
            self._nodes.append((shape, further, place))
            self._count_unknown("node", further, place=place)

    def read_edge(self, item: object, *, place: str) -> None:
        """Add an edge."""
        if not isinstance(item, dict):
            self.problems.append(GraphProblem(message="an edge is an object", place=place))
            return
        fields = {names[0]: item[name] for names in _EDGE_KEYS for name in reversed(names) if name in item}
        shape = self._convert(fields, EdgeShape, place=place)
        if shape is not None:
            ends = NodeId(str(shape.source)), NodeId(str(shape.target))
            self._edges.append(Edge(source=ends[0], target=ends[1], type=shape.type, place=place))
            known = {name for names in _EDGE_KEYS for name in names}
            self._count_unknown("edge", {name: 0 for name in item if name not in known}, place=place)

    def connect(self, *, metadata: Mapping[str, object], further: Mapping[str, object]) -> Graph:
        """Return the graph, in which each edge runs from a node to what it needs or contains."""
        for (what, name), (count, place) in self._unknown.items():
            is_kept = "kept and written again, but not used" if what == "node" else "not used, and not written again"
            message = f"the key {name!r} of {count} {what}{'' if count == 1 else 's'} is {is_kept}"
            self.notices.append(GraphProblem(message=message, place=place))
        containers = {str(shape.parent) for shape, _, _ in self._nodes if shape.parent not in (None, "")}
        containers |= {edge.source for edge in self._edges if _normalize(edge.type) in _CONTAINS}
        nodes = [
            self._make_node(shape, further, place=place, is_container=str(shape.id) in containers)
            for shape, further, place in self._nodes
        ]
        wiring = _Wiring(nodes, self.notices)
        # Calls and imports are facts about the code; a flow of data often runs in both directions.
        edges = dict.fromkeys(self._edges)
        for is_forward in (False, True):
            for edge in self._edges:
                if (_normalize(edge.type) in _FORWARD) == is_forward:
                    edges[edge] = wiring.connect(edge)
        drawn = (found for edge in self._edges if (found := edges[edge]) is not None)
        return Graph(nodes=wiring.list_nodes(), edges=tuple(drawn), metadata=metadata, further=further)

    def _convert(self, fields: dict[str, object], type: type[_Shape], *, place: str) -> _Shape | None:
        try:
            return msgspec.convert(fields, type)
        except msgspec.ValidationError as error:
            message, _, inner = str(error).partition(" - at `$")
            where = f"{place}{inner.removesuffix('`')}"
            id, name, file = (str(fields.get(key) or "") for key in ("id", "name", "file_path"))
            hint = "cdd schema graph describes the format"
            self.problems.append(
                GraphProblem(message=message, hint=hint, place=where, node=id[:80], name=name[:80], file=file[:80])
            )
            return None

    def _count_unknown(self, what: str, further: Mapping[str, object], *, place: str) -> None:
        for name in further:
            count, first = self._unknown.get((what, name), (0, place))
            self._unknown[what, name] = (count + 1, first)

    def _make_node(self, shape: NodeShape, further: Mapping[str, object], *, place: str, is_container: bool) -> Node:
        id = NodeId(str(shape.id))
        node_type = _infer_node_type(shape, is_container=is_container)
        node = Node(
            id=id,
            name=shape.name,
            type=shape.type or ("function" if node_type == "leaf" else "module"),
            node_type=node_type,
            file_path=shape.file_path or "",
            docstring=shape.docstring or "",
            signature=shape.signature or "",
            also=tuple(
                Definition(
                    name=each.name,
                    file_path=each.file_path or shape.file_path or "",
                    docstring=each.docstring,
                    signature=each.signature,
                )
                for each in shape.also or ()
            ),
            dependencies=tuple(dict.fromkeys(NodeId(str(each)) for each in shape.dependencies or ())),
            subgraph_id="" if shape.subgraph_id is None else str(shape.subgraph_id),
            parent=None if shape.parent in (None, "") else NodeId(str(shape.parent)),
            example=shape.example or "",
            requirements=tuple(shape.requirements or ()),
            code=shape.code or "",
            further=further,
            place=place,
        )
        if _normalize(shape.node_type) not in ("", "leaf", "composite"):
            self._count_types(node, shape.node_type)
        return node

    def _count_types(self, node: Node, word: str) -> None:
        if not any(notice.message.startswith(f"node_type {word!r} ") for notice in self.notices):
            message = f"node_type {word!r} is read as {node.node_type}"
            self.notices.append(describe_node(node, message, key="node_type"))


def _translate(fields: dict[str, object]) -> dict[str, object]:
    """Return the fields of a node with the keys of the other dialects under the first one's."""
    translated = dict(fields)
    for other, key in (("parent_id", "parent"), ("interface_type", "type"), ("folder_path", "file_path")):
        if other in translated and translated.get(key) is None:
            translated[key] = translated.pop(other)
    meta = translated.get("meta")
    if isinstance(meta, dict):
        path = meta.get("path")
        found = {
            "file_path": re.split("::?", path)[0] if isinstance(path, str) and path != "." else None,
            "type": meta.get("type_name"),
            "docstring": meta.get("description"),
        }
        translated |= {key: value for key, value in found.items() if value and not translated.get(key)}
    return translated | {key: "" for key in ("type", "node_type") if translated.get(key, "") is None}


def _infer_node_type(shape: NodeShape, *, is_container: bool) -> NodeType:
    words = (_normalize(shape.node_type), _normalize(shape.type))
    if words[0] in ("leaf", "composite"):
        return "leaf" if words[0] == "leaf" else "composite"
    for word in words:
        if word in _LEAF_TYPES:
            return "leaf"
        if word in _COMPOSITE_TYPES and (is_container or word != "functionality"):
            return "composite"
    return "composite" if is_container or not (shape.docstring or shape.signature) else "leaf"


class _Wiring:
    """What each node needs and is in, while the edges are read."""

    def __init__(self, nodes: list[Node], notices: list[GraphProblem]) -> None:
        """Begin with the dependencies that the nodes have."""
        self._nodes = nodes
        self._notices = notices
        self._types = {node.id: node.node_type for node in nodes}
        self._needs = {node.id: dict.fromkeys(node.dependencies) for node in nodes}
        self._parents = {node.id: node.parent for node in nodes}

    def connect(self, edge: Edge) -> Edge | None:
        """Apply an edge as it is drawn, and return it from the node to what it needs or contains, or None."""
        kind = _normalize(edge.type)
        if kind in _CONTAINS:
            return self._contain(edge)
        needer, needed = (edge.target, edge.source) if kind in _FORWARD else (edge.source, edge.target)
        is_opposite = needed in self._needs and needer in self._needs[needed] and needer != needed
        if is_opposite and needed not in self._needs.get(needer, {}):
            self._remark(
                edge, f"{needer!r} needs {needed!r} by this edge, but {needed!r} needs {needer!r}; that counts"
            )
            return Edge(source=needed, target=needer, type=edge.type, place=edge.place)
        if needer in self._needs:
            self._needs[needer].setdefault(needed)
        return Edge(source=needer, target=needed, type=edge.type, place=edge.place)

    def list_nodes(self) -> tuple[Node, ...]:
        """Return the nodes with what the edges have added."""
        return tuple(
            replace(node, dependencies=tuple(self._needs[node.id]), parent=self._parents[node.id])
            for node in self._nodes
        )

    def _contain(self, edge: Edge) -> Edge | None:
        if self._types.get(edge.source) == "leaf":
            self._remark(edge, f"the leaf {edge.source!r} cannot contain {edge.target!r}; the edge is left out")
            return None
        if edge.target in self._parents:
            parent = self._parents[edge.target]
            if parent is not None and parent != edge.source:
                self._remark(edge, f"{edge.source!r} contains {edge.target!r}, whose parent is {parent!r}; that counts")
                return None
            self._parents[edge.target] = edge.source
        return edge

    def _remark(self, edge: Edge, message: str) -> None:
        self._notices.append(GraphProblem(message=message, place=edge.place))
