from dataclasses import replace

import pytest

from cdd_agent.tdd.verdict import (
    classify_red,
    find_absent_tests,
    find_changed_tests,
    find_doubtful_failures,
    find_extra_tests,
    judge_run,
)
from cdd_agent.work.outcome import Closed, Covered, Open, Outcome, RedVerdict
from cdd_agent.work.wording import explain
from pytest_tdd_agent.report import Case, CollectError, Failure, Reason, SuiteReport, Verdict
from tests.fakes.project import item

EMPTY = SuiteReport(
    complete=True, exit_status=0, nonce="", python="", pytest="", rootdir="", started_at="", duration_s=0
)


def failure(kind: str, *, phase: str = "call", missing: str | None = None) -> Failure:
    return Failure(phase=phase, kind=kind, origin="test", exception="E", message="m", missing_name=missing)


def report(*failures: Failure) -> SuiteReport:
    tests = tuple(
        Case(nodeid=f"t{n}", outcome="failed", file="t.py", line=1, duration_s=0, failure=each)
        for n, each in enumerate(failures)
    )
    return replace(EMPTY, exit_status=1, tests=tests)


def closed(*codes: str) -> Verdict:
    return Verdict(phase="red", open=False, reasons=tuple(Reason(code, None) for code in codes))


OPEN = Verdict(phase="red", open=True)


def classify(judged: Verdict, run: SuiteReport | None, *, baseline: SuiteReport = EMPTY) -> Outcome:
    """Classify RED of a step that adds ``calc.py``."""
    step = replace(item(), sources=("calc.py",))
    return classify_red(step, judged, report=run, baseline=baseline)


def test_an_open_red_is_valid_or_waits_for_a_name_that_is_to_be_made() -> None:
    assert classify(OPEN, report(failure("assertion"))) == Open(RedVerdict.VALID)
    missing = report(failure("import_error", missing="calc.add"), failure("assertion"))
    assert classify(OPEN, missing) == Open(RedVerdict.VALID_MISSING_SYMBOL)


def test_a_test_may_raise_an_exception_that_the_item_expects() -> None:
    raised = replace(failure("exception"), origin="project", exception="BaseException")
    step = replace(item(tests=()), sources=("calc.py",))
    assert not judge_run(step, "red", report=report(raised), baseline=EMPTY).open
    assert judge_run(replace(step, expects=("BaseException",)), "red", report=report(raised), baseline=EMPTY).open


def test_what_failed_before_says_nothing_of_the_new_tests() -> None:
    old = CollectError(nodeid="old.py", failure=failure("missing_module", phase="collect", missing="calc"))
    run = report(failure("assertion"))
    with_old = replace(run, collect_errors=(old,))
    assert classify(OPEN, with_old, baseline=with_old) == Open(RedVerdict.VALID)


@pytest.mark.parametrize(
    ("codes", "word"),
    [
        (("already_green",), Covered()),
        (("already_green", "wrong_reason"), Closed(RedVerdict.INVALID)),
        (("flaky_target",), Closed(RedVerdict.FLAKY)),
        (("broke_others", "flaky_target"), Closed(RedVerdict.BROKE_OTHERS)),
        (("source_changed", "broke_others"), Closed(RedVerdict.TAMPER)),
        (("tampered",), Closed(RedVerdict.TAMPER)),
        (("test_removed",), Closed(RedVerdict.TAMPER)),
        (("wrong_reason",), Closed(RedVerdict.INVALID)),
        (("run_incomplete",), Closed(RedVerdict.INVALID)),
        (("no_tests",), Closed(RedVerdict.INVALID)),
    ],
)
def test_a_closed_red_has_one_word_the_worst_first(codes: tuple[str, ...], word: Outcome) -> None:
    assert classify(closed(*codes), EMPTY) == word


def test_red_is_not_green_already_while_one_of_its_new_tests_fails() -> None:
    one = report(failure("assertion"))
    assert classify(closed("already_green"), one) == Closed(RedVerdict.INVALID)
    assert classify(closed("already_green"), one, baseline=one) == Covered(), "it failed before"


def names(*nodeids: str, line: int = 0) -> SuiteReport:
    tests = (Case(nodeid=each, outcome="failed", file="t.py", line=line, duration_s=0) for each in nodeids)
    return replace(EMPTY, tests=tuple(tests))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ((), ()),
        ((), ("t.py::a",)),
        ((), ("t.py::a[1]", "t.py::a[2-b]")),
        (("t.py::a", "t.py::b[1]"), ("t.py::a", "t.py::b[1]", "t.py::b[2]", "t.py::c")),
    ],
)
def test_one_new_test_is_one_with_all_its_parameters(before: tuple[str, ...], now: tuple[str, ...]) -> None:
    assert find_extra_tests(names(*now), baseline=names(*before), sources={}) == ()


def test_cases_that_stand_in_one_line_are_one_test_whatever_they_are_called() -> None:
    assert find_extra_tests(names("t.py::adds 1", "t.py::adds 2", line=7), baseline=EMPTY, sources={}) == ()


def test_several_new_tests_are_a_reason_that_names_them() -> None:
    (reason,) = find_extra_tests(names("t.py::a", "t.py::b", "t.py::old"), baseline=names("t.py::old"), sources={})
    assert (reason.code, reason.nodeid) == ("several_tests", None)
    assert explain(reason).startswith("RED may add one test but adds 2: t.py::a, t.py::b. ")


