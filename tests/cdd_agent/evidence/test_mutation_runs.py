""""""

from pathlib import Path

import pytest

from cdd_agent.events import Emit, Event, SuiteStarted
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


def test_a_run_is_told_and_counted(suite: PytestSuite) -> None:
    (suite.root / "test_it.py").write_text("def test_it(): pass\ndef test_other(): pass\n")
    seen: list[Event] = []
    runs = timed(suite, limit_s=60, emit=seen.append)
    run = runs.run(suite, "some tests", tests=("test_it.py::test_it",))
    assert run.report is not None
    assert seen == [SuiteStarted(purpose="some tests", targets=("test_it.py::test_it",), framework="pytest")]
    assert runs.count == 1


def test_a_run_ends_with_the_time_box(suite: PytestSuite) -> None:
    (suite.root / "test_it.py").write_text(ENDLESS)
    runs = timed(suite, limit_s=1.2, emit=lambda _: None)
    with pytest.raises(
        TimeUp,
        match=r"Not verified: the time for checks ended before endless tests \(1.2 s, evidence_timeout_s in .cdd",
    ):
        runs.run(suite, "endless tests")
    with pytest.raises(TimeUp, match="ended before more tests"):
        runs.run(suite, "more tests")
