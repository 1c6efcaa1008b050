"""The journal: all events of a ticket's runs, appended as lines of JSON.

A killed run or a full disk leaves at most an incomplete last line, which readers skip. The journal only documents the
work, and no step is resumed from it. If it cannot be written, the user gets one notice and the run continues.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from cdd_agent.clock import Clock
from cdd_agent.events import Emit, Event, Notice, TextDelta, ThinkingDelta, decode, encode
from cdd_agent.storage import Log, private_folder


def journal_path(project: Path, slug: str) -> Path:
    """Return the path of a ticket's journal."""
    return private_folder(project) / "journal" / slug / "events.jsonl"


class Journal:
    """Appends events to a file; its ``write`` is an ``Emit``."""

    def __init__(self, path: Path, *, clock: Clock, report: Emit = lambda _: None) -> None:
        """Open ``path`` for appending; ``report`` gets a notice the first time that an event cannot be written."""
        # Only the user may read the file: it contains the model's text and parts of the project.
        self._log = Log(path)
        self._clock = clock
        self._report = report
        self._has_gap = False

    def __enter__(self) -> Self:
        """Return the journal."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._log.close()

    def write(self, event: Event) -> None:
        """Append ``event`` with the time, except streamed pieces of text, which ``TurnEnded`` repeats."""
        if isinstance(event, TextDelta | ThinkingDelta):
            return
        time = msgspec.json.encode(self._clock.now())
        why = self._log.append(b'{"time":' + time + b"," + encode(event)[1:] + b"\n")
        if why is not None and not self._has_gap:
            self._has_gap = True
            gap = f"The journal {self._log.path} has a gap from here on ({why})"
            self._report(Notice(text=f"{gap}; the work itself is saved separately."))


def read(path: Path) -> Iterator[Event]:
    """Yield the events in a journal, oldest first, without incomplete lines; nothing if the file does not exist.

    Raises ``ValueError`` for a complete line that is not an event.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n") and _is_json(line):
                yield decode(line)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
