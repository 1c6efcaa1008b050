"""A table that comes line by line: held until it is over, then fitted to the width."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.text import Text

from cdd_agent.repl.display.markdown.inline import inline
from cdd_agent.repl.display.markdown.look import Look
from cdd_agent.repl.display.markdown.wrap import hung, wrapped

Side = Literal["left", "center", "right"]

MOST_ROWS = 50
"""Held back; the rows after them are printed as they come, in columns as wide as those."""
MOST_CHARACTERS = 8_000

_RULES = re.compile(r"\|? *+:?-++:? *+(?:\| *+:?-++:? *+)*+\|?$")
_PIPE = re.compile(r"(?<!\\)\|")
_BREAK = re.compile(r"<br */?>", re.IGNORECASE)
_COMFORT = 12
"""Cells that a column keeps as long as there is room for it in each column."""
_LEAST = 6
"""A table with less in a column is no table any more."""
_FRAME = "dim"


def cells(line: str) -> list[str]:
    """What stands between the pipes of ``line``."""
    parts = _PIPE.split(line.strip())
    if parts and not parts[0].strip():
        parts = parts[1:]
    if len(parts) > 1 and not parts[-1].strip():
        parts = parts[:-1]
    return [part.strip().replace("\\|", "|") for part in parts]


def sides(head: str, rules: str) -> list[Side] | None:
    """To which side the columns are set, if ``rules`` below ``head`` makes a table of it."""
    if "|" not in head or "|" not in rules or not _RULES.match(rules.strip()):
        return None
    found: list[Side] = []
    for rule in cells(rules):
        is_right = rule.endswith(":")
        found.append("center" if is_right and rule.startswith(":") else "right" if is_right else "left")
    return found if len(found) == len(cells(head)) else None


@dataclass
class Table:
    """The rows of one table, those being kept that were not given out."""

    head: Sequence[str]
    sides: Sequence[Side]
    width: int
    look: Look
    count: int = 0
    """Rows that have come."""
    _kept: list[list[Text]] = field(default_factory=list)
    _size: int = 0
    _widths: list[int] | None = None
    """Of the columns, once the first rows were given out."""
    _is_ruled: bool = False
    """Between its rows, because some take more than one line."""

    def add(self, line: str) -> list[Text]:
        """Take another row; what is given out because there are many."""
        row = cells(line)
        if len(row) > len(self.sides):
            row[len(self.sides) - 1 :] = [" | ".join(row[len(self.sides) - 1 :])]
        row += [""] * (len(self.sides) - len(row))
        self._kept.append([_shown(cell) for cell in row])
        self._size += len(line)
        self.count += 1
        is_full = self._widths is not None or len(self._kept) >= MOST_ROWS or self._size >= MOST_CHARACTERS
        return self.end() if is_full else []

    def end(self) -> list[Text]:
        """The rows that were not given out, the head before the first."""
        head = [_shown(cell, style="bold") for cell in self.head]
        is_first = self._widths is None
        if self._widths is None:
            self._widths = _fitted([head, *self._kept], self.width - 3 * (len(self.sides) - 1))
            self._is_ruled = any(
                cell.cell_len > width or "\n" in cell.plain
                for row in self._kept
                for cell, width in zip(row, self._widths, strict=False)
            )
        rows, self._kept = self._kept, []
        if not self._widths:
            return [line for row in rows for line in self._record(head, row)] or (
                self._one_line(head) if is_first else []
            )
        lines = self._row(head) if is_first else []
        for number, row in enumerate(rows):
            if (is_first and number == 0) or self._is_ruled:
                lines.append(self._rule())
            lines += self._row(row)
        return lines if rows or not is_first else [*lines, self._rule()]

    def _row(self, row: Sequence[Text]) -> list[Text]:
        """One row, its cells wrapped."""
        widths = self._widths or []
        columns = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        lines = []
        for number in range(max(map(len, columns))):
            line = Text()
            for at, (column, width) in enumerate(zip(columns, widths, strict=True)):
                if at:
                    line.append(f" {self.look.column} ", _FRAME)
                line.append_text(_set(column[number] if number < len(column) else Text(), width, side=self.sides[at]))
            line.rstrip()
            lines.append(line)
        return lines

    def _rule(self) -> Text:
        """A line below the head, or between rows."""
        joint = f"{self.look.rule}{self.look.cross}{self.look.rule}"
        return Text(joint.join(self.look.rule * width for width in self._widths or []), _FRAME)

    def _record(self, head: Sequence[Text], row: Sequence[Text]) -> list[Text]:
        """A row of a table that has no room for its columns: its cells one below the other, each after its name."""
        lines = [Text(self.look.rule * min(self.width, 20), _FRAME)]
        for name, cell in zip(head, row, strict=True):
            lines += hung(Text.assemble(name, ": " if name else "", cell), width=self.width, hang=2)
        return lines

    def _one_line(self, head: Sequence[Text]) -> list[Text]:
        """The names of columns that have no room and no rows."""
        return hung(Text(", ").join(head), width=self.width, hang=2)


def _shown(cell: str, *, style: str = "") -> Text:
    """A cell's text; ``<br>`` in it is a line feed."""
    lines = [inline(part.strip())[0] for part in _BREAK.split(cell)]
    text = Text("\n").join(lines)
    text.stylize(style)
    return text


def _set(text: Text, width: int, *, side: Side) -> Text:
    """``text`` with the blanks that put it to its side."""
    free = max(0, width - text.cell_len)
    left = {"left": 0, "center": free // 2, "right": free}[side]
    return Text.assemble(" " * left, text, " " * (free - left))


def _fitted(rows: Sequence[Sequence[Text]], room: int) -> list[int]:
    """The width of each column, so that all fit into ``room``; nothing if they cannot."""
    wanted = [
        max(1, *(line.cell_len for cell in column for line in cell.split("\n", allow_blank=True)))
        for column in zip(*rows, strict=True)
    ]
    if sum(wanted) <= room:
        return wanted
    for comfort in (_COMFORT, _LEAST):
        widths = [min(width, comfort) for width in wanted]
        if sum(widths) <= room:
            return _shared(widths, wanted, room=room)
    return []


def _shared(widths: list[int], wanted: Sequence[int], *, room: int) -> list[int]:
    """``widths`` with what is left of ``room`` given to the columns that want most."""
    for _ in range(room - sum(widths)):
        poorest = max(range(len(widths)), key=lambda at: wanted[at] - widths[at])
        widths[poorest] += 1
    return widths
