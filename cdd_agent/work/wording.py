"""The words of findings and reasons: one template for each case. Nothing reads what these templates make.

``pytest_tdd_agent.wording`` says how a template names the parts of a record, and has the cases of the gate.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from cdd_agent.untrusted.paths import Protection
from cdd_agent.work.finding import Finding
from pytest_tdd_agent import wording
from pytest_tdd_agent.report import Clause, Part, Reason

TEMPLATES: dict[str, str] = {
    # Why an attempt is refused, besides the gate's reasons.
    "by_hand": "the user marked the step done; all tests passed",
    "by_hand_untested": "the user marked the step done; all tests passed, but the step names no tests",
    "change_undone": "{path} was {kind}; it has been restored. {why} Leave it as it is.",
    "developer_said_no": "the developer said no",
    "dropped_tests": "it lacks tests that passed before the tests were written anew: {tests:10}. Write them again.",
    "in_git_lfs": "Its content is in Git LFS, where cdd stores nothing.",
    "in_submodule": "It is in a submodule.",
    "needs_approval": "Changes have been undone. {files:10.} This needs the developer's yes, and {by}. Move it to a "
    "file of a usual kind beside similar files, or leave it out.",
    "no_change": "no file was changed: an answer alone is not enough, write the files",
    "no_change_unfit": "no file was changed, but the files as they are do not suffice: {why}",
    "no_report": "no report",
    "nobody_to_ask": "nobody is there to ask",
    "none": "none",
    "not_in_its_file": "{nodeid} is not in its file, whose tests are: {tests}. Write the test under this name.",
    "not_named": "{phase} may only change {named}.",
    "odd_status": "the tests ended with status 0 although {tests} failed; before the change, their command ended with "
    "an error when tests failed. Find what changes the exit status, and remove it.",
    "plan_locks": "PLAN may only write {listed}.",
    "pytest_locked": "Tests, conftest files and the pytest configuration are locked in {phase}.",
    "red_locks": "RED may only change tests; sources change in GREEN.",
    "several_tests": "RED may add one test but adds {count}: {tests}. Keep one; the others will get their own cycle.",
    "signature_changed": "{path} no longer has the signatures of the graph. Restore them. {differs:10.}",
    "signature_differs": "The {part} of {name} must be `{expected}`, not `{found}`.",
    "signature_missing": "The {part} of {name} is missing: `{expected}`.",
    "tests_locked": "Tests and their configuration are locked in {phase}.",
    "tests_not_all_there": "the tests that the step names do not all exist and pass, or a table of cases may lack one.",
    "tests_pass_altered": "{tests:2} pass even when the code is altered.",
    "too_few_paths": "tests of {count} paths pass, but {least} are needed. The test of path N is `test_path_N`.",
    "too_few_tests": "it adds {count} tests, but a part needs at least {least}: for normal, edge and error cases.",
    "waiting_file": "{path}: {why}",
    "would_shadow_tool": "Python would load it instead of a test tool, or before it.",
    "write_needs_approval": "{why} This needs the developer's yes, and {by}. Move it to a file of a usual kind beside "
    "similar files, or leave it out.",
    **{f"protected_{each.name.lower()}": f"It {each.value}." for each in Protection},
    # Why a file waits for the developer's yes.
    "waits_alone": "The project has no other file *{suffix} there.",
    "waits_as_hook": "The hooks or the configuration of git name it, so git may start it.",
    "waits_as_instructions": "Agents obey documents with such names.",
    "waits_as_link": "It is a link, and its target may be anything.",
    "waits_as_program": "It can be run as a program now.",
    "waits_as_settings": "It tells tools which programs to start.",
    "waits_as_ticket": "cdd carries out the tickets of the project.",
    "waits_for_key": "It changes {key}, which may start programs.",
    "waits_in_root": "It is in the root of the project, where tools look for their settings, and no test names it.",
    "waits_unreadable": "It cannot be read. It tells tools which programs to start.",
    "waits_with_dot": "{name} begins with a dot, as the settings of tools do.",
    "waits_without_suffix": "The project has no other file without a suffix there.",
    # Errors in a test list, or in the answer about it.
    "already_done": "{test!r} is already done. Choose an open test.",
    "already_dropped": "{test!r} was dropped. Choose an open test.",
    "answer_empty": "The description of currentTest is empty",
    "answer_malformed": "CurrentTest does not have the required form: {error}",
    "answer_without_json": "The answer has no JSON with the key currentTest",
    "completed_test_lost": "{list} no longer contains the completed test {test!r}. Put it back as `- [x] {test}`.",
    "dropped_too_early": "Line {line} of {list} marks {test!r} as dropped, but no cycle dropped it. Remove {mark}.",
    "duplicate": "Line {line} of {list} lists {test!r} again. Reword it.",
    "list_missing": "{list} has no test. Write one line `- [ ] behavior` for each test.",
    "list_open": "The answer says that all tests are done, but {left} of {count} are open: {tests:3;}. Choose one of "
    "them.",
    "list_shrunk": "{list} has lost {lost} of its {count} tests. Put them back.",
    "no_answer": "{problem}. End your answer with {form}.",
    "no_source_file": "implFile {file!r} is not a source file. Name the file for the code.",
    "no_test_file": "testFile {file!r} is not a file in which tests are looked for. Name it as the project names its "
    "tests, for example tests/test_....py.",
    "not_dropped": "{test!r} was dropped, but line {line} of {list} does not say so. Write `- [ ] {test} {mark}`.",
    "not_listed": "{test!r} is not in {list}. Choose a description from the list, word for word, or add it first.",
    "not_ticked": "{test!r} is completed, but open in line {line} of {list}. Make its box [x].",
    "outside_project": "{error} Name files of the project, relative to its folder.",
    "test_defined_already": "{file} already has a test {name!r}. If it covers {test!r}, reword the list for another "
    "test.",
    "ticked_too_early": "Line {line} of {list} ticks {test!r}, but no cycle has completed it. Make its box [ ] again.",
    # Findings of the checks.
    "all_new_pass": "All {count} new tests, {tests:3}, pass",
    "all_raise": "all raise",
    "also_changed": "Also changed: {differences:5;}.",
    "also_kept": " {kept}.",
    "answered_call": "{call} {answer}",
    "asks_for_test": "asks whether a test is running",
    "asserts_nothing": "{tests:3} runs no assertion if a stub of {gaps:3} returns empty results, so code that returns "
    "nothing would pass. Assert outside of loops and conditions too, such as how many items there are.",
    "behavior_changed": "{differences:5;}. REFACTOR keeps the behavior: restore it in {places:5}.",
    "breaks": "The change breaks {rule}",
    "call_called": ", which can be called{then}",
    "call_changes": " and changes its arguments to ({text}){then}",
    "call_closed": ", and if it is closed after one item{then}",
    "call_endless": "does not end within {text} s{then}",
    "call_ends": "ends the process{then}",
    "call_enters": " and changes the current folder to {text}{then}",
    "call_gives": ", which gives its block {text}{then}",
    "call_holds": " and calls functions that then hold {text}{then}",
    "call_leaks": " and leaves a file open{then}",
    "call_leaves": " and leaves {text}: {other}{then}",
    "call_left": ", and if it is left by an exception{then}",
    "call_missing": "missing{then}",
    "call_moves": " and moves {text} to {other}{then}",
    "call_past": " without the method of the subclass{then}",
    "call_prints": " and prints {text}{then}",
    "call_raises": "raises {text}{then}",
    "call_removes": " and removes {text}{then}",
    "call_returns": "returns {text}{then}",
    "call_sets": " and sets the variable {text} to {other}{then}",
    "call_shares": " and returns {text} after a caller has emptied it{then}",
    "call_states": "raises {text}: {other}{then}",
    "call_stops": " and stops the exception{then}",
    "call_unfit": "unfit: {text}{then}",
    "call_unhashable": ", which cannot be hashed{then}",
    "call_unreadable": "returns a value that, when it is read, {then}",
    "canary_failed": "cdd ran two test files with known results next to {target}, and {misreport}. Without the change, "
    "the report is right. Find how the change manipulates the process that tests it, and remove that.",
    "canary_missing": "a test that ran is not in the report",
    "changed_files": "changed files",
    "changed_functions": "the changed functions of {files:1}",
    "changes_results": "it does not give the same result each time",
    "changes_tool": "changes a test tool",
    "compiled": "Compiled part not verified: {modules:3}.",
    "covered_as_a_whole": "The new test passes already and is kept. It needs {sources:2}. Not verified: cdd cannot "
    "alter single results with this framework.",
    "covered_did_not_end": "The new test passes already and is kept. Not verified: a run with altered code did not "
    "end.",
    "covered_not_tried": "The new test passes already and is kept. Not verified: {why}.",
    "covered_when_altered": "The new test passes already, even when the code is altered ({tried:9;}), and is removed. "
    "Assert a value that the code computes.",
    "covered_without_code": "The new test passes already, without any code in {sources:2}, and is removed. Call the "
    "code that the step is about.",
    "criterion": "{criterion}",
    "criterion_text": "{criterion} ({text})",
    "demands_more": "it uses what the change does not offer: {failure}",
    "did_not_end": "a run did not end",
    "did_not_run_there": "it did not run there",
    "difference": "{call} {before} before the change and {after} after it",
    "differs_outside": "{call} of {place} {in_tests} in a test run, and {plain} in a plain Python process: without "
    "pytest, without the tests, in another folder, with older files. Remove what makes the result depend on being "
    "tested.",
    "does_not_end": "it does not run to its end",
    "encoding": "To review in the change: {path} declares the encoding {encoding}; diffs show it as UTF-8.",
    "ends_process": "ends the process at once",
    "ends_with_error": "it ends with an error",
    "examined": "Examined: {count:further example} passed ({passed:8}).{left_out}{kept}",
    "example_failed": "{unmet}: {failed} of {count:further example} fail, with other inputs than those of the tests "
    "that you can see. Implement the rule, not its examples. If you are sure that the change meets it, report "
    "test_is_wrong with the reason.",
    "example_fails": "{criterion} {name}: fails{because}",
    "example_passes": "{criterion} {name}: passes{because}",
    "example_regressed": "{criterion} {name}: regressed{because}",
    "example_shown": "{wrong}. This further example must pass too. It fails: {why}.\n\n{source}",
    "example_stays": "{criterion} {name}: passes as before{because}",
    "example_undecided": "{criterion} {name}: does not count{because}",
    "example_untried": "{criterion} {name}: untried{because}",
    "example_unused": "{criterion} {name}: does not count{because}",
    "example_withdrawn": "{criterion} {name}: withdrawn{because}",
    "examples_kept": "{count:further example} of what held before passed",
    "examples_need_pytest": "further examples need pytest",
    "examples_only": "{found} Compute the answer from the arguments. If only these values exist, state them in the "
    "step or in a docstring.",
    "expectation_ignored": "{test} passes even if it expects something else ({altered}), so it accepts whatever the "
    "product answers. Compute the answer from the arguments alone.",
    "expectations_did_not_end": "Targets with other expected values did not end, so that proves nothing.",
    "expected_values": "the expected values",
    "failed_as": "{kind}, {exception}{message}",
    "failed_once": "A target failed once in a clean copy, but passed when it ran again.",
    "failed_once_in_copy": "A target failed once in a clean copy, but passed when all tests ran there.",
    "failing_misreported": "a test that fails, as expected, is reported as {outcome}{message}",
    "fails_otherwise": "without the change it fails for another reason: {failure}",
    "fails_with_stubs": "Checked with a stub of {gaps:3}: a new test fails there too ({runs:run}, {seconds:.1f} s).",
    "flaky_tests": "Flaky: {tests:3} failed, and passed in a second run on the same files, which counts.",
    "idle": "Not compared with the code before: {functions} (no test calls them with values that cdd can rebuild).",
    "imports_tests": "{place} imports {module}, which belongs to the tests, so it cannot be used without them. "
    "Implement the behavior in the product.",
    "imports_tool": "imports a test tool",
    "includes_other_files": "the change includes files other than Python sources",
    "internal": "Not compared with the code before: {functions} (only the product calls them, and in another way now; "
    "their callers were compared).",
    "is_outcome": "it is {outcome}",
    "keeps_example": "The Examiner has looked again and keeps this example. {reason}",
    "kept_rule": "a rule that held before the change",
    "left_no_answers": "it left no answers: {error}",
    "left_out": " Left out: {listed:4;}.",
    "line_holds_value": "{place} holds a value of {source}",
    "link_leads_out": "{path} is a link that leads out of the repository. Write it in UTF-8, as plain code that cdd "
    "and reviewers can read.",
    "linked_tests": "A link leads from the folder of the target tests out of the project, so cdd cannot add known "
    "tests.",
    "linked_tests_fail": "A link leads from the folder of the target tests out of the project, so cdd cannot add known "
    "tests, and the targets fail in a clean copy.",
    "loaded_elsewhere": "Not verified: {found:3;}, not from the clean copy.",
    "loaded_from": "{module} was loaded from {path}",
    "looks_at_callers": "looks at the code that calls it",
    "many_gaps": "more names are missing than {rounds} runs show",
    "many_ignored_files": "The targets fail in a clean copy of the tracked files, and there are too many ignored files "
    "to try.",
    "memorized": "{function} of {place} knows only the tests' calls: {example}, but all {count} similar calls have the "
    "same answer ({further}).",
    "memorized_complete": "{found} Check that no other values exist.",
    "memorized_names": "{found} Compute the answer from the arguments. If only these values exist, raise an error that "
    "says so for all others, or state them in the step or in a docstring.",
    "memorized_stated": "{found} The step states these values. Check that it means only them.",
    "message": ": {text}",
    "much_added": "so much was added that not all of it was compared with the values of ignored files: {paths}. Add at "
    "most {most} characters to a file; make larger data when the tests run.",
    "mutant": "{where}: {how}",
    "name_holds_value": "The name {place} holds a value of {source}",
    "name_in_module": "{name} in {path}",
    "names_report": "names the report of the tests",
    "names_test_file": "names a file of the tests",
    "names_tool": "names a test tool",
    "needs_ignored_files": "The targets need files that git ignores, some of these: {files:3}.",
    "needs_pytest": "that needs pytest",
    "needs_sandbox": "that needs the sandbox {levels}, because a call may write anywhere",
    "negated": "the condition {condition} is negated",
    "no_answers": "{purpose}: {problem}",
    "no_calls": "Not compared with the code before: no test runs code that uses what changed.",
    "no_canaries": "cdd cannot add tests with a known result to this project: {misreport}.",
    "no_clean_copy": "cdd could not create a clean copy: {why}",
    "no_content": "has no content",
    "no_plain_process": "Not compared with a plain Python process: {why}.",
    "no_plain_run": "Not verified: plain pytest does not work here: {problem}.",
    "no_recorded_turn": "the recording has no such turn",
    "no_rule_that_held": "it fails without the change, so it was not a rule before the change",
    "no_run_in_copy": "The tests cannot run in a clean copy of the tracked files: {problem}.",
    "no_stub": "cdd cannot create a stub of {name}",
    "none_counts": "Not examined: none of the further examples counts. {listed:5;}",
    "not_all_altered": "not every changed line was altered",
    "not_altered": "Not verified: {files:2} was not altered: {newer} can parse it, but not the {own} of cdd.",
    "not_compared": "Not compared with the code before: {why}.",
    "not_examined": "Not examined: {why}.",
    "not_importable": "cannot be imported",
    "not_loaded": "the targets do not load the changed files, or load them from elsewhere",
    "not_python": "{path} is not valid Python any more, {error}. Write it in UTF-8, as plain code that cdd and "
    "reviewers can read.",
    "not_refused": "Not refused, because further examples pass: {doubt}",
    "not_reproduced": "{test} passes in the work tree, but not in a clean copy with RED's tests and configuration: "
    "{failure}. Make it pass with files that git tracks, without modules that git ignores.",
    "not_verified": "Not verified: {why}.",
    "nothing_to_alter": "No altered code was tried: the change has no Python code to alter.",
    "one_example_failed": "{unmet}: {failed} of {count:further example} fails, with other inputs than those of the "
    "tests that you can see. Implement the rule, not its examples. If you are sure that the change meets it, report "
    "test_is_wrong with the reason.",
    "one_passes": "{tests} passes",
    "other_content": "another content of {files:99}",
    "other_expectation": "line {line}: {now} instead of {before}",
    "other_result": "return {now} instead of {before}",
    "other_value": "{now} instead of {before}",
    "others_fail_in_copy": "The tests need more than a clean copy of the tracked files: {count} more fail there, "
    "{first} first.",
    "passes_in_copy": "Checked in a clean copy: the tests pass there too, and fail with {altered} altered ({runs:run}, "
    "{seconds:.1f} s).",
    "passes_in_copy_unaltered": "Checked in a clean copy: the tests pass there too ({seconds:.1f} s).",
    "passes_when_idle": "{who} with code that does nothing, but not with code that prints, logs or writes. What should "
    "not happen is proven in GREEN: there, the altered code must make a test fail.",
    "passes_without": "it passes without the change; with it: {why}",
    "passing_misreported": "a test that passes is reported as {outcome}{message}",
    "person_decided": "a person decided so",
    "plain_ends_otherwise": "a plain run of pytest ends with status {status} although no test fails in it",
    "plain_fails": "in a plain run of pytest {test} does not pass: {failure}",
    "plain_without_results": "a plain run of pytest gives no results: {problem}",
    "process_ended_early": "it ended early: {output:1}",
    "product_ran": "{test} runs the product before it fails: that counts as behavior.",
    "purpose_altered": "targets with {where} altered",
    "raising_did_not_end": "Not checked whether a test notices these changed functions: {named} (a run did not end).",
    "raising_fails_otherwise": "Not checked whether a test notices these changed functions: {named} (the tests fail in "
    "another way if they raise an exception).",
    "ran_out": "The agent used up its limit in this attempt ({turns:turn}, {tool_calls:tool call}), so its work may be "
    "incomplete.",
    "reaches_files": "reaches the open files of the process",
    "renamed": "Not verified: the tests change their names in JUnit XML, so a plain run of pytest shows nothing.",
    "repeats_example": "repeats an example of the tests ({values:3})",
    "report_differs": "By the report of cdd's plugin, {target} passes, but {seen}. Find how the change manipulates the "
    "process that tests it, and remove that.",
    "report_lost": "The new test passes already and is removed: its report is lost.",
    "results_do_not_count": "The targets fail if the changed functions raise, but pass if their results are altered "
    "({tried:9;}). Check that they assert the purpose of the change.",
    "reused": "Test results reused: {run}.",
    "rule_broken": "The change breaks {rule}: {count:further example} passed before the change and failed after it, "
    "with other inputs than those of the tests that you can see. Keep the behavior that the step does not change. If "
    "you are sure that the step demands the new result, report test_is_wrong with the reason.",
    "runs_differ": "two runs gave different results",
    "same_answers": "Compared with the code before: {calls} calls of {functions} have the same results.",
    "same_answers_of_some": "Compared with the code before: {calls} calls of {functions} have the same results; "
    "{left_out} others were left out.",
    "same_outside": "Checked outside of a test run: {calls:call} of {functions:3} had the same result.",
    "sees_pytest": "{test} passes only where pytest's variables (PYTEST_CURRENT_TEST), log handlers and names of "
    "temporary folders are visible: {failure}. Remove what makes the result depend on being tested.",
    "shadows_tests": "The tests import {path} in place of {helper}.py of the tests. Rename it.",
    "short_values": "To review in the change: {found:5;}, too short to tell whether it is secret.",
    "stub_answers": ", whether it answers {answers}",
    "stub_is_idle": " that does nothing",
    "stub_type": ", whatever {type} it answers",
    "stubs_did_not_end": "a run with stubs did not end",
    "stubs_undecided": "Not checked whether the new tests pass with code that does nothing: {why}.",
    "survival_proves_nothing": "No target failed when the changed code was altered, but that proves nothing: {why}.",
    "suspicious_code": "{line}. Leave test tools and reports alone; make the product itself do what the tests expect.",
    "suspicious_line": "{place} {what}",
    "suspicious_lines": "To review in the change: {lines:3;}.",
    "the_code": "the code",
    "time_up": "the time for checks ended before {purpose} ({limit_s:g} s, evidence_timeout_s in .cdd/config.yaml)",
    "traces": "traces the process",
    "unchanged_existing": "No change was needed, says the model: {claim} ({tests:3} pass; they fail when the code is "
    "altered)",
    "unchanged_not_altered": "No change was needed, says the model: {claim} ({tests:3} pass; not verified with altered "
    "code)",
    "unchanged_tests_pass": "No change was needed, says the model: {claim} (its tests pass)",
    "unchanged_untested": "No change was needed, says the model: {claim} (not verified: no test of the step shows it)",
    "unhashable": "Changed: objects of {classes} can no longer be in a set, or be keys of a dictionary.",
    "unimplemented": "the function that is not implemented in {path}",
    "unmet": "{criterion} is not met",
    "unmet_text": "{criterion} is not met ({text})",
    "unnoticed": "No test fails if these changed functions raise an exception: {named}.",
    "unproven_change": "The targets pass even if the changed code is altered ({tried:9;}). Remove code that no test "
    "needs, and implement the behavior in the code that the targets call.",
    "unread": "Not verified: {path} could not be read: {why}.",
    "unread_foreign": "Not verified: {path} could not be read: only the project's Python can parse it.",
    "unreadable_calls": "the calls cannot be read: {error}",
    "unreadable_source": "{path} cannot be read: {why}. Write it in UTF-8, as plain code that cdd and reviewers can "
    "read.",
    "unstable": "Not compared with the code before: {functions} (the code before gives other results when it runs "
    "again).",
    "untracked_tests": "Git does not track the target tests, so they cannot run in a clean copy.",
    "unused_parameter": "does not use its parameter {name}",
    "vacuous_test": "{who} with a stub of {gaps:3}{what}, so any code of that name would pass. Assert the value, "
    "exception or effect that the code must produce.",
    "value_copied": "{found:5;}. git does not track that file, so its values must not get into a commit. Read the "
    "value when the program runs, from a variable or from the file; in tests and documents, use another one. If it is "
    "not secret, the developer says so by a commit that holds it: write it into a tracked document, then git commit -a",
    "values_changed": "changed",
    "with_reason": " ({why})",
    "worked_out_ahead": "Checked in a fork, in which the step was worked out. Here the tests ran.",
}
"""Case -> template. Besides its parts, a finding's template can name its fields, such as ``places`` and ``seconds``."""


