"""A run that goes back to one of its commits and on from there comes to the same end."""

from pathlib import Path

import pytest

from tests.stories.conftest import Cdd, bare, git
from tests.stories.features.calculator import CASES, REQUEST, recording


@pytest.mark.slow
def test_back_to_red_and_on_and_what_went_back_again(cdd: Cdd, tmp_path: Path) -> None:
    folder, turns = tmp_path / "project", str(recording(CASES[:1], tmp_path / "turns.json"))
    bare(folder)
    assert cdd("--replay", turns, "tdd", "run", REQUEST, "--yes", cwd=folder).returncode == 0
    whole = git(folder, "log", "--format=%s %T")
    assert git(folder, "log", "--format=%s", "HEAD~3").startswith("test: adds two numbers")
    first = git(folder, "rev-parse", "HEAD")

    back = cdd("tdd", "rollback", "HEAD~3", "--yes", cwd=folder)
    assert back.returncode == 0, back.stderr
    assert "Continue with GREEN: cdd tdd resume" in back.stdout
    assert not (folder / "calculator.py").exists()
    on = cdd("--replay", turns, "tdd", "resume", "--yes", cwd=folder)
    assert on.returncode == 0, on.stderr
    assert git(folder, "log", "--format=%s %T") == whole
    assert git(folder, "rev-parse", "HEAD") != first

    undone = cdd("tdd", "rollback", "--undo", "--yes", cwd=folder)
    assert undone.returncode == 0, undone.stderr
    assert git(folder, "rev-parse", "HEAD") == first
    assert git(folder, "status", "--porcelain") == ""
    assert "the run is complete" in cdd("tdd", "status", cwd=folder).stdout
    assert "The notes have no problems" in cdd("tdd", "repair-notes", cwd=folder).stdout
