"""The cycle: takes one work item through its phases until the gate is open or the attempts are used up.

The model can end an attempt, but only the gate can end a phase. After each attempt the files are saved as a snapshot
and the state is saved, before anything depends on them: a killed cycle continues with the attempt it was in.
"""

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

from cdd_agent.agent.hooks import hear_prompts
from cdd_agent.errors import CddError, GateClosed, format_count
from cdd_agent.events import GateJudged, Notice
from cdd_agent.evidence.clean_copy import Findings, find_newly_passing, refuse
from cdd_agent.evidence.copies import CleanCopies
from cdd_agent.evidence.mutation import TimedRuns, judge_covered_tests
from cdd_agent.git import commits
from cdd_agent.git.landing import BranchMoved
from cdd_agent.git.repository import CommitId
from cdd_agent.git.tree_store import Description, Snapshot
from cdd_agent.model.conversation import HearUser
from cdd_agent.storage import private_folder
from cdd_agent.tdd.attempt import (
    LANDED_ON_OTHERS,
    Attempt,
    has_code,
    has_given_up,
    is_refuted,
    list_attempts,
    needs_no_test,
)
from cdd_agent.tdd.baseline import Baseline, take_baseline
from cdd_agent.tdd.briefing import describe_refusal, keep_interruption, save_interruption
from cdd_agent.tdd.context import Context, Phase, Progress, WorkItem
from cdd_agent.tdd.landing import find_broken_tests, has_hooks, require_branch, require_tests
from cdd_agent.tdd.phase_commit import PhaseCommit
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import load_report
from cdd_agent.tdd.verdict import AT_ONCE, Course, RedVerdict, choose_course, has_test, judge_run, summarize_attempt
from cdd_agent.work.handoff import phase_name
from cdd_agent.work.state import (
    AttemptRecord,
    RunState,
    StepExecution,
    add_file,
    add_guidance,
    enter_phase,
    record_attempt,
    record_commit,
    record_interruption,
    record_refusal,
    replace_step,
)
from cdd_agent.work.wording import explain, format_reason
from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import Reason, list_failing

PARTIAL = "PARTIAL"
"""The finding of a GREEN that is committed in part."""

MAX_HOOK_CHARACTERS = 2_000
"""Of a hook's output in a reason."""

MAX_BROKEN_SHOWN = 3
_MAX_MOVES = 5
"""How often the user's branch may move while a commit is judged."""

_UNFINISHED_CODES = frozenset({"target_failed", "target_missing", "flaky_target"})
"""The work is incomplete, but the attempt did nothing forbidden."""

Save: TypeAlias = Callable[[RunState], None]
"""Saves the state durably."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The result of a cycle."""

    state: RunState
    how: Literal["done", "covered", "dropped", "part", "failed", "blocked"]
    """All phases landed; the new test passed at once and is kept; it is removed; GREEN landed in part; a phase failed;
    the agent gave up."""
    why: str | None = None
    """None if all phases landed."""
    brief: str = ""
    """``why`` without the reasons of the last gate; empty if it has none."""


