"""Finds what makes a planning graph unfit for generation. Pure.

A graph comes from a model, a program or a stranger: its paths and names become files and code.
"""

import keyword
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import TypeAlias

from cdd_agent.errors import DocumentError, Problem
from cdd_agent.tickets.graph import MOST_CYCLES, Graph, Node, NodeId, find_cycles, format_cycle
from cdd_agent.untrusted.paths import explain_protection

MapPath: TypeAlias = Callable[[str], str]
"""Path of a file in the graph -> its path in the repository."""

MOST_LISTED = 50
"""Problems that an error lists."""
_MOST_LEVELS = 50
_MOST_NEEDS = 2_000_000
_MOST_ID_CHARACTERS = 200
_MOST_NAME_CHARACTERS = 200
_MOST_PATH_CHARACTERS = 500
_MOST_PART_BYTES = 200
"""File systems allow 255; ``test_`` and a temporary name have to fit, too."""
_DRIVE = re.compile(r"[A-Za-z]:")
_RUNNER = frozenset({"_pytest", "iniconfig", "packaging", "pluggy", "pytest", "pytest_tdd_agent", "test", "tests"})
"""Top-level names that would replace modules of the program that runs the tests, or mix with the tests."""
_PYTEST_FILES = ("conftest.py", "pytest.ini", ".pytest.ini", "setup.cfg", "tox.ini", "pyproject.toml")
_TEST_FILES = ("test_*.py", "*_test.py")
_COMPOSITE_TYPES_HINT = "set node_type to composite if it is a module or package"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphProblem:
    """One problem, or one remark, about a graph, and what to do."""

    message: str
    hint: str = ""
    place: str = ""
    """Where in the file, such as ``$.nodes[3].docstring``."""
    node: str = ""
    """The id of the node."""
    name: str = ""
    """The name of the node."""
    file: str = ""
    """The file of the definition, as the graph has it."""

    def __str__(self) -> str:
        """Return ``$.nodes[3].docstring, node_003 calculate_mean in src/stats.py: message (hint)``."""
        node = " ".join(part for part in (self.node, self.name) if part)
        where = ", ".join(part for part in (self.place, f"{node} in {self.file}" if self.file else node) if part)
        return f"{where}: {self.message}" + (f" ({self.hint})" if self.hint else "")


def drop_sources(file_path: str) -> str:
    """Return a path as it is in the repository if nobody lays it out: without ``src/``."""
    return file_path.removeprefix("./").removeprefix("src/").rstrip("/")


def find_problems(graph: Graph, lay_out: Callable[[Graph], MapPath] | None = None) -> tuple[GraphProblem, ...]:
    """Return all problems, in the order of the file. ``lay_out`` says where the files will be; it gets sound paths."""
    found = [problem for node in graph.nodes for problem in _check_node(node)]
    are_paths_sound = not any(problem.place.endswith(".file_path") for problem in found)
    found += _check_ids(graph)
    if deepest := _find_too_deep(graph):
        message = f"more than {_MOST_LEVELS} composites are around it"
        return (*found, describe_node(deepest, message, hint="use fewer levels", key="parent"))
    found += _check_hierarchy(graph)
    if (count := _count_needs(graph)) > _MOST_NEEDS:
        message = f"the leaves need {count} others, because whole modules need whole modules; at most {_MOST_NEEDS}"
        found.append(GraphProblem(message=message, hint="let single functions need each other", place="$.nodes"))
    if not graph.leaves:
        message = "the graph has no nodes that could be generated" if graph.nodes else "the graph has no nodes"
        found.append(GraphProblem(message=message, hint="add nodes with node_type leaf", place="$.nodes"))
    if are_paths_sound and graph.leaves:
        found += _check_files(graph, drop_sources if lay_out is None else lay_out(graph))
    cycles = find_cycles(graph)
    found += (_describe_cycle(graph, cycle) for cycle in cycles)
    if len(cycles) == MOST_CYCLES:
        found.append(GraphProblem(message=f"there may be more than these {MOST_CYCLES} circles", place="$.nodes"))
    return tuple(found)


