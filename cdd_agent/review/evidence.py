"""What a commit rests on: the handoff note that was put on it, and whether the report it names is still that one."""

import hashlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.git.notes.history import decoded
from cdd_agent.git.notes.store import read_lines
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.storage import read_ordinary
from pytest_tdd_agent.codec import LIMIT_BYTES


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

    A line that is no handoff is passed over, as whoever can push can write one; so is one that no gate stands behind.
    """
    found: dict[str, Evidence] = {}
    for handoff in sorted(decoded(read_lines(repository, commit)), key=lambda handoff: handoff.seq):
        if handoff.gate is not None:
            found[handoff.phase] = Evidence(
                phase=handoff.phase.lower(),
                is_open=handoff.gate.open,
                tries=handoff.retry_count + 1,
                report=_standing(handoff.gate.report_sha256, reports),
            )
    return tuple(found.values())


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
