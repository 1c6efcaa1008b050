"""Read ``plan.md``.

People edit the file by hand, so the parser accepts many forms. A line that it cannot understand is an error with its
number, never dropped. ``docs/decisions/0010-yaml-in-place.md`` says why no Markdown library parses the outline.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from cdd_agent.errors import DocumentError, Problem, suggest
from cdd_agent.storage import read_text
from cdd_agent.tickets.plan import KINDS, SIZES, Kind, Plan, Step, choose_default_kind, find_problems
from cdd_agent.tickets.spec import Spec

Value = TypeVar("Value")
BlockName: TypeAlias = Literal["title", "step", "overview", "steps", "risks", "other"]

LIMIT_STEPS = 1000
_LIMIT_CHARACTERS = 1_000_000
_LIMIT_LINES = 40_000
_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_FENCE = re.compile(r"\s*(?:[-*+]\s+)?(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_HEADING = re.compile(r" {0,3}(?P<marks>#{1,6})(?P<text>(?:[ \t].*)?)")
_BOX = r"(?:\[(?P<box>[ xX])\]\s+)?"
_STEP = re.compile(
    _BOX + r"step\s*\#?(?P<number>\d{1,9})(?:\s*[:\uff1a.)\u2013\u2014-]\s*|\s+|$)(?P<title>.*)", re.IGNORECASE
)
_NUMBERED = re.compile(_BOX + r"(?P<number>\d{1,9})\s*(?:[:.)\u2013\u2014-](?:\s+|$)|\uff1a\s*)(?P<title>.*)")
_UNREADABLE_STEP = re.compile(
    r"step\s+(?:\d{10,}|\d+(?:\.\d+)+|\d+[a-z]|[a-z]|[ivx]+|one|two|three|four|five|six|seven|eight|nine|ten)"
    r"\s*(?:[:.)\u2013\u2014]|-\s|$)",
    re.IGNORECASE,
)
_DECORATION = re.compile(r"[^\w(]+")
"""What may stand before the words of a step that is not written as one: emoji, ``~~``, ``**``, a bracket, a box."""
_NAMED_STEP = re.compile(r"(?:step|task)\W{0,3}(?P<number>\d{1,9})(?!\w)", re.IGNORECASE)
_LIKE_A_STEP = re.compile(r"(?:[^\W\d]+\W{0,3})?\d{1,9}\s*(?:[^\w\s]|\s[^\w\s]|$)")
"""A number, or a word and a number, with a separator: "Task 2:", "2)"."""
_HIGHLIGHTED = re.compile(
    r" {0,3}(?:(?P<mark>\*\*|__|~~)(?P<marked>\S.*?)(?P=mark).*|\[(?P<label>[^\[\]]+)\]\([^()]*\)"
    r"|[#\uff03]{1,6}(?P<joined>[^ \t#].*)|<h[1-6]>(?P<tagged>[^<>]*)</h[1-6]>)\s*"
)
"""A line that its writer meant as a heading, although Markdown or cdd does not read it as one."""
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)\s*")
_PLAN_PREFIX = re.compile(r"(?:implementation\s+)?plan\s*[:\u2013\u2014-]\s*", re.IGNORECASE)
_SECTIONS: dict[str, BlockName] = {
    **dict.fromkeys(("overview", "summary"), "overview"),
    **dict.fromkeys(("steps", "implementation steps", "tasks"), "steps"),
    **dict.fromkeys(("risks", "risks & considerations", "risks and considerations"), "risks"),
}

_SPELLINGS = {
    "depends_on": ("depends on", "depends", "dependencies", "dependency"),
    "files": ("files", "file", "files affected", "affected files"),
    "tests": ("tests", "test"),
    "criteria": ("criteria", "criterion", "acceptance criteria"),
    "kind": ("kind",),
    "size": ("size", "complexity"),
    "time": ("estimated time",),
    "description": ("description",),
}
_KEYS = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings}
_LISTS = ("depends_on", "files", "tests", "criteria")
_KEYS_OF_A_STEP = frozenset((*_LISTS, "kind"))
"""The keys that few lists in other text have."""
_MOST_STRAY_KEYS: dict[BlockName, int] = {"step": 1, "steps": 1, "other": 2}
"""How many of them a description may repeat, or another text have, before they count as those of a step."""
_WORD = re.compile(r"\w")
_KEY = re.compile(
    r" {0,3}(?P<bullet>[-*+][ \t]+)?(?P<bold>\*\*|__)?(?P<key>[A-Za-z][A-Za-z_ -]{2,24}?)(?P<end>\*\*|__)?\s*[:\uff1a]"
    r"(?P<late>\*\*|__)?(?!:)(?P<value>.*)"
)
_MARKS = r" {0,3}(?P<mark>(?:[-*+\u2022\u2013\u2014\u00b7]\s*|\d{1,3}[.)]\s+)?(?:[^\w\s(\"']\s?){0,6})"
_LIKE_A_KEY = re.compile(
    _MARKS + r"(?P<key>[^\W\d](?:[\w()-]|[ \t](?=\S)){1,24}?)[*_~`\])]{0,3}\s?[:\uff1a](?!:).*", re.DOTALL
)
"""A line that may be meant as a key, with other bullets, marks and words than those of ``_KEY``."""
_KEY_WITHOUT_COLON = re.compile(
    rf"{_MARKS}(?P<key>{'|'.join(sorted(_KEYS, key=len, reverse=True))})"
    r"(?:[*_~`\])]{0,3}\s?[;=|\u2192\u2013\u2014-]|[*_~`\])]{1,3}\s|\s+(?P<value>[^\s,;]+)).*",
    re.IGNORECASE | re.DOTALL,
)
_MARKUP = re.compile(r"</?[A-Za-z][^<>]{0,100}>|\[(?P<label>[^\[\]]{1,100})\]\([^()]{0,300}\)")
_COLONS = re.compile("[\u02d0\ua789\u2236]")
"""Characters that look like a colon and that Unicode's compatibility forms do not make one."""
_MOST_WORDS_OF_A_KEY = 2
_KEYS_SHOWN = "Depends on, Files, Tests, Criteria, Kind and Size"
_CHECKBOX = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[(?P<box>[ xX]?)\]\s*(?P<label>.*)")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?P<item>.*)")
_DONE = ("", "done", "done.", "complete", "completed", "finished")
_COMMENT = re.compile(r"<!--.*?-->")
_KIND_NAMES: dict[str, Kind] = {
    **{kind: kind for kind in KINDS},
    **dict.fromkeys(("feat", "enhancement"), "feature"),
    **dict.fromkeys(("fix", "bugfix"), "bug"),
    "refactoring": "refactor",
    **dict.fromkeys(("doc", "documentation"), "docs"),
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
    r"|(?P<word>`|(?:\[[^\]]{0,100}\]|[^\s,;`])+)",
    re.IGNORECASE,
)
"""One token of a list. Brackets belong to a word with their commas: ``test_a[x, y]``."""
_PATH = re.compile(r".*(?:/|\.\w+$|::)", re.DOTALL)
_CRITERION = re.compile(r"[A-Za-z]+[-_]?\d+")


