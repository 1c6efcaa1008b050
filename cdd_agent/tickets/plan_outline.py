"""The outline of a plan's Markdown: its lines, which of them are only quoted, and where steps and sections begin.

What stands in a fence, an HTML comment or front matter is never structure.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from cdd_agent.errors import Problem

BlockName: TypeAlias = Literal["title", "step", "overview", "steps", "risks", "other", "odd"]
"""What a heading begins; ``odd`` is one that looks like a step but cannot be read as one."""

_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_FENCE = re.compile(r"\s*(?:[-*+]\s+)?(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_HEADING = re.compile(r" {0,3}(?P<marks>#{1,6})(?P<text>(?:[ \t].*)?)")
_BOX = r"(?:\[(?P<box>[ xX])\]\s+)?"
_STEP = re.compile(
    _BOX + r"step\s*\#?(?P<number>\d{1,9})(?:\s*[:.)\u2013\u2014-]\s*|\s+|$)(?P<title>.*)", re.IGNORECASE
)
_BARE = re.compile(_BOX + r"(?P<number>\d{1,9})\s*[:.)\u2013\u2014-](?:\s+|$)(?P<title>.*)")
_ODD = re.compile(
    r"step\s+(?:\d{10,}|\d+(?:\.\d+)+|\d+[a-z]|[a-z]|[ivx]+|one|two|three|four|five|six|seven|eight|nine|ten)\s*(?:[:.)\u2013\u2014]|-\s|$)",
    re.IGNORECASE,
)
_SECTIONS: dict[str, BlockName] = {
    "overview": "overview",
    "summary": "overview",
    "steps": "steps",
    "implementation steps": "steps",
    "tasks": "steps",
    "risks": "risks",
    "risks & considerations": "risks",
    "risks and considerations": "risks",
}


class Line(NamedTuple):
    """One line of the source."""

    number: int
    """1-based."""
    start: int
    """Offset of its first character."""
    text: str
    """Without its end."""
    is_quoted: bool = False
    """Whether it stands in a fence, a comment or front matter."""


@dataclass(slots=True, kw_only=True)
class Block:
    """A heading and the lines up to the next heading that ends it."""

    heading: Line
    level: int
    name: BlockName
    text: str
    """The words of the heading; of a step, its title."""
    number: int = 0
    """Of a step."""
    is_ticked: bool | None = None
    """The box in a step's heading, if there is one."""
    lines: list[Line] = field(default_factory=list)


def read_lines(text: str) -> tuple[list[Line], list[Problem]]:
    """The lines of ``text`` with what is quoted marked; a fence or comment without an end is a problem."""
    lines: list[Line] = []
    closing: re.Pattern[str] | None = None
    opened = 0
    for number, match in enumerate(_LINE.finditer(text), start=1):
        line = match[1].removeprefix("\ufeff") if number == 1 else match[1]
        start = match.end(1) - len(line)
        is_quoted = closing is not None
        if closing is not None:
            closing = None if closing.search(line) else closing
        elif closing := _opens(line, number):
            opened, is_quoted = number, True
            if line.lstrip().startswith("<!--") and "-->" in line:
                closing = None
        lines.append(Line(number, start, line, is_quoted))
    if closing is None:
        return lines, []
    return lines, [
        Problem(
            line=opened,
            message=f"what begins here with '{lines[opened - 1].text.strip()[:20]}' is never closed",
            hint="close it on a line of its own; it would hide every step below",
        )
    ]


def _opens(line: str, number: int) -> re.Pattern[str] | None:
    """What would end the quotation that ``line`` opens, if it opens one."""
    fence = _FENCE.fullmatch(line)
    if fence and not (fence["fence"][0] == "`" and "`" in fence["info"]):
        return re.compile(rf"^\s*{fence['fence'][0]}{{{len(fence['fence'])},}}\s*$")
    if line.lstrip().startswith("<!--"):
        return re.compile("-->")
    if number == 1 and line.rstrip() == "---":
        return re.compile(r"^(?:---|\.\.\.)\s*$")
    return None


def blocks(lines: list[Line]) -> tuple[list[Block], list[Problem]]:
    """The blocks of a plan in order, and the headings that look like steps but cannot be read as one."""
    found: list[Block] = []
    problems: list[Problem] = []
    has_steps_section = any(_section(line) == "steps" for line in lines)
    section: Block | None = None
    for line in lines:
        current = found[-1] if found else None
        block = None if line.is_quoted else _block(line, current, section=section, has_steps_section=has_steps_section)
        if block and block.name == "odd":
            problems.append(_odd(block))
        elif block:
            found.append(block)
            section = section if block.name == "step" else block
        elif current:
            current.lines.append(line)
    return found, problems


def _block(line: Line, current: Block | None, *, section: Block | None, has_steps_section: bool) -> Block | None:
    """The block that ``line`` begins, or None if it belongs to the current one."""
    match = _HEADING.fullmatch(line.text)
    if not match:
        return None
    level = len(match["marks"])
    text = _heading_text(match)
    if len(text) > 4 and text.startswith("**") and text.endswith("**"):
        text = text[2:-2].strip()
    name = _section_name(text)
    if name:
        return Block(heading=line, level=level, name=name, text=text)
    step = _STEP.fullmatch(text)
    if _ODD.match(text) or (step and level not in (2, 3, 4)):
        return Block(heading=line, level=level, name="odd", text=text)
    is_inside_step = current is not None and current.name == "step" and level > current.level
    if (
        not step
        and level in (2, 3, 4)
        and not is_inside_step
        and _holds_steps(section, level, has_steps_section=has_steps_section)
    ):
        step = _BARE.fullmatch(text)
    if step:
        ticked = None if step["box"] is None else step["box"] != " "
        number, title = int(step["number"]), step["title"].strip()
        return Block(heading=line, level=level, name="step", text=title, number=number, is_ticked=ticked)
    if current and level > 2 and (level > current.level or (current.name == "step" and level == current.level)):
        return None
    return Block(heading=line, level=level, name="title" if level == 1 else "other", text=text)


def _holds_steps(section: Block | None, level: int, *, has_steps_section: bool) -> bool:
    """Whether ``### 1. Title`` below the heading of ``section`` is a step."""
    if section is None or section.name in ("title", "steps") or level <= section.level:
        return True
    return section.name == "other" and not has_steps_section


def _section(line: Line) -> BlockName | None:
    match = None if line.is_quoted else _HEADING.fullmatch(line.text)
    return _section_name(_heading_text(match)) if match else None


def _heading_text(match: re.Match[str]) -> str:
    """The words of a heading, without the marks that may close it."""
    text = match["text"].strip()
    opened = text.rstrip("#")
    return opened.rstrip() if not opened or opened[-1] in " \t" else text


def _section_name(text: str) -> BlockName | None:
    bare = _BARE.fullmatch(text)
    return _SECTIONS.get((bare["title"] if bare else text).strip().rstrip(":").lower())


def _odd(block: Block) -> Problem:
    return Problem(
        line=block.heading.number,
        message=f"'{block.heading.text.strip()}' looks like a step but cannot be read as one",
        hint="write `### Step 1: what to do`, with a whole number and two to four `#`",
    )
