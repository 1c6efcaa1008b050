"""A spec: what is wanted. ``spec.yaml`` is read into a record, and changed without disturbing what else is in it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cdd_agent.errors import DocumentError, Problem, UsageError
from cdd_agent.storage import write_atomic
from cdd_agent.tickets import document
from cdd_agent.tickets.rules.testable import vague_word
from cdd_agent.tickets.yaml_sentences import Layout
from cdd_agent.tickets.yaml_splice import Edit, Item, apply, item_text, list_edits, text_edit
from cdd_agent.tickets.yaml_text import LIMIT_BYTES, Document, Node, quoted, read

SCHEMA = "cdd/1"
TYPES = ("feature", "bug", "enhancement", "refactor", "chore", "doc", "spike")
STATUSES = ("draft", "refined", "planned", "executing", "done")

_TEXTS = ("title", "type", "status", "description", "technical_notes")
_LISTS = ("out_of_scope", "open_questions", "depends_on")
_LAYOUT = Layout(
    texts=frozenset({"title", "description", "technical_notes"}),
    lists=frozenset({"acceptance_criteria", "out_of_scope", "open_questions"}),
    fields=("id", "text"),
    sentence="text",
)
_KNOWN = frozenset({"schema", "acceptance_criteria", *_TEXTS, *_LISTS})
_LABEL = re.compile(r"(?P<id>AC-\d+)\s*:\s+(?P<text>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing that must hold when the ticket is done."""

    id: str
    """Such as ``AC-1``; steps of the plan name it."""
    text: str


Change: TypeAlias = str | Sequence[str] | Sequence[Criterion]
"""A new value: a text, a list of texts, or the acceptance criteria."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What is wanted."""

    title: str = ""
    type: str = "feature"
    """One of ``TYPES``."""
    status: str = "draft"
    """One of ``STATUSES``."""
    description: str = ""
    acceptance_criteria: tuple[Criterion, ...] = ()
    out_of_scope: tuple[str, ...] = ()
    technical_notes: str = ""
    open_questions: tuple[str, ...] = ()
    """What must be answered before there can be a plan."""
    depends_on: tuple[str, ...] = ()
    """Slugs of the tickets that come first."""
    unknown_keys: tuple[str, ...] = ()
    """Other top-level keys of the file; they stay in it."""

    @property
    def criterion_ids(self) -> tuple[str, ...]:
        """The ids of its acceptance criteria."""
        return tuple(criterion.id for criterion in self.acceptance_criteria)


COMPLETE = "a title, a description, at least one acceptance criterion that can be tested, and no open question"
"""What a complete spec has, for whoever is told that one is not."""

VAGUE = "A criterion cannot be tested if it has a word that measures nothing, and no number, `code` or quoted text."
"""The rule behind ``remarks``."""


def missing(spec: Spec) -> tuple[str, ...]:
    """What the spec lacks to be complete, each as words that fit behind "it lacks"."""
    lacks = []
    if not spec.title:
        lacks.append("a title")
    if not spec.description:
        lacks.append("a description")
    if not spec.acceptance_criteria:
        lacks.append("an acceptance criterion")
    elif all(vague_word(criterion.text) for criterion in spec.acceptance_criteria):
        lacks.append("an acceptance criterion that can be tested")
    lacks += [f"an answer to the open question: {question}" for question in spec.open_questions]
    return tuple(lacks)


def remarks(spec: Spec) -> tuple[str, ...]:
    """What is weak in the spec but does not keep it from being complete, as long as another criterion can be tested."""
    return tuple(
        f"{criterion.id} is vague: '{word}' measures nothing, and no number, code or quoted text says what is meant"
        for criterion in spec.acceptance_criteria
        if (word := vague_word(criterion.text))
    )


def load(path: Path) -> Spec:
    """The spec in the file ``path``; ``UsageError`` if there is none."""
    return parse(load_text(path), path=str(path))


def load_text(path: Path) -> str:
    """The text of the file ``path``, with its line ends as they are; ``UsageError`` if there is none."""
    try:
        return document.load_text(path, limit_bytes=LIMIT_BYTES)
    except FileNotFoundError as error:
        slug = path.parent.name
        raise UsageError(f"There is no spec at {path}.", hint=f"make one with: cdd new {slug}") from error


