"""The audit itself: every handoff of a range, its claims held against the history and against tests run anew."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import ClaimChecked, Emit, HandoffsAudited
from cdd_agent.git.notes.history import Note, read_notes, shallow_at
from cdd_agent.git.notes.store import REF, REPAIR, NotesDamaged, tip
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.testrun.suite import Suite
from cdd_agent.work.handoff import is_newer
from cdd_agent.workflows.audit.agreement import chain_claim, commit_claim, note_claim
from cdd_agent.workflows.audit.claim import Audited, Claim
from cdd_agent.workflows.audit.placement import Chain, Handed, chains, place
from cdd_agent.workflows.audit.recorded import recorded
from cdd_agent.workflows.audit.span import Span, look_up, read_span
from cdd_agent.workflows.audit.trials import Trials

_SHORT = 8
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
