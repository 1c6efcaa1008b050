"""The gates RED, GREEN and REFACTOR: fixed rules that compare a report with its baseline. Pure.

The rules judge single tests by outcome and failure kind, never the exit status or output of a run. The one exception
is a command that reports no single tests.
"""

from __future__ import annotations

from typing import Iterator, Sequence

from .comparison import NOT_RUN, Comparison, Selection, is_inside, strip_parameters
from .failure import STRUCTURAL, find_effective_kind, find_stage, is_of_third_party
from .fingerprint import find_changes, is_runner_shadow
from .recording.assembly import UNFINISHED, describe_problem
from .report import FAILING, Case, CollectError, Failure, Reason, SuiteReport, Verdict, summarize_internal_error
from .system import bind_builtins

bind_builtins(globals())


__all__ = ["CODES", "judge", "strip_parameters"]

CODES = {
    "run_incomplete": "The run ended before every collected test had run, so its results prove nothing.",
    "untrusted": "The records of the test process contradict each other, so something else than the plugin wrote some.",
    "baseline_incomplete": "The baseline run ended early, so it cannot be compared with.",
    "unstructured": "The test command reports only an exit status, no results of single tests.",
    "baseline_missing": "The gate needs a baseline, and none was given.",
    "tampered": "The audit found a sign of tampering that the baseline does not have.",
    "no_tests": "The run contains no test that the gate could judge.",
    "target_missing": "No test of the run matches the target.",
    "already_green": "A target passes before the change it asks for was made.",
    "skipped_target": "A target was skipped or is marked as an expected failure, so it proves nothing.",
    "flaky_target": "Reruns of a target gave different results, so its result proves nothing.",
    "wrong_phase": "A target failed in its setup or teardown, so its body did not judge the code.",
    "wrong_reason": "A target fails for a reason that no change to the product can fix.",
    "name_not_expected": "A target fails because of a missing name that is not an expected one.",
    "untargeted_failure": "A new test fails that is not a target.",
    "broke_others": "A test that passed in the baseline no longer passes.",
    "test_removed": "A test that passed in the baseline is no longer in the run.",
    "collect_error": "A file cannot be collected that could be collected in the baseline.",
    "target_failed": "A target does not pass.",
    "new_failure": "A test that is not in the baseline does not pass.",
    "protected_changed": "A test file, test data or pytest's configuration differs from the baseline.",
    "tests_differ": "The node ids differ from those of the baseline.",
}
"""Code of a reason -> its meaning."""

_ENDS = {
    "passed": "passes",
    "failed": "fails",
    "error": "fails in its setup or teardown",
    "skipped": "was skipped",
    "xfailed": "is marked as an expected failure, and fails",
    "xpassed": "is marked as an expected failure, and passes",
}
"""Outcome of a test -> predicate of a sentence about it."""

_MESSAGE_WIDTH = 300
_MOST_SIGNS = 10


def judge(
    phase: str,
    report: SuiteReport,
    *,
    baseline: SuiteReport | None = None,
    targets: Sequence[str] = (),
    expects: Sequence[str] = (),
    accepts_unstructured: bool = False,
) -> Verdict:
    """Return the verdict of a gate (one of ``report.PHASES``) over a run.

    ``targets`` are node ids of tests, parametrized functions, classes, files or folders.
    ``expects`` are dotted or plain names; failing because such a name is missing is a right reason in RED.
    ``accepts_unstructured``: if the report has no results of single tests, the exit status decides.
    """
    rules = {"red": _judge_red, "green": _judge_green, "refactor": _judge_refactor}[phase]
    run = Comparison(report, phase=phase, baseline=baseline, targets=targets, expects=expects)
    if report.structured:
        reasons = tuple(_check_reports(phase, run)) or (*_check_signs(run), *rules(run))
    elif accepts_unstructured:
        reasons = tuple(_judge_exit_status(phase, run))
    else:
        message = (
            "The test command reports only an exit status, so the gate cannot tell which test failed or why. Use a "
            "framework whose results cdd can read, or let the exit status decide: accept_unstructured: true."
        )
        reasons = (Reason("unstructured", None, message),)
    return Verdict(phase=phase, open=not reasons, reasons=reasons)


