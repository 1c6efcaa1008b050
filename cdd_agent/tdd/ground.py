"""What a phase stands on: the files, the history and the test results from before its first attempt."""

from dataclasses import dataclass

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.git.snapshot import Snapshot
from cdd_agent.tdd import recovery
from cdd_agent.tdd.policy import Phase, WorkItem
from cdd_agent.tdd.recovery import Position
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work.state import StepExecution
from pytest_tdd_agent.report import ReportError, SuiteReport, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The same from the first attempt at a phase to the last."""

    snapshot: Snapshot
    """The work tree as it was when the phase began."""
    position: Position
    """Where HEAD, branch and index were."""
    baseline: SuiteReport
    baseline_path: str
    """Of the report, relative to the work tree."""
    off_limits: frozenset[str]
    """Files with uncommitted changes of the user's."""


def lay(item: WorkItem, phase: Phase, *, step: StepExecution, at: Position, bench: Workbench) -> Ground:
    """The ground of ``phase``: found if an attempt was made at it, laid now if not; ``at`` is where history stands.

    Raises ``EnvironmentMissing`` if the tests cannot be run, or if there are none and the phase adds none.
    """
    ref = recovery.checkpoint_ref(item.ticket, step, name=f"{phase}-0")
    snapshot = bench.snapshots.find(ref) or bench.snapshots.take(ref, message=f"before {phase}")
    baseline, path = _baseline(phase, step=step, snapshot=snapshot, bench=bench)
    if phase != "red" and not baseline.tests and not baseline.collect_errors:
        root = bench.suite.root
        raise EnvironmentMissing(
            f"No tests found: pytest in {root} collected none (by default it looks for functions test_* in files "
            f"test_*.py and *_test.py), and without a test the gate cannot say that step {item.number}, a step of "
            f"kind {item.kind}, left everything working.",
            hint=f"write one test and commit it (see what is found: {bench.suite.interpreter.path} -m pytest "
            "--collect-only), or give the step the kind feature",
        )
    return Ground(
        snapshot=snapshot,
        position=at,
        baseline=baseline,
        baseline_path=path,
        off_limits=recovery.user_files(step, bench=bench),
    )


def _baseline(phase: Phase, *, step: StepExecution, snapshot: Snapshot, bench: Workbench) -> tuple[SuiteReport, str]:
    """What the tests said when the last phase landed, or, before the first one, what they say now; and its path.

    A report that is lost is made again from the files as they were before the phase.
    """
    root = bench.repository.root
    opened = [a.report for a in step.attempts if a.phase in step.commits and a.verdict == "open"]
    landed = [root / report for report in opened if report]
    path = landed[-1] if landed else recovery.report_path(step, "baseline", bench=bench)
    shown = str(path.relative_to(root))
    try:
        return load(path), shown
    except ReportError:
        present = recovery.last_checkpoint(step, bench=bench)
        bench.snapshots.restore(snapshot)
        run = bench.run_suite("all tests as a baseline", keep=path)
        if present is not None:
            bench.snapshots.restore(present)
    if run.report is None:
        raise EnvironmentMissing(
            f"The project's tests cannot be run: {run.problem}.\n{run.output.strip()[-2000:]}",
            hint=f"make `{bench.suite.interpreter.path} -m pytest` work in {bench.suite.root}",
        )
    return run.report, shown
