"""The gates RED, GREEN and REFACTOR: fixed rules that compare a report with its baseline. Pure.

The rules judge single tests by outcome and failure kind, never the exit status or output of a run. The one exception
is a command that reports no single tests.
"""

from __future__ import annotations

from typing import Iterator, Sequence

from .comparison import NOT_RUN, RunComparison, SelectedTests, is_inside, strip_parameters
from .failure import STRUCTURAL, TimeLimitExceeded, find_effective_kind, find_stage, is_of_third_party
from .fingerprint import find_changes, is_runner_shadow
from .recording.assembly import UNFINISHED
from .report import (
    FAILING,
    Case,
    Clause,
    CollectError,
    Failure,
    Part,
    Reason,
    SuiteReport,
    Verdict,
    summarize_internal_error,
)
from .system import bind_builtins
from .wording import as_clause

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

_FAILURES = {
    (True, True): "failure_with_message_and_place",
    (True, False): "failure_with_message",
    (False, True): "failure_with_place",
    (False, False): "plain_failure",
}
"""Whether there is a message, and a place -> case of a failure."""
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
    run = RunComparison(report, phase=phase, baseline=baseline, targets=targets, expects=expects)
    if report.structured:
        reasons = tuple(_check_reports(phase, run)) or (*_check_signs(run), *rules(run))
    elif accepts_unstructured:
        reasons = tuple(_judge_exit_status(phase, run))
    else:
        reasons = (Reason("unstructured", None),)
    return Verdict(phase=phase, open=not reasons, reasons=reasons)


def _judge_exit_status(phase: str, run: RunComparison) -> Iterator[Reason]:
    has_passed = run.report.exit_status == 0
    did_pass = run.baseline is None or run.baseline.exit_status == 0
    if phase == "red" and not did_pass:
        yield Reason("wrong_reason", None, case="failed_before")
    elif phase == "red" and has_passed:
        yield Reason("already_green", None, case="suite_passes")
    elif phase != "red" and not has_passed:
        yield Reason("target_failed", None, case="command_failed", parts={"status": run.report.exit_status})
    if phase != "red":
        yield from _check_protected_files(run)
    elif run.baseline is not None:
        yield from _check_shadows(run.baseline, run.report)


def _check_signs(run: RunComparison) -> Iterator[Reason]:
    signs = run.new_signs()
    todo = Clause("undo" if run.baseline is None else "undo_or_take_baseline")
    for sign in signs[:_MOST_SIGNS]:
        parts: dict[str, Part] = {"sign": as_clause(sign), "todo": todo}
        yield Reason("tampered", sign.nodeid, case="tampered_test" if sign.nodeid else "tampered", parts=parts)
    if len(signs) > _MOST_SIGNS:
        yield Reason("tampered", None, case="more_signs", parts={"count": len(signs) - _MOST_SIGNS, "todo": todo})


def _check_reports(phase: str, run: RunComparison) -> Iterator[Reason]:
    report, baseline, endless = run.report, run.baseline, _find_endless_test(run.report)
    if report.problem is not None and report.problem.code not in UNFINISHED:
        yield Reason("untrusted", report.problem.nodeid or None, parts={"problem": as_clause(report.problem)})
    elif report.internal_error:
        error = summarize_internal_error(report)[:_MESSAGE_WIDTH]
        yield Reason("run_incomplete", None, case="internal_error", parts={"error": error})
    elif endless is not None:
        parts = {"failure": _describe_failure(endless.failure)}
        yield Reason("run_incomplete", endless.nodeid, case="test_without_end", parts=parts)
    elif not report.complete:
        counts = {"status": report.exit_status, "ended": len(report.tests), "collected": report.collected}
        yield Reason("run_incomplete", None, case="run_ended_early", parts=counts)
    if baseline is not None and not baseline.complete:
        yield Reason("baseline_incomplete", None)
    if phase == "refactor" and baseline is None:
        yield Reason("baseline_missing", None, case="refactor_without_baseline")


