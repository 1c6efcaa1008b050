"""What ``--jobs 2`` saves for three steps that do not depend on each other, with a model that takes time to answer."""

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from cdd_agent.model.recording import load_recording
from tests.bench.bars import Bars
from tests.bench.measure import ROOT, inherited
from tests.bench.step import SLUG, SPEC
from tests.fakes.lean import lean_python
from tests.fakes.messages_server import MessagesServer
from tests.stories.conftest import under_git

BAR = 0.65
_STEPS = 3
_LATENCY_S = 3.0
"""Of one answer."""
_STEP = """\
### Step {number}: Discount {number}
- [ ] done
- Depends on: none
- Files: `shop/discount{number}.py`
- Tests: `tests/test_discount{number}.py::test_discount`
- Criteria: AC-1
- Kind: feature
- Size: small
"""
_CODE = "def discount(price, percent):\n    return price * (100 - percent) // {hundred}\n"
_TEST = """\
from shop.discount{number} import discount


def test_discount():
    assert discount(200, 10) == {expected}
"""
_DONE: tuple[str, dict[str, object]] = ("CompleteImplementation", {"implementation_files": []})


class _Slow(MessagesServer):
    """A server that thinks before each answer, about several at a time."""

    def answer(self, http: BaseHTTPRequestHandler) -> None:
        """Answer late."""
        time.sleep(_LATENCY_S)
        super().answer(http)


def _write(folder: Path) -> Path:
    """Write the project, and return the recording of the model's turns."""
    project, turns = folder / "project", []
    files = {
        "shop/__init__.py": "",
        "shop/total.py": "def total(prices):\n    return sum(prices)\n",
        "tests/test_total.py": "from shop.total import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
        "pytest.ini": "[pytest]\npythonpath = .\n",
        ".gitignore": "__pycache__/\n.cdd/\n",
        f"tickets/{SLUG}/spec.yaml": SPEC,
    }
    plan = ["# Implementation Plan: Discounts\n\n## Steps\n"]
    for number in range(1, _STEPS + 1):
        plan.append(_STEP.format(number=number))
        wanted = {"hundred": 100 * number, "expected": 200 * 90 // (100 * number), "number": number}
        written = {f"tests/test_discount{number}.py": _TEST, f"shop/discount{number}.py": _CODE}
        for phase, (path, text) in zip(("red", "green"), written.items(), strict=True):
            field: dict[str, object] = {"file_path": path, "content": text.format(**wanted)}
            turns.append(_make_turn(number, phase, [("Write", field), _DONE]))
        turns.append(_make_turn(number, "refactor", [_DONE]))
        turns.append({"when": f"^Work: examiner {SLUG} step {number} ", "content": ["None."]})
    files[f"tickets/{SLUG}/plan.md"] = "\n".join(plan)
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    under_git(project)
    recording = folder / "recording.json"
    recording.write_text(json.dumps(turns))
    return recording


def _make_turn(number: int, phase: str, calls: list[tuple[str, dict[str, object]]]) -> dict[str, object]:
    content = [{"type": "tool_use", "name": name, "input": given} for name, given in calls]
    return {"when": f"^Work: executor {SLUG} step {number} {phase} attempt 1$", "content": content}


def measure(folder: Path, *, jobs: int) -> float:
    """Return the seconds in which the ticket is carried out in a new project."""
    folder.mkdir(parents=True)
    recording, home = _write(folder), folder / "home"
    home.mkdir()
    variables = inherited() | {
        **{"HOME": str(home), "CDD_PYTHON": str(lean_python(folder.parent / "lean")), "PYTHONPATH": str(ROOT)},
        **{"XDG_STATE_HOME": str(folder / "state"), "ANTHROPIC_API_KEY": "sk-ant-bench", "NO_PROXY": "127.0.0.1"},
    }
    command = [sys.executable, "-m", "cdd_agent", "exec", SLUG, "--yes", "--jobs", str(jobs)]
    with _Slow(load_recording(recording)) as server:
        variables["ANTHROPIC_BASE_URL"] = server.base_url
        began = time.monotonic()
        ended = subprocess.run(
            command, cwd=folder / "project", env=variables, capture_output=True, text=True, check=False
        )
        took_s = time.monotonic() - began
    (folder / "output").write_text(ended.stdout + ended.stderr)
    if ended.returncode:
        raise SystemExit(f"the ticket was not completed: see {folder / 'output'}{os.linesep}{ended.stderr}")
    return took_s


def show(folder: Path) -> bool:
    """Print the figures and the bar; return whether it is kept."""
    print(f"\njobs: wall time of {_STEPS} independent steps, {_LATENCY_S:g} s for each answer")
    one, two = (measure(folder / f"{jobs}", jobs=jobs) for jobs in (1, 2))
    print(f"  one job {one:.1f} s, two jobs {two:.1f} s")
    bars = Bars()
    bars.at_most("wall time with --jobs 2, in that of one job", two / one, limit=BAR)
    return bars.are_kept
