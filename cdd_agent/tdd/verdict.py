"""The verdict on one attempt: first what the changes themselves say, then the gate's rules over the test run. Pure.

What an attempt at RED came to, in one word: whether its tests fail, and whether that says anything. Pure.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from cdd_agent.evidence.literals import Function, parse
from cdd_agent.git.repository import Change
from cdd_agent.tdd.context import Phase, WorkItem
from cdd_agent.testrun.suite import PLAIN, PYTEST, Conventions, Layout
from pytest_tdd_agent.comparison import function_of, lies_in
from pytest_tdd_agent.failure import stage
from pytest_tdd_agent.gate import judge
from pytest_tdd_agent.report import FAILING, Reason, SuiteReport, Verdict, failing

_TAMPER = frozenset({"tampered", "source_changed", "user_file_changed", "test_removed"})
_BROKE = frozenset({"broke_others"})
_FLAKY = frozenset({"flaky_target"})
_MOST_SHOWN = 5


class RedVerdict(StrEnum):
    """The outcomes of RED."""

    VALID = "VALID"
    """The new tests fail because the behavior is missing."""
    VALID_MISSING_SYMBOL = "VALID_MISSING_SYMBOL"
    """They fail for want of a name that the work item is to make, so they have not judged any code yet."""
    INVALID = "INVALID"
    """They fail for another reason, or there are none."""
    ALREADY_GREEN = "ALREADY_GREEN"
    """They pass at once, all of them."""
    TAMPER = "TAMPER"
    """The attempt changed what RED may not change."""
    BROKE_OTHERS = "BROKE_OTHERS"
    """A test that passed before does not any more."""
    FLAKY = "FLAKY"
    """They came to different ends when they were run again."""


def red_verdict(
    judged: Verdict, report: SuiteReport | None, *, baseline: SuiteReport, expects: Sequence[str] = ()
) -> RedVerdict:
    """The word for RED's verdict over a run; ``expects`` is as for ``pytest_tdd_agent.gate.judge``."""
    codes = {reason.code for reason in judged.reasons}
    for word, telling in (
        (RedVerdict.TAMPER, _TAMPER),
        (RedVerdict.BROKE_OTHERS, _BROKE),
        (RedVerdict.FLAKY, _FLAKY),
    ):
        if codes & telling:
            return word
    old = set(failing(baseline))
    if codes == {"already_green"} and report is not None and old.issuperset(failing(report)):
        return RedVerdict.ALREADY_GREEN
    if not judged.open or report is None:
        return RedVerdict.INVALID
    failures = [case.failure for case in report.tests if case.failure is not None and case.nodeid not in old]
    failures += [error.failure for error in report.collect_errors if error.nodeid not in old]
    is_structural = any(stage(failure, expects) == "structural" for failure in failures)
    return RedVerdict.VALID_MISSING_SYMBOL if is_structural else RedVerdict.VALID


