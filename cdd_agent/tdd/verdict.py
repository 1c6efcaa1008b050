"""The verdict on one attempt, and the course after a closed one.

The verdict: the rules on changed files, then the gate's rules on the test run. The course: repair the attempt's files,
go back to those at the start of the phase, or stop. All functions are pure.
"""

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cdd_agent.events import Change
from cdd_agent.evidence.clean_copy import Findings, note, refuse
from cdd_agent.evidence.source import Function
from cdd_agent.tdd.context import Phase, WorkItem
from cdd_agent.tdd.kinds import FileKinds
from cdd_agent.testrun.suite import PLAIN_LAYOUT, PYTEST, Conventions, ProjectLayout, SuiteRun
from cdd_agent.untrusted import documents
from cdd_agent.untrusted.known_values import KnownValues, read_text
from cdd_agent.untrusted.paths import explain_build, explain_protection
from cdd_agent.untrusted.python_source import find_first_line, parse, split_lines
from cdd_agent.work.outcome import Closed, Covered, Open, Outcome, RedVerdict
from cdd_agent.work.wording import change_reason
from pytest_tdd_agent.comparison import is_inside, strip_parameters
from pytest_tdd_agent.failure import find_stage
from pytest_tdd_agent.gate import judge
from pytest_tdd_agent.recording.assembly import UNFINISHED
from pytest_tdd_agent.report import FAILING, Clause, Part, Reason, SuiteReport, Verdict, list_failing
from pytest_tdd_agent.wording import as_clause

_MOST_ADDED_CHARACTERS = 4_000_000
"""Of one file, which are compared with the values of ignored files."""


_CODES_OF_RED = {
    RedVerdict.TAMPER: {"tampered", "source_changed", "test_removed"},
    RedVerdict.BROKE_OTHERS: {"broke_others"},
    RedVerdict.FLAKY: {"flaky_target"},
}


def classify_red(
    item: WorkItem,
    judged: Verdict,
    *,
    report: SuiteReport | None,
    baseline: SuiteReport,
    conventions: Conventions = PYTEST,
) -> Outcome:
    """Return the outcome of an attempt at RED."""
    codes = {reason.code for reason in judged.reasons}
    for red, telling in _CODES_OF_RED.items():
        if codes & telling:
            return Closed(red)
    old = set(list_failing(baseline))
    if codes == {"already_green"} and report is not None and old.issuperset(list_failing(report)):
        return Covered()
    if not judged.open or report is None:
        return Closed(RedVerdict.INVALID)
    failures = [case.failure for case in report.tests if case.failure is not None and case.nodeid not in old]
    failures += [error.failure for error in report.collect_errors if error.nodeid not in old]
    expects = _list_expected(item, report, conventions=conventions)
    is_structural = any(find_stage(failure, expects) == "structural" for failure in failures)
    return Open(RedVerdict.VALID_MISSING_SYMBOL if is_structural else RedVerdict.VALID)


def require_pass(judged: Verdict, *, report: SuiteReport, baseline: SuiteReport) -> Verdict:
    """Return the verdict of RED on tests of code that exists: closed, with each failure, unless all of them pass."""
    known = {*(case.nodeid for case in baseline.tests), *list_failing(baseline)}
    failing = tuple(nodeid for nodeid in list_failing(report) if nodeid not in known)
    if not failing:
        return judged
    found = judge("green", report, baseline=baseline, targets=failing)
    return Verdict(phase="red", open=False, reasons=found.reasons or judged.reasons)


def find_doubtful_failures(judged: Verdict, report: SuiteReport) -> tuple[str, ...]:
    """Return the refused tests whose exception may show the product's behavior: a helper's, or the end of a program.

    A helper that runs the product raises its own exception. An experiment finds out whether the product ran.
    """
    wrong = {reason.nodeid for reason in judged.reasons if reason.code == "wrong_reason"}
    doubtful = []
    for case in report.tests:
        failure = case.failure
        if case.nodeid in wrong and failure is not None and failure.phase == "call":
            is_of_helper = failure.kind == "exception" and failure.origin != "project"
            doubtful += [case.nodeid] if is_of_helper or failure.kind == "system_exit" else []
    return tuple(doubtful)


