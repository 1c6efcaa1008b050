"""What a run may not leave behind for whoever works in the project next: through git's folder, links, or by haste."""

import os
import subprocess
import sys
import time
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


@pytest.mark.parametrize("has_aside", [True, False])
def test_a_link_that_a_run_turns_to_another_project_takes_nothing_from_it(ground: Ground, *, has_aside: bool) -> None:
    victim = ground.outside / ".github/workflows/ci.yml"
    victim.parent.mkdir(parents=True)
    victim.write_text("somebody else's")
    (ground.project / ".github").symlink_to("cfg")
    if not has_aside:
        (ground.project / ".cdd").symlink_to("nowhere")
        (ground.project / "nowhere").mkdir()
    result = run(ground, f"rm .github; ln -s {ground.outside}/.github .github")
    assert victim.read_text() == "somebody else's"
    assert os.readlink(ground.project / ".github") == "cfg"
    assert len(result.remarks) == 1
    assert not list(ground.project.rglob("ci.yml"))


def test_a_link_to_gits_folder_that_a_run_turns_to_another_repository_changes_nothing_there(ground: Ground) -> None:
    subprocess.run(["rm", "-rf", str(ground.project / ".git")], check=True)
    for name in ("store", "other"):
        (ground.outside / name).mkdir()
        git(ground.outside / name, "init", "-q")
    git(ground.outside / "other", "config", "user.email", "their@own")
    (ground.project / ".git").symlink_to(ground.outside / "store/.git")
    result = run(ground, f"git status >/dev/null && echo works; rm .git; ln -s {ground.outside}/other/.git .git")
    assert result.output == "works\n"
    assert git(ground.outside / "other", "config", "user.email") == "their@own"
    assert os.readlink(ground.project / ".git") == str(ground.outside / "store/.git")
    assert len(result.remarks) == 1


@pytest.mark.parametrize("separate", [False, True])
def test_git_runs_nothing_that_a_command_has_planted_in_its_folder(confined: Ground, *, separate: bool) -> None:
    project, marks = confined.project, confined.outside / "marks"
    subprocess.run(["rm", "-rf", str(project / ".git")], check=True)
    git(project, "init", "-q", *([f"--separate-git-dir={project}/.repo"] if separate else []))
    (project / "a").write_text("a\n")
    folder = ".repo" if separate else ".git"
    run(
        confined,
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


def test_a_heap_of_new_folders_does_not_keep_a_plant_from_being_removed(ground: Ground) -> None:
    script = """
        echo '[core] fsmonitor = evil' >> .git/config
        all='.circleci .claude .codex .continue .cursor .devcontainer .gemini .hg .husky .idea .roo .vscode .zed'
        mkdir $all; for d in $all; do (cd $d; truncate -s 1M $(seq 290)); done
        sleep 60
    """
    started = time.monotonic()
    result = run(ground, script, timeout_s=3)
    assert time.monotonic() - started < 20
    assert result.timed_out
    assert (ground.project / ".git/config").read_text() == "[core]\n"
    assert not any((ground.project / name).exists() for name in (".circleci", ".vscode", ".zed"))
    assert len(result.remarks) >= 13


def test_sources_on_the_path_of_python_can_be_changed(confined: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    (confined.project / "src").mkdir()
    monkeypatch.setenv("PYTHONPATH", "src")
    assert run(confined, "echo 'a = 1' > src/a.py && echo written").output == "written\n"
