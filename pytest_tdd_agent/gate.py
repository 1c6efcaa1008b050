"""RED, GREEN and REFACTOR: fixed rules over a baseline and a report. Pure.

No rule looks at exit codes or prose of a run; each looks at single tests, their outcomes and their failure kinds.
"""

from __future__ import annotations

from typing import Iterator, Sequence

from .comparison import NOT_RUN, Aim, Comparison
from .failure import STRUCTURAL, is_of_third_party, kind_inside, stage
from .fingerprint import changed, shadows_runner
from .report import FAILING, Case, CollectError, Failure, Reason, SuiteReport, Verdict

CODES = {
    "run_incomplete": "The run ended before every collected test had run, so nothing it says counts.",
    "baseline_incomplete": "The run that made the baseline ended early, so there is nothing to compare with.",
    "unstructured": "The tests were run by a command that tells no results of single tests, only its exit status.",
    "baseline_missing": "The gate compares with a baseline, and none was given.",
    "tampered": "The audit saw something bend what tests come to, and did not see it in the baseline.",
    "no_tests": "No test ran that the gate could judge.",
    "target_missing": "No test of the run has the node id of the target.",
    "already_green": "A target passes before the change it asks for has been made.",
    "skipped_target": "A target was skipped or is marked as an expected failure, so it proves nothing.",
    "flaky_target": "A target came to different ends when it was run again, so its failure proves nothing.",
    "wrong_phase": "A target failed in its setup or teardown; its own body has not judged the code.",
    "wrong_reason": "A target fails for a reason that no change of the product can be asked to mend.",
    "name_not_expected": "A target fails for want of a name that is not among the expected ones.",
    "untargeted_failure": "A new test fails that is not a target.",
    "broke_others": "A test that passed in the baseline no longer passes.",
    "test_removed": "A test that passed in the baseline is no longer in the run.",
    "collect_error": "A file cannot be collected, and the baseline does not say so of it.",
    "target_failed": "A target does not pass.",
    "new_failure": "A test that is not in the baseline does not pass.",
    "protected_changed": "A test file, its data or pytest's configuration is not what it was in the baseline.",
    "tests_differ": "The node ids of the run are not those of the baseline.",
}
"""Code of a reason -> what it means."""

_ENDS = {
    "passed": "passes",
    "failed": "fails",
    "error": "fails in its setup or teardown",
    "skipped": "was skipped",
    "xfailed": "is marked as an expected failure, and fails",
    "xpassed": "is marked as an expected failure, and passes",
}
"""Outcome of a test -> what a sentence says of it."""

