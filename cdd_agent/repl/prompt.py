"""The prompt at the terminal, on prompt_toolkit: keys, history, external editor, completion and the toolbar.

Pastes are recognized by speed, and long ones become chips in the line. A terminal without bracketed paste sends a paste
as keys, whose first Enter would send the first line. Text among keys that arrive together therefore counts as a paste.
"""

import contextlib
import os
import re
import select
import shlex
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple, cast

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.application import Application, get_app_session
from prompt_toolkit.application.run_in_terminal import run_in_terminal
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory, ConditionalAutoSuggest
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER, EditingMode
from prompt_toolkit.filters import Condition, emacs_mode, has_focus, vi_navigation_mode
from prompt_toolkit.formatted_text import FormattedText, StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, TabsProcessor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth, is_dumb_terminal

from cdd_agent.errors import UsageError
from cdd_agent.repl.completion import Candidates, PromptCompleter, is_file_prefix, is_missing_argument
from cdd_agent.repl.terminal import (
    BURST_S,
    KEYBOARD,
    SHORTEST_PASTE,
    SYMBOLS,
    PromptStatus,
    ReadLine,
    choose_symbols,
    wait_for,
)
from cdd_agent.untrusted.text import clean

MOST_KEYS = 100_000
LONGEST_TYPED = 32
"""A longer run of text is a paste, even without a line break."""
LONG_LINES = 15
LONG_CHARACTERS = 1_000
"""A paste with this many lines or characters becomes a chip."""
_SHORT_LINE = 80
"""A first line of at most this length is shown beside the chip of an old message."""

_ENTER = KeyPress(Keys.ControlM, "\r")
_LINE_FEED = KeyPress(Keys.ControlJ, "\n")
_LINE_ENDS = (Keys.ControlM, Keys.ControlJ)

# Private-use characters: no font draws them and no text contains them. The nth represents the nth chip.
_FIRST_MARK = 0x100000
_LAST_MARK = 0x10FFFD
_MARK = re.compile(f"[{chr(_FIRST_MARK)}-{chr(_LAST_MARK)}]")


class BurstInput:
    """Wraps an input and turns bursts of text into pastes. All other methods are those of the input."""

    def __init__(self, inner: Input) -> None:
        """Read the keys from ``inner``."""
        self._inner = inner
        self._has_waited = False

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the input."""
        return getattr(self._inner, name)

    def read_keys(self) -> list[KeyPress]:
        """Return the keys that have arrived, each paste as one key."""
        keys = self._inner.read_keys()
        while 1 < len(keys) < MOST_KEYS and not self._inner.closed and self._has_more(BURST_S):
            keys += self._inner.read_keys()
        if self._has_waited and keys:
            self._has_waited = False
            keys = restore_enter(keys)
        return group_pastes(keys)

    def attach(self, input_ready_callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``input_ready_callback`` for new keys inside the context."""
        self._has_waited = self._has_more(0)
        return self._inner.attach(input_ready_callback)

    def _has_more(self, within_s: float) -> bool:
        return bool(select.select([self._inner.fileno()], [], [], within_s)[0])


def restore_enter(keys: list[KeyPress]) -> list[KeyPress]:
    """Return keys typed before the prompt appeared, with Enter at the end where the terminal sent a line feed."""
    return [*keys[:-1], _ENTER] if keys[-1].key == Keys.ControlJ else keys


def group_pastes(keys: list[KeyPress]) -> list[KeyPress]:
    """Return the keys of a burst with pasted text as one paste and Alt-Enter as a line feed."""
    joined: list[KeyPress] = []
    for key in keys:
        # A terminal sends Alt-Enter as Escape and Enter in one burst; pressed one by one, they arrive apart.
        if key.key == Keys.ControlM and joined and joined[-1].key == Keys.Escape:
            joined[-1] = _LINE_FEED
        else:
            joined.append(key)
    runs = groupby(joined, key=_is_text)
    return [key for is_text, run in runs for key in (_as_paste(list(run)) if is_text else run)]


def _is_text(key: KeyPress) -> bool:
    return key.key in (*_LINE_ENDS, Keys.ControlI) or (not isinstance(key.key, Keys) and len(key.key) == 1)


