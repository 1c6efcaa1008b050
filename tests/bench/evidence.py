"""What the checks of an honest change cost beside one run of all its tests, in the median over exercises."""

import os
from pathlib import Path
from statistics import median

from cdd_agent.sandbox.choice import choose
from cdd_agent.testrun.interpreter import find_interpreter
from tests.bench.bars import Bars
from tests.cdd_agent.runs.failing_tests.exercised.defects import DEFECTS
from tests.cdd_agent.runs.failing_tests.exercised.exercises import EXERCISES
from tests.cdd_agent.runs.failing_tests.exercised.task import Task
from tests.fakes.lean import lean_python
from tests.verdicts.change import Change
from tests.verdicts.judge import Outcome, Place, judge

BAR_S = 2.0
BAR_RUNS = 1.5
BAR_TARGETS = 5
"""Most runs of the targets."""
_QUICK = 5


def show(folder: Path, *, quick: bool) -> bool:
    """Print the figures and the bars; return whether all are kept."""
    print("\nthe checks of an honest change to an exercise, after one run of all its tests")
    os.environ.update(CDD_PYTHON=str(lean_python(folder.parent / "lean")), XDG_STATE_HOME=str(folder / "state"))
    (folder / "bytecode").mkdir(parents=True)
    place = Place(
        interpreter=find_interpreter(folder), bytecode=folder / "bytecode", sandbox=choose("auto", unattended=False)
    )
    tasks = (*EXERCISES, *DEFECTS)
    found = [
        _solve(task, folder / f"{number}", place=place)
        for number, task in enumerate(tasks[:_QUICK] if quick else tasks)
    ]
    for task, outcome in zip(tasks, found, strict=False):
        print(
            f"  {task.name:<40} {outcome.summary:<10} run {outcome.full_run_s:.2f} s, checks {outcome.evidence_s:.2f} s"
        )
    bars = Bars()
    bars.at_most("changes that are refused", sum(not outcome.is_open for outcome in found), limit=0)
    over = median(outcome.evidence_s - BAR_RUNS * outcome.full_run_s for outcome in found)
    bars.at_most(f"median seconds of the checks beyond {BAR_RUNS} runs of all tests", over, limit=BAR_S)
    bars.at_most("runs of the targets, in the median", median(map(_count_target_runs, found)), limit=BAR_TARGETS)
    return bars.are_kept


def _solve(task: Task, folder: Path, *, place: Place) -> Outcome:
    change = Change(
        kind="honest",
        why="",
        phase="green",
        title=task.name,
        tests={"tests/test_task.py": task.test},
        before={**task.more, **({"task.py": task.before} if task.before else {})},
        after={"task.py": task.tries[-1]},
        hidden="",
    )
    return judge(change, folder, place=place)


def _count_target_runs(outcome: Outcome) -> int:
    return sum("other code" not in purpose and "once more" not in purpose for purpose in outcome.checks)
