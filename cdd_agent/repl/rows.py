"""Draw text as rows of a terminal: wrapped lines, marks of Markdown, code and tables. Pure.

markdown-it, pygments and the tables of rich are imported when the first of each is drawn.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.style import Style
from rich.text import Text

from cdd_agent.untrusted.text import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from rich.syntax import Syntax

DIM = "dim"
"""The style of everything that is not text: rules, marks, link targets."""
LEAST_WIDTH = 10
"""Cells for text, however narrow the terminal and however deep the indentation."""
LONGEST_CODE_LINE = 1_000
"""Characters. A longer line of code has no colors."""
DEEPEST = 40
"""Levels of nesting that markdown-it reads; it drops the text of deeper ones. A list item has two levels."""

_LEAST_CONTEXT, _MOST_CONTEXT = 300, 4_000
_LEAST_COLUMN = 6
_LARGEST_INLINE = 5_000
_RULE_WIDTH = 60
_INLINE = {"em": "italic", "strong": "bold", "s": "strike", "link": "underline"}
_NO_LANGUAGE = {"", "text", "plain", "plaintext", "txt", "output"}

_MARK = re.compile(r"[\\`*_~\[<&]")
_SOFT_BREAK = re.compile(r"(?<! ) *+\n")
_OPEN_LINK = re.compile(r"\]\([^)]*$|\]\[[^\]]*$")
_DUNDER = re.compile(r"__[a-z][a-z0-9]*(?:_[a-z0-9]+)*__(?![A-Za-z0-9_])")
_LANGUAGE = re.compile(r"\{?\.?([\w+#.-]+)")
_PIPE = re.compile(r"(?<!\\)\|")
_LINE_BREAK = re.compile(r"<br */?>", re.IGNORECASE)


@dataclass(frozen=True)
class Look:
    """The symbols that a terminal can show, and whether code has colors."""

    bullets: str
    """One for each level of nesting, then from the first again."""
    bar: str
    """Left of a quotation."""
    rule: str
    column: str
    """Between two columns of a table; ``cross`` is where it meets a rule."""
    cross: str
    done: str
    todo: str
    cut: str
    """In place of the text that the live row has no room for."""
    color: bool = True

    @property
    def symbols(self) -> str:
        """All characters that are printed besides those of the text."""
        return "".join(symbol for symbol in astuple(self) if isinstance(symbol, str))


UNICODE = Look(bullets="•◦▪", bar="│", rule="─", column="│", cross="┼", done="☑", todo="☐", cut="…")
ASCII = Look(bullets="-*", bar="|", rule="-", column="|", cross="+", done="[x]", todo="[ ]", cut="~")


@functools.cache
def _console() -> Console:
    """Return the console that ``Text.wrap`` asks for, and does not use."""
    return Console()


def wrap(text: Text, width: int) -> list[Text]:
    """Return the rows of ``text``, at least one. A word that is longer than a row is cut."""
    rows = list(text.wrap(_console(), max(1, width), overflow="fold", tab_size=4))
    for row in rows:
        row.rstrip()
    return rows or [Text()]


def wrap_hanging(text: Text, *, width: int, hang: int) -> list[Text]:
    """Return the rows of ``text``, all but the first indented by ``hang``."""
    first, *rest = wrap(text, max(LEAST_WIDTH, width))
    if not rest:
        return [first]
    left = text[len(first) :]
    left = left[len(left) - len(left.plain.lstrip()) :]
    return [first, *(Text(" " * hang) + row for row in wrap(left, max(LEAST_WIDTH, width - hang)))]


def draw_rule(width: int, label: str = "", *, look: Look) -> Text:
    """Return a line across the text, with ``label`` in it."""
    width = min(_RULE_WIDTH, width)
    row = f"{look.rule * 2} {label} " if label else ""
    return Text((row + look.rule * (width - len(row)))[:width], DIM)


@functools.cache
def parser(*, setext: bool = True) -> "MarkdownIt":
    """Return a parser of blocks, and with ``parser.inline`` of the marks in one.

    HTML is text, and a link target is shown as it is written, whatever it is. Definitions of links are text as well:
    a link may have been printed before its definition arrives.
    """
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST}).enable(["strikethrough", "table"])
    made.disable(["reference", *(() if setext else ("lheading",))])
    made.core.ruler.enableOnly(["normalize", "block"])
    made.inline.ruler.before("strikethrough", "dunder", _read_dunder)
    made.inline.ruler2.push("left_open", _note_open_mark)
    for name, rule in {"normalizeLink": str, "normalizeLinkText": str, "validateLink": bool}.items():
        setattr(made, name, rule)
    return made


def _read_dunder(state: "StateInline", silent: bool) -> bool:
    """Read a name such as ``__init__`` as a name, though Markdown would make it bold."""
    found = _DUNDER.match(state.src, state.pos, state.posMax) if state.src[state.pos] == "_" else None
    if found is None:
        return False
    if not silent:
        state.pending += found[0]
    state.pos = found.end()
    return True


def _note_open_mark(state: "StateInline") -> None:
    state.env["is_open"] = any(mark.open and mark.end < 0 for mark in state.delimiters)


def has_marks(source: str) -> bool:
    """Return whether ``source`` may have marks, or is shown as it is written."""
    return _MARK.search(source) is not None


def read_inline(source: str) -> tuple[Text, bool]:
    """Return ``source`` as it is shown, and whether later text cannot change that, because no mark in it is open.

    Line feeds in the result are hard breaks.
    """
    # Some marks take markdown-it quadratic time, such as 5,000 opening brackets.
    if len(source) > _LARGEST_INLINE or not has_marks(source):
        return Text(_SOFT_BREAK.sub(lambda found: "\n" if len(found[0]) > 2 else " ", source)), True
    tokens: list[Token] = []
    env: dict[str, bool] = {}
    parser().inline.parse(source, parser(), env, tokens)
    plain = "".join(token.content for token in tokens if token.type == "text")
    depth = 0
    for bracket in re.findall(r"[\[\]]", plain):
        depth = max(0, depth + (1 if bracket == "[" else -1))
    is_open = env.get("is_open", False) or depth > 0 or "`" in plain or _OPEN_LINK.search(plain) is not None
    return _style_inline(tokens), not is_open


def _style_inline(tokens: Iterable["Token"]) -> Text:
    text, styles = Text(), [Style()]
    links: list[tuple[Token, int]] = []
    for token in tokens:
        kind, _, edge = token.type.rpartition("_")
        match edge:
            case "open":
                styles.append(styles[-1] + Style.parse(_INLINE[kind]))
                if kind == "link":
                    links.append((token, len(text)))
            case "close":
                styles.pop()
                if kind == "link":
                    link, start = links.pop()
                    _append_target(text, link, attribute="href", name=text.plain[start:])
            case "softbreak":
                text.append(" ", styles[-1])
            case "hardbreak":
                text.append("\n")
            case "inline":
                text.append(token.content, styles[-1] + Style.parse("cyan"))
            case "image":
                text.append(token.content, styles[-1])
                _append_target(text, token, attribute="src", name=token.content)
            case _:
                # An entity such as &#27; is a control character that was not there when the text was cleaned.
                text.append(clean(token.content).replace("\n", " "), styles[-1])
    return text


def _append_target(text: Text, link: "Token", *, attribute: str, name: str) -> None:
    """Append the target of a link and its title, unless the link's words are the target."""
    target, title = str(link.attrs[attribute]), link.attrs.get("title")
    parts = [] if target.removeprefix("mailto:") == name else [target]
    parts += [f'"{title}"'] if title else []
    if parts:
        text.append(f" ({' '.join(parts)})" if name else " ".join(parts), DIM)