def save(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` in one step."""
    write_atomic(path, text.encode("utf-8"))


def parse(text: str, *, path: str) -> Spec:
    """The spec that ``text`` states; every value is text, as it is written.

    Raises ``DocumentError``, naming ``path``, with every value that cannot be understood.
    """
    return _read_spec(read(text, path=path, layout=_LAYOUT), path)


def update(text: str, changes: Mapping[str, Change], *, path: str) -> str:
    """``text`` with the values of ``changes`` put in place, and everything else as it was.

    A list item that is there already keeps its form and its comments. The result is read again and compared:
    ``UsageError`` if it does not say what was asked or says anything else differently.
    """
    document = read(text, path=path, layout=_LAYOUT)
    before = _read_spec(document, path)
    changes = {key: _tidy(value) for key, value in changes.items()}
    edits: list[Edit] = []
    for key in sorted(changes, key=lambda key: document.root.get(key) is None):
        edits += _edits(document, key, value=changes[key])
    changed = apply(text, edits)
    after_document = read(changed, path=path, layout=_LAYOUT)
    after = _read_spec(after_document, path)
    for key in sorted({*changes, *_KNOWN, *before.unknown_keys} - {"schema"}):
        wanted = changes[key] if key in changes else _value(before, document, key=key)
        if _comparable(_value(after, after_document, key=key)) != _comparable(wanted):
            raise UsageError(
                f"{key} in {path} cannot be changed without disturbing the rest of the file.",
                hint=f"change {key} in an editor, without aliases and brackets",
            )
    return changed


def _tidy(value: Change) -> Change:
    """The value as it reads back: without white space round texts, without empty ones."""
    if isinstance(value, str):
        return value.strip()
    texts = [item.strip() for item in value if isinstance(item, str) and item.strip()]
    criteria = [Criterion(id=item.id, text=item.text.strip()) for item in value if isinstance(item, Criterion)]
    return texts or criteria


def _value(spec: Spec, document: Document, *, key: str) -> object:
    return getattr(spec, key) if key in _KNOWN else _plain(document.root.get(key))


def _comparable(value: object) -> object:
    match value:
        case list():
            return tuple(value)
        case _:
            return value


def _plain(node: Node | None) -> object:
    if node is None or node.kind == "text":
        return node and node.text
    return (tuple(_plain(key) for key in node.keys), tuple(_plain(item) for item in node.items))


def _edits(document: Document, key: str, *, value: Change) -> list[Edit]:
    if isinstance(value, str):
        if key not in _TEXTS:
            raise UsageError(f"{key} is not a text of a spec.", hint=f"the texts are {', '.join(_TEXTS)}")
        return [] if _text_of(document, key) == value else [text_edit(document, key, text=value)]
    if key != "acceptance_criteria" and key not in _LISTS:
        raise UsageError(f"{key} is not a list of a spec.", hint=f"the lists are {', '.join(_LISTS)}")
    if not value and document.root.get(key) is None:
        return []
    return list_edits(document, key, items=[_item(document.source, item) for item in value])


def _text_of(document: Document, key: str) -> str | None:
    node = document.root.get(key)
    return node.text.strip() if node and node.kind == "text" else None


def _item(source: str, item: str | Criterion) -> Item:
    if isinstance(item, str):
        text = item
        return Item(is_same=lambda node: _sentence(source, node) == text.strip(), edit=_nothing, lines=(quoted(item),))
    name = item.id if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", item.id) else quoted(item.id)
    lines = (f"id: {name}", f"text: {quoted(item.text)}")
    return Item(is_same=_same_criterion(source, item), edit=_criterion_edit(source, item, lines=lines), lines=lines)


def _nothing(_: Node) -> Edit | None:
    return None


def _same_criterion(source: str, criterion: Criterion) -> Callable[[Node], bool]:
    def is_same(node: Node) -> bool:
        known = node.get("id") if node.kind == "map" else None
        if known is not None:
            return known.text == criterion.id
        label = _LABEL.fullmatch(_sentence(source, node))
        return label["id"] == criterion.id if label else _sentence(source, node) == criterion.text.strip()

    return is_same


def _criterion_edit(source: str, criterion: Criterion, *, lines: tuple[str, ...]) -> Callable[[Node], Edit | None]:
    def edit(node: Node) -> Edit | None:
        text = node.get("text") if node.kind == "map" else None
        if text is not None and node.get("id") is not None:
            is_right = text.text.strip() == criterion.text.strip()
            return None if is_right else item_text(source, text, text=criterion.text)
        line_start = max(source.rfind("\n", 0, node.start), source.rfind("\r", 0, node.start)) + 1
        space = " " if source[node.start - 1] == "-" else ""
        indent = " " * (source.rfind("-", 0, node.start) - line_start + 2)
        return Edit(node.start, node.end, space + f"\n{indent}".join(lines))

    return edit


def _sentence(source: str, node: Node) -> str:
    """The words of an item; what YAML took for a structure is taken from the source."""
    if node.kind == "map" and (text := node.get("text")):
        return text.text.strip()
    return (node.text if node.kind == "text" else source[node.start : node.end]).strip()


def _read_spec(document: Document, path: str) -> Spec:
    reader = _SpecReader(document)
    texts = {key: reader.text(key) for key in _TEXTS}
    spec = Spec(
        title=texts["title"],
        type=reader.choice("type", texts["type"] or "feature", choices=TYPES),
        status=reader.choice("status", texts["status"] or "draft", choices=STATUSES),
        description=texts["description"],
        acceptance_criteria=reader.criteria(),
        out_of_scope=reader.texts("out_of_scope"),
        technical_notes=texts["technical_notes"],
        open_questions=reader.texts("open_questions"),
        depends_on=reader.texts("depends_on"),
        unknown_keys=tuple(key.text for key in document.root.keys if key.text not in _KNOWN),
    )
    reader.check_schema()
    if reader.problems:
        reader.problems.sort(key=lambda problem: problem.line)
        raise DocumentError(path, tuple(reader.problems), hint=f"mend {path}, then try again")
    return spec


class _SpecReader:
    """Reads the values of a spec one by one and collects what is wrong with them."""

    def __init__(self, document: Document) -> None:
        self.problems: list[Problem] = []
        self._root = document.root
        self._source = document.source

    def text(self, key: str) -> str:
        node = self._root.get(key)
        if node is None:
            return ""
        if node.kind != "text":
            self._problem(node, f"{key} is a {node.kind}, not a text", hint=f'write `{key}: "..."`')
        return node.text.strip()

    def choice(self, key: str, value: str, *, choices: tuple[str, ...]) -> str:
        node = self._root.get(key)
        if node and value not in choices:
            self._problem(node, f"the {key} '{value}' is not known", hint=f"write one of {', '.join(choices)}")
        return value

    def check_schema(self) -> None:
        node = self._root.get("schema")
        if node and node.text not in (SCHEMA, "1", ""):
            self._problem(node, f"it has schema '{node.text}'; this program reads {SCHEMA}", hint="upgrade cdd-agent")

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(text for text in (_sentence(self._source, node) for node in self._items(key)) if text)

    def criteria(self) -> tuple[Criterion, ...]:
        found = [(node, *self._criterion(node)) for node in self._items("acceptance_criteria")]
        found = [item for item in found if item[1] or item[2]]
        taken: dict[str, Node] = {}
        for node, name, text in found:
            if name and taken.setdefault(name, node) is not node:
                self._problem(node, f"the criterion {name} is there twice", hint=f"first in line {taken[name].line}")
            if not text:
                self._problem(node, f"the criterion {name} has no text", hint='write `text: "..."` below its id')
        free = (f"AC-{number}" for number in range(1, len(found) + len(taken) + 1) if f"AC-{number}" not in taken)
        return tuple(Criterion(id=name or next(free), text=text) for _, name, text in found)

    def _criterion(self, node: Node) -> tuple[str, str]:
        """Its id, or the empty string, and its text."""
        if node.kind == "map" and (node.get("id") or node.get("text")):
            name, text = node.get("id"), node.get("text")
            return (name.text.strip() if name else ""), (text.text.strip() if text else "")
        sentence = _sentence(self._source, node)
        label = _LABEL.fullmatch(sentence)
        return (label["id"], label["text"]) if label else ("", sentence)

    def _items(self, key: str) -> tuple[Node, ...]:
        node = self._root.get(key)
        if node is None or (node.kind == "text" and node.text.strip() in ("", "~", "null")):
            return ()
        if node.kind != "list":
            self._problem(node, f"{key} is a {node.kind}, not a list", hint="begin each line with `- `")
            return ()
        return node.items

    def _problem(self, node: Node, message: str, *, hint: str) -> None:
        self.problems.append(Problem(line=node.line, message=message, hint=hint))
