"""Find the handoffs of a range of commits, and read the facts about each one.

Reading order: the claims of an audit (``Claim``), the commits (``Span``), the place of each handoff in the history
(``place_handoffs``), the phases of one cycle (``build_chains``), and the report on this machine (``find_report``).
Trailers decide where a handoff belongs if the commit has them: editing them would create another commit.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.git.notes import Note
from cdd_agent.git.repository import CommitId, Repository, format_lines
from cdd_agent.git.runner import GitRefused
from cdd_agent.storage import read_ordinary
from cdd_agent.tdd.phase_commit import make_handoff_id
from cdd_agent.tdd.step import step_label
from cdd_agent.work.handoff import NUMBER_KEYS, PHASE_OF, Handoff, decode_line, is_newer, phase_name, read_number
from cdd_agent.work.state import Phase
from pytest_tdd_agent.codec import LIMIT_BYTES, ReportError, load
from pytest_tdd_agent.report import SuiteReport

CLAIMS = {
    "note": "The note is readable and consistent about phase, gate and result.",
    "commit": "The note belongs to this commit, by the trailers or by the handoff's id.",
    "chain": "The earlier phases exist.",
    "report": "The report of the run exists and has the digest in the note.",
    "run": "The tests, run again in a clean copy, agree with the note.",
    "tests": "Test files and test configuration are unchanged since the earlier phase.",
    "listed": "The listed tests and files exist, with the stated results.",
    "checks": "The checks after the gate find what the note states.",
}
"""Name of a claim -> its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of one handoff."""

    name: str
    """One of ``CLAIMS``."""
    holds: bool | None
    """None: cannot be checked."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedHandoff:
    """One handoff with its checked claims."""

    ticket: str
    cycle: int
    phase: str
    """Such as ``RED``. Empty if unknown."""
    commit: str
    """The commit with the note or the trailers."""
    claims: tuple[Claim, ...]

    @property
    def failed(self) -> tuple[Claim, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if claim.holds is False)


def confirm(name: str, text: str) -> Claim:
    """Return a claim that holds."""
    return Claim(name=name, holds=True, text=text)


def refute(name: str, text: str) -> Claim:
    """Return a claim that does not hold."""
    return Claim(name=name, holds=False, text=text)


def leave_open(name: str, text: str) -> Claim:
    """Return a claim that cannot be checked."""
    return Claim(name=name, holds=None, text=text)


