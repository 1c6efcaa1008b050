"""A spec: the requirements of a ticket. This module reads ``spec.yaml`` and changes single values in it.

Acceptance criteria have the form of EARS (the Easy Approach to Requirements Syntax) or Given/When/Then. Only sentences
that an agent writes must have it; a user may write any sentence. A criterion can be tested unless it has a word that
measures nothing and no number, code in backticks or quoted text that says what is meant.
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cdd_agent.errors import DocumentError, Problem, UsageError
from cdd_agent.installation import suggest_upgrade
from cdd_agent.storage import read_text, write_atomic
from cdd_agent.tickets import yaml
from cdd_agent.tickets.yaml import Document, Edit, Item, YamlNode, quote

SCHEMA = "cdd/1"
TYPES = ("feature", "bug", "enhancement", "refactor", "chore", "doc", "spike")
STATUSES = ("draft", "refined", "planned", "executing", "done")
_TEXTS = ("title", "type", "status", "description", "technical_notes")
_LISTS = ("out_of_scope", "open_questions", "depends_on")
_KNOWN = frozenset({"schema", "acceptance_criteria", *_TEXTS, *_LISTS})
_LABEL = re.compile(r"(?P<id>AC-\d+)\s*:\s+(?P<text>.*)", re.DOTALL)
_PLAIN_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""An id that needs no quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One requirement that must hold when the ticket is done."""

    id: str
    """Such as ``AC-1``; the steps of the plan refer to it."""
    text: str


Change: TypeAlias = str | Sequence[str] | Sequence[Criterion]
"""A new value: a text, a list of texts, or the acceptance criteria."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The requirements of a ticket."""

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
    """Questions that the user must answer before the Planner can plan."""
    depends_on: tuple[str, ...] = ()
    """Slugs of the tickets that must be done first."""
    unknown_keys: tuple[str, ...] = ()
    """The user's other top-level keys; a save keeps them."""

    @property
    def criterion_ids(self) -> tuple[str, ...]:
        """The ids of the acceptance criteria, in order."""
        return tuple(criterion.id for criterion in self.acceptance_criteria)


COMPLETE = "a title, a description, at least one acceptance criterion that can be tested, and no open question"
"""The rule behind ``find_missing``, to be shown to the user and the model."""


def find_missing(spec: Spec) -> tuple[str, ...]:
    """Return what the spec lacks to be complete. Each entry completes the sentence "It lacks ..."."""
    missing = []
    if not spec.title:
        missing.append("a title")
    if not spec.description:
        missing.append("a description")
    if not spec.acceptance_criteria:
        missing.append("an acceptance criterion")
    elif all(find_vague_word(criterion.text) for criterion in spec.acceptance_criteria):
        missing.append("an acceptance criterion that can be tested")
    missing += [f"an answer to the open question: {question}" for question in spec.open_questions]
    return tuple(missing)


def find_vague_criteria(spec: Spec) -> tuple[str, ...]:
    """Return a remark on each vague criterion. The spec can still be complete if another criterion can be tested."""
    return tuple(
        f"{criterion.id} is vague: '{word}' measures nothing, and no number, code or quoted text says what is meant"
        for criterion in spec.acceptance_criteria
        if (word := find_vague_word(criterion.text))
    )


def load(path: Path) -> Spec:
    """Load the spec from the file ``path``; ``UsageError`` if it does not exist."""
    return parse(load_text(path), path=str(path))


def load_text(path: Path) -> str:
    """Load the text of the file ``path`` with its line ends; ``UsageError`` if it does not exist."""
    hint = f"create it with: cdd new {path.parent.name}"
    return read_text(path, limit_bytes=yaml.LIMIT_BYTES, missing_hint=hint)


def parse(text: str, *, path: str) -> Spec:
    """Parse ``text``; raise ``DocumentError``, which names ``path`` and lists every value that is not valid."""
    return _read_spec(yaml.parse(text, path=path), path)


def update(text: str, changes: Mapping[str, Change], *, path: str) -> str:
    """Return ``text`` with the values of ``changes``, and every other character unchanged.

    List items that stay keep their form and their comments. The result is parsed and compared with the wanted spec:
    ``UsageError`` if a value is not as wanted or another value changed.
    """
    document = yaml.parse(text, path=path)
    before = _read_spec(document, path)
    changes = {key: _normalize(value) for key, value in changes.items()}
    edits: list[Edit] = []
    # Keys that are missing are added last, in the order given.
    for key in sorted(changes, key=lambda key: document.root.get(key) is None):
        edits += _edit_value(document, key, value=changes[key])
    changed = document.apply(edits)
    after_document = yaml.parse(changed, path=path)
    after = _read_spec(after_document, path)
    # An unusual layout can connect values that look independent, so compare all of them.
    for key in sorted({*changes, *_KNOWN, *before.unknown_keys} - {"schema"}):
        wanted = changes[key] if key in changes else _get_value(before, document, key=key)
        wanted = tuple(wanted) if isinstance(wanted, list) else wanted
        if _get_value(after, after_document, key=key) != wanted:
            hint = f"change {key} in an editor, without brackets"
            raise UsageError(f"{key} in {path} cannot be changed without disturbing the rest of the file.", hint=hint)
    return changed