def _judge_exit_status(phase: str, run: Comparison) -> Iterator[Reason]:
    has_passed = run.report.exit_status == 0
    did_pass = run.baseline is None or run.baseline.exit_status == 0
    if phase == "red" and not did_pass:
        message = "The tests already failed in the baseline, so a failure now proves nothing. Make them pass first."
        yield Reason("wrong_reason", None, message)
    elif phase == "red" and has_passed:
        message = "The tests pass although nothing was implemented. Write a test that fails until it is."
        yield Reason("already_green", None, message)
    elif phase != "red" and not has_passed:
        message = f"The tests fail: the command ended with status {run.report.exit_status}. Make them pass."
        yield Reason("target_failed", None, message)
    if phase != "red":
        yield from _check_protected_files(run)
    elif run.baseline is not None:
        yield from _check_shadows(run.baseline, run.report)


def _check_signs(run: Comparison) -> Iterator[Reason]:
    signs = run.new_signs()
    todo = "Undo it" if run.baseline is None else "Undo it; if it is intended, take a new baseline that includes it"
    for sign in signs[:_MOST_SIGNS]:
        where = f"The result of {sign.nodeid}" if sign.nodeid else "The test results"
        yield Reason("tampered", sign.nodeid, f"{where} may be manipulated: {sign.message}. {todo}.")
    if len(signs) > _MOST_SIGNS:
        more = len(signs) - _MOST_SIGNS
        yield Reason("tampered", None, f"The report lists {more} more signs of tampering under `signs`. {todo}.")


def _check_reports(phase: str, run: Comparison) -> Iterator[Reason]:
    report, baseline = run.report, run.baseline
    if report.problem is not None and report.problem.code not in UNFINISHED:
        message = f"{describe_problem(report.problem)} Find the code that writes to the plugin's descriptor."
        yield Reason("untrusted", report.problem.nodeid or None, message)
    elif report.internal_error:
        yield Reason(
            "run_incomplete",
            None,
            f"pytest or a plugin failed: {summarize_internal_error(report)[:_MESSAGE_WIDTH]}. Fix what raises it; a "
            "test may have replaced a function that pytest uses.",
        )
    elif not report.complete:
        yield Reason(
            "run_incomplete",
            None,
            f"The run ended early: pytest's exit status is {report.exit_status}, and {len(report.tests)} of "
            f"{report.collected} collected tests have a result. Run all tests to the end, without -x and --maxfail.",
        )
    if baseline is not None and not baseline.complete:
        yield Reason(
            "baseline_incomplete",
            None,
            "The baseline run ended early. Take it again; if a file cannot be collected, add "
            "--continue-on-collection-errors.",
        )
    if phase == "refactor" and baseline is None:
        yield Reason("baseline_missing", None, "REFACTOR has no baseline. Give it the report of the previous run.")


def _judge_red(run: Comparison) -> Iterator[Reason]:
    passing = sum(case.outcome == "passed" for case in run.report.tests)
    if run.baseline is None and not run.targets and passing:
        message = (
            f"{passing} of {len(run.report.tests)} tests pass, and the gate cannot tell which tests are new. Give an "
            "earlier report as the baseline, or name the new tests as targets."
        )
        yield Reason("baseline_missing", None, message)
        return
    selection = Selection(run, lambda target: _select_red(run, target))
    if not run.targets:
        selection.add(filter(run.is_new, run.report.tests), run.new_collect_errors())
    _leave_out_passing_cases(run, selection)
    if selection.is_empty():
        message = "Every test of the run is already in the baseline. Write a new test that fails."
        yield Reason("no_tests", None, message if run.report.tests else "No test ran. Write a test that fails.")
    for target in selection.missing:
        yield _explain_missing_in_red(run, target)
    covered = _find_passing_groups(run, selection)
    in_groups = {nodeid for nodeids in covered.values() for nodeid in nodeids}
    for name, nodeids in covered.items():
        message = (
            f"All {len(nodeids)} new or changed tests in {name} pass although nothing was implemented. Write or change "
            "one so that it fails until the new behavior exists."
        )
        yield Reason("already_green", name, message)
    for case in selection.cases.values():
        if case.nodeid not in in_groups:
            yield from _check_rescued(run, case) or _check_failing(case, run.expects)
    for error in selection.blocked.values():
        yield from _check_reason(error.nodeid, error.failure, expects=run.expects)
    yield from _check_losses(run, selection, alone=False)
    if run.baseline is not None:
        yield from _check_new_failures(run, selection, code="untargeted_failure")
        yield from _check_shadows(run.baseline, run.report)


