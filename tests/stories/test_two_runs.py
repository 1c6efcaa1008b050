"""Two runs at once in one project: each judges on top of the other's commits, and reports only its own."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.fakes.program import command, environment
from tests.stories.conftest import git, under_git

NAMES = ("add", "sell")
BEFORE = "def count():\n    return 0\n"
AFTER = "def count():\n    return 1\n"


@pytest.mark.slow
def test_two_runs_land_one_on_the_other(tmp_path: Path, home: Path) -> None:
    project = tmp_path / "shop"
    project.mkdir()
    for name in NAMES:
        (project / f"{name}.py").write_text(BEFORE)
        text = f"from {name} import count\n\n\ndef test_{name}():\n    assert count() == 1\n"
        (project / f"test_{name}.py").write_text(text)
        calls = (
            ("Read", {"file_path": f"{name}.py"}),
            ("Write", {"file_path": f"{name}.py", "content": AFTER}),
            ("CompleteImplementation", {"implementation_files": [f"{name}.py"]}),
        )
        content = [{"type": "tool_use", "name": tool, "input": given} for tool, given in calls]
        (tmp_path / f"{name}.json").write_text(json.dumps([{"content": content}]))
    under_git(project)
    start = git(project, "rev-parse", "HEAD")
    running = [
        subprocess.Popen(
            command("--replay", str(tmp_path / f"{name}.json"), "green", "--yes", "--json", f"test_{name}.py"),
            cwd=project,
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in NAMES
    ]
    told = [each.communicate(timeout=300)[0] for each in running]
    assert [each.returncode for each in running] == [0, 0], told
    artifacts = [json.loads(each.splitlines()[-1])["artifact"] for each in told]
    assert [each["implementation_files"]["edited"] for each in artifacts] == [[f"{name}.py"] for name in NAMES]
    assert [each["test_results"]["passed"] for each in artifacts] >= [1, 1]
    assert {each["commit"] for each in artifacts} == {*git(project, "rev-list", f"{start}..HEAD").split()}
    assert [(project / f"{name}.py").read_text() for name in NAMES] == [AFTER, AFTER]
    assert git(project, "status", "--porcelain", "--untracked-files=no") == ""
