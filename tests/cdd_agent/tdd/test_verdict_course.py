from dataclasses import replace

import pytest

from cdd_agent.tdd.context import Phase
from cdd_agent.tdd.verdict import Course, Trial, choose_course, summarize_attempt
from pytest_tdd_agent.report import Failure, SuiteReport
from tests.fakes.reasons import make_reason
from tests.fakes.suite import make_failed_report


def trial(*failing: str, codes: tuple[str, ...] = ("target_failed",), how: str = "1 != 2") -> Trial:
    return Trial(
        codes=frozenset(codes), failing=frozenset(failing), symptoms=frozenset((nodeid, how) for nodeid in failing)
    )


def after(
    *trials: Trial,
    phase: Phase = "green",
    failing_before: int = 1,
    max_identical_failures: int = 3,
    is_strict: bool = False,
) -> Course:
    return choose_course(
        trials,
        phase=phase,
        failing_before=failing_before,
        max_identical_failures=max_identical_failures,
        is_strict=is_strict,
    )


def test_a_refactor_that_breaks_the_tests_of_its_own_item_goes_back_first() -> None:
    assert after(trial("t"), phase="refactor", failing_before=0) is Course.ROLL_BACK
    assert after(trial("t"), phase="green", failing_before=0) is Course.REPAIR


def test_an_attempt_that_only_falls_short_is_gone_on_from() -> None:
    assert after(trial("t")) is Course.REPAIR
    assert after(trial("t"), trial("t", how="2 != 3")) is Course.REPAIR


def test_the_same_failure_again_goes_back_to_the_beginning_and_once_more_is_no_progress() -> None:
    assert after(trial("t"), trial("t")) is Course.ROLL_BACK
    assert after(trial("t"), trial("t"), trial("t")) is Course.STOP
    assert after(trial("t"), trial("t"), max_identical_failures=2) is Course.STOP
    assert after(trial("t"), trial("u"), trial("t"), max_identical_failures=2) is Course.REPAIR, "not in a row"


BROKE = ("target_failed", "broke_others")


def test_what_breaks_more_than_it_mends_is_taken_back() -> None:
    assert after(trial("t", "old", codes=BROKE)) is Course.ROLL_BACK
    assert after(trial("old", codes=BROKE)) is Course.REPAIR, "as many fail as before"
    assert after(trial("old", codes=BROKE), is_strict=True) is Course.ROLL_BACK
    assert after(trial("t", "u", codes=("target_failed",))) is Course.REPAIR, "nothing that passed is broken"


@pytest.mark.parametrize("code", ["tampered", "suspicious_code", "canary_failed", "expectation_ignored"])
def test_of_an_attempt_that_bends_the_tests_nothing_stays(code: str) -> None:
    assert after(trial("t", codes=(code,))) is Course.ROLL_BACK


def report(message: str) -> SuiteReport:
    failure = Failure(phase="call", kind="assertion", origin="test", exception="AssertionError", message=message)
    return make_failed_report(failure, nodeid="t")


def test_the_same_error_is_known_whatever_its_addresses_and_times_are() -> None:
    one = summarize_attempt((), report("<A object at 0x7f01> took 0.31 s, not 2"))
    assert one.symptoms == summarize_attempt((), report("<A object at 0x7fff> took 12 s, not 2")).symptoms
    assert one.symptoms != summarize_attempt((), report("<A object at 0x7f01> took 0.31 s, not 3")).symptoms
    assert one.failing == {"t"}


@pytest.mark.parametrize(
    ("one", "other", "is_alike"),
    [
        ("no /tmp/pytest-of-ada/pytest-1/a0", "no /tmp/pytest-of-ada/pytest-2/a0", True),
        ("no '/tmp/x1'", "no '/tmp/y2'", True),
        ("at 2026-01-31 12:00:01.5", "at 2026-02-01 13:10:59", True),
        ("1795574185.12 != 3", "1795574186.3 != 3", True),
        ("6f9619ff-8b86-d011-b42d-00c04fc964ff", "7f9619ff-8b86-d011-b42d-00c04fc964fe", True),
        ("took 0.31 seconds", "took 12 seconds", True),
        ("no /private/var/folders/a1/T/x", "no /private/var/folders/b2/T/y", True),
        ("no tmpx3ab_9k2/a", "no tmpq0cd41zz/a", True),
        ("1234 == 3", "1235 == 3", False),
        ("'/tmp/x1' != 3", "'/tmp/x1' != 4", False),
    ],
)
def test_times_and_temporary_names_make_no_failure_another(one: str, other: str, *, is_alike: bool) -> None:
    assert (summarize_attempt((), report(one)).symptoms == summarize_attempt((), report(other)).symptoms) is is_alike


def test_a_failure_at_another_place_is_another() -> None:
    def at(line: int, *, origin: str, path: str = "a.py") -> Trial:
        (case,) = report("no").tests
        assert case.failure is not None
        failure = replace(case.failure, path=path, line=line, origin=origin)
        return summarize_attempt((), replace(report("no"), tests=(replace(case, failure=failure),)))

    assert at(3, origin="test").symptoms != at(4, origin="test").symptoms
    assert at(3, origin="project").symptoms == at(4, origin="project").symptoms, "the code has moved"
    assert at(3, origin="project").symptoms != at(3, origin="project", path="b.py").symptoms


def test_where_no_test_was_run_the_reasons_are_what_is_compared() -> None:
    assert (
        summarize_attempt((make_reason("no_change: nothing"),), None).symptoms
        == summarize_attempt((make_reason("no_change: nothing"),), None).symptoms
    )
    assert summarize_attempt((make_reason("no_change: nothing"),), None).codes == {"no_change"}
