"""One step of a plan read from its Markdown."""

import difflib
import re
from collections.abc import Callable
from typing import TypeVar

from cdd_agent.errors import Problem
from cdd_agent.tickets import plan_values
from cdd_agent.tickets.plan import Kind, Step
from cdd_agent.tickets.plan_outline import Block, Line

Value = TypeVar("Value")

_KEYS = {
    "depends on": "depends_on",
    "depends": "depends_on",
    "dependencies": "depends_on",
    "dependency": "depends_on",
    "files": "files",
    "file": "files",
    "files affected": "files",
    "affected files": "files",
    "tests": "tests",
    "test": "tests",
    "criteria": "criteria",
    "criterion": "criteria",
    "acceptance criteria": "criteria",
    "kind": "kind",
    "size": "size",
    "complexity": "size",
    "estimated time": "time",
    "description": "description",
}
_LISTS = ("depends_on", "files", "tests", "criteria")
_KEY = re.compile(
    r" {0,3}(?P<bullet>[-*+][ \t]+)?(?P<bold>\*\*|__)?(?P<key>[A-Za-z][A-Za-z_ -]{2,24}?)(?P<end>\*\*|__)?\s*:"
    r"(?P<late>\*\*|__)?(?!:)(?P<value>.*)"
)
_CHECKBOX = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[(?P<box>[ xX]?)\]\s*(?P<label>.*?)\s*")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?P<item>.*)")
_DONE = ("", "done", "done.", "complete", "completed", "finished")
_COMMENT = re.compile(r"<!--.*?-->")


def trimmed(lines: list[str]) -> str:
    """The lines as one text, without the blank ones round it."""
    filled = [place for place, line in enumerate(lines) if line.strip()]
    return "\n".join(lines[filled[0] : filled[-1] + 1]) if filled else ""


class StepReader:
    """Reads one step block line by line: key lines, the box, and the rest as description.

    A key may stand anywhere in the step, once. In the head, which ends at the first blank or free line, a second
    time is a problem; below, it is description.
    """

    def __init__(self, block: Block, default_kind: Kind) -> None:
        """Read all of ``block``; the result is ``step`` and what could not be understood is in ``problems``."""
        self.problems: list[Problem] = []
        self.box: Line | None = None if block.is_ticked is None else block.heading
        self._is_done = bool(block.is_ticked)
        self._values: dict[str, list[str]] = {}
        self._key_lines: dict[str, int] = {}
        self._description: list[str] = []
        self._open = ""
        self._began_empty = False
        self._spans_blanks = False
        self._in_head = True
        for line in block.lines:
            self._read(line)
        self.step = self._step(block, default_kind)

    def _read(self, line: Line) -> None:
        if not line.is_quoted and (self._is_box(line) or self._is_key(line) or self._continues(line)):
            return
        is_blank = not line.text.strip()
        self._in_head = False
        if not (is_blank and self._spans_blanks and not self._values.get(self._open)):
            self._open = ""
        self._description.append(line.text)

    def _is_box(self, line: Line) -> bool:
        match = _CHECKBOX.fullmatch(line.text)
        if not match or self.box or match["label"].lower() not in _DONE:
            return False
        self.box = line
        self._is_done = match["box"] in ("x", "X")
        return True

    def _is_key(self, line: Line) -> bool:
        match = _KEY.fullmatch(line.text)
        if not match or bool(match["bold"]) != bool(match["end"] or match["late"]):
            return False
        name = _KEYS.get(re.sub(r"[\s_-]+", " ", match["key"].strip().lower()), "")
        marked = match["bullet"] or match["bold"]
        if not name or not (marked or self._in_head):
            if marked and not name and self._in_head:
                self._suggest(match["key"].strip(), line)
            return False
        if name == "time" and "size" in self._key_lines and line.number - 1 not in self._key_lines.values():
            return False
        if name in self._key_lines:
            if self._in_head:
                message = f"'{match['key'].strip()}' is given twice in this step"
                self.problems.append(Problem(line=line.number, message=message, hint="write it on one line"))
            return self._in_head
        if name == "description" and any(text.strip() for text in self._description):
            return False
        self._key_lines[name] = line.number
        self._take(name, _COMMENT.sub("", match["value"]).strip())
        self._spans_blanks = not match["bullet"]
        return True

    def _take(self, name: str, value: str) -> None:
        self._values[name] = [value] if value else []
        self._open = name if name in _LISTS else ""
        self._began_empty = not value
        if name == "description":
            self._in_head = False
            self._description.append(value)

    def _continues(self, line: Line) -> bool:
        """Whether the line goes on with the list begun above: bullets below an empty key, or an indented line."""
        if not self._open or not line.text.strip():
            return False
        bullet = _BULLET.fullmatch(line.text)
        values = self._values[self._open]
        is_indented = line.text.startswith((" ", "\t"))
        if bullet and (is_indented or self._began_empty):
            values.append(bullet["item"])
        elif is_indented and not bullet and values and self._in_head:
            values[-1] += f" {line.text.strip()}"
        else:
            return False
        return True

    def _suggest(self, key: str, line: Line) -> None:
        near = difflib.get_close_matches(key.lower(), _KEYS, n=1, cutoff=0.85)
        if near:
            hint = f"did you mean '{near[0].capitalize()}'?"
            self.problems.append(Problem(line=line.number, message=f"the key '{key}' is not known", hint=hint))

    def _value(self, name: str, read: Callable[[str], tuple[Value, ...]]) -> tuple[Value, ...]:
        found: list[Value] = []
        for value in self._values.get(name, ()):
            try:
                found += read(value)
            except ValueError as error:
                self.problems.append(Problem(line=self._key_lines[name], message=str(error)))
        return tuple(dict.fromkeys(found))

    def _step(self, block: Block, default_kind: Kind) -> Step:
        kinds = self._value("kind", lambda value: (plan_values.kind(value),))
        size = self._values.get("size") or self._values.get("time") or [""]
        return Step(
            number=block.number,
            title=block.text,
            done=self._is_done,
            depends_on=self._value("depends_on", plan_values.dependencies),
            files=self._value("files", plan_values.paths),
            tests=self._value("tests", plan_values.paths),
            criteria=self._value("criteria", plan_values.criteria),
            kind=kinds[0] if kinds else default_kind,
            size=size[0],
            description=trimmed(self._description),
            line=block.heading.number,
            key_lines=self._key_lines,
        )
