"""Where the work stands, as the events tell it: phase and gate, who answers, how full its context is, what it cost.

Where the user is: shown in the prompt and the toolbar.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the prompt and the toolbar say; an empty text or None is left out."""

    agent: str = "cdd"
    ticket: str = ""
    step: str = ""
    """``2/3``; empty outside the Executor."""
    phase: str = ""
    """``red``, ``green``, ``refactor``: the one in work or the last one."""
    gate: str = ""
    """``open`` or ``closed``: the last verdict in that phase."""
    model: str = ""
    """Who answers."""
    context_percent: int | None = None
    """How much of the model's context the last request filled; None if the size of it is not known."""
    cost: str = ""
    """What the session has cost so far, as a person reads it: ``0.42 USD``, ``cost unknown``."""
    sandbox: str = ""
    """What the tests are shut into, once it is known."""


Read: TypeAlias = Callable[[Place], str]
"""Gives one line the user typed; raises ``EOFError`` when there are no more and ``KeyboardInterrupt`` for Ctrl-C."""


_NAMES = ("open", "closed", "tool", "commit", "back", "note", "todo", "cut", "bar")


SYMBOLS: Mapping[str, str] = dict(zip(_NAMES, "✔✘→●↶•○…│", strict=True))


ASCII_SYMBOLS: Mapping[str, str] = dict(zip(_NAMES, "+x>*<-o~|", strict=True))


def symbols_for(encoding: str | None, *, besides: str = "") -> Mapping[str, str]:
    """Return ``SYMBOLS`` if the encoding has them and what is shown ``besides``, else ``ASCII_SYMBOLS``."""
    try:
        ("".join(SYMBOLS.values()) + besides).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII_SYMBOLS
    return SYMBOLS
