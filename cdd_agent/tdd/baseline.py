"""The baseline of a phase: files, history and test results from before its first attempt."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.events import Change, Emit
from cdd_agent.git.repository import CommitId, ObjectReader
from cdd_agent.git.tree_store import Snapshot
from cdd_agent.model.conversation import Model, Request, Turn
from cdd_agent.tdd.context import Context, Phase, SuiteTask, WorkItem
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.verdict import is_or_contains
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.work.state import StepExecution
from pytest_tdd_agent.codec import ReportError, load
from pytest_tdd_agent.comparison import find_unstable, strip_parameters
from pytest_tdd_agent.report import SuiteReport, Verdict, list_failing


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The state before a phase; it stays the same for all attempts."""

    snapshot: Snapshot
    """The work tree."""
    tip: CommitId
    """The commit on which the phase works."""
    report_path: str
    """Relative to the user's work tree."""
    results: "BaselineResults" = field(compare=False)

    @property
    def report(self) -> SuiteReport:
        """The test results; in GREEN including tests that RED hides: see ``add_hidden_tests``.

        The tests run when they are first asked for, unless that is done meanwhile: see ``BaselineResults``. Raises
        ``EnvironmentMissing`` if the tests cannot run, or if there are none and the phase adds none, and
        ``TargetsLeftOut``.
        """
        return self.results.get()


@dataclass(kw_only=True)
class BaselineResults:
    """The test results of a baseline. The tests may run while the model makes its first turn."""

    context: Context
    snapshot: Snapshot
    path: Path
    complete: Callable[[SuiteReport], SuiteReport]
    """Checks the report, and adds what it lacks."""
    _task: SuiteTask | None = None
    _report: SuiteReport | None = None

    def get(self) -> SuiteReport:
        """Return the report that there is, or of a run on the files as they were before the phase."""
        if self._report is None:
            self._report = self.complete(self._load_or_run())
        return self._report

    @contextmanager
    def run_meanwhile(self) -> Iterator[None]:
        """Run the tests during the block, unless there is a report."""
        if self._report is not None or self._has_report():
            yield
            return
        self._task = self._plan()
        with self._task.run_meanwhile():
            yield
        self.get()

    def _has_report(self) -> bool:
        try:
            load(self.path)
        except ReportError:
            return False
        return True

    def _plan(self) -> SuiteTask:
        context = self.context
        purpose = f"{name_scope(context.policy.gate_runs)} as a baseline"
        # cdd itself has made the commits since the last gate.
        scope = context.policy.gate_runs
        return SuiteTask(context=context, purpose=purpose, keep=self.path, targets=scope, spans_commits=True)

    def _load_or_run(self) -> SuiteReport:
        context = self.context
        if self._has_report() and self._task is None:
            return load(self.path)
        if self._task is not None:
            return context.require_report(context.finish_for_gate(self._task))
        present = context.snapshots.take_unsaved()
        context.snapshots.restore(self.snapshot)
        try:
            return context.require_report(context.finish_for_gate(self._plan()))
        finally:
            context.snapshots.restore(present)


class PatientModel:
    """A model during whose first turn the tests of the baseline run, before its calls are carried out."""

    def __init__(self, inner: Model, results: BaselineResults) -> None:
        """Does nothing before the first request."""
        self.name = inner.name
        self._inner = inner
        self._results = results

    def check(self) -> None:
        """Check the inner model."""
        self._inner.check()

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """Return the model's turn when the tests have ended, too; an error of one of both ends the other."""
        with self._results.run_meanwhile():
            return self._inner.reply(request, emit=emit)


class TargetsLeftOut(UsageError):
    """A run of all tests does not contain the tests to fix."""


def take_baseline(item: WorkItem, phase: Phase, *, step: StepExecution, tip: CommitId, context: Context) -> Baseline:
    """Return the baseline of ``phase``: the existing one after an interruption, else a new one."""
    recovery = StepRecovery(item.ticket, step, context=context)
    ref = recovery.baseline_ref(phase)
    snapshot = context.snapshots.find(ref) or context.snapshots.take(ref, message=f"before {phase}")
    root = context.records.folder
    landed = [a.report for a in step.attempts if a.phase in step.commits and a.is_open and a.report]
    path = root / landed[-1] if landed else recovery.report_path("baseline")

    def complete(report: SuiteReport) -> SuiteReport:
        if phase == "green" and not is_fixing_tests(item):
            with suppress(ReportError):
                report = add_hidden_tests(report, first=load(recovery.report_path("baseline")))
        elif phase == "green":
            _require_targets(item, report, context=context)
        if phase in ("green", "refactor"):
            _require_tests(item, report, context=context)
        return report

    results = BaselineResults(context=context, snapshot=snapshot, path=path, complete=complete)
    baseline = Baseline(snapshot=snapshot, tip=tip, report_path=str(path.relative_to(root)), results=results)
    if phase == "green":  # whose first request has the failures
        results.get()
    return baseline


