"""Lines from a terminal: prompt, keys, pastes, history, completion and the toolbar, by way of prompt_toolkit.

The user's own editor, for a text that is too long for the line.

What was typed before: kept in a private file of the project, long texts as chips again when they come back.

What keys do at the prompt, beside what prompt_toolkit's emacs and vi modes know already.

The line below the prompt: where the user is, what matters most in the moment if there is not room for all. Pure.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app_session
from prompt_toolkit.application.run_in_terminal import run_in_terminal
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory, ConditionalAutoSuggest
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER, EditingMode
from prompt_toolkit.filters import Condition, emacs_mode, has_focus, vi_navigation_mode
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth, is_dumb_terminal

from cdd_agent.errors import UsageError
from cdd_agent.repl.completion import Candidates, PromptCompleter, completes_file, lacks_argument
from cdd_agent.repl.paste import BurstInput, ChipProcessor, Pastes
from cdd_agent.repl.status_line import SYMBOLS, Place, Read, symbols_for
from cdd_agent.repl.typed_ahead import forget_typed_ahead
from cdd_agent.untrusted.text import clean

_USUAL = "vi"
"""Where neither ``VISUAL`` nor ``EDITOR`` names one."""
_NAME = "message.md"


def edited(text: str, *, environment: Mapping[str, str] = os.environ) -> str:
    """``text`` as the user leaves it in the editor, without the line feed that editors put at the end.

    It lies in a folder that nobody else can look into, and which is removed with all that the editor puts there.
    Raises ``UsageError`` if there is no such editor, if it ends with an error, if there is no room for the text, and
    if it cannot be read back.
    """
    named = environment.get("VISUAL") or environment.get("EDITOR") or _USUAL
    try:
        with tempfile.TemporaryDirectory(prefix="cdd-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / _NAME
            path.write_text(f"{text}\n" if text else "", encoding="utf-8", errors="replace", newline="\n")
            _edit([*_command(named), str(path)], named=named)
            content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The text for {named} cannot be put down, or is not where it was: {error.strerror}.",
            hint="save it where it was opened, and look with df -h whether a disk is full",
        ) from error
    return content.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")


def _command(named: str) -> list[str]:
    """The words of an editor's command line."""
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise UsageError(f"EDITOR={named} is no command: {error}.", hint="correct EDITOR, or VISUAL") from error
    return words or [_USUAL]


def _edit(argv: Sequence[str], *, named: str) -> None:
    """Run the editor in this terminal until it ends; Ctrl-C is for the editor alone."""
    try:
        process = subprocess.Popen(argv)
    except OSError as error:
        raise UsageError(
            f"The editor {named} cannot be started: {error.strerror}.", hint="set EDITOR to one that can"
        ) from error
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    if status:
        raise UsageError(f"{named} ended with status {status}; the text is as it was.", hint="try it once more")


MOST_READ_BYTES = 1_000_000
"""Of the file, from its end."""
MOST_KEPT_CHARACTERS = 50_000
"""Of one message; a longer one is remembered for this sitting only."""


