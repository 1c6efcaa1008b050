"""Read Python sources: their functions, names, docstrings and changed lines. Pure."""

import ast
import contextlib
import difflib
import functools
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from cdd_agent.untrusted.python_source import ForeignModule, list_imports, parse, split_lines

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_MOST_LINES = 2000
_MOST_PAIRS = 50_000
"""Pairs of equal lines before and after. The time of a diff grows with their number."""
_MOST_PARTS = 100
"""Parts of a dotted name: in a chain of thousands of attributes, each part would be resolved to its beginning."""


def list_functions(tree: ast.AST) -> list[Function]:
    """Return all functions in a tree, nested ones too."""
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def list_definitions(scope: ast.AST | None) -> list[Function | ast.ClassDef]:
    """Return the functions and classes directly in a module or class. Anything else has none."""
    body = scope.body if isinstance(scope, (ast.Module, ast.ClassDef)) else ()
    return [node for node in body if isinstance(node, (Function, ast.ClassDef))]


def find_definition(text: str | None, name: str) -> int | None:
    """Return the 1-based line of the function or class with this dotted name. A source that has none: None."""
    scopes: list[ast.AST] = [node for node in [parse(text)] if node is not None]
    for part in name.split("."):
        inner = [node for scope in scopes for node in ast.walk(scope)]
        scopes = [node for node in inner if isinstance(node, (Function, ast.ClassDef)) and node.name == part]
    lines = [node.lineno for node in scopes if isinstance(node, (Function, ast.ClassDef))]
    return min(lines, default=None)


def list_lines(node: ast.stmt | ast.expr) -> range:
    """Return the 1-based lines of a node."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def read_names(node: ast.AST | None) -> set[str]:
    """Return the names and attributes that occur in a tree. None has none."""
    return {read_last_name(inner) for inner in ast.walk(node)} - {""} if node is not None else set()


def read_last_name(node: ast.AST) -> str:
    """Return the name, or the last part of a dotted one. Anything else has none: an empty text."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


# Two checks call this for the same change, and a diff takes long.
@functools.lru_cache(maxsize=64)
def find_changed_lines(old: str | None, new: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return the 1-based lines of ``new`` that are added, and those with the neighbors of removed lines.

    Comments and docstrings do not count.
    """
    before, now = _read_code_lines(old or ""), _read_code_lines(new)
    added: set[int] = set()
    beside: set[int] = set()
    for kind, first, last in _compare_lines([text for _, text in before], [text for _, text in now]):
        added.update(number for number, _ in now[first:last])
        if kind == "delete":
            beside.update(number for number, _ in now[max(first - 1, 0) : first + 1])
    return frozenset(added), frozenset(added | beside)


def _compare_lines(before: list[str], now: list[str]) -> Iterator[tuple[str, int, int]]:
    """Return the kind of each edit and its 0-based lines of ``now``, the last one excluded."""
    old, new = Counter(before), Counter(now)
    if max(len(before), len(now)) <= _MOST_LINES and sum(old[line] * new[line] for line in new) <= _MOST_PAIRS:
        matcher = difflib.SequenceMatcher(None, before, now, autojunk=False)
        yield from ((kind, first, last) for kind, _, _, first, last in matcher.get_opcodes() if kind != "equal")
        return
    # A diff of large files takes long. Count the lines instead: one that occurs more often than before was added.
    for index, line in enumerate(now):
        old[line] -= 1
        if old[line] < 0:
            yield "insert", index, index + 1


def _read_code_lines(text: str) -> list[tuple[int, str]]:
    lines = split_lines(text)
    tree = parse(text)
    if tree is not None:
        for number, column in tree.comments if isinstance(tree, ForeignModule) else _find_comments(lines):
            lines[number - 1] = lines[number - 1][:column]
        for number in find_docstring_lines(tree):
            lines[number - 1] = ""
    return [(number, line.rstrip()) for number, line in enumerate(lines, start=1) if line.strip()]


def _find_comments(lines: list[str]) -> Iterator[tuple[int, int]]:
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
            if token.type == tokenize.COMMENT:
                yield token.start


def find_docstring_lines(tree: ast.Module) -> frozenset[int]:
    """Return the lines that hold only docstrings or other strings without effect."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str):
                lines |= set(list_lines(statement))
    shared = (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not isinstance(node, ast.Expr))
    return frozenset(lines - {node.lineno for node in shared})


def read_imports(tree: ast.Module) -> dict[str, str]:
    """Return local name -> dotted name for all imports in the file that are not relative."""
    found = (each for node in ast.walk(tree) for each in list_imports(node))
    return {each.bound: each.origin for each in found if not each.module.startswith(".")}


def resolve_name(node: ast.AST, names: dict[str, str]) -> str:
    """Return the dotted name of an expression, also of ``getattr`` with a constant. Empty if it is not a name."""
    parts: list[str] = []
    while len(parts) < _MOST_PARTS:
        match node:
            case ast.Name(id=name):
                return ".".join((names.get(name, name), *reversed(parts)))
            case (
                ast.Attribute(value=owner, attr=attribute)
                | ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(attribute)), *_])
            ):
                parts.append(attribute)
                node = owner
            case _:
                return ""
    return ""


def find_docstrings(tree: ast.Module) -> set[int]:
    """Return the ids of docstrings and other expressions without effect."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def list_prose(text: str) -> list[str]:
    """Return the docstrings and the comments of a source."""
    tree = parse(text)
    nodes = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)] if tree is not None else []
    stated = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [*stated, *re.findall(r"#.*", text)]


def name_definitions(scope: ast.AST | None, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield dotted name -> definition, also of variables. Other statements are named by their code."""
    for node in (each for field in ("body", "handlers", "orelse", "finalbody") for each in getattr(scope, field, ())):
        match node:
            case ast.ClassDef(name=name):
                yield f"{prefix}{name}", ast.Tuple(elts=[*node.bases, *node.decorator_list])
                yield from name_definitions(node, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield f"{prefix}{name}", node
            case ast.If() | ast.Try() | ast.With() | ast.ExceptHandler():
                yield from name_definitions(node, prefix)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{prefix}{name}", node
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                yield f"{prefix}<{ast.dump(node)}>", node
