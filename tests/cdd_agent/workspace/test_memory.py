"""Which files of a project every agent is told of."""

import os
from pathlib import Path

import pytest

from cdd_agent.workspace.memory import MOST_BYTES, MOST_READ_BYTES, read_memory


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder two levels below the top of a work tree."""
    (tmp_path / "top" / ".git").mkdir(parents=True)
    folder = tmp_path / "top" / "services" / "shop"
    folder.mkdir(parents=True)
    return folder


def texts(project: Path) -> list[tuple[str, str]]:
    return [(document.path, document.text) for document in read_memory(project).files]


def test_a_project_without_any_has_no_memory(project: Path) -> None:
    assert read_memory(project).files == ()
    assert read_memory(project).summary == ""


def test_files_are_merged_from_the_top_down_agents_before_claude(project: Path) -> None:
    top = project.parent.parent
    for folder, word in ((top, "top"), (project, "shop")):
        (folder / "CLAUDE.md").write_text(f"{word} claude\n")
        (folder / "AGENTS.md").write_text(f"{word} agents\n")
    (project.parent / "AGENTS.md").write_text("services agents\n")
    (project / "below").mkdir()
    (project / "below" / "AGENTS.md").write_text("below\n")
    (top.parent / "AGENTS.md").write_text("above\n")
    assert texts(project) == [
        ("AGENTS.md", "top agents"),
        ("CLAUDE.md", "top claude"),
        ("services/AGENTS.md", "services agents"),
        ("services/shop/AGENTS.md", "shop agents"),
        ("services/shop/CLAUDE.md", "shop claude"),
    ]


def test_a_project_outside_of_git_has_its_own_only(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (tmp_path / "AGENTS.md").write_text("above\n")
    (folder / "AGENTS.md").write_text("here\n")
    assert texts(folder) == [("AGENTS.md", "here")]


def test_it_is_told_with_its_size(project: Path) -> None:
    (project.parent.parent / "AGENTS.md").write_text("x" * 1229)
    assert read_memory(project).summary == "Project memory: AGENTS.md (1.2 KB)"


def test_a_link_to_the_other_file_is_read_once(project: Path) -> None:
    top = project.parent.parent
    (top / "AGENTS.md").write_text("Tabs.\n")
    (top / "CLAUDE.md").symlink_to("AGENTS.md")
    assert texts(project) == [("AGENTS.md", "Tabs.")]


def test_a_link_out_of_the_repository_is_not_followed(project: Path, tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    (project / "AGENTS.md").symlink_to(tmp_path / "diary.txt")
    memory = read_memory(project)
    assert memory.files == ()
    assert "services/shop/AGENTS.md is left out: " in memory.summary
    assert "leads outside" in memory.summary


def test_a_link_to_secrets_is_not_followed(project: Path) -> None:
    (project / ".env").write_text("PASSWORD=1")
    (project / "AGENTS.md").symlink_to(".env")
    assert read_memory(project).files == ()


def test_what_is_no_plain_file_of_text_leaves_a_remark(project: Path) -> None:
    os.mkfifo(project / "AGENTS.md")
    (project / "CLAUDE.md").write_bytes(b"\x00\x01")
    memory = read_memory(project)
    assert memory.files == ()
    assert len(memory.remarks) == 2


def test_too_much_is_cut_where_it_is_farthest_from_the_project(project: Path) -> None:
    (project.parent.parent / "AGENTS.md").write_text("far " * MOST_BYTES)
    (project / "AGENTS.md").write_text("near")
    far, near = read_memory(project).files
    assert (near.text, near.is_cut) == ("near", False)
    assert far.is_cut
    assert len(far.text) + len(near.text) == MOST_BYTES
    assert "AGENTS.md (128.0 KB, cut to 32.0 KB)" in read_memory(project).summary


def test_a_huge_file_is_not_read_at_all(project: Path) -> None:
    (project / "AGENTS.md").write_bytes(b"x" * (MOST_READ_BYTES + 1))
    assert read_memory(project).files == ()
    assert "larger than 1024 KB" in read_memory(project).summary


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_top_that_is_somebody_else_s_is_not_asked(project: Path) -> None:
    top = project.parent.parent
    (top / "AGENTS.md").write_text("theirs\n")
    (project / "AGENTS.md").write_text("ours\n")
    os.chown(top, 4711, 4711)
    assert texts(project) == [("AGENTS.md", "ours")]