def advance(text: str, status: str, *, path: str) -> str | None:
    """Return ``text`` with this status, or None if it has it, is past it, or has a layout that cannot be changed."""
    try:
        if STATUSES.index(parse(text, path=path).status) >= STATUSES.index(status):
            return None
        return update(text, {"status": status}, path=path)
    except UsageError:  # the status only informs people, so it stops nothing
        return None


def advance_file(path: Path, status: str) -> None:
    """Advance the status in the file ``path``."""
    changed = advance(load_text(path), status, path=str(path))
    if changed is not None:
        write_atomic(path, changed.encode())


def reopen_file(path: Path) -> None:
    """Set the status in the file ``path`` from done back to executing."""
    with contextlib.suppress(UsageError):
        text = load_text(path)
        if parse(text, path=str(path)).status == "done":
            write_atomic(path, update(text, {"status": "executing"}, path=str(path)).encode())


def _normalize(value: Change) -> Change:
    # As it will be read back: without surrounding white space and empty items.
    if isinstance(value, str):
        return value.strip()
    texts = [item.strip() for item in value if isinstance(item, str) and item.strip()]
    criteria = [Criterion(id=item.id, text=item.text.strip()) for item in value if isinstance(item, Criterion)]
    return texts or criteria


def _get_value(spec: Spec, document: Document, *, key: str) -> object:
    return getattr(spec, key) if key in _KNOWN else _convert_node(document.root.get(key))


def _convert_node(node: YamlNode | None) -> object:
    if node is None or node.kind == "text":
        return node and node.text
    return (tuple(_convert_node(key) for key in node.keys), tuple(_convert_node(item) for item in node.items))


def _edit_value(document: Document, key: str, *, value: Change) -> list[Edit]:
    node = document.root.get(key)
    if isinstance(value, str):
        if key not in _TEXTS:
            raise UsageError(f"{key} is not a text of a spec.", hint=f"the texts are {', '.join(_TEXTS)}")
        is_same = node is not None and node.kind == "text" and node.text.strip() == value
        return [] if is_same else [document.edit_text(key, text=value)]
    if key != "acceptance_criteria" and key not in _LISTS:
        raise UsageError(f"{key} is not a list of a spec.", hint=f"the lists are {', '.join(_LISTS)}")
    if not value and node is None:
        return []
    return document.edit_list(key, items=_match_items(document, node, values=value))


def _match_items(document: Document, node: YamlNode | None, *, values: Sequence[str | Criterion]) -> list[Item]:
    unused = dict(enumerate(node.items)) if node else {}
    items = []
    for value in values:
        index = next((place for place, old in unused.items() if _is_same_item(document.source, old, value=value)), None)
        old = None if index is None else unused.pop(index)
        items.append(_make_item(document, value, old=old, index=index))
    return items


def _is_same_item(source: str, node: YamlNode, *, value: str | Criterion) -> bool:
    """Return whether ``node`` is the item for ``value``: a criterion is known by its id, or else by its text."""
    if isinstance(value, str):
        return _read_sentence(source, node) == value
    name, text = _read_criterion(source, node)
    return name == value.id if name else text == value.text


def _make_item(document: Document, value: str | Criterion, *, old: YamlNode | None, index: int | None) -> Item:
    if isinstance(value, str):
        return Item(lines=(quote(value),), index=index)
    id_ = value.id if _PLAIN_ID.fullmatch(value.id) else quote(value.id)
    lines = (f"id: {id_}", f"text: {quote(value.text)}")
    if old is None:
        return Item(lines=lines)
    text = old.get("text") if old.kind == "map" else None
    if text is None or old.get("id") is None:
        # A plain sentence gets the id that the steps of the plan refer to.
        return Item(lines=lines, index=index, edit=document.edit_node(old, lines=lines))
    is_same = text.text.strip() == value.text
    return Item(lines=lines, index=index, edit=None if is_same else document.edit_node(text, lines=[quote(value.text)]))


