"""Lines from a terminal: prompt, keys, pastes, history, completion and the toolbar, by way of prompt_toolkit."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app_session
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory, ConditionalAutoSuggest
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth, is_dumb_terminal

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.symbols import symbols_for
from cdd_agent.repl.place import Place, Read
from cdd_agent.repl.terminal.burst import BurstInput
from cdd_agent.repl.terminal.completion import Candidates, PromptCompleter
from cdd_agent.repl.terminal.history import ProjectHistory
from cdd_agent.repl.terminal.keys import prompt_keys
from cdd_agent.repl.terminal.paste import ChipProcessor, Pastes
from cdd_agent.repl.terminal.toolbar import fitted, toolbar
from cdd_agent.repl.terminal.typed_ahead import forget_typed_ahead

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
