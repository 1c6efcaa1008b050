"""Audit the handoffs of a range of commits.

``check_note`` and ``check_commit`` check whether a note is consistent and belongs to its commit. They are pure, and so
are ``check_listed`` and ``check_examples``, which check the other statements of a note. ``Auditor`` adds the recorded
reports, the tests that it runs again, and the checks of ``recheck``.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from cdd_agent.audit import handoffs
from cdd_agent.audit.handoffs import Claim, PlacedHandoff, Placement, Span, confirm, leave_open, refute
from cdd_agent.audit.recheck import recheck
from cdd_agent.audit.reruns import RerunClaims, Reruns
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import ClaimChecked, Emit, HandoffsAudited
from cdd_agent.git.notes import REF, REPAIR_COMMAND, Note, NotesDamaged, read_notes, read_shallow_commits, read_tip
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.runner import GitRefused
from cdd_agent.installation import suggest_upgrade
from cdd_agent.tdd.examination import load_examples
from cdd_agent.tdd.phase_commit import make_handoff_id
from cdd_agent.tdd.step import step_label
from cdd_agent.testrun.suite import Suite
from cdd_agent.work.finding import Finding
from cdd_agent.work.handoff import PHASE_OF, GateSummary, Handoff, is_newer, phase_name, sequence
from cdd_agent.work.records import find_records
from cdd_agent.work.wording import explain
from pytest_tdd_agent.comparison import is_inside
from pytest_tdd_agent.report import SuiteReport

FindCommit: TypeAlias = Callable[[str], handoffs.AuditedCommit | None]
_SHORT = 8
_WITHOUT_RED = ("docs:", "chore:")
_TEST_LIST = "test-list.md"
_FOLLOWING = {
    "PLAN": ("RED", "COMPLETE"),
    "RED": ("GREEN",),
    "GREEN": ("REFACTOR", "PLAN", "COMPLETE"),
    "REFACTOR": ("PLAN", "COMPLETE"),
}
"""An open phase -> the phases that can follow it."""
_MADE_BY = "create some with: cdd exec SLUG, cdd tdd run WORDS or cdd green TEST"
_SUBJECT = 40
"""Characters of a description that a commit's subject surely has."""


def check_note(placed: PlacedHandoff) -> Claim:
    """Check whether the note exists and is consistent."""
    handoff = placed.handoff
    if handoff is None:
        if placed.why and not placed.phase:
            return refute("note", placed.why)
        why = placed.why or f"The commit has the trailers of {placed.description}, but no note has its handoff"
        return refute("note", f"{why.rstrip('.')}. See possible repairs with cdd tdd repair-notes.")
    if handoff.reconstructed:
        return leave_open("note", "The note was lost and rebuilt from the commit's trailers, without its evidence.")
    errors = " ".join((*_find_contradictions(handoff), *_check_placement(placed, handoff)))
    return refute("note", errors) if errors else confirm("note", "The note is consistent.")


def _find_contradictions(handoff: Handoff) -> Iterator[str]:
    gate = handoff.gate
    if gate is None:
        yield "It has no gate and is not marked as reconstructed."
        return
    if handoff.seq != sequence(handoff.phase, cycle=handoff.cycle_number):
        yield f"Its seq {handoff.seq} does not fit {handoff.phase} in cycle {handoff.cycle_number}."
    if gate.phase != PHASE_OF[handoff.phase]:
        yield f"Its phase is {handoff.phase}, but its gate is for {phase_name(gate.phase)}."
    if handoff.phase == "RED" and handoff.test_result == "PASS":
        yield from _check_covered(handoff, gate)
    elif gate.open:
        yield from _check_open(handoff, gate)
    else:
        if handoff.error is None or handoff.error_details is None or not gate.reasons:
            yield "Its gate is closed, but it names no error."
        elif handoff.error != gate.reasons[0]:
            yield "Its error is not the first reason of its gate."
        elif handoff.error_details.reasons != gate.reasons:
            yield "Its error details are not the reasons of its gate."
        if handoff.test_result is not None:
            yield f"Its gate is closed, but its result is {handoff.test_result}."


