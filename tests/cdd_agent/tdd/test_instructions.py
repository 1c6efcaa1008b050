from dataclasses import replace
from typing import cast

from cdd_agent.model.conversation import Marks
from cdd_agent.runs.plan_steps import make_brief
from cdd_agent.tdd.context import Phase, summarize_evidence
from cdd_agent.tdd.instructions import Occasion, format_failures, format_step, format_system_prompt, format_task
from cdd_agent.work.outcome import Closed
from cdd_agent.work.state import AttemptRecord, StepExecution
from cdd_agent.work.wording import format_reason
from pytest_tdd_agent.report import Case, CollectError, Failure, SuiteReport, Verdict
from tests.fakes.project import item
from tests.fakes.reasons import make_reason

FAILURE = Failure(
    phase="call", kind="assertion", origin="test", exception="AssertionError", message="1 != 2", text="E  assert 1 == 2"
)
MARKS = Marks("kvqtzh")
BRIEF_FOR = make_brief
GUIDED = StepExecution(step_number=1, title="t", text_sha256="", guidance="Be brief.")
TOOLS = ("Read", "Write", "Edit", "RunTests", "CompleteImplementation", "ReportBlocked")
REPORT = SuiteReport(
    complete=True,
    exit_status=1,
    nonce="n",
    python="3.11.7",
    pytest="9.0",
    rootdir="/",
    started_at="2026-01-31T12:00:00Z",
    duration_s=0.1,
)


def failing(nodeid: str, failure: Failure = FAILURE) -> Case:
    return Case(nodeid=nodeid, outcome="failed", file="test_a.py", line=1, duration_s=0.0, failure=failure)


def test_the_system_prompt_is_the_same_in_all_phases() -> None:
    phases: tuple[Phase, ...] = ("red", "green", "refactor")
    (prompt,) = {format_system_prompt(BRIEF_FOR(item(number=7), phase), offered=TOOLS, marks=MARKS) for phase in phases}
    assert prompt.startswith("You are the Executor")
    assert prompt.endswith(MARKS.rule)


def test_what_all_attempts_at_a_step_begin_with_has_its_text_and_its_files() -> None:
    text = format_step(BRIEF_FOR(item(), "green"), facts="Tests run.", files="`a.py`: none", marks=MARKS)
    assert text.startswith("<data-kvqtzh plan.md>\n# Step 1: Ten percent off\n\nA discount.")
    assert "- `tests/test_discount.py`" in text
    assert "- `discount.py`" in text
    assert text.endswith("Tests run.\n\nThe files of this work, as they were when it began:\n\n`a.py`: none")


def test_the_task_has_the_rules_what_fails_and_why_earlier_attempts_were_refused() -> None:
    closed = AttemptRecord(
        phase="green", number=1, outcome=Closed(), reasons=(make_reason("target_failed: t fails"),), words="It works."
    )
    occasion = Occasion(earlier=(closed,), failing="t: assertion", diff="+x", step=GUIDED)
    text = format_task(BRIEF_FOR(item(), "green"), occasion, offered=TOOLS, marks=MARKS)
    assert text.startswith("## This phase: GREEN")
    in_order = (
        "The changes of this step so far, which the files already contain:\n\n<data-kvqtzh changes of this step>\n+x\n",
        "Current failures:\n\n<data-kvqtzh tests>\nt: assertion\n</data-kvqtzh>",
        "The gate refused attempt 1:\n<data-kvqtzh gate, attempt 1>\n- target_failed: t fails\n</data-kvqtzh>",
        "The last words of that attempt, written before the gate ran:\n<data-kvqtzh attempt 1>\nIt works.\n</data-",
        "The files still contain the work of that attempt.",
        "Be brief.",
        "Carry out step 1 of the plan. This is attempt 2 at GREEN.",
    )
    places = [text.index(part) for part in in_order]
    assert places == sorted(places)
    assert text.endswith("\n\nWork: executor sale step 1 green attempt 2")


def test_an_attempt_whose_changes_were_undone_gets_them_as_a_diff() -> None:
    closed = AttemptRecord(phase="green", number=1, outcome=Closed(), reasons=(make_reason("broke_others: t"),))
    occasion = Occasion(earlier=(closed,), is_anew=True, undone="-x")
    text = format_task(BRIEF_FOR(item(), "green"), occasion, offered=TOOLS, marks=MARKS)
    assert "The changes of attempt 1 were rolled back" in text
    assert f"What it had changed:\n\n{MARKS.wrap('-x', source='changes that were undone')}" in text


def test_green_and_refactor_are_told_the_tests_that_run_code_of_the_files() -> None:
    for phase, expected in (("red", False), ("green", True), ("refactor", True)):
        occasion = Occasion(impact="- `a.py`: test_a.py (test_old)")
        text = format_task(BRIEF_FOR(item(), cast("Phase", phase)), occasion, offered=TOOLS, marks=MARKS)
        assert ("run code of the files of this step" in text) == expected
        assert ("- `a.py`: test_a.py (test_old)\n</data-kvqtzh>" in text) == expected


def test_a_first_attempt_is_told_nothing_of_others() -> None:
    brief = BRIEF_FOR(replace(item(), tests=(), sources=()), "red")
    rest = "Carry out step 1 of the plan. This is attempt 1 at RED.\n\nWork: executor sale step 1 red attempt 1"
    text = format_task(brief, Occasion(), offered=TOOLS, marks=MARKS)
    assert text.startswith("## This phase: RED\n")
    assert text.endswith(f"when they fail for the right reason.\n\n{rest}")
    assert "attempt" not in text.removesuffix(rest)


