"""The terminal as the prompt and the screen share it: the status shown, and its symbols.

The prompt appears before the rest of cdd is loaded, so this module imports only the standard library.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

_SYMBOL_NAMES = ("open", "closed", "tool", "commit", "back", "note", "todo", "cut", "bar")
SYMBOLS: Mapping[str, str] = dict(zip(_SYMBOL_NAMES, "✔✘→●↶•○…│", strict=True))
ASCII_SYMBOLS: Mapping[str, str] = dict(zip(_SYMBOL_NAMES, "+x>*<-o~|", strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStatus:
    """Where the user is, as the prompt and the toolbar show it. Empty fields and None are left out."""

    agent: str = "cdd"
    ticket: str = ""
    step: str = ""
    """``2/3``; empty outside the Executor and a review."""
    phase: str = ""
    """``red``, ``green`` or ``refactor``: the current phase or the last one."""
    gate: str = ""
    """``open`` or ``closed``: the last verdict in that phase."""
    model: str = ""
    context_percent: int | None = None
    """How much of the model's context the last request filled; None if its size is unknown."""
    cost: str = ""
    """The cost of the session as text: ``0.42 USD``, ``cost unknown``."""
    sandbox: str = ""
    """The level that confines the tests, once it is known."""


ReadLine: TypeAlias = Callable[[PromptStatus], str]
"""Returns one line from the user. Raises ``EOFError`` at the end of input and ``KeyboardInterrupt`` for Ctrl-C."""


def choose_symbols(encoding: str | None, *, besides: str = "") -> Mapping[str, str]:
    """Return ``SYMBOLS`` if the encoding has them and the characters in ``besides``, else ``ASCII_SYMBOLS``."""
    try:
        ("".join(SYMBOLS.values()) + besides).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII_SYMBOLS
    return SYMBOLS
