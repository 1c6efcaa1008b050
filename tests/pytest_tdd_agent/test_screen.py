from pytest_tdd_agent.report import Case, CollectError, Failure, Reason, Verdict
from pytest_tdd_agent.screen import Causes, format_counts, format_verdict


def failed(nodeid: str, *, kind: str = "assertion", line: int = 3, message: str = "assert 1 == 2\n + more") -> Case:
    failure = Failure("call", kind, "test", "AssertionError", message, path="tests/a.py", line=line)
    return Case(nodeid, "failed", "tests/a.py", 1, 0.0, failure=failure)


def test_failures_with_one_cause_are_said_once_and_the_widest_cause_first() -> None:
    causes = Causes()
    causes.add(failed("tests/b.py::t", line=9))
    for number in range(200):
        causes.add(failed(f"tests/a.py::t[{number}]"))
    assert list(causes.format_lines()) == [
        "  assertion tests/a.py:3: assert 1 == 2",
        "    200 tests: tests/a.py::t[0], ::t[1], ::t[2] and 197 more",
        "  assertion tests/a.py:9: assert 1 == 2",
        "    tests/b.py::t",
    ]


def test_many_causes_are_cut_and_counted() -> None:
    causes = Causes()
    for number in range(30):
        causes.add(failed("a.py::t", line=number))
    lines = list(causes.format_lines())
    assert len(lines) == 21
    assert lines[-1] == "  and 20 more causes, of 20 failures, in the report"


def test_files_that_cannot_be_collected_and_flaky_tests_are_said() -> None:
    causes = Causes()
    causes.add_error(CollectError("b.py", Failure("collect", "missing_module", "test", "ModuleNotFoundError", "")))
    causes.add(Case("a.py::t", "passed", "a.py", 1, 0.0, reruns=1, tries=("assertion", "passed")))
    causes.add(Case("a.py::u", "skipped", "a.py", 1, 0.0))
    assert list(causes.format_lines()) == [
        "  missing_module: ModuleNotFoundError",
        "    b.py",
        "  flaky: a.py::t (assertion, then passed)",
    ]


def test_the_counts_leave_out_what_is_none() -> None:
    assert format_counts({"passed": 3, "failed": 0, "collected": 3, "flaky": 1}, complete=True) == "3 passed, 1 flaky"
    assert format_counts({"passed": 0}, complete=False) == "incomplete run: no tests"


def test_errors_are_counted_as_in_pytest() -> None:
    assert format_counts({"passed": 2, "error": 10}, complete=True, uncollected=5) == "2 passed, 15 errors"
    assert format_counts({"failed": 1, "error": 0}, complete=True, uncollected=1) == "1 failed, 1 error"


def test_an_open_gate_counts_the_old_failures_that_it_spared() -> None:
    assert list(format_verdict(Verdict("green", True), spared=2)) == ["GREEN gate: open (2 failed before)"]


def test_of_each_code_the_first_reasons_are_shown() -> None:
    reasons = tuple(
        Reason("target_failed", None, case="text", parts={"text": f"t{number} fails."}) for number in range(5)
    )
    other = Reason("tampered", None, case="text", parts={"text": "A hook."})
    assert list(format_verdict(Verdict("green", False, (*reasons, other)))) == [
        "GREEN gate: closed",
        *(f"  target_failed: t{number} fails." for number in range(3)),
        "  target_failed: and 2 more in the report",
        "  tampered: A hook.",
    ]


def test_a_reason_that_an_option_may_settle_names_it() -> None:
    reason = Reason("name_not_expected", None, case="text", parts={"text": "a fails because b is not there."})
    *_, hint = format_verdict(Verdict("red", False, (reason,)))
    assert hint.strip() == "hint: declare a name that does not exist yet with --tdd-agent-expects=NAME"
