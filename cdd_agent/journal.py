"""The journal: every event of a ticket's runs, one JSON line each, appended as it happens.

A killed run leaves at most its last line unfinished; reading passes over such a line.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from cdd_agent.clock import Clock
from cdd_agent.events import Event, TextDelta, ThinkingDelta, decode, encode


class Journal:
    """Appends events to a file; its ``write`` is an ``Emit``."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        """Opens ``path`` for appending and makes its folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._clock = clock

    def __enter__(self) -> Self:
        """The journal itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def write(self, event: Event) -> None:
        """Append ``event`` with the time; pieces of text are left to ``TurnEnded``, which has the whole."""
        if isinstance(event, TextDelta | ThinkingDelta):
            return
        time = msgspec.json.encode(self._clock.now())
        os.write(self._descriptor, b'{"time":' + time + b"," + encode(event)[1:] + b"\n")


def read(path: Path) -> Iterator[Event]:
    """The events in a journal, oldest first; nothing if there is no such file."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield decode(line)