def _select_red(run: Comparison, target: str) -> tuple[list[Case], list[CollectError]]:
    """Return the tests and files of a target that must fail: the named test, or else the new ones in it.

    Of a function with parameters, the new and the changed cases count. So do failing cases with other parameters than
    before, in a class, file or folder.
    """
    cases = run.tests_in(target)
    if run.find_test(target):
        return cases, []
    if any(case.nodeid.startswith(target + "[") for case in cases):
        changed = [case for case in cases if not run.is_unchanged(case)]
        return changed or [case for case in cases if case.outcome == "passed"], []
    new_errors = [error for error in run.errors_in(target) if error.nodeid not in run.old_collect_errors]
    return [
        case for case in cases if run.is_new(case) or (case.outcome in FAILING and run.has_new_id(case))
    ], new_errors


def _leave_out_passing_cases(run: Comparison, selection: Selection) -> None:
    """Remove the passing cases of each parametrized test that also has a failing case."""
    cases = selection.cases
    failing = {strip_parameters(nodeid) for nodeid, case in cases.items() if case.outcome in FAILING}
    for nodeid in [nodeid for nodeid, case in cases.items() if _passes_at_once(run, case)]:
        if strip_parameters(nodeid) in failing and nodeid not in run.targets:
            del cases[nodeid]


def _passes_at_once(run: Comparison, case: Case) -> bool:
    return case.outcome == "passed" and not run.is_rescued(case)


def _find_passing_groups(run: Comparison, selection: Selection) -> dict[str, set[str]]:
    """Return each target or function whose selected tests, at least two, all pass: name -> node ids."""
    inside: dict[str, set[str]] = {}
    for target in run.targets:
        inside[target] = {nodeid for nodeid in selection.cases if nodeid == target or is_inside(nodeid, target)}
    for nodeid in selection.cases:
        inside.setdefault(strip_parameters(nodeid), set()).add(nodeid)
    found: dict[str, set[str]] = {}
    seen: set[str] = set()
    for name, nodeids in inside.items():
        if len(nodeids) > 1 and all(_passes_at_once(run, selection.cases[nodeid]) for nodeid in nodeids):
            if not seen.issuperset(nodeids):
                found[name] = nodeids
            seen |= nodeids
    return found


def _explain_missing_in_red(run: Comparison, target: str) -> Reason:
    if run.tests_in(target):
        message = (
            f"Every test in {target} is already in the baseline. Add a new test there, or name the changed test by "
            "its node id."
        )
        return Reason("target_missing", target, message)
    return _explain_missing(run, target)


def _explain_missing(run: Comparison, target: str) -> Reason:
    skip = _explain_skipped_file(run, target)
    if skip is not None:
        return skip
    neighbors = [case.nodeid for case in run.tests_in(target.split("::", 1)[0])]
    if neighbors:
        there = f"its file has {_format_names(neighbors)}. Check the name, and that it ran."
    else:
        there = (
            "pytest collected no test of its file. Check the name; if all tests ran, `testpaths` or `python_files` in "
            "pytest's configuration may exclude the file."
        )
    return Reason("target_missing", target, f"{target} is not in the run: {there}")


def _explain_skipped_file(run: Comparison, target: str) -> Reason | None:
    skipped = next((case for case in run.report.tests if case.reason and is_inside(target, case.nodeid)), None)
    if skipped is None:
        return None
    message = f"{target} did not run, because {skipped.nodeid} skipped itself as a whole: {skipped.reason}."
    return Reason("skipped_target", target, f"{message} Provide what it needs, or remove the skip.")


def _explain_lost(run: Comparison, nodeid: str) -> Reason:
    skip = _explain_skipped_file(run, nodeid)
    if skip is not None:
        return skip
    message = (
        f"{nodeid} is in the baseline and not in this run. A target must pass under its own node id: restore what its "
        "parameters are made of, or, if they change from run to run, give them fixed ids."
    )
    return Reason("target_missing", nodeid, message)


def _check_rescued(run: Comparison, case: Case) -> list[Reason]:
    if not run.is_rescued(case):
        return []
    ends = f" ({', '.join(case.tries)})" if case.tries else ""
    message = (
        f"{case.nodeid} failed, and passed only when it ran again{ends}. A rerun does not count for a target. Make it "
        "give the same result every time, in the first try."
    )
    return [Reason("flaky_target", case.nodeid, message)]


