"""Sentences in YAML, found line by line before anything is read as YAML.

A sentence is taken from its line as it stands, so that ``: ``, ``#``, brackets, quotes and backticks in it need no
quotes: the source is rewritten, line for line, with every such sentence in double quotes.
"""

import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
"""A line and its end, whichever a file uses."""

ESCAPES = {"\\": "\\\\", '"': '\\"', "\x85": "\\N", "\u2028": "\\L", "\u2029": "\\P"}
"""What stands for itself in a line of text but not between double quotes."""

_TOP_KEY = re.compile(r"(?P<key>[A-Za-z_][\w-]*)[ \t]*:(?=[ \t]|$)[ \t]*")
_ITEM = re.compile(r"(?P<indent> *)-(?:[ \t]+|$)")
_CLOSED = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*(?:[ \t]\#[^\n]*)?""", re.DOTALL)
_BLOCK = re.compile(r"[|>][-+0-9]{0,2}[ \t]*(?:[ \t]#.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a document holds sentences."""

    texts: frozenset[str]
    """Top-level keys whose value is one text."""
    lists: frozenset[str]
    """Top-level keys whose value is a list of texts, or of records."""
    fields: tuple[str, ...] = ()
    """Keys of such a record; one that begins otherwise is a sentence."""
    sentence: str = ""
    """The field of a record that is a sentence."""


class _Span(NamedTuple):
    """Part of the source that is read as if it were quoted: its offsets there and in the quoted text."""

    start: int
    end: int
    quoted_start: int = 0
    quoted_end: int = 0


class _Line(NamedTuple):
    start: int
    text: str


class QuotedSource:
    """A source with its sentences in double quotes, and the way back to the offsets in the source."""

    def __init__(self, body: str, layout: Layout) -> None:
        """Read ``body``, which has no byte order mark."""
        self.body = body
        self.text, self._spans = _quote(body, _Sentences(body, layout).spans)

    def offset(self, quoted_offset: int) -> int:
        """The offset in the source of what is at ``quoted_offset`` in ``text``."""
        place = bisect.bisect_left(self._spans, quoted_offset, key=lambda span: span.quoted_start)
        if place == 0:
            return quoted_offset
        span = self._spans[place - 1]
        return span.start if quoted_offset < span.quoted_end else quoted_offset - span.quoted_end + span.end

    def column(self, quoted_offset: int) -> int:
        """The same as a 1-based column."""
        offset = self.offset(quoted_offset)
        return offset - max(self.body.rfind("\n", 0, offset), self.body.rfind("\r", 0, offset))


class _Sentences:
    """Finds the values that are sentences, line by line, before anything is read as YAML."""

    def __init__(self, body: str, layout: Layout) -> None:
        self.spans: list[_Span] = []
        self._layout = layout
        self._lines = [_Line(match.start(), match[1]) for match in LINE.finditer(body)]
        fields = "|".join(map(re.escape, layout.fields)) or r"\b\B"
        self._field = re.compile(rf"(?P<field>{fields})[ \t]*:(?:[ \t]+|$)")
        self._record = re.compile(rf"\{{\s*[\"']?(?:{fields})[\"']?\s*:")
        at = 0
        while at < len(self._lines):
            match = _TOP_KEY.match(self._lines[at].text)
            if match and match["key"] in layout.texts:
                at = self._value(at, match.end(), indent=0, is_item=False)
            elif match and match["key"] in layout.lists and _is_bare(self._lines[at].text[match.end() :]):
                at = self._list(at + 1)
            else:
                at += 1

    def _list(self, at: int) -> int:
        """Read the items from line ``at`` on; the line behind them."""
        indent: int | None = None
        while at < len(self._lines):
            text = self._lines[at].text
            match = _ITEM.match(text)
            if _is_bare(text):
                at += 1
            elif match and (indent is None or len(match["indent"]) == indent):
                indent = len(match["indent"])
                at = self._item(at, match.end(), indent=indent)
            else:
                break
        return at

    def _item(self, at: int, column: int, *, indent: int) -> int:
        first, dash = at, column
        if not self._lines[at].text[column:].strip():
            first = next((n for n in range(at + 1, len(self._lines)) if self._lines[n].text.strip()), at)
            column = _indent(self._lines[first].text) if first > at else column
        if column <= indent or not self._field.match(self._lines[first].text, column):
            return self._value(at, dash, indent=indent)
        at = first
        while at < len(self._lines) and (at == first or self._is_below(at, indent)):
            match = self._field.match(self._lines[at].text, column)
            is_key = match is not None and (at == first or _indent(self._lines[at].text) == column)
            if match and is_key and match["field"] == self._layout.sentence:
                at = self._value(at, match.end(), indent=column)
            else:
                at += 1
        return at

    def _is_below(self, at: int, indent: int) -> bool:
        text = self._lines[at].text
        return not text.strip() or _indent(text) > indent

    def _value(self, at: int, column: int, *, indent: int, is_item: bool = True) -> int:
        """Note the value that begins in line ``at`` at ``column``, if it is a sentence; the line behind it.

        It goes on in the lines below that are indented by more than ``indent``. An item may begin with ``#``.
        """
        end = at + 1
        while end < len(self._lines) and self._is_below(end, indent):
            end += 1
        first = self._lines[at].text[column:]
        if _BLOCK.fullmatch(first.rstrip()) or first.startswith("!!"):
            return end
        below = [n for n in range(at + 1, end) if self._lines[n].text.strip()]
        if _is_bare(first) and not (is_item and first.strip()):
            below = [n for n in below if not _is_bare(self._lines[n].text)]
            if not below:
                return end
            at, column = below[0], _indent(self._lines[below[0]].text)
        if _CLOSED.fullmatch("\n".join([self._lines[at].text[column:], *self._texts(below, at)]).rstrip()):
            return end
        last = at
        for number in (n for n in below if n > at):
            if _is_bare(self._lines[number].text):
                break
            last = number
        self._note(at, column, last=last)
        return end

    def _texts(self, numbers: Iterable[int], after: int) -> Iterator[str]:
        return (self._lines[number].text for number in numbers if number > after)

    def _note(self, at: int, column: int, *, last: int) -> None:
        start = self._lines[at].start + column
        if not self._record.match(self._lines[at].text, column):
            self.spans.append(_Span(start, self._lines[last].start + len(self._lines[last].text.rstrip())))


def _quote(body: str, spans: Iterable[_Span]) -> tuple[str, list[_Span]]:
    """``body`` with the spans in double quotes, line for line, and where they now are."""
    parts: list[str] = []
    placed: list[_Span] = []
    done = length = 0
    for span in spans:
        sentence = "".join(ESCAPES.get(char, char) for char in body[span.start : span.end])
        parts += [body[done : span.start], f'"{sentence}"']
        begin = length + span.start - done
        done, length = span.end, begin + len(sentence) + 2
        placed.append(_Span(span.start, span.end, begin, length))
    return "".join([*parts, body[done:]]), placed


def _is_bare(text: str) -> bool:
    """Whether there is nothing but perhaps a comment."""
    return not text.strip() or text.lstrip().startswith("#")


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))