def _read_criterion(source: str, node: YamlNode) -> tuple[str, str]:
    """Return the id, or an empty string if the item has none, and the text."""
    if node.kind == "map" and (node.get("id") or node.get("text")):
        name, text = node.get("id"), node.get("text")
        return (name.text.strip() if name else ""), (text.text.strip() if text else "")
    sentence = _read_sentence(source, node)
    label = _LABEL.fullmatch(sentence)
    return (label["id"], label["text"]) if label else ("", sentence)


def _read_sentence(source: str, node: YamlNode) -> str:
    """Return the text of an item. A sentence that YAML parsed as a structure is taken from the source."""
    if node.kind == "map" and (text := node.get("text")):
        return text.text.strip()
    return (node.text if node.kind == "text" else source[node.start : node.end]).strip()


def _read_spec(document: Document, path: str) -> Spec:
    reader = _SpecReader(document)
    texts = {key: reader.read_text(key) for key in _TEXTS}
    spec = Spec(
        title=texts["title"],
        type=reader.read_choice("type", texts["type"] or "feature", choices=TYPES),
        status=reader.read_choice("status", texts["status"] or "draft", choices=STATUSES),
        description=texts["description"],
        acceptance_criteria=reader.read_criteria(),
        out_of_scope=reader.read_texts("out_of_scope"),
        technical_notes=texts["technical_notes"],
        open_questions=reader.read_texts("open_questions"),
        depends_on=reader.read_texts("depends_on"),
        unknown_keys=tuple(key.text for key in document.root.keys if key.text not in _KNOWN),
    )
    reader.check_schema()
    if reader.problems:
        reader.problems.sort(key=lambda problem: problem.line)
        raise DocumentError(path, tuple(reader.problems), hint=f"fix {path}, then try again")
    return spec


class _SpecReader:
    def __init__(self, document: Document) -> None:
        self.problems: list[Problem] = []
        self._root = document.root
        self._source = document.source

    def read_text(self, key: str) -> str:
        node = self._root.get(key)
        if node is None:
            return ""
        if node.kind != "text":
            self._add_problem(node, f"{key} is a {node.kind}, not a text", hint=f'write `{key}: "..."`')
        return node.text.strip()

    def read_choice(self, key: str, value: str, *, choices: tuple[str, ...]) -> str:
        node = self._root.get(key)
        if node and value not in choices:
            self._add_problem(node, f"the {key} '{value}' is unknown", hint=f"write one of {', '.join(choices)}")
        return value

    def check_schema(self) -> None:
        node = self._root.get("schema")
        if node and node.text not in (SCHEMA, "1", ""):
            message = f"it has schema '{node.text}'; this program reads {SCHEMA}"
            self._add_problem(node, message, hint=f"upgrade with: {suggest_upgrade()}")

    def read_texts(self, key: str) -> tuple[str, ...]:
        return tuple(text for text in (_read_sentence(self._source, node) for node in self._list_items(key)) if text)

    def read_criteria(self) -> tuple[Criterion, ...]:
        found = [(node, *_read_criterion(self._source, node)) for node in self._list_items("acceptance_criteria")]
        found = [item for item in found if item[1] or item[2]]
        taken: dict[str, YamlNode] = {}
        for node, name, text in found:
            if name and taken.setdefault(name, node) is not node:
                hint = f"the first is in line {taken[name].line}"
                self._add_problem(node, f"the criterion {name} exists twice", hint=hint)
            if not text:
                self._add_problem(node, f"the criterion {name} has no text", hint='write `text: "..."` below its id')
        free = (f"AC-{number}" for number in range(1, len(found) + len(taken) + 1) if f"AC-{number}" not in taken)
        return tuple(Criterion(id=name or next(free), text=text) for _, name, text in found)

    def _list_items(self, key: str) -> tuple[YamlNode, ...]:
        node = self._root.get(key)
        if node is None or (node.kind == "text" and node.text.strip() in ("", "~", "null")):
            return ()
        if node.kind != "list":
            self._add_problem(node, f"{key} is a {node.kind}, not a list", hint="start each line with `- `")
            return ()
        return node.items

    def _add_problem(self, node: YamlNode, message: str, *, hint: str) -> None:
        self.problems.append(Problem(line=node.line, message=message, hint=hint))


EXAMPLES = {
    "the": "THE SYSTEM SHALL write amounts with two digits",
    "when": "WHEN the list is empty THE SYSTEM SHALL write the header only",
    "while": "WHILE an export runs THE SYSTEM SHALL refuse a second one",
    "if": "IF the file cannot be written THEN THE SYSTEM SHALL name it and return 1",
    "where": "WHERE a separator is given THE SYSTEM SHALL use it",
    "given": "GIVEN an empty list WHEN it is exported THEN the file has one line",
}
"""First word of a sentence, which decides about its form -> an example, shown if the sentence breaks the rule."""

