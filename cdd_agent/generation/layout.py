"""Where the files of a planning graph are in the generated repository. Pure.

All modules are below one import root, ``src/<package>/``, wherever the graph has them.
"""

import keyword
import posixpath
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cdd_agent.tickets.graph import Graph, Node, NodeId

SOURCES = "src"
INIT = "/__init__.py"
_TAKEN = frozenset({"docs", "examples", "src", "tests"})
"""Names that a package does not get unless the graph says so: they confuse people, or hide the repository's tests."""
_INTEGRATION = "integration"
"""The folder below ``tests`` with the tests of whole subgraphs."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The paths, modules and titles of one graph."""

    package: str
    """The import name; of a graph of one module, the name of that module."""
    rows: tuple[tuple[str, str], ...]
    """Graph path -> path in the repository, sorted."""
    titles: Mapping[NodeId, str] = field(repr=False)
    paths: Mapping[str, str] = field(repr=False)
    tests: Mapping[str, str] = field(repr=False)
    """Module -> the file of its tests."""

    @classmethod
    def of(cls, graph: Graph, name: str) -> "Layout":
        """Choose the layout of a graph. ``name``: the graph's file name, without its ending."""
        files = sorted({path for node in graph.nodes for path in list_files(node)})
        package, moved = _place_paths(graph, sorted({*map(_normalize, files)}), name=name)
        modules = sorted({name_module(path) for path in moved.values()})
        titles = {node.id: _make_title(node, package=package, paths=moved) for node in graph.nodes}
        repeated = {title for title, count in Counter(titles[node.id] for node in graph.leaves).items() if count > 1}
        return cls(
            package=package,
            rows=tuple((path, moved[_normalize(path)]) for path in files),
            # A module and a class of one package may have the same name, and then their contents too.
            titles={id: f"{title} ({id})" if title in repeated else title for id, title in titles.items()},
            paths=moved,
            tests=_place_tests(modules, package=package),
        )

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The dotted import paths of all modules, sorted."""
        return tuple(sorted({name_module(path) for path in self.paths.values()}))

    def map_path(self, file_path: str) -> str:
        """Return the path in the repository of a file of the graph. A folder counts as its ``__init__.py``."""
        return self.paths[_normalize(file_path)]

    def module_of(self, file_path: str) -> str:
        """Return the dotted import path of a file of the graph."""
        return name_module(self.map_path(file_path))

    def test_path(self, file_path: str) -> str:
        """Return the path in the repository of the tests of a file of the graph."""
        return self.tests[self.module_of(file_path)]

    def name_definitions(self, node: Node) -> tuple[str, ...]:
        """Return the import path of each definition of a node."""
        return tuple(f"{self.module_of(each.file_path)}.{each.name}" for each in node.definitions)

    def place_definitions(self, node: Node) -> tuple[tuple[str, str], ...]:
        """Return the path in the repository and the qualified name of each definition of a node."""
        return tuple((self.map_path(each.file_path), each.name) for each in node.definitions)

    def title_of(self, node: Node) -> str:
        """Return the unique name of a node: its module below the package, and its name."""
        return self.titles[node.id]


def list_files(node: Node) -> list[str]:
    """Return the files of a node, its own first, as the graph has them."""
    return [path for path in (node.file_path, *(definition.file_path for definition in node.also)) if path]


def _normalize(file_path: str) -> str:
    """Return a path without ``src/``; of a folder, that of its ``__init__.py``."""
    path = posixpath.normpath(file_path)
    path = path if path.endswith(".py") else f"{path}{INIT}"
    return path.removeprefix("./").removeprefix(f"{SOURCES}/")


def _place_paths(graph: Graph, paths: list[str], *, name: str) -> tuple[str, dict[str, str]]:
    """Return the package, and graph path -> path in the repository."""
    wanted = graph.metadata.get("package")
    named = wanted if isinstance(wanted, str) and wanted.isidentifier() else ""
    if named and paths == [f"{named}.py"]:
        return named, {paths[0]: f"{SOURCES}/{paths[0]}"}
    others = [path for path in paths if path != INIT[1:]]  # ``src/__init__.py`` of a graph is that of its package
    tops = {path.partition("/")[0] for path in others}
    if len(tops) == 1 and all("/" in path for path in others):
        package = tops.pop()
        below = {path: f"{package}/{path}" if path == INIT[1:] else path for path in paths}
    else:
        package = named or _make_identifier(graph.metadata.get("name")) or _make_identifier(name) or "library"
        below = {path: f"{package}/{path}" for path in paths}
    folders = {folder for path in below.values() for folder in _list_folders(path)}
    # Python would never load the module ``stats.py`` beside a package ``stats``.
    return package, {
        path: f"{SOURCES}/{place.removesuffix('.py')}{INIT}"
        if place.removesuffix(".py") in folders
        else f"{SOURCES}/{place}"
        for path, place in below.items()
    }


def _list_folders(path: str) -> Iterable[str]:
    parts = path.split("/")[:-1]
    return ("/".join(parts[:end]) for end in range(1, len(parts) + 1))


def _make_identifier(text: object) -> str:
    """Return the name of a package that resembles a text; empty if none does."""
    if not isinstance(text, str):
        return ""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if name[:1].isdigit():
        name = f"lib_{name}"
    is_taken = name in sys.stdlib_module_names or name in _TAKEN or keyword.iskeyword(name)
    return f"{name}_lib" if is_taken else name


def name_module(path: str) -> str:
    """Return the dotted import path of a file in the repository."""
    return path.removeprefix(f"{SOURCES}/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _make_title(node: Node, *, package: str, paths: Mapping[str, str]) -> str:
    module = name_module(paths[_normalize(node.file_path)]) if node.file_path else package
    below = module.removeprefix(package).removeprefix(".")
    if node.node_type == "leaf" and below:
        return f"{below}.{node.name}"
    return node.name


def _place_tests(modules: list[str], *, package: str) -> dict[str, str]:
    """Return module -> path of its tests. Modules with the same last name get folders."""
    # Some file systems do not tell cases apart.
    counts = Counter(module.rpartition(".")[2].casefold() for module in modules)
    found = {}
    for module in modules:
        parents, _, last = module.rpartition(".")
        folders = parents.split(".")[1:] if counts[last.casefold()] > 1 else []
        if folders[:1] == [_INTEGRATION]:
            folders = [package, *folders]
        found[module] = "/".join(["tests", *folders, f"test_{last}.py"])
    return found