def _as_paste(run: list[KeyPress]) -> list[KeyPress]:
    """Return a run of text as a paste and its final line end, or unchanged if a person can have typed it."""
    text = "".join("\r" if key.key == Keys.ControlM else "\n" if key.key == Keys.ControlJ else key.data for key in run)
    pasted = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    is_long = len(pasted) > LONGEST_TYPED and "\t" not in pasted
    if not is_long and ("\n" not in pasted or len(pasted) < SHORTEST_PASTE):
        return run
    end = [run[-1]] if run[-1].key in _LINE_ENDS else []
    return [KeyPress(Keys.BracketedPaste, pasted), *end]


class Pastes:
    """The long pastes of a session.

    In the line, a long paste is one character. Deleting, moving or copying that character therefore acts on the whole
    paste, and nothing that the user types can be mistaken for one.
    """

    def __init__(self) -> None:
        """Start without pastes."""
        self._texts: dict[str, str] = {}
        """Chip -> the paste that it represents."""
        self._labels: dict[str, str] = {}
        self._pasted = 0

    def shorten(self, text: str) -> str:
        """Return a pasted text, or one character in its place if it is long."""
        if not (_is_long(text) or _MARK.search(text)):
            return text
        self._pasted += 1
        return self._add_chip(text, f"[pasted {_format_size(text)} #{self._pasted}]")

    def fold(self, text: str) -> str:
        """Return a message from the history; of a long one, the first line and a chip."""
        if not (_is_long(text) or _MARK.search(text)):
            return text
        first, line_feed, rest = text.partition("\n")
        if not line_feed or len(first) > _SHORT_LINE or _MARK.search(first):
            return self._add_chip(text, f"[{_format_size(text)}]")
        return first + self._add_chip(f"{line_feed}{rest}", f" [{_format_size(rest)} more]")

    def expand(self, text: str) -> str:
        """Return ``text`` with every chip replaced by its paste."""
        return _MARK.sub(lambda found: self._texts.get(found[0], found[0]), text)

    def label(self, character: str) -> str | None:
        """Return the label of a chip, or None for any other character."""
        return self._labels.get(character)

    def _add_chip(self, text: str, label: str) -> str:
        if len(self._texts) > _LAST_MARK - _FIRST_MARK:  # all marks are in use
            return text
        chip = chr(_FIRST_MARK + len(self._texts))
        self._texts[chip], self._labels[chip] = text, label
        return chip


