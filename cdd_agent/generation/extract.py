"""A planning graph from the sources of a package, by ``ast`` alone. Pure: nothing of the package is imported or run.

A piece (``references``) is a function, a class with its methods, or the statements that define a name more than once,
such as overloads. Pieces that need each other are one node. What is not a piece is module-level code: imports,
constants, and classes without a method, of which nothing is left to write.
"""

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cdd_agent.errors import UsageError, format_count, join_first
from cdd_agent.evidence.source import Function
from cdd_agent.generation.contents import has_decorator
from cdd_agent.generation.layout import SOURCES, Layout
from cdd_agent.generation.package_files import COMPILED, PackageFiles
from cdd_agent.generation.references import (
    Piece,
    References,
    SourceModule,
    Variable,
    drop_annotations,
    list_definitions,
    list_dotted,
    list_local_imports,
    make_piece,
    read_module,
)
from cdd_agent.generation.signatures import read_signature, strip_bodies, write_header
from cdd_agent.tickets.graph import Definition, Graph, Node, NodeId, find_components
from cdd_agent.tickets.graph_problems import find_path_problem, find_problems
from cdd_agent.untrusted.paths import explain_protection
from cdd_agent.untrusted.python_source import decode, explain_unreadable, find_syntax_error, with_deep_stack
from pytest_tdd_agent.sources import find_encoding

_TESTS = ("test", "tests")
_TEST_FILE = re.compile(r"(test_.*|.*_test)\.py")
_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+.*$", re.MULTILINE)
_MOST_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """A graph, and what it lacks of the package."""

    graph: Graph
    notices: tuple[str, ...] = ()


@with_deep_stack
def extract_graph(package: PackageFiles) -> Extraction:
    """Return the graph of a package; raise ``UsageError`` for one that cannot have any."""
    sources, data, notices = _sort_files(package)
    modules = {source.module.name: source for source in sources}
    nodes = tuple(_Extractor(modules).list_nodes())
    if not any(node.node_type == "leaf" for node in nodes):
        happened = f"{package.package} defines no function, and no class with a method."
        raise UsageError(happened, hint="name a package with Python sources")
    metadata = {"name": package.package, **package.metadata, "package": package.package, "has_all_imports": True}
    graph = Graph(nodes=nodes, metadata={**metadata, "data": data} if data else metadata)
    problems = find_problems(graph, lambda graph: Layout.of(graph, package.package).map_path)
    if problems:
        listed = join_first([str(problem) for problem in problems], most=_MOST_SHOWN, separator="; ")
        hint = "rename what is listed in a copy of the package, then: cdd graph from COPY"
        raise UsageError(f"{package.package} cannot be described by a planning graph: {listed}.", hint=hint)
    return Extraction(graph=graph, notices=tuple(notices))


def _sort_files(package: PackageFiles) -> tuple[list[SourceModule], list[str], list[str]]:
    """Return the sources, the paths of the files that are copied as they are, and remarks on the others."""
    sources, data, notices = list[SourceModule](), list[str](), list[str]()
    tests = _find_tests(package.sources)
    everything = sorted((*package.sources, *package.others))
    left_out = [path for path in everything if path.startswith(tests) or explain_protection(path)]
    compiled = [path for path in everything if path.endswith(COMPILED) and path not in left_out]
    for path in everything:
        if path in left_out or path in compiled:
            continue
        source, why = None, ""
        if path in package.sources and find_path_problem(path, is_folder_allowed=False) is None:
            source, why = _read_source(path, package.sources[path])
        if source is not None:
            sources.append(source)
        else:
            data.append(f"{SOURCES}/{path}")
            notices += [f"{path} is copied as it is: {why}"] if why else []
    if left_out:
        shown = join_first([*tests] or left_out, most=_MOST_SHOWN)
        notices.append(f"tests, and files that no node may write, are left out: {shown}")
    if compiled:
        notices.append(f"compiled modules are left out: {join_first(compiled, most=_MOST_SHOWN)}")
    if data:
        count = format_count(len(data), "file")
        notices.append(f"{count} that no node writes: {join_first(data, most=_MOST_SHOWN)}")
    return sources, data, notices


