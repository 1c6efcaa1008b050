import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import UsageError
from cdd_agent.workspace.files import PAGED_CAP_BYTES, SIZE_CAP_BYTES, Workspace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "table.py").write_bytes(b"x = 1\n")
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("[core]\n")
    (tmp_path / "secret.txt").write_text("outside")
    return root


def test_a_relative_and_an_absolute_path_inside_mean_the_same_file(project: Path) -> None:
    workspace = Workspace(project)
    assert workspace.read("src/table.py") == b"x = 1\n"
    assert workspace.read("./src/table.py") == b"x = 1\n"
    assert workspace.read(str(project / "src" / "table.py")) == b"x = 1\n"
    assert workspace.resolve(str(project / "src" / "table.py")) == "src/table.py"


def test_an_absolute_path_works_below_a_root_that_was_given_through_a_link(project: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(project)
    workspace = Workspace(link)
    assert workspace.resolve(str(link / "src" / "table.py")) == "src/table.py"
    assert workspace.resolve(str(project / "src" / "table.py")) == "src/table.py"


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "a/../../secret.txt", "src/../src/table.py", "/etc/passwd", "", " ", "src/\0table.py", "\ud800"],
)
def test_a_path_that_leaves_the_project_or_is_none_is_refused(project: Path, path: str) -> None:
    workspace = Workspace(project)
    with pytest.raises(UsageError) as refusal:
        workspace.resolve(path)
    assert "path inside the project" in refusal.value.hint
    with pytest.raises(UsageError):
        workspace.write(path, b"")


def test_a_sibling_folder_whose_name_begins_alike_is_outside(project: Path, tmp_path: Path) -> None:
    (tmp_path / "project-two").mkdir()
    with pytest.raises(UsageError, match="outside the project"):
        Workspace(project).resolve(str(tmp_path / "project-two" / "file"))


def test_links_that_lead_outside_are_refused_for_files_and_folders(project: Path, tmp_path: Path) -> None:
    (project / "file-link").symlink_to(tmp_path / "secret.txt")
    (project / "folder-link").symlink_to(tmp_path)
    (project / "dangling").symlink_to(tmp_path / "new.txt")
    workspace = Workspace(project)
    for path in ("file-link", "folder-link/secret.txt", "dangling", "folder-link/new.txt"):
        with pytest.raises(UsageError, match="leads outside"):
            workspace.resolve(path)
        with pytest.raises(UsageError, match="leads outside"):
            workspace.write(path, b"x")
    assert (tmp_path / "secret.txt").read_text() == "outside"
    assert not (tmp_path / "new.txt").exists()


def test_a_link_inside_is_read_through_and_never_written_through(project: Path) -> None:
    (project / "alias.py").symlink_to("src/table.py")
    (project / "lib").symlink_to("src")
    workspace = Workspace(project)
    assert workspace.read("alias.py") == b"x = 1\n"
    assert workspace.resolve("lib/table.py") == "src/table.py"
    for path in ("alias.py", "lib/table.py"):
        with pytest.raises(UsageError, match="link") as refusal:
            workspace.write(path, b"y = 2\n")
        assert "src/table.py" in refusal.value.hint
    assert (project / "src" / "table.py").read_bytes() == b"x = 1\n"


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".GIT/hooks/pre-commit",
        ".Git/hooks/pre-commit",
        "sub/.git/hooks/pre-commit",
        ".g\u200bit/config",
        ".\uff47it/config",
        ".cdd/config.yaml",
        ".CDD/x",
        ".git",
    ],
)
def test_private_folders_are_neither_read_nor_written(project: Path, path: str) -> None:
    workspace = Workspace(project)
    with pytest.raises(UsageError, match="neither read nor write"):
        workspace.read(path)
    with pytest.raises(UsageError, match="neither read nor write"):
        workspace.write(path, b"#!/bin/sh\n")


def test_a_link_into_a_private_folder_is_refused(project: Path) -> None:
    (project / "innocent").symlink_to(".git")
    with pytest.raises(UsageError, match="neither read nor write"):
        Workspace(project).read("innocent/config")