def load(path: Path, *, default_kind: Kind = "feature") -> Plan:
    """Load the plan from the file ``path``; ``UsageError`` if it does not exist."""
    return parse(load_text(path), path=str(path), default_kind=default_kind)


def load_valid(path: Path, wanted: Spec) -> Plan:
    """Load the plan of a spec from the file ``path``; ``DocumentError`` if it cannot be carried out."""
    return parse_valid(load_text(path), wanted, path=path)


def parse_valid(text: str, wanted: Spec, *, path: Path) -> Plan:
    """Parse the plan of a spec; ``DocumentError`` if it cannot be carried out."""
    plan = parse(text, path=str(path), default_kind=choose_default_kind(wanted.type))
    problems = find_problems(plan, criteria=wanted.criterion_ids)
    if problems:
        hint = f"correct these lines, or draft the plan again: cdd plan {path.parent.name}"
        raise DocumentError(str(path), problems, hint=hint)
    return plan


def load_text(path: Path) -> str:
    """Load the text of the file ``path`` with its line ends; ``UsageError`` if it does not exist."""
    hint = f"write it with: cdd plan {path.parent.name}"
    return read_text(path, limit_bytes=_LIMIT_CHARACTERS, missing_hint=hint)


def parse(text: str, *, path: str, default_kind: Kind = "feature") -> Plan:
    """Parse ``text``. A step that names no kind gets ``default_kind``.

    Raises ``DocumentError``, which names ``path`` and lists every line that cannot be understood. Whether the plan can
    be executed is the question of ``plan.find_problems``.
    """
    _require_at_most(_LIMIT_CHARACTERS, len(text), unit="characters", path=path)
    line_ends = text.count("\n") + text.count("\r") - text.count("\r\n")
    _require_at_most(_LIMIT_LINES, line_ends, unit="lines", path=path)
    lines, problems = split_lines(text)
    outline = Outline(lines)
    steps = [block for block in outline.blocks if block.name == "step"]
    _require_at_most(LIMIT_STEPS, len(steps), unit="steps", path=path)
    readers = [_StepReader(block, default_kind) for block in steps]
    problems = [*problems, *outline.problems, *(problem for reader in readers for problem in reader.problems)]
    if problems:
        problems.sort(key=lambda problem: problem.line)
        raise DocumentError(path, tuple(problems), hint=f"fix these lines of {path}, then try again")
    titles = [block.text for block in outline.blocks if block.name == "title"]
    title = _PLAN_PREFIX.sub("", titles[0], count=1) if titles else ""
    return Plan(title=title, steps=tuple(reader.step for reader in readers))