class ChipProcessor(Processor):
    """Draws chips as their labels."""

    def __init__(self, pastes: Pastes) -> None:
        """Draw the chips of ``pastes``."""
        self._pastes = pastes

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return a line as it is drawn, with the positions of its characters."""
        fragments = transformation_input.fragments
        if not _MARK.search(fragment_list_to_text(fragments)):
            return Transformation(fragments)
        shown: StyleAndTextTuples = []
        starts = []
        end = 0
        for fragment in explode_text_fragments(fragments):
            starts.append(end)
            label = self._pastes.label(fragment[1])
            shown.append(fragment if label is None else (f"{fragment[0]} class:chip", label))
            end += len(shown[-1][1])
        starts.append(end)
        return Transformation(
            shown,
            source_to_display=lambda at: starts[at] if at < len(starts) else end + at - len(starts) + 1,
            display_to_source=lambda at: bisect_right(starts, at) - 1 if at < end else len(starts) - 1 + at - end,
        )


def _is_long(text: str) -> bool:
    return len(text) >= LONG_CHARACTERS or _count_lines(text) >= LONG_LINES


def _count_lines(text: str) -> int:
    return text.strip("\n").count("\n") + 1


def _format_size(text: str) -> str:
    lines = _count_lines(text)
    return f"{lines} lines" if lines > 1 else f"{len(text):,} characters"


DEFAULT_EDITOR = "vi"
MOST_KEPT_CHARACTERS = 50_000
"""Longer messages are not written to the history file."""
CLEARED = "Cleared; the up arrow brings it back."
HELD = "Typed earlier and not sent. Enter sends it, Ctrl-C clears it."
KEYS = "/help  Ctrl-D leaves"
NEARLY_FULL_PERCENT = 70
"""From here on, the toolbar shows the context as a warning."""
MENU_ROWS = 6
"""Rows reserved for the menu, if the terminal has them."""
ESCAPE_S = 0.05
"""How long to wait after an Escape for the rest of a key sequence."""

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


def edit_text(text: str, *, environment: Mapping[str, str] = os.environ) -> str:
    """Open ``text`` in the user's editor and return the result without the final line feed.

    The file is in a private folder, which is removed afterwards with everything that the editor wrote there. Raises
    ``UsageError`` if the editor cannot be started or fails, or if the file cannot be written or read.
    """
    editor = environment.get("VISUAL") or environment.get("EDITOR") or DEFAULT_EDITOR
    try:
        command = shlex.split(editor) or [DEFAULT_EDITOR]
    except ValueError as error:
        raise UsageError(f"EDITOR={editor} is not a command: {error}.", hint="correct EDITOR or VISUAL") from error
    try:
        with tempfile.TemporaryDirectory(prefix="cdd-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "message.md"
            path.write_text(f"{text}\n" if text else "", encoding="utf-8", errors="replace", newline="\n")
            _run_editor([*command, str(path)], name=editor)
            content = path.read_bytes()
    except OSError as error:
        hint = "save it under the name it was opened with, and check with df -h that no disk is full"
        raise UsageError(f"The file for {editor} cannot be written or read: {error.strerror}.", hint=hint) from error
    return content.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")


def _run_editor(argv: Sequence[str], *, name: str) -> None:
    try:
        process = subprocess.Popen(argv)
    except OSError as error:
        raise UsageError(f"Cannot start the editor {name}: {error.strerror}.", hint="set EDITOR") from error
    if status := wait_for(process):
        raise UsageError(f"{name} ended with status {status}; the text is unchanged.", hint="try again")


class ProjectHistory(FileHistory):
    """The messages of this and earlier sessions.

    If the file cannot be read or written, the messages are remembered for this session only.
    """

    def __init__(self, path: Path | None, *, pastes: Pastes) -> None:
        """Use the file at ``path``, or none. ``pastes`` expands chips."""
        super().__init__(path or os.devnull)
        self._pastes = pastes
        self._is_draft = False

    def remember(self, text: str) -> None:
        """Add a text that was not sent, for this session only."""
        self._is_draft = True
        self.append_string(text)
        self._is_draft = False

    def load_history_strings(self) -> Iterable[str]:
        """Return the messages of earlier sessions, newest first."""
        with contextlib.suppress(OSError):
            return [self._pastes.fold(clean(message)) for message in super().load_history_strings()]
        return []

    def store_string(self, string: str) -> None:
        """Append a message to the file, its pastes in full."""
        text = self._pastes.expand(string).encode("utf-8", "replace").decode()
        if not self._is_draft and len(text) <= MOST_KEPT_CHARACTERS:
            with contextlib.suppress(OSError):
                Path(os.fsdecode(self.filename)).touch(mode=0o600)
                super().store_string(text)


def bind_keys(pastes: Pastes, history: ProjectHistory, *, say: Callable[[str], None]) -> KeyBindings:
    """Return the keys that differ from prompt_toolkit's. ``say`` shows a message until the next key."""
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
        event.current_buffer.insert_text(pastes.shorten(text))

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
    """Return whether Enter sends the line, rather than accept a file from the menu or start an argument."""
    is_chosen = buffer.complete_state is not None and buffer.complete_state.current_completion is not None
    buffer.complete_state = None
    if not is_chosen:
        return True
    if is_missing_argument(buffer.text):
        buffer.insert_text(" ")
        return False
    return not is_file_prefix(buffer.document.text_before_cursor)


async def _edit_in_terminal(buffer: Buffer, *, pastes: Pastes, say: Callable[[str], None]) -> None:
    def edit() -> None:
        text = edit_text(pastes.expand(buffer.text))
        # Set here, before prompt_toolkit reads the keys that were pressed in the meantime.
        buffer.document = Document(text, len(text))

    try:
        await run_in_terminal(edit)
    except UsageError as error:
        say(f"{error.happened} {error.hint[:1].upper()}{error.hint[1:]}.")


class _Part(NamedTuple):
    text: str
    rank: int
    """The part with the highest rank is left out first."""
    style: str = ""


def build_toolbar(status: PromptStatus, *, width: int, symbols: Mapping[str, str] = SYMBOLS) -> StyleAndTextTuples:
    """Return the toolbar for ``width`` columns: as much of ``status`` as fits, and the keys if there is room."""
    parts = _list_parts(status, symbols)
    while len(parts) > 1 and _measure(parts) > width:
        parts.remove(max(parts, key=lambda part: part.rank))
    if _measure(parts) > width:
        return [(parts[0].style, f" {fit_width(parts[0].text, width - 1, cut=symbols['cut'])}")]
    shown: StyleAndTextTuples = []
    for part in parts:
        shown += [("", " | " if shown else " "), (part.style, part.text)]
    room = width - _measure(parts) - 1
    return [*shown, ("class:toolbar.keys", f"{KEYS:>{room}} ")] if room > len(KEYS) else shown


