import os
import shutil
import tracemalloc
from pathlib import Path

import pytest

from cdd_agent.sandbox.warden.guard import Guard


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / ".git" / "config").write_text("mine\n")
    (folder / ".git" / "config").chmod(0o640)
    (folder / ".git" / "hooks" / "pre-commit").write_text("mine\n")
    (folder / ".envrc").symlink_to("elsewhere")
    return folder


def guard(root: Path, *names: str, aside: bool = True) -> Guard:
    return Guard([(str(root), name) for name in names], str(root / ".cdd/aside") if aside else None)


def aside(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root / ".cdd/aside").iterdir() if path.is_file()}


def test_what_stays_as_it_is_is_no_remark(root: Path) -> None:
    assert guard(root, ".git/config", ".git/hooks", ".mcp.json", ".envrc", ".vscode").repair() == []
    assert not (root / ".cdd").exists()


def test_what_came_to_be_is_set_aside_and_never_lost(root: Path) -> None:
    before = guard(root, ".mcp.json", ".vscode", ".git/hooks")
    (root / ".mcp.json").write_text("bad")
    (root / ".vscode").mkdir()
    (root / ".vscode/settings.json").write_text("bad too")
    (root / ".git/hooks/post-commit").write_text("worst")
    said = before.repair()
    assert [remark.partition(" appeared")[0] for remark in said] == [".mcp.json", ".vscode", ".git/hooks/post-commit"]
    assert not (root / ".mcp.json").exists()
    assert not (root / ".vscode").exists()
    assert not (root / ".git/hooks/post-commit").exists()
    assert (root / ".cdd/aside/1-.vscode/settings.json").read_text() == "bad too"
    assert aside(root) == {"1-.mcp.json": "bad", "1-post-commit": "worst"}
    assert before.repair() == []


def test_what_was_changed_or_removed_is_put_back(root: Path) -> None:
    before = guard(root, ".git/config", ".git/hooks", ".envrc")
    (root / ".git/config").write_text("theirs")
    (root / ".git/hooks/pre-commit").unlink()
    (root / ".envrc").unlink()
    (root / ".envrc").write_text("export A=1")
    assert len(before.repair()) == 3
    assert (root / ".git/config").read_text() == "mine\n"
    assert (root / ".git/config").stat().st_mode & 0o777 == 0o640
    assert (root / ".git/hooks/pre-commit").read_text() == "mine\n"
    assert (root / ".envrc").is_symlink()
    assert aside(root) == {"1-config": "theirs", "1-.envrc": "export A=1"}


def test_a_folder_that_was_replaced_is_put_back_whole(root: Path) -> None:
    before = guard(root, ".git/hooks")
    (root / ".git/hooks").rename(root / "moved")
    (root / ".git/hooks").symlink_to("../moved")
    assert len(before.repair()) == 1
    assert not (root / ".git/hooks").is_symlink()
    assert (root / ".git/hooks/pre-commit").read_text() == "mine\n"


