"""The names in one Python file, each with the scope that it belongs to, by ``ast`` alone. Pure."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias

from cdd_agent.symbols.definitions import DefinitionNode, SourceFile
from cdd_agent.symbols.symbol import Symbol
from cdd_agent.untrusted.python_source import list_imports, list_quoted_types, parse, with_deep_stack

UseKind: TypeAlias = Literal["name", "definition", "parameter", "import", "attribute", "keyword", "pattern", "string"]
"""``pattern``: an attribute in the pattern of a class. ``string``: an entry of ``__all__`` or ``__slots__``."""
_Placed: TypeAlias = ast.stmt | ast.expr | ast.alias | ast.pattern | ast.excepthandler
_BEFORE_WORDS = {ast.ExceptHandler: r"\bas\s+", ast.alias: r"\bas\s+", ast.MatchMapping: r"\*\*\s*"}
"""Node -> what is before a name that the node has as a text."""
_LISTS_OF_ATTRIBUTES = ("__slots__", "__match_args__")
_NO_FILE = SourceFile("", b"", is_parsed=False)
_MOST_PARTS = 30
_MOST_BEFORE = 500
"""Characters between an attribute in a pattern and what it is compared with."""


@dataclass(kw_only=True, eq=False)
class NameScope:
    """A module, class, function or comprehension."""

    kind: Literal["module", "class", "function", "comprehension"]
    parent: "NameScope | None"
    name: str
    """Qualified; empty for a module."""
    bound: dict[str, set[str]] = field(default_factory=dict)
    """Name -> how it is bound: ``import`` or ``code``."""
    outer: dict[str, Literal["global", "nonlocal"]] = field(default_factory=dict)
    receiver: str = ""
    """The first parameter of a method."""
    types: dict[str, str] = field(default_factory=dict)
    """Name -> last name of the class of its values, where the code says so."""

    def resolve(self, name: str) -> "NameScope":
        """Return the scope that a name in this scope belongs to: the module, if nothing else binds it."""
        scope, is_first = self, True
        while scope.parent is not None:
            declared = scope.outer.get(name)
            if declared == "global":
                break
            if declared is None and name in scope.bound and (scope.kind != "class" or is_first):
                return scope
            scope, is_first = scope.parent, False
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def list_around(self) -> Iterator["NameScope"]:
        """Yield this scope and those around it, the module last."""
        scope: NameScope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


@dataclass(frozen=True, kw_only=True, eq=False)
class NameUse:
    """A place with a name."""

    name: str
    kind: UseKind
    line: int
    column: int
    """In characters."""
    scope: NameScope
    receiver: ast.expr | None = None
    """Of an attribute; of a keyword the function that is called; of a pattern the class."""
    source: "ImportedName | None" = None
    is_stored: bool = False


@dataclass(frozen=True, kw_only=True)
class ImportedName:
    """One name of an import statement."""

    module: str
    level: int
    name: str
    """Empty for ``import module``; ``*`` for all."""
    bound: str
    """The name in this file."""
    scope: NameScope
    has_as: bool = False
    """Whether ``as`` says the name in this file."""


class FileNames:
    """The scopes of a file, and the uses of some names."""

    def __init__(self, source: SourceFile, names: Collection[str]) -> None:
        """Read the uses of ``names``, and what all scopes bind."""
        self.path = source.path
        reader = _read(source, frozenset(names))
        self.module: NameScope = reader.module
        self.uses: list[NameUse] = reader.uses
        self.imports: list[ImportedName] = reader.imports
        self.exports: list[str] | None = reader.exports
        """The texts of ``__all__``, if the file has it."""
        self.texts = {each.line: source.lines[each.line - 1] for each in self.uses}
        """Line -> its text, of lines with a use. The tree is not kept: a name may be in thousands of files."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AllNames:
    """All names that some code reads, without their places."""

    module: NameScope
    uses: list[tuple[ast.Name, NameScope]]
    has_star: bool
    """Whether it has ``from module import *``."""
    exports: list[str]
    """The texts of ``__all__``."""

    def list_free(self) -> list[ast.Name]:
        """Return the uses of names that no function, class or comprehension in the code binds."""
        return [node for node, scope in self.uses if scope.resolve(node.id) is self.module]


