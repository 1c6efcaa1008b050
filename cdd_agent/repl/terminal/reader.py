"""Lines from a terminal: prompt, history, suggestions, completion and the toolbar, by way of prompt_toolkit."""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.place import Place, Read
from cdd_agent.repl.terminal.completion import CommandCompleter
from cdd_agent.repl.terminal.typed_ahead import forget_typed_ahead

_STYLE = Style.from_dict({"bottom-toolbar": "noreverse bg:#303030 #d0d0d0", "agent": "bold ansicyan", "mark": "bold"})
_KEYS = "/help  Ctrl-D leaves"


def terminal_reader(
    history: Path | None, *, slugs: Callable[[], list[str]], model: str, color: bool | None = None
) -> Read:
    """Reads lines at the terminal; without ``history`` they are remembered for this sitting only."""
    session: PromptSession[str] = PromptSession(
        history=InMemoryHistory() if history is None else _History(str(history)),
        auto_suggest=AutoSuggestFromHistory(),
        completer=CommandCompleter(slugs),
        complete_while_typing=True,
        reserve_space_for_menu=6,
        style=_STYLE,
        color_depth=ColorDepth.DEPTH_1_BIT if color is False else None,
    )

    def read(place: Place) -> str:
        def toolbar() -> str:
            return toolbar_text(place, model=model, width=get_app().output.get_size().columns)

        forget_typed_ahead()
        name = [("class:agent", clean(place.agent)), ("", f" {clean(place.ticket)}" if place.ticket else "")]
        return session.prompt(FormattedText([*name, ("class:mark", "> ")]), bottom_toolbar=toolbar)

    return read


class _History(FileHistory):
    """A history file that may fail: what cannot be read or written is remembered for this sitting only."""

    def load_history_strings(self) -> Iterable[str]:
        """The lines of earlier sittings, newest first."""
        try:
            return [clean(line) for line in super().load_history_strings()]
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Keep a line."""
        with contextlib.suppress(OSError):
            super().store_string(string)


def toolbar_text(place: Place, *, model: str, width: int) -> str:
    """Agent, ticket, step, model and sandbox, then the keys to know; what does not fit is left out from the end."""
    sandbox = f"sandbox {place.sandbox}" if place.sandbox else ""
    step = f"step {place.step}" if place.step else ""
    parts = [clean(part) for part in (place.agent, place.ticket, step, model, sandbox) if part]
    while len(parts) > 1 and len(" | ".join(parts)) + 2 > width:
        parts.pop()
    told = " " + " | ".join(parts)
    room = width - len(told) - 1
    return f"{told}{_KEYS:>{room}} " if room > len(_KEYS) + 1 else told[:width]
