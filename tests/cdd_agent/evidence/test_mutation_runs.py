import os
import time
from pathlib import Path
from threading import Event, Timer, get_ident

import pytest

from cdd_agent.events import Emit, SuiteStarted
from cdd_agent.events import Event as CddEvent
from cdd_agent.evidence.mutation import TimedRuns, TimeUp
from cdd_agent.git.repository import Repository
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from tests.fakes.project import QUICK

ENDLESS = "import time\n\n\ndef test_it():\n    time.sleep(60)\n"


@pytest.fixture
def suite(tmp_path: Path, *, interpreter: Interpreter, bytecode: Path) -> PytestSuite:
    (tmp_path / "pytest.ini").write_text(QUICK)
    return PytestSuite(root=tmp_path, interpreter=interpreter, sandbox=PlainSandbox(), timeout_s=60, bytecode=bytecode)


def timed(suite: PytestSuite, *, limit_s: float, emit: Emit) -> TimedRuns:
    return TimedRuns(repository=Repository.create(suite.root), suite=suite, limit_s=limit_s, emit=emit)


@pytest.mark.slow
def test_a_run_is_told_and_counted(suite: PytestSuite) -> None:
    (suite.root / "test_it.py").write_text("def test_it(): pass\ndef test_other(): pass\n")
    seen: list[CddEvent] = []
    runs = timed(suite, limit_s=60, emit=seen.append)
    run = runs.run(suite, "some tests", tests=("test_it.py::test_it",))
    assert run.report is not None
    assert seen == [SuiteStarted(purpose="some tests", targets=("test_it.py::test_it",), framework="pytest")]
    assert runs.spent.count == 1


def test_a_run_ends_with_the_time_box(suite: PytestSuite) -> None:
    (suite.root / "test_it.py").write_text(ENDLESS)
    runs = timed(suite, limit_s=0.6, emit=lambda _: None)
    with pytest.raises(
        TimeUp,
        match=r"Not verified: the time for checks ended before endless tests \(0.6 s, evidence_timeout_s in .cdd",
    ):
        runs.run(suite, "endless tests")
    with pytest.raises(TimeUp, match="ended before more tests"):
        runs.run(suite, "more tests")


@pytest.mark.slow
def test_a_part_of_the_time_leaves_the_rest_to_others(suite: PytestSuite) -> None:
    (suite.root / "test_it.py").write_text(ENDLESS)
    runs = timed(suite, limit_s=60, emit=lambda _: None)
    with pytest.raises(TimeUp, match="ended before endless tests"):
        runs.take_part(0.02).run(suite, "endless tests")
    assert runs.left_s > 30


def test_results_come_in_the_order_of_the_experiments(suite: PytestSuite) -> None:
    runs, has_ended = timed(suite, limit_s=60, emit=lambda _: None), Event()

    def wait() -> str:
        return "waited" if cores < 2 or has_ended.wait(60) else "too late"

    def end() -> str:
        has_ended.set()
        return "quick"

    cores = len(os.sched_getaffinity(0))
    assert [*runs.run_side_by_side(wait, end)] == ["waited", "quick"]


def test_experiments_run_one_after_the_other_if_a_copy_takes_longer_than_a_run(suite: PytestSuite) -> None:
    runs = timed(suite, limit_s=60, emit=lambda _: None)
    runs.spent.quickest_s, runs.spent.copy_s = 1.0, 2.0
    assert {*runs.run_side_by_side(get_ident, get_ident)} == {get_ident()}


def test_experiments_that_have_not_begun_are_dropped(suite: PytestSuite) -> None:
    runs, is_dropped = timed(suite, limit_s=60, emit=lambda _: None), Event()
    waiting = [lambda: str(is_dropped.wait(60))] * 2 * len(os.sched_getaffinity(0))
    for result in runs.run_side_by_side(lambda: "refused", *waiting):
        assert result == "refused"
        Timer(0.2, is_dropped.set).start()
        break


def test_an_experiment_ends_when_its_result_is_not_wanted(suite: PytestSuite) -> None:
    (suite.root / "test_it.py").write_text(ENDLESS)
    started = Event()
    runs = timed(suite, limit_s=60, emit=lambda _: started.set())

    def refuse() -> str:
        started.wait(0 if len(os.sched_getaffinity(0)) < 2 else 60)
        return "refused"

    began = time.monotonic()
    for result in runs.run_side_by_side(refuse, lambda: str(runs.run(suite, "endless tests").problem)):
        assert result == "refused"
        break
    assert time.monotonic() - began < 30
