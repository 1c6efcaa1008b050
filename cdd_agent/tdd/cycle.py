"""The cycle: one work item through its phases, each attempt judged by the gate over a real test run.

Every state between two attempts is kept as a snapshot and saved before anything depends on it, so a cycle that was
killed goes on from the attempt it was in and never does a step twice. The model's own word ends an attempt; only the
gate ends a phase.
"""

from dataclasses import dataclass
from typing import Literal

from cdd_agent.events import Notice
from cdd_agent.git.repository import CommitId
from cdd_agent.settings import private_folder
from cdd_agent.tdd import ground, recovery
from cdd_agent.tdd.attempt import attempts_at, gave_up, make_attempt, report_of
from cdd_agent.tdd.ground import Ground
from cdd_agent.tdd.handoff import hand_over
from cdd_agent.tdd.landing import (
    Ledger,
    Save,
    do_without,
    is_partial,
    keep_part,
    land_part,
    land_phase,
    take_covered,
)
from cdd_agent.tdd.policy import Phase, WorkItem
from cdd_agent.tdd.rules.course import Course, course, trial_of
from cdd_agent.tdd.rules.red import RedVerdict
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work.handoff import phase_name
from cdd_agent.work.state import AttemptRecord, RunState, enter_phase, record_attempt
from pytest_tdd_agent.report import failing


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

    def __init__(self, item: WorkItem, state: RunState, *, bench: Workbench, save: Save) -> None:
        """The item's step is in progress in ``state``, at any point of its cycle; nothing happens before ``run``."""
        self._item = item
        self._ledger = Ledger(state, number=item.number, save=save)
        self._bench = bench
        self._apart: frozenset[str] = frozenset()

    def run(self) -> Ending:
        """How it ended, and the state after it; what a phase that failed changed is taken back by the policy's rule.

        If the run is interrupted, files and history go back to the last checkpoint before the error passes through;
        in the middle of keeping the state nobody knows which is the last, and they are left as by a kill.
        Raises ``UsageError`` if they are not as an interrupted run left them.
        """
        item, ledger, bench = self._item, self._ledger, self._bench
        self._begin_or_resume()
        self._apart = bench.repository.apart()
        try:
            ending = self._phases()
        except BaseException:
            if not ledger.is_kept:
                raise
            recovery.return_to_checkpoint(item.ticket, ledger.step, at=ledger.position, bench=bench)
            recovery.clear_mark(item.ticket, ledger.step, bench=bench)
            raise
        if ending.how in ("done", "covered", "part") or bench.policy.keeps_landed:
            recovery.clear_mark(item.ticket, ledger.step, bench=bench)
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
        item, ledger, bench = self._item, self._ledger, self._bench
        if ledger.step.checkpoint is None:
            first = next(phase for phase in item.phases if phase not in ledger.step.commits)
            checkpoint = recovery.begin(item.ticket, ledger.step, bench=bench)
            ledger.keep(enter_phase(ledger.state, item.number, phase=first, checkpoint=checkpoint))
            return
        recovery.hold_ignored(item.ticket, ledger.step, bench=bench)
        killed = recovery.killed_at(item.ticket, ledger.step, branch=ledger.state.branch, bench=bench)
        if killed is None:
            recovery.reclaim(item.ticket, ledger.step, bench=bench)
        else:
            recovery.require_own_head(item.ticket, ledger.step, bench=bench)
            recovery.return_to_checkpoint(item.ticket, ledger.step, at=killed, bench=bench)

    def _phase(self, phase: Phase) -> Ending | None:
        """How the cycle ends in this phase; None if the phase has landed and the next may begin."""
        item, ledger, bench = self._item, self._ledger, self._bench
        laid = self._lay_ground(phase)
        while True:
            attempts = attempts_at(phase, ledger.step)
            last = attempts[-1] if attempts else None
            if last is not None and last.finding == RedVerdict.ALREADY_GREEN and bench.policy.takes_covered:
                why = take_covered(item, laid=laid, ledger=ledger, bench=bench)
                if why is not None:
                    return Ending(state=ledger.state, how="covered", why=why)
                continue
            if last is not None and is_partial(last):
                told = land_part(item, laid=laid, ledger=ledger, bench=bench)
                if told is not None:
                    return Ending(state=ledger.state, how="part", why=told)
                continue
            if last is not None and last.verdict == "open":
                if land_phase(item, phase, laid=laid, ledger=ledger, bench=bench):
                    return None
                continue
            following = self._course(attempts, laid=laid)
            if following is Course.STOP:
                if do_without(item, phase, laid=laid, ledger=ledger, bench=bench):
                    return None
                if keep_part(item, phase, laid=laid, ledger=ledger, bench=bench):
                    continue
                return self._failed(attempts, laid=laid)
            if following is Course.ROLL_BACK:
                bench.snapshots.restore(laid.snapshot)
            attempt = make_attempt(
                item, phase, step=ledger.step, ground=laid, is_anew=following is Course.ROLL_BACK, bench=bench
            )
            private_folder(bench.suite.root)
            self._tell_apart()
            ledger.keep(record_attempt(ledger.state, item.number, attempt=attempt))

    def _course(self, attempts: tuple[AttemptRecord, ...], *, laid: Ground) -> Course:
        """What follows the attempts at a phase so far, of which none is open."""
        policy, root = self._bench.policy, self._bench.repository.root
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
        item, ledger, bench = self._item, self._ledger, self._bench
        last = attempts[-1]
        if bench.policy.keeps_landed:
            bench.snapshots.restore(laid.snapshot)
            head = bench.repository.head()
            hand_over(item, last, step=ledger.step, commit=CommitId(str(head)), bench=bench)
        else:
            used_up = "there is no progress" if self._is_in_vain(last) else "the attempts are used up"
            why = "the agent gave up" if gave_up(last) else used_up
            recovery.undo_step(item.ticket, ledger.step, why=why, bench=bench)
        reasons = "; ".join(last.reasons)
        if gave_up(last):
            return Ending(state=ledger.state, how="blocked", why=f"{phase_name(last.phase)} was given up: {reasons}")
        vain = f", the last {bench.policy.most_alike} in the same way" if self._is_in_vain(last) else ""
        why = f"{phase_name(last.phase)} was refused {last.number} times{vain}; the last reasons: {reasons}"
        return Ending(state=ledger.state, how="failed", why=why)

    def _is_in_vain(self, last: AttemptRecord) -> bool:
        """Whether attempts were left after the ``last`` one, which came to the same as those before it."""
        return last.number < self._bench.policy.max_attempts and not gave_up(last)

    def _tell_apart(self) -> None:
        """Say which repositories inside the work tree are new or moved: they are in no checkpoint and no commit."""
        now = self._bench.repository.apart()
        for path in sorted(now - self._apart):
            text = f"{path} is a git repository of its own, new or at another commit: it stays as it is, uncommitted."
            self._bench.emit(Notice(text=text))
        self._apart |= now

    def _lay_ground(self, phase: Phase) -> Ground:
        """The ground of ``phase``; from here on, files and history may be half-done."""
        item, ledger, bench = self._item, self._ledger, self._bench
        ledger.position = at = recovery.note_position(item.ticket, ledger.step, bench=bench)
        laid = ground.lay(item, phase, step=ledger.step, at=at, bench=bench)
        ledger.keep(enter_phase(ledger.state, item.number, phase=phase, baseline=laid.baseline_path))
        return laid