def find_extra_tests(report: SuiteReport, *, baseline: SuiteReport, sources: Mapping[str, str]) -> tuple[Reason, ...]:
    """Return a reason if RED added more than one test; the parameters of a test do not count.

    ``sources`` are the Python files that could not be collected, because the report does not list their tests.
    """
    before = {strip_parameters(case.nodeid) for case in baseline.tests}
    found: dict[object, str] = {}
    for case in report.tests:
        name = strip_parameters(case.nodeid)
        if name not in before:
            found.setdefault((case.file, case.line) if case.line else name, name)
    uncollected = [f"{file}::{name}" for file, source in sources.items() for name in _list_tests(parse(source))]
    names = dict.fromkeys((*found.values(), *(name for name in uncollected if name not in before)))
    if len(names) < 2:
        return ()
    return (Reason(code="several_tests", nodeid=None, parts={"count": len(names), "tests": tuple(names)}),)


def find_absent_tests(item: WorkItem, *, sources: Mapping[str, str]) -> tuple[Reason, ...]:
    """Return a reason for each of the item's tests that its file does not define.

    ``sources`` are the Python files that could not be collected, because GREEN could never make such a test pass.
    """
    reasons = []
    for nodeid in item.tests:
        file, *names = strip_parameters(nodeid).split("::")
        tree = parse(sources.get(file))
        nodes = list(ast.walk(tree)) if tree is not None else []
        known = {getattr(node, field, None) for node in nodes for field in ("name", "asname", "id")}
        # A method may come from a base class, and any name from a star import.
        is_inherited = any(isinstance(node, ast.ClassDef) and node.bases for node in nodes)
        absent = not known.issuperset(names[:1] if is_inherited else names)
        if tree is not None and absent and "*" not in known:
            defined: Part = tuple(_list_tests(tree)) or Clause("none")
            reasons.append(
                Reason(code="target_missing", nodeid=nodeid, case="not_in_its_file", parts={"tests": defined})
            )
    return tuple(reasons)


def _list_tests(tree: ast.Module | ast.ClassDef | None) -> Iterator[str]:
    for node in tree.body if tree is not None else ():
        if isinstance(node, Function) and node.name.startswith("test"):
            yield node.name
        # unittest finds every subclass of TestCase, whatever its name.
        elif isinstance(node, ast.ClassDef) and (node.name.startswith("Test") or node.bases):
            yield from (f"{node.name}::{name}" for name in _list_tests(node))


def list_test_files(item: WorkItem) -> tuple[str, ...]:
    """Return the files and folders of the item's tests, relative to the project.

    A file that is also a source is left out: a module with doctests belongs to the product.
    """
    return list_files(item.tests, apart_from=item.sources)


def list_files(tests: Collection[str], *, apart_from: Collection[str] = ()) -> tuple[str, ...]:
    """Return the files and folders of ``tests`` without duplicates."""
    names = dict.fromkeys(nodeid.split("::", 1)[0].rstrip("/") for nodeid in tests)
    return tuple(name for name in names if name not in apart_from)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLocks:
    """The files that a phase may not change; all paths are relative to the work tree.

    The tools check them before a write, and the verdict afterwards.
    """

    phase: Phase
    tests: Collection[str] = ()
    """Files and folders that count as tests in addition to the layout's rules: see ``list_test_files``."""
    listed: Collection[str] = ()
    """The files that PLAN may write."""
    layout: ProjectLayout = PLAIN_LAYOUT
    kinds: FileKinds | None = None
    """The kinds of files that may land without a question; None: all."""
    only: Collection[str] | None = None
    """The only files that may be changed; None: all that no other rule locks."""

    def explain(self, path: str) -> Clause | None:
        """Return why ``path`` is locked, or None if it may be written."""
        if self.phase == "plan":
            return None if path in self.listed else Clause("plan_locks", {"listed": " and ".join(self.listed)})
        is_test = self.layout.is_test(path)
        is_test = is_test or any(path == name or path.startswith(f"{name}/") for name in self.tests)
        if self.phase == "red" and not is_test:
            return Clause("red_locks")
        if self.phase != "red" and is_test:
            is_pytest = self.layout.conventions.framework == "pytest"
            return Clause("pytest_locked" if is_pytest else "tests_locked", {"phase": self.phase.upper()})
        if self.only is not None and path not in self.only:
            return Clause("not_named", {"phase": self.phase.upper(), "named": " and ".join(self.only)})
        return None

    def find_forbidden_changes(
        self, changes: Sequence[Change], *, fixed: Mapping[str, Clause] | None = None
    ) -> dict[str, Reason]:
        """Return path -> reason for each change of a locked file; ``fixed`` is path -> why no phase may change it."""
        found = {}
        for change in changes:
            why = self.explain(change.path) or (fixed or {}).get(change.path)
            if why is None and change.kind == "created" and self.layout.shadows_tool(change.path):
                why = Clause("would_shadow_tool")
            protection = explain_protection(change.path)
            if protection is None and change.kind != "deleted" and self.layout.conventions.is_python:
                protection = explain_build(change.path)
            if why is None and protection is not None:
                why = Clause(f"protected_{protection.name.lower()}")
            if why is not None:
                code = "protected_changed" if self.phase in ("green", "refactor") else "source_changed"
                parts: dict[str, Part] = {"path": change.path, "kind": change.kind, "why": why}
                found[change.path] = Reason(code=code, nodeid=None, case="change_undone", parts=parts)
        return found


