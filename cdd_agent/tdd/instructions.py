"""The instructions of an attempt: one table of texts, by phase, kind of step, and reason for the attempt.

Each row of ``TABLE`` names a text in ``prompts/*.md`` and tells when an attempt gets it. A text may have places such as
``{failing}``: without something to put there, the text is left out, and so is a line about a tool that is not offered.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from cdd_agent.model.conversation import Marks
from cdd_agent.tdd.context import Brief, Kind, Phase, Policy, WorkItem
from cdd_agent.tickets.spec import Spec
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.text import cut_end
from cdd_agent.work.handoff import phase_name
from cdd_agent.work.state import AttemptRecord, RefusedTry, StepExecution
from cdd_agent.work.wording import explain, format_reason, has_quoted
from pytest_tdd_agent.failure import BEHAVIORAL, STRUCTURAL
from pytest_tdd_agent.report import Failure, Reason, SuiteReport

MAX_FAILURES_SHOWN = 5
MAX_FAILURE_CHARACTERS = 1_500
MAX_ATTEMPTS_SHOWN = 3

_MAX_TICKET_CHARACTERS = 4_000
"""Of each text about the ticket as a whole."""
_RESTORED_CODES = ("protected_changed", "source_changed")
_BREAKAGE_CODES = ("broke_others", "test_removed", "collect_error")
_PROMPTS = Path(__file__).parent / "prompts"
_TOOL = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`")
"""A tool as the texts name it; they set nothing else in such marks."""
_ORDER: tuple[Phase, ...] = ("plan", "red", "green", "refactor")
_PLACE = re.compile(r"\{(\w+)\}")


class Circumstance(StrEnum):
    """A reason for an attempt, or a property of its step, on which the instructions depend."""

    RETRIED = "retried"
    """An earlier try at the step was refused and undone, in this phase or in a later one."""
    RETRIED_HERE = "retried here"
    """It was refused in this phase."""
    SENT_BACK = "sent back"
    """GREEN reported that the test is wrong, so that RED writes it again."""
    REWRITTEN = "rewritten"
    """RED has written the test again since then."""
    GUIDED = "guided"
    """The user has said something about the step."""
    ITERATED = "iterated"
    """The step has landed, and runs again because the reviewer wants something to be different."""
    REFUSED = "refused"
    """An attempt before this one was refused, and the files contain its work."""
    UNCHANGED = "unchanged"
    """The last attempt changed nothing."""
    ROLLED_BACK = "rolled back"
    """An attempt before this one was refused, and its work was rolled back."""
    RESUMED = "resumed"
    """An attempt before this one was interrupted, and the files contain its work."""
    INTERRUPTED = "interrupted"
    """An attempt before this one was interrupted, and the files lack its work."""
    FORKED = "forked"
    """The step runs again in a fork."""
    CONTINUED = "continued"
    """The messages of the first run precede this one."""
    TEST_IDS = "test ids"
    """The step names tests."""
    TEST_FILES = "test files"
    """The step names only files of tests."""
    SOURCES = "sources"
    """The step names files that it changes."""
    ONE_TEST = "one test"
    """RED adds one test, which may pass at once."""
    OWN_RULES = "own rules"
    """The workflow says itself in which manner to write."""
    NO_TOOLS = "no tools"
    """The model answers with whole files."""


_WRITES_TESTS: tuple[Kind, ...] = ("feature", "bug")
_PLAIN: tuple[Kind, ...] = ("docs", "chore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """A text, and the attempts that get it."""

    text: str
    """Its name in ``prompts/phases.md`` or ``prompts/reasons.md``."""
    phases: tuple[Phase, ...] = ()
    """Empty: all; so are the kinds."""
    kinds: tuple[Kind, ...] = ()
    when: tuple[Circumstance, ...] = ()
    """All of them must hold."""
    unless: tuple[Circumstance, ...] = ()
    """None of them may hold."""

    def fits(self, brief: Brief, circumstances: Collection[Circumstance]) -> bool:
        """Return whether an attempt in these circumstances gets the text."""
        if brief.phase not in (self.phases or (brief.phase,)) or brief.kind not in (self.kinds or (brief.kind,)):
            return False
        return set(self.when) <= set(circumstances) and set(self.unless).isdisjoint(circumstances)


_C = Circumstance
TABLE: tuple[Instruction, ...] = (
    Instruction(text="red", phases=("red",), unless=(_C.ITERATED,)),
    Instruction(text="red_iterated", phases=("red",), when=(_C.ITERATED,)),
    Instruction(text="red_rules", phases=("red",)),
    Instruction(text="red_test_ids", phases=("red",), when=(_C.TEST_IDS,), unless=(_C.ITERATED,)),
    Instruction(text="red_test_files", phases=("red",), when=(_C.TEST_FILES,), unless=(_C.ITERATED, _C.ONE_TEST)),
    Instruction(text="red_test_again", phases=("red",), when=(_C.ITERATED,)),
    Instruction(text="red_one_test", phases=("red",), when=(_C.ONE_TEST,)),
    Instruction(text="red_failures", phases=("red",)),
    Instruction(text="red_missing", phases=("red",), when=(_C.SOURCES,)),
    Instruction(text="red_defect", phases=("red",), kinds=("bug",)),
    Instruction(text="red_fails", phases=("red",), unless=(_C.ONE_TEST,)),
    Instruction(text="red_exists", phases=("red",), when=(_C.TEST_IDS,), unless=(_C.ONE_TEST, _C.ITERATED)),
    Instruction(text="red_may_pass", phases=("red",), when=(_C.ONE_TEST,)),
    Instruction(text="red_end", phases=("red",), unless=(_C.ONE_TEST,)),
    Instruction(text="red_end_one", phases=("red",), when=(_C.ONE_TEST,)),
    Instruction(text="green", phases=("green",), kinds=_WRITES_TESTS),
    Instruction(text="green_simple", phases=("green",), kinds=_WRITES_TESTS, unless=(_C.OWN_RULES,)),
    Instruction(text="green_docs", phases=("green",), kinds=("docs",)),
    Instruction(text="green_chore", phases=("green",), kinds=("chore",)),
    Instruction(text="green_named", phases=("green",), kinds=_PLAIN, when=(_C.TEST_IDS,)),
    Instruction(text="green_named", phases=("green",), kinds=_PLAIN, when=(_C.TEST_FILES,)),
    Instruction(text="refactor", phases=("refactor",), kinds=_WRITES_TESTS),
    Instruction(text="refactor_step", phases=("refactor",), kinds=("refactor",), unless=(_C.ITERATED,)),
    Instruction(text="refactor_iterated", phases=("refactor",), kinds=("refactor",), when=(_C.ITERATED,)),
    Instruction(text="needs_nothing", phases=("green",), kinds=_PLAIN, unless=(_C.ITERATED,)),
    Instruction(text="needs_nothing", phases=("refactor",), kinds=("refactor",), unless=(_C.ITERATED,)),
    Instruction(text="locked", phases=("green", "refactor")),
    Instruction(text="wrong_test", phases=("green",), kinds=_WRITES_TESTS),
    Instruction(text="wrong_test_in_words", phases=("green",), kinds=_WRITES_TESTS, when=(_C.NO_TOOLS,)),
    Instruction(text="run_tests", phases=("green", "refactor"), kinds=("feature", "bug", "refactor", "chore")),
    Instruction(text="end", phases=("green", "refactor")),
    Instruction(text="workflow_rules"),
    Instruction(text="impact", phases=("green", "refactor")),
    Instruction(text="retried", when=(_C.RETRIED,)),
    Instruction(text="sent_back", when=(_C.SENT_BACK,)),
    Instruction(text="rewritten", when=(_C.REWRITTEN,)),
    Instruction(text="try_words"),
    Instruction(text="try_failures", when=(_C.RETRIED_HERE,)),
    Instruction(text="try_refused", when=(_C.RETRIED_HERE,)),
    Instruction(text="try_earlier", when=(_C.RETRIED,), unless=(_C.RETRIED_HERE,)),
    Instruction(text="try_earlier", when=(_C.SENT_BACK,)),
    Instruction(text="try_code", when=(_C.REWRITTEN,)),
    Instruction(text="forked", when=(_C.FORKED,)),
    Instruction(text="continued", when=(_C.CONTINUED,)),
    Instruction(text="resumed", when=(_C.RESUMED,)),
    Instruction(text="interrupted", when=(_C.INTERRUPTED,)),
    Instruction(text="interrupted_changes", when=(_C.INTERRUPTED,)),
    Instruction(text="interrupted_words"),
    Instruction(text="broke", when=(_C.REFUSED,)),
    Instruction(text="broke_rolled_back", when=(_C.ROLLED_BACK,)),
    Instruction(text="diff"),
    Instruction(text="failing", unless=(_C.ROLLED_BACK, _C.RESUMED)),
    Instruction(text="failing_resumed", when=(_C.RESUMED,), unless=(_C.ROLLED_BACK,)),
    Instruction(text="failing_rolled_back", when=(_C.ROLLED_BACK,)),
    Instruction(text="remedies"),
    Instruction(text="where"),
    Instruction(text="where_tools"),
    Instruction(text="omitted"),
    Instruction(text="attempts"),
    Instruction(text="words"),
    Instruction(text="rolled_back", when=(_C.ROLLED_BACK,), unless=(_C.RESUMED,)),
    Instruction(text="rolled_back_resumed", when=(_C.ROLLED_BACK, _C.RESUMED)),
    Instruction(text="kept", when=(_C.REFUSED,), unless=(_C.UNCHANGED,)),
    Instruction(text="undone", when=(_C.ROLLED_BACK,)),
    Instruction(text="example", phases=("green",)),
    Instruction(text="guided", when=(_C.GUIDED,)),
    Instruction(text="iterated", when=(_C.ITERATED,)),
    Instruction(text="iterated_red", phases=("red",), when=(_C.ITERATED,)),
    Instruction(text="iterated_green", phases=("green",), when=(_C.ITERATED,)),
    Instruction(text="iterated_refactor", phases=("refactor",), kinds=_WRITES_TESTS, when=(_C.ITERATED,)),
    Instruction(text="comments", when=(_C.ITERATED,)),
    Instruction(text="task"),
)
"""The instructions of an attempt, in this order."""


@cache
def load_texts() -> Mapping[str, str]:
    """Return name -> text of all sections of ``phases.md`` and ``reasons.md``."""
    found: dict[str, str] = {}
    for file in ("phases.md", "reasons.md"):
        _, *parts = re.split(r"^# (\w+)\n", (_PROMPTS / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
        found |= {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
    return found


@cache
def load_remedies() -> Mapping[str, str]:
    """Return failure kind, one of ``pytest_tdd_agent.failure.KINDS`` -> advice to the model."""
    return _load_list("remedies.md")


@cache
def load_right_failures() -> Mapping[str, str]:
    """Return failure kind that RED accepts -> its name in a sentence."""
    return _load_list("failures.md")


def _load_list(file: str) -> Mapping[str, str]:
    rows = (_PROMPTS / file).read_text(encoding="utf-8").splitlines()
    return dict(row.removeprefix("- ").split(": ", 1) for row in rows)


def keep_offered(text: str, offered: Collection[str]) -> str:
    """Return ``text`` without the paragraphs and list items that name a tool which is not ``offered``.

    >>> keep_offered("- `Read` it.\\n- Run `Bash`,\\n  if you like.\\n- Answer.", {"Read"})
    '- `Read` it.\\n- Answer.'
    """
    blocks = re.split(r"(?<=\n)(?=- |\n)", text)
    return "".join(block for block in blocks if all(name in offered for name in _TOOL.findall(block))).strip("\n")


def _fill(name: str, facts: Mapping[str, str], *, offered: Collection[str]) -> str:
    """Return a text with ``facts`` in its places; empty if one of them is missing."""
    text = keep_offered(load_texts()[name], offered)
    if not all(facts.get(place) for place in _PLACE.findall(text)):
        return ""
    return _PLACE.sub(lambda place: facts[place[1]], text)  # once: a fact may contain braces


def _join(texts: Iterable[str]) -> str:
    """Return the texts as paragraphs; items of a list that follow each other are one list."""
    joined, last = "", ""
    for text in filter(None, texts):
        is_same_list = text.startswith("- ") and last.rpartition("\n\n")[2].startswith("- ")
        if joined:
            joined += "\n" if is_same_list else "\n\n"
        joined += text
        last = text
    return joined


def format_nudge(*, offered: Collection[str]) -> str:
    """Return what an agent can do that has answered without any work."""
    return _fill("nudge" if offered else "nudge_blocks", {}, offered=offered)


def format_objections(objections: Iterable[Reason], *, marks: Marks) -> str:
    """Return what is wrong with an agent's answer, for the same conversation."""
    rows = marks.wrap(format_bullets([explain(reason) for reason in objections]), source="gate")
    return _fill("nudge_objections", {"objections": rows}, offered=())


