"""Quotations and list items, which hold other blocks: where a line continues them, and where it begins new ones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cdd_agent.repl.display.markdown.look import Look

DEEPEST = 20
"""Containers in each other; marks of deeper ones are text."""

RULE = re.compile(r" {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$")
_LIST_MARK = re.compile(r"( {0,3})([-+*]|(\d{1,9})[.)])( +|$)")
_NESTED_MARK = re.compile(r"( {2,})(?:[-+*]|\d{1,9}[.)])(?: |$)")
_QUOTE_MARK = re.compile(r" {0,3}> ?")
_TASK = re.compile(r"\[([ xX])\][ \t]+")
_INDENT = re.compile(" *")


@dataclass
class Quote:
    """Lines that begin with ``>``."""


@dataclass
class Item:
    """An item of a list: its first line begins with a mark, the others are indented."""

    mark: str
    """``-``, ``+``, ``*``, or what follows a number: ``.`` or ``)``."""
    number: int | None
    indent: int
    """Of the mark, in the container round it."""
    content: int
    """How far lines are indented that belong to the item."""
    is_done: bool | None = None
    """Of a task; None: it is none."""
    is_shown: bool = False
    """Whether its mark was printed."""


Container = Quote | Item


def blanks(line: str, at: int = 0) -> int:
    """How many blanks stand at ``at``."""
    found = _INDENT.match(line, at)
    return len(found[0]) if found else 0


def continued(line: str, open_now: Sequence[Container]) -> tuple[int, int]:
    """How many of the open containers ``line`` continues, and where its content begins."""
    at = 0
    for number, container in enumerate(open_now):
        if isinstance(container, Quote):
            quoted = _QUOTE_MARK.match(line, at)
            if quoted is None:
                return number, at
            at = quoted.end()
            continue
        indent = blanks(line, at)
        nested = _NESTED_MARK.match(line, at)
        if indent >= container.content:
            at += container.content
        elif nested and indent >= container.indent + 2:
            at += indent
        elif at + indent < len(line):
            return number, at
    return len(open_now), at


def begun(line: str, at: int, *, in_paragraph: bool, depth: int) -> tuple[list[Container], int]:
    """The containers that begin at ``at``, ``depth`` of them being open, and where the content of the last begins.

    ``in_paragraph``: only what may interrupt one begins.
    """
    new: list[Container] = []
    while depth + len(new) < DEEPEST:
        quoted = _QUOTE_MARK.match(line, at)
        if quoted:
            new.append(Quote())
            at = quoted.end()
            continue
        found = _LIST_MARK.match(line, at)
        if not found or RULE.match(line, at):
            break
        is_empty = found.end() == len(line)
        if in_paragraph and not new and (is_empty or found[3] not in {None, "1"}):
            break
        padding = len(found[4]) if 1 <= len(found[4]) <= 4 and not is_empty else 1
        number = int(found[3]) if found[3] else None
        indent = len(found[1])
        content = indent + len(found[2]) + padding
        new.append(Item(mark=found[2][-1], number=number, indent=indent, content=content))
        at = min(at + content, len(line))
    return new, at


def follow(item: Item, before: Item) -> None:
    """Number ``item`` after ``before`` where both belong to one list and the text counts wrongly, such as 1, 1, 1."""
    if item.mark == before.mark and item.number is not None and before.number is not None:
        item.number = max(item.number, before.number + 1)


def take_task(item: Item, text: str) -> str:
    """``text`` without the box it begins with, which becomes the item's."""
    found = _TASK.match(text)
    if found is None:
        return text
    item.is_done = found[1] != " "
    return text[found.end() :]


def margin(containers: Sequence[Container], *, look: Look, width: int) -> tuple[str, str]:
    """What stands left of the next row and of those that follow, at most half of ``width``."""
    first, rest, depth = "", "", 0
    for container in containers:
        if isinstance(container, Quote):
            first, rest = f"{first}{look.bar} ", f"{rest}{look.bar} "
            continue
        mark = _shown_mark(container, depth, look=look)
        first += " " * len(mark) if container.is_shown else mark
        rest += " " * len(mark)
        depth += 1
    room = width // 2
    return first[-room:] if len(first) > room else first, rest[-room:] if len(rest) > room else rest


def _shown_mark(item: Item, depth: int, *, look: Look) -> str:
    """An item's mark and the blank after it."""
    box = "" if item.is_done is None else f"{look.done if item.is_done else look.todo} "
    if item.number is not None:
        return f"{item.number}{item.mark} {box}"
    return box or f"{look.bullets[depth % len(look.bullets)]} "
