"""Python source as the checks look at it: parsed, told apart from its earlier version, names resolved. Pure."""

import ast
import contextlib
import difflib
import functools
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_MOST_LINES = 2000
_MOST_PAIRS = 50_000
"""Of equal lines before and after; the time to compare them grows with it."""


def parse(text: str | None) -> ast.Module | None:
    """The tree of a source; None if this interpreter cannot parse it, or there is none."""
    if text is None:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def added_lines(old: str | None, new: str) -> frozenset[int]:
    """The 1-based lines of code in ``new`` that are not in ``old``; comments and docstrings are no code."""
    return _edits(old, new)[0]


def touched_lines(old: str | None, new: str) -> frozenset[int]:
    """The added lines, and those beside which a line of code was removed."""
    return frozenset().union(*_edits(old, new))


@functools.lru_cache(maxsize=64)
def _edits(old: str | None, new: str) -> tuple[frozenset[int], frozenset[int]]:
    """The lines of ``new`` that were added, and those beside which lines were removed."""
    before, now = _code_lines(old or ""), _code_lines(new)
    texts = [text for _, text in now]
    added: set[int] = set()
    beside: set[int] = set()
    for kind, first, last in _differences([text for _, text in before], texts):
        added.update(number for number, _ in now[first:last])
        if kind == "delete":
            beside.update(number for number, _ in now[max(first - 1, 0) : first + 1])
    return frozenset(added), frozenset(beside)


def _differences(before: list[str], now: list[str]) -> Iterator[tuple[str, int, int]]:
    """Kind of an edit, and the lines of ``now`` that it covers, from 0, the last one excluded.

    Where to find the shortest edits would take long, lines are only counted: one that is there more often is added.
    """
    old, new = Counter(before), Counter(now)
    if max(len(before), len(now)) <= _MOST_LINES and sum(old[line] * new[line] for line in new) <= _MOST_PAIRS:
        matcher = difflib.SequenceMatcher(None, before, now, autojunk=False)
        yield from ((kind, first, last) for kind, _, _, first, last in matcher.get_opcodes() if kind != "equal")
        return
    for at, line in enumerate(now):
        old[line] -= 1
        if old[line] < 0:
            yield "insert", at, at + 1


def _code_lines(text: str) -> list[tuple[int, str]]:
    """Number and text of the lines as Python counts them, without comments, docstrings and what is blank then."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    tree = parse(text)
    if tree is not None:
        for number, column in _comments("\n".join(lines)):
            lines[number - 1] = lines[number - 1][:column]
        for number in docstring_lines(tree):
            lines[number - 1] = ""
    return [(number, line.rstrip()) for number, line in enumerate(lines, start=1) if line.strip()]


def _comments(text: str) -> Iterator[tuple[int, int]]:
    """Line and column of every comment."""
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start


def docstring_lines(tree: ast.Module) -> frozenset[int]:
    """The lines on which docstrings, and other texts that are statements by themselves, and nothing else stand."""
    found: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str):
                found |= set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    shared = (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not isinstance(node, ast.Expr))
    return frozenset(found - {node.lineno for node in shared})


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Local name -> the dotted name that an import anywhere in the file gives it."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(node: ast.AST, names: dict[str, str]) -> str:
    """The dotted name that an expression stands for, ``getattr`` with a constant included; empty if it is no name."""
    match node:
        case ast.Name(id=name):
            return names.get(name, name)
        case ast.Attribute(value=owner, attr=attribute):
            found = dotted(owner, names)
            return f"{found}.{attribute}" if found else ""
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(attribute)), *_]):
            found = dotted(owner, names)
            return f"{found}.{attribute}" if found else ""
        case _:
            return ""


def docstrings(tree: ast.Module) -> set[int]:
    """The ids of the constants that are docstrings, or statements by themselves."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