def find_circumstances(item: WorkItem, policy: Policy) -> frozenset[Circumstance]:
    """Return the properties of a step on which its instructions depend."""
    found = {
        Circumstance.NO_TOOLS: policy.edit_format != "tools",
        Circumstance.ONE_TEST: policy.single_test and policy.accepts_covered,
        Circumstance.TEST_IDS: any("::" in test for test in item.tests),
        Circumstance.SOURCES: bool(item.sources),
        Circumstance.TEST_FILES: bool(item.tests) and not any("::" in test for test in item.tests),
    }
    return frozenset(each for each, holds in found.items() if holds)


def format_system_prompt(brief: Brief, *, offered: Collection[str], marks: Marks) -> str:
    """Return the system prompt, which is the same for all attempts of an agent; without tools it answers with files."""
    manual = (_PROMPTS / ("tools.md" if offered else "blocks.md")).read_text(encoding="utf-8")
    return "\n\n".join([*(keep_offered(text.strip(), offered) for text in (brief.role, manual)), marks.rule])


def format_step(brief: Brief, *, facts: str = "", outline: str = "", files: str = "", marks: Marks) -> str:
    """Return the part of the first message that is the same for all attempts at a step.

    ``outline`` describes the project, ``files`` quotes the files of the step.
    """
    shown = f"The files of this work, as they were when it began:\n\n{files}" if files else ""
    parts = (marks.wrap(brief.requirements, source=brief.source), facts, outline, shown)
    return "\n\n".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """The situation of an attempt at its start, besides the step itself."""

    circumstances: frozenset[Circumstance] = frozenset()
    """Those of the step's text, of its conversation and of an interruption; the rest is in the other fields."""
    step: StepExecution | None = None
    """The step so far; None if it has just begun."""
    earlier: tuple[AttemptRecord, ...] = ()
    """The closed attempts at this phase."""
    is_anew: bool = False
    """Whether their changes were rolled back."""
    failing: str = ""
    """The current failures."""
    remedies: tuple[str, ...] = ()
    """How to fix them."""
    places: str = ""
    """Where they lead."""
    interrupted: str = ""
    """The changes of an attempt that was interrupted."""
    interrupted_words: str = ""
    """Its last words."""
    diff: str = ""
    """The changes of the step that the files contain."""
    undone: str = ""
    """The changes of the last attempt, if they were rolled back."""
    further: str = ""
    """A further example that must pass."""
    impact: str = ""
    """The other tests that run code of the step's files."""