def _check_failing(case: Case, expects: Sequence[str]) -> Iterator[Reason]:
    name = case.nodeid
    if len(set(case.tries)) > 1:
        ends = ", ".join(case.tries)
        yield Reason(
            "flaky_target",
            name,
            f"Reruns of {name} gave different results: {ends}. Make it fail in the same way every time, independent of "
            "clock, chance, order and network.",
        )
    elif case.outcome in ("passed", "xpassed") or (case.failure and case.failure.kind == "xpass_strict"):
        marked = "" if case.outcome == "passed" else ", and is marked as an expected failure"
        yield Reason(
            "already_green",
            name,
            f"{name} passes although nothing was implemented{marked}. Write a test that fails until the new behavior "
            "exists.",
        )
    elif case.outcome in NOT_RUN:
        message = f"{name} {_describe_skip(case)}. It must run and fail: remove the skip or xfail mark."
        yield Reason("skipped_target", name, message)
    elif case.failure is None:
        yield Reason("wrong_reason", name, f"{name} failed, but the report gives no failure. Run the tests again.")
    elif case.outcome == "error" or case.failure.phase != "call":
        yield Reason(
            "wrong_phase",
            name,
            f"{name} failed in its {case.failure.phase}: {_format_failure(case.failure)}. The test's body must run and "
            "fail; fix its fixtures.",
        )
    else:
        yield from _check_reason(name, case.failure, expects=expects)


def _check_reason(name: str, failure: Failure, *, expects: Sequence[str]) -> Iterator[Reason]:
    """Yield a reason unless a missing feature or the expected defect causes the failure."""
    kind = find_effective_kind(failure)
    if find_stage(failure, expects) is not None:
        return
    if kind not in STRUCTURAL or kind == "not_implemented":
        defect = f" If this exception is the defect, declare {failure.exception} as expected."
        yield Reason(
            "wrong_reason",
            name,
            f"{name} fails for a wrong reason: {_format_failure(failure)}. Make it fail by an assertion about the "
            "missing behavior, or because an expected name is missing."
            + (defect if kind == "exception" and failure.origin == "project" else ""),
        )
    elif is_of_third_party(failure):
        yield Reason(
            "wrong_reason",
            name,
            f"{name} fails because {failure.missing_name} is missing, which does not belong to this project: "
            f"{_format_failure(failure)}. Fix the test, or install the version of the library that has it.",
        )
    else:
        missing = failure.missing_name or "a name"
        yield Reason(
            "name_not_expected",
            name,
            f"{name} fails because {missing} is missing: {_format_failure(failure)}. Expected to be missing: "
            f"{_format_names(expects) or 'nothing'}. Fix the imports and names of the test, or declare the name as "
            "expected.",
        )


def _judge_green(run: Comparison) -> Iterator[Reason]:
    selection = Selection(run, lambda target: _select_green(run, target))
    ran = [case for case in run.report.tests if case.outcome in ("passed", *FAILING)]
    if not run.targets:
        selection.add(
            (case for case in ran if not (run.is_old_failure(case) or run.is_revealed_failure(case))),
            (error for error in run.report.collect_errors if not run.is_old_error(error)),
        )
    if selection.is_empty():
        message = "No test ran. Check that pytest collects tests, and that they are not all skipped."
        old = "Every test that ran already failed in the baseline. Make one pass, or name the tests to fix as targets."
        yield Reason("no_tests", None, old if ran else message)
    for target in selection.missing:
        yield _explain_lost(run, target) if target in run.before else _explain_missing(run, target)
    yield from (_explain_lost(run, nodeid) for nodeid in run.find_lost_targets())
    for case in selection.cases.values():
        yield from _check_rescued(run, case) or _check_passing(case)
    for error in selection.blocked.values():
        yield Reason(
            "target_failed",
            error.nodeid,
            f"{error.nodeid} cannot be collected: {_format_failure(error.failure)}. Fix the error.",
        )
    yield from _check_losses(run, selection, alone=True)
    yield from _check_new_failures(run, selection, code="new_failure")
    yield from _check_protected_files(run)


def _select_green(run: Comparison, target: str) -> tuple[list[Case], list[CollectError]]:
    """Return the tests and files of a target that must pass: the named test, or else those not spared as old failures.

    If all of them would be spared, all must pass; otherwise the target would prove nothing.
    """
    cases, errors = run.tests_in(target), run.errors_in(target)
    if run.find_test(target):
        return cases, []
    left = [case for case in cases if not run.is_spared(case)]
    left_errors = [error for error in errors if run.is_repair or not run.is_old_error(error)]
    return (left, left_errors) if left or left_errors else (cases, errors)


def _check_passing(case: Case) -> Iterator[Reason]:
    name = case.nodeid
    if case.outcome in NOT_RUN:
        message = f"{name} {_describe_skip(case)}. It must run and pass: remove the skip or xfail mark."
        yield Reason("skipped_target", name, message)
    elif case.outcome == "xpassed" or (case.failure and case.failure.kind == "xpass_strict"):
        yield Reason("target_failed", name, f"{name} passes but is marked as an expected failure. Remove the mark.")
    elif case.outcome != "passed":
        where = "" if case.failure is None else f" in its {case.failure.phase}"
        yield Reason("target_failed", name, f"{name} fails{where}: {_format_failure(case.failure)}. Make it pass.")
    elif case.phases and "call" not in case.phases:
        yield Reason("target_failed", name, f"{name} counts as passed, but its body did not run. Let it run.")