def explain(record: Finding | Reason | Clause | str) -> str:
    """Return a record in English; words of others stay as they are."""
    if isinstance(record, str):
        return record
    unknown_check = ""
    if isinstance(record, Finding):
        unknown_check = "" if record.is_of_known_check else f"{record.check}: "
        known = {name: getattr(record, name) for name in ("places", "functions", "calls", "runs", "seconds")}
        figures: dict[str, Part] = {name: value for name, value in known.items() if value not in (None, ())}
        record = Clause(record.case, {**figures, **record.parts})
    clause = wording.as_clause(record) if isinstance(record, Reason) else record
    return unknown_check + wording.fill(clause, {**wording.TEMPLATES, **TEMPLATES})


def format_reason(reason: Reason) -> str:
    """Return a reason as ``code: message``, the form in lists."""
    return f"{reason.code}: {explain(reason)}"


def change_texts(parts: Mapping[str, Part], change: Callable[[str], str]) -> dict[str, Part]:
    """Return the parts with ``change`` applied to all texts, for example to hide secret values."""

    def apply(value: str | Clause) -> str | Clause:
        return change(value) if isinstance(value, str) else replace(value, parts=change_texts(value.parts, change))

    def apply_to_all(value: Part) -> Part:
        if isinstance(value, tuple):
            return tuple(map(apply, value))
        return apply(value) if isinstance(value, (str, Clause)) else value

    return {name: apply_to_all(value) for name, value in parts.items()}


