"""Tests that do not end: the plugin interrupts them, or ends their process, and says where they were."""

import pytest

from pytest_tdd_agent.report import Case, StreamProblem
from tests.fakes.cases import soak_after

from .conftest import XDIST, Project, Run

LIMIT = "--tdd-agent-test-timeout=0.3"
PRODUCT = """
import time

def spin():
    while True:
        time.sleep(0.01)

def survive():
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass
"""
BESIDE = "import asyncio, pytest, signal, threading, time, unittest\nimport product\n\ndef test_a(): pass\n{}\n"
CATCHES = "def test_b():\n    with pytest.raises(BaseException): product.spin()"
FIXTURE = "@pytest.fixture\ndef it():\n    {}\ndef test_b(it): pass"
CASES = {
    "loop": ("def test_b(): product.spin()", "failed", "product.py"),
    "caught": (CATCHES, "failed", "product.py"),
    "expected failure": (f"@pytest.mark.xfail\n{CATCHES}", "failed", "product.py"),
    "replaced": ("def test_b():\n    try: product.spin()\n    finally: raise OSError", "failed", "product.py"),
    "setup": (FIXTURE.format("product.spin()"), "error", "product.py"),
    "teardown": (FIXTURE.format("yield\n    product.spin()"), "error", "product.py"),
    "wait": ("def test_b(): threading.Event().wait()", "failed", "test_a.py"),
    "coroutine": ("def test_b(): asyncio.run(asyncio.Event().wait())", "failed", "test_a.py"),
    "own alarm": ("def test_b(): signal.setitimer(signal.ITIMER_REAL, 0); time.sleep(0.4)", "failed", None),
}


def find(run: Run, name: str = "test_b") -> Case:
    return next(case for case in run.report.tests if case.nodeid.endswith(name))


@soak_after(2, ("tests", "outcome", "path"), list(CASES.values()), ids=list(CASES))
def test_a_test_beyond_the_limit_fails_where_it_was_and_the_later_ones_are_skipped(
    project: Project, tests: str, *, outcome: str, path: str | None
) -> None:
    project.write(product=PRODUCT, test_a=BESIDE.format(tests) + "def test_c(): pass\n")
    run = project.pytest(LIMIT, "--tdd-agent-flaky=1")
    assert (run.status, run.report.complete) == (1, True)
    assert [(case.nodeid, case.outcome) for case in run.report.tests] == [
        ("test_a.py::test_a", "passed"),
        ("test_a.py::test_b", outcome),
        ("test_a.py::test_c", "skipped"),
    ]
    why = find(run).failure
    assert why is not None
    assert (why.kind, why.exception, why.path) == ("timeout", "TimeLimitExceeded", path)
    assert why.message == "the test did not end within 0.3 s"
    assert "not run, because test_a.py::test_b did not end" in project.pytest(LIMIT, "-rs").output


def test_a_test_that_survives_is_reported_by_the_parent_of_its_ended_process(project: Project) -> None:
    project.write(conftest="from pytest_tdd_agent import time_limit\ntime_limit.GRACE_S = 0.2\n")
    project.write(product=PRODUCT, test_a=BESIDE.format("def test_b(): product.survive()"))
    run = project.pytest(LIMIT, "--tdd-agent-gate=green", start=True)
    why = find(run).failure
    assert why is not None
    assert (why.kind, why.path, why.frames[-1].function) == ("timeout", "product.py", "survive")
    assert (run.status, run.codes, run.report.complete) == (1, ["run_incomplete"], False)
    assert run.report.problem == StreamProblem("endless_test", "test_a.py::test_b")
    assert "test_a.py::test_b did not end, so the tests after it did not run: timeout" in run.output


@pytest.mark.slow
def test_after_a_failed_part_of_a_test_its_process_can_still_be_ended(project: Project) -> None:
    parts = "class TestB(unittest.TestCase):\n    def test_b(self):\n"
    parts += "        with self.subTest(1): assert False\n        product.survive()\n"
    project.write(conftest="from pytest_tdd_agent import time_limit\ntime_limit.GRACE_S = 0.2\n")
    project.write(product=PRODUCT, test_a=BESIDE.format(parts))
    assert project.pytest(LIMIT, start=True).report.problem == StreamProblem("endless_test", "test_a.py::TestB::test_b")


@pytest.mark.slow
def test_workers_of_xdist_report_where_a_test_was(project: Project) -> None:
    project.write(product=PRODUCT, test_a=BESIDE.format(CASES["loop"][0]) + "def test_c(): pass\n")
    run = project.pytest(LIMIT, *XDIST)
    why = find(run).failure
    assert why is not None
    assert (why.kind, why.path, find(run, "test_c").outcome) == ("timeout", "product.py", "skipped")


def test_a_limit_changes_nothing_for_quick_tests(project: Project) -> None:
    project.write(test_a="def test_a(): pass\ndef test_b(): assert 0\n")
    run = project.pytest("--tdd-agent-test-timeout=30")
    assert [(case.outcome, case.failure and case.failure.kind) for case in run.report.tests] == [
        ("passed", None),
        ("failed", "assertion"),
    ]
    assert (run.status, run.report.complete) == (1, True)


def test_a_limit_that_is_no_time_is_refused(project: Project) -> None:
    project.write(test_a="def test_a(): pass\n")
    for value in ("nan", "-1", "inf"):
        run = project.pytest(f"--tdd-agent-test-timeout={value}")
        assert run.status == 4
        assert f"--tdd-agent-test-timeout: {value} is not a number of seconds; use one such as 30" in run.errors