def make_error(problems: tuple[GraphProblem, ...], *, path: str) -> DocumentError:
    """Return the error for a graph with problems; it lists ``MOST_LISTED`` of them."""
    listed = [Problem(line=0, message=str(problem)) for problem in problems[:MOST_LISTED]]
    if len(problems) > MOST_LISTED:
        listed.append(Problem(line=0, message=f"and {len(problems) - MOST_LISTED} more problems"))
    return DocumentError(path, tuple(listed), hint="correct the file, then: cdd graph check FILE")


def describe_node(node: Node, message: str, *, hint: str = "", key: str = "", file: str | None = None) -> GraphProblem:
    """Return a problem of a node. ``key``: of the node, such as ``docstring``."""
    place = f"{node.place}.{key}" if key else node.place
    shown = node.file_path if file is None else file
    return GraphProblem(message=message, hint=hint, place=place, node=node.id, name=node.name, file=shown)


def _check_node(node: Node) -> Iterator[GraphProblem]:
    if message := _find_text_problem(node.id, most=_MOST_ID_CHARACTERS):
        yield describe_node(node, f"the id {message}", hint="give it a short id such as node_001", key="id")
    if node.subgraph_id and (message := _find_text_problem(node.subgraph_id, most=_MOST_ID_CHARACTERS)):
        yield describe_node(node, f"the subgraph_id {message}", hint="give it a short id", key="subgraph_id")
    if node.node_type == "composite":
        if message := _find_text_problem(node.name, most=_MOST_NAME_CHARACTERS):
            yield describe_node(node, f"the name {message}", hint="name the module or package", key="name")
        if node.file_path and (wrong := find_path_problem(node.file_path, is_folder_allowed=True)):
            yield describe_node(node, wrong[0], hint=wrong[1], key="file_path")
        return
    for number, definition in enumerate(node.definitions):
        prefix = f"also[{number - 1}]." if number else ""
        if message := _find_name_problem(definition.name):
            hint = f"name the function or class as in Python, or {_COMPOSITE_TYPES_HINT}"
            yield describe_node(node, message, hint=hint, key=f"{prefix}name", file=definition.file_path)
        if wrong := find_path_problem(definition.file_path, is_folder_allowed=False):
            yield describe_node(node, wrong[0], hint=wrong[1], key=f"{prefix}file_path", file=definition.file_path)
        if not definition.docstring.strip() and (not number or not definition.signature.strip()):
            message = "the docstring is empty, so nothing says what to generate"
            hint = "describe arguments, result and errors, or repeat the signature"
            yield describe_node(node, message, hint=hint, key=f"{prefix}docstring", file=definition.file_path)


def _find_text_problem(text: str, *, most: int) -> str | None:
    if not text.strip():
        return "is empty"
    if len(text) > most:
        return f"has {len(text)} characters; at most {most} are allowed"
    if not text.isprintable():
        return "has characters that cannot be shown, such as line ends"
    return None


def _find_name_problem(name: str) -> str | None:
    if len(name) > _MOST_NAME_CHARACTERS:
        return f"the name has {len(name)} characters; at most {_MOST_NAME_CHARACTERS} are allowed"
    for part in name.split("."):
        if not part.isidentifier():
            return f"the name {name!r} is not a name in Python" if name else "the name is empty"
        if keyword.iskeyword(part):
            return f"the name {name!r} contains the keyword {part!r}"
    if not name.isascii() and unicodedata.normalize("NFKC", name) != name:
        # Python would write it otherwise, and two such names could be one.
        return f"Python reads the name {name!r} as {unicodedata.normalize('NFKC', name)!r}"
    return None


