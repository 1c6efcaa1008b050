"""How a phase ends: with a commit of all or of a part, refused by a hook, done without, or covered already."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from cdd_agent.errors import GateClosed
from cdd_agent.events import GateJudged, Notice
from cdd_agent.evidence.characterize import notices_changes
from cdd_agent.evidence.trees import newly_passing
from cdd_agent.git.repository import CommitId
from cdd_agent.git.snapshot import Snapshot
from cdd_agent.tdd import recovery
from cdd_agent.tdd.attempt import attempts_at, gave_up, judge_part, report_of
from cdd_agent.tdd.briefing import reason_lines
from cdd_agent.tdd.ground import Ground
from cdd_agent.tdd.handoff import hand_over, has_hooks, land
from cdd_agent.tdd.policy import Phase, WorkItem
from cdd_agent.tdd.recovery import Position
from cdd_agent.tdd.rules.verdict import concerns, of_run
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work.state import AttemptRecord, RunState, StepExecution, record_commit
from pytest_tdd_agent.codec import load

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


def land_phase(item: WorkItem, phase: Phase, *, laid: Ground, ledger: Ledger, bench: Workbench) -> bool:
    """Commit what the phase changed; where it changed nothing, the commit before stands for it.

    False if a commit hook of the user's refuses it: then the attempt is closed after all, with the hook's words.
    """
    attempt = attempts_at(phase, ledger.step)[-1]
    paths = tuple(change.path for change in bench.snapshots.changes_since(laid.snapshot))
    settled = bench.brief(item, phase).settled
    if settled is not None:
        item = settled(item, attempt.answer or "")
    commit = _committed(item, attempt, paths=paths, laid=laid, ledger=ledger, bench=bench)
    if commit is None:
        return False
    ledger.position = recovery.note_position(item.ticket, ledger.step, bench=bench)  # going back leads here now
    ledger.keep(record_commit(ledger.state, item.number, phase=phase, commit=commit))
    return True


def _committed(
    item: WorkItem, attempt: AttemptRecord, *, paths: tuple[str, ...], laid: Ground, ledger: Ledger, bench: Workbench
) -> CommitId | None:
    """The commit of ``paths``; None if a commit hook of the user's refuses it: then the attempt is a closed one."""
    try:
        commit = land(item, attempt, step=ledger.step, paths=paths, bench=bench)
    except GateClosed as error:
        if not has_hooks(bench.repository):
            raise
        _close(item, attempt.phase, why=error.happened, laid=laid, ledger=ledger, bench=bench)
        return None
    _keep_what_hooks_made(attempt, commit=commit, paths=paths, bench=bench)
    return commit


def _close(item: WorkItem, phase: Phase, *, why: str, laid: Ground, ledger: Ledger, bench: Workbench) -> None:
    """Make the last attempt a closed one after all; what the hook changed in the files stays for the next."""
    last = attempts_at(phase, ledger.step)[-1]
    reasons = (f"commit_refused: {why[:HOOK_WORDS_CAP]}",)
    recovery.put_back(laid.position, ticket=item.ticket, step=ledger.step, bench=bench)
    bench.snapshots.take(last.checkpoint or "", message=f"{phase} attempt {last.number}, refused by a hook")
    finding = PARTIAL if last.finding == PARTIAL else None  # RED has not come to what the gate said
    ledger.replace_last(replace(last, verdict="closed", reasons=reasons, finding=finding))
    bench.emit(
        GateJudged(phase=phase, attempt=last.number, open=False, reasons=reasons, evidence="a commit hook refused it")
    )


def do_without(item: WorkItem, phase: Phase, *, laid: Ground, ledger: Ledger, bench: Workbench) -> bool:
    """Whether the item can go on without this phase: a REFACTOR after GREEN can be given up."""
    if phase != "refactor" or "green" not in ledger.step.commits:
        return False
    bench.snapshots.restore(laid.snapshot)
    bench.emit(Notice(text="Refactoring was refused each time and is given up; the code is as GREEN left it."))
    green = CommitId(ledger.step.commits["green"])
    last = attempts_at(phase, ledger.step)[-1]
    hand_over(item, last, step=ledger.step, commit=green, bench=bench)
    ledger.keep(record_commit(ledger.state, item.number, phase=phase, commit=green))
    return True


def take_covered(item: WorkItem, *, laid: Ground, ledger: Ledger, bench: Workbench) -> str | None:
    """End RED with tests that pass at once: they stay if they notice altered code. What became of them, in words.

    None if a commit hook of the user's refuses them, as ``land_phase`` has it.
    """
    last = attempts_at("red", ledger.step)[-1]
    attempt = replace(last, verdict="closed")  # as the gate said, also after a kill below
    if last.verdict == "open":
        stays = last.checkpoint != laid.snapshot.ref
    else:
        stays = _characterizes(item, attempt, laid=laid, bench=bench)
    kept = last.checkpoint if stays else laid.snapshot.ref
    ledger.replace_last(replace(last, verdict="open", checkpoint=kept))
    if stays:
        paths = tuple(change.path for change in bench.snapshots.changes_since(laid.snapshot))
        landed = _committed(item, attempt, paths=paths, laid=laid, ledger=ledger, bench=bench)
        if landed is None:
            return None
        commit, told = landed, "it passes already, and fails with the code altered: the test is kept"
    else:
        bench.snapshots.restore(laid.snapshot)
        commit = CommitId(str(bench.repository.head()))
        hand_over(item, attempt, step=ledger.step, commit=commit, bench=bench)
        told = "it passes already, whatever the code does: the test is dropped"
    ledger.position = recovery.note_position(item.ticket, ledger.step, bench=bench)
    ledger.keep(record_commit(ledger.state, item.number, phase="red", commit=commit))
    bench.emit(Notice(text=f"{item.title}: {told}."))
    return told


