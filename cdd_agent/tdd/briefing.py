"""The texts that the model reads in an attempt, and one-line summaries of verdicts.

Text from plans, tests and the gate is enclosed in marks, because others wrote it: the model must read it as data.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cdd_agent.agent.quoting import Marks
from cdd_agent.tdd.context import Brief, Phase, WorkItem
from cdd_agent.untrusted.keys import mask
from cdd_agent.work.state import AttemptRecord
from pytest_tdd_agent.report import Failure, SuiteReport, Verdict, count_outcomes

MAX_FAILURES_SHOWN = 5
MAX_FAILURE_CHARACTERS = 1_500
MAX_ATTEMPTS_SHOWN = 3

_BREAKAGE_CODES = ("broke_others:", "test_removed:", "collect_error:")
_COUNTED = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
_PROMPTS = Path(__file__).parent / "prompts"

REMEDIES: Mapping[str, str] = {
    "syntax_error": "a file cannot be parsed: fix the syntax at the reported location",
    "missing_module": "the module does not exist: create it where the import expects it",
    "import_error": "the module exists but lacks the name: define the name there",
    "collection_error": "importing a test file raises an exception: fix the code that runs during the import",
    "fixture_missing": "the test needs a fixture that does not exist; only a test file can define it: report it",
    "did_not_raise": "an exception is missing: raise the expected exception for that input",
    "did_not_warn": "a warning is missing: issue the expected warning for that input",
    "raises_match_mismatch": "the exception is right but its message is wrong: use the message that the test expects",
    "wrong_exception": "another exception is expected: raise that class, and define it if necessary",
    "not_implemented": "there is only a stub: implement it",
    "attribute_error": "the attribute or method is missing: add it to the reported object",
    "name_error": "the name is not defined: define or import it where it is used",
    "signature_mismatch": "the call does not match the signature: accept the arguments that the test passes",
    "assertion": "the code runs but its result is wrong: fix the logic; compare the expected and actual values",
    "timeout": "the code takes too long: look for an endless loop or for waiting",
    "crash": "the process died: remove os._exit, signals or crashing native code",
    "resource": "memory, disk or file descriptors ran out: use less, and close what you open",
    "recursion": "the recursion does not end: add a base case",
    "system_exit": "the code ends the process: raise an exception or return instead",
    "xpass_strict": "a test that is marked as an expected failure passes; only a test file can fix that: report it",
    "pytest_fail": "the test calls pytest.fail: do what its message says",
    "exception": "an unexpected exception: fix its cause at the reported location",
}
"""Failure kind, one of ``pytest_tdd_agent.failure.KINDS`` -> advice to the model."""


def read_phase_rules(phase: Phase) -> str:
    """Return the rules that a phase has in every workflow."""
    return (_PROMPTS / f"{phase}.md").read_text(encoding="utf-8").strip()


def format_system_prompt(brief: Brief, *, attempt: int, marks: Marks) -> str:
    """Return the system prompt; its last line identifies the attempt for recordings."""
    return f"{brief.role.strip()}\n\n{brief.rules.strip()}\n\n{marks.rule}\n\nWork: {brief.work} attempt {attempt}"


def format_task(
    brief: Brief,
    *,
    earlier: tuple[AttemptRecord, ...],
    is_anew: bool,
    failing: str,
    marks: Marks,
    remedies: Sequence[str] = (),
) -> str:
    """Return the first message of an attempt.

    ``earlier`` are the closed attempts at this phase; if ``is_anew``, their changes were rolled back. ``failing``
    describes the current failures and ``remedies`` how to fix them.
    """
    parts = [*_format_breakage(earlier, is_anew=is_anew, marks=marks), brief.task]
    parts.append(marks.wrap(brief.requirements, source=brief.source))
    if failing:
        when = "Failures before the rollback" if is_anew else "Current failures"
        parts.append(f"{when}:\n\n{marks.wrap(failing, source='tests')}")
    if remedies:
        parts.append(f"How to fix failures of these kinds:\n{format_bullets(remedies)}")
    if len(earlier) > MAX_ATTEMPTS_SHOWN:
        parts.append(f"The gate also refused {len(earlier) - MAX_ATTEMPTS_SHOWN} attempts before those below.")
    for attempt in earlier[-MAX_ATTEMPTS_SHOWN:]:
        reasons = marks.wrap(format_bullets(attempt.reasons), source=f"gate, attempt {attempt.number}")
        parts.append(f"Attempt {attempt.number} was refused by the gate:\n{reasons}")
    if earlier:
        here = (
            "Its changes were rolled back: the files are as they were when the phase began. Try a different approach."
            if is_anew
            else "The files still contain your work."
        )
        parts.append(f"{here} This is attempt {len(earlier) + 1} at {brief.phase.upper()}.")
    return "\n\n".join(parts)


def _format_breakage(earlier: tuple[AttemptRecord, ...], *, is_anew: bool, marks: Marks) -> tuple[str, ...]:
    reasons = earlier[-1].reasons if earlier else ()
    broken = [reason for reason in reasons if reason.startswith(_BREAKAGE_CODES)]
    if not broken:
        return ()
    todo = "It was rolled back; do not break them again" if is_anew else "Fix that first"
    shown = marks.wrap(format_bullets(broken), source="gate")
    return (f"The last attempt broke tests that passed before. {todo}:\n{shown}",)


def describe_item(item: WorkItem, *, heading: str) -> str:
    """Return title, goal, tests and files of an item as Markdown."""
    parts = [f"# {heading}: {item.title}", item.goal.strip()]
    if item.tests:
        parts.append("Tests:\n" + format_bullets([f"`{test}`" for test in item.tests]))
    if item.sources:
        parts.append("Files that are expected to change:\n" + format_bullets([f"`{path}`" for path in item.sources]))
    return "\n\n".join(part for part in parts if part)


def format_bullets(lines: Sequence[str]) -> str:
    """Return a Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


