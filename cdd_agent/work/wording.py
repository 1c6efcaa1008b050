"""The words of findings and reasons: one template for each case. Nothing reads what these templates make.

``pytest_tdd_agent.wording`` says how a template names the parts of a record, and has the cases of the gate.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

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
    "odd_status": "the tests ended with status 0 although {tests} failed; before the change, their command ended with "
    "an error when tests failed. Find what changes the exit status, and remove it.",
    "plan_locks": "PLAN may only write {listed}.",
    "pytest_locked": "Tests, conftest files and the pytest configuration are locked in {phase}.",
    "red_locks": "RED may only change tests; sources change in GREEN.",
    "several_tests": "RED may add one test but adds {count}: {tests}. Keep one; the others will get their own cycle.",
    "tests_locked": "Tests and their configuration are locked in {phase}.",
    "tests_not_all_there": "the tests that the step names do not all exist and pass, or a table of cases may lack one.",
    "tests_pass_altered": "{tests:2} pass even when the code is altered.",
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
    # What is wrong with a test list, or with the answer about it.
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
}
"""Case -> template. Besides its parts, a finding's template can name its fields, such as ``places`` and ``seconds``."""


def explain(record: Finding | Reason | Clause) -> str:
    """Return a finding, a reason or a part of one in English."""
    templates = {**wording.TEMPLATES, **TEMPLATES}
    if isinstance(record, Clause):
        return wording.fill(record, templates)
    if isinstance(record, Reason):
        return record.message or wording.fill(wording.as_clause(record), templates)
    figures: dict[str, Part] = {"places": record.places, "functions": record.functions}
    figures |= {name: value for name in ("calls", "runs", "seconds") if (value := getattr(record, name)) is not None}
    return wording.fill(Clause(record.case, {**figures, **record.parts}), templates)


def format_reason(reason: Reason) -> str:
    """Return a reason as ``code: message``, as it is shown in lists."""
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