def format_task(brief: Brief, occasion: Occasion, *, offered: Collection[str], marks: Marks) -> str:
    """Return the end of the first message of an attempt; its last line identifies the attempt for recordings.

    ``offered`` are the names of the tools that the model has.
    """
    found = occasion.circumstances | _find_reasons(occasion, brief.phase)
    found |= {Circumstance.OWN_RULES} if brief.rules else set[Circumstance]()
    facts = _collect_facts(brief, occasion, offered=offered, marks=marks)
    return _join(_fill(row.text, facts, offered=offered) for row in TABLE if row.fits(brief, found))


def _find_reasons(occasion: Occasion, phase: Phase) -> frozenset[Circumstance]:
    """Return the reasons for an attempt, by what has happened to its step."""
    step, earlier = occasion.step, occasion.earlier
    found: dict[Circumstance, bool] = {}
    if (refusal := _find_refusal(step, phase)) is not None:
        is_here, is_test_wrong = refusal.phase == phase, refusal.kind == "test_is_wrong"
        found[Circumstance.RETRIED] = not is_test_wrong
        found[Circumstance.RETRIED_HERE] = is_here and not is_test_wrong
        found[Circumstance.SENT_BACK] = is_test_wrong and not is_here
        found[Circumstance.REWRITTEN] = is_test_wrong and is_here
    found[Circumstance.ITERATED] = step is not None and step.iterates
    found[Circumstance.GUIDED] = step is not None and not step.iterates
    found[Circumstance.ROLLED_BACK] = bool(earlier) and occasion.is_anew
    found[Circumstance.REFUSED] = bool(earlier) and not occasion.is_anew
    found[Circumstance.UNCHANGED] = any(
        reason.code == "no_change" for each in earlier[-1:] for reason in each.reasons[:1]
    )
    return frozenset(each for each, holds in found.items() if holds)