def _find_endless_test(report: SuiteReport) -> Case | None:
    """Return the test that did not end within its time limit, if others did not run because of it."""
    for number, case in enumerate(report.tests):
        is_endless = case.failure is not None and case.failure.exception == TimeLimitExceeded.__name__
        later = report.tests[number + 1 :]
        if is_endless and (not report.complete or any(each.outcome == "skipped" for each in later)):
            return case
    return None


def _judge_red(run: RunComparison) -> Iterator[Reason]:
    passing = sum(case.outcome == "passed" for case in run.report.tests)
    if run.baseline is None and not run.targets and passing:
        yield Reason("baseline_missing", None, parts={"passing": passing, "total": len(run.report.tests)})
        return
    selection = SelectedTests(run, lambda target: _select_red(run, target))
    if not run.targets:
        selection.add(filter(run.is_new, run.report.tests), run.new_collect_errors())
    _leave_out_passing_cases(run, selection)
    if selection.is_empty():
        yield Reason("no_tests", None, case="no_new_tests" if run.report.tests else "none_ran_in_red")
    for target in selection.missing:
        yield _explain_missing_in_red(run, target)
    covered = _find_passing_groups(run, selection)
    in_groups = {nodeid for nodeids in covered.values() for nodeid in nodeids}
    for name, nodeids in covered.items():
        yield Reason("already_green", name, case="group_passes", parts={"count": len(nodeids)})
    for case in selection.cases.values():
        if case.nodeid not in in_groups:
            yield from _check_rescued(run, case) or _check_failing(case, run.expects)
    for error in selection.blocked.values():
        yield from _check_reason(error.nodeid, error.failure, expects=run.expects)
    yield from _check_losses(run, selection, alone=False)
    if run.baseline is not None:
        yield from _check_new_failures(run, selection, code="untargeted_failure")
        yield from _check_shadows(run.baseline, run.report)


def _select_red(run: RunComparison, target: str) -> tuple[list[Case], list[CollectError]]:
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


def _leave_out_passing_cases(run: RunComparison, selection: SelectedTests) -> None:
    """Remove the passing cases of each parametrized test that also has a failing case."""
    cases = selection.cases
    failing = {strip_parameters(nodeid) for nodeid, case in cases.items() if case.outcome in FAILING}
    for nodeid in [nodeid for nodeid, case in cases.items() if _passes_at_once(run, case)]:
        if strip_parameters(nodeid) in failing and nodeid not in run.targets:
            del cases[nodeid]


def _passes_at_once(run: RunComparison, case: Case) -> bool:
    return case.outcome == "passed" and not run.is_rescued(case)


def _find_passing_groups(run: RunComparison, selection: SelectedTests) -> dict[str, set[str]]:
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


def _explain_missing_in_red(run: RunComparison, target: str) -> Reason:
    if run.tests_in(target):
        return Reason("target_missing", target, case="nothing_new_in_target")
    return _explain_missing(run, target)


def _explain_missing(run: RunComparison, target: str) -> Reason:
    skip = _explain_skipped_file(run, target)
    if skip is not None:
        return skip
    neighbors = [case.nodeid for case in run.tests_in(target.split("::", 1)[0])]
    if neighbors:
        return Reason("target_missing", target, case="not_among_tests", parts={"tests": tuple(neighbors)})
    return Reason("target_missing", target, case="file_not_collected")


def _explain_skipped_file(run: RunComparison, target: str) -> Reason | None:
    skipped = next((case for case in run.report.tests if case.reason and is_inside(target, case.nodeid)), None)
    if skipped is None:
        return None
    parts = {"skipped": skipped.nodeid, "why": skipped.reason}
    return Reason("skipped_target", target, case="skipped_with_file", parts=parts)


def _explain_lost(run: RunComparison, nodeid: str) -> Reason:
    skip = _explain_skipped_file(run, nodeid)
    if skip is not None:
        return skip
    return Reason("target_missing", nodeid, case="target_lost")


def _check_rescued(run: RunComparison, case: Case) -> list[Reason]:
    if not run.is_rescued(case):
        return []
    name = "passed_on_rerun_of" if case.tries else "passed_on_some_rerun"
    return [Reason("flaky_target", case.nodeid, case=name, parts={"tries": case.tries})]


