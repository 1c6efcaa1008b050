"""What the model is told about one attempt: the phase's rules, the item, and what earlier attempts came to."""

from collections.abc import Sequence
from pathlib import Path

from cdd_agent.agent.quoted import Marks
from cdd_agent.guarded.keys import mask
from cdd_agent.tdd.policy import Phase, WorkItem
from cdd_agent.work.state import AttemptRecord
from pytest_tdd_agent.report import SuiteReport, Verdict, summary

PROMPTS = Path(__file__).parent / "prompts"
MAX_FAILURES_SHOWN = 5
MAX_FAILURE_CHARACTERS = 1_500


def system_prompt(role: str, item: WorkItem, *, phase: Phase, attempt: int, marks: Marks) -> str:
    """Role, rules of the phase and of the marks, and a last line that names the attempt.

    By that line a recording finds its turns.
    """
    rules = (PROMPTS / f"{phase}.md").read_text(encoding="utf-8")
    work = f"Work: executor {item.ticket} step {item.number} {phase} attempt {attempt}"
    return f"{role.strip()}\n\n{rules.strip()}\n\n{marks.rule}\n\n{work}"


def task(item: WorkItem, phase: Phase, *, earlier: tuple[AttemptRecord, ...], failing: str, marks: Marks) -> str:
    """The first message of an attempt: what the plan, the tests and the gate say stands between the marks.

    ``earlier`` are the closed attempts at this phase; ``failing`` is what is red at the moment, if anything.
    """
    parts = [f"Carry out step {item.number} of the plan.", marks.around(_step(item), source="plan.md")]
    if failing:
        parts.append("What fails now:\n\n" + marks.around(failing, source="pytest"))
    for attempt in earlier:
        reasons = marks.around(_bullets(attempt.reasons), source=f"gate, attempt {attempt.number}")
        parts.append(f"Attempt {attempt.number} was refused by the gate:\n{reasons}")
    if earlier:
        parts.append(f"Your work so far is in the files. This is attempt {len(earlier) + 1} at {phase.upper()}.")
    return "\n\n".join(parts)


def _step(item: WorkItem) -> str:
    """What the plan says of the step."""
    parts = [f"# Step {item.number}: {item.title}", item.goal.strip()]
    if item.tests:
        parts.append("Tests of this step:\n" + _bullets([f"`{test}`" for test in item.tests]))
    if item.sources:
        parts.append("Files this step is expected to change:\n" + _bullets([f"`{path}`" for path in item.sources]))
    return "\n\n".join(part for part in parts if part)


def _bullets(lines: Sequence[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


def failures(report: SuiteReport) -> str:
    """The failing tests of a report with what pytest says of each, for a model to read: keys masked, then capped."""
    failed = [(case.nodeid, case.failure) for case in report.tests if case.failure is not None]
    failed += [(error.nodeid, error.failure) for error in report.collect_errors]
    shown = []
    for nodeid, failure in failed[:MAX_FAILURES_SHOWN]:
        place = f" at {failure.path}:{failure.line}" if failure.path else ""
        text = mask(failure.text).text[-MAX_FAILURE_CHARACTERS:]
        shown.append(f"{nodeid}: {failure.kind}: {failure.message}{place}\n{text}".rstrip())
    if len(failed) > MAX_FAILURES_SHOWN:
        shown.append(f"... and {len(failed) - MAX_FAILURES_SHOWN} more")
    return "\n\n".join(shown)


def reason_lines(verdict: Verdict) -> tuple[str, ...]:
    """Each reason of a verdict as ``code: message``."""
    return tuple(f"{reason.code}: {reason.message}" for reason in verdict.reasons)


def evidence(verdict: Verdict, report: SuiteReport | None) -> str:
    """What a verdict rests on, in one line."""
    if report is None:
        ran = any(reason.code == "run_incomplete" for reason in verdict.reasons)
        return "the tests did not run to their end" if ran else "nothing was changed"
    count = {word: number for word, number in summary(report).items() if number and word in _COUNTED}
    if report.collect_errors:
        count["not importable"] = len(report.collect_errors)
    told = ", ".join(f"{number} {word}" for word, number in count.items())
    if verdict.phase == "red" and verdict.open:
        kinds = sorted({case.failure.kind for case in report.tests if case.failure is not None})
        kinds += sorted({error.failure.kind for error in report.collect_errors})
        return f"{told or 'no test was collected'}; fails by {', '.join(dict.fromkeys(kinds))}"
    return told or "no test was collected"


_COUNTED = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
