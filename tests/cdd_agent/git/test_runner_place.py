import os
import shutil
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.git.repository import Repository
from cdd_agent.git.run_tree import RunTrees
from cdd_agent.git.runner import GitError, GitUnable, RepositoryLocation, find_location


def answer(root: Path, git_dir: Path) -> str:
    return f"{git_dir}\n{git_dir}\n{root}\n"


def test_the_folders_are_read_from_gits_answer(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    place = RepositoryLocation.parse(answer(tmp_path, tmp_path / ".git"), folder=tmp_path)
    assert place == RepositoryLocation(root=tmp_path, git_dir=tmp_path / ".git", common_dir=tmp_path / ".git")


def test_a_file_leads_to_the_folder_it_names(tmp_path: Path) -> None:
    root = tmp_path / "work"
    (tmp_path / "main" / "worktrees" / "work").mkdir(parents=True)
    root.mkdir()
    (root / ".git").write_text("gitdir: ../main/worktrees/work\n")
    place = RepositoryLocation.parse(answer(root, tmp_path / "main" / "worktrees" / "work"), folder=root)
    assert place.git_dir == tmp_path / "main" / "worktrees" / "work"


def test_a_pipe_in_the_place_of_a_git_file_is_no_git_file(tmp_path: Path) -> None:
    (tmp_path / "project.git").mkdir()
    os.mkfifo(tmp_path / ".git")
    with pytest.raises(EnvironmentMissing, match="as its work tree"):
        RepositoryLocation.parse(answer(tmp_path, tmp_path / "project.git"), folder=tmp_path)


@pytest.mark.parametrize("content", [None, "", "gitdir: elsewhere\n", "not a git file"])
def test_a_work_tree_whose_own_git_file_leads_elsewhere_is_refused(tmp_path: Path, *, content: str | None) -> None:
    root, git_dir = tmp_path / "home", tmp_path / "project" / ".git"
    root.mkdir()
    git_dir.mkdir(parents=True)
    if content is not None:
        (root / ".git").write_text(content)
    with pytest.raises(EnvironmentMissing, match="as its work tree") as caught:
        RepositoryLocation.parse(answer(root, git_dir), folder=tmp_path)
    assert caught.value.hint.endswith("config --unset core.worktree")


@pytest.mark.parametrize(
    "said", ["", "--path-format=absolute\n/p/.git\n/p/.git\n/p\n", ".git\n.git\n/p\n", "/p\n/q\n/r\n/s\n"]
)
def test_an_answer_of_an_older_git_is_refused(said: str) -> None:
    with pytest.raises(EnvironmentMissing, match="too old") as caught:
        RepositoryLocation.parse(said, folder=Path("/p"))
    assert "git --version" in caught.value.hint


def test_words_that_tell_of_something_else_are_no_missing_repository(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing, match=f"{tmp_path} is not in a git work tree"):
        find_location(tmp_path)
    Repository.create(tmp_path)
    (tmp_path / ".git" / "config").write_text("no section")
    with pytest.raises(GitError, match="bad config line 1"):
        find_location(tmp_path)


@pytest.mark.parametrize("name", ["attributes", "exclude"])
def test_a_file_of_git_that_never_ends_is_refused(repository: Repository, *, name: str) -> None:
    path = repository.location.git_dir / "info" / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")
    with pytest.raises(GitUnable, match=f"{path} is not a file that git can read") as told:
        repository.git("status")
    assert told.value.hint.endswith(f"rm {path}")


def test_a_run_tree_or_its_record_that_is_deleted_meanwhile_is_named(repository: Repository, tmp_path: Path) -> None:
    for gone in ("root", "git_dir"):
        tree = RunTrees(repository, tmp_path / "trees").tree("csv").repository
        folder: Path = getattr(tree.location, gone)
        shutil.rmtree(folder)
        with pytest.raises(GitUnable, match=f"{folder} was there when cdd started") as told:
            tree.git("status")
        assert "run the same command again" in told.value.hint