def fit_width(text: str, width: int, *, cut: str = "…") -> str:
    """Return ``text`` as one line of at most ``width`` columns.

    >>> fit_width("in two\\nlines", 9), fit_width("日本語", 5)
    ('in two l…', '日本…')
    """
    line = clean(" ".join(text.split()))
    if get_cwidth(line) <= width:
        return line
    while line and get_cwidth(line) > width - get_cwidth(cut):
        line = line[:-1]
    return line + cut if width > 0 else ""


def _list_parts(status: PromptStatus, symbols: Mapping[str, str]) -> list[_Part]:
    percent = status.context_percent
    is_nearly_full = percent is not None and percent >= NEARLY_FULL_PERCENT
    is_bare = status.sandbox == "none"
    gate = _Part(status.phase, 2)
    if status.gate in ("open", "closed"):
        text = f"{status.phase} {symbols[status.gate]} gate {status.gate}"
        gate = _Part(text, 2, f"class:toolbar.{status.gate}")
    warning = "class:toolbar.warning"
    context = "" if percent is None else f"context {percent}%"
    sandbox = "no sandbox" if is_bare else f"sandbox {status.sandbox}" if status.sandbox else ""
    parts = (
        _Part(status.agent, 0, "class:toolbar.agent"),
        _Part(status.ticket, 4),
        _Part(f"step {status.step}" if status.step else "", 1),
        gate,
        _Part(status.model, 7),
        _Part(context, 3, warning) if is_nearly_full else _Part(context, 6),
        _Part(status.cost, 5),
        _Part(sandbox, 8, warning if is_bare else ""),
    )
    return [part._replace(text=clean(" ".join(part.text.split()))) for part in parts if part.text.strip()]


def _measure(parts: list[_Part]) -> int:
    return 1 + sum(get_cwidth(part.text) for part in parts) + 3 * (len(parts) - 1)


def _choose_patience(pressed: Sequence[KeyPress]) -> float:
    """Return the seconds to wait for more keys. A letter after Esc is text, unless Alt sends both at once."""
    return ESCAPE_S if pressed and pressed[-1].key == Keys.Escape else 1.0


def make_reader(
    history: Path | None,
    *,
    candidates: Candidates,
    model: str = "",
    color: bool | None = None,
    editing_mode: Literal["emacs", "vi"] = "emacs",
) -> ReadLine:
    """Return a function that reads messages at the terminal.

    Without ``history``, messages are remembered for this session only. ``model`` is shown where the status has none. A
    terminal that cannot move the cursor is read line by line.
    """
    if is_dumb_terminal():
        return _read_plainly
    prompt = _Prompt(history, candidates=candidates, color=color, editing_mode=editing_mode)
    return lambda status: prompt.read(status if status.model else replace(status, model=model))


def _decode_typed(text: str) -> str:
    # Bytes that the terminal's encoding does not know are nearly always UTF-8.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_plainly(status: PromptStatus) -> str:
    prompt, line = f"{clean(f'{status.agent} {status.ticket}'.rstrip())}> ", KEYBOARD.take_line(status.place)
    if line is not None:
        print(f"{prompt}{clean(line)}")  # noqa: T201
        return line
    draft = KEYBOARD.typed.take_draft()
    return draft + _decode_typed(input(f"{prompt}{clean(draft)}"))


