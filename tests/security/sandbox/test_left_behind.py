"""What a run may not leave behind for whoever works in the project next: through git's folder, links, or by haste."""

import subprocess
import sys
from pathlib import Path

import pytest

from cdd_agent.sandbox.port import Command, Result
from cdd_agent.testrun.access import build_access, find_protected_tests
from cdd_agent.testrun.interpreter import Interpreter
from tests.cdd_agent.sandbox.conftest import PYTHON, Ground

INTERPRETER = Interpreter(path=Path(sys.executable), origin="", python="3.11.0", pytest="8.0.0", reads=PYTHON)


def git(folder: Path, *arguments: str) -> str:
    said = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return said.stdout.strip()


def run(ground: Ground, command: str, *, timeout_s: float = 20) -> Result:
    """What a command of a model's may do in GREEN."""
    (ground.project / ".cdd").mkdir(exist_ok=True)
    access = build_access(ground.project, INTERPRETER, locked=find_protected_tests(ground.project))
    argv = ("bash", "-c", command)
    return ground.sandbox.run(Command(argv=argv, cwd=ground.project, access=access, timeout_s=timeout_s))


@pytest.fixture
def boxed(tmp_path: Path) -> Ground:
    return Ground.lay(tmp_path, level="bwrap")


@pytest.mark.parametrize("separate", [False, True])
def test_git_runs_nothing_that_a_command_has_planted_in_its_folder(boxed: Ground, *, separate: bool) -> None:
    project, marks = boxed.project, boxed.outside / "marks"
    subprocess.run(["rm", "-rf", str(project / ".git")], check=True)
    git(project, "init", "-q", *([f"--separate-git-dir={project}/.repo"] if separate else []))
    (project / "a").write_text("a\n")
    folder = ".repo" if separate else ".git"
    run(
        boxed,
        f"""
        cp -r {folder} evil
        printf '[core]\\n\\tfsmonitor = touch {marks}; false\\n' | tee -a evil/config >> {folder}/config
        echo ../evil > {folder}/commondir
        printf '[core]\\n\\tfsmonitor = touch {marks}; false\\n' > {folder}/config.worktree
        mkdir -p {folder}/hooks {folder}/rebase-merge; echo 'touch {marks}' > {folder}/hooks/pre-commit
        echo 'exec touch {marks}' > {folder}/rebase-merge/git-rebase-todo
        """,
    )
    assert "?? a" in git(project, "status", "--porcelain")
    assert not marks.exists()
    left = ("commondir", "config.worktree", "hooks/pre-commit", "rebase-merge")
    assert [name for name in left if (project / folder / name).exists()] == []


def test_what_is_read_only_stays_when_the_folder_it_is_in_is_moved(tmp_path: Path) -> None:
    boxed = Ground.lay(tmp_path, level="bwrap")
    for name in ("tests/test_a.py", "backend/.venv/pyvenv.cfg", "specs/tickets/sale/plan.md"):
        (boxed.project / name).parent.mkdir(parents=True)
        (boxed.project / name).write_text("mine\n")
    run(
        boxed,
        "for f in tests/test_a.py backend/.venv/pyvenv.cfg specs/tickets/sale/plan.md; do"
        " mv ${f%%/*} away; mkdir -p $(dirname $f); echo evil > $f; done",
    )
    changed = [path for path in boxed.project.rglob("*") if path.is_file() and path.read_text() == "evil\n"]
    assert changed == []


def test_sources_on_the_path_of_python_can_be_changed(confined: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    (confined.project / "src").mkdir()
    monkeypatch.setenv("PYTHONPATH", "src")
    assert run(confined, "echo 'a = 1' > src/a.py && echo written").output == "written\n"
