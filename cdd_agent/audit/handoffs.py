"""Which handoff is of which commit, and which handoffs make one cycle. Pure.

Where a commit has the trailers of a handoff, they place it: they cannot be edited without another commit coming of it.

What an audit says: one claim of a handoff, and whether it holds.

The commits that an audit looks at: those of a range, and all that lead to them.

The reports that phases were judged by, as far as they are still on this machine.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.git.notes_history import Note
from cdd_agent.git.repository import CommitId, Repository, listing
from cdd_agent.git.runner import GitError, GitUnable
from cdd_agent.storage import read_ordinary
from cdd_agent.tdd.handoff import handoff_id
from cdd_agent.tdd.recovery import label
from cdd_agent.work.handoff import PHASE_OF, Handoff, decode_line, is_newer, phase_name
from cdd_agent.work.state import Phase
from pytest_tdd_agent.codec import LIMIT_BYTES, ReportError, load
from pytest_tdd_agent.report import SuiteReport

CLAIMS = {
    "note": "The note is whole, and what it says of phase, gate and result fits together.",
    "commit": "The note is of this commit: its trailers, or the handoff's id, say the same.",
    "chain": "The phases before are there.",
    "report": "The report of the run is still there, and is the one whose digest the note has.",
    "run": "The tests, run again in a clean copy, say what the note says.",
    "tests": "Test files and what configures pytest are what they were in the phase before.",
}
"""Name of a claim -> what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of one handoff."""

    name: str
    """One of ``CLAIMS``."""
    holds: bool | None
    """None: it cannot be told."""
    told: str
    """A sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One handoff with what became of its claims."""

    ticket: str
    cycle: int
    phase: str
    """``RED``; empty where nothing says."""
    commit: str
    """That its note is on, or that its trailers are in."""
    claims: tuple[Claim, ...]

    @property
    def failed(self) -> tuple[Claim, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if claim.holds is False)


def true(name: str, told: str) -> Claim:
    """A claim that holds."""
    return Claim(name=name, holds=True, told=told)


def false(name: str, told: str) -> Claim:
    """A claim that does not hold."""
    return Claim(name=name, holds=False, told=told)


def unknown(name: str, told: str) -> Claim:
    """A claim of which nothing can be told."""
    return Claim(name=name, holds=None, told=told)


TRAILERS = ("Ticket", "Phase", "Cycle", "Handoff-Id")
"""Those that a commit of ours has."""
_NAMED = re.compile(r"\^?(?:[0-9a-f]{64}|[0-9a-f]{40})")
_FIELD, _VALUE = "\x1f", "\x1e"
_FORMAT = "%x1f".join(
    ("%H", "%T", "%P", "%at", "%ct", "%s", *(f"%(trailers:key={key},valueonly,separator=%x1e)" for key in TRAILERS))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What the history says of one commit."""

    id: CommitId
    tree: str
    parents: tuple[CommitId, ...]
    is_rewritten: bool
    """Whether it was made at another time than it was written: by a rebase, for example, or by ``--amend``."""
    subject: str
    trailers: Mapping[str, tuple[str, ...]]
    """Key, one of ``TRAILERS`` -> its values; more than one where commits were squashed."""

    @property
    def parent(self) -> CommitId | None:
        """The commit that it was made on."""
        return self.parents[0] if self.parents else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of the history."""

    commits: Mapping[CommitId, Commit]
    """All that lead to the range, a commit after its parents."""
    inside: frozenset[CommitId]
    """Those of the range."""

    def ancestors(self, commit: CommitId, *, most: int) -> Iterator[CommitId]:
        """``commit`` and what leads to it, the nearest first."""
        seen, waiting = {commit}, [commit]
        for count, each in enumerate(waiting):
            if count >= most:
                return
            yield each
            known = self.commits.get(each)
            fresh = [parent for parent in (known.parents if known is not None else ()) if parent not in seen]
            seen.update(fresh)
            waiting += fresh


def read_span(repository: Repository, revisions: str) -> Span:
    """The span of what ``revisions`` names as git takes it, such as ``main..HEAD`` or ``v1^!``; ``HEAD`` is all of it.

    Raises ``UsageError`` if it names no commits. Nothing but ids is passed on: no option can be smuggled in.
    """
    named = _named(repository, revisions)
    tips = [each for each in named if not each.startswith("^")]
    listed = repository.git("rev-list", "--stdin", stdin=listing(named))
    log = ("log", "-z", "--topo-order", "--reverse", f"--format={_FORMAT}", "--no-show-signature", "--stdin")
    commits = [_commit(record) for record in repository.git(*log, stdin=listing(tips)).split("\0") if record]
    return Span(commits={each.id: each for each in commits}, inside=frozenset(map(CommitId, listed.split())))


def look_up(repository: Repository, commit: str) -> Commit | None:
    """The commit of this full id, wherever it is; None if the repository does not have it."""
    if _NAMED.fullmatch(commit) is None:
        return None
    log = ("log", "-z", "--no-walk", "--ignore-missing", f"--format={_FORMAT}", "--no-show-signature", "--stdin")
    try:
        found = repository.git(*log, stdin=listing([commit])).split("\0")[0]
    except GitUnable:
        raise
    except GitError:
        return None
    return _commit(found) if found else None


def _named(repository: Repository, revisions: str) -> list[str]:
    """The ids that a range stands for; those that are left out, with what leads to them, begin with ``^``."""
    hint = "a range is what git log takes, in one word: main..HEAD, v1.0.., HEAD~3^!"
    if revisions.startswith("-") or "\0" in revisions or "\n" in revisions:
        raise UsageError(f"{revisions!r} is no range of commits.", hint=hint)
    try:
        told = repository.git("rev-parse", "--revs-only", "--end-of-options", revisions, "--").split()
        named = [each for each in told if _NAMED.fullmatch(each)]
        ids = [each.removeprefix("^") for each in named]
        for each in ids:
            repository.git("rev-parse", "--verify", "--quiet", f"{each}^{{commit}}")
    except GitUnable:
        raise
    except GitError as error:
        raise UsageError(f"{revisions!r} names no commits of this repository.", hint=hint) from error
    if not named:
        raise UsageError(f"{revisions!r} names no commits of this repository.", hint=hint)
    return named


def _commit(record: str) -> Commit:
    """One commit as ``git log`` prints it; one that imitates how fields are parted is taken to have no trailers."""
    fields = record.split(_FIELD)
    known = len(fields) == 6 + len(TRAILERS)
    values = fields[6:] if known else [""] * len(TRAILERS)
    return Commit(
        id=CommitId(fields[0].strip()),
        tree=fields[1],
        parents=tuple(map(CommitId, fields[2].split())),
        is_rewritten=fields[3] != fields[4],
        subject=fields[5],
        trailers={
            key: tuple(value.strip() for value in told.split(_VALUE) if value.strip())
            for key, told in zip(TRAILERS, values, strict=True)
        },
    )


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


_MOST_FOLDERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What is left of the evidence of one handoff."""

    claim: Claim | None
    """None: the phase rests on no report."""
    report: SuiteReport | None
    """Only if its digest is the note's."""


