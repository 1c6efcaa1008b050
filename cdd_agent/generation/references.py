"""Finds the definitions to which the names in a package refer, by ``ast`` alone. Pure.

A **piece** is the part of a module that one node defines; the names of the other statements are variables. Names are
followed through imports, aliases and re-exports.
"""

import ast
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cdd_agent.evidence.source import Function, read_last_name
from cdd_agent.generation.contents import GlobalName, PlannedModule, iterate_early
from cdd_agent.generation.import_plan import Bindings, collect_bindings, read_bindings
from cdd_agent.generation.late_code import list_bindings
from cdd_agent.generation.layout import name_module
from cdd_agent.generation.signatures import parse_code
from cdd_agent.symbols.scopes import read_all_names
from cdd_agent.tickets.graph import NodeId
from cdd_agent.untrusted.python_source import ForeignModule, find_first_line, parse, split_lines

_MOST_STEPS = 50
"""From a module to one that it imports a name from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """The definitions of a node in one module."""

    source: "SourceModule"
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


def make_piece(source: "SourceModule", statements: Sequence[ast.stmt], *, name: str, names: Iterable[str]) -> Piece:
    """Return the piece of statements that follow each other."""
    lines = range(find_first_line(statements[0]), (statements[-1].end_lineno or 0) + 1)
    return Piece(source=source, name=name, names=tuple(names), statements=tuple(statements), lines=lines)


@dataclass(frozen=True, kw_only=True, eq=False)
class Variable:
    """A name of module-level code."""

    source: "SourceModule"
    name: str


@dataclass(frozen=True, kw_only=True, eq=False)
class SourceModule:
    """A module that is parsed."""

    module: PlannedModule
    """All its text is code."""
    tree: ast.Module
    cut: Callable[["SourceModule"], Iterable[Piece]]
    """Returns its pieces, which do not overlap."""

    @cached_property
    def bindings(self) -> Bindings:
        """What its names are imported from."""
        return read_bindings(self.module)

    @cached_property
    def typed(self) -> Bindings:
        """The imports that only type checkers see."""
        nodes = (inner for each in self.tree.body if is_for_programs(each) for inner in ast.walk(each))
        return collect_bindings((n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)), self.module)

    @cached_property
    def has_late_annotations(self) -> bool:
        """Whether it never evaluates annotations."""
        imports = (each for each in self.tree.body if isinstance(each, ast.ImportFrom) and each.module == "__future__")
        return any(alias.name == "annotations" for each in imports for alias in each.names)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces, in the order of the module."""
        return tuple(sorted(self.cut(self), key=lambda each: each.lines.start))

    @cached_property
    def owners(self) -> Mapping[str, Piece]:
        """Function or class -> the piece that defines it."""
        return {name: piece for piece in self.pieces for name in piece.names}

    @cached_property
    def late_exports(self) -> Mapping[str, str]:
        """Name -> module, if a function of the module imports names of others when they are first used."""
        if not any(isinstance(each, Function) and each.name == "__getattr__" for each in self.tree.body):
            return {}
        tables = (node for each in self.code_body for node in ast.walk(each) if isinstance(node, ast.Dict))
        pairs = (pair for table in tables for pair in zip(table.keys, table.values, strict=True))
        return {
            name.value: module.value
            for name, module in pairs
            if isinstance(name, ast.Constant) and isinstance(module, ast.Constant)
            if isinstance(name.value, str) and isinstance(module.value, str)
        }

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
        return tuple(each for each in tree.body if not is_for_programs(each)) if tree is not None else ()

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
                    yield from list_dotted([func])
                case ast.FunctionDef(decorator_list=decorators) | ast.ClassDef(decorator_list=decorators):
                    yield from list_dotted(decorators)
                case _:
                    pass


def read_module(path: str, text: str, *, cut: Callable[[SourceModule], Iterable[Piece]]) -> SourceModule | None:
    """Return a module whose path is below ``src`` or begins with its package; None if it cannot be compiled."""
    tree = parse(text) if parse_code(text) is not None else None
    if tree is None or isinstance(tree, ForeignModule):
        return None
    module = PlannedModule(path=path, name=name_module(path), code=text)
    return SourceModule(module=module, tree=tree, cut=cut)


