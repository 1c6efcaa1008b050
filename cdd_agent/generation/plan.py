"""The plan of a generation: the nodes of a graph in order, their files, and their text for the model. Pure."""

import ast
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from cdd_agent.generation.layout import Layout
from cdd_agent.generation.signatures import Kind, find_open_questions, list_stubs, list_type_names, read_signature
from cdd_agent.storage import read_ordinary
from cdd_agent.tickets.graph import (
    Graph,
    Group,
    Node,
    NodeId,
    find_closure,
    find_ends,
    find_import_cycles,
    find_needs,
    order_subgraphs,
    set_sources,
)
from cdd_agent.tickets.graph_file import load_graph
from cdd_agent.tickets.graph_problems import GraphProblem, describe_node, find_problems
from cdd_agent.work.state import RunState, StepExecution, StepKey

MOST_PATHS = 20
"""Paths of a subgraph that have integration tests."""
_MOST_SPECIFICATION = 1_000_000
"""Bytes."""
_MOST_SECONDS = 3_600
SECONDS_PER_TEST = 30.0
"""Unless the graph says otherwise."""


def load_plan(path: Path) -> "GenerationPlan":
    """Read a graph; raise ``DocumentError`` with its problems."""
    graph, _ = load_graph(path, lambda graph: Layout.of(graph, path.stem).map_path)
    return GenerationPlan(graph=graph, layout=Layout.of(graph, path.stem), source=path)


def find_draft_problems(graph: Graph, name: str) -> tuple[GraphProblem, ...]:
    """Return why a drafted graph cannot be generated just as it is. ``name``: of its file, without the ending.

    A draft that leaves things open, or whose modules import each other, is better drafted again than generated.
    """
    if problems := find_problems(graph, lambda graph: Layout.of(graph, name).map_path):
        return problems
    found = list(list_open(graph, kinds=("code", "methods", "parameters", "signature")))
    for cycle in find_import_cycles(graph, Layout.of(graph, name).module_of):
        circle = " -> ".join((*cycle.modules, cycle.modules[0]))
        message = f"it needs {cycle.target!r}, so modules import each other in a circle: {circle}"
        hint = "move one of the two, or put what both need into another module"
        found.append(describe_node(graph.by_id[cycle.source], message, hint=hint, key="dependencies"))
    return tuple(found)


def list_open(graph: Graph, *, kinds: Collection[Kind] | None = None) -> tuple[GraphProblem, ...]:
    """Return what a graph leaves open, of all kinds or of some."""
    return tuple(
        replace(
            describe_node(graph.by_id[each.id], each.what, hint="write its signature as in a stub file"), name=each.name
        )
        for each in find_open_questions(graph)
        if kinds is None or each.kind in kinds
    )


def adopt_answers(graph: Graph, known: Graph) -> Graph:
    """Return a graph with the sources that ``known``, an earlier form of it, has for what it leaves open.

    They count as long as the node's text is the same.
    """
    open_names = {(each.node, each.name) for each in list_open(graph)}
    found: dict[tuple[str, str], str] = {}
    for node in known.nodes:
        own = graph.by_id.get(node.id)
        if own is None:
            continue
        if node.node_type == "composite":
            found[node.id, node.name] = node.code
            continue
        texts = {each.name: each.docstring for each in own.definitions}
        sources = ((each.name, each.signature) for each in node.definitions if texts.get(each.name) == each.docstring)
        found |= {(node.id, name): source for name, source in sources}
    return set_sources(graph, {key: source for key, source in found.items() if source and key in open_names})


def name_integration(group: Group) -> str:
    """Return the title of the step with the integration tests of a subgraph."""
    return f"integration of {group.name}"


