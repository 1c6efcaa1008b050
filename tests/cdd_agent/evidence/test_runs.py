import time
from pathlib import Path

import pytest

from cdd_agent.events import Event, SuiteFinished, SuiteStarted
from cdd_agent.evidence.runs import Runs, TimeUp, silence
from cdd_agent.testrun.detect import Interpreter
from cdd_agent.testrun.run import Suite
from cdd_agent.testrun.sandbox import ProcessSandbox
from tests.fakes.project import QUICK

ENDLESS = "import time\n\n\ndef test_it():\n    time.sleep(60)\n"


@pytest.fixture
def suite(tmp_path: Path, *, interpreter: Interpreter, bytecode: Path) -> Suite:
    (tmp_path / "pytest.ini").write_text(QUICK)
    return Suite(root=tmp_path, interpreter=interpreter, sandbox=ProcessSandbox(), timeout_s=60, bytecode=bytecode)


def test_a_run_is_told_before_and_after(suite: Suite) -> None:
    (suite.root / "test_it.py").write_text("def test_it(): pass\ndef test_other(): pass\n")
    seen: list[Event] = []
    runs = Runs(deadline=time.monotonic() + 60, emit=seen.append)
    run = runs.run(suite, "some tests", tests=("test_it.py::test_it",))
    assert run.report is not None
    assert seen == [
        SuiteStarted(purpose="some tests", targets=("test_it.py::test_it",)),
        SuiteFinished(
            purpose="some tests", passed=1, failed=0, errors=0, skipped=0, duration_s=run.duration_s, problem=None
        ),
    ]


def test_a_run_ends_with_the_time_box(suite: Suite) -> None:
    (suite.root / "test_it.py").write_text(ENDLESS)
    runs = Runs(deadline=time.monotonic() + 1.2, emit=silence)
    with pytest.raises(TimeUp, match="so not checked: endless tests"):
        runs.run(suite, "endless tests")
    with pytest.raises(TimeUp, match="so not checked: more tests"):
        runs.run(suite, "more tests")