def _require_tests(item: WorkItem, report: SuiteReport, *, context: Context) -> None:
    if not report.structured or report.tests or report.collect_errors:
        return
    conventions = context.suite.conventions
    only = " --collect-only" if conventions.framework == "pytest" else ""
    raise EnvironmentMissing(
        f"No tests found: {conventions.framework} found none in {context.project} (by default "
        f"{conventions.discovery}). Step {item.number} is of kind {item.kind}, so the gate needs a test that shows "
        "that nothing broke.",
        hint=f"write and commit one test (`{context.suite.command}{only}` lists the tests), or change the kind of "
        "the step to feature",
    )


def _require_targets(item: WorkItem, report: SuiteReport, *, context: Context) -> None:
    found = [case.nodeid for case in report.tests] + [error.nodeid for error in report.collect_errors]
    for test in item.tests:
        if not any(is_or_contains(test, each) or is_or_contains(each, test) for each in found):
            conventions = context.suite.conventions
            happened = f"{test} fails, but a run of all tests (`{context.suite.command}`) leaves it out, so the gate "
            raise TargetsLeftOut(
                f"{happened}would not see it. By default {conventions.discovery}.",
                hint="rename its file, or add it to `python_files` or `testpaths` in pytest's configuration; or judge "
                "by the files of the targets with green.full_suite_on_completion: false",
            )


def is_fixing_tests(item: WorkItem) -> bool:
    """Return whether the item is to make existing failing tests pass, without a RED."""
    return item.phases[0] == "green" and item.kind not in ("docs", "chore")


def name_scope(files: tuple[str, ...]) -> str:
    """Return the name of a test run of ``files``; empty: all tests."""
    return "the tests of the targets' files" if files else "all tests"


def leave_out(report: SuiteReport, nodeids: Collection[str]) -> SuiteReport:
    """Return the report without some tests, or files that could not be collected."""
    return replace(
        report,
        tests=tuple(case for case in report.tests if case.nodeid not in nodeids),
        collect_errors=tuple(error for error in report.collect_errors if error.nodeid not in nodeids),
    )


def leave_out_files(report: SuiteReport, files: Collection[str]) -> SuiteReport:
    """Return the report without the tests of some files."""
    nodeids = (*(case.nodeid for case in report.tests), *(error.nodeid for error in report.collect_errors))
    return leave_out(report, {nodeid for nodeid in nodeids if nodeid.partition("::")[0] in files})


def has_committed_test(test: str, tree: str, *, objects: ObjectReader, folder: str) -> bool:
    """Return whether a tree or commit has the file of a test, and the test's name in it.

    ``folder`` is the project's in the work tree, with a slash at the end; empty for the top.
    """
    file, _, name = strip_parameters(test).partition("::")
    entry = objects.find_entry(tree, f"{folder}{file}")
    if entry is None:
        return False
    word = re.escape(name.rpartition("::")[2])
    return re.search(rf"(?<!\w){word}(?!\w)", objects.require(entry.id).text) is not None


def list_added_tests(
    item: WorkItem, changes: Iterable[Change], *, before: SuiteReport, context: Context
) -> tuple[str, ...]:
    """Return the test files that RED added, relative to the project, if it did nothing else.

    The results of the other tests are known then, from ``before``, and GREEN runs all tests. A run of all tests
    contains these files: they lie beside files with tests and are named like them, but like no other test file.
    """
    suite, scope = context.suite, context.policy.gate_runs
    if (
        not isinstance(suite, PytestSuite)
        or suite.selects
        or scope
        or not before.complete
        or "green" not in item.phases
    ):
        return ()
    inside = context.to_repository_path("")
    known = {PurePosixPath(case.file) for case in before.tests}
    kinds, names = set(map(_find_kind, known)), {path.name for path in known}
    found = []
    for change in changes:
        path = PurePosixPath(change.path.removeprefix(inside))
        is_added = change.kind == "created" and change.path.startswith(inside)
        if not is_added or _find_kind(path) not in kinds or path.name in names:
            return ()
        found.append(str(path))
    return tuple(found)


def _find_kind(path: PurePosixPath) -> tuple[PurePosixPath, bool, bool] | None:
    """Return the folder of a test file, and which of the usual names it has; None if it has none of them."""
    is_first, is_last = path.name.startswith("test_"), path.name.endswith("_test.py")
    return (path.parent, is_first, is_last) if path.suffix == ".py" and (is_first or is_last) else None


def add_hidden_tests(red: SuiteReport, *, first: SuiteReport) -> SuiteReport:
    """Return RED's report as the baseline of GREEN.

    A test file that RED made impossible to import hides its other tests, so they are added with their results from
    ``first``, the report before the step. The tests that failed there are noted as old failures, which GREEN need not
    fix.
    """
    present = {case.nodeid for case in red.tests}
    hiding = tuple(
        error.nodeid.removesuffix("__init__.py") if error.nodeid.endswith("/__init__.py") else f"{error.nodeid}::"
        for error in red.collect_errors
    )
    hidden = tuple(case for case in first.tests if case.nodeid not in present and case.nodeid.startswith(hiding))
    opened = Verdict(phase="red", open=True)
    unstable = find_unstable(red, first)
    return replace(red, tests=(*red.tests, *hidden), old_failures=list_failing(first), gate=opened, unstable=unstable)