def _require_at_most(limit: int, count: int, *, unit: str, path: str) -> None:
    if count > limit:
        problem = Problem(line=0, message=f"it has {count} {unit}; a plan has at most {limit}")
        raise DocumentError(path, (problem,), hint="split it into several tickets")


class Line(NamedTuple):
    """One line of the source."""

    number: int
    """1-based."""
    text: str
    """Without its line end."""
    is_quoted: bool = False
    """Whether the line is part of a fence, an HTML comment or front matter, and so never a heading or a key."""


def split_lines(text: str) -> tuple[list[Line], list[Problem]]:
    """Split ``text`` into lines. A fence or comment that is never closed is a problem, because it hides later steps."""
    lines: list[Line] = []
    closing: re.Pattern[str] | None = None
    opened = 0
    for number, match in enumerate(_LINE.finditer(text), start=1):
        line = match[1].removeprefix("\ufeff") if number == 1 else match[1]
        is_quoted = closing is not None
        if closing is not None:
            closing = None if closing.search(line) else closing
        elif closing := _find_closing(line, number):
            opened, is_quoted = number, True
            if line.lstrip().startswith("<!--") and "-->" in line:
                closing = None
        lines.append(Line(number, line, is_quoted))
    if closing is None:
        return lines, []
    message = f"'{lines[opened - 1].text.strip()[:20]}' is never closed"
    hint = "close it on a separate line; otherwise it hides every step below"
    return lines, [Problem(line=opened, message=message, hint=hint)]


def _find_closing(line: str, number: int) -> re.Pattern[str] | None:
    """Return the pattern that closes what ``line`` opens: a fence, comment or front matter. None if it opens none."""
    fence = _FENCE.fullmatch(line)
    # "```x``` y" is inline code: the info string of a backtick fence has no backticks.
    if fence and not (fence["fence"][0] == "`" and "`" in fence["info"]):
        return re.compile(rf"^\s*{fence['fence'][0]}{{{len(fence['fence'])},}}\s*$")
    if line.lstrip().startswith("<!--"):
        return re.compile("-->")
    if number == 1 and line.rstrip() == "---":
        return re.compile(r"^(?:---|\.\.\.)\s*$")
    return None


