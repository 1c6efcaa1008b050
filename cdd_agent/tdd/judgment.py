"""The judgment on one attempt: the gate's rules on a test run, the rules on files, and the checks from outside."""

import os
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.agent import tools
from cdd_agent.agent.loop import AgentRun
from cdd_agent.agent.tools import read_input
from cdd_agent.events import Notice
from cdd_agent.evidence.clean_copy import (
    DOUBTS,
    CheckRequest,
    Findings,
    find_layout,
    find_newly_passing,
    list_product_changes,
    note,
    read_product_sources,
    read_sources,
)
from cdd_agent.evidence.confirm import confirm
from cdd_agent.evidence.copies import CleanCopies
from cdd_agent.evidence.differential import ComparedTrees, refuse_changed_behavior
from cdd_agent.evidence.mutation import TimedRuns, find_changing_ids, judge_covered_tests
from cdd_agent.evidence.product_runs import find_tests_of_product
from cdd_agent.evidence.readable import check_sources
from cdd_agent.evidence.stubs import NewTests, check_new_tests
from cdd_agent.git.tree_store import Snapshot
from cdd_agent.model.conversation import ToolCall
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.tdd import verdict
from cdd_agent.tdd.baseline import leave_out_files, list_added_tests, name_scope
from cdd_agent.tdd.context import Brief, Brought, SuiteTask
from cdd_agent.tdd.file_check import FileCheck, Work
from cdd_agent.tdd.phase_task import PhaseTask, is_refuted
from cdd_agent.tdd.step import load_report
from cdd_agent.testrun.suite import SuiteRun, save_report
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.text import format_line
from cdd_agent.work.finding import Finding
from cdd_agent.work.outcome import Closed, Covered, Open, Outcome
from cdd_agent.work.state import AttemptRecord
from cdd_agent.work.wording import explain
from pytest_tdd_agent.codec import dump
from pytest_tdd_agent.comparison import find_unstable, strip_parameters
from pytest_tdd_agent.report import FAILING, RESCUED, Reason, SuiteReport, Verdict, list_failing, list_rescued

MAX_ANSWER_CHARACTERS = 20_000
_EXAMPLES_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """The judgment of an attempt, and the results on which it is based."""

    verdict: Verdict
    report: SuiteReport | None
    snapshot: Snapshot
    """The files without the forbidden changes."""
    evidence: str = ""
    outcome: Outcome | None = None
    """Of RED, if it is known without its report."""


