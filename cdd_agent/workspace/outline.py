"""Outlines of files and of a whole project: the definitions with their lines, within a budget of characters.

Python is parsed. In all other languages a line counts as a definition if deeper indented lines follow it. pygments
is imported when a project is outlined.
"""

import ast
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from cdd_agent.errors import UsageError, format_count
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.python_source import find_first_line, parse, split_lines
from cdd_agent.workspace.files import Workspace

if TYPE_CHECKING:
    from pygments.lexer import LexerMeta  # type: ignore[import-untyped]

MAX_PARSED_FILES = 1_000
"""Files of a project whose definitions are read; of the others only the paths are listed."""
MAX_DATA_FILES = 6
"""More data files of a folder are counted; of texts such as pages of documentation, more than ``MAX_TEXT_FILES``."""
MAX_TEXT_FILES = 40
_MAX_DEPTH = 1
_MAX_HEADER = 240
_MAX_HEADER_LINES = 30
_MAX_ENDINGS = 3
_MAX_BEGINNING = 60
"""Lines of a file before its first definition, such as its imports, that are shown of a long one."""
_NO_CODE = frozenset({"configs", "css", "data", "markup", "special", "textfmts"})
"""Modules of pygments for files that are no programs."""
_TEXTS = (".md", ".rst", ".adoc", ".txt")
_TEST = re.compile(r"(?:^|/)(?:tests?|__tests__|specs?)/|(?:^|/)test_[^/]*$|_test\.\w+$|\.(?:test|spec)\.\w+$")
_CALLED = re.compile(r"(\w+)\s*\(")
_COMMENT = re.compile(r"\s+#[^\"']*$")
_LAST_WORD = re.compile(r"(\w+)\W*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineEntry:
    """A class, a function, or another block of a file."""

    name: str
    first: int
    """1-based; decorators belong to it."""
    last: int
    depth: int
    """0 at the top level."""
    header: str
    """Its whole signature in one line, shortened if it is long."""


_UNREADABLE: tuple[str, tuple[OutlineEntry, ...]] = ("", ())
"""The size and the definitions of a binary file."""


# Each request shows the outline of the whole project, in which one file has changed.
@lru_cache(maxsize=MAX_PARSED_FILES)
def list_definitions(path: str, text: str) -> tuple[OutlineEntry, ...]:
    """Return the definitions of a file down to methods, in the order of their lines."""
    if path.endswith((".py", ".pyi")):
        tree = parse(text.removeprefix("\ufeff").encode("utf-8", "replace").decode())
        if tree is not None:
            return tuple(_list_python(tree.body, split_lines(text), depth=0))
    return _list_blocks(split_lines(text))


def _list_python(body: Iterable[ast.stmt], lines: Sequence[str], *, depth: int) -> Iterable[OutlineEntry]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield OutlineEntry(
                name=node.name,
                first=find_first_line(node),
                last=node.end_lineno or node.lineno,
                depth=depth,
                header=join_header(lines, first=node.lineno, last=max(node.lineno, node.body[0].lineno - 1)),
            )
            if isinstance(node, ast.ClassDef) and depth < _MAX_DEPTH:
                yield from _list_python(node.body, lines, depth=depth + 1)


def _list_blocks(lines: Sequence[str]) -> tuple[OutlineEntry, ...]:
    """Return the lines that deeper indented lines follow, each with the block below it."""
    indents = list(_measure_indents(lines))
    found: list[OutlineEntry] = []
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
            header = join_header(lines, first=number, last=last)
            name = _CALLED.search(header) or _LAST_WORD.search(header)
            found.append(
                OutlineEntry(name=name[1] if name else "", first=number, last=last, depth=len(above), header=header)
            )
        above.append(indent)
    return tuple(found)


def _read_brackets(lines: Sequence[str], *, first: int, last: int) -> list[str]:
    """Return the line ``first`` and those up to ``last`` that close its brackets; alone, if they stay open."""
    parts, depth = list[str](), 0
    for line in lines[first - 1 : min(last, first - 1 + _MAX_HEADER_LINES)]:
        parts.append(_COMMENT.sub("", line).strip())
        depth += len(re.findall(r"[(\[]", parts[-1])) - len(re.findall(r"[)\]]", parts[-1]))
        if depth <= 0:
            return parts
    return parts[:1]  # a bracket in a text, or code that cannot be parsed


def join_header(lines: Sequence[str], *, first: int, last: int) -> str:
    """Return the line ``first``, and those after it until its brackets are closed, as one line."""
    parts = _read_brackets(lines, first=first, last=last)
    header = re.sub(r",? (?=[)\]])|(?<=[(\[]) ", "", " ".join(filter(None, parts)))
    return header if len(header) <= _MAX_HEADER else f"{header[:_MAX_HEADER]}..."


def _measure_indents(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield number and indentation of each line, but of a signature in several lines only the first."""
    until = 0
    for number, line in enumerate(lines, start=1):
        if number <= until or not line.strip():
            continue
        if line.rstrip().endswith("("):
            until = number - 1 + len(_read_brackets(lines, first=number, last=len(lines)))
        yield number, _measure_indent(line)


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
    parts, lines, room, end = [outline], split_lines(text), limit - len(outline), 0
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

    Where a folder has many data files, they are counted. If the rest does not fit, the definitions of tests are left
    out first, then methods, functions and classes. If even the paths do not fit, the tests are counted, then
    the folders with the most files, then all.
    """
    paths = workspace.list_files()
    programs = [path for path in paths if _is_code(posixpath.basename(path))]
    rows: dict[str, str] = {}
    if sum(len(path) + 1 for path in programs) > limit:
        rows = {path: _name_test_row(path) for path in programs if _TEST.search(path)}
        rows |= _count_heaps([path for path in programs if path not in rows], limit=limit)
    if sum(len(path) + 1 for path in programs if path not in rows) > limit:
        return _count_folders(paths, limit=limit)
    read = [path for path in programs if path not in rows]
    found = {path: _describe_file(workspace, path) for path in read[:MAX_PARSED_FILES]}
    # A name such as ``de.mo`` may belong to a language, and its file be no text.
    code = [path for path in programs if found.get(path) != _UNREADABLE]
    rows |= _count_data(paths, programs=code)
    listed = [path for path in paths if path not in rows]
    found |= {path: _describe_file(workspace, path) for path in listed[:MAX_PARSED_FILES] if path not in found}
    labels = _label(rows)
    ordered = sorted({*listed, *labels})
    if sum(len(labels.get(row, row)) + 1 for row in ordered) > limit:
        return _count_folders(paths, limit=limit)
    for deepest, deepest_of_tests in ((1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)):
        text: list[str] = []
        for row in ordered:
            size, definitions = found.get(row, _UNREADABLE)
            depth = deepest_of_tests if _TEST.search(row) else deepest
            text.append(labels.get(row, f"{row}{size}"))
            text += [f"{'  ' * (each.depth + 1)}{each.header}" for each in definitions if each.depth <= depth]
        if sum(len(line) + 1 for line in text) <= limit + 1:
            return "\n".join(text)
    return "\n".join(labels.get(row, row) for row in ordered)


def _count_data(paths: Sequence[str], *, programs: Iterable[str]) -> dict[str, str]:
    """Return path -> the row that counts it, for the files of folders with too many data files or texts.

    A folder without any program is counted with all that is below it.
    """
    code = frozenset(programs)
    with_code = {folder for path in code for folder in _list_folders(path)}
    groups: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        if path in code:
            continue
        folders = _list_folders(path)
        row = next((f"{folder}/" for folder in folders if folder and folder not in with_code), "")
        if not row:  # beside programs, files of one kind are counted
            row = posixpath.join(folders[-1], f"*{posixpath.splitext(path)[1]}")
        groups.setdefault((row, "text" if path.endswith(_TEXTS) else "data"), []).append(path)
    most = {"text": MAX_TEXT_FILES, "data": MAX_DATA_FILES}
    return {path: row for (row, kind), found in groups.items() if len(found) > most[kind] for path in found}


def _count_heaps(programs: Sequence[str], *, limit: int) -> dict[str, str]:
    """Return path -> the row that counts it, for the folders with the most programs, until the others fit."""
    rows: dict[str, str] = {}
    by_folder: dict[str, list[str]] = {}
    for path in programs:
        by_folder.setdefault(posixpath.join(posixpath.dirname(path), f"*{posixpath.splitext(path)[1]}"), []).append(
            path
        )
    room = limit - sum(len(path) + 1 for path in programs)
    for row, found in sorted(by_folder.items(), key=lambda each: -len(each[1])):
        if room >= 0 or len(found) <= MAX_TEXT_FILES:
            break
        rows |= dict.fromkeys(found, row)
        room += sum(len(path) + 1 for path in found)
    return rows


def _name_test_row(path: str) -> str:
    """Return the row that counts a test file: that of its outermost folder of tests, or of the tests beside it."""
    folder = next((folder for folder in _list_folders(path) if _TEST.search(f"{folder}/")), None)
    return f"{folder}/" if folder else posixpath.join(posixpath.dirname(path), f"*test*{posixpath.splitext(path)[1]}")


def _label(rows: Mapping[str, str]) -> dict[str, str]:
    """Return row -> its text, with the number of the files that it counts and their most frequent endings."""
    endings: dict[str, Counter[str]] = {}
    for path, row in rows.items():
        endings.setdefault(row, Counter())[posixpath.splitext(path)[1]] += 1
    labels = {}
    for row, found in endings.items():
        names = ", ".join(ending for ending, _ in found.most_common(_MAX_ENDINGS) if ending)
        names = "" if "*" in row else names  # the row has its ending
        labels[row] = f"{row} ({format_count(found.total(), 'file')}" + (f": {names})" if names else ")")
    return labels


def _list_folders(path: str) -> list[str]:
    """Return the folders of ``path``, the project's, which is empty, first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _describe_file(workspace: Workspace, path: str) -> tuple[str, tuple[OutlineEntry, ...]]:
    try:
        text = mask(workspace.read_text(path).text).text
    except (UsageError, OSError):
        return _UNREADABLE
    size = f" ({format_count(len(text.splitlines()), 'line')})"
    return size, list_definitions(path, text) if _is_code(posixpath.basename(path)) else ()


def _is_code(name: str) -> bool:
    """Tell whether a file with this name is a program: lists in a text are indented, too, and define nothing."""
    language = find_lexer(name)
    return language is not None and language.__module__.rpartition(".")[2] not in _NO_CODE


@lru_cache(maxsize=4_096)
def find_lexer(name: str) -> "LexerMeta | None":
    """Return the lexer for files called ``name``, without loading plugins, which anything installed could bring."""
    from pygments.lexers import find_lexer_class  # type: ignore[import-untyped]

    by_pattern, globs = _read_lexers()
    likely = {name, *(f"*.{name[at + 1 :]}" for at, letter in enumerate(name) if letter == ".")}
    found = [by_pattern[pattern] for pattern in likely if pattern in by_pattern]
    found += [rank for pattern, rank in globs if fnmatchcase(name, pattern)]
    return find_lexer_class(min(found)[1]) if found else None


@cache
def _read_lexers() -> tuple[dict[str, tuple[int, str]], list[tuple[str, tuple[int, str]]]]:
    """Return pattern -> order and name of the first lexer for it, and the patterns that only a search can match.

    A project may have thousands of names: a comparison of each with all patterns takes a millisecond.
    """
    from pygments.lexers import get_all_lexers

    by_pattern: dict[str, tuple[int, str]] = {}
    globs: list[tuple[str, tuple[int, str]]] = []
    for order, (title, _, patterns, _) in enumerate(get_all_lexers(plugins=False)):
        for pattern in patterns:
            if re.search(r"[*?[]", pattern.removeprefix("*.")):
                globs.append((pattern, (order, title)))
            else:
                by_pattern.setdefault(pattern, (order, title))
    return by_pattern, globs


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
