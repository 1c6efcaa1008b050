"""The words of the plugin's records: one template for each case. Nothing reads what these templates make.

A template names parts of the record in braces. A list is joined: ``{names}`` shows five, ``{names:3;}`` shows three,
separated by semicolons, and ``{names:3.}`` joins sentences. A number takes a noun: ``{count:test}``. ``{name!r}`` shows
a text in quotes.
"""

from __future__ import annotations

import re
from typing import Mapping, Sequence

from .report import RESCUED, Clause, Part, Reason, Sign, StreamProblem
from .system import bind_builtins

bind_builtins(globals())

PROBLEMS = {
    "no_start": "No record came.",
    "no_finish": "The records end before the session was finished.",
    "endless_test": "A test did not end, even by an exception, so its process was ended.",
    "plugin_failed": "The plugin failed, so its records may be incomplete.",
    "damaged": "A line is not a record.",
    "too_large": "The records, or one of them, are larger than any run needs.",
    "wrong_digest": "A record is missing, or something else than the plugin wrote one.",
    "unexpected": "A record came at a point of the run where the plugin sends none like it.",
    "unknown_test": "A record is about a test that was not collected.",
    "repeated_phase": "The same phase of the same try of a test was reported twice.",
    "repeated_result": "A test that was not running reported or ended again.",
    "try_after_pass": "A test began again after it had passed.",
    "wrong_try": "The tries of a test are not counted one by one.",
    "other_outcome": "A test ended with another outcome than its phases had.",
    "after_finish": "A test reported after the session was finished.",
    "after_end": "A record came after the last one.",
}
"""Code of a problem with the records of a test process -> its meaning; a closed list."""

