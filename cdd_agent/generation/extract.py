"""A planning graph from the sources of a package, by ``ast`` alone. Pure: nothing of the package is imported or run.

A **piece** is what a node defines in one module: a function, a class with its methods, or the statements that define a
name more than once, such as overloads. Pieces that need each other are one node. What is not a piece is module-level
code: imports, constants, and classes without a method, of which nothing is left to write.
"""

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cdd_agent.errors import UsageError, format_count, join_first
from cdd_agent.evidence.source import Function, read_last_name
from cdd_agent.generation.contents import PlannedModule, Symbol, has_decorator, iterate_early
from cdd_agent.generation.import_plan import Bindings, collect_bindings, read_bindings
from cdd_agent.generation.imports import list_free_names
from cdd_agent.generation.late_code import list_bindings
from cdd_agent.generation.layout import SOURCES, Layout
from cdd_agent.generation.package_files import COMPILED, PackageFiles
from cdd_agent.generation.signatures import parse_code, read_signature, strip_bodies, write_header
from cdd_agent.tickets.graph import Definition, Graph, Node, NodeId, find_components
from cdd_agent.tickets.graph_problems import find_path_problem, find_problems
from cdd_agent.untrusted.paths import explain_protection
from cdd_agent.untrusted.python_source import (
    ForeignModule,
    decode,
    explain_unreadable,
    find_syntax_error,
    split_lines,
    with_deep_stack,
)
from pytest_tdd_agent.sources import find_encoding

_TESTS = ("test", "tests")
_TEST_FILE = re.compile(r"(test_.*|.*_test)\.py")
_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+.*$", re.MULTILINE)
_MOST_STEPS = 50
"""From a module to one that it imports a name from."""
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


def _sort_files(package: PackageFiles) -> tuple[list["_Source"], list[str], list[str]]:
    """Return the sources, the paths of the files that are copied as they are, and remarks on the others."""
    sources, data, notices = list[_Source](), list[str](), list[str]()
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