def _check_failing(case: Case, expects: Sequence[str]) -> Iterator[Reason]:
    name = case.nodeid
    if len(set(case.tries)) > 1:
        yield Reason("flaky_target", name, parts={"tries": case.tries})
    elif case.outcome in ("passed", "xpassed") or (case.failure and case.failure.kind == "xpass_strict"):
        yield Reason("already_green", name, case="" if case.outcome == "passed" else "marked_and_green")
    elif case.outcome in NOT_RUN:
        yield Reason("skipped_target", name, case="skipped_in_red", parts={"ends": _describe_skip(case)})
    elif case.failure is None:
        yield Reason("wrong_reason", name, case="no_failure_given")
    elif case.outcome == "error" or case.failure.phase != "call":
        parts: dict[str, Part] = {"phase": case.failure.phase, "failure": _describe_failure(case.failure)}
        yield Reason("wrong_phase", name, parts=parts)
    else:
        yield from _check_reason(name, case.failure, expects=expects)


def _check_reason(name: str, failure: Failure, *, expects: Sequence[str]) -> Iterator[Reason]:
    """Yield a reason unless a missing feature or the expected defect causes the failure."""
    kind = find_effective_kind(failure)
    if find_stage(failure, expects) is not None:
        return
    parts: dict[str, Part] = {"failure": _describe_failure(failure)}
    if kind not in STRUCTURAL or kind == "not_implemented":
        is_defect = kind == "exception" and failure.origin == "project"
        parts["exception"] = failure.exception
        yield Reason("wrong_reason", name, case="wrong_reason_or_defect" if is_defect else "", parts=parts)
        return
    parts["missing"] = failure.missing_name or Clause("some_name")
    if is_of_third_party(failure):
        yield Reason("wrong_reason", name, case="foreign_name_missing", parts=parts)
    else:
        parts["expected"] = tuple(expects) or Clause("nothing")
        yield Reason("name_not_expected", name, parts=parts)


def _judge_green(run: RunComparison) -> Iterator[Reason]:
    selection = SelectedTests(run, lambda target: _select_green(run, target))
    ran = [case for case in run.report.tests if case.outcome in ("passed", *FAILING)]
    if not run.targets:
        selection.add(
            (case for case in ran if not (run.is_old_failure(case) or run.is_revealed_failure(case))),
            (error for error in run.report.collect_errors if not run.is_old_error(error)),
        )
    if selection.is_empty():
        yield Reason("no_tests", None, case="all_failed_before" if ran else "none_ran")
    for target in selection.missing:
        yield _explain_lost(run, target) if target in run.before else _explain_missing(run, target)
    yield from (_explain_lost(run, nodeid) for nodeid in run.find_lost_targets())
    for case in selection.cases.values():
        yield from _check_rescued(run, case) or _check_passing(case)
    for error in selection.blocked.values():
        parts = {"failure": _describe_failure(error.failure)}
        yield Reason("target_failed", error.nodeid, case="target_not_collected", parts=parts)
    yield from _check_losses(run, selection, alone=True)
    yield from _check_new_failures(run, selection, code="new_failure")
    yield from _check_protected_files(run)


def _select_green(run: RunComparison, target: str) -> tuple[list[Case], list[CollectError]]:
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
        yield Reason("skipped_target", name, case="skipped_in_green", parts={"ends": _describe_skip(case)})
    elif case.outcome == "xpassed" or (case.failure and case.failure.kind == "xpass_strict"):
        yield Reason("target_failed", name, case="passes_but_marked")
    elif case.outcome != "passed" and case.failure is None:
        yield Reason("target_failed", name, case="target_fails", parts={"failure": _describe_failure(None)})
    elif case.outcome != "passed" and case.failure is not None:
        parts: dict[str, Part] = {"phase": case.failure.phase, "failure": _describe_failure(case.failure)}
        yield Reason("target_failed", name, parts=parts)
    elif case.phases and "call" not in case.phases:
        yield Reason("target_failed", name, case="body_did_not_run")


