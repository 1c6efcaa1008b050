"""The cycle: one work item through RED, GREEN and REFACTOR, each attempt judged by the gate over a real test run.

Every state between two attempts is kept as a snapshot and saved before anything depends on it, so a cycle that was
killed goes on from the attempt it was in and never does a step twice. The model's own word ends an attempt; only the
gate ends a phase.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from cdd_agent.errors import GateClosed
from cdd_agent.events import GateJudged, Notice
from cdd_agent.git.repository import CommitId
from cdd_agent.git.snapshot import Snapshot
from cdd_agent.settings import private_folder
from cdd_agent.tdd import ground, recovery
from cdd_agent.tdd.attempt import attempts_at, make_attempt
from cdd_agent.tdd.ground import Ground
from cdd_agent.tdd.handoff import hand_over, has_hooks, land
from cdd_agent.tdd.policy import Phase, WorkItem, phases_of
from cdd_agent.tdd.recovery import Position
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work.state import AttemptRecord, RunState, StepExecution, enter_phase, record_attempt, record_commit

Save: TypeAlias = Callable[[RunState], None]
"""Keeps the state durably before the cycle goes on."""

HOOK_WORDS_CAP = 2_000
"""Characters of what a commit hook says that are kept as a reason."""


class Cycle:
    """Takes one work item through its phases."""

    def __init__(self, item: WorkItem, state: RunState, *, bench: Workbench, save: Save) -> None:
        """The item's step is in progress in ``state``, at any point of its cycle; nothing happens before ``run``."""
        self._item = item
        self._state = state
        self._bench = bench
        self._save = save
        self._position: Position | None = None
        self._is_kept = True
        self._apart: frozenset[str] = frozenset()

    def run(self) -> tuple[RunState, str | None]:
        """The state after the cycle, and why the step failed and was rolled back; None if all its phases landed.

        If the run is interrupted, files and history go back to the last checkpoint before the error passes through;
        in the middle of keeping the state nobody knows which is the last, and they are left as by a kill.
        Raises ``UsageError`` if they are not as an interrupted run left them.
        """
        self._begin_or_resume()
        self._apart = self._bench.repository.apart()
        try:
            for phase in phases_of(self._item.kind, self._bench.policy):
                if phase not in self._step.commits and not self._phase(phase):
                    recovery.undo_step(self._item.ticket, self._step, why="the attempts are used up", bench=self._bench)
                    return self._state, self._why_failed(phase)
        except BaseException:
            if not self._is_kept:
                raise
            recovery.return_to_checkpoint(self._item.ticket, self._step, at=self._position, bench=self._bench)
            recovery.clear_mark(self._item.ticket, self._step, bench=self._bench)
            raise
        recovery.clear_mark(self._item.ticket, self._step, bench=self._bench)
        return self._state, None

    @property
    def _step(self) -> StepExecution:
        """The step as it stands."""
        return self._state.execution(self._item.number)

    def _keep(self, state: RunState) -> None:
        """Make ``state`` the present one once it is kept durably."""
        self._is_kept = False
        self._save(state)
        self._state = state
        self._is_kept = True

    def _why_failed(self, phase: Phase) -> str:
        """The last verdict, for the state and the person."""
        last = attempts_at(phase, self._step)[-1]
        return f"{phase.upper()} was refused {last.number} times; the last reasons: " + "; ".join(last.reasons)

    def _begin_or_resume(self) -> None:
        """Take the step's checkpoint, or, where there is one, make sure that files and history are at the last one."""
        if self._step.checkpoint is None:
            first = phases_of(self._item.kind, self._bench.policy)[0]
            checkpoint = recovery.begin(self._item.ticket, self._step, bench=self._bench)
            self._keep(enter_phase(self._state, self._item.number, phase=first, checkpoint=checkpoint))
            return
        recovery.hold_ignored(self._item.ticket, self._step, bench=self._bench)
        killed = recovery.killed_at(self._item.ticket, self._step, branch=self._state.branch, bench=self._bench)
        if killed is None:
            recovery.reclaim(self._item.ticket, self._step, bench=self._bench)
        else:
            recovery.require_own_head(self._item.ticket, self._step, bench=self._bench)
            recovery.return_to_checkpoint(self._item.ticket, self._step, at=killed, bench=self._bench)

    def _phase(self, phase: Phase) -> bool:
        """Whether the phase has landed; False once its attempts are used up."""
        laid = self._lay_ground(phase)
        while True:
            attempts = attempts_at(phase, self._step)
            if attempts and attempts[-1].verdict == "open":
                if self._land(phase, laid):
                    return True
            elif len(attempts) >= self._bench.policy.max_attempts:
                return self._does_without(phase, laid)
            else:
                attempt = make_attempt(self._item, phase, step=self._step, ground=laid, bench=self._bench)
                private_folder(self._bench.suite.root)
                self._tell_apart()
                self._keep(record_attempt(self._state, self._item.number, attempt=attempt))

    def _tell_apart(self) -> None:
        """Say which repositories inside the work tree are new or moved: they are in no checkpoint and no commit."""
        now = self._bench.repository.apart()
        for path in sorted(now - self._apart):
            text = f"{path} is a git repository of its own, new or at another commit: it stays as it is, uncommitted."
            self._bench.emit(Notice(text=text))
        self._apart |= now

    def _lay_ground(self, phase: Phase) -> Ground:
        """The ground of ``phase``; from here on, files and history may be half-done."""
        self._position = at = recovery.note_position(self._item.ticket, self._step, bench=self._bench)
        laid = ground.lay(self._item, phase, step=self._step, at=at, bench=self._bench)
        self._keep(enter_phase(self._state, self._item.number, phase=phase, baseline=laid.baseline_path))
        return laid

    def _land(self, phase: Phase, laid: Ground) -> bool:
        """Commit what the phase changed; where it changed nothing, the commit before stands for it.

        False if a commit hook of the user's refuses it: then the attempt is closed after all, with the hook's words.
        """
        bench, attempt = self._bench, attempts_at(phase, self._step)[-1]
        paths = tuple(change.path for change in bench.snapshots.changes_since(laid.snapshot))
        try:
            commit = land(self._item, attempt, step=self._step, paths=paths, bench=bench)
        except GateClosed as error:
            if not has_hooks(bench.repository):
                raise
            self._close(phase, laid, why=error.happened)
            return False
        _keep_what_hooks_made(attempt, commit=commit, paths=paths, bench=bench)
        self._position = recovery.note_position(self._item.ticket, self._step, bench=bench)  # going back leads here now
        self._keep(record_commit(self._state, self._item.number, phase=phase, commit=commit))
        return True

    def _close(self, phase: Phase, laid: Ground, *, why: str) -> None:
        """Make the last attempt a closed one after all; what the hook changed in the files stays for the next."""
        last = attempts_at(phase, self._step)[-1]
        reasons = (f"commit_refused: {why[:HOOK_WORDS_CAP]}",)
        recovery.put_back(laid.position, ticket=self._item.ticket, step=self._step, bench=self._bench)
        self._bench.snapshots.take(last.checkpoint or "", message=f"{phase} attempt {last.number}, refused by a hook")
        closed = replace(last, verdict="closed", reasons=reasons)
        step = replace(self._step, attempts=(*self._step.attempts[:-1], closed))
        self._keep(replace(self._state, step_executions={**self._state.step_executions, step.step_number: step}))
        self._bench.emit(
            GateJudged(
                phase=phase, attempt=last.number, open=False, reasons=reasons, evidence="a commit hook refused it"
            )
        )

    def _does_without(self, phase: Phase, laid: Ground) -> bool:
        """Whether the step can go on without this phase: a REFACTOR after GREEN can be given up."""
        if phase != "refactor" or "green" not in self._step.commits:
            return False
        self._bench.snapshots.restore(laid.snapshot)
        self._bench.emit(
            Notice(text="Refactoring was refused each time and is given up; the code is as GREEN left it.")
        )
        green = CommitId(self._step.commits["green"])
        last = attempts_at(phase, self._step)[-1]
        hand_over(self._item, last, step=self._step, commit=green, bench=self._bench)
        self._keep(record_commit(self._state, self._item.number, phase=phase, commit=green))
        return True


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
