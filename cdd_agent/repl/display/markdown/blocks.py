"""Which block a line of Markdown belongs to, decided line by line as CommonMark says, and the rows that come of it.

markdown-it reads the marks inside a block, but not the blocks: it reads a whole text at once, and could only begin
anew with every piece. As CommonMark's blocks are defined from one line to the next, they are followed here instead.
"""

import re

from rich.text import Text

from cdd_agent.repl.display.markdown import code, table
from cdd_agent.repl.display.markdown.containers import RULE, Item, begun, blanks, continued, take_task
from cdd_agent.repl.display.markdown.look import Look
from cdd_agent.repl.display.markdown.page import Page
from cdd_agent.repl.display.markdown.paragraph import Paragraph

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*(.*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?: (.*)|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+) *$")
_UNDECIDED = re.compile(r"[-=*_+|:>#`~]+$|\||`{3}|~{3}")
"""First words of lines that can be something else than text: what they are is decided when they are complete."""
_TASK_BEGUN = re.compile(r"\[[ xX]?\]? *$")
_TAIL_WORDS = 200


class _Fence:
    """A block of code that is open."""

    def __init__(self, found: re.Match[str], *, indent: int, color: bool) -> None:
        self._mark = found[1]
        self._indent = indent
        self.language = code.language(found[2])
        self._paint = code.paint(found[2], color=color)

    def line(self, line: str) -> Text:
        """A line of code."""
        return self._paint(line[min(self._indent, blanks(line)) :])

    def is_closed_by(self, line: str) -> bool:
        """Whether ``line`` is the other fence: at least as long, with nothing after it."""
        found = _FENCE.match(line)
        return found is not None and not found[2].strip() and found[1].startswith(self._mark)


Leaf = Paragraph | table.Table | _Fence