def _judge_refactor(run: RunComparison) -> Iterator[Reason]:
    yield from _judge_green(run)
    for old in run.before.values():
        if run.now(old) is None and old.outcome != "passed":
            yield Reason("tests_differ", old.nodeid, case="test_not_in_run")
    for case in filter(run.is_new, run.report.tests):
        yield Reason("tests_differ", case.nodeid, case="test_added")


def _check_losses(run: RunComparison, selection: SelectedTests, *, alone: bool) -> Iterator[Reason]:
    """Yield the tests outside the selection that no longer pass; a file that cannot be collected counts once.

    ``alone``: such files count even without a baseline.
    """
    deselected = run.report.deselected
    for old in run.before.values():
        now = run.now(old)
        if old.outcome != "passed" or (now is not None and (now.outcome == "passed" or now.nodeid in selection.cases)):
            continue
        if now is not None:
            yield _explain_broken(now, old)
        elif run.find_collect_error(old.nodeid) is None:
            name = "test_removed_or_deselected" if deselected else ""
            yield Reason("test_removed", old.nodeid, case=name, parts={"deselected": deselected})
    for error in run.new_collect_errors():
        if error.nodeid not in selection.blocked and (alone or run.baseline is not None):
            parts = {"failure": _describe_failure(error.failure)}
            yield Reason("collect_error", error.nodeid, parts=parts)


def _explain_broken(now: Case, old: Case) -> Reason:
    name: Part = now.nodeid
    if now.nodeid != old.nodeid:
        name = Clause("renamed_test", {"now": now.nodeid, "before": old.nodeid})
    ends = Clause(f"test_{now.outcome}")
    if now.failure is None:
        return Reason("broke_others", now.nodeid, case="broke_without_failure", parts={"test": name, "ends": ends})
    parts: dict[str, Part] = {"test": name, "ends": ends, "failure": _describe_failure(now.failure)}
    return Reason("broke_others", now.nodeid, parts=parts)


def _check_new_failures(run: RunComparison, selection: SelectedTests, *, code: str) -> Iterator[Reason]:
    for case in run.report.tests:
        if (
            case.outcome not in FAILING
            or case.nodeid in selection.cases
            or not run.is_new(case)
            or run.is_old_failure(case)
            or run.is_revealed_failure(case)
        ):
            continue
        yield Reason(code, case.nodeid, parts={"failure": _describe_failure(case.failure)})


def _check_shadows(baseline: SuiteReport, report: SuiteReport) -> Iterator[Reason]:
    for name in find_changes(baseline.fingerprints, report.fingerprints):
        if name in report.fingerprints and is_runner_shadow(name):
            yield Reason("protected_changed", None, case="shadows_tool", parts={"file": name})


def _check_protected_files(run: RunComparison) -> Iterator[Reason]:
    if run.baseline is None:
        return
    before, after = run.baseline.fingerprints, run.report.fingerprints
    for name in find_changes(before, after):
        change = "was_changed"
        if name not in before:
            change = "was_added"
        elif name not in after:
            change = "was_removed"
        parts: dict[str, Part] = {"file": name, "change": Clause(change)}
        shadow = "module_shadowed" if name.endswith("[module]") else ""
        yield Reason("protected_changed", None, case=shadow, parts=parts)


def _describe_skip(case: Case) -> Clause:
    ends = Clause(f"test_{case.outcome}")
    return Clause("ends_because", {"clause": ends, "why": case.reason}) if case.reason else ends


def _describe_failure(failure: Failure | None) -> Clause:
    if failure is None:
        return Clause("unknown_failure")
    message = next((line.strip() for line in failure.message.splitlines() if line.strip()), "")
    if len(message) > _MESSAGE_WIDTH:
        message = message[:_MESSAGE_WIDTH] + "..."
    parts: dict[str, Part] = {"kind": failure.kind, "exception": failure.exception}
    if message:
        parts["message"] = message
    if failure.path:
        parts.update(path=failure.path, line=failure.line or 0)
    return Clause(_FAILURES[bool(message), bool(failure.path)], parts)