class ProjectHistory(History):
    """A history in a file that may fail: what cannot be read or written is remembered for this sitting only.

    The file has the form of prompt_toolkit's own: ``# when``, then each line of a message behind a ``+``.
    """

    def __init__(self, path: Path | None, *, pastes: Pastes) -> None:
        """Without a ``path`` nothing outlives the sitting; ``pastes`` knows what the chips stand for."""
        super().__init__()
        self._path = path
        self._pastes = pastes
        self._is_draft = False

    def remember(self, text: str) -> None:
        """Take up what was typed and not sent: for this sitting, never for the file."""
        self._is_draft = True
        self.append_string(text)
        self._is_draft = False

    def load_history_strings(self) -> Iterable[str]:
        """The messages of earlier sittings, newest first."""
        return [self._pastes.folded(clean(text)) for text in reversed(_messages(self._tail()))]

    def store_string(self, string: str) -> None:
        """Keep a message, its pastes in full."""
        text = self._pastes.whole(string)
        if self._path is None or self._is_draft or len(text) > MOST_KEPT_CHARACTERS:
            return
        lines = "".join(f"+{line}\n" for line in text.split("\n"))
        entry = f"\n# {datetime.now()}\n{lines}".encode("utf-8", "replace")
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open(descriptor, "ab") as file:
                file.write(entry)

    def _tail(self) -> str:
        """The end of the file, from the beginning of a message on."""
        if self._path is None:
            return ""
        try:
            with open(self._path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - MOST_READ_BYTES))
                found = file.read(MOST_READ_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        return found if size <= MOST_READ_BYTES else found[found.find("\n#") + 1 :]


def _messages(text: str) -> list[str]:
    """The messages in the text of a history file, oldest first."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith("+"):
            found[-1].append(line[1:])
        elif found[-1]:
            found.append([])
    return ["\n".join(lines) for lines in found if lines]


CLEARED = "Cleared; the up arrow brings it back."


def prompt_keys(pastes: Pastes, history: ProjectHistory, *, say: Callable[[str], None]) -> KeyBindings:
    """The keys of the prompt; ``say`` shows a word to the user until the next key."""
    keys = KeyBindings()
    at_prompt = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=at_prompt)
    def _send(event: KeyPressEvent) -> None:
        if _may_send(event.current_buffer):
            event.current_buffer.validate_and_handle()

    @keys.add("c-j", filter=at_prompt)
    @keys.add("escape", "enter", filter=at_prompt & emacs_mode)
    def _break_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("<bracketed-paste>", filter=at_prompt)
    def _paste(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        event.current_buffer.insert_text(pastes.taken(text))

    @keys.add("c-c", filter=at_prompt)
    def _clear_or_stop(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if not buffer.text:
            event.app.exit(exception=KeyboardInterrupt(), style="class:aborting")
            return
        history.remember(buffer.text)
        buffer.reset()
        say(CLEARED)

    @keys.add("c-x", "c-e", filter=at_prompt)
    @keys.add("v", filter=at_prompt & vi_navigation_mode)
    def _edit(event: KeyPressEvent) -> None:
        event.app.create_background_task(_edit_in_terminal(event.current_buffer, pastes=pastes, say=say))

    return keys


def _may_send(buffer: Buffer) -> bool:
    """Whether Enter sends the line: not if it only takes a file from the menu, or a command that needs more."""
    is_chosen = buffer.complete_state is not None and buffer.complete_state.current_completion is not None
    buffer.complete_state = None
    if not is_chosen:
        return True
    if lacks_argument(buffer.text):
        buffer.insert_text(" ")
        return False
    return not completes_file(buffer.document.text_before_cursor)


async def _edit_in_terminal(buffer: Buffer, *, pastes: Pastes, say: Callable[[str], None]) -> None:
    """Let the user edit the line, its pastes in full, in an editor of theirs."""

    def edit() -> None:
        text = edited(pastes.whole(buffer.text))
        buffer.document = Document(text, len(text))  # before any key that was pressed meanwhile is read

    try:
        await run_in_terminal(edit)
    except UsageError as error:
        say(f"{error.happened} {error.hint[:1].upper()}{error.hint[1:]}.")


KEYS = "/help  Ctrl-D leaves"
NEARLY_FULL_PERCENT = 70
"""Of the model's context: from here on it matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One thing that is told."""

    text: str
    rank: int
    """What has the highest is left out first."""
    style: str = ""


def toolbar(place: Place, *, width: int, symbols: Mapping[str, str] = SYMBOLS) -> StyleAndTextTuples:
    """What ``place`` says in one row of ``width`` columns, with the keys to know where there is room for them."""
    parts = _parts(place, symbols)
    while len(parts) > 1 and _width(parts) > width:
        parts.remove(max(parts, key=lambda part: part.rank))
    if _width(parts) > width:
        return [(parts[0].style, f" {fitted(parts[0].text, width - 1, cut=symbols['cut'])}")]
    shown: StyleAndTextTuples = []
    for part in parts:
        shown += [("", " | " if shown else " "), (part.style, part.text)]
    room = width - _width(parts) - 1
    return [*shown, ("class:toolbar.keys", f"{KEYS:>{room}} ")] if room > len(KEYS) else shown


def fitted(text: str, width: int, *, cut: str = "…") -> str:
    """``text`` in one line of at most ``width`` columns.

    >>> fitted("in two\\nlines", 9), fitted("日本語", 5)
    ('in two l…', '日本…')
    """
    line = clean(" ".join(text.split()))
    if get_cwidth(line) <= width:
        return line
    while line and get_cwidth(line) > width - get_cwidth(cut):
        line = line[:-1]
    return line + cut if width > 0 else ""


def _parts(place: Place, symbols: Mapping[str, str]) -> list[_Part]:
    """What there is to tell, from left to right."""
    is_nearly_full = place.context_percent is not None and place.context_percent >= NEARLY_FULL_PERCENT
    is_bare = place.sandbox == "none"
    told = (
        _Part(text=place.agent, rank=0, style="class:toolbar.agent"),
        _Part(text=place.ticket, rank=4),
        _Part(text=f"step {place.step}" if place.step else "", rank=1),
        _gate(place, symbols),
        _Part(text=place.model, rank=7),
        _Part(
            text="" if place.context_percent is None else f"context {place.context_percent}%",
            rank=3 if is_nearly_full else 6,
            style="class:toolbar.warning" if is_nearly_full else "",
        ),
        _Part(text=place.cost, rank=5),
        _Part(
            text="no sandbox" if is_bare else f"sandbox {place.sandbox}" if place.sandbox else "",
            rank=8,
            style="class:toolbar.warning" if is_bare else "",
        ),
    )
    cleaned = ((part, clean(" ".join(part.text.split()))) for part in told)
    return [_Part(text=text, rank=part.rank, style=part.style) for part, text in cleaned if text]


def _gate(place: Place, symbols: Mapping[str, str]) -> _Part:
    """The phase, and what its gate says of it."""
    if place.gate not in ("open", "closed"):
        return _Part(text=place.phase, rank=2)
    text = f"{place.phase} {symbols[place.gate]} gate {place.gate}"
    return _Part(text=text, rank=2, style=f"class:toolbar.{place.gate}")


def _width(parts: list[_Part]) -> int:
    """Columns that the parts take, with what stands between them and a blank before."""
    return 1 + sum(get_cwidth(part.text) for part in parts) + 3 * (len(parts) - 1)


MENU_ROWS = 6
"""Kept free for the menu, if the terminal has them."""
ESCAPE_S = 0.05
"""How long the rest of a key's sequence is waited for behind an Escape."""

_STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse bg:#303030 #d0d0d0",
        "toolbar.agent": "bold ansibrightcyan",
        "toolbar.open": "ansibrightgreen",
        "toolbar.closed": "bold ansibrightred",
        "toolbar.warning": "ansibrightyellow",
        "toolbar.keys": "#909090",
        "agent": "bold ansicyan",
        "mark": "bold",
        "chip": "reverse",
    }
)
_MODES: Mapping[str, EditingMode] = {"emacs": EditingMode.EMACS, "vi": EditingMode.VI}


