"""The audit itself: every handoff of a range, its claims held against the history and against tests run anew.

What can be said of a handoff without running anything: whether note, commit and the phases before agree. Pure.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from cdd_agent.audit.handoffs import (
    Audited,
    Chain,
    Claim,
    Commit,
    Handed,
    Span,
    Standing,
    chains,
    false,
    look_up,
    place,
    read_span,
    recorded,
    true,
    unknown,
)
from cdd_agent.audit.reruns import Trials
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import ClaimChecked, Emit, HandoffsAudited
from cdd_agent.git.notes import REF, REPAIR, NotesDamaged, tip
from cdd_agent.git.notes_history import Note, read_notes, shallow_at
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.testrun.suite import Suite
from cdd_agent.work.handoff import PHASE_OF, GateSummary, Handoff, is_newer, phase_name, sequence

LookUp: TypeAlias = Callable[[str], Commit | None]
"""The commit of an id, wherever it is."""
_SHORT = 8
_REPAIR = "cdd tdd repair-notes shows what can be mended"
_WITHOUT_RED = ("docs:", "chore:")
"""Subjects of commits that change no behavior."""


def note_claim(handed: Handed) -> Claim:
    """Whether the note is there, and fits together."""
    handoff = handed.handoff
    if handoff is None:
        if handed.why and not handed.phase:
            return false("note", handed.why)
        lost = handed.why or f"The commit has the trailers of {handed.called}, and no note has its handoff"
        return false("note", f"{lost.rstrip('.')}: {_REPAIR}.")
    if handoff.reconstructed:
        return unknown("note", "It was lost, and made up from the commit's trailers: nothing of the evidence is left.")
    wrong = " ".join((*_contradictions(handoff), *_contradictions_of_place(handed, handoff)))
    return false("note", wrong) if wrong else true("note", "What it says fits together.")


def _contradictions(handoff: Handoff) -> Iterator[str]:
    """What in a note speaks against something else in it, a sentence each."""
    gate = handoff.gate
    if gate is None:
        yield "It has no gate, and is not marked as reconstructed."
        return
    if handoff.seq != sequence(handoff.phase, cycle=handoff.cycle_number):
        yield f"Its seq is {handoff.seq}, which is not that of {handoff.phase} in cycle {handoff.cycle_number}."
    if gate.phase != PHASE_OF[handoff.phase]:
        yield f"Its phase is {handoff.phase}, and its gate is that of {phase_name(gate.phase)}."
    if handoff.phase == "RED" and handoff.test_result == "PASS":
        yield from _contradictions_of_covered(handoff, gate)
        return
    if gate.open:
        yield from _contradictions_of_open(handoff, gate)
        return
    if handoff.error is None or handoff.error_details is None or not gate.reasons:
        yield "Its gate is closed, and it names no error."
    elif handoff.error != gate.reasons[0]:
        yield "Its error is not the first reason of its gate."
    if handoff.test_result is not None:
        yield f"Its gate is closed, and its result is {handoff.test_result}."


def _contradictions_of_covered(handoff: Handoff, gate: GateSummary) -> Iterator[str]:
    """The same where RED's tests passed at once: its gate stays closed, and that is no error."""
    if gate.open or not all(reason.startswith("already_green:") for reason in gate.reasons) or not gate.reasons:
        yield "Its tests passed, and its gate does not say that they passed at once."
    if handoff.error is not None or handoff.error_details is not None:
        yield "Its tests passed, and it names an error."
    if handoff.next_phase == "GREEN":
        yield "Its tests passed at once, and it goes on to GREEN."


def _contradictions_of_open(handoff: Handoff, gate: GateSummary) -> Iterator[str]:
    """The same where the gate is open."""
    if handoff.error is not None or handoff.error_details is not None:
        yield "Its gate is open, and it names an error."
    expected = {"PLAN": None, "RED": "FAIL"}.get(handoff.phase, "PASS")
    if handoff.test_result != expected:
        yield f"{handoff.phase} hands over with the result {expected}, and here it is {handoff.test_result}."
    if gate.reasons:
        yield "Its gate is open, and has reasons to be closed."
    if handoff.phase == "RED" and handoff.next_phase != "GREEN":
        yield f"Its tests failed, and it goes on to {handoff.next_phase}."


def _contradictions_of_place(handed: Handed, handoff: Handoff) -> Iterator[str]:
    """What in a note speaks against where it is."""
    gate = handoff.gate
    if handed.standing is Standing.OWN and gate is not None and not gate.open and not handed.is_covered:
        yield "Its gate is closed, and the commit was made all the same."
    if handed.standing is Standing.LATER and handed.phase == "refactor" and gate is not None and gate.report_sha256:
        yield "It changed nothing, and names the report of a test run."