def test_the_git_folder_of_a_linked_worktree_is_private(tmp_path: Path) -> None:
    (tmp_path / "store.git").mkdir()
    (tmp_path / ".git").write_text("gitdir: store.git\n")
    workspace = Workspace(tmp_path)
    for path in (".git", "store.git/config"):
        with pytest.raises(UsageError, match="neither read nor write"):
            workspace.write(path, b"x")


@pytest.mark.parametrize("name", ["execution-state.json", "execution-state.json.bak", "Execution-State.JSON"])
def test_the_state_of_a_ticket_may_be_read_but_not_written(project: Path, name: str) -> None:
    (project / "tickets" / "one").mkdir(parents=True)
    (project / "tickets" / "one" / name).write_text("{}")
    workspace = Workspace(project)
    assert workspace.read(f"tickets/one/{name}") == b"{}"
    with pytest.raises(UsageError, match="state of a ticket"):
        workspace.write(f"tickets/one/{name}", b"")


def test_a_file_that_agents_may_not_read_is_refused_through_a_link_too(project: Path) -> None:
    (project / "kubeconfig").write_text("token")
    (project / "link").symlink_to("kubeconfig")
    workspace = Workspace(project, may_read=lambda path: path != "kubeconfig")
    for path in ("kubeconfig", "./kubeconfig", "link", str(project / "kubeconfig")):
        with pytest.raises(UsageError, match="git ignores"):
            workspace.read(path)
    assert workspace.read("src/table.py")


def test_a_file_of_secrets_is_refused_by_the_name_given_and_by_the_resolved_one(project: Path) -> None:
    (project / ".env").write_text("KEY=1")
    (project / ".env.example").write_text("KEY=")
    (project / "notes.txt").symlink_to(".env")
    (project / "server.pem").symlink_to("src/table.py")
    workspace = Workspace(project)
    for path in (".env", "notes.txt", "server.pem"):
        with pytest.raises(UsageError, match="file of secrets"):
            workspace.read(path)
        with pytest.raises(UsageError, match="file of secrets"):
            workspace.write(path, b"KEY=2")
    assert workspace.read(".env.example") == b"KEY="


@pytest.mark.parametrize("path", [".gitattributes", "sub/.gitmodules", "src/a.pth", ".venv/lib/x.py", "env/lib/x.py"])
def test_what_starts_programs_may_be_read_and_is_not_written(project: Path, path: str) -> None:
    (project / "env").mkdir()
    (project / "env" / "pyvenv.cfg").touch()
    workspace = Workspace(project)
    with pytest.raises(UsageError, match="Agents may not write"):
        workspace.write(path, b"{}")
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    (project / path).write_text("{}")
    assert workspace.read(path) == b"{}"
    with pytest.raises(UsageError, match="Agents may not write"):
        workspace.write(path, b"")


def test_a_missing_file_is_answered_with_the_nearest_name(project: Path) -> None:
    with pytest.raises(UsageError, match=r"src/tabel\.py does not exist") as refusal:
        Workspace(project).read("src/tabel.py")
    assert "src/table.py" in refusal.value.hint


def test_large_binary_and_special_files_are_refused_without_waiting(project: Path) -> None:
    (project / "large.txt").write_bytes(b"a" * (SIZE_CAP_BYTES + 1))
    (project / "limit.txt").write_bytes(b"a" * SIZE_CAP_BYTES)
    (project / "picture.png").write_bytes(b"\x89PNG\0")
    os.mkfifo(project / "pipe")
    workspace = Workspace(project)
    assert len(workspace.read("limit.txt")) == SIZE_CAP_BYTES
    for path, why in (
        ("large.txt", "larger than 256 KB"),
        ("picture.png", "binary"),
        ("pipe", "not a regular file"),
        ("src", "it is a folder"),
    ):
        with pytest.raises(UsageError, match=why):
            workspace.read_text(path)
    with pytest.raises(UsageError, match="regular file"):
        workspace.write("pipe", b"x")