def terminal_reader(
    history: Path | None,
    *,
    candidates: Candidates,
    model: str = "",
    color: bool | None = None,
    editing_mode: Literal["emacs", "vi"] = "emacs",
) -> Read:
    """Reads messages at the terminal; without ``history`` they are remembered for this sitting only.

    ``model`` is told where the place names none. A terminal that can move no cursor is read line by line.
    """
    if is_dumb_terminal():
        return _read_plainly
    prompt = _Prompt(history, candidates=candidates, color=color, editing_mode=editing_mode)
    return lambda place: prompt.read(place if place.model else replace(place, model=model))


def _readable(text: str) -> str:
    """``text`` with bytes that the terminal's encoding does not know taken for UTF-8, as they nearly always are."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_plainly(place: Place) -> str:
    """A line from a terminal that does the editing itself, or none."""
    forget_typed_ahead()
    return _readable(input(f"{clean(' '.join([place.agent, place.ticket]).rstrip())}> "))


class _Prompt:
    """One prompt, used again for each message of a sitting."""

    def __init__(
        self,
        history: Path | None,
        *,
        candidates: Candidates,
        color: bool | None,
        editing_mode: Literal["emacs", "vi"],
    ) -> None:
        self._place = Place()
        self._pastes = Pastes()
        kept = ProjectHistory(history, pastes=self._pastes)
        self._session: PromptSession[str] = PromptSession(
            self._message,
            input=BurstInput(get_app_session().input),
            history=kept,
            auto_suggest=ConditionalAutoSuggest(AutoSuggestFromHistory(), Condition(self._has_colors)),
            completer=PromptCompleter(candidates, place=lambda: self._place),
            complete_while_typing=True,
            key_bindings=prompt_keys(self._pastes, kept, say=self._say),
            input_processors=[ChipProcessor(self._pastes), TabsProcessor(char1=" ", char2=" ")],
            prompt_continuation=lambda width, line, wrapped: " " * width,
            bottom_toolbar=self._toolbar,
            editing_mode=_MODES[editing_mode],
            cursor=ModalCursorShapeConfig() if editing_mode == "vi" else None,
            enable_suspend=True,
            style=_STYLE,
            color_depth=ColorDepth.DEPTH_1_BIT if color is False else None,
        )
        app = self._session.app
        app.ttimeoutlen = ESCAPE_S
        app.before_render += self._fit
        app.renderer.cpr_not_supported_callback = app.invalidate
        app.renderer.erase = _erase_reflowed(app)  # type: ignore[method-assign]
        app.key_processor.before_key_press += lambda _: self._say("")
        self._told = ""

    def read(self, place: Place) -> str:
        """The next message, its pastes in full."""
        self._place = place
        self._say("")
        forget_typed_ahead()
        clear_typeahead(self._session.app.input)
        return _readable(self._pastes.whole(self._session.prompt()))

    def _has_colors(self) -> bool:
        """Whether a suggestion can be told from what was typed."""
        return self._session.app.color_depth != ColorDepth.DEPTH_1_BIT

    def _say(self, told: str) -> None:
        """Show ``told`` in the place of the toolbar until the next key."""
        self._told = told

    @property
    def _columns(self) -> int:
        return self._session.app.output.get_size().columns

    def _message(self) -> StyleAndTextTuples:
        """Who listens, and about which ticket, if that leaves room to type."""
        agent, ticket = clean(self._place.agent), clean(self._place.ticket)
        has_room = ticket and get_cwidth(f"{agent} {ticket}> ") <= self._columns // 2
        return [("class:agent", agent), ("", f" {ticket}" if has_room else ""), ("class:mark", "> ")]

    def _toolbar(self) -> StyleAndTextTuples:
        """What was said last, or where the user is."""
        symbols = symbols_for(self._session.app.output.encoding())
        if self._told:
            return [("class:toolbar.warning", f" {fitted(self._told, self._columns - 1, cut=symbols['cut'])}")]
        return toolbar(self._place, width=self._columns, symbols=symbols)

    def _fit(self, app: "Application[str]") -> None:
        """Take the terminal for what it is before it is drawn on: perhaps low, perhaps one that never says where it is.

        The toolbar is drawn once the rows below the cursor are known. Where the terminal does not tell, it is taken
        for being in the last row, which is never wrong: drawing more scrolls.
        """
        rows = app.output.get_size().rows
        self._session.reserve_space_for_menu = max(1, min(MENU_ROWS, rows - 2))
        renderer = app.renderer
        if renderer.cpr_support == CPR_Support.NOT_SUPPORTED and not renderer.height_is_known:
            renderer.report_absolute_cursor_row(rows)
            renderer.cpr_support = CPR_Support.NOT_SUPPORTED


def _erase_reflowed(app: "Application[str]") -> Callable[..., None]:
    """What takes the prompt off the screen, all of its rows, when a narrower window has broken them into more.

    prompt_toolkit goes up as many rows as it has drawn, and would leave the first ones behind.
    """
    erase = app.renderer.erase

    def erase_all(leave_alternate_screen: bool = True) -> None:
        screen = app.renderer.last_rendered_screen
        if screen is not None and reflows(os.environ):
            cursor = screen.get_cursor_position(app.layout.current_window)
            widths = [max(screen.data_buffer[row], default=0) + 1 for row in range(cursor.y)]
            app.output.cursor_up(added_rows(widths, cursor.x, columns=app.output.get_size().columns))
        erase(leave_alternate_screen)

    return erase_all


def added_rows(widths: Sequence[int], cursor_x: int, *, columns: int) -> int:
    """How many rows the cursor stands lower once rows of these ``widths`` above it, and its own, are broken.

    >>> added_rows([100, 60], 70, columns=60)
    2
    """
    return sum((width - 1) // columns for width in widths if width) + cursor_x // columns


def reflows(environment: Mapping[str, str]) -> bool:
    """Whether the terminal breaks rows that have become too long, as nearly all do; the others cut them."""
    cuts = "XTERM_VERSION" in environment or "STY" in environment or environment.get("TERM") == "linux"
    return "TMUX" in environment or not cuts