def _check_covered(handoff: Handoff, gate: GateSummary) -> Iterator[str]:
    # If RED's tests pass at once, the gate stays closed, but the phase has not failed.
    if gate.open or {reason.code for reason in gate.reasons} != {"already_green"}:
        yield "Its tests passed, but its gate does not say that they passed at once."
    if handoff.error is not None or handoff.error_details is not None:
        yield "Its tests passed, but it names an error."
    if handoff.next_phase == "GREEN":
        yield "Its tests passed at once, but its next phase is GREEN."


def _check_open(handoff: Handoff, gate: GateSummary) -> Iterator[str]:
    if handoff.error is not None or handoff.error_details is not None:
        yield "Its gate is open, but it names an error."
    expected = {"PLAN": None, "RED": "FAIL"}.get(handoff.phase, "PASS")
    if handoff.test_result != expected:
        yield f"{handoff.phase} ends with the result {expected}, but this one ended with {handoff.test_result}."
    if gate.reasons:
        yield "Its gate is open, but has reasons to be closed."
    if handoff.phase == "RED" and handoff.next_phase != "GREEN":
        yield f"Its tests failed, but its next phase is {handoff.next_phase}."
    elif handoff.next_phase not in _FOLLOWING[handoff.phase]:
        yield f"Its phase is {handoff.phase}, but its next phase is {handoff.next_phase}."


def _check_placement(placed: PlacedHandoff, handoff: Handoff) -> Iterator[str]:
    gate = handoff.gate
    if placed.placement is Placement.OWN and gate is not None and not gate.open and not placed.is_covered:
        yield "Its gate is closed, but the commit was made."
    is_unchanged = placed.placement is Placement.WITHOUT_COMMIT and placed.phase == "refactor"
    if is_unchanged and gate is not None and gate.report_sha256:
        yield "It changed nothing, but names the report of a test run."


def check_commit(placed: PlacedHandoff, *, find: FindCommit) -> Claim:
    """Check whether the note belongs to its commit."""
    handoff, commit = placed.handoff, placed.commit
    assert handoff is not None
    if placed.placement is Placement.MISPLACED:
        if placed.why:
            return refute("commit", f"Its id is the Handoff-Id of another commit, {placed.why[:_SHORT]}.")
        described = f"{handoff.phase} of {handoff.ticket}, cycle {handoff.cycle_number}"
        return refute("commit", f"Its id does not belong to {described} on this commit or an ancestor.")
    if placed.placement is Placement.OWN:
        difference = _compare_trailers(placed, handoff)
        if difference:
            return refute("commit", difference)
    base = handoff.base_commit
    number, phase = handoff.cycle_number, PHASE_OF[handoff.phase]
    if base is not None and make_handoff_id(handoff.ticket, number, phase=phase, base=base) != handoff.id:
        return refute("commit", f"It names {base[:_SHORT]} as the commit on which the step began, but its id does not.")
    if handoff.commit != commit.id:
        return _check_carried_over(handoff, commit, find=find)
    if placed.placement is Placement.OWN:
        return confirm("commit", "The commit's trailers agree.")
    if placed.base is None and placed.placement is not Placement.WITHOUT_COMMIT:
        return leave_open("commit", "The commit was rewritten and has no matching trailers.")
    return confirm("commit", "The phase made no commit, and its id belongs to this commit or an ancestor.")


def _compare_trailers(placed: PlacedHandoff, handoff: Handoff) -> str:
    stated = {"Ticket": handoff.ticket, "Phase": handoff.phase, "number": str(handoff.cycle_number)}
    trailers = {"Ticket": placed.ticket, "Phase": placed.phase_name, "number": str(placed.cycle)}
    missing = [" or ".join(handoffs.TRAILERS[key]) for key in stated if not placed.commit.trailers[key]]
    if missing:
        return f"The commit has a Handoff-Id, but no {' and no '.join(missing)}."
    return " ".join(
        f"The note says {key.lower()} {stated[key]}, but the commit's trailer says {trailers[key]}."
        for key in stated
        if stated[key] != trailers[key] or stated[key] not in placed.commit.trailers[key]
    )


