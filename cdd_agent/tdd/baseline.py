"""What a phase stands on: the files, the history and the test results from before its first attempt."""

from dataclasses import dataclass, replace

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.git.snapshot import Snapshot
from cdd_agent.tdd import recovery
from cdd_agent.tdd.context import Phase, Workbench, WorkItem
from cdd_agent.tdd.recovery import Position
from cdd_agent.work.state import StepExecution
from pytest_tdd_agent.codec import ReportError, load
from pytest_tdd_agent.report import SuiteReport, Verdict, failing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The same from the first attempt at a phase to the last."""

    snapshot: Snapshot
    """The work tree as it was when the phase began."""
    position: Position
    """Where HEAD, branch and index were."""
    baseline: SuiteReport
    """In GREEN with what RED's report cannot say of the tests before the step: see ``with_tests_before``."""
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
    baseline, path = _baseline(step, snapshot=snapshot, bench=bench)
    if phase == "green" and not mends_what_fails(item):
        baseline = _with_the_tests_before(baseline, step=step, bench=bench)
    has_none = baseline.structured and not baseline.tests and not baseline.collect_errors
    if phase in ("green", "refactor") and has_none:
        root = bench.suite.root
        raise EnvironmentMissing(
            f"No tests found: {bench.suite.conventions.framework} in {root} has none (by default "
            f"{bench.suite.conventions.looked_for}), and without a test the gate cannot say that step {item.number}, "
            f"a step of kind {item.kind}, left everything working.",
            hint=f"write one test and commit it (see what is found: {_listing(bench)}), or "
            "give the step the kind feature",
        )
    return Ground(
        snapshot=snapshot,
        position=at,
        baseline=baseline,
        baseline_path=path,
        off_limits=recovery.user_files(step, bench=bench),
    )


def mends_what_fails(item: WorkItem) -> bool:
    """Whether the item is to make tests pass that fail before it, rather than tests of its own RED."""
    return item.phases[0] == "green" and item.kind not in ("docs", "chore")


def _listing(bench: Workbench) -> str:
    """The command that shows which tests there are."""
    only = " --collect-only" if bench.suite.conventions.framework == "pytest" else ""
    return f"{bench.suite.command}{only}"


def _baseline(step: StepExecution, *, snapshot: Snapshot, bench: Workbench) -> tuple[SuiteReport, str]:
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
        scope = bench.policy.gate_runs
        run = bench.run_suite(f"{scope_words(scope)} as a baseline", keep=path, targets=scope)
        if present is not None:
            bench.snapshots.restore(present)
    if run.report is None:
        raise EnvironmentMissing(
            f"The project's tests cannot be run: {run.problem}.\n{run.output.strip()[-2000:]}",
            hint=f"make `{bench.suite.command}` work in {bench.suite.root}",
        )
    return run.report, shown


def scope_words(files: tuple[str, ...]) -> str:
    """What a run of ``files`` is called; none: of all tests."""
    return "the tests of the targets' files" if files else "all tests"


def _with_the_tests_before(baseline: SuiteReport, *, step: StepExecution, bench: Workbench) -> SuiteReport:
    """``baseline`` with what the step's first report adds; as it is if that one is lost."""
    try:
        first = load(recovery.report_path(step, "baseline", bench=bench))
    except ReportError:
        return baseline
    return with_tests_before(baseline, first=first)


def with_tests_before(red: SuiteReport, *, first: SuiteReport) -> SuiteReport:
    """RED's report as a baseline of GREEN: with the tests of files that RED's import hides, as they were in ``first``.

    What failed in ``first`` is noted as old, so that GREEN is not asked to mend it.
    """
    present = {case.nodeid for case in red.tests}
    hiding = tuple(_inside(error.nodeid) for error in red.collect_errors)
    hidden = tuple(case for case in first.tests if case.nodeid not in present and case.nodeid.startswith(hiding))
    opened = Verdict(phase="red", open=True)
    return replace(red, tests=(*red.tests, *hidden), old_failures=failing(first), gate=opened)


def _inside(nodeid: str) -> str:
    """What the node ids begin with of the tests in the file, or the package, that could not be collected."""
    return nodeid.removesuffix("__init__.py") if nodeid.endswith("/__init__.py") else f"{nodeid}::"
