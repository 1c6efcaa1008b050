"""The cycle: one work item through RED, GREEN and REFACTOR, each attempt judged by the gate over a real test run.

Every state between two attempts is kept as a snapshot and saved before anything depends on it, so a cycle that was
killed goes on from the attempt it was in and never does a step twice. The model's own word ends an attempt; only the
gate ends a phase.
"""

from collections.abc import Callable
from typing import TypeAlias

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import Notice
from cdd_agent.tdd import recovery
from cdd_agent.tdd.attempt import Ground, make_attempt
from cdd_agent.tdd.handoff import land
from cdd_agent.tdd.policy import Phase, WorkItem, phases_of
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work.state import AttemptRecord, RunState, StepExecution, enter_phase, record_attempt, record_commit
from pytest_tdd_agent.report import SuiteReport, load

Save: TypeAlias = Callable[[RunState], None]
"""Keeps the state durably before the cycle goes on."""


class Cycle:
    """Takes one work item through its phases."""

    def __init__(self, item: WorkItem, state: RunState, *, bench: Workbench, save: Save) -> None:
        """The item's step is in progress in ``state``, at any point of its cycle; nothing happens before ``run``."""
        self._item = item
        self._state = state
        self._bench = bench
        self._save = save

    def run(self) -> tuple[RunState, str | None]:
        """The state after the cycle, and why the step failed and was rolled back; None if all its phases landed.

        If the run is interrupted, the work tree goes back to the last checkpoint before the error passes through.
        """
        try:
            self._begin_or_resume()
            for phase in phases_of(self._item.kind, self._bench.policy):
                if phase not in self._step.commits and not self._phase(phase):
                    recovery.undo_step(self._item, self._step, bench=self._bench)
                    return self._state, self._why_failed(phase)
        except BaseException:
            recovery.return_to_checkpoint(self._item, self._step, bench=self._bench)
            raise
        return self._state, None

    @property
    def _step(self) -> StepExecution:
        """The step as it stands."""
        return self._state.execution(self._item.number)

    def _keep(self, state: RunState) -> None:
        """Make ``state`` the present one, durably."""
        self._state = state
        self._save(state)

    def _attempts(self, phase: Phase) -> tuple[AttemptRecord, ...]:
        """The attempts at one phase so far."""
        return tuple(attempt for attempt in self._step.attempts if attempt.phase == phase)

    def _why_failed(self, phase: Phase) -> str:
        """The last verdict, for the state and the person."""
        last = self._attempts(phase)[-1]
        return f"{phase.upper()} was refused {last.number} times; the last reasons: " + "; ".join(last.reasons)

    def _begin_or_resume(self) -> None:
        """Take the step's checkpoint, or, where there is one, bring the work tree back to the last one."""
        if self._step.checkpoint is not None:
            recovery.return_to_checkpoint(self._item, self._step, bench=self._bench)
            return
        first = phases_of(self._item.kind, self._bench.policy)[0]
        checkpoint = recovery.begin(self._item, bench=self._bench)
        self._keep(enter_phase(self._state, self._item.number, phase=first, checkpoint=checkpoint))

    def _phase(self, phase: Phase) -> bool:
        """Whether the phase has landed; False once its attempts are used up."""
        ground = self._ground(phase)
        while not any(attempt.verdict == "open" for attempt in self._attempts(phase)):
            if len(self._attempts(phase)) >= self._bench.policy.max_attempts:
                return self._does_without(phase, ground)
            attempt = make_attempt(self._item, phase, earlier=self._attempts(phase), ground=ground, bench=self._bench)
            self._keep(record_attempt(self._state, self._item.number, attempt))
        self._land(phase, ground)
        return True

    def _land(self, phase: Phase, ground: Ground) -> None:
        """Commit what the phase changed; where it changed nothing, the commit before stands for it."""
        paths = tuple(change.path for change in self._bench.snapshots.changes_since(ground.snapshot))
        if paths:
            attempt = self._attempts(phase)[-1]
            commit = str(land(self._item, attempt, step=self._step, paths=paths, bench=self._bench))
        else:
            commit = self._bench.repository.head() or ""
        self._keep(record_commit(self._state, self._item.number, phase=phase, commit=commit))

    def _does_without(self, phase: Phase, ground: Ground) -> bool:
        """Whether the step can go on without this phase: a REFACTOR after GREEN can be given up."""
        if phase != "refactor" or "green" not in self._step.commits:
            return False
        self._bench.snapshots.restore(ground.snapshot)
        self._bench.emit(
            Notice(text="Refactoring was refused each time and is given up; the code is as GREEN left it.")
        )
        green = self._step.commits["green"]
        self._keep(record_commit(self._state, self._item.number, phase=phase, commit=green))
        return True

    def _ground(self, phase: Phase) -> Ground:
        """The ground of ``phase``: found if an attempt was made at it, laid now if not."""
        ref = recovery.checkpoint_ref(self._item, f"{phase}-0")
        snapshots = self._bench.snapshots
        snapshot = snapshots.find(ref) or snapshots.take(ref, message=f"before {phase}")
        return Ground(
            snapshot=snapshot,
            baseline=self._baseline(phase),
            off_limits=recovery.user_files(self._step, bench=self._bench),
        )

    def _baseline(self, phase: Phase) -> SuiteReport:
        """What the tests said when the last phase landed, or, before the first one, what they say now."""
        root = self._bench.repository.root
        opened = [a.report for a in self._step.attempts if a.phase in self._step.commits and a.verdict == "open"]
        landed = [root / report for report in opened if report]
        path = landed[-1] if landed else recovery.report_path(self._item, "baseline", bench=self._bench)
        shown = str(path.relative_to(root))
        if path.exists():
            report = load(path)
        else:
            run = self._bench.run_suite("all tests as a baseline", keep=path)
            if run.report is None:
                raise EnvironmentMissing(
                    f"The project's tests cannot be run: {run.problem}.\n{run.output.strip()[-2000:]}",
                    hint=f"make `{self._bench.suite.interpreter.path} -m pytest` work in {root}",
                )
            report = run.report
        self._keep(enter_phase(self._state, self._item.number, phase=phase, baseline=shown))
        return report
