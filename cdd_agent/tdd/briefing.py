"""What the model is told about one attempt: the phase's rules, the item, and what earlier attempts came to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cdd_agent.agent.quoted import Marks
from cdd_agent.guarded.keys import mask
from cdd_agent.tdd.policy import Phase, WorkItem
from cdd_agent.work.state import AttemptRecord
from pytest_tdd_agent.report import Reason, SuiteReport, Verdict, summary

MAX_FAILURES_SHOWN = 5
MAX_FAILURE_CHARACTERS = 1_500
MAX_ATTEMPTS_SHOWN = 3
BREAKAGES = ("broke_others:", "test_removed:", "collect_error:")
"""How reasons begin that tell of tests which passed before."""

_PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """How the model is spoken to in one phase of one work item."""

    phase: Phase
    agent: str
    """Who works, as events name it."""
    role: str
    """Who the model is told it is; the beginning of the system prompt."""
    rules: str
    """Of the phase."""
    work: str
    """What is worked on: the last line of the system prompt, by which a recording finds its turns."""
    task: str
    """What it is asked to do, in words of the program's."""
    stated: str
    """What is wanted, in words of plan, list or user."""
    source: str
    """Where those words come from."""
    judge: Callable[[str], tuple[Reason, ...]] | None = None
    """What speaks against the agent's last words and the files as they are, in PLAN; elsewhere the tests judge."""
    settled: Callable[[WorkItem, str], WorkItem] | None = None
    """The item as the agent's last words, once they stand, make it."""


BriefFor: TypeAlias = Callable[[WorkItem, Phase], Brief]


def rules_of(phase: Phase) -> str:
    """The rules of a phase that every workflow has."""
    return (_PROMPTS / f"{phase}.md").read_text(encoding="utf-8").strip()


def system_prompt(brief: Brief, *, attempt: int, marks: Marks) -> str:
    """Role, rules of the phase and of the marks, and a last line that names the attempt."""
    return f"{brief.role.strip()}\n\n{brief.rules.strip()}\n\n{marks.rule}\n\nWork: {brief.work} attempt {attempt}"


def task(
    brief: Brief,
    *,
    earlier: tuple[AttemptRecord, ...],
    is_anew: bool,
    failing: str,
    marks: Marks,
    remedies: Sequence[str] = (),
) -> str:
    """The first message of an attempt: what the plan, the tests and the gate say stands between the marks.

    ``earlier`` are the closed attempts at this phase, of which nothing is left in the files if it ``is_anew``;
    ``failing`` is what is red at the moment, if anything, and ``remedies`` what mends it. Tests that the last attempt
    broke come before everything else.
    """
    parts = [*_broken(earlier, is_anew=is_anew, marks=marks), brief.task]
    parts.append(marks.around(brief.stated, source=brief.source))
    if failing:
        when = "What failed then" if is_anew else "What fails now"
        parts.append(f"{when}:\n\n{marks.around(failing, source='tests')}")
    if remedies:
        parts.append(f"What mends failures of these kinds:\n{bullets(remedies)}")
    if len(earlier) > MAX_ATTEMPTS_SHOWN:
        parts.append(f"{len(earlier) - MAX_ATTEMPTS_SHOWN} attempts before those below were refused too.")
    for attempt in earlier[-MAX_ATTEMPTS_SHOWN:]:
        reasons = marks.around(bullets(attempt.reasons), source=f"gate, attempt {attempt.number}")
        parts.append(f"Attempt {attempt.number} was refused by the gate:\n{reasons}")
    if earlier:
        here = (
            "Its changes were taken back: the files are as they were when the phase began. Take another way."
            if is_anew
            else "Your work so far is in the files."
        )
        parts.append(f"{here} This is attempt {len(earlier) + 1} at {brief.phase.upper()}.")
    return "\n\n".join(parts)


def _broken(earlier: tuple[AttemptRecord, ...], *, is_anew: bool, marks: Marks) -> tuple[str, ...]:
    """What passed before the phase and did not after the last attempt, if anything."""
    reasons = earlier[-1].reasons if earlier else ()
    broken = [reason for reason in reasons if reason.startswith(BREAKAGES)]
    if not broken:
        return ()
    todo = "It was taken back; do not break them again" if is_anew else "Mend that before anything else"
    shown = marks.around(bullets(broken), source="gate")
    return (f"The last attempt broke tests that passed before. {todo}:\n{shown}",)


def stated(item: WorkItem, *, heading: str) -> str:
    """What is asked for, with the tests and files that are named, below ``heading``."""
    parts = [f"# {heading}: {item.title}", item.goal.strip()]
    if item.tests:
        parts.append("Tests:\n" + bullets([f"`{test}`" for test in item.tests]))
    if item.sources:
        parts.append("Files that are expected to change:\n" + bullets([f"`{path}`" for path in item.sources]))
    return "\n\n".join(part for part in parts if part)


def bullets(lines: Sequence[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


def failures(report: SuiteReport, *, rank: Callable[[str], int] = lambda _: 0) -> str:
    """The failing tests of a report with what pytest says of each, for a model to read: keys masked, then capped.

    ``rank`` takes a node id; the lowest come first.
    """
    failed = [(case.nodeid, case.failure) for case in report.tests if case.failure is not None]
    failed += [(error.nodeid, error.failure) for error in report.collect_errors]
    failed.sort(key=lambda known: rank(known[0]))
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