def surplus(report: SuiteReport, *, baseline: SuiteReport, sources: Mapping[str, str]) -> tuple[Reason, ...]:
    """What speaks against a run that has more than one test which the baseline has not, whatever its parameters.

    ``sources``: the Python files that could not be collected, so that the report says nothing of the tests in them.
    """
    before = {function_of(case.nodeid) for case in baseline.tests}
    found: dict[object, str] = {}
    for case in report.tests:
        name = function_of(case.nodeid)
        if name not in before:
            found.setdefault((case.file, case.line) if case.line else name, name)
    listed = [f"{file}::{name}" for file, source in sources.items() for name in _tests_in(parse(source))]
    names = dict.fromkeys((*found.values(), *(name for name in listed if name not in before)))
    if len(names) < 2:
        return ()
    shown = ", ".join(list(names)[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
    message = (
        f"RED adds {len(names)} tests, and one is asked for: {shown}. Keep that one and take the others out; they have "
        "their own turn."
    )
    return (Reason(code="several_tests", nodeid=None, message=message),)


def _tests_in(tree: ast.Module | ast.ClassDef | None) -> Iterator[str]:
    """The names of the tests in a source as pytest and unittest find them, each after its class."""
    for node in tree.body if tree is not None else ():
        if isinstance(node, Function) and node.name.startswith("test"):
            yield node.name
        elif isinstance(node, ast.ClassDef) and (node.name.startswith("Test") or node.bases):
            yield from (f"{node.name}::{name}" for name in _tests_in(node))


def named_test_files(item: WorkItem) -> tuple[str, ...]:
    """The files and folders that the step's ``Tests`` name, whatever they are called, relative to the project.

    Not those its ``Files`` name too: a module with doctests is the product's.
    """
    return files_named(item.tests, apart_from=item.sources)


def files_named(tests: Collection[str], *, apart_from: Collection[str] = ()) -> tuple[str, ...]:
    """The files and folders that ``tests`` name, each once."""
    names = dict.fromkeys(nodeid.split("::", 1)[0].rstrip("/") for nodeid in tests)
    return tuple(name for name in names if name not in apart_from)


def lock_reason(
    phase: Phase,
    path: str,
    *,
    off_limits: frozenset[str],
    tests: Collection[str] = (),
    layout: Layout = PLAIN,
    listed: Collection[str] = (),
) -> str | None:
    """Why ``path``, relative to the work tree, may not be written in this phase, as a sentence; None if it may.

    The tools say it beforehand, the verdict afterwards. ``tests``: what else belongs to the tests, as
    ``named_test_files`` says, relative to the same folder as ``path``. ``layout``: of the project in the work tree.
    ``listed``: all that PLAN may write.
    """
    is_test = layout.is_test(path) or any(path == name or path.startswith(f"{name}/") for name in tests)
    if path in off_limits:
        return "It has uncommitted changes of the user's and stays as it is."
    if phase == "plan":
        return None if path in listed else f"PLAN writes {' and '.join(listed)} only."
    if phase == "red" and not is_test:
        return "RED changes tests only; sources wait for GREEN."
    if phase != "red" and is_test:
        return f"Tests{_AND_MORE.get(layout.conventions.framework, _MORE)} are locked in {phase.upper()}."
    return None


def trespasses(
    phase: Phase,
    changes: Sequence[Change],
    *,
    off_limits: frozenset[str],
    tests: Collection[str] = (),
    layout: Layout = PLAIN,
    listed: Collection[str] = (),
) -> dict[str, Reason]:
    """Changed path that this phase may not change -> the reason it gives."""
    found = {}
    for change in changes:
        why = lock_reason(phase, change.path, off_limits=off_limits, tests=tests, layout=layout, listed=listed)
        if why is None and change.kind == "created" and layout.stands_in(change.path):
            why = "It would be loaded in the place of a test tool, or before it."
        if why is not None:
            code = "user_file_changed" if change.path in off_limits else _LOCK_CODE[phase]
            message = f"{change.path} was {change.kind} and has been put back. {why}"
            found[change.path] = Reason(code=code, nodeid=None, message=message)
    return found


_AND_MORE = {"pytest": ", conftest files and the pytest configuration"}
_MORE = " and what configures them"
_LOCK_CODE: dict[Phase, str] = {
    "plan": "source_changed",
    "red": "source_changed",
    "green": "protected_changed",
    "refactor": "protected_changed",
}


def nothing_done(item: WorkItem, phase: Phase) -> Verdict:
    """The verdict on an attempt that changed no file: fine in the REFACTOR after GREEN, a failed attempt elsewhere."""
    if phase == "refactor" and item.kind != "refactor":
        return Verdict(phase=phase, open=True)
    message = "no file was changed: an answer is not work, the files have to be written"
    return Verdict(phase=phase, open=False, reasons=(Reason(code="no_change", nodeid=None, message=message),))


def not_run(phase: Phase, problem: str) -> Verdict:
    """The verdict when the tests did not run to their end."""
    reason = Reason(code="run_incomplete", nodeid=None, message=problem)
    return Verdict(phase=phase, open=False, reasons=(reason,))


def of_run(
    item: WorkItem,
    phase: Phase,
    *,
    report: SuiteReport,
    baseline: SuiteReport,
    conventions: Conventions = PYTEST,
) -> Verdict:
    """The gate's verdict on a complete test run.

    In RED, what the item's sources are to bring may be missing; a bug may also show by the exception it raises. In
    GREEN a test that passed before it is no target, though it lies in a file that is one: failing, it is broken.
    """
    expects = _expected(item, report, conventions=conventions) if phase == "red" else ()
    targets = _to_mend(item, report, baseline=baseline) if phase == "green" else item.tests
    return judge(
        phase,
        report,
        baseline=baseline,
        targets=targets,
        expects=expects,
        accepts_unstructured=conventions.accepts_exit_status,
    )


def _to_mend(item: WorkItem, report: SuiteReport, *, baseline: SuiteReport) -> tuple[str, ...]:
    """The item's targets, each file of which some tests passed before by the node ids of those to mend."""
    passed = {case.nodeid for case in baseline.tests if case.outcome == "passed"}
    failed = {case.nodeid for case in baseline.tests if case.outcome in FAILING} - set(baseline.old_failures)
    before = {case.nodeid for case in baseline.tests}
    targets: list[str] = []
    for target in item.tests:
        held = [case.nodeid for case in report.tests if "::" not in target and lies_in(case.nodeid, target)]
        left = [nodeid for nodeid in held if nodeid in failed or nodeid not in before]
        targets += left if left and not passed.isdisjoint(held) else [target]
    return tuple(targets)


def of_targets(item: WorkItem, phase: Phase, *, report: SuiteReport, baseline: SuiteReport) -> Verdict:
    """The gate's verdict on the item's tests alone, the only ones that ``report`` tells of."""
    tests = tuple(case for case in baseline.tests if any(names(target, case.nodeid) for target in item.tests))
    of_them = replace(baseline, tests=tests, fingerprints=report.fingerprints)
    alone = tuple(case for case in report.tests if any(names(target, case.nodeid) for target in item.tests))
    return of_run(item, phase, report=replace(report, tests=alone), baseline=of_them)


def names(target: str, nodeid: str) -> bool:
    """Whether ``target`` is the test or holds it."""
    return nodeid == target or lies_in(nodeid, target)


def concerns(item: WorkItem, nodeid: str) -> bool:
    """Whether a test, or a file that cannot be collected, is one of the item's or holds one."""
    return any(names(target, nodeid) or names(nodeid, target) for target in item.tests)


def _expected(item: WorkItem, report: SuiteReport, *, conventions: Conventions) -> tuple[str, ...]:
    """What RED may find missing, or raised."""
    failures = [case.failure for case in report.tests if case.failure is not None and item.kind == "bug"]
    raised = (failure.exception for failure in failures if failure.origin == "project")
    failing = [case.file for case in report.tests if case.failure is not None]
    failing += [error.nodeid for error in report.collect_errors]
    return (*conventions.names_of(item.sources, dict.fromkeys(failing)), *raised)


def red_finding(
    item: WorkItem,
    judged: Verdict,
    *,
    report: SuiteReport | None,
    baseline: SuiteReport,
    conventions: Conventions = PYTEST,
) -> RedVerdict:
    """What an attempt at RED came to."""
    expects = () if report is None else _expected(item, report, conventions=conventions)
    return red_verdict(judged, report, baseline=baseline, expects=expects)


def joined(verdict: Verdict, extra: tuple[Reason, ...]) -> Verdict:
    """``verdict`` closed by ``extra`` too; where both name the protected files, ours, with the paths, are kept."""
    if not extra:
        return verdict
    codes = {reason.code for reason in extra}
    kept = tuple(reason for reason in verdict.reasons if reason.code not in codes)
    return Verdict(phase=verdict.phase, open=False, reasons=(*extra, *kept))
