"""The cycle: one work item through its phases, each attempt judged by the gate over a real test run.

Every state between two attempts is kept as a snapshot and saved before anything depends on it, so a cycle that was
killed goes on from the attempt it was in and never does a step twice. The model's own word ends an attempt; only the
gate ends a phase.

How a phase ends: with a commit of all or of a part, refused by a hook, done without, or covered already.

What follows a closed attempt: go on from its files, go back to where the phase began, or stop. Pure.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeAlias

from cdd_agent.config.settings import private_folder
from cdd_agent.errors import GateClosed
from cdd_agent.events import GateJudged, Notice
from cdd_agent.evidence.clean_copy import newly_passing
from cdd_agent.evidence.mutation import notices_changes
from cdd_agent.git.repository import CommitId
from cdd_agent.git.snapshot import Snapshot
from cdd_agent.tdd import attempt as baseline
from cdd_agent.tdd import recovery
from cdd_agent.tdd.attempt import Ground, attempts_at, gave_up, judge_part, make_attempt, report_of
from cdd_agent.tdd.context import Context, Phase, WorkItem, reason_lines
from cdd_agent.tdd.handoff import hand_over, has_hooks, land
from cdd_agent.tdd.recovery import Position
from cdd_agent.tdd.verdict import RedVerdict, concerns, of_run
from cdd_agent.work.handoff import phase_name
from cdd_agent.work.state import AttemptRecord, RunState, StepExecution, enter_phase, record_attempt, record_commit
from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import SuiteReport, failing

PARTIAL = "PARTIAL"
"""The finding of an attempt that is kept in part."""

UNFINISHED = frozenset({"target_failed", "target_missing"})
"""Reasons of an attempt that has done nothing wrong, only not enough."""

HOOK_WORDS_CAP = 2_000
"""Characters of what a commit hook says that are kept as a reason."""

Save: TypeAlias = Callable[[RunState], None]
"""Keeps the state durably before the cycle goes on."""


class Ledger:
    """The state of a run of which one step is worked on, each change kept before anything depends on it."""

    def __init__(self, state: RunState, *, number: int, save: Save) -> None:
        """Nothing is kept yet."""
        self.state = state
        self.position: Position | None = None
        """Where history stood when files and history were last in order; None: it cannot have moved."""
        self.is_kept = True
        """False only while the state is being kept, when nobody knows which is the last."""
        self._number = number
        self._save = save

    @property
    def step(self) -> StepExecution:
        """The step as it stands."""
        return self.state.execution(self._number)

    def keep(self, state: RunState) -> None:
        """Make ``state`` the present one once it is kept durably."""
        self.is_kept = False
        self._save(state)
        self.state = state
        self.is_kept = True

    def replace_last(self, attempt: AttemptRecord) -> None:
        """Make the step's last attempt this one."""
        step = replace(self.step, attempts=(*self.step.attempts[:-1], attempt))
        self.keep(replace(self.state, step_executions={**self.state.step_executions, step.step_number: step}))


def land_phase(item: WorkItem, phase: Phase, *, laid: Ground, ledger: Ledger, context: Context) -> bool:
    """Commit what the phase changed; where it changed nothing, the commit before stands for it.

    False if a commit hook of the user's refuses it: then the attempt is closed after all, with the hook's words.
    """
    attempt = attempts_at(phase, ledger.step)[-1]
    paths = tuple(change.path for change in context.snapshots.changes_since(laid.snapshot))
    settled = context.brief(item, phase).settled
    if settled is not None:
        item = settled(item, attempt.answer or "")
    commit = _committed(item, attempt, paths=paths, laid=laid, ledger=ledger, context=context)
    if commit is None:
        return False
    ledger.position = recovery.note_position(item.ticket, ledger.step, context=context)  # going back leads here now
    ledger.keep(record_commit(ledger.state, item.number, phase=phase, commit=commit))
    return True


def _committed(
    item: WorkItem, attempt: AttemptRecord, *, paths: tuple[str, ...], laid: Ground, ledger: Ledger, context: Context
) -> CommitId | None:
    """The commit of ``paths``; None if a commit hook of the user's refuses it: then the attempt is a closed one."""
    try:
        commit = land(item, attempt, step=ledger.step, paths=paths, context=context)
    except GateClosed as error:
        if not has_hooks(context.repository):
            raise
        _close(item, attempt.phase, why=error.happened, laid=laid, ledger=ledger, context=context)
        return None
    _keep_what_hooks_made(attempt, commit=commit, paths=paths, context=context)
    return commit