def _read_source(path: str, content: bytes) -> tuple["_Source | None", str]:
    """Return a source, or why there is none."""
    if why := explain_unreadable(content):
        return None, why
    text = decode(content)
    if not find_encoding(content).startswith("utf-8"):
        first, second, rest = (*text.split("\n", 2), "", "")[:3]
        text = "\n".join((*(_CODING.sub("", line) for line in (first, second)), rest))
    if error := find_syntax_error(text):
        return None, f"this Python cannot read it: {error}"
    tree = parse_code(text)
    if tree is None or isinstance(tree, ForeignModule):
        return None, "this Python cannot compile it"
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return _Source(module=PlannedModule(path=path, name=name, code=text), tree=ast.parse(text)), ""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Piece:
    """The definitions of a node in one module."""

    source: "_Source"
    name: str
    names: tuple[str, ...]
    """All functions and classes in it."""
    statements: tuple[ast.stmt, ...]
    lines: range
    """1-based."""

    @property
    def id(self) -> NodeId:
        """The id that its node would have."""
        return NodeId(f"{self.source.module.name}:{self.name}")

    @cached_property
    def definition(self) -> Definition:
        """Its definition in the graph."""
        stubs = [strip_bodies(copy.deepcopy(each)) for each in self.statements]
        own = [each for each in _list_definitions(stubs) if each.name == self.name]
        documented = next((each for each in own if not has_decorator(each, "overload")), own[0])
        docstring = ast.get_docstring(documented) or ""
        if docstring:
            documented.body = documented.body[1:] or [ast.Expr(ast.Constant(...))]
        return Definition(
            name=self.name,
            file_path=f"{SOURCES}/{self.source.module.path}",
            docstring=docstring if docstring.strip() else write_header(documented),
            signature="\n".join(map(ast.unparse, stubs)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Variable:
    """A name of module-level code."""

    source: "_Source"
    name: str


@dataclass(frozen=True, kw_only=True, eq=False)
class _Source:
    """A module that is parsed."""

    module: PlannedModule
    """All its text is code."""
    tree: ast.Module

    @cached_property
    def bindings(self) -> Bindings:
        """What its names are imported from."""
        return read_bindings(self.module)

    @cached_property
    def has_late_annotations(self) -> bool:
        """Whether it never evaluates annotations."""
        imports = (each for each in self.tree.body if isinstance(each, ast.ImportFrom) and each.module == "__future__")
        return any(alias.name == "annotations" for each in imports for alias in each.names)

    @cached_property
    def pieces(self) -> tuple[_Piece, ...]:
        """The pieces, in the order of the module."""
        body = self.tree.body
        spans = _find_repetitions(body)
        inside = {number for span in spans for number in span}
        pieces = [self._make_piece([body[number] for number in span]) for span in spans]
        for number, each in enumerate(body):
            if number not in inside:
                pieces += [self._make_piece([node]) for node in _list_definitions([each]) if _is_generated(node)]
        fitting = (each for each in pieces if read_signature(each.definition).is_given)
        return tuple(sorted(fitting, key=lambda each: each.lines.start))

    def _make_piece(self, statements: Sequence[ast.stmt]) -> _Piece:
        definitions = [*_list_definitions(statements)]
        counts = Counter(each.name for each in definitions)
        name = next((name for name, count in counts.items() if count > 1), definitions[0].name)
        lines = range(_find_first_line(statements[0]), (statements[-1].end_lineno or 0) + 1)
        return _Piece(source=self, name=name, names=tuple(counts), statements=tuple(statements), lines=lines)

    @cached_property
    def owners(self) -> Mapping[str, _Piece]:
        """Function or class -> the piece that defines it."""
        return {name: piece for piece in self.pieces for name in piece.names}

    @cached_property
    def code(self) -> str:
        """The module-level code, with marks at the places of the pieces."""
        lines = split_lines(self.module.code)
        for piece in reversed(self.pieces):
            first = lines[piece.lines.start - 1]
            mark = f"{first[: len(first) - len(first.lstrip())]}# node: {piece.name}"
            lines[piece.lines.start - 1 : piece.lines.stop - 1] = [mark]
        return "\n".join(lines)

    @cached_property
    def code_body(self) -> tuple[ast.stmt, ...]:
        """The statements of the module-level code, with ``pass`` at the places of the pieces."""
        tree = parse_code(self.code)
        return tuple(each for each in tree.body if not _is_for_programs(each)) if tree is not None else ()

    @cached_property
    def variables(self) -> Mapping[str, list[ast.stmt]]:
        """Name that the code binds -> the statements that do."""
        found: dict[str, list[ast.stmt]] = {}
        for each in _flatten(self.code_body):
            for name in list_bindings(each):
                found.setdefault(name, []).append(each)
        return found

    def list_called(self) -> Iterator[tuple[str, ...]]:
        """Yield the dotted names that the module-level code calls when the module is imported."""
        for node in (inner for each in self.code_body for inner in iterate_early(each)):
            match node:
                case ast.Call(func=func):
                    yield from _list_dotted([func])
                case ast.FunctionDef(decorator_list=decorators) | ast.ClassDef(decorator_list=decorators):
                    yield from _list_dotted(decorators)
                case _:
                    pass


def _find_repetitions(body: Sequence[ast.stmt]) -> list[range]:
    """Return the ranges of statements from the first to the last definition of a name; none overlap."""
    places: dict[str, list[tuple[int, Function | ast.ClassDef]]] = {}
    for number, each in enumerate(body):
        for node in _list_definitions([each]):
            places.setdefault(node.name, []).append((number, node))
    found = list[range]()
    for several in places.values():
        if len(several) > 1 and any(_is_generated(node) for _, node in several):
            span = range(several[0][0], several[-1][0] + 1)
            if found and span.start < found[-1].stop:
                span = range(found[-1].start, max(span.stop, found.pop().stop))
            found.append(span)
    return found


def _list_definitions(body: Iterable[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    """Yield the functions and classes of a block that exist when the module is imported, in order."""
    for each in body:
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield each
            case ast.If(body=first, orelse=other):
                yield from _list_definitions([*(() if _is_for_programs(each) else first), *other])
            case ast.Try(body=first, handlers=handlers, orelse=other, finalbody=last):
                caught = (inner for handler in handlers for inner in handler.body)
                yield from _list_definitions([*first, *caught, *other, *last])
            case _:
                pass


def _is_for_programs(node: ast.stmt) -> bool:
    """Return whether a statement is for type checkers, or for the module as a program."""
    if not isinstance(node, ast.If):
        return False
    is_main = any(isinstance(inner, ast.Name) and inner.id == "__name__" for inner in ast.walk(node.test))
    return is_main or read_last_name(node.test) == "TYPE_CHECKING"


def _is_generated(node: Function | ast.ClassDef) -> bool:
    """Return whether a definition has a body that can be missing.

    Python calls the functions of a module with special names when it imports others.
    """
    if isinstance(node, Function):
        return node.name not in ("__getattr__", "__dir__")
    return any(isinstance(inner, Function) for inner in ast.walk(node))


def _find_first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, Function | ast.ClassDef) else []
    return min([node.lineno, *(each.lineno for each in decorators)])


def _flatten(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block, those below ``if`` and ``try`` one by one."""
    for each in body:
        match each:
            case ast.If(body=first, orelse=other):
                yield from _flatten([*first, *other])
            case ast.Try(body=first, handlers=handlers, orelse=other, finalbody=last):
                caught = (inner for handler in handlers for inner in handler.body)
                yield from _flatten([*first, *caught, *other, *last])
            case _:
                yield each


class _DropAnnotations(ast.NodeTransformer):
    """Removes what is never evaluated."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """Drop the type of a parameter."""
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Drop the type of the result."""
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Drop the type of the result."""
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Drop the type of a variable."""
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _list_dotted(nodes: Iterable[ast.AST], *, local: Iterable[str] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the names that statements use and do not define, each with the attributes after it.

    ``local``: further names, which they import.
    """
    nodes = [*nodes]
    inner = [node for each in nodes for node in ast.walk(each)]
    behind: dict[int, list[str]] = {}
    seen = set[int]()
    for node in inner:  # an attribute is before those inside of it
        parts, here = list[str](), node
        while isinstance(here, ast.Attribute) and id(here) not in seen:
            seen.add(id(here))
            parts.append(here.attr)
            here = here.value
        if parts and isinstance(here, ast.Name):
            behind[id(here)] = parts[::-1]
    imported = {*local}
    names = [*list_free_names(nodes), *(each for each in inner if isinstance(each, ast.Name) and each.id in imported)]
    yield from dict.fromkeys((name.id, *behind.get(id(name), ())) for name in names)


@dataclass(frozen=True, kw_only=True)
class _Needs:
    """The names that a piece uses."""

    pieces: frozenset[_Piece]
    behind: frozenset[_Piece]
    """What the variables that it uses are made of."""
    modules: frozenset[str]
    """The modules in which it finds something, its own included."""


_Found = _Piece | _Variable | _Source


class _Extractor:
    """Makes the nodes of a package."""

    def __init__(self, modules: Mapping[str, _Source]) -> None:
        """Take the modules of the package."""
        self._modules = modules
        self._pieces = [piece for source in modules.values() for piece in source.pieces]
        self._behind: dict[tuple[str, str], frozenset[_Piece]] = {}

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
            own = first.definition
            package, _, module = first.source.module.name.partition(".")
            yield Node(
                id=first.id,
                name=first.name,
                type="class" if any(isinstance(each, ast.ClassDef) for each in first.statements) else "function",
                node_type="leaf",
                file_path=own.file_path,
                docstring=own.docstring,
                signature=own.signature,
                also=tuple(each.definition for each in others),
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

    def _find_needs(self, piece: _Piece) -> _Needs:
        source = piece.source
        statements = [*piece.statements]
        if source.has_late_annotations:
            statements = [_DropAnnotations().visit(copy.deepcopy(each)) for each in statements]
        inner = [node for each in statements for node in ast.walk(each)]
        imports = collect_bindings((n for n in inner if isinstance(n, ast.Import | ast.ImportFrom)), source.module)
        pieces, behind, modules = set[_Piece](), set[_Piece](), {source.module.name}
        for dotted in _list_dotted(statements, local=imports.names):
            for found in self._follow(source, dotted, local=imports):
                modules.add(found.module.name if isinstance(found, _Source) else found.source.module.name)
                pieces |= {found} if isinstance(found, _Piece) else set()
                behind |= self._list_behind(found) if isinstance(found, _Variable) else set()
        return _Needs(pieces=frozenset(pieces - {piece}), behind=frozenset(behind), modules=frozenset(modules))

    def _find_called(self, source: _Source) -> frozenset[_Piece]:
        """Return the pieces that module-level code calls when the module is imported."""
        called = set[_Piece]()
        for dotted in source.list_called():
            for found in self._follow(source, dotted):
                called |= {found} if isinstance(found, _Piece) else set()
                called |= self._list_behind(found) if isinstance(found, _Variable) else set()
        return frozenset(called)

    def _list_behind(self, variable: _Variable) -> frozenset[_Piece]:
        """Return the pieces that a variable is made of."""
        key = (variable.source.module.name, variable.name)
        if key not in self._behind:
            self._behind[key] = frozenset()  # for variables that are made of each other
            pieces = set[_Piece]()
            for dotted in _list_dotted(variable.source.variables[variable.name]):
                for found in self._follow(variable.source, dotted):
                    pieces |= {found} if isinstance(found, _Piece) else set()
                    pieces |= self._list_behind(found) if isinstance(found, _Variable) else set()
            self._behind[key] = frozenset(pieces)
        return self._behind[key]

    def _follow(self, source: _Source, dotted: Sequence[str], *, local: Bindings | None = None) -> Iterator[_Found]:
        """Yield what a dotted name uses: modules, and at the end a piece or a variable."""
        first, *parts = dotted
        symbol = local.names.get(first) if local is not None else None
        found = self._find_symbol(symbol, depth=0) if symbol is not None else self._find(source, first)
        for part in parts:
            if not isinstance(found, _Source):
                break
            yield found
            found = self._find(found, part)
        if found is not None:
            yield found

    def _find(self, source: _Source, name: str, *, depth: int = 0) -> _Found | None:
        """Return what a name in a module is."""
        if name in source.owners:
            return source.owners[name]
        symbol = source.bindings.names.get(name)
        found = self._find_symbol(symbol, depth=depth) if symbol is not None else None
        if found is None and name in source.variables:
            return _Variable(source=source, name=name)
        for star in source.bindings.stars:
            if found is None and star in self._modules:
                found = self._find_symbol(Symbol(star, name), depth=depth)
        return found or self._modules.get(f"{source.module.name}.{name}")

    def _find_symbol(self, symbol: Symbol, *, depth: int) -> _Found | None:
        module = self._modules.get(f"{symbol.module}.{symbol.name}".strip("."))
        source = self._modules.get(symbol.module)
        if symbol.name and source is not None and depth < _MOST_STEPS:
            return self._find(source, symbol.name, depth=depth + 1) or module
        return module


def _reach(start: int, arrows: Sequence[Iterable[int]]) -> set[int]:
    """Return what can be reached from a vertex, which is included."""
    reached, waiting = {start}, [start]
    while waiting:
        new = [each for each in arrows[waiting.pop()] if each not in reached]
        reached.update(new)
        waiting += new
    return reached
