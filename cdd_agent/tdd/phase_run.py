"""A phase of a work item: attempts at it, and what follows each of them, until one ends the phase.

    Open                                   commit it: the next phase
    Partial                                commit the part: the item ends
    Covered, unchecked                     run the new tests with altered code: kept or dropped
    Covered, kept or existing              commit it: the item ends
    Covered, dropped                       restore the files, write a note: the item ends
    Closed, or unchecked where the policy  another attempt, from these files or from those before the phase;
    does not accept it                     if none may follow:
        RED of an iteration without a test     REFACTOR alone
        REFACTOR after GREEN                   skip it: the item is done
        GREEN, whose test is wrong             take RED back: RED again, as often as the policy allows
        GREEN, some of whose tests pass        the last attempt becomes Partial
        any other                              the item has failed, is blocked, or lacks something

A commit that a hook of the user refuses makes its attempt Closed. ``PhaseRun._follow`` is this table.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias, assert_never

from cdd_agent.errors import CddError, format_count
from cdd_agent.events import GateJudged, Notice
from cdd_agent.evidence.clean_copy import Findings, find_newly_passing, refuse
from cdd_agent.evidence.copies import CleanCopies
from cdd_agent.evidence.mutation import TimedRuns, judge_covered_tests
from cdd_agent.git.repository import CommitId
from cdd_agent.storage import private_folder
from cdd_agent.tdd.attempt import Attempt
from cdd_agent.tdd.baseline import Baseline
from cdd_agent.tdd.briefing import describe_refusal, save_interruption
from cdd_agent.tdd.context import Context, Phase, Progress, WorkItem
from cdd_agent.tdd.landing import LandedPhase, PhaseLanding, Refused
from cdd_agent.tdd.phase_commit import PhaseCommit
from cdd_agent.tdd.phase_task import has_cause, has_code, has_given_up, is_refuted, list_attempts, needs_no_test
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import load_report
from cdd_agent.tdd.verdict import Course, choose_course, has_test, judge_run, summarize_attempt
from cdd_agent.work.handoff import phase_name
from cdd_agent.work.outcome import Closed, Covered, Open, Partial
from cdd_agent.work.state import (
    AttemptRecord,
    RunState,
    StepExecution,
    record_attempt,
    record_commit,
    record_interruption,
    record_refusal,
    replace_step,
)
from cdd_agent.work.wording import explain, format_reason
from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import Reason, list_failing

_MAX_HOOK_CHARACTERS = 2_000
"""Of a hook's output in a reason."""

_UNFINISHED_CODES = frozenset({"target_failed", "target_missing", "flaky_target"})
"""The work is incomplete, but the attempt did nothing forbidden."""

_KEPT = "the new test passes already and is kept"


class How(StrEnum):
    """The ways in which a work item ends."""

    DONE = "done"
    """All phases have landed, or were skipped."""
    COVERED = "covered"
    """The tests pass without a change of the code: new ones, which are kept, or those that the item names."""
    DROPPED = "dropped"
    """The new test passed at once, and is removed."""
    PART = "part"
    """GREEN has landed in part."""
    FAILED = "failed"
    """A phase failed."""
    BLOCKED = "blocked"
    """The agent gave up."""
    LACKING = "lacking"
    """Something outside of the project is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a work item."""

    state: RunState
    how: How
    why: str | None = None
    """None if all phases landed."""
    brief: str = ""
    """``why`` without the reasons of the last gate; empty if it has none."""


@dataclass(frozen=True, slots=True)
class PhaseOver:
    """The item continues with the first of its phases that has not landed."""


@dataclass(frozen=True, slots=True)
class OtherItem:
    """The item continues as another one."""

    item: WorkItem


PhaseOutcome: TypeAlias = PhaseOver | OtherItem | Ending


