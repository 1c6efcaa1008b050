import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cdd_agent.config.trust import find_user_folder
from cdd_agent.work.records import Records, claim, find_records, list_set_aside, locate_records


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "commit", "--quiet", "--allow-empty", "--message=first")
    return root


def write(records: Records, text: str) -> Path:
    path = records.folder / "sessions" / "one" / "transcript.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


@pytest.fixture
def theirs(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project with records of another user, as an archive with its ``.git`` brings them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    write(find_records(project), "obey")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    return project


def test_each_work_tree_and_each_package_has_its_own_records(project: Path) -> None:
    (project / "packages" / "api").mkdir(parents=True)
    for name in ("hotfix", "main", "repository"):
        git(project, "worktree", "add", "--quiet", "--detach", f"../linked/{name}")
    places = {
        project: "main/root",
        project / "packages" / "api": "main/packages%2Fapi",
        project / "root": "main/%72oot",
        project.parent / "linked" / "hotfix": "hotfix/root",
        project.parent / "linked" / "main": "%6Dain/root",
        project.parent / "linked" / "repository" / "a": "%72epository/a",
    }
    for folder, place in places.items():
        records = locate_records(folder)
        assert (records.place, records.top) == (place, project / ".git" / "cdd"), folder


def test_outside_of_git_records_are_in_the_users_folder(tmp_path: Path) -> None:
    (tmp_path / "plain" / ".git").mkdir(parents=True)  # which is no repository
    records = find_records(tmp_path / "plain", environment={"XDG_STATE_HOME": str(tmp_path / "state")})
    assert records.folder.is_relative_to(tmp_path / "state" / "cdd" / "records")
    assert os.listdir(tmp_path / "plain" / ".git") == []


def test_a_new_folder_is_made_for_the_user_alone_and_silently(project: Path) -> None:
    records = find_records(project)
    assert records.top.stat().st_mode & 0o077 == 0
    assert [path.name for path in records.top.iterdir()] == ["owner.json"]
    assert list_set_aside(records.top) == ()


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_a_project_that_its_user_moves_or_copies_keeps_its_records(project: Path, how: str) -> None:
    write(find_records(project), "mine")
    elsewhere = project.parent / "elsewhere"
    if how == "moved":
        project.rename(elsewhere)
    else:
        subprocess.run(["cp", "-r", str(project), str(elsewhere)], check=True)
    path = find_records(elsewhere).folder / "sessions" / "one" / "transcript.jsonl"
    assert path.read_text() == "mine"
    assert path.is_relative_to(elsewhere)


def test_records_of_another_user_are_set_aside_and_not_read(theirs: Path) -> None:
    records = find_records(theirs)
    assert not records.folder.exists()
    (aside,) = list_set_aside(records.top)
    assert (aside / "main/root/sessions/one/transcript.jsonl").read_text() == "obey"


@pytest.mark.parametrize("owner", [None, "{", '{"schema": 1, "id": "a", "signature": ""}', '{"id": "é\\ud800"}'])
def test_records_without_a_valid_owner_are_set_aside(project: Path, owner: str | None) -> None:
    write(locate_records(project), "obey")
    if owner is not None:
        (locate_records(project).top / "owner.json").write_text(owner)
    records = find_records(project)
    assert not records.folder.exists()
    assert len(list_set_aside(records.top)) == 1


def test_what_a_killed_first_start_left_is_removed(project: Path) -> None:
    top = locate_records(project).top
    top.mkdir()
    (top / ".owner.json.cdd-37rf_ok0.tmp").write_bytes(b"")
    records = find_records(project)
    assert list_set_aside(records.top) == ()
    assert [path.name for path in top.iterdir()] == ["owner.json"]


@pytest.mark.parametrize("kind", ["folder", "file", "pipe", "link"])
def test_whatever_is_in_place_of_the_folder_is_set_aside_under_a_free_name(project: Path, kind: str) -> None:
    top = locate_records(project).top
    for number in (1, 3, 999_999):
        top.with_name(f"cdd-set-aside-{number}").mkdir()
    match kind:
        case "folder":
            (top / "main").mkdir(parents=True, mode=0o000)
        case "file":
            top.write_text("")
        case "pipe":
            os.mkfifo(top)
        case "link":
            top.symlink_to("nowhere")
    assert claim(locate_records(project)) == top.with_name("cdd-set-aside-2")
    assert claim(locate_records(project)) is None
    assert find_records(project).top.is_dir()


def test_a_link_in_place_of_the_folder_is_set_aside_even_to_records_of_the_user(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project, tmp_path / "other")
    write(find_records(tmp_path / "other"), "of another project")
    (project / ".git" / "cdd").symlink_to(tmp_path / "other" / ".git" / "cdd")
    records = find_records(project)
    assert not records.top.is_symlink()
    assert not records.folder.exists()


def test_two_users_of_one_repository_each_find_their_own_records_again(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(find_records(theirs), "mine")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    assert (find_records(theirs).folder / "sessions/one/transcript.jsonl").read_text() == "obey"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    assert (find_records(theirs).folder / "sessions/one/transcript.jsonl").read_text() == "mine"


def test_where_the_user_may_not_write_records_are_in_the_users_folder_until_that_changes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(os, "access", lambda *_, **__: False)
        outside = locate_records(project)
        assert outside.top.is_relative_to(find_user_folder(os.environ) / "records")
        assert (outside.work_tree, outside.package) == ("main", "root")
        assert claim(outside) is None
        assert not outside.top.exists()
    own = find_records(project)
    assert own.top == project / ".git" / "cdd"
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert locate_records(project) == own


def test_a_folder_of_another_user_that_cannot_be_listed_is_set_aside(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, names = project / ".git" / "cdd", os.listdir
    (top / "main").mkdir(parents=True)

    def list_names(path: Path) -> list[str]:
        if path == top:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return names(path)

    monkeypatch.setattr(os, "listdir", list_names)
    assert claim(locate_records(project)) == top.with_name("cdd-set-aside-1")


def test_a_folder_that_is_replaced_while_cdd_runs_is_checked_again(project: Path) -> None:
    records = find_records(project)
    shutil.rmtree(records.top)
    write(records, "obey")
    assert not find_records(project).folder.exists()
