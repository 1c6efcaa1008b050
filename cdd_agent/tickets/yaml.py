"""Read and edit the YAML of a spec without disturbing the rest of the file.

Every value is text: nothing becomes a number, a date or a boolean, and no tag creates an object. Sentences need no
quotes: ``QuotedSource`` finds them line by line and quotes them before PyYAML sees them. An edit replaces characters of
the source, so comments, unknown keys, the order of keys, line ends and indentation survive.

``docs/decisions/0010-yaml-in-place.md`` says why no YAML library writes the file.
"""

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from cdd_agent.errors import DocumentError, Problem
from cdd_agent.untrusted import documents
from cdd_agent.untrusted.documents import UnfitError, check_size

if TYPE_CHECKING:
    import yaml

LIMIT_BYTES = 64 * 1024
LIMIT_VALUES = 5_000
_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\x85": "\\N", "\u2028": "\\L", "\u2029": "\\P"}
"""Characters that a plain sentence may contain but a double-quoted one must escape."""
_TOP_KEY = re.compile(r"(?P<key>[A-Za-z_][\w-]*)[ \t]*:(?=[ \t]|$)[ \t]*")
_ITEM = re.compile(r"(?P<indent> *)-(?:[ \t]+|$)")
_QUOTED = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*(?:[ \t]\#[^\n]*)?""", re.DOTALL)
_BLOCK = re.compile(r"[|>][-+0-9]{0,2}[ \t]*(?:[ \t]#.*)?")
_VALUE = re.compile(r"(?P<before>[ \t]*(?:-[ \t]+)?(?:[\w-]+[ \t]*:[ \t]+)?)(?P<value>.*?)[ \t]*")
_FIRST_DASH = re.compile(r"[\r\n]( *)-(?=[ \t\r\n]|\Z)")
_WORD = re.compile(r"[a-z][a-z/0-9-]*")
_BLOCK_TEXT = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]*")
"""A text that reads back unchanged from a block (``|``), which has no escapes."""


