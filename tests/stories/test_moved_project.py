"""Somebody moves the project away during a run, and a copy of it takes its place."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.fakes.program import EXAMPLES, Demo, command, environment
from tests.stories.conftest import git
from tests.stories.test_kill import planned


@pytest.mark.parametrize("demo", ["minutes-lost"], indirect=True)
def test_the_run_stops_and_goes_on_where_the_project_is_back(demo: Demo, home: Path, tmp_path: Path) -> None:
    folder = planned(demo, tmp_path / "project")
    recording = str(EXAMPLES / demo.name / "recording.yaml")
    play = command("--project", str(folder), "--replay", recording, "--yes", "--json", "exec", demo.name)
    with subprocess.Popen(
        play, cwd=tmp_path, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert any(json.loads(line)["event"] == "ToolCalled" for line in process.stdout)
        # The run goes on meanwhile, so a file may be gone before it is copied.
        swap = "cp -a project copy 2>/dev/null || true; mv project moved; mv copy project"
        subprocess.run(["sh", "-ec", swap], cwd=tmp_path, check=True)
        copied = list_files(folder)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 4, errors.decode()
    assert f"{folder} was moved to {tmp_path}/moved while cdd worked in it" in errors.decode()
    assert list_files(folder) == copied

    subprocess.run(["sh", "-ec", "mv project project.other; mv moved project"], cwd=tmp_path, check=True)
    subprocess.run(play, cwd=tmp_path, env=environment(home), check=True, capture_output=True, timeout=120)
    assert git(folder, "log", "--reverse", "--format=%s").splitlines() == demo.executed[1]


def list_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Each path below a folder, with its inode and the time of its last change.

    Run trees are left out: a sandbox that was just starting may show its program the one in the copy.
    """
    paths = (path for path in folder.rglob("*") if folder / ".cdd" / "worktrees" not in path.parents)
    return {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in paths}
