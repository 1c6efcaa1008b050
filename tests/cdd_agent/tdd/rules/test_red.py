from dataclasses import replace

import pytest

from cdd_agent.tdd.rules.red import RedVerdict, red_verdict
from pytest_tdd_agent.report import Case, CollectError, Failure, Reason, SuiteReport, Verdict

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
    return Verdict(phase="red", open=False, reasons=tuple(Reason(code, None, "m") for code in codes))


OPEN = Verdict(phase="red", open=True)


def test_an_open_red_is_valid_or_waits_for_a_name_that_is_to_be_made() -> None:
    assert red_verdict(OPEN, report(failure("assertion")), baseline=EMPTY) is RedVerdict.VALID
    missing = report(failure("import_error", missing="calc.add"), failure("assertion"))
    assert red_verdict(OPEN, missing, baseline=EMPTY, expects=("calc",)) is RedVerdict.VALID_MISSING_SYMBOL


def test_what_failed_before_says_nothing_of_the_new_tests() -> None:
    old = CollectError(nodeid="old.py", failure=failure("missing_module", phase="collect", missing="calc"))
    run = report(failure("assertion"))
    with_old = replace(run, collect_errors=(old,))
    assert red_verdict(OPEN, with_old, baseline=with_old, expects=("calc",)) is RedVerdict.VALID


@pytest.mark.parametrize(
    ("codes", "word"),
    [
        (("already_green",), RedVerdict.ALREADY_GREEN),
        (("already_green", "wrong_reason"), RedVerdict.INVALID),
        (("flaky_target",), RedVerdict.FLAKY),
        (("broke_others", "flaky_target"), RedVerdict.BROKE_OTHERS),
        (("source_changed", "broke_others"), RedVerdict.TAMPER),
        (("tampered",), RedVerdict.TAMPER),
        (("test_removed",), RedVerdict.TAMPER),
        (("wrong_reason",), RedVerdict.INVALID),
        (("run_incomplete",), RedVerdict.INVALID),
        (("no_tests",), RedVerdict.INVALID),
    ],
)
def test_a_closed_red_has_one_word_the_worst_first(codes: tuple[str, ...], word: RedVerdict) -> None:
    assert red_verdict(closed(*codes), report(failure("assertion")), baseline=EMPTY) is word


def test_without_a_run_nothing_is_valid() -> None:
    assert red_verdict(closed("no_change"), None, baseline=EMPTY) is RedVerdict.INVALID
