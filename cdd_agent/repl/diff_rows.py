"""The rows of the diff viewer and how each is drawn: numbers, signs, colors, changes within lines, comments. Pure.

Rows are made at once, which is cheap. Colors and changes within lines are computed for the rows that are drawn.
"""

import re
import textwrap
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from cdd_agent.events import FileDiffed
from cdd_agent.review import Comment, DiffLine, Place, Side, describe_size, list_lines
from cdd_agent.untrusted.text import clean, show_controls
from cdd_agent.workspace.outline import find_lexer

Fragments: TypeAlias = list[tuple[str, str]]
"""Styles and texts of one row."""
Span: TypeAlias = tuple[int, int]

_MOST_CHARACTERS = 4_000
"""Of one line; a minified file has longer ones."""
_MOST_COMPARED = 500
"""Characters of a line in which changes are searched."""
_MIN_LIKENESS = 0.35
"""Less similar lines are two lines, not one that was changed."""
_COLORED_AT_ONCE = 40
_COLORS = {
    "Comment": "class:code.comment",
    "Keyword": "class:code.keyword",
    "Name.Builtin": "class:code.builtin",
    "Name.Class": "class:code.name",
    "Name.Decorator": "class:code.name",
    "Name.Function": "class:code.name",
    "Literal.Number": "class:code.number",
    "Literal.String": "class:code.string",
}
"""Kind of a token -> style."""
_WORD = re.compile(r"\w+|\s+|.")


class Row(NamedTuple):
    """One row of the viewer."""

    kind: str
    """``head``, ``entry`` (a file of the list), ``file``, ``hunk``, ``line``, ``comment`` or ``note``."""
    text: str = ""
    file: int = -1
    """The index of its file; -1 above all files."""
    at: int = -1
    """The index of its line among the lines of the file."""
    comment: str = ""
    """The id of the comment."""
    style: str = ""
    is_first: bool = True
    """Whether this is the first row of a comment."""

    def is_like(self, other: "Row") -> bool:
        """Return whether both are rows of the same line, file or comment, or both are above the files."""
        return (self.kind, *self[2:5]) == (other.kind, *other[2:5])


class PlacedComment(NamedTuple):
    """A comment, and the place of its lines in the shown files; None if it is outdated."""

    comment: Comment
    place: Place | None


