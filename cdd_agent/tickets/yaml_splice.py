"""Single values of a YAML document replaced in its source: comments, unknown keys and the order of keys stay."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cdd_agent.tickets.yaml_text import Document, Node, quoted

_PLAIN_TEXT = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]*")
_WORD = re.compile(r"[a-z][a-z/0-9-]*")


class Edit(NamedTuple):
    """``text`` in place of the source from ``start`` to ``end``."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What a list is to hold: how to know the item that is there already, and what to write if it is not as wanted."""

    is_same: Callable[[Node], bool]
    """Whether an item of the source stands for this one."""
    edit: Callable[[Node], Edit | None]
    """What brings that item up to date; None if it is."""
    lines: tuple[str, ...]
    """The item written anew; the first line follows the dash."""


def apply(source: str, edits: Sequence[Edit]) -> str:
    """``source`` with all edits made, in its own line ends; of those at one place, the first given comes first."""
    end = "\r\n" if "\r\n" in source else "\n"
    for edit in sorted(reversed(edits), key=lambda edit: (edit.start, edit.end), reverse=True):
        source = source[: edit.start] + edit.text.replace("\n", end) + source[edit.end :]
    return source


def text_edit(document: Document, key: str, *, text: str) -> Edit:
    """Put ``text`` as the value of the top-level ``key``, which is added at the end if it is missing."""
    value = document.root.get(key)
    if value is None:
        return _added(document, key, value=f" {_written(text, indent=2, may_be_block=True)}")
    line_end = _line_end(document.source, value.end)
    rest = document.source[value.end : line_end]
    is_free = not document.root.is_flow and (not rest.strip() or rest.lstrip().startswith("#"))
    written = _written(text, indent=2, may_be_block=is_free)
    space = " " if document.source[value.start - 1 : value.start] == ":" else ""
    if not written.startswith("|"):
        return Edit(value.start, value.end, space + written)
    return Edit(value.start, line_end, space + written.replace("\n", rest.rstrip() + "\n", 1))


def list_edits(document: Document, key: str, *, items: Sequence[Item]) -> list[Edit]:
    """Make the top-level list ``key`` hold ``items``, leaving those that are there as they are written."""
    value = document.root.get(key)
    if value is None:
        return [_added(document, key, value=_list_text(items, "  ") or " []")]
    if value.kind != "list" or value.is_flow:
        return [_rewritten(document, value, items=items)] if not _is_kept(value, items) else []
    source = document.source
    indent = " " * (_dash(source, value.items[0]) - _line_start(source, value.items[0].start))
    kept = [next((item for item in items if item.is_same(node)), None) for node in value.items]
    places = [next(place for place, item in enumerate(items) if item is known) for known in kept if known]
    if places != list(range(len(places))):
        kept, places = [None] * len(kept), []
    edits: list[Edit] = []
    for node, item in zip(value.items, kept, strict=True):
        if item is None:
            start = _line_start(source, _dash(source, node))
            edits.append(Edit(start, _next_line(source, node.end), ""))
        elif edit := item.edit(node):
            edits.append(edit)
    if not items:
        colon = next(name for name in document.root.keys if name.text == key).end + 1
        return [*edits, Edit(colon, colon, " []")]
    return [*edits, *_appended(source, value, items=items[len(places) :], indent=indent)]


def item_text(source: str, node: Node, *, text: str) -> Edit:
    """Put ``text`` in place of the text ``node``."""
    space = " " if source[node.start - 1 : node.start] in (":", "-") else ""
    return Edit(node.start, node.end, space + quoted(text))


def _appended(source: str, value: Node, *, items: Sequence[Item], indent: str) -> list[Edit]:
    if not items:
        return []
    at = _next_line(source, value.items[-1].end)
    text = _list_text(items, indent).removeprefix("\n") + "\n"
    return [Edit(at, at, text if source[at - 1 : at] in ("\n", "\r") else "\n" + text)]


def _rewritten(document: Document, value: Node, *, items: Sequence[Item]) -> Edit:
    """A list that is empty or in brackets, written with dashes; what follows it on its line stays there."""
    source = document.source
    line_end = _line_end(source, value.end)
    rest = source[value.end : line_end]
    start = value.start - (len(source[: value.start]) - len(source[: value.start].rstrip(" ")))
    if not items:
        return Edit(start, value.end, " []")
    return Edit(start, line_end, rest.rstrip() + _list_text(items, "  "))


def _is_kept(value: Node, items: Sequence[Item]) -> bool:
    return len(value.items) == len(items) and all(
        item.is_same(node) and item.edit(node) is None for item, node in zip(items, value.items, strict=True)
    )


def _list_text(items: Sequence[Item], indent: str) -> str:
    return "".join(f"\n{indent}- " + f"\n{indent}  ".join(item.lines) for item in items)


def _added(document: Document, key: str, *, value: str) -> Edit:
    source = document.source
    start = "" if not source or source.endswith(("\n", "\r", "\ufeff")) else "\n"
    return Edit(len(source), len(source), f"{start}{key}:{value}\n")


def _written(text: str, *, indent: int, may_be_block: bool) -> str:
    """A word of the program's as it is, a text of several lines as a block, anything else in double quotes."""
    if _WORD.fullmatch(text):
        return text
    is_block = may_be_block and "\n" in text and text == text.strip() and _PLAIN_TEXT.fullmatch(text)
    if not is_block:
        return quoted(text)
    return "|\n" + "\n".join(" " * indent + line if line else "" for line in text.split("\n"))


def _dash(source: str, item: Node) -> int:
    return source.rfind("-", 0, item.start)


def _line_start(source: str, offset: int) -> int:
    return max(source.rfind("\n", 0, offset), source.rfind("\r", 0, offset), source.find("\ufeff", 0, 1)) + 1


def _line_end(source: str, offset: int) -> int:
    match = re.compile(r"[^\r\n]*").match(source, offset)
    return match.end() if match else len(source)


def _next_line(source: str, offset: int) -> int:
    match = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?").match(source, offset)
    return match.end() if match else len(source)
