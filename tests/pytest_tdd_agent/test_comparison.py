from dataclasses import replace

import pytest

from pytest_tdd_agent.comparison import RunComparison, find_expected_failures, find_unstable, strip_parameters
from pytest_tdd_agent.report import Case, CollectError, Failure, Sign, SuiteReport, Verdict


def case(nodeid: str, outcome: str = "passed") -> Case:
    return Case(nodeid, outcome, nodeid.split("::", maxsplit=1)[0], 1, 0.1)


def run(*cases: Case) -> SuiteReport:
    return SuiteReport(
        complete=True,
        exit_status=0,
        nonce="",
        python="3.11.7",
        pytest="9.2.0",
        rootdir="/p",
        started_at="",
        duration_s=1.0,
        tests=cases,
    )


def beside(report: SuiteReport, baseline: SuiteReport | None) -> RunComparison:
    return RunComparison(report, phase="green", baseline=baseline, targets=(), expects=())


@pytest.mark.parametrize(
    ("nodeid", "function"),
    [
        ("a.py::t", "a.py::t"),
        ("a.py::T::t[1[2]::3]", "a.py::T::t"),
        ("[a]/b.py::t[x]", "[a]/b.py::t"),
        ("[a]/b.py", "[a]/b.py"),
    ],
)
def test_the_function_of_a_test_is_its_node_id_without_parameters(nodeid: str, function: str) -> None:
    assert strip_parameters(nodeid) == function


def test_a_test_is_matched_by_its_node_id_first_and_by_its_function_then() -> None:
    before = run(case("a.py::t[1]"), case("a.py::t[2]", "failed"), case("b.py::t[1]"))
    now = run(case("a.py::t[3]"), case("a.py::t[2]", "failed"), case("a.py::t[4]"))
    comparison = beside(now, before)
    found = {old.nodeid: comparison.now(old) for old in before.tests}
    assert {nodeid: case and case.nodeid for nodeid, case in found.items()} == {
        "a.py::t[1]": "a.py::t[3]",
        "a.py::t[2]": "a.py::t[2]",
        "b.py::t[1]": None,
    }
    assert [case.nodeid for case in now.tests if comparison.is_new(case)] == ["a.py::t[4]"]


def test_what_passed_is_matched_with_what_passes() -> None:
    before = run(case("a.py::t[1]", "failed"), case("a.py::t[2]"))
    now = run(case("a.py::t[3]", "failed"), case("a.py::t[4]"))
    comparison = beside(now, before)
    assert [comparison.old(case) for case in now.tests] == list(before.tests)
    assert [comparison.is_old_failure(case) for case in now.tests] == [True, False]


def test_a_test_that_was_given_parameters_is_still_there() -> None:
    before, now = run(case("a.py::t")), run(case("a.py::t[1]"), case("a.py::t[2]"))
    assert beside(now, before).now(before.tests[0]) == now.tests[0]
    assert beside(before, now).now(now.tests[1]) is None


def test_without_a_baseline_every_test_is_new() -> None:
    now = run(case("a.py::t[1]"))
    assert beside(now, None).is_new(now.tests[0])


def test_a_sign_is_new_unless_the_baseline_has_it_of_the_same_test() -> None:
    sign = Sign("patched_runner", "a.py::t[1]", parts={"name": "x"})
    before = replace(run(case("a.py::t[1]")), audited=True, signs=(sign,))
    again = replace(run(case("a.py::t[2]")), signs=(replace(sign, nodeid="a.py::t[2]"),))
    assert beside(again, before).new_signs() == []
    other = replace(again, signs=(replace(sign, nodeid="b.py::t"), replace(sign, parts={"name": "y"})))
    assert beside(other, before).new_signs() == list(other.signs)


def test_functions_whose_node_ids_changed_are_those_with_other_tests_in_each_run() -> None:
    before = run(case("a.py::t[1]"), case("a.py::u[1]"), case("a.py::u[2]"), case("a.py::v[1]"), case("a.py::w"))
    now = run(case("a.py::t[2]"), case("a.py::u[1]"), case("a.py::v[1]"), case("a.py::v[2]"), case("a.py::x"))
    assert find_unstable(now, before) == ("a.py::t",)


def test_what_failed_before_the_cycle_is_expected_to_fail() -> None:
    error = CollectError("b.py", Failure("collect", "missing_module", "test", "ModuleNotFoundError", ""))
    before = replace(run(case("a.py::old", "failed"), case("a.py::t", "error")), collect_errors=(error,))
    assert find_expected_failures(None, phase="green") == ()
    assert find_expected_failures(before, phase=None) == ("a.py::old", "a.py::t", "b.py")
    of_red = replace(before, old_failures=("a.py::old",), gate=Verdict("red", open=True))
    assert find_expected_failures(of_red, phase="green") == ("a.py::old",)
    assert find_expected_failures(of_red, phase="refactor") == ("a.py::old", "a.py::t", "b.py")