TEMPLATES: dict[str, str] = {
    "text": "{text}",
    # The reasons of the gate.
    "unstructured": "The test command reports only an exit status, so the gate cannot tell which test failed or why. "
    "Use a framework whose results cdd can read, or let the exit status decide: accept_unstructured: true.",
    "failed_before": "The tests already failed in the baseline, so a failure now proves nothing. Make them pass first.",
    "suite_passes": "The tests pass although nothing was implemented. Write a test that fails until it is.",
    "command_failed": "The tests fail: the command ended with status {status}. Make them pass.",
    "tampered": "The test results may be manipulated: {sign}. {todo}.",
    "tampered_test": "The result of {nodeid} may be manipulated: {sign}. {todo}.",
    "more_signs": "The report lists {count} more signs of tampering under `signs`. {todo}.",
    "undo": "Undo it",
    "undo_or_take_baseline": "Undo it; if it is intended, take a new baseline that includes it",
    "untrusted": "{problem}. Find the code that writes to the plugin's descriptor.",
    "internal_error": "pytest or a plugin failed: {error}. Fix what raises it; a test may have replaced a function "
    "that pytest uses.",
    "test_without_end": "{nodeid} did not end, so the tests after it did not run: {failure}. Make it end.",
    "run_ended_early": "The run ended early: pytest's exit status is {status}, and {ended} of {collected} collected "
    "tests have a result. Run all tests to the end, without -x and --maxfail.",
    "baseline_incomplete": "The baseline run ended early. Take it again; if a file cannot be collected, add "
    "--continue-on-collection-errors.",
    "refactor_without_baseline": "REFACTOR has no baseline. Give it the report of the previous run.",
    "baseline_missing": "{passing} of {total} tests pass, and the gate cannot tell which tests are new. Give an "
    "earlier report as the baseline, or name the new tests as targets.",
    "no_new_tests": "Every test of the run is already in the baseline. Write a new test that fails.",
    "none_ran_in_red": "No test ran. Write a test that fails.",
    "none_ran": "No test ran. Check that pytest collects tests, and that they are not all skipped.",
    "all_failed_before": "Every test that ran already failed in the baseline. Make one pass, or name the tests to fix "
    "as targets.",
    "group_passes": "All {count} new or changed tests in {nodeid} pass although nothing was implemented. Write or "
    "change one so that it fails until the new behavior exists.",
    "already_green": "{nodeid} passes although nothing was implemented. Write a test that fails until the new behavior "
    "exists.",
    "marked_and_green": "{nodeid} passes although nothing was implemented, and is marked as an expected failure. Write "
    "a test that fails until the new behavior exists.",
    "nothing_new_in_target": "Every test in {nodeid} is already in the baseline. Add a new test there, or name the "
    "changed test by its node id.",
    "not_among_tests": "{nodeid} is not in the run: its file has {tests}. Check the name, and that it ran.",
    "file_not_collected": "{nodeid} is not in the run: pytest collected no test of its file. Check the name; if all "
    "tests ran, `testpaths` or `python_files` in pytest's configuration may exclude the file.",
    "target_lost": "{nodeid} is in the baseline and not in this run. A target must pass under its own node id: restore "
    "what its parameters are made of, or, if they change from run to run, give them fixed ids.",
    "skipped_with_file": "{nodeid} did not run, because {skipped} skipped itself as a whole: {why}. Provide what it "
    "needs, or remove the skip.",
    "skipped_in_red": "{nodeid} {ends}. It must run and fail: remove the skip or xfail mark.",
    "skipped_in_green": "{nodeid} {ends}. It must run and pass: remove the skip or xfail mark.",
    "passed_on_rerun_of": "{nodeid} failed, and passed only when it ran again ({tries:99}). A rerun does not count for "
    "a target. Make it give the same result every time, in the first try.",
    "passed_on_some_rerun": "{nodeid} failed, and passed only when it ran again. A rerun does not count for a target. "
    "Make it give the same result every time, in the first try.",
    "flaky_target": "Reruns of {nodeid} gave different results: {tries:99}. Make it fail in the same way every time, "
    "independent of clock, chance, order and network.",
    "no_failure_given": "{nodeid} failed, but the report gives no failure. Run the tests again.",
    "wrong_phase": "{nodeid} failed in its {phase}: {failure}. The test's body must run and fail; fix its fixtures.",
    "wrong_reason": "{nodeid} fails for a wrong reason: {failure}. Make it fail by an assertion about the missing "
    "behavior, or because an expected name is missing.",
    "wrong_reason_or_defect": "{nodeid} fails for a wrong reason: {failure}. Make it fail by an assertion about the "
    "missing behavior, or because an expected name is missing. If this exception is the defect, declare {exception} as "
    "expected.",
    "foreign_name_missing": "{nodeid} fails because {missing} is missing, which does not belong to this project: "
    "{failure}. Fix the test, or install the version of the library that has it.",
    "name_not_expected": "{nodeid} fails because {missing} is missing: {failure}. Expected to be missing: {expected}. "
    "Fix the imports and names of the test, or declare the name as expected.",
    "some_name": "a name",
    "nothing": "nothing",
    "target_failed": "{nodeid} fails in its {phase}: {failure}. Make it pass.",
    "target_fails": "{nodeid} fails: {failure}. Make it pass.",
    "target_not_collected": "{nodeid} cannot be collected: {failure}. Fix the error.",
    "passes_but_marked": "{nodeid} passes but is marked as an expected failure. Remove the mark.",
    "body_did_not_run": "{nodeid} counts as passed, but its body did not run. Let it run.",
    "test_not_in_run": "{nodeid} is in the baseline but not in the run. Restore it.",
    "test_added": "{nodeid} is not in the baseline. Refactoring adds no tests: remove it, or add it in RED.",
    "broke_others": "{test} passed before and {ends} now: {failure}. Make it pass again.",
    "broke_without_failure": "{test} passed before and {ends} now. Make it pass again.",
    "renamed_test": "{now} (in the baseline {before})",
    "test_removed": "{nodeid} passed before but is not in this run. Restore it, and run all tests of the baseline.",
    "test_removed_or_deselected": "{nodeid} passed before but is not in this run. Restore it, and run all tests of the "
    "baseline; {deselected} tests were deselected by -k, -m, --deselect or a conftest file.",
    "collect_error": "{nodeid} cannot be collected: {failure}. Make its tests run as before.",
    "untargeted_failure": "{nodeid} fails but is neither a target nor in the baseline: {failure}. Name it as a target, "
    "fix it, or remove it.",
    "new_failure": "{nodeid} fails but is neither a target nor in the baseline: {failure}. Make it pass.",
    "shadows_tool": "{file} was added or changed; Python loads it instead of a test tool, or before it. Undo that.",
    "protected_changed": "{file} {change} since the baseline. Restore it. Change the product, not the tests or "
    "pytest's configuration.",
    "module_shadowed": "{file} {change} since the baseline. Rename it: tests would import it instead of an installed "
    "module.",
    "was_added": "was added",
    "was_removed": "was removed",
    "was_changed": "was changed",
    # The end of a test, and its failure.
    "test_passed": "passes",
    "test_failed": "fails",
    "test_error": "fails in its setup or teardown",
    "test_skipped": "was skipped",
    "test_xfailed": "is marked as an expected failure, and fails",
    "test_xpassed": "is marked as an expected failure, and passes",
    "ends_because": "{clause} ({why})",
    "plain_failure": "{kind}, {exception}",
    "failure_with_message": "{kind}, {exception}: {message}",
    "failure_with_place": "{kind}, {exception} ({path}:{line})",
    "failure_with_message_and_place": "{kind}, {exception}: {message} ({path}:{line})",
    "unknown_failure": "unknown failure",
    # Signs of tampering.
    "outcome_overridden": "an exception left the test, but the report says that it passed",
    "project_hook": "{hook} is implemented in {place}",
    "patched_runner": "{name} is {now}",
    "replaced_body": "tests run {body} instead of the collected function",
    "body_not_called": "a hook answered for the test without calling its function",
    "replaced_module": "{name} of the loaded module {module} is not what the file says",
    "item_dropped": "collected tests were removed from the run without being reported as deselected",
    RESCUED: "a plugin ran the test again after it failed, and then it passed",
    "class_in": "a class of {place}",
    "function_in": "{name} of {place}",
    "function_made_late": "{name}, made while the tests ran",
    "code_made_late": "code made while the tests ran",
    "not_a_function": "{type}, not a function",
    "value_removed": "removed",
    "value_changed": "changed",
    # Problems of the records, and their details.
    **{code: meaning[:-1] for code, meaning in PROBLEMS.items()},
    "problem_of_test": "{problem}: {nodeid}",
    "problem_with_detail": "{problem}: {detail}",
    "problem_of_test_with_detail": "{problem}: {nodeid}, {detail}",
    "damaged_detail": "{error}",
    "torn_line": "the last line is torn",
    "newer_records": "the schema of the records is newer than the reader",
    "plugin_failed_detail": "{error}",
    "wrong_digest_detail": "after {count} records",
    "unexpected_detail": "{event}",
    "after_finish_detail": "{event}",
    "repeated_phase_detail": "{phase}",
    "other_outcome_detail": "{before}, then {now}",
}
"""Case -> template. ``text`` is for words of others: a model, a hook, a user."""