def _find_tests(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the folders named ``tests`` or ``test`` with tests in them, each with a slash."""
    found = set[str]()
    for path in paths:
        *folders, name = path.split("/")
        inside = [number for number, folder in enumerate(folders) if folder in _TESTS and number]
        if inside and _TEST_FILE.fullmatch(name):
            found.add("/".join((*folders[: inside[0] + 1], "")))
    return tuple(sorted(found))


def _read_source(path: str, content: bytes) -> tuple[SourceModule | None, str]:
    """Return a source, or why there is none."""
    if why := explain_unreadable(content):
        return None, why
    text = decode(content)
    if not find_encoding(content).startswith("utf-8"):
        first, second, rest = (*text.split("\n", 2), "", "")[:3]
        text = "\n".join((*(_CODING.sub("", line) for line in (first, second)), rest))
    if error := find_syntax_error(text):
        return None, f"this Python cannot read it: {error}"
    source = read_module(path, text, cut=_cut_pieces)
    return source, "" if source is not None else "this Python cannot compile it"


def _cut_pieces(source: SourceModule) -> Iterator[Piece]:
    """Yield what nodes can define of a module."""
    body = source.tree.body
    spans = _find_repetitions(body)
    inside = {number for span in spans for number in span}
    pieces = [_join(source, [body[number] for number in span]) for span in spans]
    for number, each in enumerate(body):
        if number not in inside:
            pieces += [_join(source, [node]) for node in list_definitions([each]) if _is_generated(node)]
    yield from (each for each in pieces if read_signature(_define(each)).is_given)


def _join(source: SourceModule, statements: Sequence[ast.stmt]) -> Piece:
    """Return the piece of some statements, which has the name of what they define more than once, or first."""
    definitions = [*list_definitions(statements)]
    counts = Counter(each.name for each in definitions)
    name = next((name for name, count in counts.items() if count > 1), definitions[0].name)
    return make_piece(source, statements, name=name, names=counts)


def _define(piece: Piece) -> Definition:
    """Return the definition of a piece in the graph."""
    stubs = [strip_bodies(copy.deepcopy(each)) for each in piece.statements]
    own = [each for each in list_definitions(stubs) if each.name == piece.name]
    documented = next((each for each in own if not has_decorator(each, "overload")), own[0])
    docstring = ast.get_docstring(documented) or ""
    if docstring:
        documented.body = documented.body[1:] or [ast.Expr(ast.Constant(...))]
    return Definition(
        name=piece.name,
        file_path=f"{SOURCES}/{piece.source.module.path}",
        docstring=docstring if docstring.strip() else write_header(documented),
        signature="\n".join(map(ast.unparse, stubs)),
    )


def _find_repetitions(body: Sequence[ast.stmt]) -> list[range]:
    """Return the ranges of statements from the first to the last definition of a name; none overlap."""
    places: dict[str, list[tuple[int, Function | ast.ClassDef]]] = {}
    for number, each in enumerate(body):
        for node in list_definitions([each]):
            places.setdefault(node.name, []).append((number, node))
    found = list[range]()
    for several in places.values():
        if len(several) > 1 and any(_is_generated(node) for _, node in several):
            span = range(several[0][0], several[-1][0] + 1)
            if found and span.start < found[-1].stop:
                span = range(found[-1].start, max(span.stop, found.pop().stop))
            found.append(span)
    return found


def _is_generated(node: Function | ast.ClassDef) -> bool:
    """Return whether a definition has a body that can be missing.

    Python calls the functions of a module with special names when it imports others.
    """
    if isinstance(node, Function):
        return node.name not in ("__getattr__", "__dir__")
    return any(isinstance(inner, Function) for inner in ast.walk(node))


@dataclass(frozen=True, kw_only=True)
class _Needs:
    """The names that a piece uses."""

    pieces: frozenset[Piece]
    behind: frozenset[Piece]
    """What the variables that it uses are made of."""
    modules: frozenset[str]
    """The modules in which it finds something, its own included."""


class _Extractor:
    """Makes the nodes of a package."""

    def __init__(self, modules: Mapping[str, SourceModule]) -> None:
        """Take the modules of the package."""
        self._modules = modules
        self._references = References(modules)
        self._pieces = [piece for source in modules.values() for piece in source.pieces]

    def list_nodes(self) -> Iterator[Node]:
        """Yield a composite for each module, then the leaves."""
        for source in self._modules.values():
            yield Node(
                id=NodeId(source.module.name),
                name=source.module.name,
                type="package" if source.module.is_package else "module",
                node_type="composite",
                file_path=f"{SOURCES}/{source.module.path}",
                docstring=ast.get_docstring(source.tree) or "",
                code=source.code,
            )
        numbers = {piece: number for number, piece in enumerate(self._pieces)}
        needs = [self._find_needs(piece) for piece in self._pieces]
        direct = [sorted(numbers[other] for other in each.pieces) for each in needs]
        groups = sorted(map(sorted, find_components(direct)))
        dependencies = self._connect(groups, needs)
        for group, needed in zip(groups, dependencies, strict=True):
            first, *others = (self._pieces[number] for number in group)
            own = _define(first)
            package, _, module = first.source.module.name.partition(".")
            yield Node(
                id=first.id,
                name=first.name,
                type="class" if any(isinstance(each, ast.ClassDef) for each in first.statements) else "function",
                node_type="leaf",
                file_path=own.file_path,
                docstring=own.docstring,
                signature=own.signature,
                also=tuple(map(_define, others)),
                dependencies=tuple(self._pieces[groups[each][0]].id for each in needed),
                subgraph_id=module or package,
                parent=NodeId(first.source.module.name),
            )

    def _connect(self, groups: Sequence[Sequence[int]], needs: Sequence[_Needs]) -> list[list[int]]:
        """Return the groups that each group needs. Code that runs at import comes first where this makes no circle."""
        group_of = {self._pieces[number]: at for at, group in enumerate(groups) for number in group}
        found: list[dict[int, None]] = []
        for at, group in enumerate(groups):
            direct = sorted({group_of[each] for number in group for each in needs[number].pieces} - {at})
            found.append(dict.fromkeys(direct))
        dependents: list[set[int]] = [set() for _ in groups]
        for at, needed in enumerate(found):
            for each in needed:
                dependents[each].add(at)
        called = {name: self._find_called(source) for name, source in self._modules.items()}
        for at, group in enumerate(groups):
            wanted = {each for number in group for each in needs[number].behind}
            wanted |= {each for number in group for name in needs[number].modules for each in called[name]}
            targets = {group_of[each] for each in wanted} - {at}
            if targets:
                above, below = _reach(at, dependents), _reach(at, found)
                for each in sorted(targets - above - below):
                    found[at][each] = None
                    dependents[each].add(at)
        return [[*needed] for needed in found]

    def _find_needs(self, piece: Piece) -> _Needs:
        source = piece.source
        has_types = not source.has_late_annotations
        statements = [*piece.statements] if has_types else drop_annotations(piece.statements)
        imports = list_local_imports(statements, source)
        pieces, behind, modules = set[Piece](), set[Piece](), {source.module.name}
        for dotted in list_dotted(statements, local=imports.names):
            for found in self._references.follow(source, dotted, local=imports):
                modules.add(found.module.name if isinstance(found, SourceModule) else found.source.module.name)
                pieces |= {found} if isinstance(found, Piece) else set()
                behind |= self._references.list_behind(found) if isinstance(found, Variable) else set()
        return _Needs(pieces=frozenset(pieces - {piece}), behind=frozenset(behind), modules=frozenset(modules))

    def _find_called(self, source: SourceModule) -> frozenset[Piece]:
        """Return the pieces that module-level code calls when the module is imported."""
        called = set[Piece]()
        for dotted in source.list_called():
            for found in self._references.follow(source, dotted):
                called |= {found} if isinstance(found, Piece) else set()
                called |= self._references.list_behind(found) if isinstance(found, Variable) else set()
        return frozenset(called)


def _reach(start: int, arrows: Sequence[Iterable[int]]) -> set[int]:
    """Return what can be reached from a vertex, which is included."""
    reached, waiting = {start}, [start]
    while waiting:
        new = [each for each in arrows[waiting.pop()] if each not in reached]
        reached.update(new)
        waiting += new
    return reached
