"""Where events go: to the screen and other listeners, and to the journal, which has all events of a ticket's runs.

A journal has one line of JSON for each event. A killed run or a full disk leaves at most an incomplete last line,
which readers skip. The journal only documents the work, and no step is resumed from it. If it cannot be written, the
user gets one notice and the run continues.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from cdd_agent.clock import Clock
from cdd_agent.events import Emit, Event, FileChanged, Notice, TextDelta, ThinkingDelta, Waiting, decode, encode
from cdd_agent.storage import Log
from cdd_agent.work.finding import read_old_reason
from cdd_agent.work.records import find_records

MAX_DIFF_CHARACTERS = 2_000
"""How much of the diff of one change is written."""


def journal_path(project: Path, slug: str) -> Path:
    """Return the path of a ticket's journal."""
    return find_records(project).locate_journal(slug)


def dropped_journal_path(project: Path, slug: str, *, fork: str) -> Path:
    """Return where the journal of a ticket in a fork is kept after the fork was dropped."""
    return journal_path(project, slug).with_name(f"fork-{fork}.jsonl")


class Journal:
    """Appends events to a file; its ``write`` is an ``Emit``."""

    def __init__(self, path: Path, *, clock: Clock, report: Emit = lambda _: None) -> None:
        """Open ``path`` for appending; ``report`` gets a notice the first time that an event cannot be written."""
        # Only the user may read the file: it contains the model's text and parts of the project.
        self._log = Log(path)
        self._clock = clock
        self._report = report
        self._has_gap = False

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def write(self, event: Event) -> None:
        """Append ``event`` with the time, except waits, and pieces of text, which ``TurnEnded`` repeats.

        Of a long diff only the beginning is written, and how many lines there are besides.
        """
        if isinstance(event, TextDelta | ThinkingDelta | Waiting):
            return
        if isinstance(event, FileChanged) and len(event.diff) > MAX_DIFF_CHARACTERS:
            head, lines = event.diff[:MAX_DIFF_CHARACTERS], event.diff.splitlines()
            counts = [sum(line.startswith(sign) for line in lines) for sign in "+-"]
            event = FileChanged(path=event.path, diff=f"{head}\n... (+{counts[0]} -{counts[1]} in all)")
        time = msgspec.json.encode(self._clock.now())
        why = self._log.append(b'{"time":' + time + b"," + encode(event)[1:] + b"\n")
        if why is not None and not self._has_gap:
            self._has_gap = True
            gap = f"The journal {self._log.path} has a gap from here on ({why})"
            self._report(Notice(text=f"{gap}; the work itself is saved separately."))


class Publisher:
    """Passes events on; its ``write`` is an ``Emit``."""

    def __init__(self, show: Emit, *, clock: Clock) -> None:
        """Pass events on to ``show``, after all others."""
        self.listeners: list[Emit] = []
        """Functions that get each event before it is shown."""
        self._show = show
        self._clock = clock
        self._journals: dict[Path, Journal] = {}
        self._journal: Journal | None = None

    def follow(self, path: Path) -> None:
        """Also write the following events to the journal at ``path``, in place of another."""
        if path not in self._journals:
            self._journals[path] = Journal(path, clock=self._clock, report=self._show)
        self._journal = self._journals[path]

    def write(self, event: Event) -> None:
        """Write ``event`` to the journal, then pass it on."""
        if self._journal is not None:
            self._journal.write(event)
        for listen in (*self.listeners, self._show):
            listen(event)

    def close(self) -> None:
        """Close the journals."""
        for journal in self._journals.values():
            journal.close()


def read(path: Path) -> Iterator[Event]:
    """Yield the events in a journal as ``read_timed`` does, without their times."""
    for _, event in read_timed(path):
        yield event


def read_timed(path: Path) -> Iterator[tuple[str, Event]]:
    """Yield time and event of each line of a journal, oldest first, without incomplete lines; nothing without a file.

    Raises ``ValueError`` for a complete line that is not an event.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n") and _is_json(line):
                yield str(msgspec.json.decode(line).get("time", "")), _decode(line)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _decode(line: bytes) -> Event:
    """Return the event of a line. An earlier version may have written sentences in place of the reasons of a gate."""
    try:
        return decode(line)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(line, type=dict[str, object])
        sentences = msgspec.convert(fields.get("reasons"), type=tuple[str, ...])
        return decode(msgspec.json.encode({**fields, "reasons": tuple(map(read_old_reason, sentences))}))