class Cycle:
    """One work item on its way through its phases."""

    def __init__(self, item: WorkItem, state: RunState, *, context: Context, save: Save) -> None:
        """Does nothing before ``run``. The item's step is in progress in ``state``, at any point of its cycle."""
        self._item = item
        self._state = state
        hear = partial(self._hear, context.hear) if context.hear is not None else None
        self._context = replace(context, hear=hear, record_file=self._save_file)
        self._save = save
        self._is_saved = True
        """False while the state is being saved, when the file may hold the old or the new state."""
        self._tip: CommitId | None = None
        """The commit on which the cycle works."""
        self._trailers = ""
        """Those of the phase's commit that name the user's checkpoint and session."""
        self._nested: frozenset[str] = frozenset()
        self._attempt: Attempt | None = None
        """The attempt that is being made."""
        self._copies: CleanCopies | None = None
        """Of the files of the step: a phase begins with those that the one before has ended with."""

    @property
    def _step(self) -> StepExecution:
        return self._state.execution(self._item.number)

    @property
    def _recovery(self) -> StepRecovery:
        return StepRecovery(self._item.ticket, self._step, context=self._context)

    def _save_state(self, state: RunState) -> None:
        self._is_saved = False
        self._save(state)
        self._state = state
        self._is_saved = True

    def _hear(self, hear: HearUser) -> tuple[str, ...]:
        """Return what the user says during an attempt; save it for the later ones and for the phases to come."""
        said = hear_prompts(hear, hooks=self._context.hooks)
        for words in said:
            self._save_state(add_guidance(self._state, self._item.number, words=words))
        return said

    def _save_file(self, path: str, is_new: bool) -> None:
        """Save the name of a file that the agent wrote."""
        path = self._context.to_repository_path(path)
        state = add_file(self._state, self._item.number, path=path, is_new=is_new)
        if state is not self._state:
            self._save_state(state)

    def _replace_last_attempt(self, attempt: AttemptRecord) -> None:
        step = replace(self._step, attempts=(*self._step.attempts[:-1], attempt))
        self._save_state(replace_step(self._state, step))

    def run(self) -> Ending:
        """Run all phases that have not landed, and return how the cycle ended."""
        self._begin_or_resume()
        self._nested = self._context.snapshots.nested
        try:
            with closing(CleanCopies(self._context.workplace.tree, self._context.suite)) as self._copies:
                ending = self._run_phases()
        except BaseException as error:
            # An interrupted save leaves the last checkpoint unknown: change nothing, like a kill.
            if self._is_saved and isinstance(error, KeyboardInterrupt | CddError):
                self._remember_interruption()
            raise
        return ending

    def _run_phases(self) -> Ending:
        # Not a loop over the phases: GREEN may send the step back to RED.
        while (phase := next((each for each in self._item.phases if each not in self._step.commits), None)) is not None:
            ending = self._run_phase(phase)
            if ending is not None:
                return ending
        return Ending(state=self._state, how="done")

    def _remember_interruption(self) -> None:
        """Save what the attempt had changed and said so far, for the next one."""
        attempt, self._attempt = self._attempt, None
        with suppress(CddError, OSError):  # the interruption itself must reach the user
            if attempt is not None:
                work = save_interruption(self._recovery, words=attempt.words)
                self._save_state(record_interruption(self._state, self._item.number, work=work))
                self._recovery.refs.clear_attempt()

    def _begin_or_resume(self) -> None:
        if (state := keep_interruption(self._state, self._recovery)) is not self._state:
            self._save_state(state)
        recovery, item = self._recovery, self._item
        if not recovery.has_begun():
            first = next(phase for phase in item.phases if phase not in self._step.commits)
            self._save_state(enter_phase(self._state, item.number, phase=first, checkpoint=recovery.begin()))
            self._tip = recovery.refs.read_tip()
        else:
            self._tip = recovery.restore()

    def _run_phase(self, phase: Phase) -> Ending | None:
        """Run one phase; return the ending of the cycle, or None if the next phase may begin."""
        item, context = self._item, self._context
        assert self._tip is not None
        about = Description(kind="run", ticket=item.ticket, step=item.number, phase=phase)
        self._trailers = context.checkpoint(about)
        context.store.place = f"{item.ticket} {item.number_key.lower()} {item.number}"
        baseline = take_baseline(item, phase, step=self._step, tip=self._tip, context=context)
        self._save_state(enter_phase(self._state, item.number, phase=phase, baseline=baseline.report_path))
        while True:
            attempts = list_attempts(phase, self._step)
            last = attempts[-1] if attempts else None
            if last is not None and self._needs_no_green(last):
                why = self._land_covered(last, baseline)
                if why is not None:
                    return Ending(state=self._state, how="dropped" if self._is_dropped() else "covered", why=why)
                continue
            if last is not None and is_partial(last):
                why = self._land_part(last, baseline)
                if why is not None:
                    return Ending(state=self._state, how="part", why=why)
                continue
            if last is not None and last.verdict == "open":
                if self._land_phase(last, baseline):
                    return None
                continue
            course = self._choose_course(attempts, baseline)
            if course is Course.STOP:
                is_wish = self._continue_with_refactor(attempts[-1], baseline)
                if is_wish or self._skip_refactor(attempts[-1], baseline) or self._return_to_red(attempts):
                    return None
                if self._accept_part(attempts, baseline):
                    continue
                return self._fail(attempts[-1], baseline)
            self._make_attempt(phase, baseline, is_anew=course is Course.ROLL_BACK)

    def _make_attempt(self, phase: Phase, baseline: Baseline, *, is_anew: bool) -> None:
        """Make one attempt at ``phase``, which continues the work of one that was interrupted, and save its record."""
        item, context, step, recovery = self._item, self._context, self._step, self._recovery
        earlier = list_attempts(phase, step)
        last = context.snapshots.find(earlier[-1].checkpoint or "refs/cdd/none") if earlier and not is_anew else None
        if is_anew:
            context.snapshots.restore(baseline.snapshot)
        is_continued = self._continue_interrupted(phase)
        context.forget_files_before_tests()
        name = recovery.name_attempt(phase, len(earlier) + 1)
        if context.policy.continues_interrupted:
            recovery.refs.mark_attempt(name, before=last or baseline.snapshot)
        self._attempt = Attempt(item, phase, step=step, baseline=baseline, context=context, copies=self._copies)
        record = self._attempt.run(is_anew=is_anew, is_continued=is_continued)
        self._attempt = None
        private_folder(context.project)  # restores its protections, in case the agent removed them
        self._report_nested()
        self._save_state(record_attempt(self._state, item.number, attempt=record))
        recovery.refs.clear_attempt()

    def _continue_interrupted(self, phase: Phase) -> bool:
        """Put the work of an interrupted attempt back; return whether the files contain it."""
        work = self._step.interrupted
        if work is None or work.phase != phase or not self._context.policy.continues_interrupted:
            return False
        is_in_files = self._recovery.continue_interrupted()
        how = "Its changes are in the files, and the model continues them."
        if not is_in_files:
            kept = f" They are kept as {work.files}." if work.files else ""
            how = f"Its changes do not fit the present files, so the model only reads them.{kept}"
        self._context.emit(Notice(text=f"An attempt at {phase_name(phase)} was interrupted. {how}"))
        return is_in_files

    def _needs_no_green(self, attempt: AttemptRecord) -> bool:
        """Return whether RED ends the item: its tests pass at once, or exist and pass already."""
        is_accepted = self._context.policy.accepts_covered or attempt.finding == RedVerdict.COVERED
        return is_accepted and attempt.finding in AT_ONCE

    def _continue_with_refactor(self, attempt: AttemptRecord, baseline: Baseline) -> bool:
        """Let an iteration that needs no new test change the code in REFACTOR alone; return whether it is one."""
        if not needs_no_test(attempt, self._step):
            return False
        if not list_attempts("refactor", self._step):
            self._context.snapshots.restore(baseline.snapshot)
        text = "All tests pass already, so the reviewer's wish is carried out in REFACTOR, which keeps the behavior."
        self._context.emit(Notice(text=text))
        self._item = replace(self._item, phases=("refactor",), kind="refactor")
        return True

    def _choose_course(self, attempts: tuple[AttemptRecord, ...], baseline: Baseline) -> Course:
        policy, root = self._context.policy, self._context.records.folder
        if not attempts:
            return Course.REPAIR
        last = attempts[-1]
        if len(attempts) >= policy.max_attempts or has_given_up(last) or needs_no_test(last, self._step):
            return Course.STOP
        return choose_course(
            [summarize_attempt(each.reasons, load_report(each, root=root)) for each in attempts],
            phase=attempts[-1].phase,
            failing_before=len(list_failing(baseline.report)),
            max_identical_failures=policy.max_identical_failures,
            is_strict=policy.is_strict,
        )

    def _land_phase(self, attempt: AttemptRecord, baseline: Baseline) -> bool:
        """Commit the phase and return True; return False if a hook of the user refused the commit."""
        item = self._item
        finalize = self._context.brief(item, attempt.phase, context=self._context).finalize_item
        if finalize is not None:
            item = finalize(item, attempt.answer or "")
        commit = self._commit(attempt, baseline, item=item)
        if commit is not None:
            self._record_commit(attempt.phase, commit)
        return commit is not None

    def _record_commit(self, phase: Phase, commit: CommitId) -> None:
        self._save_state(record_commit(self._state, self._item.number, phase=phase, commit=commit))

    def _landing(self, attempt: AttemptRecord, *, item: WorkItem | None = None) -> PhaseCommit:
        return PhaseCommit(
            item=item or self._item, attempt=attempt, step=self._step, context=self._context, trailers=self._trailers
        )

    def _commit(self, attempt: AttemptRecord, baseline: Baseline, *, item: WorkItem | None = None) -> CommitId | None:
        """Commit the changes since ``baseline`` and land them; None: the commit was refused and the attempt closed.

        Without changes the policy decides between an empty commit and a second note on the step's last commit, if there
        is one. PhaseCommit again after a crash finds the commit that has landed.
        """
        context, landing = self._context, self._landing(attempt, item=item)
        # Not the files as they are now: after the gate has judged them, somebody may have changed or deleted some.
        judged = self._recovery.read_snapshot(attempt)
        paths = tuple(each.path for each in context.snapshots.list_changes_since(baseline.snapshot, until=judged))
        if not paths and not context.policy.allows_empty_commits and self._step.commits:
            commit = CommitId(list(self._step.commits.values())[-1])
            landing.write_note(commit)
            return commit
        found, made = landing.find(), None
        try:
            if found is None:
                made = landing.make(paths, source=judged.commit)
                found = self._land(made, attempt, baseline=baseline)
        except commits.MessageRefused:
            # The attempt stays open: once the hook accepts the message, the same files are committed.
            context.workplace.restore_head(baseline.tip)
            raise
        except GateClosed as error:
            if made is None and not has_hooks(context.repository):
                raise
            self._close_last_attempt(attempt.phase, baseline, why=error.happened)
            return None
        landing.report(found)
        if made is not None:
            self._adopt_hook_changes(attempt, commit=made, paths=paths)
        self._follow(attempt, found, made=made, baseline=baseline)
        return found

    def _land(self, made: CommitId, attempt: AttemptRecord, *, baseline: Baseline) -> CommitId:
        """Bring ``made`` to the user's branch and files, and return the commit there.

        If that is another commit, because the branch has moved or the run took uncommitted changes along, tests run on
        it first; raises ``GateClosed`` if it breaks one, or if one fails that the attempt fixed. Raises
        ``LandingConflict`` if the user has to decide.
        """
        context = self._context
        report = load_report(attempt, root=context.records.folder)
        fixed = find_newly_passing(report, baseline=baseline.report) if report is not None else ()
        for _ in range(_MAX_MOVES):
            require_branch(self._state, context=context)
            commit = context.workplace.adapt(made, tip=baseline.tip)
            if commit != made:
                require_tests(commit, fixed, recovery=self._recovery)
                broken = find_broken_tests(commit, fixed=fixed, context=context)
                if broken:
                    shown = ", ".join(broken[:MAX_BROKEN_SHOWN])
                    happened = f"On your branch, without uncommitted changes, it breaks {shown}."
                    raise GateClosed(happened, hint="commit what it needs")
                require_branch(self._state, context=context)  # the tests took their time
            try:
                context.workplace.land(commit, made=made, tip=baseline.tip)
            except BranchMoved:
                continue
            return commit
        raise BranchMoved("Your branch keeps moving.", hint="run the same command again when it rests")

    def _follow(self, attempt: AttemptRecord, landed: CommitId, *, made: CommitId | None, baseline: Baseline) -> None:
        """Continue on what has landed; if the files are others then, the attempt's checkpoint and report are too."""
        context, recovery = self._context, self._recovery
        self._tip = context.workplace.follow(landed, made=made, tip=baseline.tip)
        ref = attempt.checkpoint if made != landed else None
        checkpoint = context.snapshots.find(ref) if ref else None
        if checkpoint is not None and context.snapshots.list_changes_since(checkpoint):
            context.snapshots.take(checkpoint.ref, message="on the user's branch")
            self._forget_report(attempt)
        recovery.refs.save_tip(self._tip)

    def _forget_report(self, attempt: AttemptRecord) -> None:
        # The report is about other files now. Without it, the next phase runs the tests for its baseline.
        report = self._context.records.folder / (attempt.report or "")
        if report.is_file():
            report.replace(report.with_suffix(LANDED_ON_OTHERS))

    def _close_last_attempt(self, phase: Phase, baseline: Baseline, *, why: str) -> None:
        """Close the last attempt after all; the files that the hook changed stay for the next attempt."""
        last = list_attempts(phase, self._step)[-1]
        text = why[:MAX_HOOK_CHARACTERS]
        reasons = (Reason(code="commit_refused", nodeid=None, case="text", parts={"text": text}),)
        self._context.workplace.restore_head(baseline.tip)
        self._context.snapshots.take(last.checkpoint or "", message=f"{phase} attempt {last.number}, refused by a hook")
        # RED's finding no longer holds, but GREEN must still know that it accepted a part.
        finding = PARTIAL if last.finding == PARTIAL else None
        self._replace_last_attempt(replace(last, verdict="closed", reasons=reasons, finding=finding))
        evidence = "the commit was refused"
        self._context.emit(GateJudged(phase=phase, attempt=last.number, open=False, reasons=reasons, evidence=evidence))

    def _adopt_hook_changes(self, attempt: AttemptRecord, *, commit: CommitId, paths: tuple[str, ...]) -> None:
        """Update the attempt's checkpoint with the changes that a commit hook made to ``paths``."""
        context, ref = self._context, attempt.checkpoint or ""
        checkpoint = context.snapshots.find(ref) if ref else None
        if checkpoint is None:
            return
        changed = [path for path in context.snapshots.list_differing_paths(commit, checkpoint) if path in paths]
        if not changed:
            return
        context.snapshots.restore(Snapshot(ref="HEAD", commit=commit), only=changed)
        context.snapshots.take(ref, message="with the changes of a commit hook")
        self._forget_report(attempt)
        context.emit(Notice(text=f"A commit hook changed files after the gate had checked them: {', '.join(changed)}"))

    def _land_covered(self, last: AttemptRecord, baseline: Baseline) -> str | None:
        """End RED with a test that passes at once: remove it if it notices no altered code, else commit it.

        Return the outcome in words, or None if a hook of the user refused the commit.
        """
        if last.finding == RedVerdict.COVERED:
            return self._land_existing(last, baseline)
        snapshots = self._context.snapshots
        # After a kill below, the attempt is already open, and its finding tells which way was chosen.
        why = "the new test passes already and is kept"
        if last.verdict != "open":
            found = self._judge_covered(last, baseline)
            if found.reasons:
                last = replace(last, finding=RedVerdict.DROPPED, checkpoint=baseline.snapshot.ref)
            told = [*map(explain, found.reasons)] or map(explain, found.notices)
            why = " ".join(told) or f"{why}: it fails when the code is altered"
        self._replace_last_attempt(replace(last, verdict="open"))
        attempt = replace(last, verdict="closed")
        if self._is_dropped():
            snapshots.restore(baseline.snapshot)
            commit = CommitId(str(self._context.repository.read_head()))
            self._landing(attempt).write_note(commit)
        elif (made := self._commit(attempt, baseline)) is not None:
            commit = made
        else:
            return None
        self._record_commit("red", commit)
        self._context.emit(Notice(text=f"{self._item.title}: {why.rstrip('.')}."))
        return why

    def _land_existing(self, last: AttemptRecord, baseline: Baseline) -> str | None:
        """End the cycle in RED, because the tests of the item exist and pass: an empty commit has the note.

        Return the outcome in words, or None if a hook of the user refused the commit.
        """
        self._replace_last_attempt(replace(last, verdict="open"))
        commit = self._commit(replace(last, verdict="closed"), baseline)
        if commit is None:
            return None
        self._record_commit("red", commit)
        return "no change was needed: the tests of the step exist and pass"

    def _is_dropped(self) -> bool:
        return list_attempts("red", self._step)[-1].finding == RedVerdict.DROPPED

    def _judge_covered(self, attempt: AttemptRecord, baseline: Baseline) -> Findings:
        """Refuse the new tests unless they fail when the code that they test is altered, or nobody can tell."""
        context = self._context
        checkpoint = context.snapshots.find(attempt.checkpoint or "")
        report = load_report(attempt, root=context.records.folder)
        if checkpoint is None or report is None or checkpoint.commit == baseline.snapshot.commit:
            return refuse("vacuous_test", "report_lost")
        old = {case.nodeid for case in baseline.report.tests}
        targets = tuple(case.nodeid for case in report.tests if case.outcome == "passed" and case.nodeid not in old)
        runs = TimedRuns(
            repository=context.workplace.tree,
            suite=context.suite,
            limit_s=context.policy.evidence_timeout_s,
            emit=lambda _: None,
        )
        return judge_covered_tests(targets, self._item.sources, tree=checkpoint.commit, runs=runs)

    def _return_to_red(self, attempts: tuple[AttemptRecord, ...]) -> bool:
        """Take RED back once if GREEN reports that its test is wrong, and keep GREEN's code aside for the next GREEN.

        Return False if that is not the case.
        """
        step, recovery, last = self._step, self._recovery, attempts[-1]
        is_wrong = last.phase == "green" and has_code(last, "test_is_wrong") and "red" in step.commits
        # An example of the Examiner is not RED's.
        is_example = any(map(is_refuted, attempts))
        if not is_wrong or is_example or step.was_sent_back or not recovery.can_undo_red():
            return False
        refusal, kept = describe_refusal(recovery), recovery.set_aside(last)
        assert refusal is not None
        why = f"GREEN reports that a test is wrong: {explain(last.reasons[0])}"
        self._tip = recovery.undo_red(why=why, kept=kept or "")
        at = list(step.commits).index("red")
        done = tuple(step.commits)[:at]
        self._save_state(
            replace_step(
                self._state,
                replace(
                    step,
                    attempts=tuple(each for each in step.attempts if each.phase in done),
                    commits={phase: step.commits[phase] for phase in done},
                    refusal=replace(refusal, kind="test_is_wrong", kept=kept),
                    was_sent_back=True,
                ),
            )
        )
        kept_code = f" The next GREEN gets the code, kept as {kept}." if kept else ""
        text = f"{self._item.title}: the step goes back to RED, once. {why.rstrip('.')}.{kept_code}"
        self._context.emit(Notice(text=text))
        return True

    def _skip_refactor(self, last: AttemptRecord, baseline: Baseline) -> bool:
        """Give up a REFACTOR after GREEN, which is optional; return False for all other phases."""
        if last.phase != "refactor" or "green" not in self._step.commits:
            return False
        self._context.snapshots.restore(baseline.snapshot)
        self._context.emit(Notice(text="The gate refused each REFACTOR. It is skipped; the code stays as after GREEN."))
        green = CommitId(self._step.commits["green"])
        self._landing(last).write_note(green)
        self._save_state(record_commit(self._state, self._item.number, phase="refactor", commit=green))
        return True

    def _accept_part(self, attempts: tuple[AttemptRecord, ...], baseline: Baseline) -> bool:
        """Open the last attempt at GREEN for the part of the tests that the best attempt fixed.

        Return False if the policy or the gate does not allow it. Otherwise the files are those of the best attempt.
        """
        item, context, last = self._item, self._context, attempts[-1]
        if not context.policy.keeps_partial or last.phase != "green" or has_given_up(last) or last.finding == PARTIAL:
            return False
        fixed = {each.number: self._list_fixed(each, baseline) for each in attempts}
        best = max(attempts, key=lambda each: (len(fixed[each.number]), each.number))
        checkpoint = context.snapshots.find(best.checkpoint or "refs/cdd/none")
        if not fixed[best.number] or checkpoint is None:
            return False
        context.snapshots.restore(checkpoint)
        part = replace(item, tests=fixed[best.number])
        # The further examples are about the whole item.
        unexamined = replace(context, policy=replace(context.policy, max_examples=0))
        judged = Attempt(part, "green", step=self._step, baseline=baseline, context=unexamined).judge_part(last)
        is_open = judged.verdict == "open"
        evidence = f"attempt {best.number} fixed {len(part.tests)} of the tests: {', '.join(part.tests)}"
        context.emit(
            GateJudged(phase="green", attempt=last.number, open=is_open, reasons=judged.reasons, evidence=evidence)
        )
        if is_open:
            report = load(context.records.folder / str(judged.report))
            whole = judge_run(item, "green", report=report, baseline=baseline.report)
            self._replace_last_attempt(replace(judged, finding=PARTIAL, reasons=whole.reasons))
        return is_open

    def _list_fixed(self, attempt: AttemptRecord, baseline: Baseline) -> tuple[str, ...]:
        """Return the item's tests that the attempt fixed; none if it also did something forbidden."""
        codes = {reason.code for reason in attempt.reasons}
        report = load_report(attempt, root=self._context.records.folder)
        if report is None or not codes <= _UNFINISHED_CODES:
            return ()
        return tuple(
            each for each in find_newly_passing(report, baseline=baseline.report) if has_test(self._item, each)
        )

    def _land_part(self, attempt: AttemptRecord, baseline: Baseline) -> str | None:
        """Commit a part of GREEN; return what is missing, or None if a hook of the user refused the commit."""
        report = load_report(attempt, root=self._context.records.folder)
        own = [case for case in report.tests if has_test(self._item, case.nodeid)] if report is not None else []
        passing = tuple(case.nodeid for case in own if case.outcome == "passed")
        failing = tuple(case.nodeid for case in own if case.outcome != "passed")
        part = replace(
            self._item,
            title_end=f" ({len(passing)} of {len(own)} pass)",
            progress=self._item.progress or Progress(completed=passing, pending=failing),
        )
        commit = self._commit(replace(attempt, verdict="closed"), baseline, item=part)
        if commit is None:
            return None
        self._record_commit("green", commit)
        missing = "; ".join(map(format_reason, attempt.reasons))
        return f"GREEN is committed in part ({commit[:8]}); still failing: {missing}"

    def _fail(self, last: AttemptRecord, baseline: Baseline) -> Ending:
        """End the cycle in a phase that has no attempts left, or makes no progress."""
        policy = self._context.policy
        refusal = describe_refusal(self._recovery)
        if refusal is not None:
            self._save_state(record_refusal(self._state, self._item.number, refusal=refusal))
        is_blocked = has_given_up(last)
        is_stuck = last.number < policy.max_attempts and not is_blocked
        if policy.keeps_landed:
            self._context.snapshots.restore(baseline.snapshot)
            self._landing(last).write_note(CommitId(str(self._context.repository.read_head())))
        else:
            used_up = "there is no progress" if is_stuck else "all attempts are used up"
            self._recovery.undo(why="the agent gave up" if is_blocked else used_up)
        reasons, phase = "; ".join(map(format_reason, last.reasons)), phase_name(last.phase)
        if is_blocked:
            brief = f"the agent gave up in {phase}"
            return Ending(state=self._state, how="blocked", why=f"{brief}: {reasons}", brief=brief)
        stuck = f" (the last {policy.max_identical_failures} with the same failures)" if is_stuck else ""
        brief = f"{phase} was refused {format_count(last.number, 'time')}{stuck}"
        return Ending(state=self._state, how="failed", why=f"{brief}; the last reasons: {reasons}", brief=brief)

    def _report_nested(self) -> None:
        """Report new or moved repositories inside the work tree: no checkpoint and no commit contains them."""
        now = self._context.snapshots.nested
        for path in sorted(now - self._nested):
            text = f"{path} is a separate git repository, new or at another commit: cdd leaves it uncommitted."
            self._context.emit(Notice(text=text))
        self._nested |= now


def is_partial(attempt: AttemptRecord) -> bool:
    """Return whether this attempt at GREEN was accepted in part."""
    return attempt.verdict == "open" and attempt.finding == PARTIAL