def _check_carried_over(handoff: Handoff, commit: handoffs.AuditedCommit, *, find: FindCommit) -> Claim:
    """Check a note that names another commit: git copies notes when it rewrites commits."""
    named = handoff.commit[:_SHORT]
    original, ids = find(handoff.commit), commit.trailers["Handoff-Id"]
    if original is not None and not set(ids).isdisjoint(original.trailers["Handoff-Id"]):
        return confirm("commit", f"It was carried over from {named}, which has the same Handoff-Id.")
    if commit.is_rewritten and (original is None or not ids):
        return leave_open("commit", f"It names {named}, which may be this commit before it was rewritten.")
    return refute("commit", f"It names {named} as its commit, but is on {commit.id[:_SHORT]}.")


def check_chain(reruns: RerunClaims) -> Claim:
    """Check whether the required earlier phases exist. Only a GREEN without a RED needs to run tests."""
    placed, red, green = reruns.placed, reruns.chain.get("red"), reruns.chain.get("green")
    if placed.phase == "green":
        return _check_red_of_green(placed, red, reruns=reruns)
    if placed.phase != "refactor":
        return confirm("chain", f"It begins cycle {placed.cycle}.")
    if green is not None:
        return confirm("chain", f"Its GREEN is {green.commit.id[:_SHORT]}.")
    if red is not None:
        return refute("chain", f"Its RED is {red.commit.id[:_SHORT]}, but it has no GREEN.")
    return confirm("chain", "It is a refactoring without other phases.")