@dataclasses.dataclass(slots=True, kw_only=True)
class Block:
    """A heading, and the lines up to the next heading that ends it."""

    heading: Line
    level: int
    name: BlockName
    text: str
    """The words of the heading; for a step, its title."""
    number: int = 0
    """The number of a step."""
    is_ticked: bool | None = None
    """The box in the heading of a step, or None if it has none."""
    lines: list[Line] = dataclasses.field(default_factory=list)


class Outline:
    """The blocks of a plan, and the headings that look like steps but cannot be read.

    The steps begin with the heading that names them, or with the first step, and end with a heading of a higher level
    than theirs. In between, a heading at the level of the steps is a step or a problem.
    """

    def __init__(self, lines: list[Line]) -> None:
        """Read the headings of ``lines``."""
        self.blocks: list[Block] = []
        self.problems: list[Problem] = []
        self._section: Block | None = None
        self._top: int | None = None  # level of the heading that the steps are below, while they last
        self._has_begun = False
        self._in_doubt: list[tuple[Line, int, str]] = []  # the other headings there: line, level, text
        headings = [_HEADING.fullmatch(line.text) for line in lines if not line.is_quoted]
        self._has_steps_section = any(
            _parse_section_name(_read_heading_text(match)) == "steps" for match in headings if match
        )
        for line in lines:
            self._read(line)
        self._judge_headings()
        self._judge_lines()

    def _read(self, line: Line) -> None:
        match = None if line.is_quoted else _HEADING.fullmatch(line.text)
        if match and self._is_unreadable_step(match):
            self.problems.append(_report_unreadable_step(line))
            self._keep(line)
        elif match and (block := self._start_block(line, match)):
            self.blocks.append(block)
            self._section = self._section if block.name == "step" else block
            self._follow(block)
        else:
            self._keep(line)
            if match and self._top is not None:
                self._in_doubt.append((line, len(match["marks"]), _read_heading_text(match)))

    def _keep(self, line: Line) -> None:
        if self.blocks:
            self.blocks[-1].lines.append(line)

    def _is_unreadable_step(self, match: re.Match[str]) -> bool:
        text = _read_heading_text(match)
        is_wrong_level = len(match["marks"]) not in (2, 3, 4) and _STEP.fullmatch(text) is not None
        return not _parse_section_name(text) and (is_wrong_level or _UNREADABLE_STEP.match(text) is not None)

    def _follow(self, block: Block) -> None:
        """Note where the steps begin and end, and a heading between them that does not name a section."""
        if block.name == "steps":
            self._top = block.level
        elif block.name == "step":
            self._has_begun = True
            self._top = block.level - 1 if self._top is None else min(self._top, block.level - 1)
        elif block.name in ("other", "title"):
            if self._has_begun or self._top is not None:
                self._in_doubt.append((block.heading, block.level, block.text))
            self._top = None if self._top is None or block.level <= self._top else self._top
        else:
            self._top = None

    def _judge_headings(self) -> None:
        """Report each heading in doubt that must be a step: by its level, its words, or both."""
        levels = [block.level for block in self.blocks if block.name == "step"]
        levels = levels or [level for _, level, _ in self._in_doubt if level > 2]
        for line, level, text in self._in_doubt:
            words = _remove_decoration(text)
            if level == min(levels, default=0):
                is_step = level > 2 or _LIKE_A_STEP.match(words) is not None
            else:
                form = _NAMED_STEP if level < min(levels, default=0) else _STEP
                is_step = form.match(words) is not None
            if is_step or _UNREADABLE_STEP.match(words):
                self.problems.append(_report_unreadable_step(line))

    def _judge_lines(self) -> None:
        """Report each line below a heading that was meant as the heading of a step, or has the keys of one below it."""
        numbers = {block.number for block in self.blocks if block.name == "step"}
        has_begun = False
        problems = {problem.line: problem for problem in self.problems}
        for block in self.blocks:
            has_begun = has_begun or block.name in ("step", "steps")
            if has_begun and block.name in ("step", "steps", "other"):
                for line in (*_find_lost_headings(block, numbers), *_find_stray_keys(block)):
                    problems.setdefault(line.number, _report_unreadable_step(line))
        self.problems = list(problems.values())

    def _start_block(self, line: Line, match: re.Match[str]) -> Block | None:
        level, text = len(match["marks"]), _read_heading_text(match)
        if name := _parse_section_name(text):
            return Block(heading=line, level=level, name=name, text=text)
        current = self.blocks[-1] if self.blocks else None
        is_in_step = current is not None and current.name == "step"
        step = _STEP.fullmatch(text)
        if not step and level in (2, 3, 4) and self._has_numbered_steps(level):
            step = None if current and is_in_step and level > current.level else _NUMBERED.fullmatch(text)
        if step:
            is_ticked = None if step["box"] is None else step["box"] != " "
            number, title = int(step["number"]), step["title"].strip()
            return Block(heading=line, level=level, name="step", text=title, number=number, is_ticked=is_ticked)
        if current and level > 2 and (level > current.level or (is_in_step and level == current.level)):
            return None
        return Block(heading=line, level=level, name="title" if level == 1 else "other", text=text)

    def _has_numbered_steps(self, level: int) -> bool:
        # Whether ``### 1. Title`` at this place is a step, although it does not say so.
        section = self._section
        if section is None or section.name in ("title", "steps") or level <= section.level:
            return True
        return section.name == "other" and not self._has_steps_section