class DiffRows:
    """The rows for the files of one diff."""

    def __init__(self, files: Sequence[FileDiffed], *, head: Sequence[str]) -> None:
        """``head`` is shown above the list of files."""
        self.files = tuple(files)
        self.lines = tuple(tuple(list_lines(file)) for file in files)
        self.rows: list[Row] = []
        self._head = tuple(head)
        numbers = (line.new or line.old or 0 for lines in self.lines for line in lines[-1:])
        self._digits = max(4, *(len(str(number)) for number in numbers), 0)
        self._colors: dict[tuple[int, int], dict[int, Fragments]] = {}
        self._spans: dict[tuple[int, int], dict[int, list[Span]]] = {}
        self._bodies: dict[int, tuple[list[Row], dict[tuple[Side, int], int]]] = {}
        """File -> its rows without comments, and where its lines are among them."""

    def build(self, comments: Iterable[PlacedComment], *, folded: Collection[str], width: int) -> None:
        """Make the rows anew. ``folded`` has ids of comments and paths of files of which one row is shown."""
        beside: dict[tuple[str, Side, int], list[Comment]] = defaultdict(list)
        above: list[PlacedComment] = []
        for placed in comments:
            place = placed.place
            if place is None or not place.path:
                above.append(placed)
            else:
                beside[place.path, placed.comment.side, place.end].append(placed.comment)
        rows = [Row("head", part) for text in self._head for part in _wrap(text, width - 2)]
        for comment, place in above:
            where = f"{comment.place}, outdated" if place is None else comment.place
            rows += _make_comment(comment, where=where, file=-1, folded=folded, width=width)
        rows.append(Row("head", describe_size(self.files), style="class:strong"))
        rows += [Row("entry", _describe_file(file), file=at) for at, file in enumerate(self.files)]
        for number, file in enumerate(self.files):
            rows.append(Row("file", _describe_file(file), file=number))
            if file.path in folded:
                continue
            paths: dict[Side, str] = {"old": file.old_path, "new": file.path}
            here = {key: found for key, found in beside.items() if key[0] == paths[key[1]]}
            body, places = self._find_body(number)
            between: dict[int, list[Row]] = defaultdict(list)
            for (_, side, line), found in here.items():
                at = places.get((side, line))
                target = rows if at is None else between[at]  # below the heading, if its line is not shown
                for comment in found:
                    where = comment.place if at is None else ""
                    target += _make_comment(comment, where=where, file=number, folded=folded, width=width)
            start = 0
            for at in sorted(between):
                rows += (*body[start : at + 1], *between[at])
                start = at + 1
            rows += body[start:]
        self.rows = rows

    def _find_body(self, number: int) -> tuple[list[Row], dict[tuple[Side, int], int]]:
        """Return the rows of a file without comments, and side and number of a line -> its index among them."""
        if number not in self._bodies:
            file, rows, places = self.files[number], list[Row](), dict[tuple[Side, int], int]()
            if file.added is None:
                rows.append(Row("note", "binary file; git cannot show the change", file=number))
            elif not file.hunks:
                rows.append(Row("note", "no lines changed", file=number))
            for at, line in enumerate(self.lines[number]):
                places |= {(side, shown): len(rows) for side, shown in _list_numbers(line)}
                rows.append(Row("hunk" if line.kind == "@" else "line", line.text, file=number, at=at))
            self._bodies[number] = rows, places
        return self._bodies[number]

    def find_line(self, row: Row) -> DiffLine | None:
        """Return the line of the diff that a row shows."""
        return self.lines[row.file][row.at] if row.at >= 0 else None

    def find_number(self, file: int, number: int) -> int | None:
        """Return the index of the row with the line ``number`` of a file, or with the next one that is shown."""
        lines = [(line.new, at) for at, line in enumerate(self.lines[file]) if line.new is not None]
        found = bisect_left(lines, (number, -1))
        if not lines:
            return None
        wanted = lines[min(found, len(lines) - 1)][1]
        return next((index for index, row in enumerate(self.rows) if row.file == file and row.at == wanted), None)

    def draw(self, row: Row, *, left: int = 0) -> Fragments:
        """Return the row without its first ``left`` characters of code."""
        match row.kind:
            case "line":
                return self._draw_line(row, left=left)
            case "hunk":
                return [("class:hunk", clean_line(row.text))]
            case "file":
                return [("class:file", f" {row.text} ")]
            case "comment":
                return [("class:comment", "  ┃ "), (row.style, row.text)]
            case "entry":
                return [("", f"  {row.text}")]
            case _:
                return [(row.style, row.text)]

    def _draw_line(self, row: Row, *, left: int) -> Fragments:
        line = self.lines[row.file][row.at]
        old, new = (f"{number or '':>{self._digits}}" for number in (line.old, line.new))
        style = {"+": "class:added", "-": "class:removed"}.get(line.kind, "")
        head: Fragments = [("class:number", f"{old} {new} "), (f"{style} bold", f"{line.kind} ")]
        if line.kind == "\\":
            return [("class:number", f"{old} {new}  {line.text}")]
        code = self._find_colors(row.file, row.at)
        spans = self._find_spans(row.file, row.at)
        if spans:
            code = _mark(code, spans, style=f"{style}.word")
        return head + (_cut(code, left) if left else code)

    def _find_colors(self, file: int, at: int) -> Fragments:
        part = at // _COLORED_AT_ONCE
        if (file, part) not in self._colors:
            lines = self.lines[file][part * _COLORED_AT_ONCE : (part + 1) * _COLORED_AT_ONCE]
            colored: dict[int, Fragments] = {}
            # The two versions are colored apart: a removed quote must not turn added code into a string.
            for kinds in (" +", "-"):
                numbers = [index for index, line in enumerate(lines) if line.kind in kinds]
                texts = [clean_line(lines[index].text) for index in numbers]
                rows = color_lines(self.files[file].path, tuple(texts))
                colored |= {part * _COLORED_AT_ONCE + index: row for index, row in zip(numbers, rows, strict=True)}
            self._colors[file, part] = colored
        return self._colors[file, part].get(at, [])

    def _find_spans(self, file: int, at: int) -> list[Span]:
        """Return the characters of a line that differ from the line that it replaced, or that replaced it."""
        lines = self.lines[file]
        if lines[at].kind not in "+-":
            return []
        start = at
        while start and lines[start - 1].kind in "+-":
            if at - start > _COLORED_AT_ONCE:  # of a long block, the beginning is far away
                return []
            start -= 1
        if (file, start) not in self._spans:
            self._spans[file, start] = _compare_block(lines, start)
        return self._spans[file, start].get(at, [])


def _list_numbers(line: DiffLine) -> Iterator[tuple[Side, int]]:
    if line.old is not None:
        yield "old", line.old
    if line.new is not None:
        yield "new", line.new