_SHALL = re.compile(r"\bshall\b(?:\s+not\b)?", re.IGNORECASE)
_THE = re.compile(r"\bthe\b", re.IGNORECASE)
_THEN = re.compile(r"\bthen\b", re.IGNORECASE)
_WHEN = re.compile(r"\bwhen\b", re.IGNORECASE)
_LETTER = re.compile(r"\w")

_WORDS = """\
adequate adequately appropriate appropriately attractive beautiful best better convenient conveniently correctly
decent easily easy efficient efficiently elegant fast faster flexible fluent friendly good gracefully great ideal
ideally improved instantly intuitive intuitively modern neat nice nicely optimal optimally optimized performant
pleasant pretty proper properly quick quicker quickly reasonable reasonably reliable reliably responsive robust
robustly scalable seamless seamlessly sensible sensibly simple simply slick slow smooth smoothly sufficient
sufficiently suitable suitably tba tbd tidy to-do usable useful well works
"""
VAGUE_WORDS = tuple(_WORDS.split())
"""Words that no test can measure."""

VAGUE_PHRASES = (
    *("and so on", "as appropriate", "as expected", "as needed", "as required", "as usual", "easy to use", "etc"),
    *("if appropriate", "if necessary", "if possible", "in a timely manner", "like before", "or similar"),
    *("state of the art", "to be decided", "to be defined", "to be determined", "user-friendly", "user friendly"),
    "where possible",
)
"""Phrases that no test can measure."""

_ANY_VAGUE = "|".join(map(re.escape, [*VAGUE_PHRASES, *VAGUE_WORDS]))
_VAGUE = re.compile(rf"(?<![\w-])(?:{_ANY_VAGUE})(?![\w-])", re.IGNORECASE)
_MEASURE = re.compile(r"\d|`[^`]+`|\"[^\"]+\"|(?<!\w)'[^']+'(?!\w)|\u201c[^\u201d]+\u201d|\u00ab[^\u00bb]+\u00bb")
"""A single quote counts only outside of words, so that an apostrophe is not a quotation mark."""


def find_vague_word(criterion: str) -> str:
    """Return the word or phrase that makes ``criterion`` vague, or an empty string if the criterion can be tested.

    >>> find_vague_word("THE SYSTEM SHALL be Fast"), find_vague_word("THE SYSTEM SHALL be fast: 200 ms")
    ('Fast', '')
    """
    sentence = " ".join(criterion.split())
    found = _VAGUE.search(sentence)
    return "" if found is None or _MEASURE.search(sentence) else found[0]


def explain_breach(sentence: str) -> str:
    """Return the sentence, the rule that it breaks and an example, or an empty string if it breaks none."""
    first, rest = re.split("(?![A-Za-z])", sentence.strip(), maxsplit=1)
    word = first.lower()
    breach = _check_form(word, rest) if word in EXAMPLES else f"it begins with none of {', '.join(EXAMPLES).upper()}"
    return f'"{sentence}": {breach}. For example: {EXAMPLES.get(word, EXAMPLES["when"])}' if breach else ""


def _check_form(word: str, rest: str) -> str:
    if word == "given":
        return _check_scenario(rest)
    shall = _SHALL.search(rest)
    if shall is None:
        return "it does not say what THE SYSTEM SHALL do"
    if not _LETTER.search(rest, shall.end()):
        return "nothing follows SHALL"
    condition = rest[: shall.start()]
    if word == "the":
        return "" if _LETTER.search(condition) else "there is nothing between THE and SHALL"
    actors = list(_THE.finditer(condition))
    if not actors or not _LETTER.search(condition, actors[-1].end()):
        return "THE SYSTEM must come before SHALL"
    if not _LETTER.search(condition[: actors[-1].start()]):
        return "a condition must come before THE SYSTEM SHALL"
    if word == "if":
        then = _THEN.search(condition)
        if then is None or not _LETTER.search(condition[: then.start()]):
            return "IF needs a condition and THEN before THE SYSTEM SHALL"
    return ""


def _check_scenario(rest: str) -> str:
    when = _WHEN.search(rest)
    then = _THEN.search(rest, when.end() if when else 0)
    if when is None or then is None:
        return "GIVEN needs WHEN and THEN"
    parts = (rest[: when.start()], rest[when.end() : then.start()], rest[then.end() :])
    return "" if all(map(_LETTER.search, parts)) else "something must follow each of GIVEN, WHEN and THEN"
