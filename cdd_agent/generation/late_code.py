"""Code of a skeleton that calls a stub when its module is imported: a comment until the stub is written. Pure.

A line ``#: after NAMES: CODE`` becomes ``CODE`` when all NAMES are written, and a line with ``#: until NAMES``, which
binds a name to None for the time being, goes.
"""

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cdd_agent.evidence.source import Function, read_last_name
from cdd_agent.generation.contents import PlannedModule, Symbol, iterate_early
from cdd_agent.generation.import_plan import ModuleImports, iterate_block, read_bindings
from cdd_agent.generation.signatures import list_stubs

_CONSTRUCTORS = ("__init__", "__new__", "__post_init__")
_MOST_BASES = 50
_LATE = re.compile(r"(?P<indent>\s*)#: after (?P<names>[\w., ]+): (?P<code>.*)")
_UNTIL = re.compile(r".*  #: until (?P<names>[\w., ]+)")


def write_late_code(text: str, written: Collection[str]) -> str:
    """Return a module in which code that waits for definitions is there if all of them are written.

    ``written``: import paths, as ``Layout.name_definitions`` returns them.
    """
    lines = list[str]()
    for line in text.split("\n"):
        late, until = _LATE.fullmatch(line), _UNTIL.fullmatch(line)
        names = late or until
        if names is None or not set(names["names"].split(", ")).issubset(written):
            lines.append(line)
        elif late is not None:
            lines.append(late["indent"] + late["code"])
    return "\n".join(lines)


@dataclass(kw_only=True)
class Scope:
    """The names of a module, and the symbols behind them."""

    module: PlannedModule
    names: Mapping[str, Symbol | None]
    stars: Sequence[str]
    late: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Name that is None for the time being -> import paths of the definitions that it waits for."""


@dataclass(kw_only=True)
class Waits:
    """Which definitions code waits for: those that it calls when its module is imported, while they are stubs."""

    modules: Mapping[str, PlannedModule]
    scopes: Mapping[str, Scope]

    def list_waits(self, statement: ast.AST, scope: Scope) -> tuple[str, ...]:
        """Return the import paths of the stubs that a statement calls when it runs."""
        found = set[str]()
        for node in iterate_early(statement):
            match node:
                case ast.Call(func=func):
                    found |= self.list_called(func, scope)
                case ast.FunctionDef(decorator_list=decorators) | ast.ClassDef(decorator_list=decorators):
                    found |= {path for each in decorators for path in self.list_called(each, scope)}
                case ast.Name(id=name, ctx=ast.Load()) if name in scope.late:
                    found |= {*scope.late[name]}
                case _:
                    pass
        return tuple(sorted(found))

    def list_called(self, func: ast.expr, scope: Scope) -> set[str]:
        """Return the import paths of the stubs that a call of an expression would call."""
        match func:
            case ast.Name(id=name):
                return self._list_of(self._find(name, scope))
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                symbol = self._find(owner, scope)
                if symbol is None:
                    return set()
                if not symbol.name:
                    return self._list_of(Symbol(symbol.module, name))
                if f"{symbol.module}.{symbol.name}" in self.modules:
                    return self._list_of(Symbol(f"{symbol.module}.{symbol.name}", name))
                return self._list_methods(symbol, (name,))
            case _:
                return set()

    def _find(self, name: str, scope: Scope) -> Symbol | None:
        """Return what a name is, through the modules that only pass it on."""
        seen = set[tuple[str, str]]()
        while (scope.module.name, name) not in seen:
            seen.add((scope.module.name, name))
            if name in scope.module.groups:
                return Symbol(scope.module.name, name)
            symbol = scope.names.get(name)
            if symbol is None:
                symbol = next((Symbol(star, name) for star in scope.stars if star in self.modules), None)
            if symbol is None or not symbol.name or symbol.module not in self.scopes:
                return symbol
            if f"{symbol.module}.{symbol.name}" in self.modules:
                return symbol
            scope, name = self.scopes[symbol.module], symbol.name
        return None

    def _list_of(self, symbol: Symbol | None) -> set[str]:
        module = self.modules.get(symbol.module) if symbol is not None else None
        if symbol is None or module is None or symbol.name not in module.groups:
            return set()
        if any(isinstance(each, ast.ClassDef) for each in module.groups[symbol.name]):
            return self._list_methods(symbol, _CONSTRUCTORS)
        return {f"{module.name}.{symbol.name}"} if symbol.name in module.raising else set()

    def _list_methods(self, symbol: Symbol, methods: Sequence[str], *, depth: int = 0) -> set[str]:
        """Return the import paths of the stubs behind some methods of a class, also of those it inherits."""
        module = self.modules.get(symbol.module)
        statements = module.groups.get(symbol.name, []) if module is not None else []
        found = set[str]()
        for own in (each for each in statements if isinstance(each, ast.ClassDef)):
            defined = {name for name, each in list_stubs(own.body) if isinstance(each, Function)}
            for method in defined.intersection(methods):
                qualified = f"{symbol.name}.{method}"
                is_leaf = module is not None and qualified in module.pieces
                found.add(f"{symbol.module}.{qualified if is_leaf else symbol.name}")
            for base in own.bases:
                inherited = self._find(read_last_name(base), self.scopes[symbol.module])
                if inherited is not None and inherited != symbol and depth < _MOST_BASES and not found:
                    found |= self._list_methods(inherited, methods, depth=depth + 1)
        return found


def read_scopes(modules: Mapping[str, PlannedModule], plan: Mapping[str, ModuleImports]) -> dict[str, Scope]:
    """Return module -> its scope."""
    scopes = {}
    for module in modules.values():
        own = read_bindings(module)
        given = {name: symbol for symbol, name in plan[module.name].top.items()}
        exports = {name: Symbol(source, name) for name, source in plan[module.name].exports.items()}
        scopes[module.name] = Scope(module=module, names={**exports, **own.names, **given}, stars=own.stars)
    return scopes


def write_comment(lines: Sequence[str], *, waits: Sequence[str], bound: Iterable[str]) -> list[str]:
    """Return lines as a comment for ``write_late_code``, after names that are None until then."""
    names = ", ".join(waits)
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    placeholders = [f"{indent}{name} = None  #: until {names}" for name in bound]
    return [*placeholders, *(f"{indent}#: after {names}: {line.removeprefix(indent)}" for line in lines)]


def list_bindings(statement: ast.AST) -> list[str]:
    """Return the names that a statement binds in its block."""
    found = dict[str, None]()
    for node in iterate_block(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                found[name] = None
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = None
            case _:
                pass
    return [*found]