class Blocks:
    """The block that is open."""

    def __init__(self, *, width: int, look: Look) -> None:
        """``width`` of a row."""
        self._page = Page(width=width, look=look)
        self._leaf: Leaf | None = None
        self._line: list[str] = []
        """The words of a line of which it is not decided yet what it is."""
        self._waits = False
        """Whether that is decided when the line is complete, not before."""
        self._is_flowing = False
        """Whether the rest of the line belongs to the paragraph."""

    def write(self, word: str) -> None:
        """Take the next word; the last one of a line ends in a line feed."""
        is_end = word.endswith("\n")
        if self._is_flowing and isinstance(self._leaf, Paragraph):
            self._page.put(self._leaf.write(word))
            self._is_flowing = not is_end
            return
        self._line.append(word)
        if is_end:
            line, self._line, self._waits = "".join(self._line)[:-1], [], False
            self._take(line.expandtabs(4), is_whole=True)
        elif not self._waits:
            line = "".join(self._line).expandtabs(4)
            is_text = self._is_text(line)
            self._waits = is_text is False
            if is_text:
                self._line = []
                self._take(line, is_whole=False)
                self._is_flowing = True

    def rows(self) -> list[Text]:
        """What was given out since the last time."""
        return self._page.rows()

    def end(self) -> None:
        """The text is over."""
        self._close_leaf()
        self._page.end()

    def tail(self, begun: str) -> str:
        """What has come of the next row, ``begun`` being the beginning of a word."""
        line = "".join(self._line[-_TAIL_WORDS:])
        match self._leaf:
            case table.Table(count=count):
                return self._page.margins[0] + f"table, {count} {'row' if count == 1 else 'rows'}"
            case Paragraph() as paragraph if self._is_flowing or not line:
                return self._page.margins[0] + paragraph.tail(begun)
            case _:
                return line + begun

    def _is_text(self, line: str) -> bool | None:
        """Whether a line that begins so is text of a paragraph whatever follows; None: more has to come."""
        if isinstance(self._leaf, _Fence):
            return False
        containers = self._page.open
        matched, at = continued(line, containers)
        in_paragraph = isinstance(self._leaf, Paragraph)
        new, at = begun(line, at, in_paragraph=in_paragraph and matched == len(containers), depth=matched)
        rest = line[at:].lstrip()
        if not rest or _TASK_BEGUN.match(rest):
            return None
        is_indented = blanks(line, at) >= 4 and (bool(new) or not in_paragraph)
        return not is_indented and not _UNDECIDED.match(rest.split(" ", 1)[0])

    def _take(self, line: str, *, is_whole: bool) -> None:
        """Put a line, or the beginning of one that is text, where it belongs."""
        containers = self._page.open
        matched, at = continued(line, containers)
        if isinstance(self._leaf, _Fence):
            is_inside = matched == len(containers)
            if is_inside and not self._leaf.is_closed_by(line[at:]):
                self._page.put([self._leaf.line(line[at:])])
                return
            self._close_leaf()
            if is_inside:
                return
        in_paragraph = isinstance(self._leaf, Paragraph)
        new, at = begun(line, at, in_paragraph=in_paragraph and matched == len(containers), depth=matched)
        rest = line[at:]
        is_blank = not rest.strip()
        is_lazy = in_paragraph and not new and not is_blank and matched < len(containers) and not _is_other(rest)
        if is_blank or (not is_lazy and (new or matched < len(containers))):
            self._close_leaf()
        if is_blank and not new:
            self._page.blank(matched)
        elif not is_lazy:
            self._page.begin(matched, new)
        if not is_blank:
            self._put(rest, is_whole=is_whole, is_lazy=is_lazy)

    def _put(self, rest: str, *, is_whole: bool, is_lazy: bool) -> None:
        """The content of a line: of an open leaf, or the beginning of one."""
        leaf = self._leaf
        if is_whole and not is_lazy and isinstance(leaf, Paragraph) and self._turns(leaf, rest):
            return
        if isinstance(leaf, table.Table) and "|" in rest and not _is_other(rest):
            self._page.put(leaf.add(rest))
        elif is_whole and not is_lazy and _is_other(rest):
            self._close_leaf()
            self._other(rest)
        elif not isinstance(leaf, Paragraph) and blanks(rest) >= 4:
            self._close_leaf()
            self._page.put([Text(rest[4:])])
        else:
            self._text(rest.lstrip(), is_whole=is_whole)

    def _other(self, rest: str) -> None:
        """Begin a block that is neither text nor a table: a heading, code, or a rule, which has no content."""
        fence, heading = _FENCE.match(rest), _HEADING.match(rest)
        if fence is not None:
            self._leaf = _Fence(fence, indent=blanks(rest), color=self._page.look.color)
            self._page.put_rule(self._leaf.language)
        elif heading:
            text = (heading[2] or "").strip()
            without = text.rstrip("#")
            self._page.put_heading(
                text if without.rstrip() == without != "" else without.rstrip(), level=len(heading[1])
            )
        else:
            self._page.put_rule()

    def _turns(self, paragraph: Paragraph, rest: str) -> bool:
        """Whether ``rest`` makes a heading or the head of a table of the line before it, which was held back."""
        head = (paragraph.held or "").strip()
        sides = table.sides(head, rest)
        underline = _UNDERLINE.match(rest) if paragraph.is_first_line else None
        if not head or (sides is None and underline is None):
            return False
        paragraph.held = None
        self._close_leaf()
        if sides is not None:
            self._leaf = table.Table(table.cells(head), sides, self._page.room, self._page.look)
        elif underline is not None:
            self._page.put_heading(head, level=1 if underline[1].startswith("=") else 2)
        return True

    def _text(self, text: str, *, is_whole: bool) -> None:
        """A line of a paragraph, or the beginning of one."""
        if isinstance(self._leaf, Paragraph):
            self._page.put(self._leaf.next_line(held=text.startswith("|")))
        else:
            self._close_leaf()
            item = self._page.open[-1] if self._page.open else None
            if isinstance(item, Item) and not item.is_shown:
                text = take_task(item, text)
            self._leaf = Paragraph(self._page.room)
        self._page.put(self._leaf.write(text + "\n" if is_whole else text))

    def _close_leaf(self) -> None:
        """Give out what the open leaf kept back."""
        leaf, self._leaf = self._leaf, None
        if isinstance(leaf, _Fence):
            self._page.put_rule()
        elif leaf is not None:
            self._page.put(leaf.end())


def _is_other(rest: str) -> bool:
    """Whether a line begins a block that is neither text nor a table."""
    fence = _FENCE.match(rest)
    is_fence = fence is not None and not (fence[1].startswith("`") and "`" in fence[2])
    return is_fence or bool(_HEADING.match(rest) or RULE.match(rest))