def test_the_shared_git_folder_of_a_work_tree_is_private_too(tmp_path: Path) -> None:
    (tmp_path / "store" / "worktrees" / "one").mkdir(parents=True)
    (tmp_path / "store" / "worktrees" / "one" / "commondir").write_text("../..\n")
    (tmp_path / ".git").write_text("gitdir: store/worktrees/one\n")
    for path in ("store/config", "store/worktrees/one/HEAD"):
        with pytest.raises(UsageError, match="neither read nor write"):
            Workspace(tmp_path).write(path, b"x")


@pytest.mark.parametrize("text", ["gitdir: a\0b", "gitdir:", "", "gitdir: ../gone"])
def test_a_git_file_that_makes_no_sense_is_no_crash(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").write_text(text)
    Workspace(tmp_path).write("a.py", b"x = 1\n")


def test_a_larger_file_is_read_whole_where_it_is_asked_for_in_parts(project: Path) -> None:
    (project / "large.txt").write_bytes(b"a" * (SIZE_CAP_BYTES + 1))
    workspace = Workspace(project)
    assert len(workspace.read("large.txt", cap_bytes=PAGED_CAP_BYTES)) == SIZE_CAP_BYTES + 1


@pytest.mark.slow
def test_folders_nested_deeper_than_a_function_can_call_itself_are_listed(project: Path) -> None:
    handle = os.open(project, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    assert Workspace(project).list_files() == ("src/table.py",)
    subprocess.run(["rm", "-rf", str(project / "d")], check=True)


def test_a_pipe_in_place_of_the_git_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert Workspace(tmp_path).list_files() == ()


def test_a_loop_of_links_is_an_answer_and_no_crash(project: Path) -> None:
    (project / "a").symlink_to("b")
    (project / "b").symlink_to("a")
    with pytest.raises(UsageError):
        Workspace(project).read("a")


def test_writing_makes_folders_and_keeps_the_mode_of_a_file(project: Path) -> None:
    script = project / "run.sh"
    script.write_text("old")
    script.chmod(0o755)
    workspace = Workspace(project)
    workspace.write("new/deep/file.py", b"x")
    workspace.write("run.sh", b"new")
    assert (project / "new" / "deep" / "file.py").read_bytes() == b"x"
    assert script.read_bytes() == b"new"
    assert script.stat().st_mode & 0o777 == 0o755


def test_a_file_cannot_be_written_below_a_file_or_onto_a_folder(project: Path) -> None:
    workspace = Workspace(project)
    with pytest.raises(UsageError, match="cannot be written"):
        workspace.write("src/table.py/inner.py", b"x")
    with pytest.raises(UsageError, match="folder"):
        workspace.write("src", b"x")


def test_a_name_too_long_for_the_file_system_is_an_answer(project: Path) -> None:
    workspace = Workspace(project)
    with pytest.raises(UsageError):
        workspace.read("n" * 300)
    with pytest.raises(UsageError):
        workspace.write("n" * 300, b"x")


def test_the_listing_leaves_out_what_nobody_edits(project: Path, tmp_path: Path) -> None:
    for made in ("node_modules/a.js", "src/__pycache__/a.pyc", "env/pyvenv.cfg", "env/lib/a.py", ".cdd/x"):
        (project / made).parent.mkdir(parents=True, exist_ok=True)
        (project / made).write_text("")
    (project / "README.md").write_text("")
    (project / "out").symlink_to(tmp_path / "secret.txt")
    (project / "hidden").symlink_to(".git/config")
    (project / "alias.py").symlink_to("src/table.py")
    (project / "round").symlink_to(project)
    os.mkfifo(project / "pipe")
    assert Workspace(project).list_files() == ("README.md", "alias.py", "src/table.py")


@given(st.text(alphabet=st.sampled_from("./\\~a .gitcd\u200b\0G-"), max_size=30))
def test_no_path_is_ever_named_outside_the_root_or_in_a_private_folder(path: str) -> None:
    root = Path(sys.prefix).resolve()
    try:
        name = Workspace(root).resolve(path)
    except UsageError:
        return
    assert (root / name).resolve().is_relative_to(root)
    assert not {".git", ".cdd"} & {part.casefold() for part in name.split("/")}