class Code:
    """A code block. Its lines are printed as they are, in colors where the language is known."""

    def __init__(self, token: "Token", *, indent: int = 0, color: bool) -> None:
        """``token`` is a fence; ``indent`` is taken off each line."""
        found = _LANGUAGE.match(token.info)
        self.language = found[1].lower() if found else ""
        self._closing = re.compile(rf" {{0,3}}{token.markup[:1]}{{{len(token.markup)},}}\s*$")
        self._indent = indent
        self._syntax = _find_syntax(self.language) if color and self.language not in _NO_LANGUAGE else None
        self._above = ""

    def is_closed_by(self, line: str) -> bool:
        """Return whether ``line`` is the closing fence."""
        return self._closing.match(line) is not None

    def paint(self, line: str) -> Text:
        """Return the next line of code."""
        line = line[min(self._indent, len(line) - len(line.lstrip(" "))) :]
        if self._syntax is None or len(line) > LONGEST_CODE_LINE:
            return Text(line)
        above, self._above = self._above, f"{self._above}{line}\n"
        # Lexers recognize a comment of C only when they see its end.
        end = "*/" if self._above.rfind("/*") > self._above.rfind("*/") else ""
        row = self._syntax.highlight(self._above + end)[len(above) : len(above) + len(line)]
        # A line that looks the same alone starts outside strings and comments, so the lines above can be forgotten.
        alone = len(above) > _LEAST_CONTEXT and self._syntax.highlight(f"{line}\n")[: len(line)].spans == row.spans
        if (alone and row.spans) or len(above) > _MOST_CONTEXT:
            self._above = f"{line}\n"
        return row


