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

from cdd_agent.evidence import mutation
from cdd_agent.evidence.canaries import describe_failure, find_misreport, plant, remove
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
from cdd_agent.evidence.mutation import Mutant, Survival, TimedRuns, TimeUp, report_unverified
from cdd_agent.evidence.outside import Outside, check_origins, compare_outside
from cdd_agent.evidence.readable import check_request
from cdd_agent.evidence.suspicious import find_suspicious_lines, judge_suspicious_lines
from cdd_agent.git.runner import GitError
from cdd_agent.testrun.foreign import describe_newer
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.untrusted.python_source import PYTHON
from cdd_agent.work.finding import Check
from pytest_tdd_agent.gate import strip_parameters
from pytest_tdd_agent.report import Clause, SuiteReport, list_failing


def confirm(request: CheckRequest, *, runs: TimedRuns, trees: ComparedTrees | None = None) -> Findings:
    """Return the reasons to refuse the change, and the checks that could not be done.

    Tests run only if the code looks honest. Work tree, index and history stay unchanged. If nothing is open, the first
    notice says what the runs have confirmed. Canaries and altered code need Python; every language gets the clean copy.
    With ``trees``, a notice tells what else the change changes.
    """
    findings = check_request(request, runs=runs)
    findings = told = (
        findings if findings.reasons else findings + judge_suspicious_lines(find_suspicious_lines(request))
    )
    if findings.reasons or not request.targets or not runs.limit_s:
        return findings
    experiments = _Experiments(request=request, runs=runs, trees=trees)
    reproduced, passes = experiments.reproduce()
    findings += reproduced
    compared, changes, is_python = Findings(), Findings(), runs.suite.conventions.is_python
    if passes and not findings.reasons and is_python:
        chosen = [experiments.alter_expectations]
        # Altering a copy that is not loaded shows nothing.
        is_loaded = not any(notice.case == "loaded_elsewhere" for notice in reproduced.notices)
        chosen += [experiments.alter_code, experiments.call_outside] if is_loaded else []
        for found in runs.run_side_by_side(*chosen):
            findings, compared, changes = findings + found.findings, compared + found.compared, changes + found.changes
            if findings.reasons:
                break
    if findings == told and (runs.noticed if is_python else runs.spent.count):
        case = "passes_in_copy" if runs.noticed else "passes_in_copy_unaltered"
        where = runs.noticed.where if runs.noticed else ""
        places = (where,) if isinstance(where, str) and where else ()
        findings = runs.confirm("clean_copy", case, places=places, altered=where) + compared + findings
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
            return report_unverified("clean_copy", error), False

    def alter_expectations(self) -> Outside:
        """Run the targets with other expected values."""
        return self._try(
            lambda copy: Outside(findings=check_expectations(self.request, copy=copy, runs=self.runs)),
            check="expectations",
        )

    def alter_code(self) -> Outside:
        """Run the targets on altered code."""
        return self._try(lambda copy: Outside(findings=self._check(copy).alter_code()), check="mutants")

    def call_outside(self) -> Outside:
        """Make the calls of the targets in a plain process, and in the code before."""
        return self._try(
            lambda copy: compare_outside(self.request, copy=copy, runs=self.runs, trees=self.trees), check="outside"
        )

    def _try(self, experiment: Callable[[Suite], Outside], *, check: Check) -> Outside:
        try:
            with self._copy() as copy:
                return experiment(copy)
        except (TimeUp, GitError, OSError) as error:
            return Outside(findings=report_unverified(check, error))

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
            case = "linked_tests_fail" if has_failed else "linked_tests"
            return note("canary", case, outcome="noted"), not has_failed
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
            newer, own = describe_newer(self.runs.suite), f"{sys.version_info[0]}.{sys.version_info[1]}"
            skipped = note("mutants", "not_altered", files=mutants.foreign, newer=newer, own=own)
            return skipped + self._try_mutants(mutants, changes) if mutants.chosen else skipped
        if not mutants.chosen:
            return note("mutants", "nothing_to_alter", outcome="noted")
        return self._try_mutants(mutants, changes)

    def _try_mutants(self, mutants: mutation.Mutants, changes: Sequence[ProductChange]) -> Findings:
        altered = [mutant for mutant in mutants.chosen if not mutant.functions]
        raising = [mutant for mutant in mutants.chosen if mutant.functions]
        first = self._try(altered)
        second = Survival() if first.noticed else self._try(raising)
        if noticed := first.noticed or second.noticed:
            self.runs.noticed = noticed
            if not (second.noticed and first.all_ended):
                is_one = sum(len(mutant.functions) for mutant in raising) <= 1
                return Findings() if is_one else self._check_each_function(changes)
            # Not a refusal: the change may be about what is written or called, or about not raising.
            places = tuple(mutant.where for mutant in altered if isinstance(mutant.where, str))
            tried = tuple(mutant.what for mutant in altered)
            return note("mutants", "results_do_not_count", outcome="review", places=places, tried=tried)
        all_ended = all(outcome.all_ended for outcome, part in ((first, altered), (second, raising)) if part)
        doubt = self._find_doubt(mutants) if all_ended else "did_not_end"
        if doubt is not None:
            return note("mutants", "survival_proves_nothing", outcome="noted", why=Clause(doubt))
        return refuse("unproven_change", tried=tuple(mutant.what for mutant in mutants.chosen))

    @property
    def _is_python(self) -> bool:
        return self.copy.conventions.is_python

    def _select_tests(self) -> tuple[str, ...]:
        """Return the tests to run for the targets. pytest gets functions, because parameters may change."""
        targets = self.request.targets
        return list_test_functions(targets) if self._is_python else targets

    def _find_failing(self, report: SuiteReport) -> tuple[str, ...]:
        return find_not_passing(self.request.targets, report)

    def _explain_misreport(self, misreport: Clause) -> Findings:
        if not self._do_canaries_work():
            return note("canary", "no_canaries", outcome="noted", misreport=misreport)
        return refuse("canary_failed", target=self.request.targets[0], misreport=misreport)

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
                    return note("plain_run", "failed_once", outcome="noted")
                return self._refuse_visibility(hidden.report)
        if visible.report is not None and self._are_renamed(visible.report):
            return note("plain_run", "renamed")
        if not self._do_canaries_work():
            return note("plain_run", "no_plain_run", problem=visible.problem or Clause("ends_with_error"))
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
            seen = Clause("plain_without_results", {"problem": plain.problem or ""})
        elif failing:
            seen = Clause("plain_fails", {"test": failing, "failure": _describe_failure(plain.report, failing)})
        else:
            seen = Clause("plain_ends_otherwise", {"status": plain.report.exit_status})
        return refuse("report_differs", nodeid=failing or None, target=self.request.targets[0], seen=seen)

    def _refuse_visibility(self, hidden: SuiteReport) -> Findings:
        failing = next(iter(self._find_failing(hidden)), self.request.targets[0])
        failure = _describe_failure(hidden, failing)
        return refuse("only_under_test", "sees_pytest", nodeid=failing, test=failing, failure=failure)

    def _explain_failure(self) -> Findings:
        """Refuse the change if only targets fail in the copy. Otherwise the copy lacks something the tests need."""
        run = self.runs.run(self.copy, "all tests in a clean copy")
        if run.report is None and not (self._is_python and self._do_canaries_work()):
            return note("clean_copy", "no_run_in_copy", outcome="noted", problem=run.problem or "")
        failing = self.request.targets if run.report is None else self._find_failing(run.report)
        if run.report is not None:
            passed = (case.nodeid for case in self.request.baseline.tests if case.outcome == "passed")
            lost = find_not_passing([nodeid for nodeid in passed if nodeid not in self.request.targets], run.report)
            if lost:
                return note("clean_copy", "others_fail_in_copy", outcome="noted", count=len(lost), first=lost[0])
        if not failing:
            return note("clean_copy", "failed_once_in_copy", outcome="noted")
        failing = tuple(target for target in failing if (self.copy.root / target.partition("::")[0]).exists())
        if not failing:
            return note("clean_copy", "untracked_tests", outcome="noted")
        if (need := self._try_ignored_files()).notices:
            return need
        why = run.problem or "" if run.report is None else _describe_failure(run.report, failing[0])
        return refuse("not_reproduced", nodeid=failing[0], test=failing[0], failure=why)

    def _try_ignored_files(self) -> Findings:
        """Return that the targets need ignored files, or may need them."""
        copied = copy_ignored_files(self.runs.repository, self.runs.suite, copy=self.copy.root)
        if copied is None:
            return note("clean_copy", "many_ignored_files", outcome="noted")
        if not copied:
            return Findings()
        report = self.runs.run(self.copy, "targets with ignored files", tests=self._select_tests()).report
        if report is None or self._find_failing(report):
            return Findings()
        return note("clean_copy", "needs_ignored_files", outcome="noted", files=copied)

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
        """Return why surviving mutants prove nothing, as the case of a clause, or None if they do."""
        changes = self.request.changes
        if any(not change.path.endswith(PYTHON) for change in changes):
            return "includes_other_files"
        if not mutants.is_exhaustive or not all(self._is_inside(change.path) for change in changes):
            return "not_all_altered"
        texts = dict.fromkeys((path for mutant in mutants.chosen for path in mutant.texts), "raise SystemError\n")
        # Targets that pass on files that cannot be imported use another copy, such as an installed one.
        broken = Mutant(where=Clause("changed_files"), how=Clause("not_importable"), texts=texts)
        run = mutation.run_mutant(self.copy, broken, tests=self._select_tests(), runs=self.runs)
        is_loaded = run.report is None or bool(self._find_failing(run.report))
        return None if is_loaded else "not_loaded"


def _describe_failure(report: SuiteReport, nodeid: str) -> Clause:
    function = strip_parameters(nodeid)
    tried = [case for case in report.tests if strip_parameters(case.nodeid) == function and case.failure is not None]
    failures = [case.failure for case in sorted(tried, key=lambda case: case.nodeid != nodeid)]
    failures += [error.failure for error in report.collect_errors if nodeid.startswith(error.nodeid)]
    if not failures or failures[0] is None:
        return Clause("did_not_run_there")
    return describe_failure(failures[0])