_MOST_NAMES = 5
_FIELD = re.compile(
    r"\{(\w+)(!r)?(?::([^{}]*))?\}"
)  # of C, other than those of ``string``: a test may replace Python code
_LIST = re.compile(r"(\d*)([,;.]?)\Z")
_NOUN = re.compile(r"[a-z][a-z ]*\Z")


def explain(record: Reason | Sign | StreamProblem) -> str:
    """Return a record in English: a reason as sentences, the others as a clause."""
    return fill(as_clause(record), TEMPLATES)


def as_clause(record: Reason | Sign | StreamProblem) -> Clause:
    """Return a record as a part of another one; its template can also name its ``nodeid``."""
    if not isinstance(record, StreamProblem):
        return Clause(record.case or record.code, {"nodeid": record.nodeid or "", **record.parts})
    parts: dict[str, Part] = {"problem": Clause(record.code), "nodeid": record.nodeid}
    if not record.parts:
        return Clause("problem_of_test", parts) if record.nodeid else Clause(record.code)
    parts["detail"] = _get_detail(record)
    return Clause("problem_of_test_with_detail" if record.nodeid else "problem_with_detail", parts)


def explain_detail(problem: StreamProblem) -> str:
    """Return the details of a problem, without its meaning."""
    return fill(_get_detail(problem), TEMPLATES) if problem.parts else ""


def _get_detail(problem: StreamProblem) -> Clause:
    return Clause("text" if "text" in problem.parts else f"{problem.code}_detail", problem.parts)


def fill(clause: Clause, templates: Mapping[str, str]) -> str:
    """Return the template of a clause with its parts.

    A record can come from a later version or from a stranger, so an unknown case shows its parts, and a missing part
    shows a question mark.
    """
    template, parts = templates.get(clause.case), clause.parts
    if template is None:
        shown = ", ".join(f"{name}: {_format_part(value, templates=templates)}" for name, value in parts.items())
        return f"{clause.case} ({shown})" if shown else clause.case
    return _FIELD.sub(
        lambda found: _format_part(
            repr(parts.get(found[1])) if found[2] else parts.get(found[1], "?"), found[3] or "", templates=templates
        ),
        template,
    )


def format_count(number: int, noun: str) -> str:
    """Return the number with its noun, such as ``2 tests``."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def join_names(names: Sequence[str], *, most: int = _MOST_NAMES, separator: str = ", ") -> str:
    """Join the first ``most`` names, and say how many there are besides. A line end becomes visible."""
    names = [name.replace("\n", "<U+000A>").replace("\r", "<U+000D>") for name in names]
    shown, count = separator.join(names[:most]), len(names) - most
    if count <= 0:
        return shown
    if separator == " ":  # sentences
        return f"{shown} And {count} more."
    return f"{shown}{' ' if separator == ', ' else separator}and {count} more"


def _format_part(value: object, form: str = "", *, templates: Mapping[str, str]) -> str:
    if isinstance(value, Clause):
        return fill(value, templates)
    if isinstance(value, (tuple, list)):
        found = _LIST.match(form)
        most, separator = (found[1], found[2]) if found else ("", "")
        return join_names(
            [_format_part(each, templates=templates) for each in value],
            most=int(most) if most else _MOST_NAMES,
            separator=f"{separator.replace('.', '') if separator else ','} ",
        )
    if isinstance(value, int) and _NOUN.match(form):
        return format_count(value, form)
    try:
        return format(value, form)
    except ValueError:  # a part of another type than the template expects
        return str(value)
