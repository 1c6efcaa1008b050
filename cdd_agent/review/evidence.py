"""What a commit rests on: the handoff note that was put on it, and whether the report it names is still that one."""

import hashlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cdd_agent.git.notes.store import read_lines
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.storage import read_ordinary
from pytest_tdd_agent.codec import LIMIT_BYTES


class _Gate(msgspec.Struct):
    """The verdict in a note."""

    phase: str
    open: bool
    report_sha256: str | None = None


class _Note(msgspec.Struct):
    """As much of a note as is shown."""

    seq: int
    phase: str
    gate: _Gate
    retryCount: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one commit's note says."""

    phase: str
    is_open: bool
    tries: int
    report: str
    """``as it was``, ``changed or gone``, or ``none``."""


def evidence_of(repository: Repository, commit: CommitId, *, reports: Collection[str]) -> tuple[Evidence, ...]:
    """What the notes on ``commit`` say, one for each phase in order; ``reports``: see ``kept_reports``.

    A line that is no note of this program is passed over: whoever can push can write one.
    """
    notes: dict[str, _Note] = {}
    for line in read_lines(repository, commit):
        try:
            note = msgspec.json.decode(line, type=_Note)
        except (msgspec.DecodeError, RecursionError):
            continue
        if note.phase not in notes or notes[note.phase].seq <= note.seq:
            notes[note.phase] = note
    return tuple(
        Evidence(
            phase=note.phase.lower(),
            is_open=note.gate.open,
            tries=note.retryCount + 1,
            report=_standing(note.gate.report_sha256, reports),
        )
        for note in sorted(notes.values(), key=lambda note: note.seq)
    )


def kept_reports(folder: Path) -> frozenset[str]:
    """The digests of the reports of a ticket that are kept in ``folder``, as far as they can be read."""
    digests: set[str] = set()
    for path in folder.rglob("*.json"):
        with suppress(OSError):
            digests.add(hashlib.sha256(read_ordinary(path, limit_bytes=LIMIT_BYTES)).hexdigest())
    return frozenset(digests)


def _standing(digest: str | None, kept: Collection[str]) -> str:
    """What became of the report with this digest."""
    if digest is None:
        return "none"
    return "as it was" if digest in kept else "changed or gone"