def test_the_tests_of_a_file_that_cannot_be_imported_are_counted_in_its_source() -> None:
    source = (
        "from calc import add\n\n\ndef helper():\n    pass\n\n\nasync def test_a():\n    pass\n\n\n"
        "class TestB:\n    def test_c(self):\n        pass\n\n\nclass Fake:\n    def test_d(self):\n        pass\n"
    )
    (reason,) = find_extra_tests(EMPTY, baseline=EMPTY, sources={"t.py": source})
    assert "RED may add one test but adds 2: t.py::test_a, t.py::TestB::test_c. " in explain(reason)
    assert (
        find_extra_tests(EMPTY, baseline=names("t.py::test_a"), sources={"t.py": source, "u.js": "it('a')\nit('b')"})
        == ()
    )
    assert find_extra_tests(EMPTY, baseline=EMPTY, sources={"t.py": "def test_a(:\ndef test_b("}) == ()


@pytest.mark.parametrize(
    ("fields", "is_doubtful"),
    [
        ({"kind": "exception"}, True),
        ({"kind": "exception", "origin": "third_party"}, True),
        ({"kind": "exception", "origin": "project"}, False),
        ({"kind": "system_exit"}, True),
        ({"kind": "system_exit", "origin": "project"}, True),
        ({"kind": "exception", "phase": "setup"}, False),
        ({"kind": "pytest_fail"}, False),
        ({"kind": "timeout"}, False),
    ],
)
def test_what_a_helper_raises_may_tell_of_the_product(fields: dict[str, str], *, is_doubtful: bool) -> None:
    wrong = report(replace(failure("exception"), **fields))  # type: ignore[arg-type]
    judged = Verdict(phase="red", open=False, reasons=(Reason("wrong_reason", "t0"),))
    assert find_doubtful_failures(judged, wrong) == ("t0",) * is_doubtful
    assert find_doubtful_failures(closed("broke_others"), wrong) == ()


NAMES = """from calc import add
from cases import test_imported as test_other

def test_a(): ...
test_made = make()
class TestB:
    async def test_c(self): ...
class TestD(Cases): ...
"""


@pytest.mark.parametrize(
    ("test", "is_absent"),
    [
        ("test_a", False),
        ("test_a[1]", False),
        ("test_made", False),
        ("test_other", False),
        ("TestB::test_c", False),
        ("TestD::test_inherited", False),
        ("test_add", True),
        ("TestAdd::test_c", True),
        ("TestD", False),
    ],
)
def test_a_test_that_the_file_does_not_define_is_missing_before_it_can_be_imported(
    test: str, *, is_absent: bool
) -> None:
    reasons = find_absent_tests(item(tests=(f"t.py::{test}", "t.py", "u.py::x")), sources={"t.py": NAMES})
    assert [reason.code for reason in reasons] == ["target_missing"] * is_absent
    for reason in reasons:
        assert explain(reason).startswith(f"t.py::{test} is not in its file, whose tests are: test_a, TestB::test_c. ")


def test_a_file_that_cannot_be_read_as_python_defines_what_it_may() -> None:
    for source in ("def test_a(:", "from cases import *"):
        assert find_absent_tests(item(tests=("t.py::test_x",)), sources={"t.py": source}) == ()


def test_without_a_run_nothing_is_valid() -> None:
    assert classify(closed("no_change"), None) == Closed(RedVerdict.INVALID)


SHOP = """CASES = [1]

class TestSums:
    @pytest.mark.parametrize('n', [1])
    def test_sum(self, n):
        assert n == 1
"""


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("n == 1", "n == 2", ("t.py::TestSums::test_sum",)),
        ("[1])", "[1, 2])", ("t.py::TestSums::test_sum",)),
        ("CASES = [1]", "CASES = [1, 2]", ()),
        ("class TestSums", "class TestAll", ()),
    ],
)
def test_a_test_is_changed_if_its_text_or_its_decorators_differ(old: str, new: str, changed: tuple[str, ...]) -> None:
    assert find_changed_tests({"t.py": SHOP}, {"t.py": SHOP.replace(old, new)}) == changed
    assert find_changed_tests({}, {"t.py": SHOP}) == ()
    assert find_changed_tests({"t.py": SHOP}, {"t.py": "def broken("}) == ()


def test_a_changed_expectation_is_red_where_the_step_names_only_its_file() -> None:
    step = replace(item(), tests=("t.py",))
    before, after = names("t.py::a", "t.py::b"), names("t.py::a", "t.py::b")
    before = replace(before, tests=tuple(replace(case, outcome="passed") for case in before.tests))
    why = failure("assertion")
    after = replace(after, tests=(replace(after.tests[0], failure=why), replace(after.tests[1], outcome="passed")))
    new = replace(after.tests[0], nodeid="t.py::c")

    def judge(*tests: Case, changed: tuple[str, ...] = ("t.py::a",)) -> list[str]:
        run = replace(after, tests=(*after.tests, *tests), collected=2 + len(tests))
        return [each.code for each in judge_run(step, "red", report=run, baseline=before, changed=changed).reasons]

    assert judge() == []
    assert judge(new) == []
    assert judge(replace(new, outcome="passed", failure=None)) == ["already_green"]
    assert judge(changed=("t.py::b",)) == ["target_missing", "broke_others"]
    assert judge(new, changed=()) == ["broke_others"]