def find_copied_values(files: Mapping[str, tuple[bytes | None, bytes]], *, known: KnownValues) -> Findings:
    """Return a reason for each value of an ignored file that a change adds, and a notice for what may be one.

    ``files`` are path -> content before and after; None: the file is new. No message quotes a value.
    """
    closing, doubtful, too_large = list[Clause](), list[Clause](), list[str]()
    places: list[str] = []
    for path, (before, after) in files.items():
        added = list(_list_added_lines(read_text(before or b""), read_text(after)))
        added += [(0, path)] if before is None else []
        text = "\n".join(line for _, line in added)
        if len(text) > _MOST_ADDED_CHARACTERS:
            too_large.append(path)
        for copied in known.find(text[:_MOST_ADDED_CHARACTERS]):
            number = added[copied.line - 1][0]
            parts = {"place": f"{path}:{number}" if number else path, "source": copied.source}
            clause = Clause("line_holds_value" if number else "name_holds_value", parts)
            (closing if copied.is_long else doubtful).append(clause)
            places += [f"{path}:{number}"] if number and not copied.is_long else []
    findings = Findings()
    if closing:
        findings += refuse("value_copied", found=tuple(closing))
    if doubtful:
        findings += note("values", "short_values", outcome="review", places=tuple(places), found=tuple(doubtful))
    if too_large:
        findings += refuse("value_copied", "much_added", paths=tuple(too_large), most=f"{_MOST_ADDED_CHARACTERS:,}")
    return findings


