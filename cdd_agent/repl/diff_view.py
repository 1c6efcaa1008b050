"""The diff viewer: one step or commit on the whole screen, with its comments and the reviewer's decision.

Only the visible rows are drawn, so a key takes as long in a diff of ten lines as in one of ten thousand.
"""

import gc
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.containers import ConditionalContainer, HSplit, VSplit, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl, UIContent, UIControl
from prompt_toolkit.styles import Style

from cdd_agent.errors import UsageError, format_count
from cdd_agent.repl.diff_rows import DiffRows, PlacedComment, Row, clean_line
from cdd_agent.review import WHOLE, Anchors, Comments, Place, Side
from cdd_agent.runs.review import StepToReview

Action: TypeAlias = Literal["approve", "iterate", "fork", "leave"]
ACTIONS: frozenset[Action] = frozenset({"approve", "iterate", "fork"})
"""The decisions about a step; ``leave`` is always possible."""

_MARGIN = 3
"""Rows that stay visible above and below the cursor."""
_SIDEWAYS = 8
_ESCAPE_S = 0.05
"""After this time, a lone Escape is the key, and not the beginning of another one."""
_STYLE = Style.from_dict(
    {
        "bar": "reverse",
        "strong": "bold",
        "number": "ansibrightblack",
        "added": "ansigreen",
        "removed": "ansired",
        "added.word": "bg:ansigreen ansiblack",
        "removed.word": "bg:ansired ansiblack",
        "hunk": "ansicyan",
        "file": "bold ansicyan",
        "comment": "ansiyellow",
        "comment.head": "bold ansiyellow",
        "good": "ansigreen",
        "selected": "bold ansimagenta",
        "code.comment": "ansibrightblack italic",
        "code.keyword": "ansiblue",
        "code.builtin": "ansicyan",
        "code.name": "bold",
        "code.number": "ansimagenta",
        "code.string": "ansiyellow",
    }
)
# With the keys before it, each text fits in 60 columns.
HELP = (
    ("j k, arrows", "down, up"),
    ("PageDown PageUp", "a page down, up; Space too"),
    ("g G", "to the top, to the end"),
    (":N", "to line N of the file"),
    ("Tab, Shift-Tab", "next, previous file"),
    ("n N", "next, previous hunk or comment"),
    ("left right", "move long lines sideways"),
    ("/", "search; / and Enter searches on"),
    ("Enter", "open a file; fold or unfold it, a comment"),
    ("v", "begin a range of lines, or end it"),
    ("c", "comment on line or range; at the top: all"),
    ("r e", "reply to the comment, edit it"),
    ("x", "resolve the comment, or open it again"),
    ("a", "approve the step"),
    ("i", "run the step again: your words, comments"),
    ("f", "fork: try another way beside this one"),
    ("q", "leave and decide nothing"),
)
_LABELS = {
    "comment": "Comment: ",
    "reply": "Reply: ",
    "edit": "Comment: ",
    "iterate": "What should change? ",
    "fork": "What should be done in another way? ",
    "search": "/",
    "line": ":",
}
"""What is typed at the bottom -> what stands before it."""


class ReviewDecision(NamedTuple):
    """How the user left the viewer."""

    action: Action
    text: str = ""
    """What should change."""


class _VisibleRows(UIControl):
    """The visible rows."""

    def __init__(self, draw: Callable[[int, int], list[StyleAndTextTuples]]) -> None:
        self._draw = draw

    def is_focusable(self) -> bool:
        """Return that keys come here."""
        return True

    def create_content(self, width: int, height: int) -> UIContent:
        """Return exactly as many rows as fit."""
        rows = self._draw(width, height)
        return UIContent(get_line=lambda at: rows[at], line_count=len(rows), show_cursor=False)


