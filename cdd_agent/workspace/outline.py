"""Outlines of files and of a whole project: the definitions with their lines, within a budget of characters.

Python is parsed. In all other languages a line counts as a definition if deeper indented lines follow it. pygments
is imported when a project is outlined.
"""

import ast
import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

from cdd_agent.errors import UsageError, format_count
from cdd_agent.untrusted.keys import mask
from cdd_agent.workspace.files import Workspace, decode

if TYPE_CHECKING:
    from pygments.lexer import LexerMeta  # type: ignore[import-untyped]

MAX_PARSED_FILES = 1_000
"""Files of a project whose definitions are read; of the others only the paths are listed."""
_MAX_DEPTH = 1
_MAX_HEADER = 120
_MAX_BEGINNING = 60
"""Lines of a file before its first definition, such as its imports, that are shown of a long one."""
_NO_CODE = frozenset({"configs", "data", "markup", "special", "textfmts"})
"""Modules of pygments for files that are no programs."""
_CALLED = re.compile(r"(\w+)\s*\(")
_LAST_WORD = re.compile(r"(\w+)\W*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A class, a function, or another block of a file."""

    name: str
    first: int
    """1-based; decorators belong to it."""
    last: int
    depth: int
    """0 at the top level."""
    header: str
    """Its first line."""


def list_definitions(path: str, text: str) -> tuple[Definition, ...]:
    """Return the definitions of a file down to methods, in the order of their lines."""
    if path.endswith((".py", ".pyi")):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return _list_blocks(text.splitlines())
        return tuple(_list_python(tree.body, text.splitlines(), depth=0))
    return _list_blocks(text.splitlines())


def _list_python(body: Iterable[ast.stmt], lines: Sequence[str], *, depth: int) -> Iterable[Definition]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            yield Definition(
                name=node.name,
                first=first,
                last=node.end_lineno or node.lineno,
                depth=depth,
                header=lines[node.lineno - 1].strip()[:_MAX_HEADER],
            )
            if isinstance(node, ast.ClassDef) and depth < _MAX_DEPTH:
                yield from _list_python(node.body, lines, depth=depth + 1)


def _list_blocks(lines: Sequence[str]) -> tuple[Definition, ...]:
    """Return the lines that deeper indented lines follow, each with the block below it."""
    indents = [(number, _measure_indent(line)) for number, line in enumerate(lines, start=1) if line.strip()]
    found: list[Definition] = []
    above: list[int] = []
    for position, (number, indent) in enumerate(indents[:-1]):
        while above and above[-1] >= indent:
            above.pop()
        if indents[position + 1][1] <= indent:
            continue
        if len(above) <= _MAX_DEPTH:
            inside = next(
                (at for at, (_, other) in enumerate(indents[position + 1 :], start=position + 1) if other <= indent),
                len(indents),
            )
            # A line such as ``}`` closes the block.
            closes = inside < len(indents) and not re.search(r"\w", lines[indents[inside][0] - 1])
            last = indents[inside if closes else inside - 1][0]
            header = lines[number - 1].strip()[:_MAX_HEADER]
            name = _CALLED.search(header) or _LAST_WORD.search(header)
            found.append(
                Definition(name=name[1] if name else "", first=number, last=last, depth=len(above), header=header)
            )
        above.append(indent)
    return tuple(found)


def _measure_indent(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


def outline_file(path: str, text: str) -> str:
    """Return the definitions of a file, one a line with its lines."""
    rows = (f"{'  ' * each.depth}{each.header}  [{each.first}-{each.last}]" for each in list_definitions(path, text))
    return "\n".join(rows)


def show_parts(path: str, text: str, *, names: Collection[str], limit: int) -> str:
    """Return the outline of a file, its beginning, and the definitions with one of ``names``, in numbered lines."""
    definitions = list_definitions(path, text)
    outline = outline_file(path, text) or "(no definitions)"
    if len(outline) > limit // 2:
        outline = outline[: limit // 2].rpartition("\n")[0] + "\n..."
    # Whoever adds to a file has to know what it imports.
    parts, lines, room, end = [outline], text.splitlines(), limit - len(outline), 0
    beginning = min(definitions[0].first - 1 if definitions else len(lines), _MAX_BEGINNING)
    while beginning and not lines[beginning - 1].strip():
        beginning -= 1
    wanted = [(1, beginning), *((each.first, each.last) for each in definitions if each.name in names)]
    for first, last in wanted:
        rows = "\n".join(f"{number:>6}\t{lines[number - 1]}" for number in range(first, last + 1))
        if first > end and rows and len(rows) <= room:
            parts.append(rows)
            room, end = room - len(rows), last
    return "\n\n".join(parts)[:limit]


def outline_project(workspace: Workspace, *, limit: int) -> str:
    """Return the files of the project with their numbers of lines and their definitions, in ``limit`` characters.

    If they do not fit, methods are left out first, then functions and classes, then files: folders are counted.
    """
    paths = workspace.list_files()
    if sum(len(path) + 1 for path in paths) > limit:
        return _count_folders(paths, limit=limit)
    entries = [(path, *_describe_file(workspace, path)) for path in paths[:MAX_PARSED_FILES]]
    entries += [(path, "", ()) for path in paths[MAX_PARSED_FILES:]]
    for deepest in range(_MAX_DEPTH, -2, -1):
        rows: list[str] = []
        for path, size, definitions in entries:
            rows.append(f"{path}{size}")
            rows += [f"{'  ' * (each.depth + 1)}{each.header}" for each in definitions if each.depth <= deepest]
        text = "\n".join(rows)
        if len(text) <= limit:
            return text
    return "\n".join(paths)


def _describe_file(workspace: Workspace, path: str) -> tuple[str, tuple[Definition, ...]]:
    try:
        text = mask(decode(workspace.read(path))).text
    except (UsageError, OSError):
        return "", ()
    size = f" ({format_count(len(text.splitlines()), 'line')})"
    return size, list_definitions(path, text) if _is_code(posixpath.basename(path)) else ()


def _is_code(name: str) -> bool:
    """Tell whether a file with this name is a program: lists in a text are indented, too, and define nothing."""
    language = find_lexer(name)
    return language is not None and language.__module__.rpartition(".")[2] not in _NO_CODE


@lru_cache(maxsize=512)
def find_lexer(name: str) -> "LexerMeta | None":
    """Return the lexer for files called ``name``, without loading plugins, which anything installed could bring."""
    from pygments.lexers import find_lexer_class, get_all_lexers  # type: ignore[import-untyped]

    for title, _, patterns, _ in get_all_lexers(plugins=False):
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            return find_lexer_class(title)
    return None


def _count_folders(paths: Sequence[str], *, limit: int) -> str:
    """Return the folders with the number of files in and below them, as deep as ``limit`` characters allow."""
    text = format_count(len(paths), "file")
    for depth in range(1, max(path.count("/") for path in paths) + 1):
        counts: dict[str, int] = {}
        for path in paths:
            folders = path.split("/")[:-1][:depth]
            name = "/".join(folders) + "/" if folders else "(top folder)"
            counts[name] = counts.get(name, 0) + 1
        deeper = "\n".join(f"{name} {format_count(count, 'file')}" for name, count in sorted(counts.items()))
        if len(deeper) > limit:
            break
        text = deeper
    return text
