"""One step of a plan read from its Markdown, and the values of its key lines as people write them.

Each ``read_`` function takes the text after a key's colon and raises ``ValueError``, with a sentence for the writer,
where it cannot tell what is meant.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeVar

from cdd_agent.errors import Problem
from cdd_agent.tickets.plan import KINDS, Kind, Step
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
MOST_STEPS = 1000
"""Of a plan."""

_LISTS = ("depends_on", "files", "tests", "criteria")
_KEY = re.compile(
    r" {0,3}(?P<bullet>[-*+][ \t]+)?(?P<bold>\*\*|__)?(?P<key>[A-Za-z][A-Za-z_ -]{2,24}?)(?P<end>\*\*|__)?\s*:"
    r"(?P<late>\*\*|__)?(?!:)(?P<value>.*)"
)
_CHECKBOX = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[(?P<box>[ xX]?)\]\s*(?P<label>.*)")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?P<item>.*)")
_DONE = ("", "done", "done.", "complete", "completed", "finished")
_COMMENT = re.compile(r"<!--.*?-->")
_KIND_NAMES: dict[str, Kind] = {
    **{kind: kind for kind in KINDS},
    "feat": "feature",
    "enhancement": "feature",
    "fix": "bug",
    "bugfix": "bug",
    "refactoring": "refactor",
    "doc": "docs",
    "documentation": "docs",
}

_NOTHING = re.compile(r"(?:(?:none|nothing|no|n/a|tbd|[-\u2013\u2014])(?:\.|[\s,;:(][^`]*)?)?", re.IGNORECASE)
_DEPENDENCY = re.compile(
    r"(?:steps?\b\s*)?\#?(?P<first>\d{1,9})(?:\s*(?:-|\u2013|\.\.|to|through)\s*(?:step\s*)?\#?(?P<last>\d{1,9}))?"
    r"(?:\s*(?:\(|:|-\s|\u2013|\u2014).*)?",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"(?P<span>(?<!`)(?P<ticks>`{1,3})(?!`)(?P<code>.+?)(?<!`)(?P=ticks)(?!`))"
    r"|(?P<link>\[(?P<label>[^\[\]]+)\]\([^)]{0,300}\))"
    r"|(?P<note>\([^()]*\))"
    r"|(?P<separator>[,;])"
    r"|(?P<join>(?:and|&|\+)(?=\s))"
    r"|(?P<word>[^\s,;])",
    re.IGNORECASE,
)
_UNBROKEN = re.compile(r"[^\s,;`\[]+")
_UNBROKEN_TO_THE_END = re.compile(r"[^\s,;`]+")
_PATH = re.compile(r".*(?:/|\.\w+$|::)", re.DOTALL)
_CRITERION = re.compile(r"[A-Za-z]+[-_]?\d+")


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
        self._values: dict[str, list[list[str]]] = {}  # each value as the lines it was written on
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
        if not match or self.box or match["label"].strip().lower() not in _DONE:
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
        self._take(name, _without_comments(match["value"]).strip())
        self._spans_blanks = not match["bullet"]
        return True

    def _take(self, name: str, value: str) -> None:
        self._values[name] = [[value]] if value else []
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
            values.append([bullet["item"]])
        elif is_indented and not bullet and values and self._in_head:
            values[-1].append(line.text.strip())
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
        for lines in self._values.get(name, ()):
            try:
                found += read(" ".join(lines))
            except ValueError as error:
                self.problems.append(Problem(line=self._key_lines[name], message=str(error)))
        return tuple(dict.fromkeys(found))

    def _step(self, block: Block, default_kind: Kind) -> Step:
        kinds = self._value("kind", lambda value: (read_kind(value),))
        size = self._values.get("size") or self._values.get("time") or [[""]]
        return Step(
            number=block.number,
            title=block.text,
            done=self._is_done,
            depends_on=self._value("depends_on", read_dependencies),
            files=self._value("files", read_paths),
            tests=self._value("tests", read_paths),
            criteria=self._value("criteria", read_criteria),
            kind=kinds[0] if kinds else default_kind,
            size=size[0][0],
            description=trimmed(self._description),
            line=block.heading.number,
            key_lines=self._key_lines,
        )


def _without_comments(value: str) -> str:
    end = value.rfind("-->") + len("-->")
    return value if end < len("-->") else _COMMENT.sub("", value[:end]) + value[end:]


def read_dependencies(value: str) -> tuple[int, ...]:
    """The step numbers in ``none``, ``1, 2``, ``Step 1 and #2`` or ``1-3``; text in parentheses is a note."""
    text = " ".join(re.sub(r"\([^()]*\)", " ", value.replace("`", "")).split()).rstrip(".")
    if not re.search(r"\d", text) and _NOTHING.fullmatch(text):
        return ()
    found: list[int] = []
    for part in re.split(r"\s*(?:[,;&+]|\band\b)\s*", text, flags=re.IGNORECASE):
        match = _DEPENDENCY.fullmatch(part.strip())
        if part.strip() and not match:
            raise ValueError(f"cannot tell which step '{part.strip()}' is; write `1, 2` or `none`")
        if match:
            first, last = int(match["first"]), int(match["last"] or match["first"])
            if not 0 <= last - first < MOST_STEPS:
                raise ValueError(f"'{part.strip()}' is not a range of steps; name each step")
            found += range(first, last + 1)
            if len(found) > MOST_STEPS:
                raise ValueError(f"more than {MOST_STEPS} steps are named")
    return _once(found)