def _judge_refactor(run: Comparison) -> Iterator[Reason]:
    yield from _judge_green(run)
    for old in run.before.values():
        if run.now(old) is None and old.outcome != "passed":
            message = f"{old.nodeid} is in the baseline but not in the run. Restore it."
            yield Reason("tests_differ", old.nodeid, message)
    for case in filter(run.is_new, run.report.tests):
        message = f"{case.nodeid} is not in the baseline. Refactoring adds no tests: remove it, or add it in RED."
        yield Reason("tests_differ", case.nodeid, message)


def _check_losses(run: Comparison, selection: Selection, *, alone: bool) -> Iterator[Reason]:
    """Yield the tests outside the selection that no longer pass; a file that cannot be collected counts once.

    ``alone``: such files count even without a baseline.
    """
    count = run.report.deselected
    deselected = f"; {count} tests were deselected by -k, -m, --deselect or a conftest file" if count else ""
    for old in run.before.values():
        now = run.now(old)
        if old.outcome != "passed" or (now is not None and (now.outcome == "passed" or now.nodeid in selection.cases)):
            continue
        if now is not None:
            name = now.nodeid if now.nodeid == old.nodeid else f"{now.nodeid} (in the baseline {old.nodeid})"
            why = "" if now.failure is None else f": {_format_failure(now.failure)}"
            message = f"{name} passed before and {_ENDS[now.outcome]} now{why}. Make it pass again."
            yield Reason("broke_others", now.nodeid, message)
        elif run.find_collect_error(old.nodeid) is None:
            todo = f"Restore it, and run all tests of the baseline{deselected}."
            yield Reason("test_removed", old.nodeid, f"{old.nodeid} passed before but is not in this run. {todo}")
    for error in run.new_collect_errors():
        if error.nodeid not in selection.blocked and (alone or run.baseline is not None):
            message = (
                f"{error.nodeid} cannot be collected: {_format_failure(error.failure)}. Make its tests run as before."
            )
            yield Reason("collect_error", error.nodeid, message)


def _check_new_failures(run: Comparison, selection: Selection, *, code: str) -> Iterator[Reason]:
    for case in run.report.tests:
        if (
            case.outcome not in FAILING
            or case.nodeid in selection.cases
            or not run.is_new(case)
            or run.is_old_failure(case)
            or run.is_revealed_failure(case)
        ):
            continue
        message = f"{case.nodeid} fails but is neither a target nor in the baseline: {_format_failure(case.failure)}."
        todo = "Name it as a target, fix it, or remove it." if code == "untargeted_failure" else "Make it pass."
        yield Reason(code, case.nodeid, f"{message} {todo}")


def _check_shadows(baseline: SuiteReport, report: SuiteReport) -> Iterator[Reason]:
    for name in find_changes(baseline.fingerprints, report.fingerprints):
        if name in report.fingerprints and is_runner_shadow(name):
            message = f"{name} was added or changed; Python loads it instead of a test tool, or before it. Undo that."
            yield Reason("protected_changed", None, message)


def _check_protected_files(run: Comparison) -> Iterator[Reason]:
    if run.baseline is None:
        return
    before, after = run.baseline.fingerprints, run.report.fingerprints
    for name in find_changes(before, after):
        change = "was added" if name not in before else "was removed" if name not in after else "was changed"
        todo = "Restore it. Change the product, not the tests or pytest's configuration."
        if name.endswith("[module]"):
            todo = "Rename it: tests would import it instead of an installed module."
        yield Reason("protected_changed", None, f"{name} {change} since the baseline. {todo}")


def _describe_skip(case: Case) -> str:
    return f"{_ENDS[case.outcome]} ({case.reason})" if case.reason else _ENDS[case.outcome]


def _format_failure(failure: Failure | None) -> str:
    if failure is None:
        return "unknown failure"
    message = next((line.strip() for line in failure.message.splitlines() if line.strip()), "")
    if len(message) > _MESSAGE_WIDTH:
        message = message[:_MESSAGE_WIDTH] + "..."
    at = f" ({failure.path}:{failure.line})" if failure.path else ""
    return (
        f"{failure.kind}, {failure.exception}: {message}{at}" if message else f"{failure.kind}, {failure.exception}{at}"
    )


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
