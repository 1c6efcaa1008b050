"""The classes of a package, and the classes of objects that annotations, calls and assignments show. Pure."""

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from cdd_agent.evidence.source import Function
from cdd_agent.generation.contents import has_decorator
from cdd_agent.generation.import_plan import Bindings
from cdd_agent.generation.references import Piece, References, SourceModule, Variable, list_definitions
from cdd_agent.symbols.scopes import list_parts
from cdd_agent.untrusted.python_source import parse

Key: TypeAlias = tuple[str, str]
"""Module and qualified name."""
_MOST_STEPS = 20
"""From a class to one that it is derived from, or from an expression to the class of its value."""
_VALUES = (
    *(ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Compare),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
"""Expressions whose values are objects of Python itself."""
_Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class ObjectClass(NamedTuple):
    """The class of an object, or that class itself."""

    key: Key | None
    """None: one from outside of the package."""
    is_class: bool = False


_FOREIGN = ObjectClass(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeUse:
    """An attribute of an object, as in ``stack.push``."""

    name: str
    line: int
    owner: ObjectClass | None
    """None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePlace:
    """Where code is, and what its local names are."""

    source: SourceModule
    owner: Key | None = None
    """The class whose body it is."""
    around: Key | None = None
    """The innermost class around it."""
    types: Mapping[str, ObjectClass | None] = field(default_factory=dict)
    """Local name -> the class of its object; None if unknown."""
    imports: Bindings | None = None
    """The imports of the code, and those for type checkers; None: the latter alone."""
    steps: int = 0
    """So far, from the expression that was asked for."""


@dataclass(frozen=True, kw_only=True)
class ObjectClasses:
    """Finds classes and their members."""

    modules: Mapping[str, SourceModule]
    references: References
    _fields: dict[tuple[Key, str], ObjectClass | None] = field(default_factory=dict)

    @cached_property
    def definitions(self) -> Mapping[Key, list[Function | ast.ClassDef]]:
        """The functions and classes of all modules and classes; several for overloads, properties and twins."""
        found: dict[Key, list[Function | ast.ClassDef]] = {}
        for name, source in self.modules.items():
            for qualified, node in _name_all(source.tree.body):
                found.setdefault((name, qualified), []).append(node)
        return found

    def find_member(self, key: Key, name: str, *, depth: int = 0) -> Key | None:
        """Return the method or inner class that an attribute is: that of the class itself, else of its bases."""
        if (own := (key[0], f"{key[1]}.{name}")) in self.definitions:
            return own
        found = (self.find_member(base, name, depth=depth + 1) for base in self._list_bases(key, depth=depth))
        return next((member for member in found if member is not None), None)

    def has_foreign_base(self, key: Key, *, depth: int = 0) -> bool:
        """Return whether a class, or one that it is derived from, is derived from one outside of the package."""
        count = sum(len(node.bases) for node in self._list_classes(key))
        known = [*self._list_bases(key, depth=depth)]
        return len(known) < count or any(self.has_foreign_base(each, depth=depth + 1) for each in known)

    def find_key(self, node: ast.AST, place: CodePlace) -> Key | None:
        """Return the function or class of the package that a dotted name is."""
        dotted = list_parts(node)
        if not dotted or dotted[0] in place.types:
            return None
        found = self.references.follow(place.source, dotted, local=place.imports or place.source.typed)
        if not found or not isinstance(piece := found[-1], Piece):
            return None
        key: Key | None = (piece.source.module.name, piece.name)
        for part in dotted[len(found) :]:
            key = self.find_member(key, part) if key is not None else None
        return key

    def list_attributes(self, node: ast.AST, place: CodePlace) -> Iterator[AttributeUse]:
        """Yield the uses of attributes in a statement or expression."""
        match node:
            case ast.ClassDef(name=name):
                around = place.owner[1] + "." if place.owner is not None else ""
                key = (place.source.module.name, f"{around}{name}")
                inner = replace(place, owner=key, around=key)
                yield from self._list_all((*node.decorator_list, *node.bases, *node.keywords), place)
                yield from self._list_all(node.body, inner)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                inner = self._enter(node, place)
                yield from self._list_all(() if isinstance(node, ast.Lambda) else node.decorator_list, place)
                yield from self._list_all((*node.args.defaults, *filter(None, node.args.kw_defaults)), place)
                yield from self._list_all(node.body if isinstance(node.body, list) else [node.body], inner)
            case ast.Attribute(value=value, attr=name):
                yield AttributeUse(name=name, line=node.lineno, owner=self._find_class(value, place))
                yield from self.list_attributes(value, place)
            case _:
                yield from self._list_all(ast.iter_child_nodes(node), place)

    def _list_all(self, nodes: Iterable[ast.AST], place: CodePlace) -> Iterator[AttributeUse]:
        for each in nodes:
            yield from self.list_attributes(each, place)

    def _list_classes(self, key: Key) -> list[ast.ClassDef]:
        return [each for each in self.definitions.get(key, ()) if isinstance(each, ast.ClassDef)]

    def _list_bases(self, key: Key, *, depth: int) -> Iterator[Key]:
        for node in self._list_classes(key) if depth < _MOST_STEPS else ():
            for base in node.bases:
                named = base.value if isinstance(base, ast.Subscript) else base
                found = self.find_key(named, CodePlace(source=self.modules[key[0]]))
                if found is not None and found != key and self._list_classes(found):
                    yield found

    # The classes of local names

    def _enter(self, function: _Scope, place: CodePlace) -> CodePlace:
        """Return the place of the body of a function."""
        types = {**place.types}
        given = function.args
        parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        for each in parameters:
            types[each.arg] = self._read_annotation(each.annotation, place)
        types |= {each.arg: None for each in (given.vararg, given.kwarg) if each is not None}
        first = next(iter((*given.posonlyargs, *given.args)), None)
        is_method = place.owner is not None and not isinstance(function, ast.Lambda)
        if is_method and first is not None and not has_decorator(function, "staticmethod"):
            types[first.arg] = ObjectClass(place.owner, has_decorator(function, "classmethod"))
        inner = replace(place, owner=None, types=types)
        bound = set[str]()
        for name, found in self._list_assigned(function, inner):
            types[name] = found if name not in bound or types[name] == found else None
            bound.add(name)
        return inner

    def _list_assigned(self, function: _Scope, place: CodePlace) -> Iterator[tuple[str, ObjectClass | None]]:
        """Yield the names that a function binds, with their classes, in order; ``place`` knows those before."""
        for node in _iterate_own(function):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.NamedExpr(target=ast.Name(id=name), value=value)
                ):
                    yield name, self._find_class(value, place)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    yield name, self._read_annotation(annotation, place)
                case ast.withitem(context_expr=value, optional_vars=ast.Name(id=name)):
                    yield name, self._find_class(value, place)
                case ast.For() | ast.AsyncFor() | ast.comprehension() | ast.AugAssign():
                    names = (each for each in ast.walk(node.target) if isinstance(each, ast.Name))
                    yield from ((each.id, None) for each in names)
                case ast.Assign(targets=targets):
                    names = (each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
                    yield from ((each.id, None) for each in names if isinstance(each.ctx, ast.Store))
                case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                    yield name, None
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    if node is not function:
                        yield name, None
                case _:
                    pass

    def _read_annotation(self, node: ast.AST | None, place: CodePlace) -> ObjectClass | None:
        """Return the class of the objects that an annotation allows."""
        match node:
            case ast.Constant(value=str(text)):
                tree = parse(text)
                only = tree.body[0] if isinstance(tree, ast.Module) and len(tree.body) == 1 else None
                return self._read_annotation(only.value, place) if isinstance(only, ast.Expr) else None
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                sides = [each for each in (left, right) if not (isinstance(each, ast.Constant) and each.value is None)]
                return self._read_annotation(sides[0], place) if len(sides) == 1 else None
            case ast.Subscript(value=ast.Name(id="Optional") | ast.Attribute(attr="Optional"), slice=inner):
                return self._read_annotation(inner, place)
            case ast.Name() | ast.Attribute():
                if isinstance(node, ast.Name) and node.id == "Self":
                    return ObjectClass(place.around) if place.around is not None else None
                key = self.find_key(node, replace(place, types={}))
                if key is not None:
                    return ObjectClass(key) if self._list_classes(key) else None
                is_builtin = isinstance(node, ast.Name) and node.id != "object" and hasattr(builtins, node.id)
                return _FOREIGN if is_builtin else None
            case _:
                return None

    # The class of an expression

    def _find_class(self, node: ast.AST, place: CodePlace) -> ObjectClass | None:
        """Return the class of the value of an expression; None if it is unknown."""
        if isinstance(node, _VALUES):
            return _FOREIGN
        found: ObjectClass | None = None
        inner = replace(place, steps=place.steps + 1)
        match node if place.steps < _MOST_STEPS else None:
            case ast.Name(id=name):
                found = place.types[name] if name in place.types else self._find_global(node, inner)
            case ast.Await(value=value) | ast.NamedExpr(value=value):
                found = self._find_class(value, inner)
            case ast.IfExp(body=one, orelse=other):
                sides = {self._find_class(one, inner), self._find_class(other, inner)}
                found = sides.pop() if len(sides) == 1 else None
            case ast.Call(func=ast.Name(id="super")):
                bases = [*self._list_bases(place.around, depth=0)] if place.around is not None else []
                found = ObjectClass(bases[0]) if bases else _FOREIGN
            case ast.Call(func=function):
                found = self._find_result(function, inner)
            case ast.Attribute(value=value, attr=name):
                owner = None if self.find_key(node, place) is not None else self._find_class(value, inner)
                if owner is None:
                    found = self._find_global(node, inner)
                else:
                    found = _FOREIGN if owner.key is None else self._find_field(owner.key, name)
        return found

    def _find_global(self, node: ast.AST, place: CodePlace) -> ObjectClass | None:
        """Return the class of what a dotted name of a module refers to."""
        key = self.find_key(node, place)
        if key is not None:
            return ObjectClass(key, is_class=True) if self._list_classes(key) else None
        dotted = list_parts(node)
        if not dotted or dotted[0] in place.types:
            return None
        found = self.references.follow(place.source, dotted, local=place.imports)
        if found and isinstance(variable := found[-1], Variable) and len(found) == len(dotted):
            statements = variable.source.variables[variable.name]
            inner = CodePlace(source=variable.source, steps=place.steps)
            match statements:
                case [ast.AnnAssign(annotation=annotation)]:
                    return self._read_annotation(annotation, inner)
                case [ast.Assign(targets=[ast.Name()], value=value)]:
                    return self._find_class(value, inner)
        is_foreign = dotted[0] in place.source.bindings.names or hasattr(builtins, dotted[0])
        return _FOREIGN if not found and is_foreign else None

    def _find_result(self, function: ast.AST, place: CodePlace) -> ObjectClass | None:
        """Return the class of what a call returns."""
        key = self.find_key(function, place)
        if key is None and isinstance(function, ast.Attribute):
            owner = self._find_class(function.value, place)
            key = self.find_member(owner.key, function.attr) if owner is not None and owner.key is not None else None
        if key is None:
            found = self._find_class(function, place) if isinstance(function, ast.Name) else None
            if found is not None and found.is_class:
                return ObjectClass(found.key)
            is_type = isinstance(function, ast.Name) and isinstance(vars(builtins).get(function.id), type)
            return _FOREIGN if found == _FOREIGN and is_type else None
        if self._list_classes(key):
            return ObjectClass(key)
        return self._find_returned(key)

    def _find_returned(self, key: Key) -> ObjectClass | None:
        """Return the class of what a function returns, or of a property."""
        around = (key[0], key[1].rpartition(".")[0])
        place = CodePlace(source=self.modules[key[0]], around=around if around in self.definitions else None)
        found = {
            self._read_annotation(each.returns, place)
            for each in self.definitions.get(key, ())
            if isinstance(each, Function)
        }
        return found.pop() if len(found) == 1 else None

    def _find_field(self, key: Key, name: str) -> ObjectClass | None:
        """Return the class of an attribute of the objects of a class."""
        if (key, name) not in self._fields:
            self._fields[key, name] = None  # for attributes that are made of each other
            member = self.find_member(key, name)
            if member is not None:
                functions = [each for each in self.definitions[member] if isinstance(each, Function)]
                is_value = any(
                    has_decorator(each, "property") or has_decorator(each, "cached_property") for each in functions
                )
                self._fields[key, name] = self._find_returned(member) if is_value else None
            else:
                found = {*self._list_values(key, name)}
                self._fields[key, name] = found.pop() if len(found) == 1 else None
        return self._fields[key, name]

    def _list_values(self, key: Key, name: str) -> Iterator[ObjectClass | None]:
        """Yield the classes of what a class and its bases assign to an attribute."""
        for each in (key, *self._list_bases(key, depth=0)):
            place = CodePlace(source=self.modules[each[0]], owner=each, around=each)
            for node in self._list_classes(each):
                for statement in node.body:
                    match statement:
                        case ast.AnnAssign(target=ast.Name(id=id), annotation=annotation) if id == name:
                            yield self._read_annotation(annotation, place)
                        case ast.FunctionDef() | ast.AsyncFunctionDef():
                            yield from self._list_assigned_values(statement, place, name=name)
                        case _:
                            pass

    def _list_assigned_values(self, method: Function, place: CodePlace, *, name: str) -> Iterator[ObjectClass | None]:
        inner = self._enter(method, place)
        for node in _iterate_own(method):
            match node:
                case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id=id), attr=attr), annotation=annotation):
                    if attr == name and inner.types.get(id) == ObjectClass(place.owner):
                        yield self._read_annotation(annotation, place)
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=id), attr=attr)], value=value):
                    if attr == name and inner.types.get(id) == ObjectClass(place.owner):
                        yield self._find_class(value, inner)
                case _:
                    pass


def _name_all(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yield qualified name and definition, of classes with their members."""
    for each in list_definitions(body):
        yield f"{prefix}{each.name}", each
        if isinstance(each, ast.ClassDef):
            yield from _name_all(each.body, f"{prefix}{each.name}.")


def _iterate_own(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function in order, not those inside of functions and classes in it."""
    waiting = [*reversed([*ast.iter_child_nodes(function)])]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _Scope | ast.ClassDef):
            waiting += reversed([*ast.iter_child_nodes(node)])