class SavedState:
    """The state of a run, saved after each change of the step in progress, before anything depends on it."""

    def __init__(self, state: RunState, number: int, *, save: Callable[[RunState], None]) -> None:
        """Take ``state`` as saved; ``number`` is that of the step."""
        self.state = state
        self.is_saved = True
        """False while the state is being saved, when the file may hold the old or the new state."""
        self._number = number
        self._save = save

    @property
    def step(self) -> StepExecution:
        """The step in progress."""
        return self.state.execution(self._number)

    def save(self, state: RunState) -> None:
        """Save ``state``, unless it is the present one."""
        if state is not self.state:
            self.is_saved = False
            self._save(state)
            self.state = state
            self.is_saved = True

    def replace_last_attempt(self, attempt: AttemptRecord) -> None:
        """Save the step with ``attempt`` in place of its last one."""
        self.save(replace_step(self.state, replace(self.step, attempts=(*self.step.attempts[:-1], attempt))))


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRun:
    """A phase that has begun."""

    item: WorkItem
    phase: Phase
    saved: SavedState
    context: Context
    baseline: Baseline
    trailers: str
    """Those of the phase's commit that name the user's checkpoint and session."""
    copies: CleanCopies
    """Of the files of the step: a phase begins with those that the one before has ended with."""
    nested: set[str]
    """The repositories inside the work tree that the user knows of; grows."""

    @property
    def _attempts(self) -> tuple[AttemptRecord, ...]:
        return list_attempts(self.phase, self.saved.step)

    @property
    def _recovery(self) -> StepRecovery:
        return StepRecovery(self.item.ticket, self.saved.step, context=self.context)

    def run(self) -> PhaseOutcome:
        """Make attempts until one of them, or their failure, ends the phase."""
        while (following := self._follow(self._attempts)) is None:
            pass
        return following

    def _follow(self, attempts: tuple[AttemptRecord, ...]) -> PhaseOutcome | None:
        """Do what follows the last attempt; return None if the phase continues."""
        if not attempts:
            self._make_attempt(is_anew=False)
            return None
        last = attempts[-1]
        match last.outcome:
            case Open():
                return self._land(last)
            case Partial():
                return self._land_part(last)
            case Covered(tests="unchecked") if not self.context.policy.accepts_covered:
                return self._follow_closed(attempts)
            case Covered() as covered:
                return self._land_covered(last, covered)
            case Closed():
                return self._follow_closed(attempts)
            case _:
                assert_never(last.outcome)

    def _follow_closed(self, attempts: tuple[AttemptRecord, ...]) -> PhaseOutcome | None:
        """Make another attempt and return None, or return what follows without one."""
        last, step = attempts[-1], self.saved.step
        match self._choose_course(attempts):
            case Course.REPAIR:
                self._make_attempt(is_anew=False)
                return None
            case Course.ROLL_BACK:
                self._make_attempt(is_anew=True)
                return None
            case Course.STOP:
                pass
            case unknown:
                assert_never(unknown)
        if needs_no_test(last, step):
            return self._continue_with_refactor()
        if self.phase == "refactor" and "green" in step.commits:
            return self._skip_refactor(last)
        if self._can_return_to_red(attempts):
            return self._return_to_red(last)
        if self._accept_part(attempts):
            return None
        return self._fail(last)

    def _choose_course(self, attempts: tuple[AttemptRecord, ...]) -> Course:
        policy, root, last = self.context.policy, self.context.records.folder, attempts[-1]
        if len(attempts) >= policy.max_attempts or has_given_up(last) or needs_no_test(last, self.saved.step):
            return Course.STOP
        if has_cause(last, "environment") or has_cause(last, "unknown"):
            return Course.STOP
        if _have_wrong_test(attempts) and self._can_return_to_red(attempts):
            return Course.STOP
        return choose_course(
            [summarize_attempt(each.reasons, load_report(each, root=root)) for each in attempts],
            phase=self.phase,
            failing_before=len(list_failing(self.baseline.report)),
            max_identical_failures=policy.max_identical_failures,
            is_strict=policy.is_strict,
        )

    # Attempts

    def _make_attempt(self, *, is_anew: bool) -> None:
        """Make one attempt, which continues the work of one that was interrupted, and save its record."""
        item, context, saved, recovery = self.item, self.context, self.saved, self._recovery
        earlier = self._attempts
        last = context.snapshots.find(earlier[-1].checkpoint) if earlier and not is_anew else None
        if is_anew:
            context.snapshots.restore(self.baseline.snapshot)
        is_continued = self._continue_interrupted()
        context.forget_files_before_tests()
        name = recovery.name_attempt(self.phase, len(earlier) + 1)
        if context.policy.continues_interrupted:
            recovery.refs.mark_attempt(name, before=last or self.baseline.snapshot)
        attempt = Attempt(
            item, self.phase, step=saved.step, baseline=self.baseline, context=context, copies=self.copies
        )
        try:
            record = attempt.run(is_anew=is_anew, is_continued=is_continued)
        except (KeyboardInterrupt, CddError):
            # An interrupted save leaves the last snapshot unknown: change nothing, like a kill.
            if saved.is_saved:
                self._save_interruption(attempt.words)
            raise
        private_folder(context.project)  # restores its protections, in case the agent removed them
        self._report_nested()
        saved.save(record_attempt(saved.state, item.number, attempt=record))
        recovery.refs.clear_attempt()

    def _continue_interrupted(self) -> bool:
        """Put the work of an interrupted attempt back; return whether the files contain it."""
        work = self.saved.step.interrupted
        if work is None or work.phase != self.phase or not self.context.policy.continues_interrupted:
            return False
        is_in_files = self._recovery.continue_interrupted()
        how = "Its changes are in the files, and the model continues them."
        if not is_in_files:
            kept = f" They are kept as {work.files}." if work.files else ""
            how = f"Its changes do not fit the present files, so the model only reads them.{kept}"
        self.context.emit(Notice(text=f"An attempt at {phase_name(self.phase)} was interrupted. {how}"))
        return is_in_files

    def _save_interruption(self, words: str) -> None:
        """Save what the attempt had changed and said so far, for the next one."""
        with suppress(CddError, OSError):  # the interruption itself must reach the user
            work = save_interruption(self._recovery, words=words)
            self.saved.save(record_interruption(self.saved.state, self.item.number, work=work))
            self._recovery.refs.clear_attempt()

    def _report_nested(self) -> None:
        """Report new or moved repositories inside the work tree: no snapshot and no commit contains them."""
        now = self.context.snapshots.nested
        for path in sorted(now - self.nested):
            text = f"{path} is a separate git repository, new or at another commit: cdd leaves it uncommitted."
            self.context.emit(Notice(text=text))
        self.nested.update(now)

    # What lands

    def _make_commit(self, attempt: AttemptRecord, item: WorkItem | None = None) -> PhaseCommit:
        return PhaseCommit(
            item=item or self.item, attempt=attempt, step=self.saved.step, context=self.context, trailers=self.trailers
        )

    def _record_commit(self, commit: CommitId) -> None:
        self.saved.save(record_commit(self.saved.state, self.item.number, phase=self.phase, commit=commit))

    def _commit(self, attempt: AttemptRecord, item: WorkItem | None = None) -> CommitId | None:
        """Land the attempt, and return its commit; None: the commit was refused, which closes the attempt."""
        commit = self._make_commit(attempt, item)
        match PhaseLanding(commit=commit, baseline=self.baseline, state=self.saved.state).run():
            case LandedPhase(commit=landed):
                self._record_commit(landed)
                return landed
            case Refused(why=why):
                self._close(attempt, why)
                return None
            case unknown:
                assert_never(unknown)

    def _close(self, attempt: AttemptRecord, why: str) -> None:
        """Close an attempt after all; the files that the hook changed stay for the next attempt."""
        text, phase, number = why[:_MAX_HOOK_CHARACTERS], self.phase, attempt.number
        reasons = (Reason(code="commit_refused", nodeid=None, case="text", parts={"text": text}),)
        self.context.workplace.restore_head(self.baseline.tip)
        self.context.snapshots.take(attempt.checkpoint or "", message=f"{phase} attempt {number}, refused by a hook")
        closed = Closed(had_part=isinstance(attempt.outcome, Partial))
        self.saved.replace_last_attempt(replace(attempt, outcome=closed, reasons=reasons))
        evidence = "the commit was refused"
        self.context.emit(GateJudged(phase=phase, attempt=number, open=False, reasons=reasons, evidence=evidence))

    def _land(self, attempt: AttemptRecord) -> PhaseOver | None:
        item = self.item
        finalize = self.context.brief(item, self.phase, context=self.context).finalize_item
        if finalize is not None:
            item = finalize(item, attempt.answer or "")
        return None if self._commit(attempt, item) is None else PhaseOver()

    def _land_part(self, attempt: AttemptRecord) -> Ending | None:
        report = load_report(attempt, root=self.context.records.folder)
        own = [case for case in report.tests if has_test(self.item, case.nodeid)] if report is not None else []
        passing = tuple(case.nodeid for case in own if case.outcome == "passed")
        failing = tuple(case.nodeid for case in own if case.outcome != "passed")
        part = replace(
            self.item,
            title_end=f" ({len(passing)} of {len(own)} pass)",
            progress=self.item.progress or Progress(completed=passing, pending=failing),
        )
        commit = self._commit(attempt, part)
        if commit is None:
            return None
        missing = "; ".join(map(format_reason, attempt.reasons))
        why = f"GREEN is committed in part ({commit[:8]}); still failing: {missing}"
        return Ending(state=self.saved.state, how=How.PART, why=why)

    def _land_covered(self, attempt: AttemptRecord, covered: Covered) -> Ending | None:
        """End the item with RED. New tests are removed if they notice no altered code, else committed."""
        why = _KEPT
        if covered.tests == "unchecked":
            attempt, covered, why = self._check_covered(attempt)
        match covered.tests:
            case "existing":
                if self._commit(attempt) is None:
                    return None
                why = "no change was needed: the tests of the step exist and pass"
                return Ending(state=self.saved.state, how=How.COVERED, why=why)
            case "dropped":
                self.context.snapshots.restore(self.baseline.snapshot)
                commit = CommitId(str(self.context.repository.read_head()))
                self._make_commit(attempt).write_note(commit)
                self._record_commit(commit)
                how = How.DROPPED
            case "kept" | "unchecked":
                if self._commit(attempt) is None:
                    return None
                how = How.COVERED
            case _:
                assert_never(covered.tests)
        self.context.emit(Notice(text=f"{self.item.title}: {why.rstrip('.')}."))
        return Ending(state=self.saved.state, how=how, why=why)

    def _check_covered(self, attempt: AttemptRecord) -> tuple[AttemptRecord, Covered, str]:
        """Save whether the new tests are kept; a cycle that is killed after this goes that way. Return also why."""
        found = self._judge_covered(attempt)
        why = " ".join([*map(explain, found.reasons)] or map(explain, found.notices))
        covered = Covered("kept")
        if found.reasons:
            covered = Covered("dropped")
            attempt = replace(attempt, checkpoint=self.baseline.snapshot.ref)
        attempt = replace(attempt, outcome=covered)
        self.saved.replace_last_attempt(attempt)
        return attempt, covered, why or f"{_KEPT}: it fails when the code is altered"

    def _judge_covered(self, attempt: AttemptRecord) -> Findings:
        """Refuse the new tests unless they fail when the code that they test is altered, or nobody can tell."""
        context, baseline = self.context, self.baseline
        snapshot = context.snapshots.find(attempt.checkpoint)
        report = load_report(attempt, root=context.records.folder)
        if snapshot is None or report is None or snapshot.commit == baseline.snapshot.commit:
            return refuse("vacuous_test", "report_lost")
        old = {case.nodeid for case in baseline.report.tests}
        targets = tuple(case.nodeid for case in report.tests if case.outcome == "passed" and case.nodeid not in old)
        runs = TimedRuns(
            repository=context.workplace.tree,
            suite=context.suite,
            limit_s=context.policy.evidence_timeout_s,
            emit=lambda _: None,
        )
        return judge_covered_tests(targets, self.item.sources, tree=snapshot.commit, runs=runs)

    # Without another attempt

    def _continue_with_refactor(self) -> OtherItem:
        """Let an iteration that needs no new test change the code in REFACTOR alone."""
        if not list_attempts("refactor", self.saved.step):
            self.context.snapshots.restore(self.baseline.snapshot)
        text = "All tests pass already, so the reviewer's wish is carried out in REFACTOR, which keeps the behavior."
        self.context.emit(Notice(text=text))
        return OtherItem(replace(self.item, phases=("refactor",), kind="refactor"))

    def _skip_refactor(self, last: AttemptRecord) -> PhaseOver:
        """Give up a REFACTOR after GREEN, which is optional."""
        self.context.snapshots.restore(self.baseline.snapshot)
        self.context.emit(Notice(text="The gate refused each REFACTOR. It is skipped; the code stays as after GREEN."))
        green = CommitId(self.saved.step.commits["green"])
        self._make_commit(last).write_note(green)
        self._record_commit(green)
        return PhaseOver()

    def _can_return_to_red(self, attempts: tuple[AttemptRecord, ...]) -> bool:
        """Return whether GREEN shows that a test of RED is wrong, and RED can be taken back again."""
        step, last = self.saved.step, attempts[-1]
        is_wrong = has_code(last, "test_is_wrong") or _have_wrong_test(attempts)
        # An example of the Examiner is not RED's.
        is_example = any(map(is_refuted, attempts))
        may_return = (
            self.phase == "green" and "red" in step.commits and step.times_sent_back < self.context.policy.max_returns
        )
        return is_wrong and may_return and not is_example and self._recovery.can_undo_red()

    def _return_to_red(self, last: AttemptRecord) -> PhaseOver:
        """Take RED back, and keep GREEN's code aside for the next GREEN."""
        saved, step, recovery = self.saved, self.saved.step, self._recovery
        refusal, kept = describe_refusal(recovery), recovery.set_aside(last)
        assert refusal is not None
        found = explain(last.reasons[0]) if has_code(last, "test_is_wrong") else str(last.diagnosis)
        why = f"GREEN reports that a test is wrong: {found}"
        recovery.undo_red(why=why, kept=kept or "")
        done = tuple(step.commits)[: list(step.commits).index("red")]
        step = replace(
            step,
            attempts=tuple(each for each in step.attempts if each.phase in done),
            returned=(*step.returned, *(each for each in step.attempts if each.phase not in done)),
            commits={phase: step.commits[phase] for phase in done},
            refusal=replace(refusal, kind="test_is_wrong", kept=kept),
            times_sent_back=step.times_sent_back + 1,
        )
        saved.save(replace_step(saved.state, step))
        kept_code = f" The next GREEN gets the code, kept as {kept}." if kept else ""
        most = self.context.policy.max_returns
        often = ", once" if most == 1 else f" ({step.times_sent_back} of at most {most} times)"
        text = f"{self.item.title}: the step goes back to RED{often}. {why.rstrip('.')}.{kept_code}"
        self.context.emit(Notice(text=text))
        return PhaseOver()

    def _accept_part(self, attempts: tuple[AttemptRecord, ...]) -> bool:
        """Accept the last attempt at GREEN for the part of the tests that the best attempt fixed.

        Return False if the policy or the gate does not allow it. Otherwise the files are those of the best attempt.
        """
        item, context, last = self.item, self.context, attempts[-1]
        is_refused = has_given_up(last) or last.outcome == Closed(had_part=True)
        if not context.policy.keeps_partial or self.phase != "green" or is_refused:
            return False
        fixed = {each.number: self._list_fixed(each) for each in attempts}
        best = max(attempts, key=lambda each: (len(fixed[each.number]), each.number))
        snapshot = context.snapshots.find(best.checkpoint)
        if not fixed[best.number] or snapshot is None:
            return False
        context.snapshots.restore(snapshot)
        part = replace(item, tests=fixed[best.number])
        # The further examples are about the whole item.
        unexamined = replace(context, policy=replace(context.policy, max_examples=0))
        judged = Attempt(part, "green", step=self.saved.step, baseline=self.baseline, context=unexamined).judge_part(
            last
        )
        evidence = f"attempt {best.number} fixed {len(part.tests)} of the tests: {', '.join(part.tests)}"
        context.emit(
            GateJudged(
                phase="green", attempt=last.number, open=judged.is_open, reasons=judged.reasons, evidence=evidence
            )
        )
        if judged.is_open:
            report = load(context.records.folder / str(judged.report))
            whole = judge_run(item, "green", report=report, baseline=self.baseline.report)
            self.saved.replace_last_attempt(replace(judged, outcome=Partial(), reasons=whole.reasons))
        return judged.is_open

    def _list_fixed(self, attempt: AttemptRecord) -> tuple[str, ...]:
        """Return the item's tests that the attempt fixed; none if it also did something forbidden."""
        codes = {reason.code for reason in attempt.reasons}
        report = load_report(attempt, root=self.context.records.folder)
        if report is None or not codes <= _UNFINISHED_CODES:
            return ()
        passing = find_newly_passing(report, baseline=self.baseline.report)
        return tuple(each for each in passing if has_test(self.item, each))

    def _fail(self, last: AttemptRecord) -> Ending:
        """End the item in a phase that has no attempts left, or makes no progress."""
        policy, saved = self.context.policy, self.saved
        refusal = describe_refusal(self._recovery)
        if refusal is not None:
            saved.save(record_refusal(saved.state, self.item.number, refusal=refusal))
        is_final = has_cause(last, "environment") or has_cause(last, "unknown")
        is_blocked, cause = has_given_up(last), last.diagnosis if is_final else None
        is_stuck = last.number < policy.max_attempts and not is_blocked
        if policy.keeps_landed:
            self.context.snapshots.restore(self.baseline.snapshot)
            self._make_commit(last).write_note(CommitId(str(self.context.repository.read_head())))
        else:
            used_up = "there is no progress" if is_stuck else "all attempts are used up"
            why = "the agent gave up" if is_blocked else used_up
            self._recovery.undo(why=why if cause is None else cause.why)
        if cause is not None:
            how = How.LACKING if cause.kind == "environment" else How.FAILED
            return Ending(state=saved.state, how=how, why=str(cause), brief=cause.why)
        reasons, phase = "; ".join(map(format_reason, last.reasons)), phase_name(self.phase)
        if is_blocked:
            brief = f"the agent gave up in {phase}"
            return Ending(state=saved.state, how=How.BLOCKED, why=f"{brief}: {reasons}", brief=brief)
        stuck = f" (the last {policy.max_identical_failures} with the same failures)" if is_stuck else ""
        brief = f"{phase} was refused {format_count(last.number, 'time')}{stuck}"
        return Ending(state=saved.state, how=How.FAILED, why=f"{brief}; the last reasons: {reasons}", brief=brief)


def _have_wrong_test(attempts: tuple[AttemptRecord, ...]) -> bool:
    """Return whether the last attempt at GREEN fails because of a test: GREEN cannot change one that is flaky."""
    is_flaky = len(attempts) > 1 and all(has_cause(each, "flaky") for each in attempts[-2:])
    return is_flaky or has_cause(attempts[-1], "test")