def commit_claim(handed: Handed, *, look_up: LookUp) -> Claim:
    """Whether the note is of the commit that it is on."""
    handoff, commit = handed.handoff, handed.commit
    assert handoff is not None
    if handed.standing is Standing.MISPLACED:
        if handed.why:
            return false("commit", f"Its id is the Handoff-Id of {handed.why[:_SHORT]}, and it lies on another commit.")
        of = f"{handoff.phase} of {handoff.ticket}, cycle {handoff.cycle_number}"
        return false("commit", f"Its id is not that of {of} on this commit, nor on any that leads to it.")
    if handed.standing is Standing.OWN:
        wrong = _against_trailers(handed, handoff)
        if wrong:
            return false("commit", wrong)
    moved = _moved(handoff, commit, look_up=look_up)
    if moved is not None:
        return moved
    if handed.standing is Standing.OWN:
        return true("commit", "The commit's trailers say the same.")
    if handed.base is None and handed.standing is not Standing.LATER:
        return unknown("commit", "The commit was rewritten and has no trailers that say the same.")
    return true("commit", "The phase has no commit of its own, and its id is of this one or one that leads to it.")


def _against_trailers(handed: Handed, handoff: Handoff) -> str:
    """Where the note says something else than the trailers; empty if they agree."""
    said = {"Ticket": handoff.ticket, "Phase": handoff.phase, "Cycle": str(handoff.cycle_number)}
    trailers = {"Ticket": handed.ticket, "Phase": handed.phase_name, "Cycle": str(handed.cycle)}
    lacking = [key for key in said if not handed.commit.trailers[key]]
    if lacking:
        return f"The commit has a Handoff-Id, and no {' and no '.join(lacking)}."
    return " ".join(
        f"The note says {key.lower()} {said[key]}, and the commit's trailer says {trailers[key]}."
        for key in said
        if said[key] != trailers[key] or said[key] not in handed.commit.trailers[key]
    )


def _moved(handoff: Handoff, commit: Commit, *, look_up: LookUp) -> Claim | None:
    """What to say of a note that names another commit than the one it is on; None if it names that one.

    git carries notes over to the commits that take the place of others, which it makes anew: such a commit is younger
    than its author's date.
    """
    if handoff.commit == commit.id:
        return None
    named = handoff.commit[:_SHORT]
    original, mine = look_up(handoff.commit), commit.trailers["Handoff-Id"]
    if original is not None and not set(mine).isdisjoint(original.trailers["Handoff-Id"]):
        return true("commit", f"It was carried over from {named}, which has the same Handoff-Id.")
    if commit.is_rewritten and (original is None or not mine):
        return unknown("commit", f"It names {named}; as the commit was rewritten since, that may have been this one.")
    return false("commit", f"It names {named} as its commit, and is on {commit.id[:_SHORT]}.")


def chain_claim(handed: Handed, chain: Chain, *, began_red: Callable[[], bool]) -> Claim:
    """Whether the phases that have to come before are there.

    ``began_red`` is asked of a GREEN without a RED: whether its tests failed on the commit before.
    """
    red, green = chain.landed.get("red"), chain.landed.get("green")
    if handed.phase == "green":
        return _chain_of_green(handed, red, began_red=began_red)
    if handed.phase != "refactor":
        return true("chain", f"It begins cycle {handed.cycle}.")
    if green is not None:
        return true("chain", f"Its GREEN is {green.commit.id[:_SHORT]}.")
    if red is not None:
        return false("chain", f"There is a RED, {red.commit.id[:_SHORT]}, and no GREEN before it.")
    return true("chain", "It is a refactoring alone.")


def _chain_of_green(handed: Handed, red: Handed | None, *, began_red: Callable[[], bool]) -> Claim:
    """Whether a GREEN has its RED."""
    if red is not None and red.is_covered:
        return false("chain", f"RED passed at once, says the note on {red.commit.id[:_SHORT]}: nothing was left.")
    if red is not None:
        return true("chain", f"Its RED is {red.commit.id[:_SHORT]}.")
    if handed.commit.subject.startswith(_WITHOUT_RED):
        return true("chain", "It changes no behavior, and needs no RED.")
    if began_red():
        return true("chain", "It has no RED of its own: its tests failed on the commit before.")
    return false("chain", f"There is no RED of {handed.ticket}, cycle {handed.cycle}, before it.")


_MADE_BY = "cdd exec SLUG, cdd tdd run WORDS and cdd green TEST make some"