_NUMBER = "number"
TRAILERS: Mapping[str, tuple[str, ...]] = {
    "Ticket": ("Ticket",),
    "Phase": ("Phase",),
    _NUMBER: NUMBER_KEYS,
    "Handoff-Id": ("Handoff-Id",),
}
"""Statement of a commit of cdd -> the keys of the trailers that can make it."""
_REVISION = re.compile(r"\^?(?:[0-9a-f]{64}|[0-9a-f]{40})")
_FIELD, _VALUE = "\x1f", "\x1e"
_FORMAT = "%x1f".join(
    (
        *("%H", "%T", "%P", "%at", "%ct", "%s"),
        *(f"%(trailers:key={',key='.join(keys)},valueonly,separator=%x1e)" for keys in TRAILERS.values()),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedCommit:
    """One commit as the history describes it."""

    id: CommitId
    tree: str
    parents: tuple[CommitId, ...]
    is_rewritten: bool
    """Whether author and committer date differ, as after a rebase or ``--amend``."""
    subject: str
    trailers: Mapping[str, tuple[str, ...]]
    """Key of ``TRAILERS`` -> its values. A squashed commit has several."""

    @property
    def parent(self) -> CommitId | None:
        """The first parent."""
        return self.parents[0] if self.parents else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of the history."""

    commits: Mapping[CommitId, AuditedCommit]
    """The range and all its ancestors, parents first."""
    inside: frozenset[CommitId]

    def ancestors(self, commit: CommitId, *, most: int) -> Iterator[CommitId]:
        """Iterate over ``commit`` and its ancestors, nearest first."""
        seen, queue = {commit}, [commit]
        for count, each in enumerate(queue):
            if count >= most:
                return
            yield each
            known = self.commits.get(each)
            new = [parent for parent in (known.parents if known is not None else ()) if parent not in seen]
            seen.update(new)
            queue += new


def read_span(repository: Repository, revisions: str) -> Span:
    """Read a range in git's notation, such as ``main..HEAD``; raises ``UsageError`` if it names no commits."""
    # Only ids go on to other git commands, so the range cannot smuggle in an option.
    ids = _resolve_range(repository, revisions)
    tips = [each for each in ids if not each.startswith("^")]
    inside = repository.git("rev-list", ("--stdin",), stdin=format_lines(ids)).split()
    commits = _read_log(repository, "--topo-order", "--reverse", revisions=tips)
    return Span(commits={each.id: each for each in commits}, inside=frozenset(map(CommitId, inside)))


def find_commit(repository: Repository, commit: str) -> AuditedCommit | None:
    """Return the commit with this full id, or None if the repository does not have it."""
    if _REVISION.fullmatch(commit) is None:
        return None
    try:
        return next(iter(_read_log(repository, "--no-walk", "--ignore-missing", revisions=[commit])), None)
    except GitRefused:
        return None


def _read_log(repository: Repository, *options: str, revisions: Iterable[str]) -> list[AuditedCommit]:
    records = repository.git(
        "log", ("-z", *options, f"--format={_FORMAT}", "--stdin"), stdin=format_lines(revisions)
    ).split("\0")
    return [_parse_commit(record) for record in records if record]


def _resolve_range(repository: Repository, revisions: str) -> list[str]:
    hint = "write a range as for git log, in one word: main..HEAD, v1.0.., HEAD~3^!"
    if revisions.startswith("-") or "\0" in revisions or "\n" in revisions:
        raise UsageError(f"{revisions!r} is not a range of commits.", hint=hint)
    try:
        words = repository.git("rev-parse", ("--revs-only", "--end-of-options"), revisions, ("--",)).split()
        ids = [each for each in words if _REVISION.fullmatch(each)]
        for each in ids:
            repository.git("rev-parse", ("--verify", "--quiet"), f"{each.removeprefix('^')}^{{commit}}")
    except GitRefused as error:
        raise UsageError(f"{revisions!r} names no commits of this repository.", hint=hint) from error
    if not ids:
        raise UsageError(f"{revisions!r} names no commits of this repository.", hint=hint)
    return ids


def _parse_commit(record: str) -> AuditedCommit:
    fields = record.split(_FIELD)
    # A message may contain the separator to fake trailers; then no trailer counts.
    is_genuine = len(fields) == 6 + len(TRAILERS)
    values = fields[6:] if is_genuine else [""] * len(TRAILERS)
    return AuditedCommit(
        id=CommitId(fields[0].strip()),
        tree=fields[1],
        parents=tuple(map(CommitId, fields[2].split())),
        is_rewritten=fields[3] != fields[4],
        subject=fields[5],
        trailers={
            key: tuple(value.strip() for value in text.split(_VALUE) if value.strip())
            for key, text in zip(TRAILERS, values, strict=True)
        },
    )


PHASES: tuple[Phase, ...] = ("plan", "red", "green", "refactor")
MOST_ANCESTORS = 2_000
"""How many commits back to look for the start of a cycle."""
_Position: TypeAlias = tuple[str, int, Phase | None]
_NOWHERE: _Position = ("", 0, None)


class Placement(Enum):
    """How a handoff relates to the commit that its note is on."""

    OWN = auto()
    """The commit was made for it and has its id."""
    ADOPTED = auto()
    """The agent made the commit, so it has no trailers."""
    WITHOUT_COMMIT = auto()
    """The phase made no commit, so its note is on the previous one."""
    CLOSED = auto()
    MISPLACED = auto()
    MISSING = auto()
    """The commit has the trailers of a handoff, but its note has no readable line of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedHandoff:
    """A handoff at its position in the history."""

    commit: AuditedCommit
    placement: Placement
    ticket: str
    cycle: int
    phase: Phase | None
    """None if unknown."""
    handoff: Handoff | None = None
    """None if it is missing."""
    base: str | None = None
    """The commit on which the cycle began, which the handoff's id is derived from. Empty: none. None: unknown.

    Also None for commits before the range whose trailers have the id.
    """
    why: str = ""
    """The problem of an unreadable line, or the commit that a misplaced handoff belongs to."""

    @property
    def has_landed(self) -> bool:
        """Whether the phase succeeded, judging by its placement."""
        return self.phase is not None and self.placement not in (Placement.CLOSED, Placement.MISPLACED)

    @property
    def phase_name(self) -> str:
        """The name of the phase, such as ``RED``. Empty if unknown."""
        return phase_name(self.phase) if self.phase else ""

    @property
    def description(self) -> str:
        """The position in words, such as ``RED of sale, cycle 1``."""
        return f"{self.phase_name} of {self.ticket}, cycle {self.cycle}" if self.phase else "a handoff"

    @property
    def is_covered(self) -> bool:
        """Whether it claims that RED's new tests passed at once."""
        return self.phase == "red" and self.handoff is not None and self.handoff.test_result == "PASS"


Chain: TypeAlias = Mapping[Phase, PlacedHandoff]
"""The landed phases of one cycle -> the handoffs that ended them."""


def place_handoffs(span: Span, notes: Mapping[CommitId, Note]) -> tuple[PlacedHandoff, ...]:
    """Return every handoff of the span, in the order of the history, then of the phases."""
    owners = {each: commit.id for commit in span.commits.values() for each in commit.trailers["Handoff-Id"]}
    return tuple(
        placed
        for commit in span.commits.values()
        for placed in _place_on(commit, notes.get(commit.id), span=span, owners=owners)
    )


def build_chains(handoffs: Sequence[PlacedHandoff]) -> tuple[Chain, ...]:
    """Return the chain of each handoff. Misplaced handoffs and those without a phase get an empty chain."""
    current: dict[tuple[str, int], dict[Phase, PlacedHandoff]] = {}
    chains: list[Chain] = []
    for each in handoffs:
        if not each.phase or each.placement is Placement.MISPLACED:
            chains.append({})
            continue
        key = (each.ticket, each.cycle)
        chain = current.setdefault(key, {})
        if each.has_landed:
            if any(PHASES.index(before) >= PHASES.index(each.phase) for before in chain):
                chain = current[key] = {}
            chain[each.phase] = each
        chains.append(chain)
    return tuple(chains)


def _place_on(
    commit: AuditedCommit, note: Note | None, *, span: Span, owners: Mapping[str, CommitId]
) -> Iterator[PlacedHandoff]:
    newest: dict[tuple[str, str], Handoff] = {}
    for handoff in note.handoffs if note is not None else ():
        known = newest.get((handoff.id, handoff.phase))
        if known is None or (handoff.seq, not handoff.reconstructed) >= (known.seq, not known.reconstructed):
            newest[handoff.id, handoff.phase] = handoff
    problem = _find_note_problem(note)
    present = {handoff.id for handoff in newest.values()}
    lost = [each for each in dict.fromkeys(commit.trailers["Handoff-Id"]) if each not in present]
    positions = [_read_trailers(commit, identity) or _NOWHERE for identity in lost]
    for ticket, cycle, phase in positions or ([_NOWHERE] if problem else []):
        missing = Placement.MISSING
        yield PlacedHandoff(commit=commit, placement=missing, ticket=ticket, cycle=cycle, phase=phase, why=problem)
    cycles = [(handoff.ticket, handoff.cycle_number) for handoff in newest.values()]
    placed = [
        _place(
            handoff,
            commit,
            span=span,
            owner=owners.get(handoff.id),
            has_sibling=cycles.count((handoff.ticket, handoff.cycle_number)) > 1,
        )
        for handoff in newest.values()
    ]
    yield from sorted(placed, key=lambda each: PHASES.index(each.phase))


def _find_note_problem(note: Note | None) -> str:
    """Describe the damage of a note, or a line that looks like a handoff but cannot be read. Remarks are fine."""
    if note is None:
        return ""
    if note.damage is not None:
        return note.damage.what
    for number, line in enumerate(note.lines, start=1):
        if line.lstrip().startswith("{") and decode_line(line) is None and not is_newer(line):
            return f"Line {number} of its note is not a readable handoff."
    return ""


def _place(
    handoff: Handoff, commit: AuditedCommit, *, span: Span, owner: CommitId | None, has_sibling: bool
) -> PlacedHandoff:
    """Place one handoff. ``has_sibling``: the commit has another handoff of the same cycle."""
    is_own = handoff.id in commit.trailers["Handoff-Id"]
    base = None if is_own and commit.id not in span.inside else _find_base(handoff, commit, span=span)
    is_plausible = base is not None or commit.is_rewritten
    placement = _classify(handoff, commit, is_plausible=is_plausible, owner=owner, has_sibling=has_sibling)
    stated = (handoff.ticket, handoff.cycle_number, PHASE_OF[handoff.phase])
    ticket, cycle, phase = (_read_trailers(commit, handoff.id) if placement is Placement.OWN else None) or stated
    return PlacedHandoff(
        commit=commit,
        placement=placement,
        handoff=handoff,
        ticket=ticket,
        cycle=cycle,
        phase=phase,
        base=base,
        why=owner or "" if placement is Placement.MISPLACED else "",
    )


def _classify(
    handoff: Handoff, commit: AuditedCommit, *, is_plausible: bool, owner: CommitId | None, has_sibling: bool
) -> Placement:
    """Return the placement. ``is_plausible``: the handoff's id can come from this commit."""
    ids, gate = commit.trailers["Handoff-Id"], handoff.gate
    is_covered = handoff.phase == "RED" and handoff.test_result == "PASS"
    if handoff.id in ids:
        return Placement.OWN
    if not is_plausible:
        return Placement.MISPLACED
    if gate is not None and not gate.open and not is_covered:
        return Placement.CLOSED
    if owner is not None:
        return Placement.MISPLACED
    if handoff.phase == "REFACTOR" and (ids or gate is None or gate.report_sha256 is None):
        is_in_trailers = (
            handoff.ticket in commit.trailers["Ticket"] and str(handoff.cycle_number) in commit.trailers[_NUMBER]
        )
        return Placement.WITHOUT_COMMIT if has_sibling or is_in_trailers else Placement.MISPLACED
    if is_covered:
        return Placement.WITHOUT_COMMIT
    return Placement.MISPLACED if ids else Placement.ADOPTED


def _find_base(handoff: Handoff, commit: AuditedCommit, *, span: Span) -> str | None:
    """Return the commit that the handoff's id is derived from, together with its position. Empty: from none."""
    make_id = partial(make_handoff_id, handoff.ticket, handoff.cycle_number, phase=PHASE_OF[handoff.phase])
    for base in span.ancestors(commit.id, most=MOST_ANCESTORS):
        if make_id(base=base) == handoff.id:
            return base
    return "" if make_id(base=None) == handoff.id else None


def _read_trailers(commit: AuditedCommit, identity: str) -> _Position | None:
    """Return the position that a commit's trailers state for one of their ids, or None if they are incomplete."""
    index = commit.trailers["Handoff-Id"].index(identity)
    tickets, cycles, phases = (commit.trailers[key] for key in ("Ticket", _NUMBER, "Phase"))
    if not len(tickets) == len(cycles) == len(phases) == len(commit.trailers["Handoff-Id"]):
        return None
    phase, cycle = PHASE_OF.get(phases[index]), read_number(cycles[index])
    return (tickets[index], cycle, phase) if phase is not None and cycle else None


_MOST_FOLDERS = 10_000


def find_report(placed: PlacedHandoff, *, reports: Path) -> tuple[Claim | None, SuiteReport | None]:
    """Find the report of a handoff below ``reports`` by name and digest, and return the claim about it, and it.

    The claim is None if the phase does not need a report. The report is None unless it has the digest in the note.
    """
    gate = placed.handoff.gate if placed.handoff is not None else None
    if placed.handoff is None or gate is None or placed.phase == "plan":
        return None, None
    attempt = placed.handoff.retry_count + 1
    everything = tuple(_list_reports(reports))
    files = tuple(path for path in everything if path.name.partition(".")[0].endswith(f"-{placed.phase}-{attempt}"))
    stem = "" if placed.base is None else f"{step_label(placed.cycle, placed.base)}-{placed.phase}-{attempt}"
    own = [path for path in files if path.parent.name == placed.ticket and path.name.partition(".")[0] == stem]
    if gate.report_sha256 is None:
        if own and gate.open and placed.phase in ("red", "green"):
            return refute("report", f"The note names no report, but {own[0].name} exists."), None
        return None, None
    for path in (*own, *(path for path in files if path not in own)):
        if _digest(path) == gate.report_sha256:
            claim = confirm("report", f"{path.parent.name}/{path.name} has the digest.")
            with suppress(ReportError):
                return claim, load(path)
            return claim, None
    others = [path for path in everything if path.parent.name == placed.ticket and f"-{placed.phase}-" in path.name]
    if other := next((path for path in others if _digest(path) == gate.report_sha256), None):
        return refute(
            "report", f"The report of attempt {attempt} is named, but the digest is that of {other.name}."
        ), None
    if own:
        return refute("report", f"{own[0].name} does not have the digest in the note."), None
    text = "The report is not on this machine. Only the tests themselves can be checked."
    return leave_open("report", text), None


def _list_reports(reports: Path) -> Iterator[Path]:
    try:
        with os.scandir(reports) as entries:
            # A link could lead anywhere on the machine.
            folders = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))[:_MOST_FOLDERS]
        for folder in folders:
            yield from (Path(folder, name) for name in sorted(os.listdir(folder)))
    except OSError:
        return


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_ordinary(path, limit_bytes=LIMIT_BYTES)).hexdigest()
    except OSError:
        return ""
