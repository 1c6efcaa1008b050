"""Where the user is: shown in the prompt and the toolbar."""

from collections.abc import Callable
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
