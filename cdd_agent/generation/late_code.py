"""Code of a skeleton that calls a stub when its module is imported: a comment until the stub is written. Pure.

A line ``#: after NAMES: CODE`` becomes ``CODE`` when all NAMES are written, and a line with ``#: until NAMES``, which
binds a name to None for the time being, goes.
"""

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdd_agent.evidence.source import Function, read_last_name
from cdd_agent.generation.contents import PlannedModule, Symbol, iterate_early
from cdd_agent.generation.import_plan import ModuleImports, iterate_block, read_bindings
from cdd_agent.generation.signatures import list_stubs

_CONSTRUCTORS = ("__init__", "__new__", "__post_init__")
_MOST_STEPS = 20
"""From a class to its bases, or from a module to one that it imports a name from."""
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
    inside: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Name in the body of a class -> import paths of the stubs that a call of it calls."""
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
                case ast.Name(id=name, ctx=ast.Load()) | ast.AugAssign(target=ast.Name(id=name)) if name in scope.late:
                    found |= {*scope.late[name]}
                case _:
                    pass
        return tuple(sorted(found))

    def list_called(self, func: ast.expr, scope: Scope) -> set[str]:
        """Return the import paths of the stubs that a call of an expression would call."""
        if isinstance(func, ast.Name) and func.id in scope.inside:
            return {*scope.inside[func.id]}
        symbol = self._resolve(func, scope)
        if symbol is None and isinstance(func, ast.Attribute):
            owner = self._resolve(func.value, scope)
            return self._list_methods(owner, (func.attr,)) if owner is not None else set()
        return self._list_of(symbol)

    def _resolve(self, node: ast.expr, scope: Scope) -> Symbol | None:
        """Return what a dotted name is; None if it is not a module, or a name of one."""
        match node:
            case ast.Name(id=name) if name not in scope.inside:
                return self._find(name, scope)
            case ast.Attribute(value=value, attr=name):
                owner = self._resolve(value, scope)
                module = f"{owner.module}.{owner.name}".strip(".") if owner is not None else ""
                if f"{module}.{name}" in self.modules:
                    return Symbol(f"{module}.{name}", "")
                return self._find(name, self.scopes[module]) if module in self.scopes else None
            case _:
                return None

    def enter(self, owner: ast.ClassDef, scope: Scope, *, qualified: str) -> Scope:
        """Return the scope of the body of a class."""
        inside: dict[str, set[str]] = {}
        for name, each in list_stubs(owner.body):
            path = {_find_piece(scope.module, f"{qualified}.{name}")}
            methods = {inner for inner, _ in list_stubs(each.body)} if isinstance(each, ast.ClassDef) else set[str]()
            is_stub = isinstance(each, Function) or not methods.isdisjoint(_CONSTRUCTORS)
            inside.setdefault(name, set()).update(path if is_stub else ())
        return replace(scope, inside=inside)

    def _find(self, name: str, scope: Scope, *, depth: int = 0) -> Symbol | None:
        """Return what a name is, through the modules that only pass it on."""
        if name in scope.module.groups:
            return Symbol(scope.module.name, name)
        given = scope.names.get(name)
        candidates = [Symbol(star, name) for star in scope.stars] if given is None else [given]
        for symbol in candidates:
            module = f"{symbol.module}.{symbol.name}".strip(".")
            if module in self.modules:
                return symbol
            found = None
            if symbol.name and symbol.module in self.scopes and depth < _MOST_STEPS:
                found = self._find(symbol.name, self.scopes[symbol.module], depth=depth + 1)
            if found is not None:
                return found
        # An import of a module from anywhere makes it a name of its package.
        inside = f"{scope.module.name}.{name}"
        return Symbol(inside, "") if inside in self.modules else None

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
                found.add(_find_piece(self.scopes[symbol.module].module, f"{symbol.name}.{method}"))
            for base in own.bases:
                inherited = self._find(read_last_name(base), self.scopes[symbol.module])
                if inherited is not None and inherited != symbol and depth < _MOST_STEPS and not found:
                    found |= self._list_methods(inherited, methods, depth=depth + 1)
        return found


def _find_piece(module: PlannedModule, qualified: str) -> str:
    """Return the import path of the leaf that a definition is part of."""
    while qualified not in module.pieces and "." in qualified:
        qualified = qualified.rpartition(".")[0]
    return f"{module.name}.{qualified}"


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
