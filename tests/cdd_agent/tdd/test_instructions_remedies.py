import re
from dataclasses import replace
from pathlib import Path

import cdd_agent
from cdd_agent.tdd.instructions import keep_offered, list_remedies, load_remedies, load_right_failures
from pytest_tdd_agent.failure import BEHAVIORAL, KINDS, STRUCTURAL, find_stage
from pytest_tdd_agent.report import Failure

TOOLS = {
    *("Read", "Write", "Edit", "Bash", "Glob", "Grep", "RunTests", "CompleteImplementation", "ReportBlocked"),
    *("AnswerComment", "AskDeveloper", "UpdateSpec", "WritePlan", "ProposeTicket"),
    *("SearchGraph", "ViewCode", "ViewDependencies"),
}
FAILURE = Failure(phase="call", kind="assertion", origin="test", exception="AssertionError", message="1 != 2")


def test_every_kind_of_failure_has_what_mends_it_in_one_line() -> None:
    assert set(load_remedies()) == set(KINDS)
    assert all(load_remedies().values())


def test_what_keeps_tests_from_running_comes_before_what_they_find() -> None:
    kinds = ("assertion", "did_not_raise", "assertion", "missing_module")
    told = list_remedies(replace(FAILURE, kind=kind) for kind in kinds)
    assert [line.partition(":")[0] for line in told] == ["missing_module (1)", "did_not_raise (1)", "assertion (2)"]


def test_nothing_that_fails_needs_no_remedy() -> None:
    assert list_remedies([]) == ()


def test_red_names_exactly_the_failures_that_the_gate_accepts() -> None:
    assert tuple(load_right_failures()) == (*BEHAVIORAL, *STRUCTURAL)
    missing = replace(FAILURE, origin="test", missing_name="discount", exception="ImportError")
    accepted = {kind for kind in KINDS if find_stage(replace(missing, kind=kind), expects=("discount",)) is not None}
    assert accepted == set(load_right_failures())


def test_a_line_about_a_tool_is_left_out_where_the_tool_is_not_offered() -> None:
    text = "Do it.\n\n- `Read` it.\n- Run `Bash`,\n  or `RunTests`.\n- Answer.\n\nWith `Bash`, too.\n\nDone."
    assert keep_offered(text, {"Read", "Bash"}) == "Do it.\n\n- `Read` it.\n- Answer.\n\nWith `Bash`, too.\n\nDone."
    assert keep_offered(text, ()) == "Do it.\n\n- Answer.\n\nDone."
    assert keep_offered("- `Read` it.", ()) == ""


def test_the_texts_mark_nothing_as_a_tool_that_is_none() -> None:
    folders = (Path(cdd_agent.__file__).parent).glob("**/prompts/*.md")
    named = {name for path in folders for name in re.findall(r"`([A-Z][A-Za-z]+)`", path.read_text(encoding="utf-8"))}
    assert named <= TOOLS | {"GOAL", "KEPT", "Kind", "Tests", "Files", "Depends"}
