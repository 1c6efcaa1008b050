"""Python source as the checks look at it: parsed, told apart from its earlier version, names resolved. Pure."""

import ast
import difflib
from collections.abc import Iterator
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def parse(text: str | None) -> ast.Module | None:
    """The tree of a source; None if this interpreter cannot parse it, or there is none."""
    if text is None:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def added_lines(old: str | None, new: str) -> frozenset[int]:
    """The 1-based lines of ``new`` that are not in ``old``."""
    return frozenset(line for _, first, last in _edits(old, new) for line in range(first + 1, last + 1))


def touched_lines(old: str | None, new: str) -> frozenset[int]:
    """The added lines, and those beside which a line was removed."""
    removed = (line for kind, first, _ in _edits(old, new) if kind == "delete" for line in (first, first + 1))
    return added_lines(old, new) | frozenset(removed)


def _edits(old: str | None, new: str) -> Iterator[tuple[str, int, int]]:
    """Kind of an edit, and the lines of ``new`` that it covers, from 0, the last one excluded."""
    matcher = difflib.SequenceMatcher(None, _lines(old or ""), _lines(new), autojunk=False)
    for kind, _, _, first, last in matcher.get_opcodes():
        if kind != "equal":
            yield kind, first, last


def _lines(text: str) -> list[str]:
    """Lines as Python counts them; blanks at their end do not make another line."""
    return [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]


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