class DiffView:
    """The viewer. ``run`` returns when the user has decided or leaves."""

    def __init__(
        self,
        step: StepToReview,
        *,
        head: Sequence[str],
        comments: Comments,
        ticket: str = "",
        actions: frozenset[Action] = frozenset(),
    ) -> None:
        """Make the rows of ``step``, with ``head`` above them: its commits and their evidence.

        With a ``ticket``, its comments on the step are shown; without one, those on the changed files.
        """
        self._step = step
        self._commit = step.commits[-1].commit
        self._ticket = ticket
        self._actions = actions
        self._comments = comments
        self._shown = DiffRows(step.files, head=head)
        self._anchors: Mapping[Side, Anchors] = {
            "new": Anchors(comments.repository, self._commit),
            "old": Anchors(comments.repository, step.base),
        }
        self._folded: set[str] = set()
        self._width, self._height = 80, 24
        self._cursor = self._top = self._left = 0
        self._from: int | None = None
        """Where the range begins."""
        self._mode = ""
        """A key of ``_LABELS`` while the user types; ``help`` while the keys are shown."""
        self._message = ""
        self._searched = ""
        self._input = Buffer(multiline=False)
        self._load_comments(first=True)
        self.application = self._make_application()

    def run(self) -> ReviewDecision:
        """Show the changes until the user leaves, and return the decision."""
        self._shown.draw(self._rows[-1])  # loads the colors of a language, which the first key should not wait for
        # Otherwise a full garbage collection delays some key by 0.1 s. The rows stay until the end anyway.
        gc.freeze()
        try:
            return self.application.run()
        finally:
            gc.unfreeze()

    # Content.

    def _load_comments(self, *, first: bool = False) -> None:
        if self._ticket:
            found = self._comments.list_of_step(self._ticket, self._step.number)
        else:
            found = self._comments.list_all()
        placed = [PlacedComment(comment, self._anchors[comment.side].find(comment)) for comment in found]
        paths = {path for file in self._step.files for path in (file.path, file.old_path)}
        if not self._ticket:  # comments on other changes are not for this one
            placed = [each for each in placed if each.comment.commit == self._commit or _is_in(each, paths)]
        if first:
            self._folded |= {comment.id for comment, _ in placed if comment.resolved}
        self._placed = placed
        self._build()

    def _build(self) -> None:
        """Make the rows anew; the cursor stays on its line, file or comment."""
        before = self._rows[self._cursor : self._cursor + 1]
        self._shown.build(self._placed, folded=self._folded, width=self._width)
        near = [
            (at, row) for old in before for at, row in enumerate(self._rows) if (row.file, row.at) == (old.file, old.at)
        ]
        same = [at for at, row in near if row.is_like(before[0])]
        last = len(self._rows) - 1
        self._cursor = min(same or [min(self._cursor, last)], key=lambda at: abs(at - self._cursor))

    @property
    def _rows(self) -> list[Row]:
        return self._shown.rows

    @property
    def _row(self) -> Row:
        return self._rows[self._cursor]

    def _draw(self, width: int, height: int) -> list[StyleAndTextTuples]:
        if self._mode == "help":
            return [[("bold", f"  {keys:<17}"), ("", text)] for keys, text in HELP[:height]]
        if width != self._width:
            self._width = width
            self._build()
        self._height = height
        self._scroll()
        drawn: list[StyleAndTextTuples] = []
        selected = self._find_selection()
        for at in range(self._top, min(self._top + height, len(self._rows))):
            mark = ">" if at == self._cursor else "|" if at in selected else " "
            drawn.append([("class:selected", mark), *self._shown.draw(self._rows[at], left=self._left)])
        return drawn or [[("", "")]]

    def _scroll(self) -> None:
        margin = min(_MARGIN, max(0, (self._height - 1) // 2))
        lowest, highest = self._cursor - self._height + 1 + margin, self._cursor - margin
        self._top = max(0, min(max(self._top, lowest), highest, max(0, len(self._rows) - self._height)))

    def _find_selection(self) -> range:
        if self._from is None:
            return range(self._cursor, self._cursor + 1)
        first, last = sorted((self._from, self._cursor))
        return range(first, last + 1)

    def _format_title(self) -> StyleAndTextTuples:
        row = self._row
        where = clean_line(self._step.files[row.file].path) if row.file >= 0 else ""
        count = sum(not placed.comment.resolved for placed in self._placed)
        parts = (where, format_count(count, "open comment") if count else "", clean_line(self._step.heading))
        return [("", " " + "   ".join(filter(None, parts)))]

    def _format_status(self) -> StyleAndTextTuples:
        if self._message:
            return [("bold", f" {self._message}")]
        names = {"approve": "a approve", "iterate": "i iterate", "fork": "f fork"}
        choices = [text for action, text in names.items() if action in self._actions]
        keys = [f"{self._cursor + 1}/{len(self._rows)}", *choices, "c comment", "? keys", "q leave"]
        if len("  ".join(keys)) >= self.application.output.get_size().columns:
            keys.remove("c comment")  # the other keys are shown by ?, so it must not be cut off
        return [("", f" {'  '.join(keys)}")]

    # Keys.

    def _make_application(self) -> Application[ReviewDecision]:
        is_typing = Condition(lambda: self._mode in _LABELS)
        bindings = KeyBindings()
        for names, act in self._list_keys():
            for name in names:
                bindings.add(name, filter=~is_typing)(self._make_handler(act))
        bindings.add("enter", filter=is_typing)(lambda _: self._finish_input())
        bindings.add("escape", filter=is_typing, eager=True)(lambda _: self._stop_input())
        bindings.add("c-c", filter=is_typing)(lambda _: self._stop_input())
        self._body = Window(_VisibleRows(self._draw), wrap_lines=False)
        self._typed = Window(BufferControl(self._input), height=1)
        label = Window(
            FormattedTextControl(lambda: [("bold", _LABELS.get(self._mode, ""))]), dont_extend_width=True, height=1
        )
        layout = HSplit(
            [
                Window(FormattedTextControl(self._format_title), height=1, style="class:bar"),
                self._body,
                ConditionalContainer(
                    # A message may need more than one row of a narrow screen.
                    Window(
                        FormattedTextControl(self._format_status),
                        wrap_lines=True,
                        dont_extend_height=True,
                        style="class:bar",
                    ),
                    filter=~is_typing,
                ),
                ConditionalContainer(VSplit([label, self._typed]), filter=is_typing),
            ]
        )
        application: Application[ReviewDecision] = Application(
            layout=Layout(layout, focused_element=self._body), key_bindings=bindings, style=_STYLE, full_screen=True
        )
        application.ttimeoutlen = _ESCAPE_S
        return application

    def _list_keys(self) -> Sequence[tuple[tuple[str, ...], Callable[[], object]]]:
        return (
            (("j", "down"), lambda: self._go(self._cursor + 1)),
            (("k", "up"), lambda: self._go(self._cursor - 1)),
            (("pagedown", " ", "c-f"), lambda: self._go(self._cursor + max(1, self._height - 2))),
            (("pageup", "c-b"), lambda: self._go(self._cursor - max(1, self._height - 2))),
            (("g", "home"), lambda: self._go(0)),
            (("G", "end"), lambda: self._go(len(self._rows) - 1)),
            (("right",), lambda: self._shift(_SIDEWAYS)),
            (("left",), lambda: self._shift(-_SIDEWAYS)),
            (("tab",), lambda: self._find(1, self._is_file)),
            (("s-tab",), lambda: self._find(-1, self._is_file)),
            (("n",), lambda: self._find(1, self._is_stop)),
            (("N",), lambda: self._find(-1, self._is_stop)),
            (("enter",), self._open),
            (("v",), self._select),
            (("c",), lambda: self._begin_input("comment")),
            (("r",), lambda: self._begin_input("reply")),
            (("e",), lambda: self._begin_input("edit")),
            (("x",), self._resolve),
            (("a",), lambda: self._decide("approve")),
            (("i",), lambda: self._decide("iterate")),
            (("f",), lambda: self._decide("fork")),
            (("/",), lambda: self._begin_input("search")),
            ((":",), lambda: self._begin_input("line")),
            (("?",), self._show_help),
            (("q", "c-c", "escape"), self._leave),
        )

    def _make_handler(self, act: Callable[[], object]) -> Callable[[KeyPressEvent], None]:
        def handle(_: KeyPressEvent) -> None:
            if self._mode == "help":
                self._mode = ""
            else:
                self._try(act)

        return handle

    def _try(self, act: Callable[[], object]) -> None:
        self._message = ""
        try:
            act()
        except UsageError as error:
            self._message = f"{error.happened} {error.hint}"

    def _go(self, to: int) -> None:
        self._cursor = max(0, min(to, len(self._rows) - 1))

    def _shift(self, by: int) -> None:
        self._left = max(0, self._left + by)

    @staticmethod
    def _is_file(row: Row) -> bool:
        return row.kind == "file"

    @staticmethod
    def _is_stop(row: Row) -> bool:
        return row.kind == "hunk" or (row.kind == "comment" and row.is_first)

    def _find(self, step: int, is_wanted: Callable[[Row], bool]) -> None:
        rows, last = self._rows, len(self._rows) if step > 0 else -1
        at = next((at for at in range(self._cursor + step, last, step) if is_wanted(rows[at])), None)
        if at is not None:
            self._go(at)
            self._top = max(0, at - _MARGIN)
        else:
            self._message = "No more below." if step > 0 else "No more above."

    def _open(self) -> None:
        row = self._row
        if row.kind == "entry":
            self._go(next(at for at, each in enumerate(self._rows) if each.kind == "file" and each.file == row.file))
            self._top = self._cursor
            return
        if row.kind not in ("file", "comment"):
            self._message = "Enter opens files and comments."
            return
        self._folded ^= {row.comment or self._step.files[row.file].path}
        while row.kind == "comment" and not self._row.is_first:
            self._cursor -= 1
        self._build()

    def _select(self) -> None:
        self._from = self._cursor if self._from is None else None

    def _show_help(self) -> None:
        self._mode = "help"

    def _leave(self) -> None:
        if self._from is not None:
            self._from = None
        else:
            self.application.exit(result=ReviewDecision("leave"))

    def _decide(self, action: Action) -> None:
        if action not in self._actions:
            self._message = f"You cannot {action} here."
        elif action in ("iterate", "fork"):
            self._begin_input(action)
        else:
            self.application.exit(result=ReviewDecision(action))

    # Comments.

    def _find_comment(self) -> str:
        """Return the comment at the cursor, or below the line."""
        below = self._rows[self._cursor : self._cursor + 2]
        if found := next((row.comment for row in below if row.comment), ""):
            return found
        raise UsageError("There is nothing to answer here.", hint="n goes to the next one, c writes one.")

    def _approach_line(self) -> None:
        """Move from a heading to the line below it, or from a comment to the line above it."""
        if self._from is not None or self._row.kind not in ("file", "hunk", "comment"):
            return
        step = -1 if self._row.kind == "comment" else 1
        own = itertools.takewhile(lambda row: row.file == self._row.file, self._rows[self._cursor :: step])
        distance = next((count for count, row in enumerate(own) if row.kind == "line"), 0)
        self._go(self._cursor + step * distance)

    def _find_place(self) -> tuple[Place, Side]:
        """Return the lines of the range, or the one at the cursor. Added lines count more than removed ones."""
        rows = [self._rows[at] for at in self._find_selection()]
        if self._from is None and (self._row.file < 0 or self._row.kind == "entry"):
            return WHOLE, "new"
        lines = [line for row in rows if row.kind == "line" and (line := self._shown.find_line(row)) is not None]
        if not lines or len({row.file for row in rows}) > 1:
            hint = "Move to a line; g, then c: for all of it." if self._from is None else "Escape ends the range."
            raise UsageError("A comment is for lines of one file.", hint=hint)
        file = self._step.files[rows[0].file]
        new = [line.new for line in lines if line.new is not None]
        old = [line.old for line in lines if line.old is not None]
        return (Place(file.path, new[0], new[-1]), "new") if new else (Place(file.old_path, old[0], old[-1]), "old")

    def _resolve(self) -> None:
        comment = self._comments.find(self._find_comment())
        self._comments.resolve(comment.id, resolved=not comment.resolved)
        self._message = "Open again." if comment.resolved else "Resolved."
        self._load_comments()

    def _begin_input(self, mode: str) -> None:
        try:
            comment = self._comments.find(self._find_comment()) if mode in ("reply", "edit") else None
        except UsageError:  # a new comment, because the words that the user types next must not act as keys
            mode, comment = "comment", None
        if mode == "comment":
            self._approach_line()
            self._find_place()  # refuse before the user types
        self._mode = mode
        self._input.reset()
        if comment is not None and mode == "edit":
            self._input.insert_text(" ".join(comment.text.split()))
        self.application.layout.focus(self._typed)

    def _stop_input(self) -> None:
        self._mode = ""
        self.application.layout.focus(self._body)

    def _finish_input(self) -> None:
        mode, text = self._mode, self._input.text.strip()
        self._stop_input()
        self._try(lambda: self._carry_out(mode, text))

    def _carry_out(self, mode: str, text: str) -> None:
        match mode:
            case "search":
                self._searched = text or self._searched
                word = self._searched.lower()
                self._find(1, lambda row: word in row.text.lower())
            case "line" if text.isdecimal() and (file := max(0, self._row.file)) < len(self._step.files):
                found = self._shown.find_number(file, int(text))
                self._go(self._cursor if found is None else found)
            case "line" if text:
                raise UsageError(f"{text!r} is not the number of a line.", hint="For example: :12")
            case "comment" if text:
                place, side = self._find_place()
                base = self._step.base if side == "old" else None
                added = self._comments.add(place, text, commit=self._commit, side=side, base=base)
                self._from = None
                self._load_comments()
                # On the comment, so that e and r are about this one.
                own = (at for at, row in enumerate(self._rows) if row.comment == added.id and row.is_first)
                self._go(next(own, self._cursor))
            case "reply" if text:
                self._comments.reply(self._find_comment(), text)
                self._load_comments()
            case "edit" if text:
                self._comments.edit(self._find_comment(), text)
                self._load_comments()
            case "iterate":
                if not text and not any(not placed.comment.resolved for placed in self._placed):
                    raise UsageError("Nothing should change.", hint="Say what, or comment on lines with c.")
                self.application.exit(result=ReviewDecision("iterate", text))
            case "fork" if text:
                self.application.exit(result=ReviewDecision("fork", text))


def _is_in(placed: PlacedComment, paths: set[str]) -> bool:
    return placed.place is not None and placed.place.path in paths