def _characterizes(item: WorkItem, attempt: AttemptRecord, *, laid: Ground, bench: Workbench) -> bool:
    """Whether the new tests, which pass, fail once the code they are about is altered."""
    checkpoint = bench.snapshots.find(attempt.checkpoint or "")
    report = report_of(attempt, root=bench.repository.root)
    if checkpoint is None or report is None or checkpoint.commit == laid.snapshot.commit:
        return False
    old = {case.nodeid for case in laid.baseline.tests}
    targets = tuple(case.nodeid for case in report.tests if case.outcome == "passed" and case.nodeid not in old)
    return notices_changes(
        targets,
        item.sources,
        tree=checkpoint.commit,
        repository=bench.repository,
        suite=bench.suite,
        time_box_s=bench.policy.evidence_timeout_s,
    )


def is_partial(attempt: AttemptRecord) -> bool:
    """Whether what this attempt at GREEN came to is a part of what it was for, which is to be committed."""
    return attempt.verdict == "open" and attempt.finding == PARTIAL


def keep_part(item: WorkItem, phase: Phase, *, laid: Ground, ledger: Ledger, bench: Workbench) -> bool:
    """Whether a GREEN without attempts left is to be kept in part: some of the item's tests pass, and none was broken.

    If so, the files are those of the attempt that mended most, the gate has judged them once more by what it mended,
    and the last attempt says so.
    """
    attempts = attempts_at(phase, ledger.step)
    last = attempts[-1]
    if not bench.policy.keeps_part or phase != "green" or gave_up(last) or last.finding == PARTIAL:
        return False
    root = bench.repository.root
    mended = {each.number: _mended(item, each, laid=laid, root=root) for each in attempts}
    best = max(attempts, key=lambda each: (len(mended[each.number]), each.number))
    checkpoint = bench.snapshots.find(best.checkpoint or "refs/cdd/none")
    if not mended[best.number] or checkpoint is None:
        return False
    bench.snapshots.restore(checkpoint)
    part = replace(item, tests=mended[best.number])
    judged = judge_part(part, last, step=ledger.step, ground=laid, bench=bench)
    told = f"{len(part.tests)} of the tests to mend pass since attempt {best.number}: {', '.join(part.tests)}"
    is_open = judged.verdict == "open"
    bench.emit(GateJudged(phase=phase, attempt=last.number, open=is_open, reasons=judged.reasons, evidence=told))
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


def land_part(item: WorkItem, *, laid: Ground, ledger: Ledger, bench: Workbench) -> str | None:
    """Commit a part, its note telling what is left; what it came to, in words.

    None if a commit hook of the user's refuses it, as ``land_phase`` has it.
    """
    attempt = attempts_at("green", ledger.step)[-1]
    paths = tuple(change.path for change in bench.snapshots.changes_since(laid.snapshot))
    closed = replace(attempt, verdict="closed")
    commit = _committed(item, closed, paths=paths, laid=laid, ledger=ledger, bench=bench)
    if commit is None:
        return None
    ledger.position = recovery.note_position(item.ticket, ledger.step, bench=bench)
    ledger.keep(record_commit(ledger.state, item.number, phase="green", commit=commit))
    return f"GREEN is kept in part ({commit[:8]}); what is left: {'; '.join(attempt.reasons)}"


def _keep_what_hooks_made(
    attempt: AttemptRecord, *, commit: CommitId, paths: tuple[str, ...], bench: Workbench
) -> None:
    """Bring the attempt's checkpoint up to what a commit hook made of ``paths``: later phases go on from there.

    Its report is put aside, as it tells of other files; the next phase runs the tests again for its baseline.
    """
    ref = attempt.checkpoint or ""
    checkpoint = bench.snapshots.find(ref) if ref else None
    if checkpoint is None:
        return
    made = [path for path in bench.snapshots.paths_unlike(commit, checkpoint) if path in paths]
    if made:
        bench.snapshots.restore(Snapshot(ref="HEAD", commit=commit), only=made)
        bench.snapshots.take(ref, message="as a commit hook left it")
        report = bench.repository.root / (attempt.report or "")
        if report.is_file():
            report.replace(report.with_suffix(".gate.json"))
        bench.emit(Notice(text=f"A commit hook changed files after the gate had seen them: {', '.join(made)}"))