def _report_unreadable_step(line: Line) -> Problem:
    hint = (
        "write `### Step 1: what to do`, with a whole number and two to four `#`; what belongs to the step above has "
        "more `#`, and its keys are not repeated"
    )
    return Problem(
        line=line.number, message=f"'{line.text.strip()[:80]}' looks like a step but cannot be read as one", hint=hint
    )


def _find_lost_headings(block: Block, numbers: set[int]) -> list[Line]:
    """Return the lines in ``block`` that are highlighted like headings and name steps that no heading has."""
    found: list[Line] = []
    below = [*block.lines[1:], Line(0, "")]
    for line, next_line in zip(block.lines, below, strict=False):
        match = None if line.is_quoted else _HIGHLIGHTED.fullmatch(line.text)
        is_underlined = not line.is_quoted and _UNDERLINE.fullmatch(next_line.text) is not None
        if match or is_underlined:
            words = line.text if is_underlined else next(filter(None, match.groups()[1:])) if match else ""
            named = _NAMED_STEP.match(_remove_decoration(words))
            if named and int(named["number"]) in numbers:
                return []  # "**Step 1:**" in a step: its author numbers parts of the work
            found += [line] if named else []
    return found


def _find_stray_keys(block: Block) -> Iterable[Line]:
    """Yield the line above keys that belong to another step than ``block``, or to a step that cannot be read."""
    seen: set[str] = set()
    stray: dict[str, Line] = {}
    title, is_numbered, is_gap = block.heading, False, True
    for line in block.lines:
        name = "" if line.is_quoted else _find_marked_key(line.text)
        if name in _KEYS_OF_A_STEP and (name in seen or is_numbered or block.name != "step"):
            stray.setdefault(name, title)
        elif name:
            seen.add(name)
        elif not line.is_quoted and _WORD.search(line.text):
            words = _remove_decoration(line.text)
            # "2. then this" that follows "1. do that" is an item of a list.
            is_numbered = is_gap and _LIKE_A_STEP.match(words) is not None
            title = line
        elif not line.text.strip():
            is_numbered = is_numbered and _HIGHLIGHTED.fullmatch(title.text) is not None
        is_gap = not line.text.strip()
    if len(stray) > _MOST_STRAY_KEYS[block.name]:
        yield next(iter(stray.values()))


def _remove_decoration(text: str) -> str:
    match = _DECORATION.match(text)
    return text[match.end() :] if match else text


def _find_marked_key(text: str) -> str:
    """Return the name of the key that a line with a bullet or bold key gives, or an empty text."""
    match = _KEY.fullmatch(text)
    return _find_key_name(match["key"]) if match and (match["bullet"] or match["bold"]) else ""


def _find_key_name(key: str) -> str:
    return _KEYS.get(re.sub(r"[\s_-]+", " ", key.strip().lower()), "")