def _check_red_of_green(placed: PlacedHandoff, red: PlacedHandoff | None, *, reruns: RerunClaims) -> Claim:
    if red is not None and red.is_covered:
        named = red.commit.id[:_SHORT]
        return refute("chain", f"RED's tests passed at once, says the note on {named}, so GREEN had nothing to do.")
    if red is not None:
        return confirm("chain", f"Its RED is {red.commit.id[:_SHORT]}.")
    if placed.commit.subject.startswith(_WITHOUT_RED):
        return confirm("chain", "It does not change behavior and needs no RED.")
    if placed.handoff is not None and placed.handoff.source == "generate" and not placed.handoff.completed_tests:
        # A node that no given test enters yet.
        return leave_open("chain", "It has no RED, and it names no test that shows its code.")
    has_failed = reruns.began_red()
    if has_failed:
        return confirm("chain", "It needs no RED, because its tests failed on the commit before.")
    if has_failed is None:
        return leave_open("chain", "It has no RED, and its tests cannot be run on the commit before.")
    if why := reruns.explain_uncommitted():
        return leave_open("chain", f"It has no RED, and whether its tests failed before is unknown. {why}")
    return refute("chain", f"No RED of {placed.ticket}, cycle {placed.cycle}, comes before it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFacts:
    """The facts against which the lists of a note are checked."""

    read: Callable[[str], str | None]
    """Returns the text of a file in the commit, or the names in a folder; paths are relative to the project."""
    test_list: str
    """The text of ``test-list.md`` in the commit; empty if there is none."""
    completed: frozenset[str]
    """Descriptions of the tests that the phases up to this one have completed."""
    is_whole: bool
    """Whether the handoffs of all earlier phases are known."""
    report: SuiteReport | None
    """Of the tests, run again; None if they cannot be judged."""
    uncommitted: frozenset[str] = frozenset()
    """Listed tests that cannot be judged, because git lacks them."""
    why_uncommitted: str = ""


def check_listed(placed: PlacedHandoff, facts: ListedFacts) -> Claim:
    """Check whether the listed tests and files exist, and the tests have the stated results."""
    handoff = placed.handoff
    assert handoff is not None
    found = [*_check_subject(placed, handoff), *_check_place(placed, handoff, facts=facts)]
    doubts = [*filter(None, (facts.why_uncommitted,)), *_doubt_source(placed, handoff, facts=facts)]
    for field, names in (("completedTests", handoff.completed_tests), ("pendingTests", handoff.pending_tests)):
        for name in names:
            text = facts.read(name.partition("::")[0])
            if name in facts.uncommitted:
                continue
            if text is not None:
                found += _check_test(field, name, report=facts.report, text=text)
            elif field == "completedTests" and name not in facts.completed:
                text = f"It lists {name!r} as completed, but no cycle did that."
                if facts.is_whole:
                    found.append(text)
                else:
                    doubts.append(f"{text} The notes of earlier phases are not all known.")
            elif field == "pendingTests" and name not in facts.test_list:
                found.append(f"It lists {name!r} as pending, which is neither a test nor in test-list.md.")
    if found:
        return refute("listed", " ".join(found))
    if doubts:
        return leave_open("listed", " ".join(doubts))
    return confirm("listed", "The listed tests and files exist, with these results.")


def _check_subject(placed: PlacedHandoff, handoff: Handoff) -> Iterator[str]:
    subject, title = placed.commit.subject, handoff.current_test.description
    is_stated = placed.placement is Placement.OWN and not placed.commit.is_rewritten
    if is_stated and not subject.endswith(": no changes needed") and title[:_SUBJECT] not in subject:
        yield f"Its description is {title!r}, but the commit's subject is {subject!r}."


def _check_place(placed: PlacedHandoff, handoff: Handoff, *, facts: ListedFacts) -> Iterator[str]:
    file, checkpoint = handoff.current_test.test_file, handoff.checkpoint
    is_expected = placed.has_landed and placed.phase != "plan" and not placed.is_covered
    is_known = file in {name.partition("::")[0] for name in facts.uncommitted}
    if file and is_expected and not is_known and facts.read(file) is None:
        yield f"Its test file {file} is not in the commit."
    own = rf"refs/cdd/checkpoints/{re.escape(handoff.ticket)}/(fork-[^/]+/)?step-.*"
    if checkpoint is not None and not re.fullmatch(own, checkpoint):
        yield f"Its checkpoint {checkpoint} is not of {handoff.ticket}."


def _doubt_source(placed: PlacedHandoff, handoff: Handoff, *, facts: ListedFacts) -> Iterator[str]:
    # Not a lie: the plan names this file, and an honest step may delete it or do without it, as one without tests does.
    file, test_file = handoff.current_test.impl_file, handoff.current_test.test_file
    is_written = placed.phase in ("green", "refactor") and placed.has_landed and not placed.is_covered
    if file and test_file and is_written and facts.read(file) is None:
        yield f"Its source file {file} is not in the commit: deleted, never needed, or wrongly named."


def _check_test(field: str, name: str, *, report: SuiteReport | None, text: str) -> Iterator[str]:
    """Yield the errors of a listed test. In a file or class, a single test with the result is enough."""
    if report is None or not report.structured:
        return
    own = [case for case in report.tests if case.nodeid == name or is_inside(case.nodeid, name)]
    errors = (error.nodeid for error in report.collect_errors)
    blocked = any(name == each or is_inside(name, each) or is_inside(each, name) for each in errors)
    # In a file that cannot be collected, only the text tells which tests there are.
    is_named = "::" not in name or name.partition("[")[0].rpartition("::")[2] in text
    if not own and not (blocked and is_named):
        yield f"It lists {name} in {field}, which the tests do not contain."
    elif field == "completedTests" and not any(case.outcome == "passed" for case in own):
        yield f"It lists {name} as completed, but it does not pass."
    elif field == "pendingTests" and own and not blocked and all(case.outcome == "passed" for case in own):
        yield f"It lists {name} as pending, but it passes."


def check_examples(stated: tuple[Finding, ...], saved: tuple[Finding, ...] | None, *, has_reports: bool) -> Claim:
    """Check the Examiner's results against those in the folder of reports; None: there are none.

    ``has_reports``: the folder has the report of the phase.
    """
    if saved is None and not has_reports:
        return leave_open("checks", "The further examples are not on this machine.")
    if saved is not None and stated != saved and any(finding.case == "text" for finding in stated):
        return leave_open("checks", "Version 1 keeps sentences, so the further examples are not compared.")
    if stated != saved:
        claimed, known = ("; ".join(map(explain, each or ())) or "nothing" for each in (stated, saved))
        return refute(
            "checks", f"It states {claimed}, but the examples beside the report say {known.removesuffix('.')}."
        )
    return confirm("checks", "The results of the further examples are those on this machine.")


class Auditor:
    """Audits the handoffs of one project. Work tree, index, history and refs stay unchanged."""

    def __init__(self, *, repository: Repository, suite: Callable[[], Suite], project: Path, emit: Emit) -> None:
        """Create an auditor. ``suite`` is called for the first test run only."""
        self._repository = repository
        self._suite = suite
        self._project = project
        self._reports = find_records(project).folder / "reports"
        self._completed: dict[str, set[str]] = {}
        """Ticket -> descriptions of the tests that the phases so far have completed."""
        self._lost: set[str] = set()
        self._emit = emit

    def run(self, revisions: str = "HEAD") -> tuple[handoffs.AuditedHandoff, ...]:
        """Audit every handoff in ``revisions``, oldest first. Each claim is emitted as soon as it is checked.

        Raises ``UsageError`` for an invalid range, ``NotesDamaged`` if the notes cannot be read, and
        ``EnvironmentMissing`` if there are none, if the clone is shallow, or if the tests cannot run.
        """
        if revisions == "HEAD" and self._repository.read_head() is None:
            raise EnvironmentMissing("The repository has no commit, so it has no handoffs.", hint=_MADE_BY)
        span = handoffs.read_span(self._repository, revisions)
        ends = read_shallow_commits(self._repository) & span.commits.keys()
        if ends:
            raise EnvironmentMissing(
                f"The clone is shallow: its history ends at {min(ends)[:_SHORT]}, before the commits that the "
                "handoffs build on.",
                hint=f"fetch the rest: git fetch --unshallow; and the notes: git fetch origin {REF}:{REF}",
            )
        top = read_tip(self._repository)
        notes = {note.commit: note for note in read_notes(self._repository, top)} if top is not None else {}
        inside = [note for commit, note in notes.items() if commit in span.inside]
        if not inside:
            raise _explain_missing_notes(revisions, span=span, are_elsewhere=bool(notes))
        for note in inside:
            if any(map(is_newer, note.lines)):
                raise NotesDamaged(
                    f"A later version of cdd wrote the note on {note.commit}.",
                    hint=f"upgrade with: {suggest_upgrade()}",
                )
        return self._audit(span, notes)

    def _audit(self, span: Span, notes: dict[CommitId, Note]) -> tuple[handoffs.AuditedHandoff, ...]:
        placed_handoffs = handoffs.place_handoffs(span, notes)
        runs = Reruns(repository=self._repository, make_suite=self._suite, emit=self._emit)
        audited = []
        for placed, chain in zip(placed_handoffs, handoffs.build_chains(placed_handoffs), strict=True):
            self._remember(placed)
            if placed.commit.id in span.inside:
                audited.append(self._audit_handoff(RerunClaims(placed=placed, chain=chain, span=span, runs=runs)))
        claims = [claim for each in audited for claim in each.claims]
        counts = {holds: sum(claim.holds is holds for claim in claims) for holds in (True, False, None)}
        self._emit(
            HandoffsAudited(handoffs=len(audited), held=counts[True], failed=counts[False], unknown=counts[None])
        )
        if runs.results and not runs.has_run and not counts[False]:
            text = next((claim.text for claim in claims if claim.name == "run"), "")
            raise EnvironmentMissing(f"No handoff could be audited. {text}", hint="find the cause: cdd doctor")
        return tuple(audited)

    def _remember(self, placed: PlacedHandoff) -> None:
        """Add the test that a phase completes. If its handoff is lost, remember the ticket."""
        handoff = placed.handoff
        if handoff is None or handoff.reconstructed:
            self._lost.add(placed.ticket)
        elif placed.phase in ("green", "refactor") or (placed.is_covered and placed.placement is Placement.OWN):
            self._completed.setdefault(placed.ticket, set()).add(handoff.current_test.description)

    def _audit_handoff(self, reruns: RerunClaims) -> handoffs.AuditedHandoff:
        claims, placed = [], reruns.placed
        for claim in self._check_claims(reruns):
            claims.append(claim)
            self._emit(
                ClaimChecked(
                    ticket=placed.ticket,
                    cycle=placed.cycle,
                    phase=placed.phase_name,
                    commit=placed.commit.id,
                    claim=claim.name,
                    holds=claim.holds,
                    told=claim.text,
                )
            )
        return handoffs.AuditedHandoff(
            ticket=placed.ticket,
            cycle=placed.cycle,
            phase=placed.phase_name,
            commit=placed.commit.id,
            claims=tuple(claims),
        )

    def _check_claims(self, reruns: RerunClaims) -> Iterator[Claim]:
        placed = reruns.placed
        yield check_note(placed)
        if placed.handoff is None:
            return
        yield check_commit(placed, find=lambda name: handoffs.find_commit(self._repository, name))
        if not placed.has_landed:
            return
        claim, report = handoffs.find_report(placed, reports=self._reports)
        reruns = replace(reruns, recorded=report)
        yield check_chain(reruns)
        if claim is not None:
            yield claim
        claims = list(reruns.check())
        yield from claims
        has_run = any(claim.name == "run" and claim.holds for claim in claims)
        yield self._check_listed(reruns, has_run=has_run)
        has_report = report is not None
        checked = list(self._check_checks(reruns, has_run=has_run, has_report=has_report))
        yield from sorted(checked, key=lambda claim: (False, None, True).index(claim.holds))[:1]  # the worst

    def _check_listed(self, reruns: RerunClaims, *, has_run: bool) -> Claim:
        placed, project = reruns.placed, self._project
        root = self._repository.root.resolve()
        inside = project.resolve().relative_to(root).as_posix() if project.resolve().is_relative_to(root) else "."
        prefix = "" if inside == "." else f"{inside}/"

        def read(path: str) -> str | None:
            try:
                return self._repository.git("show", f"{reruns.tree}:{prefix}{path}")
            except GitRefused:
                return None

        why = reruns.explain_uncommitted() if not has_run else ""
        facts = ListedFacts(
            read=read,
            test_list=read(_TEST_LIST) or "",
            completed=frozenset(self._completed.get(placed.ticket, ())),
            is_whole=placed.ticket not in self._lost,
            report=reruns.report if has_run else None,
            uncommitted=frozenset(reruns.uncommitted if why else ()),
            why_uncommitted=why,
        )
        return check_listed(placed, facts)

    def _check_checks(self, reruns: RerunClaims, *, has_run: bool, has_report: bool) -> Iterator[Claim]:
        """Check the results of the checks that the note of an open phase states."""
        placed, gate = reruns.placed, reruns.placed.handoff.gate if reruns.placed.handoff is not None else None
        if gate is None or placed.phase not in ("red", "green", "refactor"):
            return
        if gate.examples and placed.base is not None:
            # Those of a second round, after a return to RED, count before those of the first.
            label, rounds = step_label(placed.cycle, placed.base), ("again-green", "green")
            files = [self._reports / placed.ticket / f"{label}-{name}-examples.json" for name in rounds]
            saved = next(filter(None, map(load_examples, files)), None)
            facts = saved.facts if saved is not None else None
            yield check_examples(gate.examples, facts, has_reports=has_report)
        change = reruns.change
        if gate.evidence and has_run and change is not None:
            yield recheck(gate.evidence, change, repository=self._repository, suite=reruns.runs.suite)


def _explain_missing_notes(revisions: str, *, span: Span, are_elsewhere: bool) -> EnvironmentMissing:
    happened = f"No commit of {revisions} has a handoff note"
    if any(commit.trailers["Handoff-Id"] for each, commit in span.commits.items() if each in span.inside):
        return EnvironmentMissing(
            f"{happened}, although some have a Handoff-Id: a clone has no notes, and a cherry-pick does not copy them.",
            hint=f"git fetch origin {REF}:{REF}; or see possible repairs: {REPAIR_COMMAND}",
        )
    if are_elsewhere:
        return EnvironmentMissing(
            f"{happened}, but other commits have.", hint="omit the range, or see: cdd tdd history"
        )
    return EnvironmentMissing(f"{happened}.", hint=f"{_MADE_BY}; after a clone: git fetch origin {REF}:{REF}")