_SENTENCES = ("title", "description", "technical_notes")
"""Top-level keys with one sentence as their value."""
_SENTENCE_LISTS = ("acceptance_criteria", "out_of_scope", "open_questions")
"""Top-level keys with a list of sentences, or of records with an id and a sentence."""
_FIELD = re.compile(r"(?P<field>id|text)[ \t]*:(?:[ \t]+|$)")
"""A key of a record. An item that starts with any other word is a sentence."""
_FLOW_RECORD = re.compile(r"\{\s*[\"']?(?:id|text)[\"']?\s*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlNode:
    """A value and its place in the source."""

    kind: Literal["text", "list", "map"]
    text: str = ""
    """The value of a text."""
    keys: tuple["YamlNode", ...] = ()
    """The keys of a map."""
    items: tuple["YamlNode", ...] = ()
    """The items of a list, or the values of a map in the order of ``keys``."""
    start: int
    """Offset of the first character in the source."""
    end: int
    """Offset after the last character that is not white space."""
    line: int
    """1-based."""
    is_flow: bool = False
    """Whether a list or map is written in brackets."""

    def get(self, key: str) -> "YamlNode | None":
        """Return the value of ``key`` in a map."""
        return next((item for name, item in zip(self.keys, self.items, strict=True) if name.text == key), None)


class Edit(NamedTuple):
    """Replace the source from ``start`` to ``end`` by ``text``."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An item that a list should have."""

    lines: tuple[str, ...]
    """The item as YAML, without its dash and indentation; used if the item is not in the list yet."""
    index: int | None = None
    """The item's position in the list of the source, or None if it is not there."""
    edit: Edit | None = None
    """The change that updates the item of the source, or None if it needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A source, the values in it, and the edits that would change them."""

    source: str
    root: YamlNode
    """A map."""

    def apply(self, edits: Sequence[Edit]) -> str:
        """Return the source after all edits, with the source's line ends. Insertions at one offset keep their order."""
        source = self.source
        end = "\r\n" if "\r\n" in source else "\n"
        # From the last to the first: an edit moves only the offsets behind it.
        for edit in sorted(reversed(edits), key=lambda edit: (edit.start, edit.end), reverse=True):
            source = source[: edit.start] + edit.text.replace("\n", end) + source[edit.end :]
        return source

    def edit_text(self, key: str, *, text: str) -> Edit:
        """Set the top-level ``key`` to ``text``. A missing key is added at the end."""
        node = self.root.get(key)
        if node is None:
            return self._append_key(key, value=f" {_format_text(text, allow_block=True)}")
        line_end = self._line_end(node.end)
        rest = self.source[node.end : line_end]
        # A block starts on the next line, so only a comment may follow its "|".
        allow_block = not self.root.is_flow and (not rest.strip() or rest.lstrip().startswith("#"))
        value = self._space_before(node) + _format_text(text, allow_block=allow_block)
        if not value.lstrip().startswith("|"):
            return Edit(node.start, node.end, value)
        return Edit(node.start, line_end, value.replace("\n", rest.rstrip() + "\n", 1))

    def edit_node(self, node: YamlNode, *, lines: Sequence[str]) -> Edit:
        """Replace the value ``node`` by ``lines``, all at the column where ``node`` starts."""
        space = self._space_before(node)
        indent = " " * (node.start - self._line_start(node.start) + len(space))
        return Edit(node.start, node.end, space + f"\n{indent}".join(lines))

    def edit_list(self, key: str, *, items: Sequence[Item]) -> list[Edit]:
        """Make the top-level list ``key`` contain ``items``. Those that exist keep their form and comments."""
        node = self.root.get(key)
        if node is None:
            return [self._append_key(key, value=_format_list(items, "  ") or " []")]
        if [item.index for item in items] == list(range(len(node.items))) and not any(item.edit for item in items):
            return []
        if node.kind != "list" or node.is_flow:
            return [self._rewrite_list(node, items=items)]
        # Not the column of node.start: an anchor before the list ("key: &a") is part of the node.
        dash = _FIRST_DASH.search(self.source, max(0, self._line_start(node.start) - 1))
        indent = dash[1] if dash else ""
        kept = {item.index: item for item in items if item.index is not None}
        # Items are kept only if they still come first and in the same order; otherwise the whole list is written anew.
        if [item.index for item in items[: len(kept)]] != sorted(kept):
            kept = {}
        edits: list[Edit] = []
        for index, old in enumerate(node.items):
            if index not in kept:
                # The dash may be in a line above the item's text.
                start = max(self.source.rfind(f"{end}{indent}-", 0, old.start) for end in "\n\r") + 1
                edits.append(Edit(start, self._line_end(old.end, with_break=True), ""))
            elif edit := kept[index].edit:
                edits.append(edit)
        if not items:
            name = next(name for name in self.root.keys if name.text == key)
            after_colon = self.source.index(":", name.end) + 1
            return [*edits, Edit(after_colon, after_colon, " []")]
        if new := items[len(kept) :]:
            at = self._line_end(node.items[-1].end, with_break=True)
            text = _format_list(new, indent).removeprefix("\n") + "\n"
            edits.append(Edit(at, at, text if self.source[at - 1 : at] in ("\n", "\r") else "\n" + text))
        return edits

    def _append_key(self, key: str, *, value: str) -> Edit:
        source = self.source
        start = "" if not source or source.endswith(("\n", "\r", "\ufeff")) else "\n"
        return Edit(len(source), len(source), f"{start}{key}:{value}\n")

    def _rewrite_list(self, node: YamlNode, *, items: Sequence[Item]) -> Edit:
        """Write an empty list, or one in brackets, with dashes. A comment behind it stays on its line."""
        start = len(self.source[: node.start].rstrip(" "))
        if not items:
            return Edit(start, node.end, " []")
        line_end = self._line_end(node.end)
        return Edit(start, line_end, self.source[node.end : line_end].rstrip() + _format_list(items, "  "))

    def _space_before(self, node: YamlNode) -> str:
        # An empty value starts right at its colon or dash.
        return " " if self.source[node.start - 1 : node.start] in (":", "-") else ""

    def _line_start(self, offset: int) -> int:
        return max(self.source.rfind("\n", 0, offset), self.source.rfind("\r", 0, offset)) + 1

    def _line_end(self, offset: int, *, with_break: bool = False) -> int:
        match = _LINE.match(self.source, offset)
        assert match is not None  # an empty line matches too
        return match.end() if with_break else match.end(1)


def parse(source: str, *, path: str) -> Document:
    """Parse ``source``. ``DocumentError``, with line and column, says why it cannot be parsed."""
    quoted = QuotedSource(source)
    node = _compose(quoted, path=path)
    root = _convert(node, quoted) if node else YamlNode(kind="text", start=len(source), end=len(source), line=1)
    if root.kind == "text" and not root.text:  # nothing but comments, or "---"
        root = YamlNode(kind="map", start=root.start, end=root.end, line=root.line)
    if root.kind != "map":
        hint = "start with a line such as `title: ...`"
        raise _invalid(path, Problem(line=root.line, message="it is not a list of keys and values", hint=hint))
    return Document(source=source, root=root)


def quote(text: str) -> str:
    """Return ``text`` in double quotes on one line. JSON reads plain characters back from it too."""
    escapes = {**_ESCAPES, "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(char) or _escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    code = ord(char)
    if char.isprintable() or (char.isspace() and code > 0xA0):
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _format_text(text: str, *, allow_block: bool) -> str:
    """Format a value: a single word as it is, several lines as a block, everything else in double quotes."""
    if _WORD.fullmatch(text):
        return text
    if allow_block and "\n" in text and text == text.strip() and _BLOCK_TEXT.fullmatch(text):
        return "|\n" + "\n".join(f"  {line}" if line else "" for line in text.split("\n"))
    return quote(text)


def _format_list(items: Sequence[Item], indent: str) -> str:
    return "".join(f"\n{indent}- " + f"\n{indent}  ".join(item.lines) for item in items)


def _invalid(path: str, problem: Problem) -> DocumentError:
    return DocumentError(path, (problem,), hint=f"fix {path}, then try again")


def _compose(source: "QuotedSource", *, path: str) -> "yaml.Node | None":
    """Parse ``source`` into PyYAML's nodes, after its size, depth and tags were checked."""
    import yaml

    try:
        check_size(source.source, limit_bytes=LIMIT_BYTES)
        # The pure Python parser, not libyaml: only its messages and columns match what compose() reports.
        events = yaml.parse(source.text, Loader=yaml.BaseLoader)
        documents.check_events(events, limit_values=LIMIT_VALUES)
        return yaml.compose(source.text, Loader=yaml.BaseLoader)
    except UnfitError as error:
        raise _invalid(path, Problem(line=error.line, message=str(error), hint=error.hint)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        if mark is None:
            raise _invalid(path, Problem(line=0, message=message)) from error
        message = f"column {source.column(mark.index)}: {message}"
        is_tab = source.text[mark.index : mark.index + 1] == "\t"
        hint = "indent with spaces, not with a tab" if is_tab else source.suggest_quotes(mark.line)
        raise _invalid(path, Problem(line=mark.line + 1, message=message, hint=hint)) from error
    except yaml.reader.ReaderError as error:
        line = source.text.count("\n", 0, error.position) + 1
        message = f"the character U+{ord(source.text[error.position]):04X} is not allowed"
        raise _invalid(path, Problem(line=line, message=message)) from error
    except (ValueError, OverflowError) as error:  # from chr(), for an escape such as "\U99999999"
        raise _invalid(path, Problem(line=0, message=f"an escape in it is not valid: {error}")) from error


def _convert(node: "yaml.Node", source: "QuotedSource") -> YamlNode:
    import yaml

    line = node.start_mark.line + 1
    start, end = source.offset(node.start_mark.index), source.offset(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode):
        end = start + len(source.source[start:end].rstrip())
        return YamlNode(kind="text", text=node.value, start=start, end=end, line=line)
    assert isinstance(node, yaml.CollectionNode)
    is_map = isinstance(node, yaml.MappingNode)
    keys = tuple(_convert(key, source) for key, _ in node.value) if is_map else ()
    items = tuple(_convert(pair[1] if is_map else pair, source) for pair in node.value)
    is_flow = bool(node.flow_style)
    if not is_flow:  # PyYAML ends a block collection where the next token starts, behind blank lines and comments
        end = max([start, *(item.end for item in items)])
    kind: Literal["list", "map"] = "map" if is_map else "list"
    return YamlNode(kind=kind, keys=keys, items=items, start=start, end=end, line=line, is_flow=is_flow)


class _Span(NamedTuple):
    start: int
    end: int
    quoted_start: int = 0
    quoted_end: int = 0


class QuotedSource:
    """A source with its sentences in double quotes, line for line, and a map of its offsets to those of the source."""

    def __init__(self, source: str) -> None:
        """Quote the sentences of ``source``; ``text`` is the result, without a byte order mark."""
        self.source = source
        body = source.removeprefix("\ufeff")
        self._bom_length = len(source) - len(body)
        self._spans: list[_Span] = []
        parts: list[str] = []
        done = length = 0
        for span in _SentenceFinder(body).find():
            sentence = "".join(_ESCAPES.get(char, char) for char in body[span.start : span.end])
            parts += [body[done : span.start], f'"{sentence}"']
            quoted_start = length + span.start - done
            done, length = span.end, quoted_start + len(sentence) + 2
            self._spans.append(_Span(span.start, span.end, quoted_start, length))
        self.text = "".join([*parts, body[done:]])

    def offset(self, quoted_offset: int) -> int:
        """Return the offset in the source of ``quoted_offset`` in ``text``."""
        place = bisect.bisect_left(self._spans, quoted_offset, key=lambda span: span.quoted_start)
        if place == 0:
            return quoted_offset + self._bom_length
        span = self._spans[place - 1]
        inside = span.start if quoted_offset < span.quoted_end else quoted_offset - span.quoted_end + span.end
        return inside + self._bom_length

    def column(self, quoted_offset: int) -> int:
        """Return the 1-based column in the source of ``quoted_offset`` in ``text``."""
        offset = self.offset(quoted_offset)
        line_ends = self.source.rfind("\n", 0, offset), self.source.rfind("\r", 0, offset)
        return offset - max(*line_ends, self._bom_length - 1)

    def suggest_quotes(self, line: int) -> str:
        """Return a hint that shows the value of the 0-based ``line`` in quotes, or nothing if the line has no value."""
        texts = [match[1] for match in _LINE.finditer(self.source.removeprefix("\ufeff"))]
        match = _VALUE.fullmatch(texts[line]) if line < len(texts) else None
        if not match or not match["value"]:
            return ""
        value = match["value"].strip("\"'")
        return f"in quotes it is `{match['before'].strip()} {quote(value)}`"


class _Line(NamedTuple):
    start: int
    text: str


class _SentenceFinder:
    """Finds the unquoted sentences of a document line by line, because they need not be valid YAML."""

    def __init__(self, body: str) -> None:
        self._lines = [_Line(match.start(), match[1]) for match in _LINE.finditer(body)]
        self._spans: list[_Span] = []

    def find(self) -> list[_Span]:
        """Return the sentences in order, without offsets in the quoted text."""
        at = 0
        while at < len(self._lines):
            match = _TOP_KEY.match(self._lines[at].text)
            if match and match["key"] in _SENTENCES:
                at = self._scan_value(at, match.end(), indent=0, is_item=False)
            elif match and match["key"] in _SENTENCE_LISTS and _is_bare(self._lines[at].text[match.end() :]):
                at = self._scan_list(at + 1)
            else:
                at += 1
        return self._spans

    # Each _scan method reads from line ``at`` and returns the number of the first line that it did not read.

    def _scan_list(self, at: int) -> int:
        indent: int | None = None
        while at < len(self._lines):
            text = self._lines[at].text
            match = _ITEM.match(text)
            if _is_bare(text):
                at += 1
            elif match and (indent is None or len(match["indent"]) == indent):
                indent = len(match["indent"])
                at = self._scan_item(at, match.end(), indent=indent)
            else:
                break
        return at

    def _scan_item(self, at: int, column: int, *, indent: int) -> int:
        first, after_dash = at, column
        if not self._lines[at].text[column:].strip():  # the item starts in a line below its dash
            first = next((n for n in range(at + 1, len(self._lines)) if self._lines[n].text.strip()), at)
            column = _indent(self._lines[first].text) if first > at else column
        if column <= indent or not _FIELD.match(self._lines[first].text, column):
            return self._scan_value(at, after_dash, indent=indent)
        at = first
        while at < len(self._lines) and (at == first or self._is_deeper(at, indent)):
            match = _FIELD.match(self._lines[at].text, column)
            if match and match["field"] == "text":
                at = self._scan_value(at, match.end(), indent=column)
            else:
                at += 1
        return at

    def _scan_value(self, at: int, column: int, *, indent: int, is_item: bool = True) -> int:
        """Record a sentence that starts at ``column`` and continues in deeper lines, up to a comment."""
        end = at + 1
        while end < len(self._lines) and self._is_deeper(end, indent):
            end += 1
        first = self._lines[at].text[column:]
        if _BLOCK.fullmatch(first.rstrip()) or first.startswith("!!"):
            return end
        below = [n for n in range(at + 1, end) if self._lines[n].text.strip()]
        # "title: # x" has a comment and its value below, but the item "- # x" is a sentence about a heading.
        if _is_bare(first) and not (is_item and first.strip()):
            below = [n for n in below if not _is_bare(self._lines[n].text)]
            if not below:
                return end
            at, column = below[0], _indent(self._lines[below[0]].text)
        below = [n for n in below if n > at]
        value = "\n".join([self._lines[at].text[column:], *(self._lines[n].text for n in below)])
        if _QUOTED.fullmatch(value.rstrip()) or _FLOW_RECORD.match(self._lines[at].text, column):
            return end
        comment = next((place for place, n in enumerate(below) if _is_bare(self._lines[n].text)), len(below))
        last = self._lines[[at, *below[:comment]][-1]]
        self._spans.append(_Span(self._lines[at].start + column, last.start + len(last.text.rstrip())))
        return end

    def _is_deeper(self, at: int, indent: int) -> bool:
        text = self._lines[at].text
        return not text.strip() or _indent(text) > indent


def _is_bare(text: str) -> bool:
    """Return whether ``text`` is blank or only a comment."""
    return not text.strip() or text.lstrip().startswith("#")


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))
