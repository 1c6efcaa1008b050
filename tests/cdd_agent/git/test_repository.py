from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.git.repository import Repository


def test_a_repository_is_found_from_a_folder_inside_it(repository: Repository) -> None:
    assert Repository.find(repository.root / "sub").root == repository.root


def test_a_folder_outside_git_is_an_error_that_offers_git_init(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing) as caught:
        Repository.find(tmp_path)
    assert "git init" in caught.value.hint


def test_a_new_repository_has_no_head_but_a_branch(tmp_path: Path) -> None:
    empty = Repository.create(tmp_path)
    assert empty.head() is None
    assert empty.branch() == "main"


def test_a_detached_head_has_no_branch(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "--detach")
    assert repository.branch() is None


def test_variables_of_the_user_do_not_reach_git(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert repository.head() is not None


def test_no_key_reaches_git_and_so_no_hook(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-canary")
    repository.git("config", "alias.env", "!env")
    assert "canary" not in repository.git("env")
