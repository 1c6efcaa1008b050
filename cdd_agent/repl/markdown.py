"""Render Markdown that arrives in pieces as rows for the terminal. Pure.

A row is returned once, as soon as no later text can change it, so the screen never redraws a printed row. markdown-it
finds the blocks: the source of the last, open block is parsed again with each line, until a line starts the next one.
Paragraphs and code can be long, so those of the top level are not parsed again; they take their text bit by bit.

The blocks are drawn here, because ``rich.markdown`` loses text (docs/decisions/0008-markdown.md).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len
from rich.text import Text

from cdd_agent.errors import format_count
from cdd_agent.repl.rows import (
    DEEPEST,
    DIM,
    LEAST_WIDTH,
    Code,
    Look,
    draw_rule,
    draw_table,
    has_marks,
    parser,
    read_inline,
    wrap,
)
from cdd_agent.untrusted.text import clean

if TYPE_CHECKING:
    from markdown_it.token import Token

LONGEST_WORD = 1_000
"""Characters. A longer word is cut."""
LONGEST_OPEN = 2_000
"""Characters after an open mark such as ``**``, about a screenful. After that the mark is shown as text."""

_SMALL_BLOCK = 1_000
_PARAGRAPH = ["paragraph_open", "inline", "paragraph_close"]
_HEADINGS = {"h1": "bold underline", "h2": "bold", "h3": "bold italic"}

_LETTER = "\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD_END = re.compile(f"[ \t](?=[^ \t])|[{_LETTER}\u3000-\u303f\uff01-\uff5e](?=[{_LETTER}])")
"""In scripts without blanks between words, a word is a letter."""
_LOUD = re.compile(r"\*\*+|~~|`")
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9-]*(?:[\s/>]|$)|<!--")
_NO_SYMBOL = re.compile(r"[^-=*_+|:>#`~\s]")
_MARGIN = re.compile(r"(?:[ >]|[-+*] |\d{1,9}[.)] )*")
_TASK = re.compile(r"\[([ xX])\][ \t]+")
_DEEP = re.compile(r"(?: {38}|(?: *(?:[-+*>]|\d{1,9}[.)])){10})")
_NUMBER = re.compile(r"\n?(\d{1,9}[.)] )")
_INDENTED_ITEM = re.compile(r"  (?=[-+*] |\d{1,9}[.)] )")


def _split_words(line: str) -> tuple[list[str], str]:
    """Return the words that end in ``line``, each with the blanks that follow it, and the rest."""
    words: list[str] = []
    start = 0
    # An escape sequence may contain blanks, so it must not be cut: half of one would look like text.
    escape = line.find("\x1b")
    while True:
        found = _WORD_END.search(line, start)
        end = found.end() if found and not 0 <= escape < found.end() else len(line) + 1
        if end - start > LONGEST_WORD and len(line) - start > LONGEST_WORD:
            end = start + LONGEST_WORD
            escape = line.find("\x1b", end)
        if end > len(line):
            return words, line[start:]
        words.append(clean(line[start:end]))
        start = end


class _Paragraph:
    """A paragraph that grows. Its rows are returned while no mark is open that later text could close."""

    def __init__(self, width: int, *, keeps_breaks: bool = False) -> None:
        """``keeps_breaks``: each line stays a line, as in HTML."""
        self._width = width
        self._keeps_breaks = keeps_breaks
        self._row = Text()
        self._chunk = ""
        self._read_at = 0
        self.held = ""
        """A line that may be the head of a table; the next line decides."""

    @property
    def tail(self) -> str:
        return self._row.plain + (self._chunk + self.held).replace("\n", " ")

    def write(self, text: str) -> list[Text]:
        """Return the rows that are complete after ``text``: a word or a line."""
        text = text.replace("\t", " ")
        if self._keeps_breaks and text.endswith("\n"):
            text = f"{text.rstrip()}  \n"
        self._chunk += text
        if not has_marks(self._chunk):
            fits = len(self._row) + len(self._chunk) <= self._width
            return [] if fits else self._wrap(read_inline(self._chunk)[0])
        if len(self._chunk) < self._read_at:
            return []
        shown, is_settled = read_inline(self._chunk)
        ends_in_a_break = self._chunk.endswith("\\\n")  # at the end of a paragraph this is a backslash
        if (is_settled and not ends_in_a_break) or len(self._chunk) > LONGEST_OPEN:
            return self._wrap(shown)
        # Wait until the chunk is a quarter longer before it is read again, so the cost stays linear.
        self._read_at = int(len(self._chunk) * 1.25) + 1
        return []

    def end(self) -> list[Text]:
        rows = self.write(self.held)
        rows += self._wrap(read_inline(self._chunk.rstrip())[0])
        self._row.rstrip()
        return [*rows, self._row] if self._row else rows

    def _wrap(self, shown: Text) -> list[Text]:
        self._chunk, self._read_at = "", 0
        whole = self._row + shown
        *rows, self._row = wrap(whole, self._width)
        if whole.plain.endswith(" ") and self._row:
            self._row.append(" ")  # wrap() has stripped it, and the next word needs it
        return rows


@dataclass
class _Container:
    mark: str
    """The text left of its first row; ``margin`` is left of the others."""
    margin: str
    line: int
    is_item: bool
    is_shown: bool = False


class _Page:
    """Draws parsed blocks, with the marks of the quotations and list items around them at the left."""

    def __init__(self, lines: Sequence[str], *, width: int, look: Look, number: int) -> None:
        self.rows: list[Text] = []
        self.final = 0
        """How many rows no further line can change."""
        self.is_open = False
        """Whether further lines can change the last block."""
        self.last_unit = (0, 0)
        """The line and the row where the last block of the top level begins, or the last item of a list there."""
        self.number = -1
        """The number of the list item before the last unit."""
        self._lines, self._width, self._look = lines, width, look
        self._open: list[_Container] = []
        self._numbers: list[int] = []
        self._first_number = number

    def draw(self, tokens: Sequence["Token"]) -> None:
        for before, token in zip([None, *tokens], tokens, strict=False):
            start, end = token.map or (0, 0)
            if token.nesting >= 0 and token.level == 0:
                self._begin_unit(start, number=-1)
            match token.type:
                case "bullet_list_open" | "ordered_list_open":
                    is_continued = token.level == 0 and not self.rows
                    self._numbers.append(self._first_number if is_continued else -1)
                case "list_item_open" | "blockquote_open":
                    self._open_container(token, start)
                case "bullet_list_close" | "ordered_list_close":
                    self._numbers.pop()
                case "list_item_close" | "blockquote_close":
                    self._close_container()
                case "inline" if before is not None and before.tag not in {"th", "td"}:
                    self._draw_text(token.content, start, tag=before.tag)
                case "table_open":
                    lines = [_MARGIN.sub("", line, count=1) for line in self._lines[start:end]]
                    self._add_rows(draw_table(lines, width=self._room, look=self._look), line=start, is_open=True)
                case "fence":
                    self._draw_fence(token, is_closed=end - start - token.content.count("\n") == 2)
                case "code_block":
                    self._add_rows([Text(line) for line in token.content.split("\n")[:-1]], line=start)
                case "hr":
                    self._add_rows([draw_rule(self._room, look=self._look)], line=start)

    def _begin_unit(self, line: int, *, number: int) -> None:
        """Begin a block of the top level, or an item of a list there. The rows above it are final."""
        self.final, self.is_open = len(self.rows), False
        self.last_unit, self.number = (line, self.final), number

    @property
    def _margins(self) -> tuple[str, str]:
        first = "".join(container.margin if container.is_shown else container.mark for container in self._open)
        rest = "".join(container.margin for container in self._open)
        half = self._width // 2
        return first[-half:] if len(first) > half else first, rest[-half:] if len(rest) > half else rest

    @property
    def _room(self) -> int:
        return max(LEAST_WIDTH, self._width - len(self._margins[1]))

    def _add_rows(self, rows: Sequence[Text], *, line: int, is_open: bool = False) -> None:
        """Add the rows of the block that begins at ``line``, below a blank row if there is a blank line."""
        self.final, self.is_open = len(self.rows), is_open
        if rows and line > 0 and not self._lines[line - 1].strip(" >"):
            margin = "".join(container.margin for container in self._open if container.line < line)
            self.rows.append(Text(margin[: self._width // 2].rstrip(), DIM))
        style = "" if all(container.is_item for container in self._open) else DIM
        for row in rows:
            left = self._margins[0]
            self.rows.append(Text(left, style) + row if row else Text(left.rstrip(), style))
            for container in self._open:
                container.is_shown = True
        if not is_open:
            self.final = len(self.rows)

    def _open_container(self, token: "Token", line: int) -> None:
        """Open a quotation or a list item. Where the text counts 1, 1, 1 the rows count 1, 2, 3."""
        if token.type == "blockquote_open":
            self._open.append(_Container(f"{self._look.bar} ", f"{self._look.bar} ", line, is_item=False))
            return
        if token.level == 1:
            self._begin_unit(line, number=self._numbers[-1])
        depth = sum(container.is_item for container in self._open)
        mark = f"{self._look.bullets[depth % len(self._look.bullets)]} "
        if token.info:
            self._numbers[-1] = max(int(token.info), self._numbers[-1] + 1)
            mark = f"{self._numbers[-1]}{token.markup} "
        self._open.append(_Container(mark, " " * len(mark), line, is_item=True))

    def _close_container(self) -> None:
        last = self._open[-1]
        if last.is_item and not last.is_shown:
            self._add_rows([Text()], line=last.line, is_open=True)
        self._open.pop()

    def _draw_text(self, source: str, line: int, *, tag: str) -> None:
        item = self._open[-1] if self._open else None
        task = _TASK.match(source)
        if task and item is not None and item.is_item and not item.is_shown:
            box = self._look.todo if task[1] == " " else self._look.done
            item.mark = (item.mark if item.mark[0].isdigit() else "") + f"{box} "
            item.margin = " " * len(item.mark)
            source = source[task.end() :]
        shown = read_inline(source)[0]
        if tag != "p":
            shown.stylize_before(_HEADINGS.get(tag, "italic"))
        self._add_rows(wrap(shown, self._room) if shown else [], line=line, is_open=tag == "p")

    def _draw_fence(self, token: "Token", *, is_closed: bool) -> None:
        """Draw code. All of its rows are final but the lower rule of a fence that is open."""
        code = Code(token, color=self._look.color)
        rows = [code.paint(line) for line in token.content.split("\n")[:-1]]
        self._add_rows([draw_rule(self._room, code.language, look=self._look), *rows], line=(token.map or [0])[0])
        self.rows.append(Text(self._margins[1]) + draw_rule(self._room, look=self._look))
        self.final += is_closed


def _is_continuation(line: str) -> bool:
    if line[:1].isalpha():
        return True
    # Without setext headings: the rows above are printed already, so they cannot become one.
    tokens = parser(setext=False).parse(f"x\n{line}\n")
    return [token.type for token in tokens] == _PARAGRAPH and tokens[0].map == [0, 2]


class MarkdownStream:
    """Markdown that arrives in pieces, as rows for the terminal."""

    def __init__(self, width: int, *, look: Look) -> None:
        """``width`` of a row; a screen that is narrower than ``LEAST_WIDTH`` wraps the rows itself."""
        self._width = max(LEAST_WIDTH, width)
        self._look = look
        self._word = ""
        self._rows: list[Text] = []
        self._line = ""
        """The words of the line that is not complete."""
        self._is_decided = False
        """Whether ``_is_text`` was asked about the line."""
        self._is_flowing = False
        """Whether the rest of the line belongs to the open paragraph."""
        self._leaf: _Paragraph | Code | None = None
        self._is_empty = True
        self._replace_source("")

    def _replace_source(self, source: str, *, given: int = 0, number: int = -1) -> None:
        """Keep ``source`` to parse it with the next line. Its first ``given`` rows are printed."""
        self._source = source
        self._given = given
        self._number = number
        self._held: Literal["", "text", "table", "other"] = ""
        """What block at the end of the source has rows that are not printed."""
        self._is_below_blank = source == "\n"
        # A long block is parsed again when it is a tenth longer, so the cost stays linear.
        self._parse_at = int(len(source) * 1.1) if len(source) > _SMALL_BLOCK else 0

    def feed(self, piece: str) -> list[Text]:
        """Return the rows that are final after ``piece``."""
        *ended, begun = (self._word + piece).split("\n")
        for line in ended:
            words, rest = _split_words(line)
            for word in [*words, f"{clean(rest)}\n"]:
                self._add_word(word)
        words, self._word = _split_words(begun)
        for word in words:
            self._add_word(word)
        rows, self._rows = self._rows, []
        return rows

    def end(self) -> list[Text]:
        """Return the rows that are left."""
        rows = self.feed("\n" if self._word or self._line else "")
        self._close_leaf()
        self._draw_source(is_end=True)
        return [*rows, *self._rows]

    @property
    def tail(self) -> str:
        """The start of the next row; the end of it, if that is longer than a row."""
        tail = self._line[-2 * self._width :] + clean(self._word)
        above = self._source[:-1].rpartition("\n")[2]
        if isinstance(self._leaf, _Paragraph):
            tail = self._leaf.tail + tail
        elif self._held == "table":
            count = self._source.strip("\n").count("\n") - 1
            tail = f"table, {format_count(count, 'row')}"
        elif self._held:
            tail = f"{above} {tail}" if self._held == "text" else tail or above
        if not isinstance(self._leaf, Code):
            tail = _LOUD.sub("", tail)
        return tail if len(tail) <= self._width else self._look.cut + tail[len(tail) - self._width :].partition(" ")[2]

    def _add_word(self, word: str) -> None:
        """Add the next word; the last one of a line ends in a line feed.

        Everything is decided word by word, so it does not matter in which pieces a text arrives.
        """
        is_end = word.endswith("\n")
        if self._is_flowing and isinstance(self._leaf, _Paragraph):
            self._add_rows(self._leaf.write(word))
            self._is_flowing = not is_end
            return
        self._line += word
        if is_end:
            line, self._line, self._is_decided = self._line[:-1], "", False
            self._add_line(line.expandtabs(4))
        elif len(self._line) > self._width and not self._is_decided:
            self._is_decided = True
            line = self._line.expandtabs(4)
            if self._is_text(line):
                self._line, self._is_decided, self._is_flowing = "", False, True
                self._add_line(line, is_whole=False)

    def _is_text(self, line: str) -> bool:
        """Return whether a line that begins like this belongs to a paragraph of the top level, whatever follows."""
        if isinstance(self._leaf, Code) or self._held == "table" or "|" in line or not _NO_SYMBOL.search(line):
            return False
        if isinstance(self._leaf, _Paragraph):
            return _is_continuation(line)
        tokens = parser().parse(self._source + line)
        return [token.type for token in tokens[-3:]] == _PARAGRAPH and tokens[-3].level == 0

    def _add_line(self, line: str, *, is_whole: bool = True) -> None:
        if isinstance(self._leaf, Code):
            if self._leaf.is_closed_by(line):
                self._close_leaf()
            else:
                self._add_rows([self._leaf.paint(line)])
            return
        if self._leaf is not None and self._extend(self._leaf, line, is_whole=is_whole):
            return
        self._close_leaf()
        # markdown-it drops text that is nested too deep; with its first mark escaped, the line is text.
        if _DEEP.match(line):
            tokens = parser().parse(f"{self._source}{line}\n")
            if max((token.level for token in tokens), default=0) >= DEEPEST - 1:
                line = re.sub(r"[-+*>.)]", r"\\\g<0>", line.strip(), count=1)
        # Models indent an item by two blanks where a number before it asks for three.
        above = _NUMBER.match(self._source)
        if above and _INDENTED_ITEM.match(line):
            line = " " * len(above[1]) + line.lstrip()
        self._source += f"{line}\n"
        self._draw_source(is_whole=is_whole)

    def _extend(self, paragraph: _Paragraph, line: str, *, is_whole: bool) -> bool:
        held, paragraph.held = paragraph.held, ""
        if held and parser().parse(f"{held}{line}\n")[0].type == "table_open":
            self._close_leaf()
            self._source = f"{held}{line}\n"
            self._draw_source()
            return True
        self._add_rows(paragraph.write(held))
        if not _is_continuation(line):
            return False
        text = line.lstrip() + ("\n" if is_whole else "")
        if is_whole and "|" in line:
            paragraph.held = text
        else:
            self._add_rows(paragraph.write(text))
        return True

    def _close_leaf(self) -> None:
        leaf, self._leaf = self._leaf, None
        if isinstance(leaf, _Paragraph):
            self._add_rows(leaf.end())
        elif leaf is not None:
            self._add_rows([draw_rule(self._width, look=self._look)])

    def _add_rows(self, rows: Sequence[Text]) -> None:
        """Print rows of a block of the top level, below a blank row if there is a blank line."""
        if rows:
            blank = [Text()] if self._is_below_blank else []
            self._rows += [*blank, *rows]
            self._is_below_blank = self._is_empty = False

    def _draw_source(self, *, is_whole: bool = True, is_end: bool = False) -> None:
        """Print the rows of the source that are final, and keep the source of the last block or list item only."""
        ends_table = self._held == "table" and self._source.endswith("\n\n")
        if len(self._source) < self._parse_at and not is_end and not ends_table:
            return
        tokens = parser().parse(self._source)
        if not tokens:
            self._replace_source("" if self._is_empty else "\n")  # blank lines do not begin a text
            return
        last = max(at for at, token in enumerate(tokens) if token.level == 0 and token.nesting >= 0)
        kind = tokens[last].type
        is_closed = is_end or (self._source.endswith("\n\n") and kind != "fence")
        is_apart = kind in {"paragraph_open", "fence", "table_open"} and not is_closed
        lines = self._source.split("\n")
        page = _Page(lines, width=self._width, look=self._look, number=self._number)
        page.draw(tokens[:last] if is_apart else tokens)
        is_final = is_apart or is_end or (is_closed and page.is_open)
        final = len(page.rows) if is_final else page.final
        self._is_empty = self._is_empty and not final
        self._rows += page.rows[self._given : final]
        if is_apart:
            start = (tokens[last].map or [0])[0]
            self._replace_source("\n" if start and not lines[start - 1].strip() else "")
            self._begin_apart(tokens[last], lines[start:-1], is_alone=last == 0, is_whole=is_whole)
        elif kind in {"heading_open", "hr"} or (is_closed and kind in {"paragraph_open", "table_open"}):
            self._replace_source("\n" if is_closed else "")
        else:
            line, row = page.last_unit
            line -= line > 0 and not lines[line - 1].strip()  # the blank line makes a blank row
            self._replace_source("\n".join(lines[line:]), given=final - row, number=page.number)
            self._held = "other" if page.is_open and not is_final else ""

    def _begin_apart(self, token: "Token", lines: Sequence[str], *, is_alone: bool, is_whole: bool) -> None:
        if token.type == "table_open":
            above = [self._source[:-1]] if self._source else []
            self._replace_source("\n".join([*above, *lines, ""]))
            self._held = "table"
        elif not is_alone:  # there may be more lines than one where a long list was not parsed with each
            for line in lines[:-1]:
                self._add_line(line)
            self._add_line(lines[-1], is_whole=is_whole)
        elif token.type == "fence":
            indent = len(lines[0]) - len(lines[0].lstrip(" "))
            self._leaf = Code(token, indent=indent, color=self._look.color)
            self._add_rows([draw_rule(self._width, self._leaf.language, look=self._look)])
            self._source = ""
        elif len(lines) == 1 and is_whole and (cell_len(lines[0]) <= self._width or "|" in lines[0]):
            # The next line may make a heading or the head of a table of this one.
            self._replace_source(f"{self._source}{lines[0]}\n")
            self._held = "text"
        else:
            self._source = ""
            self._leaf = _Paragraph(self._width, keeps_breaks=_TAG.match(lines[0].lstrip()) is not None)
            self._add_rows(self._leaf.write(lines[0].lstrip() + ("\n" if len(lines) > 1 or is_whole else "")))
            for number, line in enumerate(lines[1:], start=2):
                self._extend(self._leaf, line, is_whole=is_whole or number < len(lines))
