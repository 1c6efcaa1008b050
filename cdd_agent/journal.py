"""The journal: every event of a ticket's runs, one JSON line each, appended as it happens.

A killed run leaves at most its last line unfinished, and so does a disk that fills up. Reading passes over such a
line, and the next one is begun on a line of its own. What cannot be written is told once and never ends the run: the
journal tells what was done, and no step is resumed from it.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from cdd_agent.clock import Clock
from cdd_agent.config.settings import private_folder
from cdd_agent.events import Emit, Event, Notice, TextDelta, ThinkingDelta, decode, encode
from cdd_agent.storage import Log


def journal_path(project: Path, slug: str) -> Path:
    """Where the events of a ticket are kept."""
    return private_folder(project) / "journal" / slug / "events.jsonl"


class Journal:
    """Appends events to a file; its ``write`` is an ``Emit``."""

    def __init__(self, path: Path, *, clock: Clock, tell: Emit = lambda _: None) -> None:
        """Opens ``path`` for appending and makes its folder; ``tell`` hears once if an event could not be kept.

        Nobody but the user may read the file: it holds what the model said, and parts of the project.
        """
        self._log = Log(path)
        self._clock = clock
        self._tell = tell
        self._lost = 0

    def __enter__(self) -> Self:
        """The journal itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._log.close()

    def write(self, event: Event) -> None:
        """Append ``event`` with the time; pieces of text are left to ``TurnEnded``, which has the whole."""
        if isinstance(event, TextDelta | ThinkingDelta):
            return
        time = msgspec.json.encode(self._clock.now())
        line = b'{"time":' + time + b"," + encode(event)[1:] + b"\n"
        why = self._log.append(line)
        if why is not None:
            self._lose(why)

    def _lose(self, why: str) -> None:
        """Say, the first time, that the journal has a gap."""
        self._lost += 1
        if self._lost == 1:
            gap = f"The journal {self._log.path} has a gap from here on ({why})"
            self._tell(Notice(text=f"{gap}; the work itself is saved apart from it."))


def read(path: Path) -> Iterator[Event]:
    """The events in a journal, oldest first, without lines that were cut off; nothing if there is no such file.

    Raises ``ValueError`` for a whole line that holds no event of this program.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n") and _is_whole(line):
                yield decode(line)


def _is_whole(line: bytes) -> bool:
    """Whether a line is JSON to its end."""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
