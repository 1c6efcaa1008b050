"""YAML written by people, read as text only, with the place of every value.

Nothing is turned into a number, a date or a truth value, and no tag makes an object.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cdd_agent.errors import DocumentError, Problem
from cdd_agent.tickets.yaml_sentences import ESCAPES, LINE, Layout, QuotedSource

if TYPE_CHECKING:
    import yaml

LIMIT_BYTES = 64 * 1024
LIMIT_DEPTH = 50
LIMIT_ALIASES = 100
LIMIT_VALUES = 5_000
"""Written out, and once more with what aliases repeat."""

_VALUE = re.compile(r"(?P<before>[ \t]*(?:-[ \t]+)?(?:[\w-]+[ \t]*:[ \t]+)?)(?P<value>.*?)[ \t]*")
_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value and its place in the source."""

    kind: Literal["text", "list", "map"]
    text: str = ""
    """Of a text, the value."""
    keys: tuple["Node", ...] = ()
    """Of a map, in order."""
    items: tuple["Node", ...] = ()
    """Of a list, its items; of a map, the values that belong to ``keys``."""
    start: int
    """Offset of its first character in the source."""
    end: int
    """Offset behind its last character that is not white space."""
    line: int
    """1-based."""
    is_flow: bool = False
    """Whether it is written in brackets."""

    def get(self, key: str) -> "Node | None":
        """The value of ``key`` in a map."""
        return next((item for name, item in zip(self.keys, self.items, strict=True) if name.text == key), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A map and the text it was read from."""

    source: str
    root: Node


def read(source: str, *, path: str, layout: Layout) -> Document:
    """The document in ``source``; ``DocumentError``, with line and column, for one that cannot be read."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > LIMIT_BYTES:
        raise _refused(path, 0, message=f"it has {size} bytes; at most {LIMIT_BYTES} are read")
    body = source.removeprefix("\ufeff")
    quoted_source = QuotedSource(body, layout)
    node = _compose(quoted_source, path=path)
    if node is None:
        return Document(source=source, root=Node(kind="map", start=len(source), end=len(source), line=1))
    root = _Reader(path, quoted_source, bom=len(source) - len(body)).node(node)
    if root.kind == "text" and not root.text:
        return Document(source=source, root=Node(kind="map", start=root.start, end=root.end, line=root.line))
    if root.kind != "map":
        raise _refused(
            path,
            root.line,
            message="it is not a list of keys and values",
            hint="begin with a line such as `title: ...`",
        )
    return Document(source=source, root=root)


def quoted(text: str) -> str:
    """``text`` in double quotes on one line, as YAML and JSON read it back."""
    escapes = {**ESCAPES, "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(char) or (char if _is_plain(char) else _code(char)) for char in text) + '"'


def _is_plain(char: str) -> bool:
    return char.isprintable() or (char.isspace() and ord(char) > 0xA0)


def _code(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _refused(path: str, line: int, *, message: str, hint: str = "") -> DocumentError:
    problem = Problem(line=line, message=message, hint=hint)
    return DocumentError(path, (problem,), hint=f"mend {path}, then try again")


def _compose(source: QuotedSource, *, path: str) -> "yaml.Node | None":
    """The nodes of ``source``, within the limits."""
    import yaml

    text = source.text
    depth = aliases = values = 0
    try:
        for event in yaml.parse(text, Loader=yaml.BaseLoader):
            aliases += isinstance(event, yaml.AliasEvent)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            values += isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
            line = event.start_mark.line + 1 if event.start_mark else 0
            if depth > LIMIT_DEPTH or aliases > LIMIT_ALIASES:
                raise _refused(path, line, message=f"more than {LIMIT_DEPTH} levels or {LIMIT_ALIASES} aliases")
            if values > LIMIT_VALUES:
                raise _refused(path, line, message=f"more than {LIMIT_VALUES} values")
        return yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        if mark is None:
            raise _refused(path, 0, message=message) from error
        message = f"column {source.column(mark.index)}: {message}"
        raise _refused(path, mark.line + 1, message=message, hint=_quoted_form(source.body, mark.line)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _refused(path, line, message=f"the character U+{ord(text[error.position]):04X} is not allowed") from error
    except (ValueError, OverflowError) as error:
        raise _refused(path, 0, message=f"an escape in it cannot be read: {error}") from error


def _quoted_form(body: str, line: int) -> str:
    """What to write in ``line`` so that its value is read as it stands."""
    texts = [match[1] for match in LINE.finditer(body)]
    match = _VALUE.fullmatch(texts[line]) if line < len(texts) else None
    if not match or not match["value"]:
        return ""
    value = match["value"].strip("\"'")
    return f"quoted it would be `{match['before'].strip()} {quoted(value)}`"


class _Reader:
    """Turns composed nodes into ours, refusing tags, duplicate keys and what expands without end."""

    def __init__(self, path: str, source: QuotedSource, *, bom: int) -> None:
        self._path = path
        self._source = source
        self._bom = bom
        self._count = 0
        self._open: list[int] = []

    def node(self, node: "yaml.Node") -> Node:
        import yaml

        line = node.start_mark.line + 1
        self._count += 1
        if self._count > LIMIT_VALUES or id(node) in self._open:
            raise _refused(self._path, line, message="its aliases expand without end", hint="write the values out")
        if node.tag not in _TAGS:
            raise _refused(
                self._path, line, message=f"the tag {node.tag} is not allowed", hint="remove it; every value is text"
            )
        start = self._source.offset(node.start_mark.index) + self._bom
        end = self._source.offset(node.end_mark.index) + self._bom
        if isinstance(node, yaml.ScalarNode):
            written = self._source.body[start - self._bom : end - self._bom]
            end = start + len(written.rstrip())
            if any("\ud800" <= letter <= "\udfff" for letter in node.value):
                raise _refused(
                    self._path, line, message="half a character is written as an escape", hint="leave it out"
                )
            return Node(kind="text", text=node.value, start=start, end=end, line=line)
        assert isinstance(node, yaml.CollectionNode)
        self._open.append(id(node))
        is_map = isinstance(node, yaml.MappingNode)
        keys = tuple(self.node(key) for key, _ in node.value) if is_map else ()
        items = tuple(self.node(pair[1] if is_map else pair) for pair in node.value)
        self._open.pop()
        self._refuse_duplicates(keys)
        end = end if node.flow_style else max([start, *(item.end for item in items)])
        kind: Literal["list", "map"] = "map" if is_map else "list"
        return Node(kind=kind, keys=keys, items=items, start=start, end=end, line=line, is_flow=bool(node.flow_style))

    def _refuse_duplicates(self, keys: tuple[Node, ...]) -> None:
        first: dict[str, Node] = {}
        for key in keys:
            if first.setdefault(key.text, key) is not key:
                message = f"the key '{key.text}' is there twice, first in line {first[key.text].line}"
                raise _refused(self._path, key.line, message=message, hint="keep one of them")