@cache  # many nodes have the same path
def find_path_problem(path: str, *, is_folder_allowed: bool) -> tuple[str, str] | None:
    """Return what is wrong with the path of a node's file, and what to do."""
    if not path:
        return "file_path is missing", "name the module, such as src/stats/descriptive.py"
    if len(path) > _MOST_PATH_CHARACTERS or not path.isprintable():
        return "file_path is too long or has characters that cannot be shown", "use a short path of plain names"
    if path.startswith(("/", "~")) or _DRIVE.match(path):
        return f"the path {path!r} is absolute", "write it relative to the repository, such as src/stats.py"
    if "\\" in path:
        return f"the path {path!r} has a backslash", "separate folders by /"
    parts = path.removeprefix("./").split("/")
    if is_folder_allowed and parts[-1] == "":
        parts.pop()
    if ".." in parts:
        return f"the path {path!r} leads out of its folder with ..", "write it relative to the repository without .."
    if protection := explain_protection(path):
        return f"no node may write {path!r}: it {protection}", "use another file"
    if any(part.lower() in _PYTEST_FILES for part in parts):
        return (
            f"no node may write {path!r}: pytest obeys it",
            "use another file; cdd writes the configuration of pytest",
        )
    return _find_module_problem(path, parts, is_folder_allowed=is_folder_allowed)


def _find_module_problem(path: str, parts: list[str], *, is_folder_allowed: bool) -> tuple[str, str] | None:
    if parts[-1].endswith(".py"):
        if any(fnmatchcase(parts[-1].lower(), pattern) for pattern in _TEST_FILES):
            return f"pytest would take {path!r} for tests", "rename the module; cdd writes the tests under tests/"
    elif not is_folder_allowed or "." in parts[-1]:
        return f"the path {path!r} is not a Python file", "end it with .py"
    for part in (*parts[:-1], parts[-1].removesuffix(".py")):
        if len(part.encode("utf-8", "surrogatepass")) > _MOST_PART_BYTES:
            return f"a name in the path {path:.40}... is too long", f"use at most {_MOST_PART_BYTES} bytes"
        if wrong := _find_name_problem(part):
            hint = "name folders and modules so that Python can import them: letters, digits and _"
            return f"the path {path!r} cannot be imported: {wrong}", hint
    return None


def _check_ids(graph: Graph) -> Iterator[GraphProblem]:
    first: dict[NodeId, Node] = {}
    for node in graph.nodes:
        if node.id in first:
            message = f"the id is that of {first[node.id].place or 'another node'}, too"
            yield describe_node(node, message, hint="give each node another id", key="id")
        first.setdefault(node.id, node)
    for node in graph.nodes:
        for id in node.dependencies:
            if id not in first:
                hint = "add that node, or remove the dependency"
                yield describe_node(node, f"it needs {id!r}, which is not a node", hint=hint, key="dependencies")
        if node.parent is not None and node.parent not in first:
            hint = "add that node, or remove the parent"
            yield describe_node(node, f"its parent {node.parent!r} is not a node", hint=hint, key="parent")
    for edge in graph.edges:
        for id in {edge.source, edge.target} - first.keys():
            message = f"the edge from {edge.source!r} to {edge.target!r} has an end that is not a node: {id!r}"
            yield GraphProblem(message=message, hint="add that node, or remove the edge", place=edge.place, node=id)


def _find_too_deep(graph: Graph) -> Node | None:
    """Return a node with too many composites around it. What follows goes through all of them for each node."""
    levels: dict[int | None, int] = {None: 0}
    for position, node in enumerate(graph.nodes):
        path: list[int] = []
        here: int | None = position
        while here is not None and here not in levels:
            path.append(here)
            here = graph.parents[here]
        for each in reversed(path):
            levels[each] = levels[graph.parents[each]] + 1
        if levels[position] > _MOST_LEVELS + 1:
            return node
    return None


def _count_needs(graph: Graph) -> int:
    """Return the number of pairs of leaves if each composite is replaced by the leaves in it."""
    if not graph.composites:
        return 0
    sizes = dict.fromkeys((node.id for node in graph.nodes), 0)
    for position in range(len(graph.nodes)):
        here: int | None = position
        while here is not None and graph.nodes[position].node_type == "leaf":
            sizes[graph.nodes[here].id] += 1
            here = graph.parents[here]
    return sum(
        sizes[node.id] * sum(sizes.get(id, 0) for id in node.dependencies)
        for node in graph.nodes
        if any(graph.by_id[id].node_type == "composite" for id in (node.id, *node.dependencies) if id in graph.by_id)
    )