class Auditor:
    """Audits the handoffs of one project. Work tree, index, history and refs stay as they are."""

    def __init__(self, *, repository: Repository, suite: Callable[[], Suite], reports: Path, emit: Emit) -> None:
        """Nothing is read or run yet; ``suite`` is asked for once there is something to run."""
        self._repository = repository
        self._suite = suite
        self._reports = reports
        self._emit = emit

    def run(self, revisions: str = "HEAD") -> tuple[Audited, ...]:
        """Every handoff in ``revisions``, oldest first, each told as it is done.

        Raises ``UsageError`` for a range that names no commits, ``NotesDamaged`` if the notes cannot be read as a
        whole, and ``EnvironmentMissing`` if there are none, if the history is not whole, or if the tests can be run
        nowhere.
        """
        if revisions == "HEAD" and self._repository.head() is None:
            raise EnvironmentMissing("There is no commit, and no handoff to audit.", hint=_MADE_BY)
        span = read_span(self._repository, revisions)
        ends = shallow_at(self._repository) & span.commits.keys()
        if ends:
            raise EnvironmentMissing(
                f"The history ends at {min(ends)[:_SHORT]}, as the clone is a shallow one: what the handoffs after it "
                "rest on is not here.",
                hint=f"bring the rest: git fetch --unshallow; and the notes: git fetch origin {REF}:{REF}",
            )
        top = tip(self._repository)
        notes = {note.commit: note for note in read_notes(self._repository, top)} if top is not None else {}
        inside = [note for commit, note in notes.items() if commit in span.inside]
        if not inside:
            raise _no_notes(revisions, span=span, are_elsewhere=bool(notes))
        for note in inside:
            if any(map(is_newer, note.lines)):
                raise NotesDamaged(
                    f"The note on {note.commit} was written by a later version of this program.",
                    hint="upgrade with: pip install --upgrade cdd-agent",
                )
        return self._audited(span, notes)

    def _audited(self, span: Span, notes: dict[CommitId, Note]) -> tuple[Audited, ...]:
        """Every handoff in the span, oldest first."""
        handed = place(span, notes)
        trials = Trials(repository=self._repository, span=span, suite=self._suite, emit=self._emit)
        audited = tuple(
            self._handoff(each, chain, trials=trials)
            for each, chain in zip(handed, chains(handed), strict=True)
            if each.commit.id in span.inside
        )
        claims = [claim for each in audited for claim in each.claims]
        counted = {holds: sum(claim.holds is holds for claim in claims) for holds in (True, False, None)}
        summary = HandoffsAudited(
            handoffs=len(audited), held=counted[True], failed=counted[False], unknown=counted[None]
        )
        self._emit(summary)
        if trials.are_vain and not summary.failed:
            told = next((claim.told for claim in claims if claim.name == "run"), "")
            raise EnvironmentMissing(f"No handoff could be audited. {told}", hint="see what is missing: cdd doctor")
        return audited

    def _handoff(self, handed: Handed, chain: Chain, *, trials: Trials) -> Audited:
        """One handoff with its claims, each told as it is made."""
        audited = Audited(
            ticket=handed.ticket, cycle=handed.cycle, phase=handed.phase_name, commit=handed.commit.id, claims=()
        )
        for claim in self._claims(handed, chain, trials=trials):
            audited = replace(audited, claims=(*audited.claims, claim))
            self._emit(
                ClaimChecked(
                    ticket=audited.ticket,
                    cycle=audited.cycle,
                    phase=audited.phase,
                    commit=audited.commit,
                    claim=claim.name,
                    holds=claim.holds,
                    told=claim.told,
                )
            )
        return audited

    def _claims(self, handed: Handed, chain: Chain, *, trials: Trials) -> Iterator[Claim]:
        """All that can be asked of one handoff, what costs nothing first."""
        yield note_claim(handed)
        if handed.handoff is None:
            return
        yield commit_claim(handed, look_up=lambda name: look_up(self._repository, name))
        if not handed.has_landed:
            return
        yield chain_claim(handed, chain, began_red=lambda: trials.began_red(handed, chain))
        found = recorded(handed, reports=self._reports)
        if found.claim is not None:
            yield found.claim
        yield from trials.claims(handed, chain, report=found.report)


def _no_notes(revisions: str, *, span: Span, are_elsewhere: bool) -> EnvironmentMissing:
    """The error that there is nothing to audit, and where it may be."""
    told = f"No commit of {revisions} has a handoff note"
    if any(commit.trailers["Handoff-Id"] for each, commit in span.commits.items() if each in span.inside):
        return EnvironmentMissing(
            f"{told}, though there are commits with a Handoff-Id: a clone has no notes, and a cherry-pick takes none.",
            hint=f"git fetch origin {REF}:{REF}; or see what can be mended: {REPAIR}",
        )
    if are_elsewhere:
        return EnvironmentMissing(f"{told}; other commits have.", hint="leave the range out, or see: cdd tdd history")
    return EnvironmentMissing(f"{told}.", hint=f"{_MADE_BY}; after a clone: git fetch origin {REF}:{REF}")
