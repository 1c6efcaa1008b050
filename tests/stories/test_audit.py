"""An audit of a feature that the four agents have built, by replay; with one forged note."""

import subprocess
from pathlib import Path

import pytest

from tests.stories.conftest import Cdd, bare, git
from tests.stories.features.calculator import CASES, REQUEST, recording

THREE = (CASES[0], CASES[1], CASES[4])


@pytest.mark.slow
def test_a_feature_is_all_true_and_a_forged_note_of_it_is_named(cdd: Cdd, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    bare(folder)
    turns = str(recording(THREE, tmp_path / "turns.json"))
    assert cdd("--replay", turns, "tdd", "run", REQUEST, "--yes", "--json", cwd=folder).returncode == 0
    done = cdd("audit", cwd=folder)
    assert done.returncode == 0, done.stdout
    assert "all true." in done.stdout
    green = git(folder, "log", "-1", "--grep=^Phase: GREEN$", "--format=%H")
    note = git(folder, "notes", "--ref=tdd-handoffs", "show", green)
    forged = note.replace('"testResult":"PASS"', '"testResult":"FAIL"').encode()
    add = ["git", "notes", "--ref=tdd-handoffs", "add", "-f", "-F", "-", green]
    subprocess.run(add, cwd=folder, check=True, input=forged, capture_output=True)
    done = cdd("audit", f"{green}^!", cwd=folder)
    assert done.returncode == 1
    assert f"{green[:8]}: note: GREEN ends with the result PASS, but this one ended with FAIL." in done.stdout