def _find_refusal(step: StepExecution | None, phase: Phase) -> RefusedTry | None:
    """Return the earlier try at the step that an attempt at ``phase`` has to know of; None if it is settled."""
    refusal = step.refusal if step is not None else None
    return None if refusal is None or _ORDER.index(phase) > _ORDER.index(refusal.phase) else refusal


def _collect_facts(brief: Brief, occasion: Occasion, *, offered: Collection[str], marks: Marks) -> Mapping[str, str]:
    """Return place -> text to put there; text that others wrote is marked."""
    earlier = occasion.earlier
    names = load_right_failures()
    shown = [_format_attempt(attempt, offered=offered, marks=marks) for attempt in earlier[-MAX_ATTEMPTS_SHOWN:]]
    is_quoted = any(has_quoted(each.reasons, occasion.further.strip()) for each in earlier[-MAX_ATTEMPTS_SHOWN:])
    quoted = {
        "broken": (_format_reasons(_list_broken(earlier, phase=brief.phase)), "gate"),
        "interrupted": (occasion.interrupted, "interrupted work"),
        "interrupted_words": (occasion.interrupted_words, "interrupted work"),
        "diff": (occasion.diff, "changes of this step"),
        "failing": (occasion.failing, "tests"),
        "places": (occasion.places, "names and a search"),
        "words": (earlier[-1].words, f"attempt {earlier[-1].number}") if earlier else ("", ""),
        "impact": (occasion.impact, "the last run of all tests"),
        "undone": (occasion.undone, "changes that were undone"),
        "example": ("" if is_quoted else occasion.further, "further example"),
        "guidance": (occasion.step.guidance if occasion.step is not None else "", "the user"),
    }
    if (refusal := _find_refusal(occasion.step, brief.phase)) is not None:
        where, source = phase_name(refusal.phase), "earlier try"
        said = "" if has_quoted(refusal.reasons, refusal.words.strip()) else refusal.words
        quoted |= {
            "try_reasons": (_format_reasons(refusal.reasons), f"gate, {where}"),
            "try_words": (said, source),
            "try_failures": (refusal.failures, "tests"),
            "try_diff": (refusal.diffs.get(brief.phase, ""), source),
        }
    return {
        "behavioral": ", ".join(names[kind] for kind in BEHAVIORAL),
        "structural": ", ".join(names[kind] for kind in STRUCTURAL),
        "workflow_rules": keep_offered(brief.rules.strip(), offered),
        "try_phase": "" if refusal is None else phase_name(refusal.phase),
        "remedies": format_bullets(occasion.remedies),
        "omitted": str(len(earlier) - MAX_ATTEMPTS_SHOWN) if len(earlier) > MAX_ATTEMPTS_SHOWN else "",
        "attempts": "\n\n".join(shown),
        "task": brief.task,
        "number": str(len(earlier) + 1),
        "last": str(len(earlier)),
        "phase": brief.phase.upper(),
        "work": brief.work,
        **{place: marks.wrap(text, source=source) for place, (text, source) in quoted.items() if text},
    }


