"""Steps that do not depend on each other are worked out side by side, and land as if one had followed the other."""

import json
from pathlib import Path

import pytest

from tests.stories.conftest import Cdd, ended, git, under_git

NAMES = {"add": "+", "mul": "*"}
SPEC = """\
title: Sums
status: planned
problem: Prices cannot be added or multiplied.
acceptance_criteria:
- {id: AC-1, text: WHEN two prices are given THE SYSTEM SHALL return their sum}
- {id: AC-2, text: WHEN two prices are given THE SYSTEM SHALL return their product}
- {id: AC-3, text: WHEN two prices are given THE SYSTEM SHALL return both}
"""
STEP = """
## Step {number}: {name}

- Depends on: {needs}
- Files: {file}
- Tests: tests/test_{name}.py::test_{name}
- Criteria: AC-{number}

Write {name}.
"""
ZERO = "def zero():\n    return 0\n"
DONE: tuple[str, dict[str, object]] = ("CompleteImplementation", {"implementation_files": []})


def lay(folder: Path, *, together: bool) -> tuple[Path, Path]:
    """A project with a plan of three steps, and its recording. ``together``: the first two change the same lines."""
    turns: list[object] = []
    plan = "# Plan: Sums\n"
    sources = {name: "shop/base.py" if together else f"shop/{name}.py" for name in NAMES}
    modules = {name: source.removesuffix(".py").replace("/", ".") for name, source in sources.items()}
    both = "".join(f"from {modules[name]} import {name}\n" for name in NAMES)
    both += "\n\ndef both(a, b):\n    return add(a, b), mul(a, b)\n"
    codes = {name: f"def {name}(a, b):\n    return a {sign} b\n" for name, sign in NAMES.items()} | {"both": both}
    for number, name in enumerate(codes, 1):
        file = sources.get(name, "shop/both.py")
        plan += STEP.format(number=number, name=name, file=file, needs="1, 2" if name == "both" else "none")
        text = f"from {modules.get(name, 'shop.both')} import {name}\n\n\ndef test_{name}():\n"
        text += f"    assert {name}(2, 5) == {(7, 10, (7, 10))[number - 1]}\n"
        write = [("Write", {"file_path": file, "content": codes[name]})]
        if together and name in NAMES:
            edit = {"file_path": file, "old_string": ZERO, "new_string": f"{ZERO}\n\n{codes[name]}"}
            write = [("Read", {"file_path": file}), ("Edit", edit)]
        test = ("Write", {"file_path": f"tests/test_{name}.py", "content": text})
        for phase, calls in (("red", [test]), ("green", write), ("refactor", [])):
            content = [{"type": "tool_use", "name": tool, "input": given} for tool, given in (*calls, DONE)]
            turns.append({"when": f"^Work: executor sums step {number} {phase} attempt 1$", "content": content})
    files = {
        "shop/__init__.py": "",
        "shop/base.py": ZERO,
        "tests/test_base.py": "from shop.base import zero\n\n\ndef test_zero():\n    assert zero() == 0\n",
        "ctypes.py": "raise SystemExit('a process found the project in place of its own modules')\n",
        "pytest.ini": "[pytest]\npythonpath = .\n",
        "tickets/sums/spec.yaml": SPEC,
        "tickets/sums/plan.md": plan,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    under_git(folder)
    recording = folder.with_suffix(".json")
    recording.write_text(json.dumps(turns))
    return folder, recording


@pytest.mark.slow
@pytest.mark.parametrize("case", ["as planned", "killed", "the same lines"])
def test_the_tree_is_that_of_one_job(tmp_path: Path, cdd: Cdd, home: Path, *, case: str) -> None:
    trees = []
    for jobs in ("1", "2"):
        project, recording = lay(tmp_path / jobs, together=case == "the same lines")
        arguments = ("--replay", str(recording), "exec", "sums", "--yes", "--jobs", jobs)
        if case == "killed" and jobs == "2":
            status, _ = ended(arguments, folder=project, home=home, after_s=7)
            assert status == -9
            assert git(project, "branch", "--list", "fork/*") != ""
        run = cdd(*arguments, cwd=project)
        assert run.returncode == 0, run.stdout + run.stderr
        assert ("Brought in from the fork" in run.stdout) == (jobs == "2")
        assert ("so it is done again" in run.stdout) == (jobs == "2" and case == "the same lines")
        subjects = git(project, "log", "--reverse", "--format=%s").splitlines()[2:]
        trees.append((git(project, "ls-tree", "-r", "HEAD"), subjects))
        assert git(project, "status", "--porcelain") == git(project, "branch", "--list", "fork/*") == ""
        assert "claims: all true" in cdd("audit", cwd=project).stdout
    assert trees[0] == trees[1]