@with_deep_stack
def read_all_names(*code: ast.AST) -> AllNames:
    """Return the names of a module, or of statements and expressions as if they were one."""
    reader = _ScopeReader(_NO_FILE, frozenset())
    for node in code:
        reader.visit(node)
    has_star = any(each.name == "*" for each in reader.imports)
    return AllNames(module=reader.module, uses=reader.loads, has_star=has_star, exports=reader.exports or [])


@with_deep_stack
def _read(source: SourceFile, names: frozenset[str]) -> "_ScopeReader":
    reader = _ScopeReader(source, names)
    reader.visit(source.tree)
    return reader


class _ScopeReader(ast.NodeVisitor):
    """Walks through a tree with the scope of each node."""

    def __init__(self, source: SourceFile, names: frozenset[str]) -> None:
        self.source, self.names = source, names
        self.scope = self.module = NameScope(kind="module", parent=None, name="")
        self.uses = list[NameUse]()
        self.imports = list[ImportedName]()
        self.loads = list[tuple[ast.Name, NameScope]]()
        """All names that are read."""
        self.exports: list[str] | None = None

    def _add(self, use: NameUse) -> None:
        if use.name in self.names:
            self.uses.append(use)

    @cached_property
    def _symbols(self) -> dict[int, Symbol]:
        pairs = zip(self.source.definitions, self.source.symbols, strict=True)
        return {id(each.node): symbol for each, symbol in pairs if each.target is None}

    def _make(self, name: str, kind: UseKind, *, line: int, column: int, is_stored: bool = False) -> NameUse:
        return NameUse(name=name, kind=kind, scope=self.scope, line=line, column=column, is_stored=is_stored)

    def _bind(self, name: str, *, how: str = "code") -> None:
        self.scope.bound.setdefault(name, set()).add(how)

    def _visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _visit_in(self, scope: NameScope, nodes: Iterable[ast.AST | None]) -> None:
        before, self.scope = self.scope, scope
        self._visit_all(nodes)
        self.scope = before

    def _place(self, node: ast.expr | ast.alias | ast.arg | ast.keyword) -> tuple[int, int]:
        return node.lineno, self.source.count_characters(node.lineno, node.col_offset)

    def visit_Name(self, node: ast.Name) -> None:
        """Note a name."""
        is_stored = not isinstance(node.ctx, ast.Load)
        if is_stored:
            self._bind(node.id)
        # As in ``limit = limit`` in a class: before its own assignment, the name is the one around the class.
        is_early = self.scope.kind == "class" and node.id not in self.scope.bound
        scope = self.scope.parent or self.scope if is_early else self.scope
        if not is_stored:
            self.loads.append((node, scope))
        if node.id in self.names:
            line, column = self._place(node)
            self._add(replace(self._make(node.id, "name", line=line, column=column, is_stored=is_stored), scope=scope))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        """Bind the target in the scope around all comprehensions."""
        outer = next(each for each in self.scope.list_around() if each.kind != "comprehension")
        self._visit_in(outer, (node.target,))
        self.visit(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Note an attribute, at its own name."""
        if node.attr in self.names:
            line = node.end_lineno or node.lineno
            column = self.source.count_characters(line, node.end_col_offset or 0) - len(node.attr)
            is_stored = not isinstance(node.ctx, ast.Load)
            use = self._make(node.attr, "attribute", line=line, column=column, is_stored=is_stored)
            self._add(replace(use, receiver=node.value))
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        """Note the names of arguments, and the entries that are added to ``__all__``."""
        for each in node.keywords:
            if each.arg in self.names:
                line, column = self._place(each)
                use = self._make(each.arg, "keyword", line=line, column=column)
                self._add(replace(use, receiver=node.func))
        if isinstance(node.func, ast.Attribute):
            self._note_exports(node.func.value, node.args)
        if node.args and self._is_cast(node.func):
            self._read_quoted_types(node.args[0])
        self.generic_visit(node)

    def _is_cast(self, node: ast.expr) -> bool:
        """Return whether a function is that of ``typing`` whose first argument is a type."""
        first, *rest = list_parts(node) or [""]
        names = (".".join(filter(None, (each.module, each.name))) for each in self.imports if each.bound == first)
        return any(".".join([name, *rest]) in ("typing.cast", "typing_extensions.cast") for name in names)

    def visit_Global(self, node: ast.Global) -> None:
        """Note names that belong to the module."""
        self.scope.outer |= dict.fromkeys(node.names, "global")
        for name in node.names:
            self.module.bound.setdefault(name, set()).add("code")
        self._find_all_words(node.names, node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        """Note names that belong to a function around this one."""
        self.scope.outer |= dict.fromkeys(node.names, "nonlocal")
        self._find_all_words(node.names, node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """Bind the name of an exception."""
        self._bind_text(node.name, node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        """Bind the name of a pattern."""
        self._bind_text(node.name, node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        """Bind the name of the other items."""
        self._bind_text(node.name, node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        """Note the attributes in the pattern of a class."""
        for name, pattern in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
            if name in self.names:
                before = self.source.shown[: self.source.find_offset(pattern.lineno, pattern.col_offset)]
                found = re.search(rf"{re.escape(name)}(?=[\s(]*=[\s(]*\Z)", before[-_MOST_BEFORE:])
                if found is not None:
                    line, column = self.source.find_place(max(0, len(before) - _MOST_BEFORE) + found.start())
                    self._add(replace(self._make(name, "pattern", line=line, column=column), receiver=node.cls))
        self.generic_visit(node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        """Bind the name of the other keys."""
        self._bind_text(node.rest, node)

    def _bind_text(self, name: str | None, node: ast.pattern | ast.excepthandler) -> None:
        if name is not None:
            self._bind(name)
            self._find_all_words([name], node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note the class of a variable, and ``__all__``."""
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._note_type(target.id, node.value.func if isinstance(node.value, ast.Call) else None)
            self._note_exports(target, [node.value])
        self._visit_all((node.value, *node.targets))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Note more entries of ``__all__``."""
        self._note_exports(node.target, [node.value])
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Note the class of a variable, and ``__all__``."""
        if isinstance(node.target, ast.Name):
            self._note_type(node.target.id, node.annotation)
        self._note_exports(node.target, [node.value] if node.value is not None else [])
        self._visit_annotation(node.annotation, self.scope)
        self._visit_all((node.value, node.target))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Enter a function."""
        self._enter_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Enter a coroutine."""
        self._enter_function(node)

    def _enter_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._add_definition(node)
        self._visit_all(node.decorator_list)
        inner = NameScope(kind="function", parent=self.scope, name=f"{self.scope.name}.{node.name}".strip("."))
        listed = [*node.args.posonlyargs, *node.args.args]
        is_static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)
        if self.scope.kind == "class" and listed and not is_static:
            inner.receiver = listed[0].arg
        self._bind_types(node, inner)
        around = self._open_types(node)
        self._visit_parameters(node.args, inner, around=around)
        if node.returns is not None:
            self._visit_annotation(node.returns, around)
        self._bind(node.name)
        self._visit_in(inner, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Enter a lambda."""
        inner = NameScope(kind="function", parent=self.scope, name=self.scope.name)
        self._visit_parameters(node.args, inner, around=self.scope)
        self._visit_in(inner, (node.body,))

    def _visit_parameters(self, arguments: ast.arguments, inner: NameScope, *, around: NameScope) -> None:
        self._visit_all((*arguments.defaults, *arguments.kw_defaults))
        listed = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        for each in listed:
            if each is not None:
                inner.bound.setdefault(each.arg, set()).add("code")
                if each.arg in self.names:
                    line, column = self._place(each)
                    self._add(replace(self._make(each.arg, "parameter", line=line, column=column), scope=inner))
                if each.annotation is not None:
                    self._visit_annotation(each.annotation, around)
                    inner.types[each.arg] = _read_class_name(each.annotation)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Enter a class."""
        self._add_definition(node)
        self._visit_all(node.decorator_list)
        around = self._open_types(node)
        self._visit_in(around, (*node.bases, *node.keywords))
        self._bind(node.name)
        inner = NameScope(kind="class", parent=around, name=f"{self.scope.name}.{node.name}".strip("."))
        self._visit_in(inner, node.body)

    def visit_TypeAlias(self, node: ast.AST) -> None:
        """Bind a type of Python 3.12."""
        inner = self._open_types(node)
        for part, each in ast.iter_fields(node):
            self._visit_in(self.scope if part == "name" else inner, (each,) if isinstance(each, ast.expr) else ())

    def _open_types(self, node: ast.AST) -> NameScope:
        """Return the scope in which the type parameters of a definition are known."""
        if not getattr(node, "type_params", ()):
            return self.scope
        scope = NameScope(kind="function", parent=self.scope, name=self.scope.name)
        self._bind_types(node, scope)
        return scope

    def _bind_types(self, node: ast.AST, scope: NameScope) -> None:
        for each in getattr(node, "type_params", ()):
            scope.bound.setdefault(each.name, set()).add("code")
            self._visit_in(scope, ast.iter_child_nodes(each))

    def visit_ListComp(self, node: ast.ListComp) -> None:
        """Enter a comprehension."""
        self._enter_comprehension(node.generators, node.elt)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        """Enter a comprehension."""
        self._enter_comprehension(node.generators, node.elt)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        """Enter a comprehension."""
        self._enter_comprehension(node.generators, node.elt)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        """Enter a comprehension."""
        self._enter_comprehension(node.generators, node.key, node.value)

    def _enter_comprehension(self, generators: list[ast.comprehension], *parts: ast.expr) -> None:
        first, *others = generators
        self.visit(first.iter)  # in the scope around it
        inner = NameScope(kind="comprehension", parent=self.scope, name=self.scope.name)
        self._visit_in(inner, (first.target, *first.ifs, *others, *parts))

    def _add_definition(self, node: DefinitionNode) -> None:
        if node.name in self.names:
            symbol = self._symbols[id(node)]
            line, column = symbol.name_line, symbol.name_column
            self._add(self._make(node.name, "definition", line=line, column=column, is_stored=True))

    def visit_Import(self, node: ast.Import) -> None:
        """Bind modules."""
        self._add_imports(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Bind names of a module."""
        self._add_imports(node)

    def _add_imports(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias, each in zip(node.names, list_imports(node), strict=True):
            module = each.module.lstrip(".")
            found = ImportedName(
                module=module,
                level=len(each.module) - len(module),
                name=each.name,
                bound=each.bound,
                scope=self.scope,
                has_as=bool(each.alias),
            )
            self._add_import(found, alias)

    def _add_import(self, found: ImportedName, alias: ast.alias) -> None:
        self.imports.append(found)
        if found.bound != "*":
            self._bind(found.bound, how="import")
        name = found.name or found.module.partition(".")[0]
        if name in self.names:
            line, column = self._place(alias)
            self._add(replace(self._make(name, "import", line=line, column=column), source=found))
        if alias.asname:
            self._find_all_words([alias.asname], alias, source=found)

    def _visit_annotation(self, node: ast.expr, scope: NameScope) -> None:
        """Visit an annotation, also the parts in quotes."""
        before, self.scope = self.scope, scope
        self._read_quoted_types(node)
        self.visit(node)
        self.scope = before

    def _read_quoted_types(self, node: ast.expr) -> None:
        for each in list_quoted_types(node) if self.names else ():
            self._read_quoted(each.value, each)

    def _read_quoted(self, text: object, node: ast.Constant) -> None:
        """Add the names in a type that is the text ``node``, or in quotes inside of it."""
        tree = parse(text.strip()) if isinstance(text, str) else None
        match tree:
            case ast.Module(body=[ast.Expr(value=type_)]):
                self._find_all_words((each.id for each in ast.walk(type_) if isinstance(each, ast.Name)), node)
                self._find_attributes(type_, node)
                for each in list_quoted_types(type_):
                    if each is not type_:
                        self._read_quoted(each.value, node)
            case _:
                pass

    def _find_attributes(self, type_: ast.expr, node: ast.Constant) -> None:
        """Add the attributes of a type that is the text ``node``."""
        start = self.source.find_offset(node.lineno, node.col_offset)
        end = self.source.find_offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
        for name in self.names:
            found = [each for each in ast.walk(type_) if isinstance(each, ast.Attribute) and each.attr == name]
            found.sort(key=lambda each: (each.end_lineno, each.end_col_offset))
            places = re.finditer(rf"(?<=\.){re.escape(name)}(?!\w)", self.source.shown[start:end])
            for attribute, place in zip(found, places, strict=False):
                line, column = self.source.find_place(start + place.start())
                self._add(replace(self._make(name, "attribute", line=line, column=column), receiver=attribute.value))

    def _note_type(self, name: str, node: ast.expr | None) -> None:
        last = _read_class_name(node)
        self.scope.types[name] = last if self.scope.types.get(name, last) == last else ""

    def _note_exports(self, target: ast.expr, values: Iterable[ast.expr]) -> None:
        """Note the entries of ``__all__``, and those in which a class lists its attributes."""
        name = target.id if isinstance(target, ast.Name) else ""
        if self.scope.parent is None and name == "__all__":
            self.exports = self.exports or []
            self.exports += self._note_entries(values)
        elif self.scope.kind == "class" and name in _LISTS_OF_ATTRIBUTES:
            self._note_entries(values)

    def _note_entries(self, values: Iterable[ast.expr]) -> list[str]:
        found = list[str]()
        for each in (inner for value in values for inner in ast.walk(value)):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                found.append(each.value)
                self._find_all_words([each.value], each, kind="string")
        return found

    def _find_all_words(
        self, names: Iterable[str], node: _Placed, *, kind: UseKind = "name", source: ImportedName | None = None
    ) -> None:
        """Add the places of names that the tree has as texts."""
        for name in self.names.intersection(names):
            file, end_line, end_column = self.source, node.end_lineno or node.lineno, node.end_col_offset or 0
            if isinstance(node, ast.ExceptHandler):
                end_line, end_column = node.body[0].lineno, node.body[0].col_offset
            start, end = file.find_offset(node.lineno, node.col_offset), file.find_offset(end_line, end_column)
            before = _BEFORE_WORDS.get(type(node), r"(?<![\w.])")
            after = r"(?=\s*:)" if isinstance(node, ast.ExceptHandler) else r"(?!\w)"
            for found in re.finditer(rf"{before}({re.escape(name)}){after}", file.shown[start:end]):
                line, column = file.find_place(start + found.start(1))
                use = self._make(name, kind, line=line, column=column, is_stored=kind == "name")
                self._add(replace(use, source=source))


def _read_class_name(node: ast.expr | None) -> str:
    """Return the last name of the class that an annotation or a called expression names."""
    match node:
        case ast.Name(id=last) | ast.Attribute(attr=last):
            return last
        case ast.Constant(value=str(text)):
            return text.rpartition(".")[2]
        case _:
            return ""


def list_parts(node: ast.AST | None) -> list[str]:
    """Return the names of a dotted expression; empty if it is another one."""
    parts = list[str]()
    while len(parts) < _MOST_PARTS:
        match node:
            case ast.Attribute(value=value, attr=name):
                parts.insert(0, name)
                node = value
            case ast.Name(id=name):
                return [name, *parts]
            case _:
                return []
    return []