class Judge:
    """Judges the work of one attempt."""

    def __init__(
        self,
        task: PhaseTask,
        *,
        brief: Brief,
        copies: CleanCopies | None,
        brought: Brought | None = None,
        claim: str = "",
    ) -> None:
        """Does nothing yet. ``brought``: the step was worked out ahead. ``claim``: why nothing has to change."""
        self.task = task
        self.evidence: list[Finding] = []
        self.reused = ""
        """From which run the gate's report is, if it is an earlier one."""
        self.rerun: SuiteReport | None = None
        """The results of the failed tests in a second run on the same files, if there was one."""
        self._brief = brief
        self._files = FileCheck(task=task)
        self._brought = brought
        self._claim = claim
        tree, limit_s = task.context.workplace.tree, task.context.policy.evidence_timeout_s
        suite, emit = task.context.suite, task.context.emit
        self._runs = TimedRuns(repository=tree, suite=suite, limit_s=limit_s, emit=emit, copies=copies)

    def judge(self, run: AgentRun, work: Work) -> Judgment:
        """Judge the files that the agent left, or why it stopped, or in PLAN its answer."""
        if run.end in ("out_of_turns", "out_of_calls", "out_of_tokens"):
            parts = {"turns": run.turns, "tool_calls": run.calls}
            self._report(Finding(check="run", outcome="noted", case="ran_out", parts=parts))
        if run.ended_by is not None and run.ended_by.name == tools.BLOCKED_TOOL:
            blocked = self._judge_blocked(run.ended_by, work)
            if blocked is not None:
                return self._require_yes(blocked)
        if self._brief.judge is not None:
            return self._judge_answer(run.text, work=work)
        judgment = self.judge_tests(work, report_path=self.task.report_path)
        is_accepted = judgment.verdict.open or isinstance(self.find_outcome(judgment), Covered)
        if self._brief.check is not None and judgment.report is not None and is_accepted:
            reasons = self._brief.check(judgment.report, self.task.baseline.report)
            judgment = replace(judgment, verdict=verdict.add_reasons(judgment.verdict, reasons))
        return judgment

    def _require_yes(self, judgment: Judgment) -> Judgment:
        judged, snapshot = self._files.require_yes(judgment.verdict, judgment.snapshot)
        return replace(judgment, verdict=judged, snapshot=snapshot)

    def find_outcome(self, judgment: Judgment) -> Outcome:
        """Return the outcome of the attempt."""
        if judgment.outcome is not None:
            return judgment.outcome
        if self.task.phase == "red":
            return self._classify_red(judgment.verdict, judgment.report)
        return Open() if judgment.verdict.open else Closed()

    def _judge_blocked(self, call: ToolCall, work: Work) -> Judgment | None:
        """Judge an attempt whose agent stopped. None: no example is left that refutes it, so its files are judged."""
        blocked = read_input(call.input, tools.BlockedReport)
        message = format_line(mask(blocked.reason).text)[:MAX_ANSWER_CHARACTERS]
        last = self.task.earlier[-1] if self.task.earlier else None
        if blocked.why == "test_is_wrong" and last is not None and is_refuted(last):
            findings = self._answer_doubt(message, last)
            if findings is not None:
                return self._judge_again(findings, last, work=work)
        reasons = (Reason(code=blocked.why, nodeid=None, case="text", parts={"text": message}),)
        return Judgment(
            verdict=Verdict(phase=self.task.phase, open=False, reasons=reasons),
            report=None,
            snapshot=work.snapshot,
            evidence="the agent gave up",
        )

    def _answer_doubt(self, message: str, last: AttemptRecord) -> Findings | None:
        """Return what is left of the examples that refuted the last attempt; None: nobody could decide."""
        reports = (load_report(each, root=self.task.context.records.folder) for each in reversed(self.task.earlier))
        report = next(filter(None, reports), None)
        snapshot = self.task.context.snapshots.find(last.checkpoint)
        if report is None or snapshot is None:
            return None
        return self.task.examination.answer_doubt(message, request=self._make_request(report, snapshot))

    def _judge_again(self, findings: Findings, last: AttemptRecord, *, work: Work) -> Judgment | None:
        """Judge the files of the last attempt by its results; None if they have changed since."""
        report = load_report(last, root=self.task.context.records.folder)
        snapshot = self.task.context.snapshots.find(last.checkpoint)
        is_same = snapshot and not self.task.context.snapshots.list_changes_since(snapshot, until=work.snapshot)
        if report is None or not (is_same or findings.reasons):
            return None
        self.evidence = [*last.evidence, *self.evidence]
        reasons = self._report_notices(findings)
        if is_same:
            dump(
                report,
                self.task.recovery.report_path(self.task.recovery.name_attempt(self.task.phase, self.task.number)),
            )
        return Judgment(
            verdict=Verdict(phase=self.task.phase, open=not reasons, reasons=reasons),
            report=report if is_same else None,
            snapshot=work.snapshot,
            evidence="the results of the last attempt: the files have not changed" if is_same else "the agent gave up",
        )

    def _judge_answer(self, answer: str, *, work: Work) -> Judgment:
        """Judge PLAN, which no test can judge."""
        assert self._brief.judge is not None
        # Restored first: the brief judges the answer together with the files.
        forbidden, snapshot = self._files.restore_forbidden(work)
        reasons = tuple(self._brief.judge(answer))
        changed = ", ".join(change.path for change in work.changes) or "no file"
        return Judgment(
            verdict=verdict.add_reasons(
                Verdict(phase=self.task.phase, open=not reasons, reasons=reasons),
                (*forbidden, *self._report_notices(self._files.find_copied_values(snapshot))),
            ),
            report=None,
            snapshot=snapshot,
            evidence=f"the answer, and {changed} changed",
        )

    def judge_tests(self, work: Work, *, report_path: Path) -> Judgment:
        """Run the tests, apply the gate's rules, restore forbidden changes, and check the result from outside."""
        with closing(self._runs):
            if not work.changes:
                return self._judge_unchanged(work, report_path=report_path)
            return self._require_yes(self._judge_changes(work, report_path=report_path))

    def _judge_changes(self, work: Work, *, report_path: Path) -> Judgment:
        judged, report = self._run_gate(work, report_path=report_path)
        forbidden, snapshot = self._files.restore_forbidden(work)
        judged = verdict.add_reasons(
            judged, (*forbidden, *self._report_notices(self._files.find_copied_values(snapshot)))
        )
        if report is None:
            return Judgment(verdict=judged, report=None, snapshot=snapshot)
        if self._brought is not None and self._brought.evidence is not None and judged.open:
            self._adopt_evidence(self._brought)
            return Judgment(verdict=judged, report=report, snapshot=snapshot)
        if self.task.phase == "green" and judged.open and not self.task.context.policy.defers_checks:
            judged = verdict.add_reasons(judged, self._confirm_green(report, snapshot))
        if self.task.phase == "refactor" and judged.open:
            judged = verdict.add_reasons(judged, self._compare_behavior(report, snapshot))
        if self.task.phase == "red":
            judged = verdict.add_reasons(judged, self._check_tests_are_readable(work, snapshot))
            judged = self._accept_product_failures(judged, report, snapshot=snapshot)
            sources = self._read_uncollected(report, snapshot)
            judged = verdict.add_reasons(judged, verdict.find_absent_tests(self.task.item, sources=sources))
            if self.task.context.policy.single_test:
                extra = verdict.find_extra_tests(report, baseline=self.task.baseline.report, sources=sources)
                judged = verdict.add_reasons(judged, extra)
        is_valid_red = self.task.phase == "red" and isinstance(self._classify_red(judged, report), Open)
        if is_valid_red and not self.task.context.policy.defers_checks:
            judged = verdict.add_reasons(judged, self._find_vacuous_tests(report, snapshot))
        return Judgment(verdict=judged, report=report, snapshot=snapshot)

    def _judge_unchanged(self, work: Work, *, report_path: Path) -> Judgment:
        """Judge files that are those of the baseline, by its report. The agent may say that nothing has to change."""
        item, phase, report = self.task.item, self.task.phase, self.task.baseline.report
        judged = None
        is_clean_up = phase == "refactor" and item.kind != "refactor"  # it needs no reason to change nothing
        if self._claim and not is_clean_up and not self.task.step.iterates:  # a reviewer wants a change
            rules = self.task.context.suite.conventions
            if phase == "red":
                return self._judge_existing_tests(work, report_path=report_path)
            judged = verdict.judge_run(item, phase, report=report, baseline=report, conventions=rules)
        result = verdict.judge_no_change(item, phase, judged=judged)
        if judged is None or not result.open:
            return Judgment(verdict=result, report=None, snapshot=work.snapshot)
        if item.tests:
            found = note("no_change", "unchanged_tests_pass", outcome="noted", claim=self._claim)
        else:
            found = note("no_change", "unchanged_untested", claim=self._claim)
        self._report_notices(found)
        dump(report, report_path)
        return Judgment(verdict=result, report=report, snapshot=work.snapshot)

    def _judge_existing_tests(self, work: Work, *, report_path: Path) -> Judgment:
        """Judge a RED without a change: the tests that the step names must exist, pass, and notice altered code."""
        item, report = self.task.item, self.task.baseline.report
        tests = verdict.find_existing_tests(item, report)
        why = "tests_not_all_there"
        if tests:
            found = judge_covered_tests(tests, item.sources, tree=work.snapshot.commit, runs=self._runs)
            why = "tests_pass_altered" if found.reasons else ""
        if why or self.task.context.policy.accepts_covered:
            reason = Reason(code="red", nodeid=None, case=why, parts={"tests": tests})
            refused = Verdict(phase="red", open=False, reasons=(reason,))
            result = verdict.judge_no_change(item, "red", judged=refused if why else None)
            return Judgment(verdict=result, report=None, snapshot=work.snapshot)
        rules = self.task.context.suite.conventions
        judged = verdict.judge_run(item, "red", report=report, baseline=report, conventions=rules)
        if found.notices:
            found = note("no_change", "unchanged_not_altered", claim=self._claim, tests=tests)
        else:
            found = note("no_change", "unchanged_existing", outcome="noted", claim=self._claim, tests=tests)
        self._report_notices(found)
        dump(report, report_path)
        return Judgment(verdict=judged, report=report, snapshot=work.snapshot, outcome=Covered("existing"))

    def _adopt_evidence(self, brought: Brought) -> None:
        """Take over what the checks found where the step was worked out; here only the tests run."""
        self.evidence += brought.evidence or ()
        self.evidence.append(Finding(check="run", outcome="noted", case="worked_out_ahead"))
        if brought.examples is not None:
            with suppress(OSError):
                path = self.task.recovery.examples_path
                write_atomic(path, read_ordinary(brought.examples, limit_bytes=_EXAMPLES_BYTES))

    def _run_gate(self, work: Work, *, report_path: Path) -> tuple[Verdict, SuiteReport | None]:
        context, item, before = self.task.context, self.task.item, self.task.baseline.report
        if self.task.phase == "green" and context.policy.runs_targets_only:
            return self._run_targets_only(work, keep=report_path)
        nodeids = (*(case.nodeid for case in before.tests), *(error.nodeid for error in before.collect_errors))
        has_others = not all(verdict.has_test(item, nodeid) for nodeid in nodeids)
        if self.task.phase == "green" and item.tests and context.policy.targets_first and has_others:
            run = context.run_targets("the targets", targets=item.tests, keep=report_path, before=work.snapshot)
            if run.report is not None:
                before = self._mark_unstable_tests(run.report)
                judged = verdict.judge_targets(item, self.task.phase, report=run.report, baseline=before)
                if not judged.open:
                    return judged, run.report
        added = list_added_tests(item, work.changes, before=before, context=context) if self.task.phase == "red" else ()
        if added and context.knows_all_tests():  # from RunTests
            added = ()
        judged, report = self._run_all(work, keep=report_path, files=added, scope="the added tests" if added else "")
        if added and isinstance(self._classify_red(judged, report), Covered):  # no GREEN would run the others
            return self._run_all(work, keep=report_path)
        return judged, report

    def _run_targets_only(self, work: Work, *, keep: Path) -> tuple[Verdict, SuiteReport | None]:
        """Run and judge the files of the item's tests, and those that the change can break; the others are known."""
        affected = self._brief.list_affected() if self._brief.list_affected is not None else ()
        named = (target.partition("::")[0] for target in self.task.item.tests)
        if files := tuple(dict.fromkeys((*named, *affected))):
            return self._run_all(work, keep=keep, files=files, scope=name_scope(files))
        report = self.task.baseline.report
        if report.tests:
            known = SuiteRun(report=report, output="", duration_s=0.0)
            self.task.context.replace_results(report, known, keep=keep)
        else:  # what could not be collected can be now
            save_report(report, keep)
        return self._judge_report(report, work), report

    def _run_all(
        self, work: Work, *, keep: Path, files: tuple[str, ...] = (), scope: str = ""
    ) -> tuple[Verdict, SuiteReport | None]:
        """Run and judge all tests; with ``files``, those alone, named ``scope``, and the others as in the baseline."""
        context = self.task.context
        purpose = f"{scope or name_scope(context.policy.gate_runs)} for the gate"
        others = leave_out_files(self.task.baseline.report, files) if files else None
        run = context.run_for_gate(purpose, keep=keep, before=work.snapshot, added=files, others=others)
        self.reused = run.reused
        if run.reused:
            self.evidence.append(Finding(check="run", outcome="noted", case="reused", parts={"run": run.reused}))
        if run.report is None:
            return verdict.judge_incomplete_run(self.task.phase, run), None
        judged, report = self._judge_report(run.report, work), run.report
        if files and context.policy.runs_targets_only:
            context.replace_results(report, run, keep=keep)
        if not judged.open and not files and (again := self._run_failures_again(report, work)) is not None:
            context.replace_results(again, run, keep=keep)
            judged, report = self._judge_report(again, work), again
        return judged, report

    def _judge_report(self, report: SuiteReport, work: Work) -> Verdict:
        context, item, phase = self.task.context, self.task.item, self.task.phase
        before = self._mark_unstable_tests(report)
        if self.task.step.iterates and phase == "red":
            item = verdict.adapt_to_review(item, report=report, old=list_failing(self.task.baseline.report))
        if self._brief.find_waiting is not None:
            rules, waiting = context.suite.conventions, self._brief.find_waiting(report)
            return verdict.judge_apart_from(waiting, item, report=report, baseline=before, conventions=rules)
        changed = self._find_changed_tests(work) if phase == "red" else ()
        judged = verdict.judge_run(
            item, phase, report=report, baseline=before, changed=changed, conventions=context.suite.conventions
        )
        if phase == "red" and context.policy.expects_pass:
            judged = verdict.require_pass(judged, report=report, baseline=before)
        return judged

    def _run_failures_again(self, report: SuiteReport, work: Work) -> SuiteReport | None:
        """Run the failed tests again; return the results if all of them pass now."""
        policy, before = self.task.context.policy, self.task.baseline.report
        passed = {case.nodeid for case in before.tests if case.outcome == "passed"}
        is_to_pass = self.task.phase != "red" or policy.expects_pass
        # Those that passed in a second try of the same process would be refused as targets.
        doubtful = {*list_failing(report), *list_rescued(report)}.difference(before.old_failures)
        failed = [case for case in report.tests if case.nodeid in doubtful and (is_to_pass or case.nodeid in passed)]
        # A test without end would need the same time again, and stops the run.
        is_endless = any(case.failure is not None and case.failure.kind == "timeout" for case in failed)
        if not (policy.reruns_failures and failed) or is_endless:
            return None
        names = tuple(case.nodeid for case in failed)
        run = SuiteTask(
            context=self.task.context, purpose="failed tests again", targets=names, before=work.snapshot, is_anew=True
        ).run()
        again = self.rerun = run.report
        if again is None or again.problem is not None or not again.complete:
            return None
        rescued = list_rescued(again)
        passing = {case.nodeid: case for case in again.tests if case.outcome == "passed" and case.nodeid not in rescued}
        if not passing.keys() >= {*names}:
            return None
        self._report(Finding(check="run", outcome="noted", case="flaky_tests", parts={"tests": names}))
        tests = tuple(passing.get(case.nodeid, case) for case in report.tests)
        signs = tuple(sign for sign in report.signs if sign.code != RESCUED or sign.nodeid not in passing)
        merged = replace(report, tests=tests, signs=signs)
        return merged if list_failing(merged) else replace(merged, exit_status=0)

    def _find_changed_tests(self, work: Work) -> tuple[str, ...]:
        """Return the existing tests whose text RED changed."""
        repository = self.task.context.workplace.tree
        project = find_layout(repository, self.task.context.suite).project
        modified = [change.path for change in work.changes if change.kind == "modified" and change.path.endswith(".py")]
        paths = [os.path.relpath(path, project or ".") for path in modified]
        trees = (self.task.baseline.snapshot.commit, work.snapshot.commit)
        before, after = (read_sources(repository, project=project, tree=tree, paths=paths) for tree in trees)
        return verdict.find_changed_tests(before, after)

    def _mark_unstable_tests(self, report: SuiteReport) -> SuiteReport:
        """Return the baseline of the gate. In doubt, the targets run again as they were to see if node ids change."""
        before = self.task.baseline.report
        doubtful = set(find_unstable(report, before)).difference(before.unstable)
        failed = (case.nodeid for case in before.tests if case.outcome in FAILING)
        lost = [
            each for each in failed if strip_parameters(each) in doubtful and verdict.has_test(self.task.item, each)
        ]
        if self.task.phase != "green" or not lost:
            return before
        tree = self.task.baseline.snapshot.commit
        changing, found = find_changing_ids(lost, before=before, tree=tree, runs=self._runs)
        self._report_notices(found)
        return replace(before, unstable=(*before.unstable, *changing))

    def _classify_red(self, judged: Verdict, report: SuiteReport | None) -> Outcome:
        rules = self.task.context.suite.conventions
        return verdict.classify_red(
            self.task.item, judged, report=report, baseline=self.task.baseline.report, conventions=rules
        )

    def _accept_product_failures(self, judged: Verdict, report: SuiteReport, *, snapshot: Snapshot) -> Verdict:
        """Drop the reasons against tests whose helpers raised after the product ran: that is its behavior."""
        doubtful = verdict.find_doubtful_failures(judged, report)
        if not (doubtful and self.task.context.suite.conventions.is_python):
            return judged
        ran, found = find_tests_of_product(doubtful, tree=snapshot.commit, runs=self._runs)
        self._report_notices(found)
        reasons = tuple(reason for reason in judged.reasons if reason.nodeid not in ran)
        for nodeid in sorted(ran):
            self._report_notices(note("product_runs", "product_ran", outcome="noted", test=nodeid))
        return replace(judged, open=not reasons, reasons=reasons)

    def _read_uncollected(self, report: SuiteReport, snapshot: Snapshot) -> dict[str, str]:
        """Return the sources of the files that RED made impossible to collect; the report does not list their tests."""
        repository = self.task.context.workplace.tree
        old = {error.nodeid for error in self.task.baseline.report.collect_errors}
        files = [error.nodeid for error in report.collect_errors if error.nodeid not in old]
        project = find_layout(repository, self.task.context.suite).project
        return read_sources(repository, project=project, tree=snapshot.commit, paths=files) if files else {}

    def _check_tests_are_readable(self, work: Work, snapshot: Snapshot) -> tuple[Reason, ...]:
        """Return reasons against files that nobody can read."""
        project = find_layout(self.task.context.workplace.tree, self.task.context.suite).project
        paths = [os.path.relpath(change.path, project or ".") for change in work.changes]
        before, after = self.task.baseline.snapshot.commit, snapshot.commit
        return self._report_notices(check_sources(paths, before=before, after=after, runs=self._runs))

    def _find_vacuous_tests(self, report: SuiteReport, snapshot: Snapshot) -> tuple[Reason, ...]:
        """Return reasons against new tests that pass as soon as the missing name exists, whatever it does."""
        new = NewTests(
            report=report, baseline=self.task.baseline.report, sources=self.task.item.sources, tree=snapshot.commit
        )
        return self._report_notices(check_new_tests(new, runs=self._runs))

    def _confirm_green(self, report: SuiteReport, snapshot: Snapshot) -> tuple[Reason, ...]:
        """Return the doubts of the evidence checks, which run outside the tests' process."""
        request, runs = self._make_request(report, snapshot), self._runs
        findings = confirm(request, runs=runs, trees=self._make_trees(report, snapshot))
        reasons = self._report_notices(findings)
        if all(reason.code in DOUBTS for reason in reasons):
            is_first = not any(map(is_refuted, self.task.earlier))
            examined = self.task.examination.examine(request, found=findings, is_first=is_first, runs=runs)
            reasons = self._report_notices(examined)
        return reasons

    def _make_request(self, report: SuiteReport, snapshot: Snapshot) -> CheckRequest:
        item, context, repository = self.task.item, self.task.context, self.task.context.workplace.tree
        red, green = self.task.baseline.snapshot.commit, snapshot.commit
        layout = find_layout(repository, context.suite)
        targets = find_newly_passing(report, baseline=self.task.baseline.report)
        tests = verdict.list_test_files(item)
        return CheckRequest(
            targets=targets,
            changes=list_product_changes(repository, layout=layout, red=red, green=green, tests=tests),
            tests=read_sources(repository, project=layout.project, tree=red, paths=targets),
            stated="\n".join((item.title, item.goal, *(text for _, text in item.criteria))),
            red=red,
            green=green,
            baseline=self.task.baseline.report,
            elsewhere=lambda: read_product_sources(repository, project=layout.project, tree=red),
        )

    def _compare_behavior(self, report: SuiteReport, snapshot: Snapshot) -> tuple[Reason, ...]:
        """Return a reason against a REFACTOR that changes the result of a call."""
        trees = self._make_trees(report, snapshot)
        return self._report_notices(refuse_changed_behavior(trees, runs=self._runs))

    def _make_trees(self, report: SuiteReport, snapshot: Snapshot) -> ComparedTrees:
        repository, tests = self.task.context.workplace.tree, verdict.list_test_files(self.task.item)
        before, after = self.task.baseline.snapshot.commit, snapshot.commit
        layout = find_layout(repository, self.task.context.suite)
        changes = list_product_changes(repository, layout=layout, red=before, green=after, tests=tests)
        passed = dict.fromkeys(case.file for case in report.tests if case.outcome == "passed")
        is_green = self.task.phase == "green"
        return ComparedTrees(before=before, after=after, changes=changes, tests=tuple(passed), records_after=is_green)

    def _report(self, finding: Finding) -> None:
        """Show what was found, and keep it for the note and the review."""
        self.evidence.append(finding)
        self.task.context.emit(Notice(text=explain(finding)))

    def _report_notices(self, findings: Findings) -> tuple[Reason, ...]:
        for notice in findings.notices:
            self._report(notice)
        return findings.reasons
