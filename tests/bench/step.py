"""What a step of ``cdd exec`` costs beside one bare pytest run of the same suite: CPU, runs, processes."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.bench.bars import Bars
from tests.bench.measure import ROOT, inherited, spend
from tests.fakes.lean import lean_python
from tests.stories.conftest import under_git

SLUG = "sale"
_PER_FILE = 100
BAR_PROCESSES = 7
"""Test processes of a step in which nothing goes wrong, after the first one."""
BAR_RUNS = 2
"""Runs of all tests in the second step and later."""
BAR_GIT = 65
"""Those that cdd starts; one lists the ignored files for each run of the tests, as the plugin does elsewhere."""
BAR_TARGETS = 5
BAR_FILES = 4.0
BARS = {10: 8.0, 1000: 5.0, 10_000: 3.5}
"""Number of tests -> CPU of a step in bare runs."""

SPEC = """\
schema: cdd/1
title: Discounts
type: feature
status: planned
description: Prices go down.
acceptance_criteria:
  - WHEN a price and a percentage are given THE SYSTEM SHALL return the price without that percentage
"""
_STEP = """\
### Step {number}: Discount {number}
- [ ] done
- Depends on: {before}
- Files: `shop/__init__.py`
- Tests: `tests/test_discount{number}.py::test_discount`
- Criteria: AC-1
- Kind: feature
- Size: small
"""
_TOTAL = "def total(prices):\n    return sum(prices)\n"
_CODE = "\n\ndef discount{number}(price, percent):\n    return price * (100 - percent) // 100\n"
_TIDY = "\n\ndef discount{number}(price, percent):\n    rest = 100 - percent\n    return price * rest // 100\n"
_TEST = """\
from shop import discount{number}


def test_discount():
    assert discount{number}(200, 10) == 180
    assert discount{number}(50, 50) == 25
"""
_EXAMPLES = '''\
```python
from shop import discount{number}


def test_nothing():
    """AC-1: nothing off"""
    assert discount{number}(70, 0) == 70


def test_all():
    """AC-1: all off"""
    assert discount{number}(70, 100) == 0
```
'''

# Logs the programs that cdd starts.
_WATCH = """\
import os, sys
if "cdd_agent" in sys.orig_argv:
    def watch(event, arguments):
        if event == "subprocess.Popen":
            with open(os.environ["STARTED"], "a") as log:
                print(os.path.basename(str(arguments[0])), *map(repr, arguments[1][1:3]), file=log)
    sys.addaudithook(watch)