def recorded(handed: Handed, *, reports: Path) -> Recorded:
    """The report of a handoff, looked for below ``reports`` by its name and told by its digest."""
    gate = handed.handoff.gate if handed.handoff is not None else None
    if handed.handoff is None or gate is None or handed.phase == "plan":
        return Recorded(claim=None, report=None)
    attempt = handed.handoff.retry_count + 1
    files = tuple(_files(reports, f"-{handed.phase}-{attempt}"))
    own = "" if handed.base is None else f"{label(handed.cycle, handed.base)}-{handed.phase}-{attempt}"
    mine = [path for path in files if path.parent.name == handed.ticket and path.name.partition(".")[0] == own]
    if gate.report_sha256 is None:
        if mine and gate.open and handed.phase in ("red", "green"):
            return Recorded(claim=false("report", f"It names no report, and {mine[0].name} is there."), report=None)
        return Recorded(claim=None, report=None)
    for path in (*mine, *(path for path in files if path not in mine)):
        if _digest(path) == gate.report_sha256:
            return _read(path)
    if mine:
        return Recorded(claim=false("report", f"{mine[0].name} is not the report whose digest it has."), report=None)
    told = "The report is not on this machine, so that only the tests themselves can be asked."
    return Recorded(claim=unknown("report", told), report=None)


def _read(path: Path) -> Recorded:
    """The report in a file that has the right digest."""
    told = f"{path.parent.name}/{path.name} has the digest."
    try:
        return Recorded(claim=true("report", told), report=load(path))
    except ReportError:
        return Recorded(claim=true("report", told), report=None)


def _files(reports: Path, suffix: str) -> Iterator[Path]:
    """The reports whose name, without its endings, ends in ``suffix``; no link is followed."""
    try:
        with os.scandir(reports) as entries:
            folders = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))[:_MOST_FOLDERS]
        for folder in folders:
            names = sorted(os.listdir(folder))
            yield from (Path(folder, name) for name in names if name.partition(".")[0].endswith(suffix))
    except OSError:
        return


def _digest(path: Path) -> str:
    """sha256 of a file's bytes; empty if it cannot be read."""
    try:
        return hashlib.sha256(read_ordinary(path, limit_bytes=LIMIT_BYTES)).hexdigest()
    except OSError:
        return ""