def _list_added_lines(before: str, after: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are more often in a file than before, with their numbers."""
    old = Counter(before.split("\n"))
    for number, line in enumerate(after.split("\n"), start=1):
        old[line] -= 1
        if old[line] < 0:
            yield number, line


def judge_no_change(item: WorkItem, phase: Phase, *, judged: Verdict | None) -> Verdict:
    """Judge an attempt that changed no file; the REFACTOR after GREEN may do that.

    ``judged`` is the gate's verdict on the files as they are, if the agent says why nothing has to change; else None.
    """
    if phase == "refactor" and item.kind != "refactor":
        return Verdict(phase=phase, open=True)
    if judged is not None and judged.open:
        return judged
    reason = Reason(code="no_change", nodeid=None)
    if judged is not None:
        reason = replace(reason, case="no_change_unfit", parts={"why": as_clause(judged.reasons[0])})
    return Verdict(phase=phase, open=False, reasons=(reason,))


def find_existing_tests(item: WorkItem, report: SuiteReport) -> tuple[str, ...]:
    """Return the item's tests if all exist and pass; none if a test may lack cases, or a target is a whole file."""
    found: list[str] = []
    for test in item.tests:
        own = [case for case in report.tests if is_or_contains(test, case.nodeid)]
        # A table of cases may be there to be extended.
        is_whole = "::" in test and not any("[" in case.nodeid for case in own)
        if not own or not is_whole or any(case.outcome != "passed" for case in own):
            return ()
        found += [case.nodeid for case in own]
    return tuple(dict.fromkeys(found))


def judge_incomplete_run(phase: Phase, run: SuiteRun) -> Verdict:
    """Judge an attempt whose tests did not run to their end, or whose results cannot be trusted."""
    broken = run.broken
    code = "untrusted" if broken is not None and broken.code not in UNFINISHED else "run_incomplete"
    nodeid = broken.nodeid or None if broken is not None else None
    reason = Reason(code=code, nodeid=nodeid, case="no_report")
    if run.problem is not None:
        reason = replace(reason, case="text", parts={"text": run.problem})
    return Verdict(phase=phase, open=False, reasons=(reason,))


def judge_run(
    item: WorkItem,
    phase: Phase,
    *,
    report: SuiteReport,
    baseline: SuiteReport,
    changed: Collection[str] = (),
    conventions: Conventions = PYTEST,
) -> Verdict:
    """Judge a complete test run by the gate's rules; ``changed`` are the tests that RED changed, without parameters."""
    expects = _list_expected(item, report, conventions=conventions) if phase == "red" else ()
    targets = item.tests
    if phase == "green":
        targets = _list_targets_to_fix(item, report, baseline=baseline)
    elif changed:
        targets = _add_changed_tests(item, report, baseline=baseline, changed=changed)
    judged = judge(
        phase,
        report,
        baseline=baseline,
        targets=targets,
        expects=expects,
        accepts_unstructured=conventions.accepts_exit_status,
    )
    return add_reasons(judged, _find_odd_status(report, baseline=baseline))


def judge_apart_from(
    waiting: Collection[str], item: WorkItem, *, report: SuiteReport, baseline: SuiteReport, conventions: Conventions
) -> Verdict:
    """Judge GREEN while the tests ``waiting`` need the code of later items: they need not pass.

    Without a target that can pass, GREEN opens if it breaks nothing. Skipped tests in a file that could not be
    collected before do not close it.
    """
    targets = tuple(test for test in item.tests if test not in waiting)
    failing = list_failing(baseline)
    old = tuple(nodeid for nodeid in failing if not any(is_or_contains(target, nodeid) for target in targets))
    # Without a target the gate would take all tests for targets, and not say which of them are broken.
    named = targets or old[:1]
    judged = judge_run(
        replace(item, tests=named),
        "green",
        report=report,
        baseline=replace(baseline, old_failures=old),
        conventions=conventions,
    )
    known = {case.nodeid for case in baseline.tests}
    # In a file that can be collected now, some tests may be skipped on purpose.
    skipped = (each.nodeid for each in judged.reasons if each.code == "skipped_target" and each.nodeid not in known)
    spared = {*waiting, *skipped, *(() if targets else named)}
    reasons = tuple(each for each in judged.reasons if each.nodeid is None or each.nodeid not in spared)
    if not targets:
        reasons = tuple(each for each in reasons if each.code != "no_tests")
    return Verdict(phase="green", open=not reasons, reasons=reasons)


def _find_odd_status(report: SuiteReport, *, baseline: SuiteReport) -> tuple[Reason, ...]:
    """Return a reason if the tests of another framework failed and their command ended with 0, unlike before.

    Some tools are configured to end with 0 whatever fails; then they did so in the baseline. Results without a failure
    but with another status than 0 do not reach this function.
    """
    failing = list_failing(report)
    is_odd = report.framework != "pytest" and report.structured and not report.exit_status and bool(failing)
    if not (is_odd and baseline.exit_status and list_failing(baseline)):
        return ()
    return (Reason(code="run_incomplete", nodeid=None, case="odd_status", parts={"tests": failing}),)


def adapt_to_review(item: WorkItem, *, report: SuiteReport, old: Collection[str]) -> WorkItem:
    """Return the item of a step that runs again because of a review: its tests are those in its files that fail now.

    The reviewer may want a test that the plan does not name, or another result of one that it names. ``old`` failed
    before. Without new failures, the item stays as it is.
    """
    files = list_test_files(item)
    new = [nodeid for nodeid in list_failing(report) if nodeid not in old]
    found = tuple(nodeid for nodeid in new if any(is_or_contains(file, nodeid) for file in files))
    return replace(item, tests=found) if found else item


def find_changed_tests(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the test functions whose text, with its decorators, differs; both are file -> source."""
    found = []
    for file, source in after.items():
        old = dict(_iterate_test_texts(before.get(file, "")))
        found += [f"{file}::{name}" for name, text in _iterate_test_texts(source) if old.get(name, text) != text]
    return tuple(found)


def _iterate_test_texts(source: str) -> Iterator[tuple[str, str]]:
    lines = split_lines(source)
    pending: list[tuple[str, ast.stmt]] = [("", node) for node in getattr(parse(source), "body", ())]
    for prefix, node in pending:
        if isinstance(node, ast.ClassDef):
            pending += [(f"{prefix}{node.name}::", inner) for inner in node.body]
        elif isinstance(node, Function) and node.name.startswith("test"):
            yield f"{prefix}{node.name}", "\n".join(lines[find_first_line(node) - 1 : node.end_lineno])


def _add_changed_tests(
    item: WorkItem, report: SuiteReport, *, baseline: SuiteReport, changed: Collection[str]
) -> tuple[str, ...]:
    """Return the item's targets and, for a class, file or folder, the changed tests in it that passed and fail now.

    They replace a target that has no new test.
    """
    passed = {case.nodeid for case in baseline.tests if case.outcome == "passed"}
    known = {strip_parameters(case.nodeid) for case in baseline.tests}
    failing = [case.nodeid for case in report.tests if case.outcome in FAILING]
    broken = {strip_parameters(nodeid) for nodeid in failing if nodeid in passed}
    new = [case.nodeid for case in report.tests if strip_parameters(case.nodeid) not in known]
    targets: list[str] = []
    for target in item.tests:
        inside = [each for each in changed if each in broken and is_inside(each, target)]
        is_replaced = inside and not any(is_inside(nodeid, target) for nodeid in new)
        targets += inside if is_replaced else [target, *inside]
    return tuple(targets)


def judge_targets(item: WorkItem, phase: Phase, *, report: SuiteReport, baseline: SuiteReport) -> Verdict:
    """Judge a run of the item's tests alone."""
    tests = tuple(case for case in baseline.tests if _is_target(item, case.nodeid))
    alone = tuple(case for case in report.tests if _is_target(item, case.nodeid))
    before = replace(baseline, tests=tests, fingerprints=report.fingerprints)
    return judge_run(item, phase, report=replace(report, tests=alone), baseline=before)


def _list_targets_to_fix(item: WorkItem, report: SuiteReport, *, baseline: SuiteReport) -> tuple[str, ...]:
    """Return the item's targets, but for a file in which some tests already passed only the other tests.

    Otherwise a test that breaks in such a file would count as a target that still fails, not as broken. An item without
    targets has those that RED has added, if all their files can be imported.
    """
    passed = {case.nodeid for case in baseline.tests if case.outcome == "passed"}
    failed = {case.nodeid for case in baseline.tests if case.outcome in FAILING} - set(baseline.old_failures)
    before = {case.nodeid for case in baseline.tests}
    if not item.tests and failed and not baseline.collect_errors:
        return tuple(case.nodeid for case in baseline.tests if case.nodeid in failed)
    targets: list[str] = []
    lost = sorted(failed.difference(case.nodeid for case in report.tests))
    for target in item.tests:
        inside = [case.nodeid for case in report.tests if "::" not in target and is_inside(case.nodeid, target)]
        to_fix = [nodeid for nodeid in inside if nodeid in failed or nodeid not in before]
        to_fix += [nodeid for nodeid in lost if is_inside(nodeid, target)]
        targets += to_fix if to_fix and not passed.isdisjoint(inside) else [target]
    return tuple(targets)


def is_or_contains(target: str, nodeid: str) -> bool:
    """Return whether ``target`` is the test or contains it."""
    return nodeid == target or is_inside(nodeid, target)


def _is_target(item: WorkItem, nodeid: str) -> bool:
    return any(is_or_contains(target, nodeid) for target in item.tests)


def has_test(item: WorkItem, nodeid: str) -> bool:
    """Return whether a test, or a file that cannot be collected, is one of the item's tests or contains one."""
    return find_position(item, nodeid) < len(item.tests)


def find_position(item: WorkItem, nodeid: str) -> int:
    """Return the position of a test among the item's tests; their number if it is none of them."""
    found = (
        at for at, target in enumerate(item.tests) if is_or_contains(target, nodeid) or is_or_contains(nodeid, target)
    )
    return next(found, len(item.tests))


def _list_expected(item: WorkItem, report: SuiteReport, *, conventions: Conventions) -> tuple[str, ...]:
    """Return the names that may be missing in RED, and the exceptions that its tests may raise, for a bug any."""
    failures = [case.failure for case in report.tests if case.failure is not None and item.kind == "bug"]
    raised = (failure.exception for failure in failures if failure.origin == "project")
    files = [case.file for case in report.tests if case.failure is not None]
    files += [error.nodeid for error in report.collect_errors]
    return (*conventions.list_names(item.sources, dict.fromkeys(files)), *item.expects, *raised)


def add_reasons(verdict: Verdict, extra: tuple[Reason, ...]) -> Verdict:
    """Return ``verdict`` closed by ``extra``, whose reasons replace those with the same code."""
    if not extra:
        return verdict
    codes = {reason.code for reason in extra}
    others = tuple(reason for reason in verdict.reasons if reason.code not in codes)
    return Verdict(phase=verdict.phase, open=False, reasons=(*extra, *others))


_CHEATING_CODES = frozenset({"tampered", "suspicious_code", "canary_failed", "report_differs", "expectation_ignored"})
"""The attempt's work is not worth repairing."""

_VARYING = re.compile(
    r"(?i)0x[0-9a-f]+|(?<=object at )\S+|\d+(\.\d+)?(?= ?([mnuµ]?s|sec(ond)?s?|min(ute)?s?)\b)"
    r"|\d+([-:]\d\d){2}([.,]\d+)?|\d{10,}(\.\d+)?"
    r"|/(tmp|(private/)?var/folders)/[^\s'\"]+|\btmp[a-z0-9_]{8}\b|[0-9a-f]{8}(-?[0-9a-f]{4}){3,}"
)
"""Addresses, times, temporary names and random identifiers, which differ between runs of the same failure."""


class Course(StrEnum):
    """The start of the next attempt."""

    REPAIR = "repair"
    """From the files as the last attempt left them."""
    ROLL_BACK = "roll_back"
    """From the files as they were when the phase began."""
    STOP = "stop"
    """No further attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of a closed attempt, for comparison with others."""

    codes: frozenset[str]
    """Of the gate's reasons."""
    failing: frozenset[str]
    """Node ids."""
    symptoms: frozenset[tuple[str, ...]]
    """The failures without varying details; if no test ran, the reasons."""


def summarize_attempt(reasons: Sequence[Reason], report: SuiteReport | None) -> Trial:
    """Return the trial of an attempt with these reasons and this report."""
    failures = []
    if report is not None:
        failures = [(case.nodeid, case.failure) for case in report.tests if case.failure and case.outcome != "passed"]
        failures += [(error.nodeid, error.failure) for error in report.collect_errors]
    # Lines of the product move with every attempt, lines of the tests do not.
    at = [f"{failure.path}:{failure.line if failure.origin == 'test' else ''}" for _, failure in failures]
    symptoms = frozenset[tuple[str, ...]](
        (nodeid, failure.kind, failure.exception, place, _VARYING.sub("", failure.message))
        for (nodeid, failure), place in zip(failures, at, strict=True)
    )
    return Trial(
        codes=frozenset(reason.code for reason in reasons),
        failing=frozenset(list_failing(report)) if report is not None else frozenset(),
        symptoms=symptoms or frozenset(map(_describe_symptom, reasons)),
    )


def _describe_symptom(reason: Reason) -> tuple[str, ...]:
    lasting = change_reason(reason, lambda text: _VARYING.sub("", text))
    return (reason.code, documents.encode_json(lasting).decode("utf-8"))


def choose_course(
    trials: Sequence[Trial], *, phase: Phase, failing_before: int, max_identical_failures: int, is_strict: bool
) -> Course:
    """Return what follows the closed attempts at a phase, oldest first.

    ``failing_before`` is the number of failing tests when the phase began. If ``is_strict``, one broken test causes a
    rollback; otherwise only an increase of failing tests does.
    """
    last = trials[-1]
    alike = next((n for n, trial in enumerate(reversed(trials)) if trial.symptoms != last.symptoms), len(trials))
    if alike >= max_identical_failures:
        return Course.STOP
    # In REFACTOR the item's own tests passed before, so that one which fails is broken too.
    broken = last.codes & ({"broke_others", "target_failed"} if phase == "refactor" else {"broke_others"})
    has_broken = bool(broken) and (is_strict or len(last.failing) > failing_before)
    return Course.ROLL_BACK if alike > 1 or has_broken or last.codes & _CHEATING_CODES else Course.REPAIR