def test_failures_name_test_kind_message_and_place_and_errors_of_collection_too() -> None:
    at = replace(FAILURE, path="prices.py", line=3, message="1 != 2\n  of many")
    broken = CollectError(nodeid="tests/test_b.py", failure=replace(FAILURE, kind="syntax", message="bad"))
    shown = format_failures(replace(REPORT, tests=(failing("t::a", at),), collect_errors=(broken,)))
    assert shown.split("\n\n") == [
        "t::a: assertion at prices.py:3: 1 != 2\n  of many\nE  assert 1 == 2",
        "tests/test_b.py: syntax: bad\nE  assert 1 == 2",
    ]


def test_a_message_that_pytest_shows_is_not_said_twice() -> None:
    told = replace(FAILURE, message="1 != 2\n  of many", text="> assert a == b\nE 1 != 2\nE   of many")
    shown = format_failures(replace(REPORT, tests=(failing("t::a", told),)))
    assert shown == "t::a: assertion\n> assert a == b\nE 1 != 2\nE   of many"


def test_many_and_long_failures_are_cut() -> None:
    long = replace(FAILURE, text="x" * 9_000)
    shown = format_failures(replace(REPORT, tests=tuple(failing(f"t::{n}", long) for n in range(8))))
    assert shown.endswith("... and 3 more")
    assert len(shown) < 5 * 1_600


def test_a_key_is_masked_before_a_failure_is_cut() -> None:
    for rest in range(1_460, 1_500, 7):
        long = replace(FAILURE, text=f"TOKEN = ghp_{'Kk1' * 12} " + "x" * rest)
        assert "Kk1" not in format_failures(replace(REPORT, tests=(failing("t::a", long),)))


def test_the_evidence_is_one_line_and_names_the_kinds_of_a_right_red() -> None:
    report = replace(REPORT, tests=(failing("t::a"),), collected=1)
    assert summarize_evidence(Verdict(phase="red", open=True), report) == "1 failed; fails by assertion"
    assert summarize_evidence(Verdict(phase="green", open=False), report) == "1 failed"
    assert summarize_evidence(Verdict(phase="green", open=False), REPORT) == "no test was collected"
    plain = replace(REPORT, structured=False, exit_status=2)
    assert summarize_evidence(Verdict(phase="red", open=True), plain) == "exit status 2"
    spared = summarize_evidence(Verdict(phase="green", open=True), report, baseline=report)
    assert spared == "1 failed (1 failed before)"
    passing = replace(report, tests=tuple(replace(case, outcome="passed", failure=None) for case in report.tests))
    assert summarize_evidence(Verdict(phase="green", open=False), passing) == "1 passed, but the change is refused"
    assert summarize_evidence(Verdict(phase="refactor", open=True), None) == "nothing was changed"


def test_reasons_are_lines_of_code_and_message() -> None:
    reasons = (make_reason("no_tests: none"),)
    assert tuple(map(format_reason, reasons)) == ("no_tests: none",)


def test_tests_that_the_last_attempt_broke_come_before_everything_else() -> None:
    told = ("target_failed: t::a fails", "broke_others: t::b passed before and fails now")
    reasons = tuple(map(make_reason, told))
    closed = AttemptRecord(phase="green", number=1, outcome=Closed(), reasons=reasons)
    brief = BRIEF_FOR(item(), "green")
    text = format_task(brief, Occasion(earlier=(closed,), failing="t: x"), offered=TOOLS, marks=MARKS)
    broken = MARKS.wrap("- broke_others: t::b passed before and fails now", source="gate")
    assert text.index(
        f"\n\nThe last attempt broke tests that passed before. Fix that first:\n{broken}\n\n"
    ) < text.index("t: x")
    anew = format_task(brief, Occasion(earlier=(closed,), is_anew=True), offered=TOOLS, marks=MARKS)
    assert "The last attempt broke tests that passed before. It was rolled back; do not" in anew
    restored = replace(closed, reasons=(*reasons, make_reason("protected_changed: tests/conftest.py was created")))
    assert "Fix that first" not in format_task(brief, Occasion(earlier=(restored,)), offered=TOOLS, marks=MARKS)
    mended = replace(closed, number=2, reasons=reasons[:1])
    later = format_task(brief, Occasion(earlier=(closed, mended)), offered=TOOLS, marks=MARKS)
    assert "broke tests" not in later


def test_what_mends_failures_is_said_in_words_of_the_program_s() -> None:
    occasion = Occasion(failing="t: x", remedies=("assertion: look",))
    text = format_task(BRIEF_FOR(item(), "green"), occasion, offered=TOOLS, marks=MARKS)
    assert "</data-kvqtzh>\n\nHow to fix failures of these kinds:\n- assertion: look\n\nCarry" in text


def test_of_many_attempts_only_the_last_are_told_in_full() -> None:
    closed = tuple(
        AttemptRecord(
            phase="green", number=number, outcome=Closed(), reasons=(make_reason(f"target_failed: try {number}"),)
        )
        for number in range(1, 21)
    )
    text = format_task(BRIEF_FOR(item(), "green"), Occasion(earlier=closed), offered=TOOLS, marks=MARKS)
    assert "17 earlier attempts were refused too." in text
    assert "try 18" in text
    assert "try 17" not in text
    assert "This is attempt 21 at GREEN." in text


def test_the_failures_that_matter_most_come_first() -> None:
    report = replace(REPORT, tests=(failing("t::a"), failing("t::b"), failing("t::c")))
    shown = format_failures(report, rank=lambda nodeid: 0 if nodeid == "t::c" else 1)
    assert [line.partition(": ")[0] for line in shown.splitlines() if line.startswith("t::")] == [
        "t::c",
        "t::a",
        "t::b",
    ]
