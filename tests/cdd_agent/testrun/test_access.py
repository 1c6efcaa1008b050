import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from cdd_agent.sandbox.backends import list_binds
from cdd_agent.sandbox.port import Access
from cdd_agent.testrun.access import Original, build_access, find_git_folders, find_protected_tests, find_test_code
from cdd_agent.testrun.interpreter import Interpreter

PYTHON = Interpreter(path=Path("/usr/bin/python3"), origin="", python="3.11.0", pytest="8.0.0")


def access(root: Path, *, locked: tuple[Path, ...] = ()) -> Access:
    return build_access(root, PYTHON, locked=locked)


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")


def test_the_project_is_writable_except_for_what_is_gits_ours_and_somebody_elses(tmp_path: Path) -> None:
    write(tmp_path, ".git/config", ".cdd/config.yaml", ".vscode/settings.json", "src/a.py", ".envrc")
    reach = access(tmp_path)
    assert reach.read_write == (tmp_path,)
    assert set(reach.read_only) == {tmp_path / name for name in (".git", ".cdd", ".vscode", ".envrc")}


def test_a_link_makes_no_folder_outside_writable(tmp_path: Path) -> None:
    write(tmp_path, "home/secret", "project/node_modules/a.js")
    project, cache = tmp_path / "project", tmp_path / "project" / "node_modules" / ".cache"
    cache.symlink_to("../../home")
    assert build_access(project, PYTHON, read_write=(cache,)).read_write == (project,)


def test_the_rest_of_the_work_tree_can_be_read(tmp_path: Path) -> None:
    write(tmp_path, ".git/HEAD", "other/a.py", "project/b.py")
    reach = access(tmp_path / "project")
    assert reach.read_only[:2] == (tmp_path, tmp_path / ".git")
    assert reach.read_write == (tmp_path / "project",)


def test_a_home_that_is_a_work_tree_is_not_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, ".git/HEAD", "project/b.py")
    assert tmp_path not in access(tmp_path / "project").read_only


def test_a_linked_work_tree_has_two_folders_of_gits(tmp_path: Path) -> None:
    write(tmp_path, "main/.git/HEAD", "main/.git/worktrees/w/HEAD", "main/.git/objects/x")
    (tmp_path / "main/.git/worktrees/w/commondir").write_text("../..\n")
    (tmp_path / "w").mkdir()
    (tmp_path / "w/.git").write_text(f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    assert find_git_folders(tmp_path / "w") == (tmp_path / "w/.git", tmp_path / "main/.git")


def test_a_separate_folder_of_gits_is_read_only(tmp_path: Path) -> None:
    write(tmp_path, ".repo/HEAD", ".repo/objects/x", ".repo/config")
    (tmp_path / ".git").write_text("gitdir: .repo\n")
    reach = access(tmp_path)
    assert find_git_folders(tmp_path) == (tmp_path / ".git", tmp_path / ".repo")
    assert tmp_path / ".repo" in reach.read_only


def test_a_link_to_gits_folder_makes_the_folder_read_only(tmp_path: Path) -> None:
    write(tmp_path, "store/HEAD", "store/objects/x", "project/a.py", "fake/HEAD")
    (tmp_path / "project/.git").symlink_to("../store")
    reach = access(tmp_path / "project")
    assert reach.read_only == (tmp_path / "store",)
    (tmp_path / "project/.git").unlink()
    (tmp_path / "project/.git").symlink_to("../fake")
    assert access(tmp_path / "project").read_only == ()


def test_a_work_tree_in_the_project_lets_in_no_folder_outside_it(tmp_path: Path) -> None:
    write(tmp_path, "other/HEAD", "other/objects/x", "p/in/HEAD", "p/in/objects/x", "p/a/x", "p/b/x", "p/c/.git/HEAD")
    (tmp_path / "p/a/.git").write_text("gitdir: ../../other\n")
    (tmp_path / "p/b/.git").write_text("gitdir: ../in\n")
    reach = access(tmp_path / "p")
    assert tmp_path / "other" not in reach.read_only
    assert tmp_path / "p/in" in reach.read_only


def test_a_pipe_or_a_huge_file_is_no_link_to_gits_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert find_git_folders(tmp_path) == (tmp_path / ".git",)
    (tmp_path / ".git").unlink()
    (tmp_path / ".git").write_text("gitdir: ." + " " * (1 << 20))
    assert find_git_folders(tmp_path) == (tmp_path / ".git",)


@pytest.mark.parametrize("told", ["gitdir: /etc\n", "gitdir: {home}\n", "\xff", "", "gitdir: nowhere\n"])
def test_a_file_that_only_looks_like_a_link_to_gits_folder_lets_nothing_in(tmp_path: Path, told: str) -> None:
    write(tmp_path, "home/.ssh/id", "home/commondir")
    (tmp_path / "w").mkdir()
    (tmp_path / "w/.git").write_bytes(told.format(home=tmp_path / "home").encode("latin-1"))
    assert find_git_folders(tmp_path / "w") == (tmp_path / "w/.git",)


def test_an_environment_in_the_project_is_read_only(tmp_path: Path) -> None:
    write(tmp_path, ".venv/pyvenv.cfg", ".venv/lib/a.py", ".tox/py/pyvenv.cfg")
    reach = access(tmp_path)
    assert tmp_path / ".venv" in reach.read_only


@pytest.mark.parametrize("folder", [".venv", "env"])
def test_the_mount_point_of_an_environment_in_a_run_tree_does_not_replace_it(tmp_path: Path, folder: str) -> None:
    home, tree = tmp_path / "home", tmp_path / "home/.cdd/worktrees/run"
    write(home, f"{folder}/pyvenv.cfg", f"{folder}/bin/python")
    write(tree, ".git")
    (tree / folder).mkdir()
    interpreter = Interpreter(path=home / folder / "bin/python", origin="", python="3.11.0", pytest="8.0.0")
    reach = build_access(tree, interpreter, original=Original(root=home, git=home / ".cdd/git"))
    assert [bind.source for bind in list_binds(reach) if bind.shown == home / folder] == [home / folder]
    assert reach.overlaid == (home / folder,)


def test_what_is_too_large_for_a_run_tree_is_read_from_its_original(tmp_path: Path) -> None:
    home, tree = tmp_path / "home", tmp_path / "home/.cdd/worktrees/run"
    write(home, "data/train/a.bin", "db.sqlite")
    write(tree, ".git")
    shared = (home / "data/train", home / "db.sqlite")
    interpreter = Interpreter(path=Path(sys.executable), origin="", python="3.11.0", pytest="8.0.0")
    reach = build_access(tree, interpreter, original=Original(root=home, list_shared=lambda: shared))
    binds = {bind.shown: bind for bind in list_binds(reach)}
    assert [(binds[path].source, binds[path].is_writable) for path in shared] == [(path, False) for path in shared]
    assert binds[home].source == tree


def test_links_and_what_is_not_there_are_not_bound(tmp_path: Path) -> None:
    (tmp_path / ".vscode").symlink_to("/etc")
    reach = access(tmp_path, locked=(tmp_path / "gone", tmp_path / ".vscode"))
    assert reach.read_only == ()


def test_tickets_are_read_only(tmp_path: Path) -> None:
    write(tmp_path, "tickets/sale/plan.md", "specs/tickets/tax/spec.yaml")
    reach = access(tmp_path)
    assert set(reach.read_only) == {tmp_path / "tickets", tmp_path / "specs/tickets"}


def test_python_path_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "p/lib").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", f"lib:{tmp_path}/elsewhere:../elsewhere:")
    assert access(tmp_path / "p").read_only == (tmp_path / "elsewhere",)