def list_remedies(failures: Iterable[Failure]) -> tuple[str, ...]:
    """Return one line of advice per failure kind; kinds that stop tests from running come first."""
    kinds = [failure.kind for failure in failures]
    return tuple(f"{kind} ({kinds.count(kind)}): {remedy}" for kind, remedy in REMEDIES.items() if kind in kinds)


def format_failures(report: SuiteReport, *, rank: Callable[[str], int] = lambda _: 0) -> str:
    """Return the failing tests with pytest's output, keys masked and text capped; lowest ``rank(nodeid)`` first."""
    failed = [(case.nodeid, case.failure) for case in report.tests if case.failure is not None]
    failed += [(error.nodeid, error.failure) for error in report.collect_errors]
    failed.sort(key=lambda known: rank(known[0]))
    shown = []
    for nodeid, failure in failed[:MAX_FAILURES_SHOWN]:
        location = f" at {failure.path}:{failure.line}" if failure.path else ""
        text = mask(failure.text).text[-MAX_FAILURE_CHARACTERS:]  # masked first: a cut key would not be recognized
        shown.append(f"{nodeid}: {failure.kind}: {failure.message}{location}\n{text}".rstrip())
    if len(failed) > MAX_FAILURES_SHOWN:
        shown.append(f"... and {len(failed) - MAX_FAILURES_SHOWN} more")
    return "\n\n".join(shown)


def format_reasons(verdict: Verdict) -> tuple[str, ...]:
    """Return each reason of a verdict as ``code: message``."""
    return tuple(f"{reason.code}: {reason.message}" for reason in verdict.reasons)


def summarize_evidence(verdict: Verdict, report: SuiteReport | None) -> str:
    """Return one line that says which test results a verdict is based on."""
    if report is None:
        ran = any(reason.code == "run_incomplete" for reason in verdict.reasons)
        return "the tests did not run to their end" if ran else "nothing was changed"
    count = {word: number for word, number in count_outcomes(report).items() if number and word in _COUNTED}
    if report.collect_errors:
        count["not importable"] = len(report.collect_errors)
    results = ", ".join(f"{number} {word}" for word, number in count.items()) or "no test was collected"
    if verdict.phase == "red" and verdict.open:
        kinds = sorted({case.failure.kind for case in report.tests if case.failure is not None})
        kinds += sorted({error.failure.kind for error in report.collect_errors})
        return f"{results}; fails by {', '.join(dict.fromkeys(kinds))}"
    return results