@dataclass(frozen=True, kw_only=True)
class GenerationPlan:
    """A graph that has no problems, and how its nodes become steps of a run."""

    graph: Graph
    layout: Layout
    source: Path
    """The file of the graph."""
    has_user_tests: bool = False
    """Whether the user gives the tests, so that none are written."""

    @cached_property
    def planned_names(self) -> Mapping[tuple[str, str], str]:
        """The file and the qualified name of each definition, members of classes too -> the title of its node."""
        found = dict[tuple[str, str], str]()
        for node in self.nodes:
            title = self.layout.title_of(node)
            for each in node.definitions:
                path = self.layout.map_path(each.file_path)
                found[path, each.name] = title
                for statement in read_signature(each, type=node.type, known=self.type_names).statements:
                    if isinstance(statement, ast.ClassDef):
                        found |= {(path, f"{each.name}.{name}"): title for name, _ in list_stubs(statement.body)}
        return found

    @cached_property
    def specification(self) -> str:
        """The text of the file beside the graph that ``nl_spec_path`` in its metadata names; empty if there is none."""
        named = self.graph.metadata.get("nl_spec_path")
        if not isinstance(named, str) or not named.strip():
            return ""
        folder = self.source.resolve().parent
        for path in (folder / named, folder / Path(named).name):
            with suppress(OSError, ValueError):
                if path.resolve().is_relative_to(folder):
                    return read_ordinary(path, limit_bytes=_MOST_SPECIFICATION).decode("utf-8", "replace")
        return ""

    @property
    def slug(self) -> str:
        """The name of the run."""
        return self.layout.package.lower().replace("_", "-").strip("-")

    @property
    def seconds_per_test(self) -> float:
        """The time limit of one test: that in the metadata if it is one, else the usual one."""
        wanted = self.graph.metadata.get("seconds_per_test")
        if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not 0 < wanted <= _MOST_SECONDS:
            return SECONDS_PER_TEST
        return float(wanted)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The subgraphs in the order in which they land."""
        return order_subgraphs(self.graph)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The leaves in the order in which they are generated."""
        return tuple(self.graph.by_id[name] for group in self.groups for name in group.nodes)

    @cached_property
    def by_title(self) -> Mapping[str, Node]:
        """Title of a step -> node."""
        return {self.layout.title_of(node): node for node in self.nodes}

    @cached_property
    def type_names(self) -> frozenset[str]:
        """The names that count as types in a docstring."""
        return list_type_names(self.graph)

    @cached_property
    def integrations(self) -> Mapping[str, Group]:
        """Title of the step with the integration tests of a subgraph -> subgraph; only those with a path."""
        groups = () if self.has_user_tests else self.groups
        return {name_integration(group): group for group in groups if self.list_paths(group)}

    def find_integration(self, state: RunState, group: Group) -> StepExecution | None:
        """Return the step with the integration tests of a subgraph; None if it has no path."""
        title = name_integration(group)
        return next((step for step in state.step_executions.values() if step.title == title), None)

    def list_paths(self, group: Group) -> tuple[tuple[Node, ...], ...]:
        """Return the paths of a subgraph, each from a node that needs none of it to one that none of it needs."""
        entries, exits = find_ends(self.graph, group.ids)
        needs, inside = find_needs(self.graph), set(group.nodes)
        found = list[tuple[Node, ...]]()
        for last in exits:
            previous: dict[NodeId, NodeId] = {}
            queue = [last]
            for each in queue:  # grows
                following = [other for other in needs[each] if other in inside and other not in previous]
                previous |= dict.fromkeys(following, each)
                queue += following
            for first in sorted(set(entries).intersection(queue) - {last}):
                path = [first]
                while path[-1] != last:
                    path.append(previous[path[-1]])
                found.append(tuple(self.graph.by_id[name] for name in path))
        return tuple(found[:MOST_PATHS])

    def find_integration_path(self, group: Group) -> str:
        """Return the file with the integration tests of a subgraph."""
        words = "_".join(re.findall(r"[a-z0-9]+", group.name.lower())) or "all"
        return f"tests/integration/test_{words}.py"

    def number_steps(self, known: RunState | None) -> tuple[StepKey, ...]:
        """Return the keys of the steps: nodes first, then integration tests.

        One that has a number keeps it; a new one gets the next free number.
        """
        numbers = {step.title: number for number, step in known.step_executions.items()} if known else {}
        following = max(numbers.values(), default=0)
        digests = {self.layout.title_of(node): self.digest(node) for node in self.nodes}
        digests |= {title: self.digest_paths(group) for title, group in self.integrations.items()}
        keys = []
        for title, digest in digests.items():
            if title not in numbers:
                following += 1
                numbers[title] = following
            is_integration = title in self.integrations
            number = numbers[title]
            keys.append(StepKey(number=number, title=title, text_sha256=digest, is_integration=is_integration))
        return tuple(sorted(keys, key=lambda key: key.number))

    def digest_paths(self, group: Group) -> str:
        """Return the digest of the paths of a subgraph."""
        paths = [[node.id for node in path] for path in self.list_paths(group)]
        return hashlib.sha256(json.dumps(paths).encode()).hexdigest()

    def digest(self, node: Node) -> str:
        """Return the digest of what a node is, and of what it sees of the nodes that it needs."""
        needed = [
            (each.name, each.file_path, each.signature)
            for name in node.dependencies
            for each in self.graph.by_id[name].definitions
        ]
        own = [(each.name, each.file_path, each.docstring, each.signature) for each in node.definitions]
        work = [own, node.example, sorted(node.requirements), sorted(needed)]
        return hashlib.sha256(json.dumps(work).encode()).hexdigest()

    def list_files(self, node: Node) -> tuple[str, ...]:
        """Return the files of a node's own definitions, relative to the repository."""
        return tuple(dict.fromkeys(path for path, _ in self.layout.place_definitions(node)))

    def count_phases(self) -> int:
        """Return how many phases the whole generation has."""
        per_node = 1 if self.has_user_tests else 2
        return len(self.nodes) * per_node + len(self.integrations)

    def list_needed_files(self, node: Node) -> tuple[str, ...]:
        """Return the files of everything that a node needs, itself included, its own first."""
        needed = (self.graph.by_id[name] for name in find_closure(self.graph, node.id))
        files = (path for each in needed if each.node_type == "leaf" for path in self.list_files(each))
        return tuple(dict.fromkeys((*self.list_files(node), *files)))

    def find_test_path(self, node: Node) -> str:
        """Return the file with the tests of a node."""
        return self.layout.test_path(node.file_path)

    def describe(self, node: Node) -> str:
        """Return what the model gets to know about a node, as Markdown."""
        return "\n\n".join(self._describe(node))

    def describe_paths(self, group: Group) -> str:
        """Return what the model gets to know about the paths of a subgraph, as Markdown."""
        paths = self.list_paths(group)
        lines = [
            f"{number}. " + " -> ".join(f"`{self.layout.name_definitions(node)[0]}`" for node in path)
            for number, path in enumerate(paths, start=1)
        ]
        nodes = {node.id: node for path in paths for node in path}
        return "\n\n".join(("Paths:", "\n".join(lines), *(self.describe(node) for node in nodes.values())))

    def _describe(self, node: Node) -> Iterator[str]:
        for each in node.definitions:
            module = self.layout.module_of(each.file_path)
            yield f"`{each.name}` in the module `{module}` (`{self.layout.map_path(each.file_path)}`)"
            if each.signature.strip():
                yield f"```python\n{each.signature.strip()}\n```"
            yield each.docstring.strip()
        if node.example.strip():
            yield f"Example:\n\n```python\n{node.example.strip()}\n```"
        needed = [self.graph.by_id[name] for name in node.dependencies]
        lines = [
            f"- `{self.layout.module_of(each.file_path)}.{each.name}`: {each.docstring.strip().partition(chr(10))[0]}"
            for other in needed
            for each in other.definitions
        ]
        if lines:
            yield "\n".join(("It needs these, which exist and are tested:", *lines))

    def order_dependencies(self, keys: tuple[StepKey, ...]) -> dict[int, tuple[int, ...]]:
        """Return the number of each step -> the numbers of the steps that it needs."""
        numbers: dict[NodeId, int] = {
            self.by_title[key.title].id: key.number for key in keys if key.title in self.by_title
        }
        needs = find_needs(self.graph)
        return {
            numbers[node.id]: tuple(sorted({numbers[name] for name in needs[node.id] if name in numbers}))
            for node in self.nodes
        }