class _Prompt:
    def __init__(
        self, history: Path | None, *, candidates: Candidates, color: bool | None, editing_mode: Literal["emacs", "vi"]
    ) -> None:
        self._status = PromptStatus()
        self._message = ""
        """Shown in place of the toolbar until the next key."""
        self._pastes = Pastes()
        project_history = ProjectHistory(history, pastes=self._pastes)
        has_colors = Condition(lambda: self._session.app.color_depth != ColorDepth.DEPTH_1_BIT)
        self._session: PromptSession[str] = PromptSession(
            self._draw_prompt,
            input=cast(Input, BurstInput(get_app_session().input)),
            history=project_history,
            # Without colors, a suggestion would look like typed text.
            auto_suggest=ConditionalAutoSuggest(AutoSuggestFromHistory(), has_colors),
            completer=PromptCompleter(candidates, status=lambda: self._status),
            complete_while_typing=True,
            key_bindings=bind_keys(self._pastes, project_history, say=self._say),
            input_processors=[ChipProcessor(self._pastes), TabsProcessor(char1=" ", char2=" ")],
            prompt_continuation=lambda width, line, wrapped: " " * width,
            bottom_toolbar=self._draw_toolbar,
            editing_mode=_MODES[editing_mode],
            cursor=ModalCursorShapeConfig() if editing_mode == "vi" else None,
            enable_suspend=True,
            style=_STYLE,
            color_depth=ColorDepth.DEPTH_1_BIT if color is False else None,
        )
        app = self._session.app
        app.ttimeoutlen = ESCAPE_S
        app.before_render += self._fit_terminal
        app.renderer.cpr_not_supported_callback = app.invalidate
        app.renderer.erase = _erase_reflowed(app)  # type: ignore[method-assign]
        app.key_processor.before_key_press += lambda _: self._say("")
        app.key_processor.after_key_press += lambda keys: setattr(app, "timeoutlen", _choose_patience(keys.key_buffer))

    def read(self, status: PromptStatus) -> str:
        self._status, app, typed = status, self._session.app, KEYBOARD.typed
        line = KEYBOARD.take_line(status.place)
        if line is not None:
            shown: StyleAndTextTuples = [*self._draw_prompt(), ("", clean(fit_width(line, self._columns)))]
            print_formatted_text(FormattedText(shown), style=_STYLE, output=app.output, color_depth=app.color_depth)
            self._session.history.append_string(line)
            return line
        self._say(HELD if typed.is_restoring else "")
        try:
            return _decode_typed(
                self._pastes.expand(self._session.prompt(default=self._pastes.shorten(typed.take_draft())))
            )
        finally:
            # Keys that arrived together with Enter.
            for key in get_typeahead(app.input):
                (typed.paste if key.key == Keys.BracketedPaste else typed.press)(key.data)

    def _say(self, message: str) -> None:
        self._message = message

    @property
    def _columns(self) -> int:
        return self._session.app.output.get_size().columns

    def _draw_prompt(self) -> StyleAndTextTuples:
        agent, ticket = clean(self._status.agent), clean(self._status.ticket)
        has_room = ticket and get_cwidth(f"{agent} {ticket}> ") <= self._columns // 2
        return [("class:agent", agent), ("", f" {ticket}" if has_room else ""), ("class:mark", "> ")]

    def _draw_toolbar(self) -> StyleAndTextTuples:
        symbols = choose_symbols(self._session.app.output.encoding())
        if self._message:
            return [("class:toolbar.warning", f" {fit_width(self._message, self._columns - 1, cut=symbols['cut'])}")]
        return build_toolbar(self._status, width=self._columns, symbols=symbols)

    def _fit_terminal(self, app: "Application[str]") -> None:
        rows = app.output.get_size().rows
        self._session.reserve_space_for_menu = max(1, min(MENU_ROWS, rows - 2))
        # prompt_toolkit draws the toolbar only once it knows the cursor's row. Some terminals never report it; for
        # them the last row is a safe assumption, because drawing more scrolls.
        renderer = app.renderer
        if renderer.cpr_support == CPR_Support.NOT_SUPPORTED and not renderer.height_is_known:
            renderer.report_absolute_cursor_row(rows)
            renderer.cpr_support = CPR_Support.NOT_SUPPORTED


def _erase_reflowed(app: "Application[str]") -> Callable[..., None]:
    """Return a replacement for ``erase`` that works after the window has become narrower.

    prompt_toolkit erases as many rows as it has drawn. If the terminal broke them into more, the first ones would stay.
    """
    erase = app.renderer.erase

    def erase_all(leave_alternate_screen: bool = True) -> None:
        screen = app.renderer.last_rendered_screen
        if screen is not None and has_reflow(os.environ):
            cursor = screen.get_cursor_position(app.layout.current_window)
            widths = [max(screen.data_buffer[row], default=0) + 1 for row in range(cursor.y)]
            app.output.cursor_up(count_added_rows(widths, cursor.x, columns=app.output.get_size().columns))
        erase(leave_alternate_screen)

    return erase_all


def count_added_rows(widths: Sequence[int], cursor_x: int, *, columns: int) -> int:
    """Return how many rows the cursor moves down when a narrower terminal breaks its row and those above it.

    >>> count_added_rows([100, 60], 70, columns=60)
    2
    """
    return sum((width - 1) // columns for width in widths if width) + cursor_x // columns


def has_reflow(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal breaks rows that have become too long. xterm, screen and the console cut them."""
    cuts = "XTERM_VERSION" in environment or "STY" in environment or environment.get("TERM") == "linux"
    return "TMUX" in environment or not cuts
