import os
import resource
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.storage import private_folder


def test_the_private_folder_keeps_itself_out_of_git(tmp_path: Path) -> None:
    folder = private_folder(tmp_path)
    assert (folder / ".gitignore").read_text() == "*\n!config.yaml\n!commands\n!commands/*.md\n"
    (folder / ".gitignore").write_text("the user's\n")
    private_folder(tmp_path)
    assert (folder / ".gitignore").read_text() == "the user's\n"


def test_an_empty_file_does_not_show_the_private_folder_to_git(tmp_path: Path) -> None:
    (tmp_path / ".cdd").mkdir()
    for before in ("", "*\n!config.yaml\n"):
        (tmp_path / ".cdd" / ".gitignore").write_text(before)
        assert (private_folder(tmp_path) / ".gitignore").read_text() == "*\n!config.yaml\n!commands\n!commands/*.md\n"


def test_a_disk_without_room_leaves_no_half_of_the_file_that_hides_the_folder(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            private_folder(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path / ".cdd") == []


@pytest.mark.parametrize(
    "link",
    [
        *(".cdd", ".cdd/history", ".cdd/journal", ".cdd/journal/sale/events.jsonl", ".cdd/git/build/packed-refs"),
        *(".cdd/git/worktrees/objects", ".cdd/git/bytecode", ".cdd/build", ".cdd/build/node", ".cdd/bytecode"),
        *(".cdd/worktrees/sale", ".cdd/landing", ".cdd/landing/files"),
    ],
)
def test_no_link_leads_the_program_s_own_files_out_of_the_project(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    path = tmp_path / "project" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(outside)
    with pytest.raises(UsageError, match=f"{link} is a link") as caught:
        private_folder(tmp_path / "project")
    assert f"ls -l {path}" in caught.value.hint
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "link", ["build/cargo/debug/link", "bytecode/usr/lib", "worktrees/sale/node_modules", "landing/files/link"]
)
def test_links_that_tests_make_in_their_own_folders_are_no_error(tmp_path: Path, link: str) -> None:
    path = tmp_path / ".cdd" / link
    path.parent.mkdir(parents=True)
    path.symlink_to("/")
    assert private_folder(tmp_path) == tmp_path / ".cdd"


def test_a_dangling_link_or_a_file_in_place_of_the_private_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".cdd").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is a link"):
        private_folder(tmp_path)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / ".cdd").unlink()
    (tmp_path / ".cdd").touch()
    with pytest.raises(UsageError, match="is a file") as caught:
        private_folder(tmp_path)
    assert caught.value.hint.startswith("move it away: mv ")


def test_folders_without_end_in_the_private_one_are_an_error_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / ".cdd" / "/".join("a" * 60)).mkdir(parents=True)
    with pytest.raises(UsageError, match="nested more than 20 deep") as caught:
        private_folder(tmp_path)
    assert "ls -R" in caught.value.hint
