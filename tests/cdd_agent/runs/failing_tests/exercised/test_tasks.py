"""Defects are mended and exercises solved, whatever the model says of its work; tricks are refused."""

from collections.abc import Sequence

import pytest

from cdd_agent.config.settings import GreenSettings
from tests.cdd_agent.runs.failing_tests.conftest import MakeShop, plays
from tests.cdd_agent.runs.failing_tests.exercised.defects import DEFECTS
from tests.cdd_agent.runs.failing_tests.exercised.exercises import EXERCISES
from tests.cdd_agent.runs.failing_tests.exercised.task import Task, hands_in
from tests.cdd_agent.runs.failing_tests.exercised.tricks import HONEST_BEFORE, HONEST_TEST, TRICKS, Trick

QUICK_ONES = 1
"""So many defects and tricks are in every run of the suite."""


def some(tasks: Sequence[Task | Trick], quick_ones: int = QUICK_ONES) -> list[object]:
    """Return the first few of the tasks or tricks to be run in this process, and all of them to be run by pytest."""
    quick = [pytest.param(task, "make_shop", id=f"{task.name}, in this process") for task in tasks[:quick_ones]]
    real = [pytest.param(task, "make_real_shop", id=task.name, marks=pytest.mark.slow) for task in tasks]
    return [*quick, *real]


@pytest.mark.parametrize(("task", "maker"), [*some(DEFECTS), *some(EXERCISES, 0)])
def test_a_task_is_done_by_the_code_and_by_nothing_that_is_said_of_it(
    request: pytest.FixtureRequest, *, task: Task, maker: str
) -> None:
    make_shop: MakeShop = request.getfixturevalue(maker)
    shop = make_shop(task.files)
    model = plays(*task.turns)
    artifact = shop.green(["tests/test_task.py"], model=model, evidence_timeout_s=30).run()
    assert artifact.error is None
    assert (artifact.outcome, artifact.iterations, artifact.all_tests_pass) == ("green", len(task.tries), True)
    assert shop.project.log[0].startswith(f"{task.kind}: make ")
    assert shop.project.git("show", "--format=", "--name-only", "HEAD") == "task.py"
    assert (shop.project.folder / "task.py").read_text() == task.tries[-1]
    changed = artifact.implementation_files
    assert (changed.created, changed.edited) == (((), ("task.py",)) if task.before else (("task.py",), ()))
    assert shop.project.status == ""


@pytest.mark.parametrize(("trick", "maker"), some(TRICKS))
def test_a_trick_is_refused_and_nothing_of_it_stays(
    request: pytest.FixtureRequest, *, trick: Trick, maker: str
) -> None:
    make_shop: MakeShop = request.getfixturevalue(maker)
    files = {"task.py": HONEST_BEFORE, "tests/test_task.py": HONEST_TEST}
    shop = make_shop(files)
    model = plays(hands_in(trick.files, known={**files, "pytest.ini": ""}))
    green = shop.green(["tests/test_task.py"], model=model, settings=GreenSettings(max_iterations=1))
    artifact = green.run()
    assert artifact.error is not None
    assert (artifact.outcome, artifact.commit, artifact.all_tests_pass) == ("failed", None, False)
    codes = [reason.code for reason in shop.saved(green).execution(1).attempts[0].reasons]
    assert trick.code in codes
    assert shop.project.log == []
    assert shop.project.status == ""
