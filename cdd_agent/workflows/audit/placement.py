"""Which handoff is of which commit, and which handoffs make one cycle. Pure.

Where a commit has the trailers of a handoff, they place it: they cannot be edited without another commit coming of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import TypeAlias

from cdd_agent.git.notes.history import Note
from cdd_agent.git.repository import CommitId
from cdd_agent.tdd.handoff import handoff_id
from cdd_agent.work.handoff import PHASE_OF, Handoff, decode_line, is_newer, phase_name
from cdd_agent.work.state import Phase
from cdd_agent.workflows.audit.span import Commit, Span

PHASES: tuple[Phase, ...] = ("plan", "red", "green", "refactor")
"""In the order of a cycle."""
MOST_ANCESTORS = 2_000
"""So many commits back a cycle may have begun."""
_Place: TypeAlias = tuple[str, int, Phase | None]
"""Ticket, cycle and phase."""
_NOWHERE: _Place = ("", 0, None)


class Standing(Enum):
    """How a handoff stands to the commit that its note is on."""

    OWN = auto()
    """The commit was made for it, and has its id."""
    ADOPTED = auto()
    """The agent made the commit, which has no trailers."""
    LATER = auto()
    """The phase made no commit, and is handed over on the one that was there."""
    CLOSED = auto()
    """The phase failed."""
    MISPLACED = auto()
    """It is no handoff of this commit."""
    MISSING = auto()
    """The commit has the trailers of a handoff, and there is no line of it; or a line that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A handoff at its place in the history."""

    commit: Commit
    standing: Standing
    handoff: Handoff | None
    """None if it is missing."""
    ticket: str
    cycle: int
    phase: Phase | None
    """None where nothing says."""
    base: str | None
    """The commit on which the cycle began, by which its id is made; empty: there was none; None: not known.

    Not looked for where the commit's trailers have the id and nobody asks of it.
    """
    why: str = ""
    """What is wrong with a line that cannot be read; or whose handoff it is, if it is misplaced."""

    @property
    def has_landed(self) -> bool:
        """Whether the phase ended well, for all that its place says."""
        return self.phase is not None and self.standing not in (Standing.CLOSED, Standing.MISPLACED)

    @property
    def phase_name(self) -> str:
        """``RED``; empty where nothing says."""
        return phase_name(self.phase) if self.phase else ""

    @property
    def called(self) -> str:
        """A handoff by its place: ``RED of sale, cycle 1``."""
        return f"{self.phase_name} of {self.ticket}, cycle {self.cycle}" if self.phase else "a handoff"

    @property
    def is_covered(self) -> bool:
        """Whether it says of RED that the new tests passed at once."""
        return self.phase == "red" and self.handoff is not None and self.handoff.test_result == "PASS"


@dataclass(frozen=True, slots=True)
class Chain:
    """The handoffs of one cycle."""

    landed: dict[Phase, Handed] = field(default_factory=dict)
    """Phase -> the handoff that ended it."""

    def takes(self, phase: Phase) -> bool:
        """Whether ``phase`` may come next."""
        return all(PHASES.index(phase) > PHASES.index(before) for before in self.landed)


def place(span: Span, notes: Mapping[CommitId, Note]) -> tuple[Handed, ...]:
    """Every handoff of the span, in the order of the history and, on one commit, of the phases."""
    owners = {each: commit.id for commit in span.commits.values() for each in commit.trailers["Handoff-Id"]}
    return tuple(
        handed
        for commit in span.commits.values()
        for handed in _on(commit, notes.get(commit.id), span=span, owners=owners)
    )


def chains(handed: Sequence[Handed]) -> tuple[Chain, ...]:
    """The chain of each, in their order; a handoff that is misplaced, or of no phase, is alone in an empty one."""
    current: dict[tuple[str, int], Chain] = {}
    found = []
    for each in handed:
        if not each.phase or each.standing is Standing.MISPLACED:
            found.append(Chain())
            continue
        key = (each.ticket, each.cycle)
        chain = current.get(key)
        if chain is None or (each.has_landed and not chain.takes(each.phase)):
            chain = current[key] = Chain()
        if each.has_landed:
            chain.landed[each.phase] = each
        found.append(chain)
    return tuple(found)


def _on(commit: Commit, note: Note | None, *, span: Span, owners: Mapping[str, CommitId]) -> Iterator[Handed]:
    """The handoffs of one commit: those in its note, and those that its trailers tell of besides."""
    lines = note.lines if note is not None else ()
    counted: dict[tuple[str, str], Handoff] = {}
    for handoff in filter(None, map(decode_line, lines)):
        known = counted.get((handoff.id, handoff.phase))
        if known is None or (handoff.seq, not handoff.reconstructed) >= (known.seq, not known.reconstructed):
            counted[handoff.id, handoff.phase] = handoff
    found = [
        _placed(
            handoff,
            commit,
            span=span,
            owner=owners.get(handoff.id),
            is_accompanied=any(_cycle(other) == _cycle(handoff) for other in counted.values() if other is not handoff),
        )
        for handoff in counted.values()
    ]
    found.sort(key=lambda each: PHASES.index(each.phase))
    spoiled = _spoiled(note)
    present = {handoff.id for handoff in counted.values()}
    lost = [each for each in dict.fromkeys(commit.trailers["Handoff-Id"]) if each not in present]
    for identity in lost:
        ticket, cycle, phase = _trailed(commit, identity) or _NOWHERE
        yield _missing(commit, (ticket, cycle, phase), why=spoiled)
    if spoiled and not lost:
        yield _missing(commit, _NOWHERE, why=spoiled)
    yield from found


def _missing(commit: Commit, where: _Place, *, why: str) -> Handed:
    ticket, cycle, phase = where
    return Handed(
        commit=commit,
        standing=Standing.MISSING,
        handoff=None,
        ticket=ticket,
        cycle=cycle,
        phase=phase,
        base=None,
        why=why,
    )


def _spoiled(note: Note | None) -> str:
    """What is wrong with a note, or with a line that was meant to be a handoff; a remark by hand is none."""
    if note is None:
        return ""
    if note.damage is not None:
        return note.damage.what
    for number, line in enumerate(note.lines, start=1):
        if line.lstrip().startswith("{") and decode_line(line) is None and not is_newer(line):
            return f"Line {number} of its note is no handoff that can be read."
    return ""


def _cycle(handoff: Handoff) -> tuple[str, int]:
    return handoff.ticket, handoff.cycle_number


def _placed(handoff: Handoff, commit: Commit, *, span: Span, owner: CommitId | None, is_accompanied: bool) -> Handed:
    """Where one handoff belongs; ``is_accompanied`` by another one of its cycle on the same commit."""
    is_own = handoff.id in commit.trailers["Handoff-Id"]
    base = None if is_own and commit.id not in span.inside else _base(handoff, commit, span=span)
    is_known = base is not None or commit.is_rewritten
    standing = _standing(handoff, commit, is_known=is_known, owner=owner, is_accompanied=is_accompanied)
    said = (handoff.ticket, handoff.cycle_number, PHASE_OF[handoff.phase])
    ticket, cycle, phase = (_trailed(commit, handoff.id) if standing is Standing.OWN else None) or said
    return Handed(
        commit=commit,
        standing=standing,
        handoff=handoff,
        ticket=ticket,
        cycle=cycle,
        phase=phase,
        base=base,
        why=owner or "" if standing is Standing.MISPLACED else "",
    )


def _standing(
    handoff: Handoff, commit: Commit, *, is_known: bool, owner: CommitId | None, is_accompanied: bool
) -> Standing:
    """How a handoff stands to the commit that its note is on; ``is_known``: its id may well be of this one."""
    ids, gate = commit.trailers["Handoff-Id"], handoff.gate
    is_covered = handoff.phase == "RED" and handoff.test_result == "PASS"
    if handoff.id in ids:
        return Standing.OWN
    if not is_known:
        return Standing.MISPLACED
    if gate is not None and not gate.open and not is_covered:
        return Standing.CLOSED
    if owner is not None:
        return Standing.MISPLACED
    if handoff.phase == "REFACTOR" and (ids or gate is None or gate.report_sha256 is None):
        is_in_trailers = (
            handoff.ticket in commit.trailers["Ticket"] and str(handoff.cycle_number) in commit.trailers["Cycle"]
        )
        return Standing.LATER if is_accompanied or is_in_trailers else Standing.MISPLACED
    if is_covered:
        return Standing.LATER
    return Standing.MISPLACED if ids else Standing.ADOPTED


def _base(handoff: Handoff, commit: Commit, *, span: Span) -> str | None:
    """The commit from which the handoff's id is made with its ticket, cycle and phase; empty: from none."""
    made = partial(handoff_id, handoff.ticket, handoff.cycle_number, phase=PHASE_OF[handoff.phase])
    bases = span.ancestors(commit.id, most=MOST_ANCESTORS)
    found = next((each for each in bases if made(base=each) == handoff.id), None)
    if found is None and made(base=None) == handoff.id:
        return ""
    return found


def _trailed(commit: Commit, identity: str) -> _Place | None:
    """Ticket, cycle and phase that a commit's trailers have for an id of theirs; None if they do not say."""
    at = commit.trailers["Handoff-Id"].index(identity)
    tickets, cycles, phases = (commit.trailers[key] for key in ("Ticket", "Cycle", "Phase"))
    if not len(tickets) == len(cycles) == len(phases) == len(commit.trailers["Handoff-Id"]):
        return None
    phase = PHASE_OF.get(phases[at])
    if phase is None or not (cycles[at].isascii() and cycles[at].isdigit() and len(cycles[at]) < 10):
        return None
    return tickets[at], int(cycles[at]), phase