def list_definitions(body: Iterable[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    """Yield the functions and classes of a block that exist when the module is imported, in order."""
    yield from (each for each in _flatten(body) if isinstance(each, Function | ast.ClassDef))


def is_for_programs(node: ast.stmt) -> bool:
    """Return whether a statement is for type checkers, or for the module as a program."""
    if not isinstance(node, ast.If):
        return False
    is_main = any(isinstance(inner, ast.Name) and inner.id == "__name__" for inner in ast.walk(node.test))
    return is_main or read_last_name(node.test) == "TYPE_CHECKING"


def _flatten(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block that run when it is imported, those below ``if`` and ``try`` one by one."""
    for each in body:
        match each:
            case ast.If(body=first, orelse=other):
                yield from _flatten([*(() if is_for_programs(each) else first), *other])
            case ast.Try(body=first, handlers=handlers, orelse=other, finalbody=last):
                caught = (inner for handler in handlers for inner in handler.body)
                yield from _flatten([*first, *caught, *other, *last])
            case _:
                yield each


class _DropAnnotations(ast.NodeTransformer):
    """Removes annotations."""

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


def drop_annotations(statements: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Return copies of statements without annotations."""
    return [_DropAnnotations().visit(copy.deepcopy(each)) for each in statements]


def list_dotted(nodes: Iterable[ast.AST], *, local: Iterable[str] = ()) -> dict[tuple[str, ...], int]:
    """Return the names that statements use and do not define, each with the attributes after it -> its first line.

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
    names = read_all_names(*nodes).list_free()
    names += [each for each in inner if isinstance(each, ast.Name) and each.id in imported]
    found: dict[tuple[str, ...], int] = {}
    for name in names:
        dotted = (name.id, *behind.get(id(name), ()))
        found[dotted] = min(name.lineno, found.get(dotted, name.lineno))
    return found


def list_local_imports(statements: Iterable[ast.stmt], source: SourceModule) -> Bindings:
    """Return what functions import inside of them."""
    inner = (node for each in statements for node in ast.walk(each))
    return collect_bindings((n for n in inner if isinstance(n, ast.Import | ast.ImportFrom)), source.module)


Found = Piece | Variable | SourceModule


class References:
    """Finds what names refer to."""

    def __init__(self, modules: Mapping[str, SourceModule]) -> None:
        """Take the modules of a package."""
        self._modules = modules
        self._behind: dict[tuple[str, str], frozenset[Piece]] = {}

    def list_behind(self, variable: Variable) -> frozenset[Piece]:
        """Return the pieces that a variable is made of."""
        key = (variable.source.module.name, variable.name)
        if key not in self._behind:
            self._behind[key] = frozenset()  # for variables that are made of each other
            pieces = set[Piece]()
            for dotted in list_dotted(variable.source.variables[variable.name]):
                for found in self.follow(variable.source, dotted):
                    pieces |= {found} if isinstance(found, Piece) else set()
                    pieces |= self.list_behind(found) if isinstance(found, Variable) else set()
            self._behind[key] = frozenset(pieces)
        return self._behind[key]

    def follow(
        self, source: SourceModule, dotted: Sequence[str], *, local: Bindings | None = None
    ) -> tuple[Found, ...]:
        """Return what a dotted name uses: modules, and at the end a piece or a variable; nothing if it is foreign."""
        first, *parts = dotted
        symbol = local.names.get(first) if local is not None else None
        here = self._find_symbol(symbol, depth=0) if symbol is not None else self._find(source, first)
        found = list[Found]()
        for part in parts:
            if not isinstance(here, SourceModule):
                break
            found.append(here)
            here = self._find(here, part)
        return tuple(found) if here is None else (*found, here)

    def _find(self, source: SourceModule, name: str, *, depth: int = 0) -> Found | None:
        """Return what a name in a module is."""
        if name in source.owners:
            return source.owners[name]
        symbol = source.bindings.names.get(name)
        found = self._find_symbol(symbol, depth=depth) if symbol is not None else None
        if found is None and name in source.variables:
            return Variable(source=source, name=name)
        for star in source.bindings.stars:
            if found is None and star in self._modules:
                found = self._find_symbol(GlobalName(star, name), depth=depth)
        found = found or self._modules.get(f"{source.module.name}.{name}")
        if found is None and name in source.late_exports:
            found = self._find_symbol(GlobalName(source.late_exports[name], name), depth=depth)
        return found

    def _find_symbol(self, symbol: GlobalName, *, depth: int) -> Found | None:
        module = self._modules.get(f"{symbol.module}.{symbol.name}".strip("."))
        source = self._modules.get(symbol.module)
        if symbol.name and source is not None and depth < _MOST_STEPS:
            return self._find(source, symbol.name, depth=depth + 1) or module
        return module