def _read_heading_text(match: re.Match[str]) -> str:
    text = match["text"].strip()
    opened = text.rstrip("#")
    if not opened or opened[-1] in " \t":  # "## x ##" is closed, "## C#" is not
        text = opened.rstrip()
    return text[2:-2].strip() if len(text) > 4 and text.startswith("**") and text.endswith("**") else text


def _parse_section_name(text: str) -> BlockName | None:
    numbered = _NUMBERED.fullmatch(text)
    return _SECTIONS.get((numbered["title"] if numbered else text).strip().rstrip(":").lower())


class _StepReader:
    """Reads one step line by line: its keys, its box, and the rest as the description.

    A key may be anywhere in the step, once. The head of the step ends at the first line that is neither a key nor a
    box. A key that is repeated in the head is a problem; below the head it is part of the description.
    """

    def __init__(self, block: Block, default_kind: Kind) -> None:
        self.problems: list[Problem] = []
        self._has_box = block.is_ticked is not None
        self._is_done = bool(block.is_ticked)
        self._values: dict[str, list[list[str]]] = {}  # each value as the lines that it is written on
        self._key_lines: dict[str, int] = {}
        self._description: list[str] = []
        self._open_list = ""
        self._is_value_below = False
        self._spans_blank_lines = False
        self._is_in_head = True
        self._is_in_keys = False
        self._in_doubt: list[Problem] = []  # lines of the list that are problems if it is one of keys
        for line in block.lines:
            self._read(line)
        self._end_keys()
        self.step = self._make_step(block, default_kind)

    def _read(self, line: Line) -> None:
        if not line.is_quoted and (self._take_box(line) or self._take_key(line) or self._continue_list(line)):
            return
        if line.is_quoted or not self._doubt(line):
            self._end_keys()
        self._is_in_head = False
        # "**Files:**" may be followed by a blank line before its list starts.
        is_gap = not line.text.strip() and self._spans_blank_lines and not self._values.get(self._open_list)
        self._open_list = self._open_list if is_gap else ""
        self._description.append(line.text)

    # Each of these three methods returns whether it used the line.

    def _take_box(self, line: Line) -> bool:
        match = _CHECKBOX.fullmatch(line.text)
        if not match or self._has_box or match["label"].strip().lower() not in _DONE:
            return False
        self._has_box = self._is_in_keys = True
        self._is_done = match["box"] in ("x", "X")
        return True

    def _take_key(self, line: Line) -> bool:
        match = _KEY.fullmatch(line.text)
        if not match or bool(match["bold"]) != bool(match["end"] or match["late"]):
            return False
        key = match["key"].strip()
        name = _find_key_name(key)
        is_marked = bool(match["bullet"] or match["bold"])
        if not name or not (is_marked or self._is_in_head):
            return False
        # "Estimated Time" repeats "Complexity" if they are neighbors; elsewhere it is description.
        if name == "time" and "size" in self._key_lines and line.number - 1 not in self._key_lines.values():
            return False
        if name in self._key_lines:
            if self._is_in_head:
                message = f"'{key}' is given twice in this step"
                self.problems.append(Problem(line=line.number, message=message, hint="write it on one line"))
            return self._is_in_head
        if name == "description" and any(text.strip() for text in self._description):
            return False
        self._key_lines[name] = line.number
        self._is_in_keys = name != "description"
        self._open_value(name, _remove_comments(match["value"]).strip())
        self._spans_blank_lines = not match["bullet"]
        return True

    def _open_value(self, name: str, value: str) -> None:
        self._values[name] = [[value]] if value else []
        self._open_list = name if name in _LISTS else ""
        self._is_value_below = not value
        if name == "description":
            self._is_in_head = False
            self._description.append(value)

    def _continue_list(self, line: Line) -> bool:
        """Continue the list of the key above: with bullets below an empty key, or with an indented line."""
        if not self._open_list or not line.text.strip():
            return False
        bullet = _BULLET.fullmatch(line.text)
        values = self._values[self._open_list]
        is_indented = line.text.startswith((" ", "\t"))
        if bullet and (is_indented or self._is_value_below):
            values.append([bullet["item"]])
            return True
        continues_value = is_indented and not bullet and bool(values) and self._is_in_head
        if continues_value:
            values[-1].append(line.text.strip())
        return continues_value

    def _doubt(self, line: Line) -> bool:
        """Note a line that is a problem in a list of keys, and return whether it is one of these."""
        text = _remove_markup(line.text)
        if lost := self._find_lost_key(text):
            self.problems.append(_report_unreadable_key(line, lost))
            return True
        match = _KEY_WITHOUT_COLON.match(text)
        is_key = match is not None and (match["value"] is None or _is_value(match["value"]))
        match = match if is_key else _LIKE_A_KEY.match(text)
        if not match or _find_marked_key(line.text) or _HEADING.fullmatch(line.text):
            return False
        words = match["key"].strip().lower().replace("(s", "s")
        nearest = suggest(words, _KEYS, cutoff=0.85)
        is_marked = bool(match["mark"])
        if not nearest and not (is_marked and len(words.split()) <= _MOST_WORDS_OF_A_KEY):
            return False
        problem = _report_unreadable_key(line, nearest)
        if words not in _KEYS:
            message = f"the key '{match['key'].strip()}' is unknown"
            hint = f"the keys are {_KEYS_SHOWN}; with a blank line above, a line belongs to the description"
            hint = f"did you mean '{nearest.capitalize()}'?" if nearest else hint
            problem = Problem(line=line.number, message=message, hint=hint)
        is_certain = bool(nearest) and not is_key and ((is_marked and self._is_in_head) or "**" in match["mark"])
        (self.problems if is_certain else self._in_doubt).append(problem)
        return True

    def _find_lost_key(self, text: str) -> str:
        """Return the key that ``text`` gives as a heading, or without its bullet below the head. Empty if none."""
        heading = _HEADING.fullmatch(text)
        match = None if heading or self._is_in_head else _KEY.fullmatch(text)
        key, value = match.group("key", "value") if match else ("", "")
        key = _read_heading_text(heading).rstrip(":\uff1a") if heading else key
        name = _find_key_name(key)
        if name not in _KEYS_OF_A_STEP or name in self._key_lines:
            return ""
        # "Tests: cover the empty list" is a sentence.
        is_given = _is_dependency(value) if name == "depends_on" else _is_value(value.strip())
        return key if heading or is_given else ""

    def _end_keys(self) -> None:
        """End a list of keys: what is not understood in it is a problem, but a list without any key is description."""
        self.problems += self._in_doubt if self._is_in_keys else ()
        self._in_doubt, self._is_in_keys = [], False

    def _parse_values(self, name: str, parse_value: Callable[[str], tuple[Value, ...]]) -> tuple[Value, ...]:
        found: list[Value] = []
        for lines in self._values.get(name, ()):
            try:
                found += parse_value(" ".join(lines))
            except ValueError as error:
                self.problems.append(Problem(line=self._key_lines[name], message=str(error)))
        return tuple(dict.fromkeys(found))

    def _make_step(self, block: Block, default_kind: Kind) -> Step:
        kinds = self._parse_values("kind", lambda value: (parse_kind(value),))
        size = self._values.get("size") or self._values.get("time") or [[""]]
        filled = [place for place, text in enumerate(self._description) if text.strip()] or [0]
        return Step(
            number=block.number,
            title=block.text,
            done=self._is_done,
            depends_on=self._parse_values("depends_on", parse_dependencies),
            files=self._parse_values("files", parse_paths),
            tests=self._parse_values("tests", parse_paths),
            criteria=self._parse_values("criteria", parse_criteria),
            kind=kinds[0] if kinds else default_kind,
            size=size[0][0],
            description="\n".join(self._description[filled[0] : filled[-1] + 1]),
            line=block.heading.number,
            key_lines=self._key_lines,
        )