"""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A project."""

    files: int
    tests: int
    steps: int = 2
    is_clean: bool = False
    """Whether the model runs the step's tests in RED and GREEN, as most do, and nothing is found that costs more: the
    Examiner has no further example, and REFACTOR changes nothing."""

    def write(self, folder: Path) -> Path:
        """Write the project with its ticket, commit it, and return the recording of a model that carries it out."""
        project = folder / "project"
        for number in range(self.files):
            module = project / "shop" / f"part{number // _PER_FILE}" / f"module{number}.py"
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text(f"def value_{number}(x):\n    return x + {number}\n")
        (project / "shop" / "__init__.py").write_text(_TOTAL)
        (project / "tests").mkdir()
        for number in range(0, self.tests, min(_PER_FILE, self.tests)):
            listed = range(number, number + min(_PER_FILE, self.tests))
            bodies = (f"\n\ndef test_{each}():\n    assert total([{each}, 1]) == {each + 1}\n" for each in listed)
            (project / "tests" / f"test_total{number}.py").write_text("from shop import total\n" + "".join(bodies))
        (project / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        (project / ".gitignore").write_text("__pycache__/\n.cdd/\n")
        ticket = project / "tickets" / SLUG
        ticket.mkdir(parents=True)
        (ticket / "spec.yaml").write_text(SPEC)
        steps = [_STEP.format(number=each, before=each - 1 or "none") for each in range(1, self.steps + 1)]
        (ticket / "plan.md").write_text("\n".join(("# Implementation Plan: Discounts\n\n## Steps\n", *steps)))
        under_git(project)
        turns = [turn for number in range(1, self.steps + 1) for turn in _play(number, is_clean=self.is_clean)]
        recording = folder / "recording.json"
        recording.write_text(json.dumps(turns))
        return recording


def _play(number: int, *, is_clean: bool) -> list[dict[str, object]]:
    """Return the turns of one step: RED, GREEN, the Examiner, and a REFACTOR, which changes nothing if ``is_clean``."""
    before = "".join((_CODE if is_clean else _TIDY).format(number=each) for each in range(1, number))
    green, tidy = (_TOTAL + before + code.format(number=number) for code in (_CODE, _TIDY))
    read = {"type": "tool_use", "name": "Read", "input": {"file_path": "shop/__init__.py"}}
    end = {"type": "tool_use", "name": "CompleteImplementation", "input": {"implementation_files": []}}

    def turn(work: str, *content: object) -> dict[str, object]:
        return {"when": f"^Work: {work}$", "content": content, "usage": {"input_tokens": 100, "output_tokens": 10}}

    def write(path: str, text: str) -> dict[str, object]:
        return {"type": "tool_use", "name": "Write", "input": {"file_path": path, "content": text}}

    step, file = f"executor {SLUG} step {number}", f"tests/test_discount{number}.py"
    tests = [{"type": "tool_use", "name": "RunTests", "input": {"targets": [f"{file}::test_discount"]}}] * is_clean
    tidied = () if is_clean else (read, write("shop/__init__.py", tidy))
    return [
        turn(f"{step} red attempt 1", write(file, _TEST.format(number=number)), *tests, end),
        turn(f"{step} green attempt 1", read, write("shop/__init__.py", green), *tests, end),
        turn(f"examiner {SLUG} step {number} examples", "None." if is_clean else _EXAMPLES.format(number=number)),
        turn(f"{step} refactor attempt 1", *tidied, end),
    ]


@dataclass(frozen=True, kw_only=True)
class Execution:
    """What ``cdd exec`` did, and what it cost."""

    cpu_s: float
    """Of cdd and all that it started."""
    bare_s: float
    """Of one bare pytest run."""
    started: tuple[str, ...]
    """The programs that cdd started, with their first two arguments."""
    events: tuple[dict[str, object], ...]

    def list_runs(self, step: int) -> list[str]:
        """Return the purposes of the test runs of a step."""
        found: list[list[str]] = [[]]
        for event in self.events:
            if event["event"] == "StepStarted":
                found.append([])
            elif event["event"] == "SuiteStarted":
                found[-1].append(str(event["purpose"]))
        return found[step]

    def list_events(self, name: str, step: int) -> list[dict[str, object]]:
        """Return the events of this name in a step."""
        begun = [place for place, event in enumerate(self.events) if event["event"] == "StepStarted"]
        own = self.events[begun[step - 1] : (*begun, len(self.events))[step]]
        return [event for event in own if event["event"] == name]

    def list_git(self) -> list[str]:
        """Return the git processes after the first run tree is ready."""
        ready = next(place for place, each in enumerate(self.started) if "pack-objects" in each)
        return [each for each in self.started[ready + 1 :] if each.startswith("git ")]


def execute(size: Size, folder: Path, *, prepare: str = "") -> Execution:
    """Carry out the ticket in a new project in ``folder``; ``prepare`` is a shell command that runs there before.

    In it, ``"$0" "$@"`` is cdd.
    """
    folder.mkdir(parents=True)
    recording, project, home = size.write(folder), folder / "project", folder / "home"
    home.mkdir()
    (home / "sitecustomize.py").write_text(_WATCH)
    python = lean_python(folder.parent / "lean")
    variables = inherited() | {
        **{"HOME": str(home), "CDD_PYTHON": str(python), "STARTED": str(folder / "started")},
        **{"PYTHONPATH": f"{home}{os.pathsep}{ROOT}", "XDG_STATE_HOME": str(folder / "state")},
    }
    cdd = [sys.executable, "-m", "cdd_agent"]
    subprocess.run(["sh", "-c", prepare or "true", *cdd], cwd=project, env=variables, check=True, capture_output=True)
    bare = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    bare_s = min(spend(bare, project, environment=variables)[0] for _ in range(3))
    log = folder / "events"
    command = [*cdd, "--replay", str(recording), "exec", SLUG, "--yes", "--json"]
    shell = ["sh", "-c", f'exec "$@" > {log}', "sh", *command]
    (folder / "started").unlink(missing_ok=True)
    cpu_s, _ = spend(shell, project, environment=variables)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    if events[-1].get("status") != "completed":
        raise SystemExit(f"the ticket was not completed: see {log}")
    started = tuple((folder / "started").read_text().splitlines())
    return Execution(cpu_s=cpu_s, bare_s=bare_s, started=started, events=tuple(events))


def show(folder: Path, *, quick: bool) -> bool:
    """Print the figures and the bars; return whether all are kept."""
    print("\na step: CPU of cdd and all that it starts, in bare runs of the same suite")
    sizes = {tests: Size(files=10, tests=tests) for tests in BARS if not quick or tests <= 10}
    found = {tests: execute(size, folder / f"{tests}") for tests, size in sizes.items()}
    bars = Bars()
    for tests, each in found.items():
        ratio = each.cpu_s / each.bare_s / sizes[tests].steps
        print(f"  {tests:>6} tests: {each.cpu_s:.2f} s for {sizes[tests].steps} steps, bare {each.bare_s:.2f} s")
        bars.at_most(f"CPU of a step with {tests:,} tests", ratio, limit=BARS[tests])
    small = found[min(found)]
    whole = [purpose for purpose in small.list_runs(2) if purpose.startswith("all tests")]
    bars.at_most("runs of all tests in step 2, its REFACTOR included", len(whole), limit=BAR_RUNS)
    one = execute(Size(files=10, tests=10, steps=1), folder / "one")
    bars.at_most("git processes of a cycle", len(one.list_git()), limit=BAR_GIT)
    targets = [
        purpose for purpose in small.list_runs(2) if "targets" in purpose or purpose == "calls of the changed code"
    ]
    bars.at_most("runs of the targets after GREEN", len(targets) - 2, limit=BAR_TARGETS)
    _show_cycle(execute(Size(files=10, tests=10, is_clean=True), folder / "clean"), bars)
    if not quick:
        many = execute(Size(files=20_000, tests=10), folder / "many")
        bars.at_most("CPU with 20,000 files, in that with 10", many.cpu_s / small.cpu_s, limit=BAR_FILES)
    return bars.are_kept


def _show_cycle(found: Execution, bars: Bars) -> None:
    """Print what a step takes in which nothing goes wrong; the first step has no earlier report."""
    runs = found.list_events("SuiteStarted", 2)
    whole = [run for run in runs if not run["targets"]]
    for run in runs:
        print(f"    {run['purpose']}")
    took = sum(float(str(event["duration_s"])) for event in found.list_events("SuiteFinished", 2))
    print(f"  a clean cycle: {len(runs)} test processes, {len(whole)} of all tests; {took:.1f} s besides the checks")
    bars.at_most("test processes of a clean cycle", len(runs), limit=BAR_PROCESSES)
    bars.at_most("runs of all tests in it", len(whole), limit=1)
