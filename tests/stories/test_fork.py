"""A step is done in another way in a fork; the user compares both, merges the fork, and works on meanwhile."""

import json
from pathlib import Path

import pytest

from tests.fakes.demo import SLUG, build_finished, copied
from tests.fakes.files import describe_files
from tests.stories.conftest import Cdd, git
from tests.stories.test_iterate import turn
from tests.stories.test_jobs import DONE, lay

FIRST = "return add(a, b), mul(a, b)"
OTHER = "return tuple(each(a, b) for each in (add, mul))"
CODE = "def mul(a, b):\n"
ITERATED = f'{CODE}    """Return the product."""\n'


def describe(project: Path) -> dict[str, tuple[object, ...]]:
    """Return the user's files outside of the tickets."""
    return describe_files(project, leave_out=(".cdd", ".git", "tickets", "__pycache__"), times=True)


def describe_git(project: Path) -> tuple[str, bytes]:
    """Return the user's branch and index."""
    return git(project, "rev-parse", "HEAD"), (project / ".git" / "index").read_bytes()


def write_recording(path: Path, content: object) -> str:
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.slow
def test_a_step_is_done_in_another_way_compared_and_merged(tmp_path: Path, cdd: Cdd) -> None:
    project, recording = lay(tmp_path / "sums", together=False)

    def run(*arguments: str) -> str:
        done = cdd(*arguments, cwd=project)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    edit = ("Edit", {"file_path": "shop/mul.py", "old_string": CODE, "new_string": ITERATED})
    turns = [turn(DONE), turn(("Read", {"file_path": "shop/mul.py"}), edit, DONE)]
    iteration = write_recording(tmp_path / "iteration.json", turns)
    other = write_recording(tmp_path / "other.json", json.loads(recording.read_text().replace(FIRST, OTHER)))

    run("--replay", str(recording), "exec", "sums", "--yes")
    run("review", "sums", "--approve", "1")
    run("--replay", iteration, "exec", "sums", "--retry", "2", "--guidance", "Document it.", "--yes")
    assert git(project, "log", "-1", "--format=%s").startswith("refactor: ")

    (project / "shop" / "base.py").write_text("# mine\n")
    (project / "notes.txt").write_text("mine\n")
    (project / "staged.txt").write_text("mine\n")
    git(project, "add", "staged.txt")
    before, files = describe_git(project), describe(project)
    run("fork", "sums", "3", "Use one loop")
    run("--replay", other, "exec", "sums", "--yes")
    rows = map(json.loads, run("fork", "compare", "one-loop", "--json").splitlines())
    compared = [row for row in rows if "steps" in row]  # the others are files that differ
    assert [row["steps"]["3"] for row in compared] == ["completed"] * 2
    assert "shop/both.py" in compared[0]["files"]
    assert (describe_git(project), describe(project)) == (before, files)

    assert "Conflicts in 1 file:\n  shop/both.py\n" in run("fork", "merge", "one-loop", "--theirs", "--yes")
    assert describe(project) == files | {"shop/both.py": describe(project)["shop/both.py"]}
    assert OTHER in (project / "shop" / "both.py").read_text()
    assert git(project, "show", "HEAD:shop/both.py") == (project / "shop" / "both.py").read_text().strip()
    assert ITERATED in git(project, "show", "HEAD:shop/mul.py")
    assert git(project, "status", "--porcelain").split() == ["M", "shop/base.py", "A", "staged.txt", "??", "notes.txt"]
    (fork,) = (json.loads(line) for line in run("fork", "list", "--json").splitlines())
    assert (fork["status"], fork["is_current"]) == ("merged", False)


@pytest.mark.slow
def test_a_conflict_is_shown_aborted_and_resolved(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, cdd: Cdd
) -> None:
    project = copied(build_finished(tmp_path_factory), tmp_path / "project")
    assert cdd("fork", SLUG, "Say", "it", "shorter", cwd=project).returncode == 0
    (inside,) = (project / ".cdd" / "worktrees").glob("fork-*")
    for folder, text in ((inside, "theirs\n"), (project, "ours\n")):
        (folder / "README.md").write_text(text)
        git(folder, "commit", "-qam", f"readme: {text.strip()}")
    (project / "notes.txt").write_text("mine\n")
    before = describe_git(project), describe(project)

    shown = cdd("fork", "merge", "shorter", "--dry-run", cwd=project)
    assert (shown.returncode, "Conflicts in 1 file:\n  README.md\n" in shown.stdout) == (0, True)
    assert cdd("fork", "merge", "shorter", "--resolve", cwd=project).returncode == 0
    fork = git(inside, "branch", "--show-current")
    marked = f"<<<<<<< {fork}\ntheirs\n=======\nours\n>>>>>>> {git(project, 'branch', '--show-current')}\n"
    assert (inside / "README.md").read_text() == marked
    assert cdd("fork", "merge", "shorter", "--abort", cwd=project).returncode == 0
    assert (inside / "README.md").read_text() == "theirs\n"
    assert (describe_git(project), describe(project)) == before

    assert cdd("fork", "merge", "shorter", "--resolve", cwd=project).returncode == 0
    (inside / "README.md").write_text("both\n")
    merged = cdd("fork", "merge", "shorter", "--yes", cwd=project)
    assert merged.returncode == 0, merged.stdout + merged.stderr
    assert (git(project, "show", "HEAD:README.md"), (project / "README.md").read_text()) == ("both", "both\n")
    assert git(project, "status", "--porcelain") == "?? notes.txt"
