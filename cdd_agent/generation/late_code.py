"""Code of a skeleton that calls a stub when its module is imported: a comment until the stub is written. Pure.

So is a definition that calls one: by a default, by its bases, or because a base has a metaclass. What needs such a name
when a module is imported waits too, in any module.

A line ``#: after NAMES: CODE`` becomes ``CODE`` when all NAMES are written, and a line with ``#: until NAMES``, which
binds a name to None for the time being, goes.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby

from cdd_agent.evidence.source import Function
from cdd_agent.generation.contents import GlobalName, PlannedModule, iterate_early
from cdd_agent.generation.import_plan import ModuleImports, iterate_block, read_bindings
from cdd_agent.generation.signatures import list_stubs, parse_code
from cdd_agent.untrusted.python_source import find_first_line

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


def has_late_code(text: str) -> bool:
    """Return whether a module has code that still waits."""
    return any(_LATE.fullmatch(line) or _UNTIL.fullmatch(line) for line in text.split("\n") if "#: " in line)


def list_effects(text: str) -> Iterator[str]:
    """Yield the import paths that the statements of a module wait for which bind no name, such as ``register(f)``."""
    found = (_LATE.fullmatch(line) for line in text.split("\n"))
    for names, lines in groupby(found, lambda late: "" if late is None else late["names"]):
        tree = parse_code("\n".join(late["code"] for late in lines if late is not None))
        if names and tree is not None and any(isinstance(each, ast.Expr) for each in tree.body):
            yield from names.split(", ")


@dataclass(kw_only=True)
class Scope:
    """The names of a module, and the symbols behind them."""

    module: PlannedModule
    names: Mapping[str, GlobalName | None]
    stars: Sequence[str]
    inside: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Name in the body of a class -> import paths of the stubs that a call of it calls."""
    late: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Name that is None for the time being -> import paths of the definitions that it waits for."""

    @cached_property
    def body(self) -> Sequence[ast.stmt]:
        """The statements of the code."""
        tree = parse_code(self.module.code)
        return tree.body if tree is not None else ()

    @cached_property
    def classes(self) -> Mapping[str, Sequence[ast.ClassDef]]:
        """The classes of the code."""
        found: dict[str, list[ast.ClassDef]] = {}
        for name, each in list_stubs(self.body):
            if isinstance(each, ast.ClassDef):
                found.setdefault(name, []).append(each)
        return found


@dataclass(kw_only=True)
class Waits:
    """Which definitions code waits for: those that it calls when its module is imported, while they are stubs."""

    modules: Mapping[str, PlannedModule]
    scopes: Mapping[str, Scope]

    def find_late(self) -> None:
        """Find the names of all modules that are None for the time being."""
        is_new = True
        while is_new:
            is_new = False
            for scope in self.scopes.values():
                for names, waits in self._list_module(scope):
                    for name in names if waits else ():
                        more = tuple(sorted({*scope.late.get(name, ()), *waits}))
                        is_new |= more != scope.late.get(name)
                        scope.late[name] = more

    def _list_module(self, scope: Scope) -> Iterator[tuple[Iterable[str], tuple[str, ...]]]:
        """Yield the names of each statement and definition, and what it waits for."""
        for _, several in group_by_lines(scope.body):
            found = {path for each in several for path in self.list_waits(each, scope)}
            yield [name for each in several for name in list_bindings(each)], tuple(sorted(found))
        for statements in scope.module.groups.values():
            found = {*self.list_waits_of_definition(statements, scope)}
            # Without its decorators, a function is another object.
            decorated = (each for each in statements if isinstance(each, Function))
            found |= {
                path for each in decorated for item in each.decorator_list for path in self.list_called(item, scope)
            }
            yield [name for name, _ in list_stubs(statements)], tuple(sorted(found))

    def list_waits(self, statement: ast.AST, scope: Scope) -> tuple[str, ...]:
        """Return the import paths of the stubs that a statement calls when it runs."""
        found = set[str]()
        for node in iterate_early(statement):
            match node:
                case ast.Call(func=func):
                    found |= self.list_called(func, scope)
                case ast.FunctionDef(decorator_list=decorators):
                    found |= {path for each in decorators for path in self.list_called(each, scope)}
                case ast.ClassDef(decorator_list=decorators):
                    found |= {path for each in decorators for path in self.list_called(each, scope)}
                    found |= self._list_creators(node, scope)
                case ast.Name(id=name, ctx=ast.Load()) | ast.AugAssign(target=ast.Name(id=name)):
                    found |= {*self._find_late(name, scope)}
                case ast.Attribute(value=value, attr=name):
                    symbol = self._resolve(value, scope)
                    module = f"{symbol.module}.{symbol.name}".strip(".") if symbol is not None else ""
                    found |= {*self._find_late(name, self.scopes[module])} if module in self.scopes else set()
                case ast.Subscript(value=value):
                    owner = self._resolve(value, scope)
                    found |= self._list_methods(owner, ("__class_getitem__",)) if owner is not None else set()
                case _:
                    pass
        return tuple(sorted(found))

    def list_waits_of_definition(self, statements: Iterable[ast.stmt], scope: Scope) -> tuple[str, ...]:
        """Return the import paths of the stubs without which the definitions of one name cannot be.

        Decorators and class-level code can wait by themselves.
        """
        found = set[str]()
        for each in statements:
            parts = list[ast.AST]()
            match each:
                case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
                    parts += [*arguments.defaults, *(value for value in arguments.kw_defaults if value is not None)]
                case ast.ClassDef(bases=bases, keywords=keywords):
                    parts += [*bases, *keywords]
                    found |= self._list_creators(each, scope)
                case ast.If() | ast.Try():
                    parts.append(each)
                    found |= {*self.list_waits_of_definition([inner for _, inner in list_stubs([each])], scope)}
                case _:
                    pass
            if scope.module.evaluates_annotations:
                parts += _list_annotations(each)
            found |= {path for part in parts for path in self.list_waits(part, scope)}
        return tuple(sorted(found))

    def _find_late(self, name: str, scope: Scope, *, depth: int = 0) -> tuple[str, ...]:
        """Return what a name waits for, in whichever module it is."""
        if name in scope.late or name in scope.inside or name in scope.module.groups or depth > _MOST_STEPS:
            return scope.late.get(name, ())
        symbol = scope.names.get(name)
        candidates = [GlobalName(star, name) for star in scope.stars] if symbol is None else [symbol]
        for each in candidates:
            if each.name and each.module in self.scopes:
                found = self._find_late(each.name, self.scopes[each.module], depth=depth + 1)
                if found:
                    return found
        return ()

    def _list_creators(self, node: ast.ClassDef, scope: Scope) -> set[str]:
        """Return the import paths of the stubs that are called when a class is created."""
        bases = [symbol for base in node.bases for symbol in self._list_family(self._resolve_base(base, scope))]
        found = {path for each in bases for path in self._list_methods(each, ("__init_subclass__",))}
        makers = [self._find_metaclass(node, scope)]
        for each in bases:
            makers += [self._find_metaclass(own, self.scopes[each.module]) for own in self._list_classes(each)]
        return found | {path for maker in makers for path in self._list_of(maker)}

    def _find_metaclass(self, node: ast.ClassDef, scope: Scope) -> GlobalName | None:
        named = (each.value for each in node.keywords if each.arg == "metaclass")
        return next((self._resolve_base(each, scope) for each in named), None)

    def _resolve_base(self, node: ast.expr, scope: Scope) -> GlobalName | None:
        return self._resolve(node.value if isinstance(node, ast.Subscript) else node, scope)

    def _list_family(self, symbol: GlobalName | None) -> list[GlobalName]:
        """Return a class of the graph and all it inherits from."""
        waiting, found = [symbol], dict[GlobalName, None]()
        while waiting:
            each = waiting.pop()
            if each is not None and each.module in self.scopes and each not in found:
                found[each] = None
                for own in self._list_classes(each):
                    waiting += [self._resolve_base(base, self.scopes[each.module]) for base in own.bases]
        return [*found]

    def _list_classes(self, symbol: GlobalName) -> list[ast.ClassDef]:
        scope = self.scopes[symbol.module]
        statements = scope.module.groups.get(symbol.name, [])
        stubs = [each for name, each in list_stubs(statements) if name == symbol.name]
        return [*(each for each in stubs if isinstance(each, ast.ClassDef)), *scope.classes.get(symbol.name, ())]

    def list_called(self, func: ast.expr, scope: Scope) -> set[str]:
        """Return the import paths of the stubs that a call of an expression would call."""
        if isinstance(func, ast.Name) and func.id in scope.inside:
            return {*scope.inside[func.id]}
        symbol = self._resolve(func, scope)
        if symbol is None and isinstance(func, ast.Attribute):
            owner = self._resolve(func.value, scope)
            return self._list_methods(owner, (func.attr,)) if owner is not None else set()
        return self._list_of(symbol)

    def _resolve(self, node: ast.expr, scope: Scope) -> GlobalName | None:
        """Return what a dotted name is; None if it is not a module, or a name of one."""
        match node:
            case ast.Name(id=name) if name not in scope.inside:
                return self._find(name, scope)
            case ast.Attribute(value=value, attr=name):
                owner = self._resolve(value, scope)
                module = f"{owner.module}.{owner.name}".strip(".") if owner is not None else ""
                if f"{module}.{name}" in self.modules:
                    return GlobalName(f"{module}.{name}", "")
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
        late = {name: waits for name, waits in scope.late.items() if name not in inside}
        return replace(scope, inside=inside, late=late)

    def _find(self, name: str, scope: Scope, *, depth: int = 0) -> GlobalName | None:
        """Return what a name is, through the modules that only pass it on."""
        if name in scope.module.groups or name in scope.classes:
            return GlobalName(scope.module.name, name)
        given = scope.names.get(name)
        candidates = [GlobalName(star, name) for star in scope.stars] if given is None else [given]
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
        return GlobalName(inside, "") if inside in self.modules else None

    def _list_of(self, symbol: GlobalName | None) -> set[str]:
        """Return the import paths of the stubs that a call of a function or class may call, then or later."""
        if symbol is None or symbol.module not in self.modules:
            return set()
        module = self.modules[symbol.module]
        if not self._list_classes(symbol):
            return {f"{module.name}.{symbol.name}"} if symbol.name in module.raising else set()
        found = self._list_methods(symbol, _CONSTRUCTORS)
        for each in self._list_family(symbol):  # other code may use the object at once
            found |= {f"{each.module}.{each.name}"} if each.name in self.modules[each.module].raising else set()
        return found

    def _list_methods(self, symbol: GlobalName, methods: Sequence[str], *, depth: int = 0) -> set[str]:
        """Return the import paths of the stubs behind some methods of a class, also of those it inherits."""
        found = set[str]()
        for own in self._list_classes(symbol) if symbol.module in self.scopes else ():
            scope = self.scopes[symbol.module]
            defined = {name for name, each in list_stubs(own.body) if isinstance(each, Function)}
            for method in defined.intersection(methods) if symbol.name in scope.module.groups else ():
                found.add(_find_piece(scope.module, f"{symbol.name}.{method}"))
            for base in own.bases:
                inherited = self._resolve_base(base, scope)
                if inherited is not None and inherited != symbol and depth < _MOST_STEPS and not found:
                    found |= self._list_methods(inherited, methods, depth=depth + 1)
        return found


def _list_annotations(node: ast.stmt) -> list[ast.AST]:
    """Return the annotations of a definition, with those of its methods."""
    found = list[ast.AST | None]()
    for each in ast.walk(node):
        match each:
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                found.append(annotation)
            case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns):
                found.append(returns)
            case _:
                pass
    return [each for each in found if each is not None]


def group_by_lines(body: Iterable[ast.stmt]) -> list[tuple[range, list[ast.stmt]]]:
    """Return the 1-based lines of statements with the statements; those on one line are together."""
    found = list[tuple[range, list[ast.stmt]]]()
    for each in body:
        first, end = find_first_line(each), (each.end_lineno or each.lineno) + 1
        if found and first < found[-1][0].stop:
            span, several = found.pop()
            found.append((range(span.start, max(end, span.stop)), [*several, each]))
        else:
            found.append((range(first, end), [each]))
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
        exports = {name: GlobalName(source, name) for name, source in plan[module.name].exports.items()}
        scopes[module.name] = Scope(module=module, names={**exports, **own.names, **given}, stars=own.stars)
    return scopes


def write_comment(lines: Sequence[str], *, waits: Sequence[str], bound: Iterable[str]) -> list[str]:
    """Return lines as a comment for ``write_late_code``, after names that are None until then."""
    names = ", ".join(waits)
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    placeholders = [f"{indent}{name} = None  #: until {names}" for name in bound]
    waiting = (line and f"{indent}#: after {names}: {line.removeprefix(indent)}" for line in lines)
    return [*placeholders, *waiting]


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