def _check_hierarchy(graph: Graph) -> Iterator[GraphProblem]:
    if not graph.composites and not any(node.parent for node in graph.nodes):
        return
    by_id = graph.by_id
    seen: set[NodeId] = set()
    for position, node in enumerate(graph.nodes):
        if node.parent is not None and node.parent in by_id and by_id[node.parent].node_type == "leaf":
            message = f"its parent {node.parent!r} is a leaf, which contains nothing"
            hint = f"remove the parent, or {_COMPOSITE_TYPES_HINT}"
            yield describe_node(node, message, hint=hint, key="parent")
        path: dict[NodeId, None] = {}
        here: Node | None = node
        while here is not None and here.id not in seen and here.id not in path:
            path[here.id] = None
            here = by_id.get(here.parent) if here.parent is not None else None
        if here is not None and here.id in path:
            ids = list(path)
            message = f"nodes contain each other: {format_cycle(graph, ids[ids.index(here.id) :])}"
            yield describe_node(here, message, hint="remove one parent", key="parent")
        seen.update(path)
        for id in node.dependencies if node.parent is not None else ():
            around = graph.parents[position]
            while around is not None and graph.nodes[around].id != id:
                around = graph.parents[around]
            if around is not None:
                message = f"it needs {id!r}, which contains it and is complete only after it"
                yield describe_node(node, message, hint="remove the dependency", key="dependencies")


def _check_files(graph: Graph, map_path: MapPath) -> Iterator[GraphProblem]:
    known: dict[tuple[str, str], Node] = {}
    paths: dict[str, tuple[Node, str, str]] = {}
    for node in graph.leaves:
        for definition in node.definitions:
            if definition.file_path not in paths:
                paths[definition.file_path] = (node, definition.file_path, map_path(definition.file_path))
            place = (paths[definition.file_path][2], definition.name)
            if place in known:
                twin = known[place]
                message = f"{twin.id!r} defines {definition.name} in this file, too"
                hint = 'rename one, or make one node of both: "also" holds the other definition'
                yield describe_node(node, message, hint=hint, key="name", file=definition.file_path)
            known.setdefault(place, node)
    for node in graph.nodes:
        if node.node_type == "composite" and node.file_path and node.file_path not in paths:
            paths[node.file_path] = (node, node.file_path, map_path(node.file_path))
    spelled: dict[str, str] = {}
    roots: set[str] = set()
    for node, path, real in paths.values():
        parts = real.removeprefix("src/").split("/")
        root = parts[0].removesuffix(".py")
        if root not in roots and (wrong := _find_root_problem(root)):
            hint = f"rename it in the paths of all nodes, for example to {root}_lib"
            yield describe_node(node, wrong, hint=hint, key="file_path", file=path)
        roots.add(root)
        for end in range(1, len(parts) + 1):
            name = "/".join(parts[:end])
            other = spelled.setdefault(name.casefold(), name)
            if other != name:
                message = f"{name!r} and {other!r} differ only in case, and are one file on some systems"
                hint = "spell both in the same way, or rename one"
                yield describe_node(node, message, hint=hint, key="file_path", file=path)


def _find_root_problem(root: str) -> str | None:
    if root in sys.stdlib_module_names:
        return f"the top-level name {root!r} is that of a module of the standard library, which it would hide"
    if root in _RUNNER:
        return f"the top-level name {root!r} is needed to run the tests"
    return None


def _describe_cycle(graph: Graph, cycle: tuple[NodeId, ...]) -> GraphProblem:
    first = graph.by_id[cycle[0]]
    hint = 'remove one of the dependencies, or make one node of them: "also" holds the other definitions'
    message = f"nodes need each other in a circle: {format_cycle(graph, cycle)}"
    return describe_node(first, message, hint=hint, key="dependencies")