def clean_line(text: str) -> str:
    """Return a line of a file as the terminal may show it; control characters are shown by code point."""
    if text.isascii() and text.isprintable() and len(text) <= _MOST_CHARACTERS:
        return text
    cut = text[:_MOST_CHARACTERS] + ("…" if len(text) > _MOST_CHARACTERS else "")
    return clean(show_controls(cut.removesuffix("\r").replace("\r", "<U+000D>").expandtabs(4)))


@lru_cache(maxsize=512)
def _find_color(kind: object) -> str:
    return next((style for name, style in _COLORS.items() if str(kind).startswith(f"Token.{name}")), "")


def color_lines(path: str, texts: tuple[str, ...]) -> list[Fragments]:
    """Return the lines of a part of the file ``path`` in the colors of its language."""
    language = find_lexer(path.rpartition("/")[2])
    if language is None:
        return [[("", text)] for text in texts]
    lexer = language(stripnl=False, ensurenl=False)
    rows: list[Fragments] = [[]]
    for kind, text in lexer.get_tokens("\n".join(texts)):
        style = _find_color(kind)
        for number, piece in enumerate(text.split("\n")):
            if number:
                rows.append([])
            if piece:
                rows[-1].append((style, piece))
    return (rows + [[] for _ in texts])[: len(texts)]


def _compare_block(lines: Sequence[DiffLine], start: int) -> dict[int, list[Span]]:
    """Compare the removed lines of a block with the added ones behind them, first with first, if they are as many."""
    removed = added = start
    while removed < len(lines) and lines[removed].kind == "-":
        removed += 1
    added = removed
    while added < len(lines) and lines[added].kind == "+":
        added += 1
    spans: dict[int, list[Span]] = {}
    if removed - start != added - removed or removed - start > _COLORED_AT_ONCE:
        return spans
    for old, new in zip(range(start, removed), range(removed, added), strict=True):
        texts = [clean_line(lines[at].text) for at in (old, new)]
        if max(map(len, texts)) > _MOST_COMPARED:
            continue
        before, after = (_WORD.findall(text) for text in texts)
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        if matcher.ratio() < _MIN_LIKENESS:
            continue
        changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
        spans[old] = [_find_span(before, first=first, last=last) for _, first, last, _, _ in changes if last > first]
        spans[new] = [_find_span(after, first=first, last=last) for _, _, _, first, last in changes if last > first]
    return spans


def _find_span(words: Sequence[str], *, first: int, last: int) -> Span:
    start = sum(map(len, words[:first]))
    return start, start + sum(map(len, words[first:last]))


def _mark(code: Fragments, spans: Sequence[Span], *, style: str) -> Fragments:
    """Return ``code`` with ``style`` for the characters of the spans."""
    marked, at = [], 0
    for own, text in code:
        edges = sorted({0, len(text), *(min(max(edge - at, 0), len(text)) for span in spans for edge in span)})
        for first, last in pairwise(edges):
            inside = any(start <= at + first and at + last <= end for start, end in spans)
            marked.append((style if inside else own, text[first:last]))
        at += len(text)
    return marked


def _cut(code: Fragments, left: int) -> Fragments:
    rest = []
    for style, text in code:
        if left < len(text):
            rest.append((style, text[left:]))
        left = max(0, left - len(text))
    return rest


def _make_comment(comment: Comment, *, where: str, file: int, folded: Collection[str], width: int) -> Iterator[Row]:
    count = len(comment.replies)
    answers = f", {count} {'reply' if count == 1 else 'replies'}" if count else ""
    state = "resolved" if comment.resolved else "open"
    head = f"{comment.id[:4]} {comment.author}, {state}{answers}" + (f", on {clean_line(where)}" if where else "")
    is_folded = comment.id in folded
    first = f": {' '.join(clean(comment.text).split())}" if is_folded else ""
    yield Row("comment", head + first, file=file, comment=comment.id, style="class:comment.head")
    if is_folded:
        return
    texts = (("", comment.text), *((f"{reply.author}: ", reply.text) for reply in comment.replies))
    for name, text in texts:
        for line in f"{name}{clean(text)}".split("\n"):
            for part in _wrap(line, width - 6):
                yield Row("comment", part, file=file, comment=comment.id, is_first=False)


def _wrap(text: str, width: int) -> list[str]:
    """Return the rows of a text; they begin where its first one begins."""
    indent = " " * (len(text) - len(text.lstrip(" ")))
    return textwrap.wrap(text, max(20, width), subsequent_indent=indent, drop_whitespace=True) or [""]


def _describe_file(file: FileDiffed) -> str:
    return f"{clean_line(file.name)}  {file.counts}"