def test_a_link_on_the_way_is_no_way_round_and_what_it_leads_to_is_not_touched(root: Path, tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users/settings.json").write_text("the user's own")
    before = guard(root, ".vscode/settings.json")
    (root / ".vscode").symlink_to(tmp_path / "users")
    assert before.repair() == [
        f".vscode appeared while a program ran in the sandbox, and is set aside as {root}/.cdd/aside/1-.vscode"
    ]
    assert not (root / ".vscode").exists()
    assert (tmp_path / "users/settings.json").read_text() == "the user's own"


def test_without_a_place_for_it_it_is_removed(root: Path, tmp_path: Path) -> None:
    before = guard(root, ".mcp.json", ".vscode", ".git/config", aside=False)
    (tmp_path / "users").mkdir()
    (tmp_path / "users/file").touch()
    (root / ".mcp.json").write_text("bad")
    (root / ".git/config").write_text("theirs")
    (root / ".vscode/deep").mkdir(parents=True)
    (root / ".vscode/deep/link").symlink_to(tmp_path / "users")
    assert [remark.rpartition(" ")[2] for remark in before.repair()] == ["removed"] * 3
    assert sorted(path.name for path in root.iterdir()) == [".envrc", ".git"]
    assert [path.name for path in (root / ".git").iterdir() if path.is_file()] == ["config"]
    assert (tmp_path / "users/file").exists()


@pytest.mark.parametrize("deep", [False, True])
def test_much_without_a_place_for_it_gets_a_name_that_nobody_obeys(root: Path, *, deep: bool) -> None:
    before = guard(root, ".vscode", aside=False)
    for number in range(300):
        (root / ".vscode" / (("d/" * number) if deep else f"d{number}")).mkdir(parents=True, exist_ok=True)
    assert [remark.rpartition(" ")[2] for remark in before.repair()] == [".vscode.cdd-1"]
    assert not (root / ".vscode").exists()


def test_a_place_that_became_a_link_is_none(root: Path, tmp_path: Path) -> None:
    before = guard(root, ".mcp.json")
    (tmp_path / "theirs").mkdir()
    (root / ".cdd").symlink_to(tmp_path / "theirs")
    (root / ".mcp.json").write_text("bad")
    assert len(before.repair()) == 1
    assert list((tmp_path / "theirs").iterdir()) == []
    assert (root / ".mcp.json.cdd-1").read_text() == "bad"


def test_all_names_of_the_place_taken_keep_nothing_in_its_place(root: Path) -> None:
    before = guard(root, ".mcp.json")
    for number in range(1, 200):
        (root / f".cdd/aside/{number}-.mcp.json").mkdir(parents=True)
    (root / ".mcp.json").write_text("bad")
    assert len(before.repair()) == 1
    assert not (root / ".mcp.json").exists()


def test_a_long_name_is_no_way_to_stay(root: Path) -> None:
    before = guard(root, ".git/hooks")
    (root / ".git/hooks" / ("x" * 255)).touch()
    assert len(before.repair()) == 1
    assert [path.name for path in (root / ".git/hooks").iterdir()] == ["pre-commit"]


def test_what_is_large_is_known_by_its_marks_and_set_aside(root: Path) -> None:
    (root / "large").write_bytes(bytes(2 << 20))
    before = guard(root, "large")
    assert before.repair() == []
    (root / "large").write_bytes(b"theirs")
    (remark,) = before.repair()
    assert "too large to be restored in full" in remark
    assert not (root / "large").exists()
    assert aside(root) == {"1-large": "theirs"}


def test_of_much_together_only_so_much_is_kept_in_memory(root: Path) -> None:
    for number in range(20):
        (root / f"large-{number:02}").write_bytes(bytes(1 << 20))
    tracemalloc.start()
    before = guard(root, *(f"large-{number:02}" for number in range(20)))
    assert tracemalloc.get_traced_memory()[0] < 9 << 20
    tracemalloc.stop()
    for number in range(20):
        (root / f"large-{number:02}").write_bytes(b"theirs")
    assert len(before.repair()) == 20
    assert (root / "large-00").stat().st_size == 1 << 20
    assert not (root / "large-19").exists()


def test_of_a_vast_folder_only_the_folder_is_known(root: Path) -> None:
    for number in range(400):
        (root / f"many/{number // 100}").mkdir(parents=True, exist_ok=True)
        (root / f"many/{number // 100}/{number}").touch()
    before = guard(root, "many")
    (root / "many/3/399").write_text("other")
    assert before.repair() == []
    (root / "many/3").rename(root / "moved")
    (root / "many/3").symlink_to(root / "moved")
    assert len(before.repair()) == 1
    assert not (root / "many/3").is_symlink()


def test_a_folder_cannot_be_filled_up_to_hide_something_in_it(root: Path) -> None:
    before = guard(root, ".git/hooks")
    for number in range(400):
        (root / f".git/hooks/{number}").touch()
    (root / ".git/hooks/pre-commit").write_text("theirs")
    assert len(before.repair()) == 1
    assert [path.name for path in (root / ".git/hooks").iterdir()] == ["pre-commit"]
    assert (root / ".git/hooks/pre-commit").read_text() == "mine\n"


def test_what_came_to_be_is_never_read(root: Path) -> None:
    before = guard(root, ".vscode", ".git/hooks", ".git/config")
    (root / ".vscode").mkdir()
    for path in (*(root / ".vscode" / str(number) for number in range(290)), root / ".git/hooks/new"):
        with path.open("wb") as stream:
            stream.truncate(1 << 20)
    (root / ".git/config").write_bytes(bytes(64 << 20))
    tracemalloc.start()
    assert len(before.repair()) == 3
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(root: Path) -> None:
    before = guard(root, ".git/config")
    (root / ".git/config").unlink()
    os.mkfifo(root / ".git/config")
    assert len(before.repair()) == 1
    assert (root / ".git/config").read_text() == "mine\n"


@pytest.mark.parametrize("target", ["{tmp}/victim", "../victim", "inner/../../victim"])
def test_a_link_that_was_retargeted_is_put_back_before_anything_below_it(
    root: Path, tmp_path: Path, *, target: str
) -> None:
    (tmp_path / "victim/workflows").mkdir(parents=True)
    (tmp_path / "victim/workflows/ci.yml").write_text("somebody else's")
    (root / "inner").mkdir()
    (root / ".github").symlink_to("cfg")
    before = guard(root, ".github/workflows", ".github/actions")
    (root / ".github").unlink()
    (root / ".github").symlink_to(target.format(tmp=tmp_path))
    assert len(before.repair()) == 1
    assert os.readlink(root / ".github") == "cfg"
    assert (tmp_path / "victim/workflows/ci.yml").read_text() == "somebody else's"
    assert before.repair() == []


def test_a_folder_of_gits_that_is_a_link_is_not_changed_for_another(root: Path, tmp_path: Path) -> None:
    (root / ".git").rename(tmp_path / "store")
    (root / ".git").symlink_to(tmp_path / "store")
    (tmp_path / "other/hooks").mkdir(parents=True)
    (tmp_path / "other/config").write_text("another's")
    before = guard(root, ".git/config", ".git/hooks")
    (root / ".git").unlink()
    (root / ".git").symlink_to(tmp_path / "other")
    assert len(before.repair()) == 1
    assert os.readlink(root / ".git") == str(tmp_path / "store")
    assert (tmp_path / "other/config").read_text() == "another's"
    assert (tmp_path / "other/hooks").is_dir()


@pytest.mark.parametrize("target", ["cfg", "{root}/cfg", "../project/cfg", "deep/../cfg"])
def test_what_a_link_leads_to_inside_is_looked_after_too(root: Path, *, target: str) -> None:
    (root / "deep").mkdir()
    (root / ".github").symlink_to(target.format(root=root))
    before = guard(root, ".github/workflows")
    (root / "cfg/workflows").mkdir(parents=True)
    (root / "cfg/workflows/ci.yml").write_text("bad")
    assert len(before.repair()) == 1
    assert not (root / "cfg/workflows").exists()
    assert os.readlink(root / ".github") == target.format(root=root)


@pytest.mark.parametrize("target", [".", "loop", "..", "/", "../project"])
def test_a_link_that_leads_nowhere_useful_is_only_a_link(root: Path, *, target: str) -> None:
    (root / "loop").symlink_to(target)
    before = guard(root, "loop", "loop/x")
    assert before.repair() == []
    (root / "loop").unlink()
    assert len(before.repair()) == 1
    assert os.readlink(root / "loop") == target


def test_a_file_in_the_place_of_a_folder_on_the_way_is_set_aside(root: Path) -> None:
    before = guard(root, ".git/config", ".github/workflows")
    shutil.rmtree(root / ".git")
    (root / ".git").write_text("gitdir: /elsewhere")
    (root / ".github").write_text("harmless")
    assert len(before.repair()) == 2
    assert (root / ".git/config").read_text() == "mine\n"
    assert (root / ".github").read_text() == "harmless"


def test_a_whole_folder_that_is_gone_is_told(root: Path) -> None:
    before = guard(root, ".git/config", ".vscode")
    root.rename(root.parent / "gone")
    (remark,) = before.repair()
    assert remark.startswith(".git/config may have been changed")


def test_rights_that_were_taken_away_are_no_hindrance(root: Path) -> None:
    before = guard(root, ".git/config", ".vscode", ".git/hooks")
    (root / ".vscode").mkdir()
    (root / ".git/config").write_text("theirs")
    (root / ".git/hooks/post-commit").touch()
    for folder in (root / ".vscode", root / ".git/hooks", root / ".git", root):
        folder.chmod(0o000)
    assert len(before.repair()) == 3
    assert not (root / ".vscode").exists()
    assert (root / ".git/config").read_text() == "mine\n"
