import pytest

from pytest_tdd_agent.recording.spool import SpoolTally
from pytest_tdd_agent.report import Case, Failure

FIRST = Failure("call", "assertion", "test", "AssertionError", "first")
SECOND = Failure("teardown", "exception", "test", "ValueError", "second")


def begun() -> SpoolTally:
    tally = SpoolTally()
    tally.begin("a.py::t", file="a.py", line=3)
    return tally


def ended(tally: SpoolTally, nodeid: str = "a.py::t") -> Case:
    draft = tally.finish(nodeid)
    assert draft is not None
    return draft.to_case()


@pytest.mark.parametrize(
    ("phases", "outcome"),
    [
        (["passed", "passed", "passed"], "passed"),
        (["passed", "failed", "passed"], "failed"),
        (["passed", "passed", "error"], "error"),
        (["passed", "failed", "error"], "error"),
        (["passed", "skipped", "passed"], "skipped"),
        (["passed", "xfailed", "passed"], "xfailed"),
        (["passed", "skipped", "error"], "error"),
    ],
)
def test_the_worst_phase_counts(phases: list[str], outcome: str) -> None:
    tally = begun()
    for when, came in zip(("setup", "call", "teardown"), phases, strict=True):
        tally.record_phase("a.py::t", when, outcome=came, duration_s=0.25)
    case = ended(tally)
    assert (case.outcome, case.duration_s, case.file, case.line) == (outcome, 0.75, "a.py", 3)


def test_the_failure_kept_is_that_of_the_worst_phase_and_the_first_of_equals() -> None:
    tally = begun()
    tally.record_phase("a.py::t", "call", outcome="failed", duration_s=0, failure=FIRST)
    tally.record_phase("a.py::t", "call", outcome="failed", duration_s=0, failure=SECOND)
    case = ended(tally)
    assert case.failure == FIRST
    tally.begin("a.py::u", file="a.py", line=3)
    tally.record_phase("a.py::u", "call", outcome="failed", duration_s=0, failure=FIRST)
    tally.record_phase("a.py::u", "teardown", outcome="error", duration_s=0, failure=SECOND)
    case = ended(tally, "a.py::u")
    assert case.failure == SECOND


def test_a_failure_stays_when_a_later_part_of_the_test_passes() -> None:
    tally = begun()
    tally.record_phase("a.py::t", "call", outcome="failed", duration_s=0, failure=FIRST)
    tally.record_phase("a.py::t", "call", outcome="passed", duration_s=0)
    case = ended(tally)
    assert case.outcome == "failed"


def test_a_rerun_gives_way_to_the_later_try_and_is_counted() -> None:
    tally = begun()
    tally.record_phase("a.py::t", "call", outcome="failed", duration_s=0, failure=FIRST)
    assert tally.begin_rerun("a.py::t") == 1
    assert tally.finish("a.py::t") is None
    assert tally.list_running_tests() == ("a.py::t",)
    tally.begin("a.py::t", file="a.py", line=3)
    tally.record_phase("a.py::t", "call", outcome="passed", duration_s=0)
    case = ended(tally)
    assert (case.outcome, case.reruns, case.failure) == ("passed", 1, None)
    assert tally.list_running_tests() == ()


def test_phases_that_passed_add_up_like_any_other() -> None:
    tally = begun()
    tally.record_passed("a.py::t", "setup", duration_s=0.25)
    tally.record_phase("a.py::t", "call", outcome="skipped", duration_s=0.5)
    tally.record_passed("a.py::t", "call", duration_s=0.25)
    case = ended(tally)
    assert (case.outcome, case.phases) == ("skipped", {"setup": 0.25, "call": 0.75})


def test_a_phase_of_a_test_nobody_saw_begin_is_kept() -> None:
    tally = SpoolTally()
    tally.record_phase("a.py::t", "call", outcome="failed", duration_s=0, failure=FIRST)
    case = ended(tally)
    assert case.file == "a.py"


def test_a_test_whose_body_has_not_run_has_no_outcome() -> None:
    tally = begun()
    for when in ("setup", "teardown"):
        tally.record_passed("a.py::t", when, duration_s=0)
        tally.record_phase("a.py::t", when, outcome="passed", duration_s=0)
    assert tally.finish("a.py::t") is None
    assert tally.list_running_tests() == ("a.py::t",)