def _find_syntax(language: str) -> "Syntax | None":
    """Return what colors ``language``, importing only its own lexer and no plugin of pygments."""
    from pygments.lexers import find_lexer_class, get_all_lexers  # type: ignore[import-untyped]
    from rich.syntax import Syntax

    name = next((name for name, aliases, _, _ in get_all_lexers(plugins=False) if language in aliases), None)
    lexer = find_lexer_class(name) if name else None
    return None if lexer is None else Syntax("", lexer(stripnl=False), theme="ansi_dark")


def draw_table(lines: Sequence[str], *, width: int, look: Look) -> list[Text]:
    """Return the rows of a table; ``lines`` are its head, the rule below it, and its rows."""
    from rich.box import Box
    from rich.table import Table

    head = [_style_cell(cell, style="bold") for cell in _split_cells(lines[0])]
    rows = []
    for line in lines[2:]:
        cells = _split_cells(line)
        # markdown-it drops the cells that have no column.
        cells[len(head) - 1 :] = [" | ".join(cells[len(head) - 1 :])]
        rows.append([_style_cell(cell) for cell in [*cells, *[""] * (len(head) - len(cells))]])
    room = width - 3 * (len(head) - 1)
    columns = ["\n".join(cell.plain for cell in column) for column in zip(head, *rows, strict=True)]
    widths = [max(1, *map(cell_len, column.split("\n"))) for column in columns]
    if sum(min(wanted, _LEAST_COLUMN) for wanted in widths) > room:
        return _draw_records(head, rows, width=width, look=look)
    is_wrapped = sum(widths) > room
    while sum(widths) > room:  # rich takes room from all columns alike, until it drops the narrow ones
        widths[widths.index(max(widths))] -= 1
    plain, ruled = f"  {look.column} \n", f" {look.rule}{look.cross} \n"
    box = Box("    \n" + plain + ruled + plain + ruled + ruled + plain + "    \n")
    table = Table(box=box, show_edge=False, pad_edge=False, border_style=DIM, show_lines=is_wrapped)
    for name, rule, wide in zip(head, _split_cells(lines[1]), widths, strict=True):
        side: JustifyMethod = "center" if rule[:1] + rule[-1:] == "::" else "right" if rule.endswith(":") else "left"
        table.add_column(name, justify=side, overflow="fold", width=wide)
    for row in rows:
        table.add_row(*row)
    options = _console().options.update(width=width, height=None)
    drawn = []
    for segments in _console().render_lines(table, options, pad=False):
        drawn.append(Text.assemble(*((segment.text, segment.style or "") for segment in segments)))
        drawn[-1].rstrip()
    return drawn


def _draw_records(head: Sequence[Text], rows: Sequence[Sequence[Text]], *, width: int, look: Look) -> list[Text]:
    """Return the rows of a table that has no room for columns: one cell below the other, each after its name."""
    if not rows:
        return wrap_hanging(Text(", ").join(head), width=width, hang=2)
    drawn = []
    for row in rows:
        drawn.append(Text(look.rule * min(width, 20), DIM))
        for name, cell in zip(head, row, strict=True):
            drawn += wrap_hanging(Text.assemble(name, ": " if name else "", cell), width=width, hang=2)
    return drawn


def _split_cells(line: str) -> list[str]:
    cells = _PIPE.split(line.strip())
    if cells and not cells[0].strip():
        cells = cells[1:]
    if len(cells) > 1 and not cells[-1].strip():
        cells = cells[:-1]
    return [cell.strip().replace("\\|", "|") for cell in cells]


def _style_cell(cell: str, *, style: str = "") -> Text:
    text = Text("\n").join(read_inline(part.strip())[0] for part in _LINE_BREAK.split(cell))
    text.stylize(style)
    return text
