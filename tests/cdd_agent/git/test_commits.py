from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing, GateClosed
from cdd_agent.events import Change
from cdd_agent.git.commits import commit_paths, find_by_trailer, list_own_uncommitted, move_head, require_identity
from cdd_agent.git.repository import Repository


def test_a_commit_takes_the_named_paths_and_leaves_the_rest_of_the_index(repository: Repository) -> None:
    root = repository.root
    (root / "a.txt").write_text("changed\n")
    (root / "new name.txt").write_text("new\n")
    (root / "staged.txt").write_text("the user's\n")
    repository.git("add", "staged.txt")
    (root / "sub" / "b.txt").write_text("unstaged\n")
    before = repository.read_head()

    made = commit_paths(repository, "change", paths=["a.txt", "new name.txt"])

    assert before is not None
    assert set(repository.list_changes(before, made)) == {
        Change(path="a.txt", kind="modified"),
        Change(path="new name.txt", kind="created"),
    }
    status = sorted(repository.git("status", "--porcelain").splitlines())
    assert status == [" M sub/b.txt", "A  staged.txt"]


def test_a_deleted_path_is_committed_as_deleted(repository: Repository) -> None:
    (repository.root / "sub" / "b.txt").unlink()
    before = repository.read_head()
    made = commit_paths(repository, "delete", paths=["sub/b.txt"])
    assert before is not None
    assert repository.list_changes(before, made) == (Change(path="sub/b.txt", kind="deleted"),)
    assert repository.list_uncommitted() == ()


def test_an_environment_that_git_does_not_ignore_is_no_work_of_the_user(repository: Repository) -> None:
    for name in ("env/pyvenv.cfg", "env/bin/pip", "sub/c/conda-meta/x.json", "sub/c/bin/pip", "environment.py"):
        (repository.root / name).parent.mkdir(parents=True, exist_ok=True)
        (repository.root / name).touch()
    assert list_own_uncommitted(repository) == ("environment.py",)


def test_a_ticket_is_no_change_of_the_product(repository: Repository) -> None:
    for name in ("tickets/one/spec.yaml", "tickets/.gitignore", "tickets/package.py"):
        (repository.root / name).parent.mkdir(parents=True, exist_ok=True)
        (repository.root / name).touch()
    assert len(list_own_uncommitted(repository)) == 3
    assert list_own_uncommitted(repository, project=repository.root) == ("tickets/package.py",)


def test_a_commit_without_a_change_is_head_itself(repository: Repository) -> None:
    assert commit_paths(repository, "nothing", paths=["a.txt"]) == repository.read_head()


def test_a_commit_of_what_head_holds_already_leaves_it_staged_so(repository: Repository) -> None:
    repository.git("rm", "--quiet", "--cached", "a.txt")
    assert commit_paths(repository, "again", paths=["a.txt"]) == repository.read_head()
    assert repository.list_uncommitted() == ()


def test_without_any_path_nothing_that_is_staged_is_touched(repository: Repository) -> None:
    head = repository.read_head()
    assert head is not None
    repository.git("commit", "--quiet", "--allow-empty", "-m", "empty")
    empty = repository.read_head()
    assert empty is not None
    (repository.root / "staged.txt").write_text("the user's\n")
    repository.git("add", "staged.txt")

    move_head(repository, head, expected=empty, why="try")
    assert commit_paths(repository, "nothing", paths=[]) == head
    assert repository.git("status", "--porcelain") == "A  staged.txt\n"


def test_a_hook_that_refuses_closes_the_gate_with_its_words(repository: Repository) -> None:
    hook = repository.root / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'no tabs, please' >&2\nexit 1\n")
    hook.chmod(0o755)
    repository.may_run_hooks = lambda: True
    (repository.root / "a.txt").write_text("changed\n")
    head = repository.read_head()
    with pytest.raises(GateClosed, match="no tabs, please"):
        commit_paths(repository, "change", paths=["a.txt"])
    assert repository.read_head() == head


def test_a_commit_is_found_by_its_trailer(repository: Repository) -> None:
    base = repository.read_head()
    (repository.root / "a.txt").write_text("changed\n")
    made = commit_paths(repository, "change\n\nHandoff-Id: abc123\n", paths=["a.txt"])
    assert find_by_trailer(repository, "Handoff-Id", value="abc123", since=base) == made
    assert find_by_trailer(repository, "Handoff-Id", value="abc", since=base) is None
    assert find_by_trailer(repository, "Handoff-Id", value="abc123", since=made) is None


def test_moving_head_back_keeps_the_files_and_cleans_the_index(repository: Repository) -> None:
    base = repository.read_head()
    (repository.root / "a.txt").write_text("changed\n")
    made = commit_paths(repository, "change", paths=["a.txt"])
    assert base is not None
    move_head(repository, base, expected=made, why="test")
    assert repository.read_head() == base
    assert (repository.root / "a.txt").read_text() == "changed\n"
    assert repository.git("status", "--porcelain") == " M a.txt\n"


def test_missing_identity_is_an_error_that_says_how_to_set_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    repository = Repository.create(tmp_path)
    repository.git("config", "user.useConfigOnly", "true")
    with pytest.raises(EnvironmentMissing, match="your name and email"):
        require_identity(repository)
