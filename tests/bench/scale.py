"""The cost of a test run, a search and a status in large projects, beside the bare tool or a small project."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from cdd_agent.git.repository import Repository
from cdd_agent.runs.plan_steps import step_key
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.interpreter import find_interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.ticket import find
from cdd_agent.work.outcome import Open
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepKey, pending_steps
from cdd_agent.work.state_file import lines_path, save_state
from cdd_agent.workspace.files import Workspace, grep
from tests.bench.bars import Bars
from tests.bench.measure import ROOT, inherited, spend
from tests.bench.step import SLUG, Size
from tests.fakes.lean import lean_python

BAR_HYPOTHESIS = 1.5
BAR_GREP = 8
BAR_STATUS = 3
BAR_SAVE = 1.1
_SAVES = 62
"""Enough for steps to move out of ``execution-state.json`` twice."""
_ROUNDS = 7
_STEPS = 1000
_FILES = 20_000
_PATTERN = "value_777"


def show(folder: Path, *, quick: bool) -> bool:
    """Print the figures and the bars; return whether all are kept."""
    print("\nlarge projects: CPU, in that of the bare tool or of a small project")
    bars = Bars()
    bars.at_most("a test run with hypothesis installed, in bare runs", _compare_test_run(folder), limit=BAR_HYPOTHESIS)
    projects = {steps: _finish_steps(folder / f"{steps} steps", steps) for steps in (1, _STEPS)}
    for words in (("status",), ("status", SLUG)):
        name = " ".join(words)
        bars.at_most(f"cdd {name} with {_STEPS:,} steps", _compare_status(projects, words), limit=BAR_STATUS)
    name = f"bytes of {_SAVES} saves after {_STEPS:,} finished steps, in those after 10"
    bars.at_most(
        name, _count_saved(folder / "after many", _STEPS) / _count_saved(folder / "after 10", 10), limit=BAR_SAVE
    )
    if not quick:
        bars.at_most(f"Grep in {_FILES:,} files, in git grep", _compare_search(folder / "many"), limit=BAR_GREP)
    return bars.are_kept


def _measure(act: Callable[[], object]) -> float:
    """CPU seconds of ``act``, with its child processes."""

    def read() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))

    before = read()
    act()
    return read() - before


def _compare(act: Callable[[], float], beside: Callable[[], float]) -> float:
    return median(act() / beside() for _ in range(_ROUNDS))


def _compare_test_run(folder: Path) -> float:
    python = lean_python(folder.parent / "with hypothesis", "hypothesis", "sortedcontainers")
    Size(files=10, tests=10).write(folder / "small")
    project = folder / "small" / "project"
    os.environ["CDD_PYTHON"] = str(python)
    suite = PytestSuite(
        root=project,
        interpreter=find_interpreter(project),
        sandbox=PlainSandbox(),
        timeout_s=60,
        bytecode=folder / "bytecode",
    )
    bare = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    suite.run()  # compiles
    return _compare(lambda: _measure(suite.run), lambda: spend(bare, project, environment=inherited())[0])


def _finish_steps(folder: Path, count: int) -> Path:
    """Write a project whose ticket has ``count`` completed steps."""
    Size(files=10, tests=10, steps=count).write(folder)
    ticket = find(folder / "project", SLUG)
    plan = plan_markdown.load_valid(ticket.plan_path, spec.load(ticket.spec_path))
    attempts = tuple(AttemptRecord(phase=phase, number=1, outcome=Open()) for phase in ("red", "green", "refactor"))
    steps = {
        number: replace(step, status=Status.COMPLETED, attempts=attempts, commits={"red": "a" * 40, "green": "b" * 40})
        for number, step in pending_steps(map(step_key, plan.steps)).items()
    }
    save_state(ticket.state_path, RunState(ticket_slug=SLUG, started_at="2026-01-31T12:00:00Z", step_executions=steps))
    return folder / "project"


def _count_saved(folder: Path, finished: int) -> int:
    """Return the bytes that ``_SAVES`` saves write, each with one more completed step, after ``finished`` of them."""
    keys = [StepKey(number=number, title=f"Step {number}", text_sha256="a" * 64) for number in range(2 * _STEPS)]
    steps, path, written, before = pending_steps(keys), folder / "execution-state.json", 0, 0
    for done in (finished, *range(finished + 1, finished + 1 + _SAVES)):
        completed = {key.number: replace(steps[key.number], status=Status.COMPLETED) for key in keys[:done]}
        state = RunState(ticket_slug=SLUG, started_at="2026-01-31T12:00:00Z", step_executions={**steps, **completed})
        save_state(path, state)
        size_bytes = lines_path(path).stat().st_size
        written += (path.stat().st_size + size_bytes - before) if done > finished else 0
        before = size_bytes
    return written


def _compare_status(projects: dict[int, Path], words: tuple[str, ...]) -> float:
    variables = inherited() | {"HOME": str(projects[1].parent), "PYTHONPATH": str(ROOT)}

    def run(steps: int) -> float:
        return spend([sys.executable, "-m", "cdd_agent", *words], projects[steps], environment=variables)[0]

    return _compare(lambda: run(_STEPS), lambda: run(1))


def _compare_search(folder: Path) -> float:
    Size(files=_FILES, tests=10).write(folder)
    project = folder / "project"
    repository = Repository.find(project)
    workspace = Workspace(project, list_ignored=lambda: repository.list_ignored_in(project))

    def search_bare() -> None:
        subprocess.run(["git", "grep", "-nI", _PATTERN], cwd=project, check=True, capture_output=True)

    return _compare(lambda: _measure(lambda: grep(workspace, _PATTERN)), lambda: _measure(search_bare))