def _close(item: WorkItem, phase: Phase, *, why: str, laid: Ground, ledger: Ledger, context: Context) -> None:
    """Make the last attempt a closed one after all; what the hook changed in the files stays for the next."""
    last = attempts_at(phase, ledger.step)[-1]
    reasons = (f"commit_refused: {why[:HOOK_WORDS_CAP]}",)
    recovery.put_back(laid.position, ticket=item.ticket, step=ledger.step, context=context)
    context.snapshots.take(last.checkpoint or "", message=f"{phase} attempt {last.number}, refused by a hook")
    finding = PARTIAL if last.finding == PARTIAL else None  # RED has not come to what the gate said
    ledger.replace_last(replace(last, verdict="closed", reasons=reasons, finding=finding))
    context.emit(
        GateJudged(phase=phase, attempt=last.number, open=False, reasons=reasons, evidence="a commit hook refused it")
    )


def do_without(item: WorkItem, phase: Phase, *, laid: Ground, ledger: Ledger, context: Context) -> bool:
    """Whether the item can go on without this phase: a REFACTOR after GREEN can be given up."""
    if phase != "refactor" or "green" not in ledger.step.commits:
        return False
    context.snapshots.restore(laid.snapshot)
    context.emit(Notice(text="Refactoring was refused each time and is given up; the code is as GREEN left it."))
    green = CommitId(ledger.step.commits["green"])
    last = attempts_at(phase, ledger.step)[-1]
    hand_over(item, last, step=ledger.step, commit=green, context=context)
    ledger.keep(record_commit(ledger.state, item.number, phase=phase, commit=green))
    return True


def take_covered(item: WorkItem, *, laid: Ground, ledger: Ledger, context: Context) -> str | None:
    """End RED with tests that pass at once: they stay if they notice altered code. What became of them, in words.

    None if a commit hook of the user's refuses them, as ``land_phase`` has it.
    """
    last = attempts_at("red", ledger.step)[-1]
    attempt = replace(last, verdict="closed")  # as the gate said, also after a kill below
    if last.verdict == "open":
        stays = last.checkpoint != laid.snapshot.ref
    else:
        stays = _characterizes(item, attempt, laid=laid, context=context)
    kept = last.checkpoint if stays else laid.snapshot.ref
    ledger.replace_last(replace(last, verdict="open", checkpoint=kept))
    if stays:
        paths = tuple(change.path for change in context.snapshots.changes_since(laid.snapshot))
        landed = _committed(item, attempt, paths=paths, laid=laid, ledger=ledger, context=context)
        if landed is None:
            return None
        commit, told = landed, "it passes already, and fails with the code altered: the test is kept"
    else:
        context.snapshots.restore(laid.snapshot)
        commit = CommitId(str(context.repository.head()))
        hand_over(item, attempt, step=ledger.step, commit=commit, context=context)
        told = "it passes already, whatever the code does: the test is dropped"
    ledger.position = recovery.note_position(item.ticket, ledger.step, context=context)
    ledger.keep(record_commit(ledger.state, item.number, phase="red", commit=commit))
    context.emit(Notice(text=f"{item.title}: {told}."))
    return told


def _characterizes(item: WorkItem, attempt: AttemptRecord, *, laid: Ground, context: Context) -> bool:
    """Whether the new tests, which pass, fail once the code they are about is altered."""
    checkpoint = context.snapshots.find(attempt.checkpoint or "")
    report = report_of(attempt, root=context.repository.root)
    if checkpoint is None or report is None or checkpoint.commit == laid.snapshot.commit:
        return False
    old = {case.nodeid for case in laid.baseline.tests}
    targets = tuple(case.nodeid for case in report.tests if case.outcome == "passed" and case.nodeid not in old)
    return notices_changes(
        targets,
        item.sources,
        tree=checkpoint.commit,
        repository=context.repository,
        suite=context.suite,
        time_box_s=context.policy.evidence_timeout_s,
    )


def is_partial(attempt: AttemptRecord) -> bool:
    """Whether what this attempt at GREEN came to is a part of what it was for, which is to be committed."""
    return attempt.verdict == "open" and attempt.finding == PARTIAL


