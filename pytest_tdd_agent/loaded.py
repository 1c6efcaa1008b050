"""Compare a loaded test module with the source that it must come from.

Code under test is often imported before the test file. It can put another module into ``sys.modules`` or a loader into
``sys.meta_path``, write bytecode, or exchange the file while pytest reads it. The source is therefore read before any
test file is loaded, and compiled again as pytest does.
"""

from __future__ import annotations

import ast
import sys
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Callable, Iterator, Mapping

from _pytest.assertion.rewrite import rewrite_asserts

from .failure import iterate_nodes
from .sources import UnreadableSource, parse_source
from .system import Silence, bind_builtins

if TYPE_CHECKING:
    import pytest

bind_builtins(globals())

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


class ExpectedModule:
    """The content of a test module by its source, for names that are bound once and by a plain statement."""

    def __init__(
        self,
        content: bytes,
        *,
        path: str,
        config: pytest.Config,
        find_codes: Callable[[object], tuple[CodeType, ...]],
        is_installed: Callable[[str], bool],
    ) -> None:
        """Compile the source; raises UnreadableSource if that fails.

        ``find_codes`` returns the code of a function and of those that it wraps, ``is_installed`` whether a file is not
        the user's.
        """
        self._find_codes, self._is_installed = find_codes, is_installed
        self._tree = parse_source(content)
        rewritten = parse_source(content)
        try:
            with Silence():
                rewrite_asserts(rewritten, content, path, config)
                codes = [compile(tree, path, "exec", dont_inherit=True) for tree in (rewritten, self._tree)]
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UnreadableSource(str(error)) from error
        self._codes = {each for code in codes for each in _iterate_codes(code)}

    def find_difference(self, module: ModuleType) -> str | None:
        """Return the first name whose value does not come from the source, None if there is none."""
        values = module.__dict__
        for name, statement in _list_bindings(self._tree.body, whole=self._tree).items():
            if name not in values or not self._is_value(name, value=values[name], statement=statement):
                return name
        return None

    def _is_value(self, name: str, *, value: object, statement: ast.stmt) -> bool:
        if isinstance(statement, _FUNCTIONS):
            return self._is_function(value, statement)
        if isinstance(statement, ast.ClassDef):
            return self._is_class(value, statement)
        if isinstance(statement, ast.ImportFrom):
            source = sys.modules.get(statement.module or "")
            known = vars(source) if isinstance(source, ModuleType) and not statement.level else {}
            original = next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
            return original not in known or self._is_alike(value, known[original])
        if isinstance(statement, ast.Import):
            alias = next(each for each in statement.names if (each.asname or each.name.split(".", 1)[0]) == name)
            source = sys.modules.get(alias.name if alias.asname else name)
            return value is source or not isinstance(source, ModuleType)
        constant = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(constant, ast.Constant) and type(constant.value) in _PLAIN:
            return type(value) is type(constant.value) and value == constant.value
        return True

    def _is_function(self, value: object, statement: ast.stmt) -> bool:
        # A decorator may return anything, such as code that hypothesis makes under the name of the same file.
        is_plain = all(map(_is_mark, vars(statement)["decorator_list"]))
        return not is_plain or not self._codes.isdisjoint(self._find_codes(value))

    def _is_class(self, value: object, statement: ast.ClassDef) -> bool:
        if statement.decorator_list or statement.keywords or not isinstance(value, type):
            return bool(statement.decorator_list)
        methods = {name: each for name, each in vars(value).items() if type(each) is FunctionType}
        for name, found in _list_bindings(statement.body, whole=statement).items():
            # A base class of a library may wrap methods without a trace of the original.
            is_wrapped = any(self._is_installed(code.co_filename) for code in self._find_codes(methods.get(name)))
            is_plain = isinstance(found, _FUNCTIONS) and name in methods and not is_wrapped
            if is_plain and not self._is_function(methods[name], found):
                return False
        return True

    def _is_alike(self, value: object, original: object) -> bool:
        """Return whether an imported value is that of the other module, or comes from the same source."""
        if value is original:
            return True
        if type(original) is FunctionType:
            return self._find_codes(value) == self._find_codes(original)
        if isinstance(original, type) and isinstance(value, type):
            ours, theirs = (
                {name: self._find_codes(each) for name, each in vars(kind).items() if type(each) is FunctionType}
                for kind in (value, original)
            )
            return ours == theirs
        return not isinstance(original, type)


def _iterate_codes(code: CodeType) -> Iterator[CodeType]:
    pending = [code]
    for each in pending:
        pending += [constant for constant in each.co_consts if type(constant) is CodeType]
    yield from pending


def _is_mark(decorator: ast.expr) -> bool:
    """Return whether a decorator is one of ``pytest.mark``, which returns the function itself."""
    found = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(found, ast.Attribute) and (
        (isinstance(found.value, ast.Attribute) and found.value.attr == "mark")
        or (isinstance(found.value, ast.Name) and found.value.id == "mark")
    )


def _list_bindings(body: list[ast.stmt], *, whole: ast.AST) -> Mapping[str, ast.stmt]:
    """Return name -> statement of a body for each name that nothing else binds, not even in a nested statement."""
    found: dict[str, ast.stmt] = {}
    for statement in body:
        names = list(_iterate_names(statement))
        if "*" in names:
            found.clear()  # it may have bound any of them
        found.update(dict.fromkeys(names, statement))
    counts: dict[str, int] = {}
    for node in _iterate_scope(whole):
        for name in _iterate_own_names(node):
            counts[name] = counts.get(name, 0) + 1
    return {name: statement for name, statement in found.items() if name != "*" and counts.get(name) == 1}


def _iterate_scope(whole: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module or a class without those inside functions and classes, except for ``global``."""
    pending: list[ast.AST] = list(vars(whole)["body"])
    for node in pending:
        yield node
        is_scope = isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda))
        below = [each for each in iterate_nodes(node) if isinstance(each, ast.Global)] if is_scope else []
        yield from below
        if not is_scope:
            values = (getattr(node, name, None) for name in node._fields)
            lists = (value if isinstance(value, list) else [value] for value in values)
            pending += [each for found in lists for each in found if isinstance(each, ast.AST)]


def _iterate_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.AnnAssign):
        if isinstance(statement.target, ast.Name) and statement.value is not None:
            yield statement.target.id
    elif isinstance(statement, (*_FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom)):
        yield from _iterate_own_names(statement)


def _iterate_own_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds itself."""
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or (alias.name if isinstance(node, ast.ImportFrom) else alias.name.split(".", 1)[0])
    elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from node.names
    elif not isinstance(node, ast.alias):
        name = vars(node).get("name")
        if isinstance(name, str):  # an exception, or a pattern
            yield name