_SHOWN = 300
_SIGNS_SHOWN = 10


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

    ``targets`` are node ids, or ids of what holds tests: a function with parameters, a class, a file, a folder.
    ``expects`` are the dotted or plain names whose absence is a right reason to fail in RED.
    ``accepts_unstructured``: where no test is told apart from another, the exit status decides.
    """
    rules = {"red": _red, "green": _green, "refactor": _refactor}[phase]
    run = Comparison(report, phase=phase, baseline=baseline, targets=targets, expects=expects)
    if not report.structured:
        reasons = tuple(_by_exit_status(phase, run) if accepts_unstructured else _unstructured())
    else:
        reasons = tuple(_unfit(phase, run)) or (*_tampering(run), *rules(run))
    return Verdict(phase=phase, open=not reasons, reasons=reasons)


def _unstructured() -> Iterator[Reason]:
    message = (
        "The command that runs the tests tells only its exit status, so nobody can say which test failed, or why. Run "
        "them by a framework whose results can be read, or let the exit status count: accept_unstructured: true."
    )
    yield Reason("unstructured", None, message)


def _by_exit_status(phase: str, run: Comparison) -> Iterator[Reason]:
    """What little can be asked of a command that passes or fails as a whole."""
    has_passed = run.report.exit_status == 0
    did_pass = run.baseline is None or run.baseline.exit_status == 0
    if phase == "red" and not did_pass:
        message = "The tests failed before, so that a failure now shows nothing new. Make them pass first."
        yield Reason("wrong_reason", None, message)
    elif phase == "red" and has_passed:
        message = "The tests pass although nothing has been implemented. Write a test that fails until it is."
        yield Reason("already_green", None, message)
    elif phase != "red" and not has_passed:
        message = f"The tests fail: the command ended with status {run.report.exit_status}. Make them pass."
        yield Reason("target_failed", None, message)
    if phase != "red":
        yield from _protected_changes(run)
    elif run.baseline is not None:
        yield from _new_shadows(run.baseline, run.report)


def _tampering(run: Comparison) -> Iterator[Reason]:
    signs = run.new_signs()
    todo = "Undo it" if run.baseline is None else "Undo it; if it is meant, take a new baseline that has it"
    for sign in signs[:_SIGNS_SHOWN]:
        yield Reason("tampered", sign.nodeid, f"The tests' results may be bent: {sign.message}. {todo}.")
    if len(signs) > _SIGNS_SHOWN:
        more = len(signs) - _SIGNS_SHOWN
        yield Reason("tampered", None, f"The report lists {more} more signs of tampering, under `signs`. {todo}.")


def _unfit(phase: str, run: Comparison) -> Iterator[Reason]:
    """What makes reports unfit for any judgment."""
    report, baseline = run.report, run.baseline
    if not report.complete:
        yield Reason(
            "run_incomplete",
            None,
            f"The run ended early: pytest's exit status is {report.exit_status}, {len(report.tests)} of "
            f"{report.collected} collected tests have a result. Run all of them to the end, without -x or --maxfail.",
        )
    if baseline is not None and not baseline.complete:
        yield Reason(
            "baseline_incomplete",
            None,
            "The run of the baseline ended early. Take it again; if a file cannot be collected, add "
            "--continue-on-collection-errors.",
        )
    if phase == "refactor" and baseline is None:
        yield Reason(
            "baseline_missing", None, "REFACTOR compares with the run before it: give its report as the baseline."
        )


def _red(run: Comparison) -> Iterator[Reason]:
    passing = sum(case.outcome == "passed" for case in run.report.tests)
    if run.baseline is None and not run.targets and passing:
        message = (
            f"{passing} of {len(run.report.tests)} tests pass, and nothing says which are new: give the report of a "
            "run before them as the baseline, or name them as targets."
        )
        yield Reason("baseline_missing", None, message)
        return
    aim = Aim(run, lambda target: _red_targets(run, target))
    if not run.targets:
        aim.take(filter(run.is_new, run.report.tests), run.new_collect_errors())
    if aim.is_empty():
        message = "Every test of the run is in the baseline already. Write a new test that fails."
        yield Reason("no_tests", None, message if run.report.tests else "No test ran. Write one that fails.")
    for target in aim.missing:
        yield _missing_in_red(run, target)
    for case in aim.cases.values():
        yield from _not_red(case, run.expects)
    for error in aim.blocked.values():
        yield from _wrong_failure(error.nodeid, error.failure, expects=run.expects)
    yield from _losses(run, aim, alone=False)
    if run.baseline is not None:
        yield from _new_failures(run, aim, code="untargeted_failure")
        yield from _new_shadows(run.baseline, run.report)


def _red_targets(run: Comparison, target: str) -> tuple[list[Case], list[CollectError]]:
    """What has to fail: the test of that node id, else what is new of the tests and files that the target holds.

    A function without new parameters stands for all it has: it is the test that was changed.
    """
    cases = run.covered(target)
    if target in run.tests:
        return cases, []
    new = [case for case in cases if run.is_new(case)]
    is_function = any(case.nodeid.startswith(target + "[") for case in cases)
    new_errors = [error for error in run.uncollected_in(target) if error.nodeid not in run.old_collect_errors]
    return cases if is_function and not new else new, new_errors


def _missing_in_red(run: Comparison, target: str) -> Reason:
    if run.covered(target):
        message = (
            f"Every test in {target} is in the baseline already. Write a new test there, or name the changed one "
            "by its node id."
        )
        return Reason("target_missing", target, message)
    return _missing(run, target)


def _missing(run: Comparison, target: str) -> Reason:
    neighbors = [case.nodeid for case in run.covered(target.split("::", 1)[0])]
    if neighbors:
        there = f"its file has {_listed(neighbors)}. Check the name, and that it ran."
    else:
        there = (
            "pytest collected no test of its file. Check the name; if all tests were run, `testpaths` or "
            "`python_files` of pytest's configuration may leave the file out."
        )
    return Reason("target_missing", target, f"{target} is not in the run: {there}")


def _not_red(case: Case, expects: Sequence[str]) -> Iterator[Reason]:
    name = case.nodeid
    if len(set(case.tries)) > 1:
        ends = ", ".join(case.tries)
        yield Reason(
            "flaky_target",
            name,
            f"{name} came to different ends when it was run again: {ends}. Make it fail the same way every time: it "
            "may depend on no clock, chance, order or network.",
        )
    elif case.outcome in ("passed", "xpassed") or (case.failure and case.failure.kind == "xpass_strict"):
        marked = "" if case.outcome == "passed" else ", and is marked as an expected failure"
        yield Reason(
            "already_green",
            name,
            f"{name} passes although nothing has been implemented{marked}. Write a test that fails until the new "
            "behavior is there.",
        )
    elif case.outcome in NOT_RUN:
        message = f"{name} {_ENDS[case.outcome]}. Remove what keeps it from running and failing, most often a mark."
        yield Reason("skipped_target", name, message)
    elif case.failure is None:
        yield Reason("wrong_reason", name, f"{name} failed, and the report does not say why. Take the report again.")
    elif case.outcome == "error" or case.failure.phase != "call":
        yield Reason(
            "wrong_phase",
            name,
            f"{name} failed in its {case.failure.phase}: {_shown(case.failure)}. The body of the test has to run and "
            "fail; mend its fixtures.",
        )
    else:
        yield from _wrong_failure(name, case.failure, expects=expects)


def _wrong_failure(name: str, failure: Failure, *, expects: Sequence[str]) -> Iterator[Reason]:
    """Yield a reason unless the failure is one that a missing feature, or the expected defect, causes."""
    kind = kind_inside(failure)
    if stage(failure, expects) is not None:
        return
    if kind not in STRUCTURAL or kind == "not_implemented":
        defect = f" To show a defect that raises it, declare {failure.exception} as expected."
        yield Reason(
            "wrong_reason",
            name,
            f"{name} fails for a wrong reason: {_shown(failure)}. Right would be a failed assertion about the missing "
            "behavior, or an expected name that is not there."
            + (defect if kind == "exception" and failure.origin == "project" else ""),
        )
    elif is_of_third_party(failure):
        yield Reason(
            "wrong_reason",
            name,
            f"{name} fails for want of {failure.missing_name}, which is no name of this project's: {_shown(failure)}. "
            "Mend the test, or install the version of the library that has it.",
        )
    else:
        missing = f"because {failure.missing_name} is not there" if failure.missing_name else "for want of some name"
        yield Reason(
            "name_not_expected",
            name,
            f"{name} fails {missing}: {_shown(failure)}. Expected to be missing: {_listed(expects) or 'nothing'}. Mend "
            "the test's imports and names, or declare the name as expected.",
        )


def _green(run: Comparison) -> Iterator[Reason]:
    aim = Aim(run, lambda target: _green_targets(run, target))
    ran = [case for case in run.report.tests if case.outcome in ("passed", *FAILING)]
    if not run.targets:
        aim.take(
            (case for case in ran if not run.is_old_failure(case)),
            (error for error in run.report.collect_errors if not run.is_old_error(error)),
        )
    if aim.is_empty():
        message = "No test ran. Check what pytest collects, and that not all is skipped."
        old = "Every test that ran failed before, and fails still. Make one pass, or name those to mend as targets."
        yield Reason("no_tests", None, old if ran else message)
    for target in aim.missing:
        yield _missing(run, target)
    for case in aim.cases.values():
        yield from _not_green(case)
    for error in aim.blocked.values():
        yield Reason(
            "target_failed", error.nodeid, f"{error.nodeid} cannot be collected: {_shown(error.failure)}. Mend that."
        )
    yield from _losses(run, aim, alone=True)
    yield from _new_failures(run, aim, code="new_failure")
    yield from _protected_changes(run)


def _green_targets(run: Comparison, target: str) -> tuple[list[Case], list[CollectError]]:
    """What has to pass: the test of that node id, else what the target holds, old trouble spared.

    A target that holds nothing else stands for all it has, as it would prove nothing otherwise.
    """
    cases, errors = run.covered(target), run.uncollected_in(target)
    if target in run.tests:
        return cases, []
    left = [case for case in cases if not run.is_spared(case)]
    left_errors = [error for error in errors if run.is_repair or not run.is_old_error(error)]
    return (left, left_errors) if left or left_errors else (cases, errors)


def _not_green(case: Case) -> Iterator[Reason]:
    name = case.nodeid
    if case.outcome in NOT_RUN:
        todo = "It has to run and pass: remove what keeps it from that."
        yield Reason("skipped_target", name, f"{name} {_ENDS[case.outcome]}. {todo}")
    elif case.outcome == "xpassed" or (case.failure and case.failure.kind == "xpass_strict"):
        yield Reason("target_failed", name, f"{name} passes but is marked as an expected failure. Remove the mark.")
    elif case.outcome != "passed":
        where = "" if case.failure is None else f" in its {case.failure.phase}"
        yield Reason("target_failed", name, f"{name} fails{where}: {_shown(case.failure)}. Make it pass.")
    elif case.phases and "call" not in case.phases:
        yield Reason("target_failed", name, f"{name} counts as passed, but its body was not run. Let it run.")


def _refactor(run: Comparison) -> Iterator[Reason]:
    yield from _green(run)
    for old in run.before.values():
        if run.now(old) is None and old.outcome != "passed":
            message = f"{old.nodeid} is in the baseline and not in the run. Bring it back."
            yield Reason("tests_differ", old.nodeid, message)
    for case in filter(run.is_new, run.report.tests):
        message = f"{case.nodeid} is not in the baseline. A refactoring adds no test: remove it, or add it in RED."
        yield Reason("tests_differ", case.nodeid, message)


def _losses(run: Comparison, aim: Aim, *, alone: bool) -> Iterator[Reason]:
    """What passed in the baseline and does not now, targets apart; a file that cannot be collected is said once.

    ``alone``: files that cannot be collected are a loss even if there is no baseline.
    """
    out = run.report.deselected
    deselected = f"; {out} tests were deselected, by -k, -m, --deselect or a conftest file: run without" if out else ""
    for old in run.before.values():
        now = run.now(old)
        if old.outcome != "passed" or (now is not None and (now.outcome == "passed" or now.nodeid in aim.cases)):
            continue
        if now is not None:
            name = now.nodeid if now.nodeid == old.nodeid else f"{now.nodeid} (in the baseline {old.nodeid})"
            why = "" if now.failure is None else f": {_shown(now.failure)}"
            message = f"{name} passed before and {_ENDS[now.outcome]} now{why}. Make it pass again."
            yield Reason("broke_others", now.nodeid, message)
        elif run.uncollected(old.nodeid) is None:
            todo = f"Bring it back, and run all that the baseline ran{deselected}."
            yield Reason("test_removed", old.nodeid, f"{old.nodeid} passed before and is not in this run. {todo}")
    for error in run.new_collect_errors():
        if error.nodeid not in aim.blocked and (alone or run.baseline is not None):
            message = f"{error.nodeid} cannot be collected: {_shown(error.failure)}. Its tests have to run as before."
            yield Reason("collect_error", error.nodeid, message)


def _new_failures(run: Comparison, aim: Aim, *, code: str) -> Iterator[Reason]:
    for case in run.report.tests:
        if case.outcome not in FAILING or case.nodeid in aim.cases or not run.is_new(case) or run.is_old_failure(case):
            continue
        message = f"{case.nodeid} fails, and is neither a target nor in the baseline: {_shown(case.failure)}."
        todo = "Name it as a target, mend it, or remove it." if code == "untargeted_failure" else "Make it pass."
        yield Reason(code, case.nodeid, f"{message} {todo}")


def _new_shadows(baseline: SuiteReport, report: SuiteReport) -> Iterator[Reason]:
    """Files that came with RED's tests and are loaded in the place of a test tool, or before it."""
    for name in changed(baseline.fingerprints, report.fingerprints):
        if name in report.fingerprints and shadows_runner(name):
            message = f"{name} is not what it was, and is loaded in the place of a test tool, or before it. Remove it."
            yield Reason("protected_changed", None, message)


def _protected_changes(run: Comparison) -> Iterator[Reason]:
    if run.baseline is None:
        return
    before, after = run.baseline.fingerprints, run.report.fingerprints
    for name in changed(before, after):
        what = "was added" if name not in before else "was removed" if name not in after else "was changed"
        todo = "Change the product, not the tests or pytest's configuration: put it back as it was."
        if name.endswith("[module]"):
            todo = "Tests would import it in the place of an installed module: give it another name."
        yield Reason("protected_changed", None, f"{name} {what} since the baseline. {todo}")


def _shown(failure: Failure | None) -> str:
    """A failure in one line: kind, exception, first line of the message, place."""
    if failure is None:
        return "no failure on record"
    message = next((line.strip() for line in failure.message.splitlines() if line.strip()), "")
    if len(message) > _SHOWN:
        message = message[:_SHOWN] + "..."
    at = f" ({failure.path}:{failure.line})" if failure.path else ""
    return (
        f"{failure.kind}, {failure.exception}: {message}{at}" if message else f"{failure.kind}, {failure.exception}{at}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