def keep_part(item: WorkItem, phase: Phase, *, laid: Ground, ledger: Ledger, context: Context) -> bool:
    """Whether a GREEN without attempts left is to be kept in part: some of the item's tests pass, and none was broken.

    If so, the files are those of the attempt that mended most, the gate has judged them once more by what it mended,
    and the last attempt says so.
    """
    attempts = attempts_at(phase, ledger.step)
    last = attempts[-1]
    if not context.policy.keeps_part or phase != "green" or gave_up(last) or last.finding == PARTIAL:
        return False
    root = context.repository.root
    mended = {each.number: _mended(item, each, laid=laid, root=root) for each in attempts}
    best = max(attempts, key=lambda each: (len(mended[each.number]), each.number))
    checkpoint = context.snapshots.find(best.checkpoint or "refs/cdd/none")
    if not mended[best.number] or checkpoint is None:
        return False
    context.snapshots.restore(checkpoint)
    part = replace(item, tests=mended[best.number])
    judged = judge_part(part, last, step=ledger.step, ground=laid, context=context)
    told = f"{len(part.tests)} of the tests to mend pass since attempt {best.number}: {', '.join(part.tests)}"
    is_open = judged.verdict == "open"
    context.emit(GateJudged(phase=phase, attempt=last.number, open=is_open, reasons=judged.reasons, evidence=told))
    if is_open:
        whole = of_run(item, phase, report=load(root / str(judged.report)), baseline=laid.baseline)
        ledger.replace_last(replace(judged, finding=PARTIAL, reasons=reason_lines(whole)))
    return is_open


def _mended(item: WorkItem, attempt: AttemptRecord, *, laid: Ground, root: Path) -> tuple[str, ...]:
    """The node ids of the item's tests that pass since an attempt; none if it bent results or broke other tests."""
    codes = {reason.partition(":")[0] for reason in attempt.reasons}
    report = report_of(attempt, root=root)
    if report is None or not codes <= UNFINISHED:
        return ()
    return tuple(nodeid for nodeid in newly_passing(report, baseline=laid.baseline) if concerns(item, nodeid))


def land_part(item: WorkItem, *, laid: Ground, ledger: Ledger, context: Context) -> str | None:
    """Commit a part, its note telling what is left; what it came to, in words.

    None if a commit hook of the user's refuses it, as ``land_phase`` has it.
    """
    attempt = attempts_at("green", ledger.step)[-1]
    paths = tuple(change.path for change in context.snapshots.changes_since(laid.snapshot))
    closed = replace(attempt, verdict="closed")
    commit = _committed(item, closed, paths=paths, laid=laid, ledger=ledger, context=context)
    if commit is None:
        return None
    ledger.position = recovery.note_position(item.ticket, ledger.step, context=context)
    ledger.keep(record_commit(ledger.state, item.number, phase="green", commit=commit))
    return f"GREEN is kept in part ({commit[:8]}); what is left: {'; '.join(attempt.reasons)}"


def _keep_what_hooks_made(
    attempt: AttemptRecord, *, commit: CommitId, paths: tuple[str, ...], context: Context
) -> None:
    """Bring the attempt's checkpoint up to what a commit hook made of ``paths``: later phases go on from there.

    Its report is put aside, as it tells of other files; the next phase runs the tests again for its baseline.
    """
    ref = attempt.checkpoint or ""
    checkpoint = context.snapshots.find(ref) if ref else None
    if checkpoint is None:
        return
    made = [path for path in context.snapshots.paths_unlike(commit, checkpoint) if path in paths]
    if made:
        context.snapshots.restore(Snapshot(ref="HEAD", commit=commit), only=made)
        context.snapshots.take(ref, message="as a commit hook left it")
        report = context.repository.root / (attempt.report or "")
        if report.is_file():
            report.replace(report.with_suffix(".gate.json"))
        context.emit(Notice(text=f"A commit hook changed files after the gate had seen them: {', '.join(made)}"))


_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?= ?m?s\b)|(?<=object at )\S+", re.IGNORECASE)
"""Addresses and durations: the same error has another one in every run."""

_BENT = frozenset({"tampered", "suspicious_code", "canary_failed", "special_cased"})
"""Reasons that leave nothing worth keeping of an attempt."""


class Course(StrEnum):
    """How the next attempt begins, if there is to be one."""

    REPAIR = "repair"
    """With the files as the last one left them."""
    ROLL_BACK = "roll_back"
    """With the files as they were when the phase began."""
    STOP = "stop"
    """Not at all: one more would come to the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a closed attempt came to."""

    codes: frozenset[str]
    """Of the gate's reasons."""
    failing: frozenset[str]
    """Node ids."""
    symptoms: frozenset[tuple[str, ...]]
    """What fails and how; where no test was run, the reasons."""