def test_sources_that_python_reads_stay_writable_and_its_environments_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "src/a.py", "env/pyvenv.cfg", "conda/conda-meta/history", "python/bin/python3", "venv/lib/x.py")
    (tmp_path / "lib/site-packages").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "src")
    environments = [tmp_path / name for name in ("env", "conda", "python", "venv/lib", "lib/site-packages")]
    monkeypatch.setenv("PYTHONPATH", "src:lib/../src:env/lib:.")
    (tmp_path / "env/lib").mkdir()
    interpreter = Interpreter(
        path=tmp_path / "python/bin/python3",
        origin="",
        python="3.11.0",
        pytest="8.0.0",
        reads=(tmp_path / "src", tmp_path / "link", *environments),
    )
    found = set(build_access(tmp_path, interpreter).read_only)
    assert {*environments, tmp_path / "env/lib"} <= found
    assert not {tmp_path, tmp_path / "src"} & found


def names(root: Path, paths: Iterable[Path]) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in paths)


def test_tests_and_configuration_are_named_one_by_one(tmp_path: Path) -> None:
    write(tmp_path, "tests/test_a.py", "tests/data.json", "src/test_b.py", "src/c.py", "conftest.py", "pytest.ini")
    write(tmp_path, "pyproject.toml", ".venv/test_x.py", ".hidden/test_x.py")
    code = ["conftest.py", "pytest.ini", "src/test_b.py", "tests/test_a.py"]
    assert names(tmp_path, find_protected_tests(tmp_path)) == sorted([*code, "tests/data.json"])
    assert names(tmp_path, find_test_code(tmp_path)) == sorted([*code, "pyproject.toml"])


def test_of_many_tests_commands_find_the_folders_locked_and_test_runs_as_many_files_as_are_cheap(
    tmp_path: Path,
) -> None:
    write(tmp_path, *(f"tests/unit/test_{number}.py" for number in range(130)), "src/test_b.py", "conftest.py")
    assert names(tmp_path, find_protected_tests(tmp_path)) == ["conftest.py", "src/test_b.py", "tests"]
    assert tmp_path / "conftest.py" in find_test_code(tmp_path)
    assert tmp_path / "tests" not in find_test_code(tmp_path)
    assert len(find_test_code(tmp_path)) == 120 - len({"tests", "tests/unit", "src"})


def test_folders_on_the_way_to_tests_count_too(tmp_path: Path) -> None:
    write(tmp_path, *(f"src/{number}/tests/test_a.py" for number in range(100)))
    assert len(find_test_code(tmp_path)) == 39
    assert len(find_protected_tests(tmp_path)) == 59