def read_paths(value: str) -> tuple[str, ...]:
    """Paths or node ids, with or without backticks, each perhaps followed by a note."""
    return _once(_items(value, _PATH))


def read_criteria(value: str) -> tuple[str, ...]:
    """Ids of acceptance criteria; ``ac-1`` is ``AC-1``."""
    return _once(item.upper() if _CRITERION.fullmatch(item) else item for item in _items(value, _CRITERION))


def read_kind(value: str) -> Kind:
    """One of the kinds, or a common other name of it."""
    word = value.strip().strip("`*").lower()
    if word not in _KIND_NAMES:
        raise ValueError(f"'{value.strip()}' is not a kind of step; write one of {', '.join(KINDS)}")
    return _KIND_NAMES[word]


class _Token(NamedTuple):
    kind: Literal["quoted", "note", "separator", "join", "word"]
    text: str


def _tokens(value: str) -> Iterable[_Token]:
    at, last_closed = 0, value.rfind("]")
    while match := _TOKEN.search(value, at):
        at = match.end()
        if match["span"]:
            code = match["code"]
            padded = len(code) > 2 and code[0] == code[-1] == " " and code.strip()
            yield _Token("quoted", code[1:-1] if padded else code)
        elif match["link"]:
            yield _Token("quoted", match["label"].strip("`"))
        elif match["note"]:
            yield _Token("note", "")
        elif match["separator"]:
            yield _Token("separator", match["separator"])
        elif match["join"]:
            yield _Token("join", match["join"])
        else:
            at = _word_end(value, match.start(), last_closed=last_closed)
            yield _Token("word", _without_punctuation(value[match.start() : at]))


def _word_end(value: str, start: int, *, last_closed: int) -> int:
    """Where the word ends that begins at ``start``; what is in brackets in it belongs to it, commas and all.

    No regular expression: with one, every bracket that is never closed would be looked after to the end.
    """
    if value[start] == "`":
        return start + 1
    at = start
    while True:
        if value.startswith("[", at) and at < last_closed:
            at = value.index("]", at) + 1
        elif match := (_UNBROKEN if at < last_closed else _UNBROKEN_TO_THE_END).match(value, at):
            at = match.end()
        else:
            return at


def _without_punctuation(word: str) -> str:
    """``word`` without the colons, or the full stop, at its end."""
    if word.endswith(":"):
        return word.rstrip(":")
    return word[:-1] if re.fullmatch(r"\w\.", word[-2:]) else word


def _items(value: str, looks_right: re.Pattern[str]) -> Iterable[str]:
    """The items of a list whose items may carry notes.

    The first thing, and whatever follows a separator, is an item. Words after an item are its note, up to the next
    comma; after a note only what is quoted or ``looks_right`` is an item again.
    """
    if _NOTHING.fullmatch(value.strip().strip("`")):
        return
    expected, in_note = True, False
    for token in _tokens(value):
        is_item = token.kind in ("quoted", "word") and bool(token.text)
        likely = is_item and looks_right.match(token.text) is not None
        if token.kind == "separator":
            expected = True
        elif token.kind == "join":
            expected = expected or not in_note
        elif in_note:
            if expected and likely:
                yield token.text
                in_note = False
            expected = False
        elif is_item and (expected or likely or token.kind == "quoted"):
            yield token.text
            expected = False
        elif is_item:
            in_note, expected = True, False


def _once(items: Iterable[Value]) -> tuple[Value, ...]:
    return tuple(dict.fromkeys(items))
