"""The cost of noting which tests enter which files, in a run of Python 3.12 or newer."""

import shutil
from pathlib import Path

from cdd_agent.testrun.inside import run_plugin
from tests.bench.bars import Bars
from tests.bench.measure import compare
from tests.fakes.lean import lean_python
from tests.pytest_tdd_agent.matrix.environments import interpreter

BAR_CPU = 1.1
_TESTS = 4000
_PER_FILE = 100
_FUNCTIONS = 40
"""Each test calls all of them ten times."""
_PROGRAM = (
    "import sys; {before}; import {plugin}, pytest; sys.exit(pytest.main(['-q', '-p', '{plugin}', *sys.argv[1:]]))"
)


def show(folder: Path, *, quick: bool) -> bool:
    """Print the cost; return whether it is within its bar. Without such a Python, nothing is measured."""
    newer = next((found for release in ("3.13", "3.12") if (found := interpreter(release))), None)
    if newer is None:
        print("impact: not measured, because Python 3.12 or newer is missing among pyenv's versions and on PATH")
        return True
    python = str(lean_python(folder.with_name("impact-environment"), python=newer))
    project = folder / "project"
    project.mkdir(parents=True)
    name = "tdd_agent_run"
    shutil.copy(str(run_plugin.__file__), project / f"{name}.py")
    _write_tests(project, number=_TESTS // (4 if quick else 1))
    programs = {"off": "del sys.monitoring", "on": "pass"}
    commands = {key: (python, "-c", _PROGRAM.format(before=before, plugin=name)) for key, before in programs.items()}
    costs = compare(commands, project, rounds=3 if quick else 7)
    print(f"impact: {costs['on'].shown} of the same run without it")
    bars = Bars()
    bars.at_most("CPU of a run that notes which tests enter which files", costs["on"].ratio, limit=BAR_CPU)
    return bars.are_kept


def _write_tests(project: Path, *, number: int) -> None:
    functions = "".join(f"def step_{at}(value):\n    return value + {at}\n\n\n" for at in range(_FUNCTIONS))
    total = "def total(value):\n" + "".join(f"    value = step_{at}(value)\n" for at in range(_FUNCTIONS))
    (project / "shop.py").write_text(f"{functions}{total}    return value\n")
    for at in range(0, number, _PER_FILE):
        body = "    for each in range(10):\n        assert total(each) > each\n"
        tests = "".join(f"def test_{at + more}():\n{body}\n\n" for more in range(_PER_FILE))
        (project / f"test_{at:05}.py").write_text(f"from shop import total\n\n\n{tests}")