def _report_unreadable_key(line: Line, key: str) -> Problem:
    message = f"'{line.text.strip()[:80]}' cannot be read as a key"
    return Problem(line=line.number, message=message, hint=f"write `- {key.strip().capitalize()}: ...`")


def _remove_markup(text: str) -> str:
    """Return ``text`` without links, tags and invisible characters, with the colon for what looks like one."""
    visible = "".join(character for character in text if unicodedata.category(character) != "Cf")
    return _COLONS.sub(":", unicodedata.normalize("NFKC", _MARKUP.sub(lambda match: match["label"] or "", visible)))


def _is_dependency(value: str) -> bool:
    try:
        return bool(parse_dependencies(value))
    except ValueError:
        return False


def _is_value(word: str) -> bool:
    """Return whether ``word`` is the value of a key rather than the next word of a sentence."""
    forms = (_PATH, _CRITERION, re.compile(r"[`#\d]"))
    return word.lower() in {*_KIND_NAMES, *SIZES} or any(form.match(word) for form in forms)


def _remove_comments(value: str) -> str:
    # Up to the last "-->" only: behind it, every "<!--" would search to the end of the line in vain.
    end = value.rfind("-->") + len("-->")
    return value if end < len("-->") else _COMMENT.sub("", value[:end]) + value[end:]


