"""What a run lets out: events in which no key is, neither that of the model's service nor a text shaped like one.

A server, or a model, can repeat what it was sent. So every text of every event is looked through before a screen, a
journal or a program that reads the events gets it, and the pieces in which a model's text comes are cut anew, so that
none ends inside a key.
"""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from cdd_agent.events import Emit, Event, TextDelta, ThinkingDelta
from cdd_agent.model import secret
from cdd_agent.model.secret import Secret

_GAP = re.compile(r"[^!-~]")
"""What no key holds, if it is not one of ``_WITH_GAPS``."""
_WITH_GAPS = re.compile(r"-----BEGIN|(?i:secret_?access_?key)")
"""Where a key may begin, or the name of one, with white space in it: all that follows is held back."""


def without_keys(emit: Emit, *, key: Secret | None) -> Emit:
    """``emit`` as it may be given any event: ``key`` and texts shaped like keys do not get to it."""

    def hide(value: object) -> object:
        if isinstance(value, str):
            return secret.hidden(value, key=key)
        return tuple(map(hide, value)) if isinstance(value, tuple) else value

    def tell(event: Event) -> None:
        hidden: dict[str, Any] = {field.name: hide(getattr(event, field.name)) for field in fields(event)}
        emit(replace(event, **hidden))

    return tell


class Pieces:
    """The text of one turn on its way to who listens, in pieces that end where no key can go on."""

    def __init__(self, emit: Emit) -> None:
        """Nothing is held back yet."""
        self._emit = emit
        self._held: dict[type[TextDelta | ThinkingDelta], str] = {TextDelta: "", ThinkingDelta: ""}

    def write(self, event: Event) -> None:
        """Give ``event`` on; of a piece of text what is whole, with what was held back before it."""
        if not isinstance(event, TextDelta | ThinkingDelta):
            self.end()
            self._emit(event)
            return
        kind, held = type(event), self._held[type(event)]
        text = held + event.text
        end = max(_gaps(text, after=len(held)), default=0)
        self._held[kind] = text[end:]
        if end or not text:
            self._emit(kind(text=text[:end]))

    def end(self) -> None:
        """Give on what is held back: nothing follows it."""
        for kind, held in self._held.items():
            self._held[kind] = ""
            if held:
                self._emit(kind(text=held))


def _gaps(text: str, *, after: int) -> Iterator[int]:
    """The ends of gaps behind ``after``, as far as nothing that may have gaps itself has begun."""
    begun = _WITH_GAPS.search(text)
    return (gap.end() for gap in _GAP.finditer(text, after, begun.start() if begun else len(text)))