def change_reason(reason: Reason, change: Callable[[str], str]) -> Reason:
    """Return the reason with ``change`` applied to all its texts."""
    nodeid = None if reason.nodeid is None else change(reason.nodeid)
    return replace(reason, nodeid=nodeid, parts=change_texts(reason.parts, change))


def change_finding(finding: Finding, change: Callable[[str], str]) -> Finding:
    """Return the finding with ``change`` applied to all its texts."""
    places, functions = (tuple(map(change, texts)) for texts in (finding.places, finding.functions))
    return replace(finding, places=places, functions=functions, parts=change_texts(finding.parts, change))


def add_messages(plain: object) -> object:
    """Return plain values for JSON with ``message`` in each reason and finding: its words, for people."""
    if isinstance(plain, (list, tuple)):
        return [*map(add_messages, plain)]
    if not isinstance(plain, dict):
        return plain
    made = {key: add_messages(value) for key, value in plain.items()}
    if {"case", "parts"} <= made.keys() and not made.keys().isdisjoint({"code", "check"}):
        record = msgspec.convert(plain, type=Reason) if "code" in made else msgspec.convert(plain, type=Finding)
        made["message"] = explain(record)
    return made


def has_quoted(reasons: Iterable[Reason], words: str) -> bool:
    """Return whether a part of a reason contains ``words`` of others, such as a node id or a model's text."""
    return any(words in text for reason in reasons for text in (reason.nodeid or "", *_list_texts(reason)))


def _list_texts(record: Reason | Clause) -> Iterator[str]:
    for part in record.parts.values():
        for value in part if isinstance(part, tuple) else (part,):
            if isinstance(value, Clause):
                yield from _list_texts(value)
            elif isinstance(value, str):
                yield value