# The values of keys: each parse function gets the text after the colon and raises ``ValueError`` if it is ambiguous.


def parse_dependencies(value: str) -> tuple[int, ...]:
    """Parse step numbers: ``none``, ``1, 2``, ``Step 1 and #2`` or ``1-3``. Text in parentheses is a note."""
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
            if not 0 <= last - first < LIMIT_STEPS:
                raise ValueError(f"'{part.strip()}' is not a range of steps; name each step")
            found += range(first, last + 1)
            if len(found) > LIMIT_STEPS:
                raise ValueError(f"more than {LIMIT_STEPS} steps are named")
    return tuple(dict.fromkeys(found))


def parse_paths(value: str) -> tuple[str, ...]:
    """Parse paths or node ids, with or without backticks, each with or without a note after it."""
    return tuple(dict.fromkeys(_parse_items(value, _PATH)))


def parse_criteria(value: str) -> tuple[str, ...]:
    """Parse ids of acceptance criteria; ``ac-1`` becomes ``AC-1``."""
    items = _parse_items(value, _CRITERION)
    return tuple(dict.fromkeys(item.upper() if _CRITERION.fullmatch(item) else item for item in items))


def parse_kind(value: str) -> Kind:
    """Parse a kind or a common synonym of one."""
    word = value.strip().strip("`*").lower()
    if word not in _KIND_NAMES:
        raise ValueError(f"'{value.strip()}' is not a kind of step; write one of {', '.join(KINDS)}")
    return _KIND_NAMES[word]


def _parse_items(value: str, likely_item: re.Pattern[str]) -> Iterable[str]:
    """Parse a list whose items may have notes.

    The first token is an item, and so is the token after a separator. Words after an item are its note, up to the next
    comma. After a note, only a token in backticks or one that matches ``likely_item`` is an item again.
    """
    if _NOTHING.fullmatch(value.strip().strip("`")):
        return
    is_expected, is_in_note = True, False
    for match in _TOKEN.finditer(value):
        kind, text = match.lastgroup, _read_token(match)
        is_likely = likely_item.match(text) is not None
        if kind == "separator":
            is_expected = True
        elif kind == "join":
            is_expected = is_expected or not is_in_note
        elif is_in_note:
            if is_expected and text and is_likely:
                yield text
                is_in_note = False
            is_expected = False
        elif text and (is_expected or is_likely or kind in ("span", "link")):
            yield text
            is_expected = False
        elif text:
            is_in_note, is_expected = True, False


def _read_token(match: re.Match[str]) -> str:
    """Return the text of a token that can be an item, and an empty one of others."""
    if code := match["code"]:
        is_padded = len(code) > 2 and code[0] == code[-1] == " " and code.strip()  # "`` `a` ``" in Markdown
        return code[1:-1] if is_padded else code
    if label := match["label"]:
        return label.strip("`")
    word = match["word"] or ""
    if word.endswith(":"):
        return word.rstrip(":")
    return word[:-1] if re.fullmatch(r"\w\.", word[-2:]) else word
