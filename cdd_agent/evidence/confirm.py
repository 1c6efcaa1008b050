"""Decide whether to believe an open GREEN gate: check the changed code first, then run tests in a clean copy.

In the copy, the targets run between two files of canaries, in the same process. If the targets pass there too, the
other experiments run side by side: altered expectations, altered code, and calls outside of a test run.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cdd_agent.errors import format_count, join_first
from cdd_agent.events import Notice
from cdd_agent.evidence import mutation
from cdd_agent.evidence.canaries import find_misreport, plant, quote_first_line, remove
from cdd_agent.evidence.clean_copy import (
    CheckRequest,
    Findings,
    ProductChange,
    copy_ignored_files,
    find_not_passing,
    list_test_functions,
    note,
    refuse,
)
from cdd_agent.evidence.differential import ComparedTrees
from cdd_agent.evidence.expectations import check_expectations
from cdd_agent.evidence.mutation import ALL_RAISE, Mutant, Survival, TimedRuns, TimeUp, explain_unverified
from cdd_agent.evidence.outside import Outside, check_origins, compare_outside, is_unloaded
from cdd_agent.evidence.readable import check_request
from cdd_agent.evidence.signs import find_signs, judge_signs
from cdd_agent.git.runner import GitError
from cdd_agent.testrun.foreign import describe_newer
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.untrusted.python_source import PYTHON
from pytest_tdd_agent.gate import strip_parameters
from pytest_tdd_agent.report import SuiteReport, list_failing


def confirm(request: CheckRequest, *, runs: TimedRuns, trees: ComparedTrees | None = None) -> Findings:
    """Return the reasons to refuse the change, and the checks that could not be done.

    Tests run only if the code looks honest. Work tree, index and history stay unchanged. The runs end with an event
    that sums them up. Canaries and altered code need Python; every language gets the clean copy. With ``trees``, a
    notice tells what else the change changes.
    """
    findings = check_request(request, runs=runs)
    findings = told = findings if findings.reasons else findings + judge_signs(find_signs(request))
    if findings.reasons or not request.targets or not runs.limit_s:
        return findings
    experiments = _Experiments(request=request, runs=runs, trees=trees)
    reproduced, passes = experiments.reproduce()
    findings += reproduced
    compared, changes, is_python = "", Findings(), runs.suite.conventions.is_python
    if passes and not findings.reasons and is_python:
        chosen = [experiments.alter_expectations]
        # Altering a copy that is not loaded shows nothing.
        chosen += (
            [] if any(map(is_unloaded, reproduced.notices)) else [experiments.alter_code, experiments.call_outside]
        )
        for found in runs.run_side_by_side(*chosen):
            findings, compared, changes = findings + found.findings, found.compared, found.changes
            if findings.reasons:
                break
    if findings == told and (runs.noticed if is_python else runs.spent.count):
        altered = f", and fail with {runs.noticed} altered" if is_python else ""
        alike = f"; outside of a test run, {compared} had the same result" if compared else ""
        count = f"{format_count(runs.spent.count, 'run')}, " if is_python else ""
        text = f"Checked in a clean copy: the tests pass there too{altered}{alike} ({count}{runs.spent.used_s:.1f} s)."
        runs.emit(Notice(text=text))
    return findings if findings.reasons else findings + changes


@dataclass(frozen=True, kw_only=True)
class _Experiments:
    """The experiments, each in a clean copy that it has alone. One that cannot be made says so."""

    request: CheckRequest
    runs: TimedRuns
    trees: ComparedTrees | None

    def reproduce(self) -> tuple[Findings, bool]:
        """Run the targets. Return the findings, and whether the targets pass."""
        try:
            with self._copy() as copy:
                return self._check(copy).reproduce()
        except (TimeUp, GitError, OSError) as error:
            return note(explain_unverified(error)), False

    def alter_expectations(self) -> Outside:
        """Run the targets with other expected values."""
        return self._try(lambda copy: Outside(findings=check_expectations(self.request, copy=copy, runs=self.runs)))

    def alter_code(self) -> Outside:
        """Run the targets on altered code."""
        return self._try(lambda copy: Outside(findings=self._check(copy).alter_code()))

    def call_outside(self) -> Outside:
        """Make the calls of the targets in a plain process, and in the code before."""
        return self._try(lambda copy: compare_outside(self.request, copy=copy, runs=self.runs, trees=self.trees))

    def _try(self, experiment: Callable[[Suite], Outside]) -> Outside:
        try:
            with self._copy() as copy:
                return experiment(copy)
        except (TimeUp, GitError, OSError) as error:
            return Outside(findings=note(explain_unverified(error)))

    def _copy(self) -> AbstractContextManager[Suite]:
        return self.runs.copy(green=self.request.green, red=self.request.red)

    def _check(self, copy: Suite) -> "_CopyCheck":
        return _CopyCheck(request=self.request, runs=self.runs, copy=copy)


@dataclass(frozen=True, kw_only=True)
class _CopyCheck:
    request: CheckRequest
    runs: TimedRuns
    copy: Suite

    def reproduce(self) -> tuple[Findings, bool]:
        """Run the targets, in Python without cdd's plugin and between canaries; return whether they pass, too."""
        canaries = plant(self.copy.root, self.request.targets) if self._is_python else ()
        files = [canary.file for canary in canaries or ()]
        tests = (*files[:1], *self._select_tests(), *files[1:])
        run = self.runs.run(self._make_plain(), "targets in a clean copy", tests=tests)
        report = run.report
        # Later runs collect all tests and must not find the canaries.
        for canary in canaries or ():
            remove(self.copy.root, canary)
        has_failed = report is None or bool(self._find_failing(report))
        if canaries is None:
            why = "A link leads from the folder of the target tests out of the project, so cdd cannot add known tests"
            return note(f"{why}, and the targets fail in a clean copy." if has_failed else f"{why}."), not has_failed
        misreports = [find_misreport(canary, report) for canary in canaries] if report is not None else []
        if misreport := next(filter(None, misreports), None):
            return self._explain_misreport(misreport), not has_failed
        if not has_failed and (report is None or not self._ends_otherwise(report)):
            return check_origins(run.origins, self.request, copy=self.copy, runs=self.runs), True
        # Tests have run in this copy, and may have changed its files.
        with self.runs.copy(green=self.request.green, red=self.request.red) as copy:
            other = replace(self, copy=copy)
            return other._judge_difference() or other._explain_failure(), False

    def _make_plain(self, *, is_hidden: bool = True) -> Suite:
        """Return the suite of the copy without the plugin; ``is_hidden``: tests do not see that pytest runs them."""
        copy = self.copy
        return replace(copy, is_plain=True, hides_run=is_hidden) if isinstance(copy, PytestSuite) else copy

    def _ends_otherwise(self, report: SuiteReport) -> bool:
        """Return whether a plain pytest ended with an error although no test failed, and not because of the project."""
        if not (isinstance(self.copy, PytestSuite) and report.exit_status) or list_failing(report):
            return False
        known = self._run_canaries()
        return known is not None and not known.exit_status

    def alter_code(self) -> Findings:
        """Run the targets on altered versions of the changed code. At least one run must fail."""
        changes = [change for change in self.request.changes if self._is_inside(change.path)]
        mutants = mutation.build_mutants(changes)
        if mutants.foreign:
            files, newer = join_first(mutants.foreign, most=2), describe_newer(self.runs.suite)
            own = f"{sys.version_info[0]}.{sys.version_info[1]}"
            skipped = note(f"Not verified: {files} was not altered: {newer} can parse it, but not the {own} of cdd.")
            return skipped + self._try_mutants(mutants, changes) if mutants.chosen else skipped
        if not mutants.chosen:
            return note("No altered code was tried: the change has no Python code to alter.")
        return self._try_mutants(mutants, changes)

    def _try_mutants(self, mutants: mutation.Mutants, changes: Sequence[ProductChange]) -> Findings:
        altered = [mutant for mutant in mutants.chosen if mutant.how != ALL_RAISE]
        raising = [mutant for mutant in mutants.chosen if mutant.how == ALL_RAISE]
        first = self._try(altered)
        second = Survival() if first.noticed else self._try(raising)
        if noticed := first.noticed or second.noticed:
            self.runs.noticed = noticed.where
            if not (second.noticed and first.all_ended):
                is_one = sum(len(mutant.functions) for mutant in raising) <= 1
                return Findings() if is_one else self._check_each_function(changes)
            # Not a refusal: the change may be about what is written or called, or about not raising.
            return note(
                "The targets fail if the changed functions raise, but pass if their results are altered "
                f"({'; '.join(mutant.what for mutant in altered)}). Check that they assert the purpose of the change."
            )
        all_ended = all(outcome.all_ended for outcome, part in ((first, altered), (second, raising)) if part)
        doubt = self._find_doubt(mutants) if all_ended else "a run did not end"
        if doubt is not None:
            return note(f"No target failed when the changed code was altered, but that proves nothing: {doubt}.")
        tried = "; ".join(mutant.what for mutant in mutants.chosen)
        message = (
            f"The targets pass even if the changed code is altered ({tried}). Remove code that no test needs, and "
            "implement the behavior in the code that the targets call."
        )
        return refuse("unproven_change", message)

    @property
    def _is_python(self) -> bool:
        return self.copy.conventions.is_python

    def _select_tests(self) -> tuple[str, ...]:
        """Return the tests to run for the targets. pytest gets functions, because parameters may change."""
        targets = self.request.targets
        return list_test_functions(targets) if self._is_python else targets

    def _find_failing(self, report: SuiteReport) -> tuple[str, ...]:
        return find_not_passing(self.request.targets, report)

    def _explain_misreport(self, misreport: str) -> Findings:
        if not self._do_canaries_work():
            return note(f"cdd cannot add tests with a known result to this project: {misreport}.")
        message = (
            f"cdd ran two test files with known results next to {self.request.targets[0]}, and {misreport}. Without "
            "the change, the report is right. Find how the change "
            "manipulates the process that tests it, and remove that."
        )
        return refuse("canary_failed", message)

    def _do_canaries_work(self) -> bool:
        return self._run_canaries() is not None

    def _run_canaries(self) -> SuiteReport | None:
        """Return a plain run of the canaries alone, without the change; None if it is wrong about them."""
        red = self.request.red
        with self.runs.copy(green=red, red=red) as copy:
            canaries = plant(copy.root, self.request.targets)
            if canaries is None:
                return None
            files = tuple(canary.file for canary in canaries)
            plain = replace(self, copy=copy)._make_plain()
            report = self.runs.run(plain, "known tests without the change", tests=files).report
        is_right = report is not None and all(find_misreport(canary, report) is None for canary in canaries)
        return report if is_right else None

    def _judge_difference(self) -> Findings | None:
        """Return a refusal if targets that did not pass in a plain run pass with the plugin, or where they see pytest.

        Each run has a copy that nothing has run in. None: they fail everywhere.
        """
        if not isinstance(self.copy, PytestSuite):
            return None
        for _ in range(2):  # a flaky test hardly differs in the same way twice
            reported = self._run_anew(is_plain=False).report
            if reported is None or self._find_failing(reported):
                return None
            visible = self._run_anew(is_hidden=False)
            if self._passes(visible):
                hidden = self._run_anew()
                if self._passes(hidden) or hidden.report is None:
                    return note("A target failed once in a clean copy, but passed when it ran again.")
                return self._refuse_visibility(hidden.report)
        if visible.report is not None and self._are_renamed(visible.report):
            return note(
                "Not verified: the tests change their names in JUnit XML, so a plain run of pytest shows nothing."
            )
        if not self._do_canaries_work():
            return note(f"Not verified: plain pytest does not work here: {visible.problem or 'it ends with an error'}.")
        return self._refuse_report(visible)

    def _run_anew(self, *, is_plain: bool = True, is_hidden: bool = True) -> SuiteRun:
        with self.runs.copy(green=self.request.green, red=self.request.red) as copy:
            suite = replace(self, copy=copy)._make_plain(is_hidden=is_hidden) if is_plain else copy
            purpose = "targets in another clean copy" if is_plain else "targets in a clean copy, with cdd's plugin"
            return self.runs.run(suite, purpose, tests=self._select_tests())

    def _passes(self, run: SuiteRun) -> bool:
        report = run.report
        return report is not None and not self._find_failing(report) and not self._ends_otherwise(report)

    def _are_renamed(self, report: SuiteReport) -> bool:
        """Return whether targets are missing among the results, and as many other tests passed instead."""
        missing = set(self._find_failing(report)).difference(case.nodeid for case in report.tests)
        functions = list_test_functions(self.request.targets)
        others = [case for case in report.tests if strip_parameters(case.nodeid) not in functions]
        return not (report.exit_status or list_failing(report)) and 0 < len(missing) <= len(others)

    def _refuse_report(self, plain: SuiteRun) -> Findings:
        failing = next(iter(self._find_failing(plain.report)), "") if plain.report is not None else ""
        if plain.report is None:
            seen = f"a plain run of pytest gives no results: {plain.problem}"
        elif failing:
            seen = f"in a plain run of pytest {failing} does not pass: {_describe_failure(plain.report, failing)}"
        else:
            seen = f"a plain run of pytest ends with status {plain.report.exit_status} although no test fails in it"
        message = (
            f"By the report of cdd's plugin, {self.request.targets[0]} passes, but {seen}. Find how the change "
            "manipulates the process that tests it, and remove that."
        )
        return refuse("report_differs", message, nodeid=failing or None)

    def _refuse_visibility(self, hidden: SuiteReport) -> Findings:
        failing = next(iter(self._find_failing(hidden)), self.request.targets[0])
        message = (
            f"{failing} passes only where pytest's variables (PYTEST_CURRENT_TEST), log handlers and names of "
            f"temporary folders are visible: {_describe_failure(hidden, failing)}. "
            "Remove what makes the result depend on being tested."
        )
        return refuse("only_under_test", message, nodeid=failing)

    def _explain_failure(self) -> Findings:
        """Refuse the change if only targets fail in the copy. Otherwise the copy lacks something the tests need."""
        run = self.runs.run(self.copy, "all tests in a clean copy")
        if run.report is None and not (self._is_python and self._do_canaries_work()):
            return note(f"The tests cannot run in a clean copy of the tracked files: {run.problem}.")
        failing = self.request.targets if run.report is None else self._find_failing(run.report)
        if run.report is not None:
            passed = (case.nodeid for case in self.request.baseline.tests if case.outcome == "passed")
            lost = find_not_passing([nodeid for nodeid in passed if nodeid not in self.request.targets], run.report)
            if lost:
                count = f"{len(lost)} more fail there, {lost[0]} first"
                return note(f"The tests need more than a clean copy of the tracked files: {count}.")
        if not failing:
            return note("A target failed once in a clean copy, but passed when all tests ran there.")
        failing = tuple(target for target in failing if (self.copy.root / target.partition("::")[0]).exists())
        if not failing:
            return note("Git does not track the target tests, so they cannot run in a clean copy.")
        if need := self._try_ignored_files():
            return note(need)
        why = run.problem if run.report is None else _describe_failure(run.report, failing[0])
        message = (
            f"{failing[0]} passes in the work tree, but not in a clean copy with RED's tests and configuration: {why}. "
            "Make it pass with files that git tracks, without modules that git ignores."
        )
        return refuse("not_reproduced", message, nodeid=failing[0])

    def _try_ignored_files(self) -> str | None:
        copied = copy_ignored_files(self.runs.repository, self.runs.suite, copy=self.copy.root)
        if copied is None:
            return "The targets fail in a clean copy of the tracked files, and there are too many ignored files to try."
        if not copied:
            return None
        report = self.runs.run(self.copy, "targets with ignored files", tests=self._select_tests()).report
        if report is None or self._find_failing(report):
            return None
        return f"The targets need files that git ignores, some of these: {join_first(copied, most=3)}."

    def _check_each_function(self, changes: Sequence[ProductChange]) -> Findings:
        run = partial(mutation.run_mutant, self.copy, tests=self._select_tests(), runs=self.runs)
        return mutation.find_unnoticed_functions(changes, run=run, targets=self.request.targets)

    def _try(self, mutants: Sequence[Mutant]) -> Survival:
        run = partial(mutation.run_mutant, self.copy, tests=self._select_tests(), runs=self.runs)
        return mutation.try_mutants(mutants, run=run, targets=self.request.targets)

    def _is_inside(self, path: str) -> bool:
        # Writing through a link would alter a file outside the copy.
        file = self.copy.root / path
        return file.resolve() == Path(os.path.normpath(file))

    def _find_doubt(self, mutants: mutation.Mutants) -> str | None:
        """Return why surviving mutants prove nothing, or None if they do."""
        changes = self.request.changes
        if any(not change.path.endswith(PYTHON) for change in changes):
            return "the change includes files other than Python sources"
        if not mutants.is_exhaustive or not all(self._is_inside(change.path) for change in changes):
            return "not every changed line was altered"
        texts = dict.fromkeys((path for mutant in mutants.chosen for path in mutant.texts), "raise SystemError\n")
        # Targets that pass on files that cannot be imported use another copy, such as an installed one.
        broken = Mutant(where="changed files", how="cannot be imported", texts=texts)
        run = mutation.run_mutant(self.copy, broken, tests=self._select_tests(), runs=self.runs)
        is_loaded = run.report is None or bool(self._find_failing(run.report))
        return None if is_loaded else "the targets do not load the changed files, or load them from elsewhere"


def _describe_failure(report: SuiteReport, nodeid: str) -> str:
    function = strip_parameters(nodeid)
    tried = [case for case in report.tests if strip_parameters(case.nodeid) == function and case.failure is not None]
    failures = [case.failure for case in sorted(tried, key=lambda case: case.nodeid != nodeid)]
    failures += [error.failure for error in report.collect_errors if nodeid.startswith(error.nodeid)]
    if not failures or failures[0] is None:
        return "it did not run there"
    return f"{failures[0].kind}, {failures[0].exception}{quote_first_line(failures[0])}"