def trial_of(reasons: Sequence[str], report: SuiteReport | None) -> Trial:
    """The trial of an attempt with these reasons, each ``code: message``, and the report it was judged by."""
    symptoms = frozenset(_symptoms(report)) if report is not None else frozenset()
    return Trial(
        codes=frozenset(reason.partition(":")[0] for reason in reasons),
        failing=frozenset(failing(report)) if report is not None else frozenset(),
        symptoms=symptoms or frozenset((_VARYING.sub("", reason),) for reason in reasons),
    )


def _symptoms(report: SuiteReport) -> list[tuple[str, ...]]:
    failures = [(case.nodeid, case.failure) for case in report.tests if case.failure and case.outcome != "passed"]
    failures += [(error.nodeid, error.failure) for error in report.collect_errors]
    return [
        (nodeid, failure.kind, failure.exception, _VARYING.sub("", failure.message)) for nodeid, failure in failures
    ]


def course(trials: Sequence[Trial], *, failing_before: int, most_alike: int, is_strict: bool) -> Course:
    """What follows the last of ``trials``, the closed attempts at one phase, oldest first.

    ``failing_before``: how many tests failed when the phase began. After ``most_alike`` attempts in a row to the same
    end there is no progress. ``is_strict``: one test that is broken is enough to go back, else more must fail than did.
    """
    last = trials[-1]
    alike = next((n for n, trial in enumerate(reversed(trials)) if trial.symptoms != last.symptoms), len(trials))
    if alike >= most_alike:
        return Course.STOP
    has_broken = "broke_others" in last.codes and (is_strict or len(last.failing) > failing_before)
    if alike > 1 or has_broken or last.codes & _BENT:
        return Course.ROLL_BACK
    return Course.REPAIR


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a cycle ended."""

    state: RunState
    how: Literal["done", "covered", "part", "failed", "blocked"]
    """All phases landed; the new test passed at once; GREEN is kept in part; a phase failed; the agent gave up."""
    why: str | None = None
    """In words, unless all phases landed."""


class Cycle:
    """Takes one work item through its phases."""

    def __init__(self, item: WorkItem, state: RunState, *, context: Context, save: Save) -> None:
        """The item's step is in progress in ``state``, at any point of its cycle; nothing happens before ``run``."""
        self._item = item
        self._ledger = Ledger(state, number=item.number, save=save)
        self._context = context
        self._apart: frozenset[str] = frozenset()

    def run(self) -> Ending:
        """How it ended, and the state after it; what a phase that failed changed is taken back by the policy's rule.

        If the run is interrupted, files and history go back to the last checkpoint before the error passes through;
        in the middle of keeping the state nobody knows which is the last, and they are left as by a kill.
        Raises ``UsageError`` if they are not as an interrupted run left them.
        """
        item, ledger, context = self._item, self._ledger, self._context
        self._begin_or_resume()
        self._apart = context.repository.apart()
        try:
            ending = self._phases()
        except BaseException:
            if not ledger.is_kept:
                raise
            recovery.return_to_checkpoint(item.ticket, ledger.step, at=ledger.position, context=context)
            recovery.clear_mark(item.ticket, ledger.step, context=context)
            raise
        if ending.how in ("done", "covered", "part") or context.policy.keeps_landed:
            recovery.clear_mark(item.ticket, ledger.step, context=context)
        return ending

    def _phases(self) -> Ending:
        """Take the item through the phases that have not landed yet."""
        for phase in self._item.phases:
            if phase in self._ledger.step.commits:
                continue
            ending = self._phase(phase)
            if ending is not None:
                return ending
        return Ending(state=self._ledger.state, how="done")

    def _begin_or_resume(self) -> None:
        """Take the step's checkpoint, or, where there is one, make sure that files and history are at the last one."""
        item, ledger, context = self._item, self._ledger, self._context
        if ledger.step.checkpoint is None:
            first = next(phase for phase in item.phases if phase not in ledger.step.commits)
            checkpoint = recovery.begin(item.ticket, ledger.step, context=context)
            ledger.keep(enter_phase(ledger.state, item.number, phase=first, checkpoint=checkpoint))
            return
        recovery.hold_ignored(item.ticket, ledger.step, context=context)
        killed = recovery.killed_at(item.ticket, ledger.step, branch=ledger.state.branch, context=context)
        if killed is None:
            recovery.reclaim(item.ticket, ledger.step, context=context)
        else:
            recovery.require_own_head(item.ticket, ledger.step, context=context)
            recovery.return_to_checkpoint(item.ticket, ledger.step, at=killed, context=context)

    def _phase(self, phase: Phase) -> Ending | None:
        """How the cycle ends in this phase; None if the phase has landed and the next may begin."""
        item, ledger, context = self._item, self._ledger, self._context
        laid = self._lay_ground(phase)
        while True:
            attempts = attempts_at(phase, ledger.step)
            last = attempts[-1] if attempts else None
            if last is not None and last.finding == RedVerdict.ALREADY_GREEN and context.policy.takes_covered:
                why = take_covered(item, laid=laid, ledger=ledger, context=context)
                if why is not None:
                    return Ending(state=ledger.state, how="covered", why=why)
                continue
            if last is not None and is_partial(last):
                told = land_part(item, laid=laid, ledger=ledger, context=context)
                if told is not None:
                    return Ending(state=ledger.state, how="part", why=told)
                continue
            if last is not None and last.verdict == "open":
                if land_phase(item, phase, laid=laid, ledger=ledger, context=context):
                    return None
                continue
            following = self._course(attempts, laid=laid)
            if following is Course.STOP:
                if do_without(item, phase, laid=laid, ledger=ledger, context=context):
                    return None
                if keep_part(item, phase, laid=laid, ledger=ledger, context=context):
                    continue
                return self._failed(attempts, laid=laid)
            if following is Course.ROLL_BACK:
                context.snapshots.restore(laid.snapshot)
            attempt = make_attempt(
                item, phase, step=ledger.step, ground=laid, is_anew=following is Course.ROLL_BACK, context=context
            )
            private_folder(context.suite.root)
            self._tell_apart()
            ledger.keep(record_attempt(ledger.state, item.number, attempt=attempt))

    def _course(self, attempts: tuple[AttemptRecord, ...], *, laid: Ground) -> Course:
        """What follows the attempts at a phase so far, of which none is open."""
        policy, root = self._context.policy, self._context.repository.root
        if not attempts:
            return Course.REPAIR
        if len(attempts) >= policy.max_attempts or gave_up(attempts[-1]):
            return Course.STOP
        trials = [trial_of(each.reasons, report_of(each, root=root)) for each in attempts]
        return course(
            trials,
            failing_before=len(failing(laid.baseline)),
            most_alike=policy.most_alike,
            is_strict=policy.is_strict,
        )

    def _failed(self, attempts: tuple[AttemptRecord, ...], *, laid: Ground) -> Ending:
        """End the cycle in a phase that has no attempts left, or makes no progress."""
        item, ledger, context = self._item, self._ledger, self._context
        last = attempts[-1]
        if context.policy.keeps_landed:
            context.snapshots.restore(laid.snapshot)
            head = context.repository.head()
            hand_over(item, last, step=ledger.step, commit=CommitId(str(head)), context=context)
        else:
            used_up = "there is no progress" if self._is_in_vain(last) else "the attempts are used up"
            why = "the agent gave up" if gave_up(last) else used_up
            recovery.undo_step(item.ticket, ledger.step, why=why, context=context)
        reasons = "; ".join(last.reasons)
        if gave_up(last):
            return Ending(state=ledger.state, how="blocked", why=f"{phase_name(last.phase)} was given up: {reasons}")
        vain = f", the last {context.policy.most_alike} in the same way" if self._is_in_vain(last) else ""
        why = f"{phase_name(last.phase)} was refused {last.number} times{vain}; the last reasons: {reasons}"
        return Ending(state=ledger.state, how="failed", why=why)

    def _is_in_vain(self, last: AttemptRecord) -> bool:
        """Whether attempts were left after the ``last`` one, which came to the same as those before it."""
        return last.number < self._context.policy.max_attempts and not gave_up(last)

    def _tell_apart(self) -> None:
        """Say which repositories inside the work tree are new or moved: they are in no checkpoint and no commit."""
        now = self._context.repository.apart()
        for path in sorted(now - self._apart):
            text = f"{path} is a git repository of its own, new or at another commit: it stays as it is, uncommitted."
            self._context.emit(Notice(text=text))
        self._apart |= now

    def _lay_ground(self, phase: Phase) -> Ground:
        """The ground of ``phase``; from here on, files and history may be half-done."""
        item, ledger, context = self._item, self._ledger, self._context
        ledger.position = at = recovery.note_position(item.ticket, ledger.step, context=context)
        laid = baseline.lay(item, phase, step=ledger.step, at=at, context=context)
        ledger.keep(enter_phase(ledger.state, item.number, phase=phase, baseline=laid.baseline_path))
        return laid