def _format_attempt(attempt: AttemptRecord, *, offered: Collection[str], marks: Marks) -> str:
    by = {"commit_refused": "hook", "example_failed": "example", "example_regressed": "regression"}
    who = by.get(attempt.reasons[0].code, "gate") if attempt.reasons else "gate"
    reasons = marks.wrap(_format_reasons(attempt.reasons), source=f"{who}, attempt {attempt.number}")
    return _fill(f"refused_by_{who}", {"number": str(attempt.number), "reasons": reasons}, offered=offered)


def _list_broken(earlier: tuple[AttemptRecord, ...], *, phase: Phase) -> tuple[Reason, ...]:
    """Return the reasons of the last attempt that are about tests which it broke."""
    reasons = earlier[-1].reasons if earlier else ()
    codes = (*_BREAKAGE_CODES, "target_failed") if phase == "refactor" else _BREAKAGE_CODES
    # Tests that a locked file broke are whole again, because it has been restored since.
    if any(reason.code in _RESTORED_CODES for reason in reasons):
        return ()
    return tuple(reason for reason in reasons if reason.code in codes)


def describe_item(item: WorkItem, *, heading: str) -> str:
    """Return title, goal, tests and files of an item as Markdown."""
    parts = [f"# {heading}: {item.title}", item.goal.strip()]
    if item.tests:
        parts.append("Tests:\n" + format_bullets([f"`{test}`" for test in item.tests]))
    if item.sources:
        parts.append("Files that are expected to change:\n" + format_bullets([f"`{path}`" for path in item.sources]))
    return "\n\n".join(part for part in parts if part)


def describe_ticket(spec: Spec, *, but: str = "") -> str:
    """Return what ``spec`` says about the ticket as a whole, as paragraphs, without the words ``but``."""
    said, own = spec.description.strip(), but.strip()
    parts = {
        "The ticket that this is a part of": said.replace(own, "").strip() if own else said,
        "Out of scope of the ticket": format_bullets(spec.out_of_scope),
        "Technical notes of the ticket": spec.technical_notes.strip(),
    }
    return "".join(
        f"\n\n{heading}:\n{cut_end(text, _MAX_TICKET_CHARACTERS)}" for heading, text in parts.items() if text
    )


def _format_reasons(reasons: Iterable[Reason]) -> str:
    return format_bullets([*map(format_reason, reasons)])


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
