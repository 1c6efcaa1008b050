"""The texts for the model: the rules of a phase, the work item, its failures, and the earlier attempts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cdd_agent.model.conversation import Marks
from cdd_agent.tdd.context import Brief, Phase, WorkItem
from cdd_agent.untrusted.keys import mask
from cdd_agent.work.state import AttemptRecord
from pytest_tdd_agent.report import Failure, SuiteReport

MAX_FAILURES_SHOWN = 5
MAX_FAILURE_CHARACTERS = 1_500
MAX_ATTEMPTS_SHOWN = 3

_RESTORED_CODES = ("protected_changed:", "source_changed:")
_BREAKAGE_CODES = ("broke_others:", "test_removed:", "collect_error:")
_PROMPTS = Path(__file__).parent / "prompts"
_WITH_TOOLS = "## With your tools"
"""The section that a model without tools does not get."""


@cache
def load_remedies() -> Mapping[str, str]:
    """Return failure kind, one of ``pytest_tdd_agent.failure.KINDS`` -> advice to the model."""
    rows = (_PROMPTS / "remedies.md").read_text(encoding="utf-8").splitlines()
    return dict(row.removeprefix("- ").split(": ", 1) for row in rows)


def read_phase_rules(phase: Phase, *, has_tools: bool = True) -> str:
    """Return the rules that a phase has in every workflow; those about tools only if the model ``has_tools``."""
    rules, heading, about_tools = (_PROMPTS / f"{phase}.md").read_text(encoding="utf-8").partition(_WITH_TOOLS)
    return f"{rules}{heading if has_tools else ''}{about_tools if has_tools else ''}".strip()


def format_system_prompt(brief: Brief, *, marks: Marks) -> str:
    """Return the system prompt, which is the same for all attempts of a workflow."""
    return f"{brief.role.strip()}\n\n{marks.rule}"


def format_step(brief: Brief, *, facts: str = "", files: str = "", marks: Marks) -> str:
    """Return the part of the first message that is the same for all attempts at a step; ``files`` quotes its files."""
    parts = [marks.wrap(brief.requirements, source=brief.source)]
    if facts:
        parts.append(facts)
    if files:
        parts.append(f"The files of this work, as they were when it began:\n\n{files}")
    return "\n\n".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """What an attempt begins with, besides the step itself."""

    earlier: tuple[AttemptRecord, ...] = ()
    """The closed attempts at this phase."""
    is_anew: bool = False
    """Whether their changes were rolled back."""
    failing: str = ""
    """The current failures."""
    remedies: tuple[str, ...] = ()
    """How to fix them."""
    refusal: str = ""
    """What an earlier try at the step left."""
    diff: str = ""
    """The changes of the step that the files contain."""
    undone: str = ""
    """The changes of the last attempt, if they were rolled back."""
    guidance: str = ""
    """The user's."""
    further: str = ""
    """A further example that must pass."""


def format_task(brief: Brief, occasion: Occasion, *, marks: Marks) -> str:
    """Return the end of the first message of an attempt; its last line identifies the attempt for recordings."""
    earlier, is_anew = occasion.earlier, occasion.is_anew
    phase, number = brief.phase.upper(), len(earlier) + 1
    parts = [
        brief.rules.strip(),
        occasion.refusal,
        *_format_breakage(earlier, phase=brief.phase, is_anew=is_anew, marks=marks),
    ]
    if occasion.diff:
        diff = marks.wrap(occasion.diff, source="changes of this step")
        parts.append(f"The changes of this step so far, which the files already contain:\n\n{diff}")
    if occasion.failing:
        when = "Failures before the rollback" if is_anew else "Current failures"
        parts.append(f"{when}:\n\n{marks.wrap(occasion.failing, source='tests')}")
    if occasion.remedies:
        parts.append(f"How to fix failures of these kinds:\n{format_bullets(occasion.remedies)}")
    if len(earlier) > MAX_ATTEMPTS_SHOWN:
        parts.append(f"The gate also refused {len(earlier) - MAX_ATTEMPTS_SHOWN} attempts before those below.")
    for attempt in earlier[-MAX_ATTEMPTS_SHOWN:]:
        reasons = marks.wrap(format_bullets(attempt.reasons), source=f"gate, attempt {attempt.number}")
        parts.append(f"Attempt {attempt.number} was refused by the gate:\n{reasons}")
    if earlier and earlier[-1].words:
        words = marks.wrap(earlier[-1].words, source=f"attempt {earlier[-1].number}")
        parts.append(f"Its last words, written before the gate ran:\n{words}")
    if is_anew:
        parts.append(
            "Its changes were rolled back: the files are as they were when the phase began. Try a different approach."
        )
    elif earlier:
        parts.append("The files still contain your work.")
    if occasion.undone:
        parts.append(f"What it had changed:\n\n{marks.wrap(occasion.undone, source='changes that were undone')}")
    parts += [occasion.further.strip(), occasion.guidance]
    parts.append(f"{brief.task} This is attempt {number} at {phase}.")
    parts.append(f"Work: {brief.work} attempt {number}")
    return "\n\n".join(part for part in parts if part)


def _format_breakage(
    earlier: tuple[AttemptRecord, ...], *, phase: Phase, is_anew: bool, marks: Marks
) -> tuple[str, ...]:
    reasons = earlier[-1].reasons if earlier else ()
    codes = (*_BREAKAGE_CODES, "target_failed:") if phase == "refactor" else _BREAKAGE_CODES
    broken = [reason for reason in reasons if reason.startswith(codes)]
    # Tests that a locked file broke are whole again, because it has been restored since.
    if not broken or any(reason.startswith(_RESTORED_CODES) for reason in reasons):
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
    return tuple(f"{kind} ({kinds.count(kind)}): {remedy}" for kind, remedy in load_remedies().items() if kind in kinds)


def format_failures(report: SuiteReport, *, rank: Callable[[str], int] = lambda _: 0) -> str:
    """Return the failing tests with pytest's output, keys masked and text capped; lowest ``rank(nodeid)`` first."""
    failed = [(case.nodeid, case.failure) for case in report.tests if case.failure is not None]
    failed += [(error.nodeid, error.failure) for error in report.collect_errors]
    failed.sort(key=lambda known: rank(known[0]))
    shown = [_format_failure(nodeid, failure) for nodeid, failure in failed[:MAX_FAILURES_SHOWN]]
    if len(failed) > MAX_FAILURES_SHOWN:
        shown.append(f"... and {len(failed) - MAX_FAILURES_SHOWN} more")
    return "\n\n".join(shown)


def _format_failure(nodeid: str, failure: Failure) -> str:
    location = f" at {failure.path}:{failure.line}" if failure.path else ""
    text = mask(failure.text).text[-MAX_FAILURE_CHARACTERS:]  # masked first: a cut key would not be recognized
    # pytest's output ends with the message, which may be long.
    is_shown = all(line.strip() in text for line in failure.message.splitlines())
    message = "" if is_shown else f": {failure.message}"
    return f"{nodeid}: {failure.kind}{location}{message}\n{text}".rstrip()
