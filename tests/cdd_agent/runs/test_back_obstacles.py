import shutil
from collections.abc import Callable

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from tests.cdd_agent.runs.made_runs import Run, back, own_files, refused, undo, work_tree
from tests.fakes.cases import soak_after


def test_uncommitted_untracked_and_ignored_files_stay_bit_for_bit(run: Run) -> None:
    mine = own_files(run)
    staged = run.repository.git("ls-files", ("--stage",), "staged.txt")
    back(run, run.commits["plan 1"])
    after = work_tree(run.root)
    assert {name: after[name] for name in mine} == mine
    assert run.repository.git("ls-files", ("--stage",), "staged.txt") == staged
    assert {name for name in after if not name.startswith((".git/", ".cdd/"))} == {*mine, ".gitignore", "test-list.md"}


IN_THE_WAY: dict[str, Callable[[Run], str]] = {}


def in_the_way(make: Callable[[Run], str]) -> Callable[[Run], str]:
    IN_THE_WAY[make.__name__.replace("_", " ")] = make
    return make


@in_the_way
def a_changed_file(run: Run) -> str:
    (run.root / "calc.py").write_text("mine\n")
    return "calc.py"


@in_the_way
def a_staged_file(run: Run) -> str:
    content = (run.root / "calc.py").read_text()
    (run.root / "calc.py").write_text("mine\n")
    run.repository.git("add", "calc.py")
    (run.root / "calc.py").write_text(content)
    return "calc.py"


@in_the_way
def a_deleted_file(run: Run) -> str:
    (run.root / "test_calc.py").unlink()
    return "test_calc.py"


@in_the_way
def a_change_that_git_was_told_not_to_see(run: Run) -> str:
    run.repository.git("update-index", ("--skip-worktree",), "calc.py")
    (run.root / "calc.py").write_text("mine\n")
    return "calc.py"


def gone_since(run: Run, name: str) -> None:
    """Let the newest commit of the run remove a file that an earlier one has."""
    (run.root / name).unlink()
    commit_paths(run.repository, "chore: gone", paths=[name])


@in_the_way
def an_untracked_file_where_one_comes_back(run: Run) -> str:
    gone_since(run, "tests/data1.txt")
    (run.root / "tests" / "data1.txt").write_text("mine\n")
    return "tests/data1.txt"


@in_the_way
def an_ignored_file_where_one_comes_back(run: Run) -> str:
    gone_since(run, "tests/data1.txt")
    (run.root / ".gitignore").write_text("*.log\ndata1.txt\n")
    commit_paths(run.repository, "chore: ignored", paths=[".gitignore"])
    (run.root / "tests").mkdir(exist_ok=True)
    (run.root / "tests" / "data1.txt").write_text("mine\n")
    assert run.repository.list_uncommitted() == ()
    return "tests/data1.txt"


@in_the_way
def a_file_where_a_folder_comes_back(run: Run) -> str:
    for name in ("tests/data1.txt", "tests/data2.txt"):
        gone_since(run, name)
    shutil.rmtree(run.root / "tests", ignore_errors=True)
    (run.root / "tests").write_text("mine\n")
    return "tests"


@in_the_way
def a_link_where_a_folder_comes_back(run: Run) -> str:
    a_file_where_a_folder_comes_back(run)
    (run.root / "tests").unlink()
    (run.root / "tests").symlink_to(run.root.parent)
    return "tests"


@in_the_way
def an_ignored_file_in_a_folder_where_a_file_comes_back(run: Run) -> str:
    gone_since(run, "calc.py")
    (run.root / "calc.py").mkdir()
    (run.root / "calc.py" / "mine.log").write_text("mine\n")
    return "calc.py: it is a folder with mine.log"


@soak_after(2, "kind", IN_THE_WAY)
def test_what_is_in_the_way_is_listed_and_nothing_is_touched(kind: str, run: Run) -> None:
    path = IN_THE_WAY[kind](run)
    error = refused(run, run.commits["green 1"])
    assert isinstance(error, UsageError)
    assert path in error.happened
    assert error.happened.endswith("Nothing was touched.")


@pytest.mark.slow
def test_a_file_that_the_way_does_not_touch_is_in_nobodys_way(run: Run) -> None:
    (run.root / "README.md").write_text("mine\n")
    back(run, run.commits["refactor 1"])
    assert (run.root / "README.md").read_text() == "mine\n"


@pytest.mark.slow
def test_a_submodule_stays_where_it_stands(begun: Run) -> None:
    run = begun
    (run.root / "sub").mkdir()
    other = Repository.create(run.root / "sub")
    other.git("config", "user.name", "Ada")
    other.git("config", "user.email", "ada@example.org")
    other.git("commit", ("--quiet", "--allow-empty", "-m"), "one")
    run.repository.git("add", "sub")
    run.repository.git("commit", ("--quiet", "-m"), "with another repository")
    run.cycle(1)
    other.git("commit", ("--quiet", "--allow-empty", "-m"), "two")
    shutil.copytree(run.root / "sub", run.root / "late")
    run.repository.git("add", "sub", "late")
    run.repository.git("commit", ("--quiet", "-m"), "it moved, and another one came")
    stands = other.read_head()
    back(run, run.commits["green 1"])
    assert other.read_head() == stands
    assert run.repository.git("status", ("--porcelain",)) == " M sub\n?? late/\n"
    undo(run)
    assert other.read_head() == stands
    assert run.repository.list_uncommitted() == ()
