from dataclasses import replace

import pytest

from cdd_agent.model.conversation import Marks
from cdd_agent.tdd.context import (
    Phase,
    format_failures,
    format_reasons,
    format_system_prompt,
    format_task,
    summarize_evidence,
)
from cdd_agent.work.state import AttemptRecord
from cdd_agent.workflows.execution.executor import make_brief_for
from pytest_tdd_agent.report import Case, CollectError, Failure, Reason, SuiteReport, Verdict
from tests.fakes.project import item

FAILURE = Failure(
    phase="call", kind="assertion", origin="test", exception="AssertionError", message="1 != 2", text="E  assert 1 == 2"
)
MARKS = Marks("kvqtzh")
BRIEF_FOR = make_brief_for()
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


@pytest.mark.parametrize("phase", ["red", "green", "refactor"])
def test_the_system_prompt_has_role_rules_and_last_the_attempt(phase: Phase) -> None:
    prompt = format_system_prompt(BRIEF_FOR(item(number=7), phase), attempt=2, marks=MARKS)
    lines = prompt.splitlines()
    assert lines[0].startswith("You are the Executor")
    assert f"## This phase: {phase.upper()}" in lines
    assert lines[-3] == MARKS.rule
    assert lines[-1] == f"Work: executor sale step 7 {phase} attempt 2"


def test_the_task_says_what_to_do_what_fails_and_why_earlier_attempts_were_refused() -> None:
    closed = AttemptRecord(phase="green", number=1, verdict="closed", reasons=("target_failed: t fails",))
    text = format_task(
        BRIEF_FOR(item(), "green"), earlier=(closed,), is_anew=False, failing="t: assertion", marks=MARKS
    )
    assert text.startswith(
        "Carry out step 1 of the plan.\n\n<data-kvqtzh plan.md>\n# Step 1: Ten percent off\n\nA discount."
    )
    assert "- `tests/test_discount.py`" in text
    assert "- `discount.py`" in text
    assert "Current failures:\n\n<data-kvqtzh tests>\nt: assertion\n</data-kvqtzh>" in text
    assert (
        "Attempt 1 was refused by the gate:\n"
        "<data-kvqtzh gate, attempt 1>\n- target_failed: t fails\n</data-kvqtzh>" in text
    )
    assert text.endswith("This is attempt 2 at GREEN.")


def test_a_first_attempt_is_told_nothing_of_others() -> None:
    work = replace(item(), tests=(), sources=())
    text = format_task(BRIEF_FOR(work, "red"), earlier=(), is_anew=False, failing="", marks=MARKS)
    step = MARKS.wrap("# Step 1: Ten percent off\n\nA discount.", source="plan.md")
    assert text == f"Carry out step 1 of the plan.\n\n{step}"


def test_failures_name_test_kind_message_and_place_and_errors_of_collection_too() -> None:
    at = replace(FAILURE, path="prices.py", line=3)
    broken = CollectError(nodeid="tests/test_b.py", failure=replace(FAILURE, kind="syntax", message="bad"))
    shown = format_failures(replace(REPORT, tests=(failing("t::a", at),), collect_errors=(broken,)))
    assert shown.split("\n\n") == [
        "t::a: assertion: 1 != 2 at prices.py:3\nE  assert 1 == 2",
        "tests/test_b.py: syntax: bad\nE  assert 1 == 2",
    ]


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
    judged = Verdict(phase="red", open=False, reasons=(Reason(code="no_tests", nodeid=None, message="none"),))
    assert format_reasons(judged) == ("no_tests: none",)


def test_tests_that_the_last_attempt_broke_come_before_everything_else() -> None:
    reasons = ("target_failed: t::a fails", "broke_others: t::b passed before and fails now")
    closed = AttemptRecord(phase="green", number=1, verdict="closed", reasons=reasons)
    brief = BRIEF_FOR(item(), "green")
    text = format_task(brief, earlier=(closed,), is_anew=False, failing="t: x", marks=MARKS)
    broken = MARKS.wrap("- broke_others: t::b passed before and fails now", source="gate")
    assert text.startswith(
        f"The last attempt broke tests that passed before. Fix that first:\n{broken}\n\nCarry out step 1 of the plan."
    )
    anew = format_task(brief, earlier=(closed,), is_anew=True, failing="t: x", marks=MARKS)
    assert anew.startswith("The last attempt broke tests that passed before. It was rolled back; do not")
    mended = replace(closed, number=2, reasons=reasons[:1])
    later = format_task(brief, earlier=(closed, mended), is_anew=False, failing="t: x", marks=MARKS)
    assert later.startswith("Carry out step 1")


def test_what_mends_failures_is_said_in_words_of_the_program_s() -> None:
    text = format_task(
        BRIEF_FOR(item(), "green"),
        earlier=(),
        is_anew=False,
        failing="t: x",
        marks=MARKS,
        remedies=("assertion: look",),
    )
    assert text.endswith("</data-kvqtzh>\n\nHow to fix failures of these kinds:\n- assertion: look")


def test_of_many_attempts_only_the_last_are_told_in_full() -> None:
    closed = tuple(
        AttemptRecord(phase="green", number=number, verdict="closed", reasons=(f"target_failed: try {number}",))
        for number in range(1, 21)
    )
    text = format_task(BRIEF_FOR(item(), "green"), earlier=closed, is_anew=False, failing="", marks=MARKS)
    assert "The gate also refused 17 attempts before those below." in text
    assert "try 18" in text
    assert "try 17" not in text
    assert text.endswith("This is attempt 21 at GREEN.")


def test_the_failures_that_matter_most_come_first() -> None:
    report = replace(REPORT, tests=(failing("t::a"), failing("t::b"), failing("t::c")))
    shown = format_failures(report, rank=lambda nodeid: 0 if nodeid == "t::c" else 1)
    assert [line.partition(": ")[0] for line in shown.splitlines() if line.startswith("t::")] == [
        "t::c",
        "t::a",
        "t::b",
    ]
