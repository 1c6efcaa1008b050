from dataclasses import replace

from cdd_agent.tdd.instructions import list_remedies, load_remedies
from pytest_tdd_agent.failure import KINDS
from pytest_tdd_agent.report import Failure

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
