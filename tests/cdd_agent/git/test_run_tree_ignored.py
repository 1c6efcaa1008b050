"""What a run tree gets of the files that git ignores."""

import os
import socket
from pathlib import Path

import pytest

from cdd_agent.git.repository import CopyLimits, Repository
from cdd_agent.git.run_tree import MOST_SHARED, IgnoredFiles, copy_ignored

FILES = {
    ".gitignore": "data/\n*.sqlite\n.env\n.venv\nnode_modules\ntarget\n*.log\ninner/\n*.sock\nlink*\n",
    "data/table.csv": "1,2\n",
    "data/deep/table.csv": "3,4\n",
    "db.sqlite": "x" * 3_000,
    "big.log": "x" * 5_000,
    ".env": "KEY=1\n",
    "data/.env.local": "KEY=2\n",
    ".venv/pyvenv.cfg": "",
    ".venv/bin/tool": "",
    "node_modules/a/index.js": "",
    "target/CACHEDIR.TAG": "",
    "target/debug/a": "",
    "__pycache__/a.pyc": "",
    ".cdd/.gitignore": "*\n",
    ".cdd/reports/sale/a.json": "",
    "inner/.git/config": "",
    "inner/a.txt": "",
}


@pytest.fixture
def project(repository: Repository) -> Repository:
    for name, content in FILES.items():
        path = repository.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return repository


def list_files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if not path.is_dir()}


def test_data_is_copied_and_environments_packages_caches_repositories_and_secrets_are_not(
    project: Repository, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (project.root / "db.sqlite").chmod(0o600)
    (project.root / "data" / "state.json").write_text("{}")
    found = copy_ignored(project, tree, accepts=lambda path: not path.startswith("data/state"))
    assert set(found.copied) == {"data/table.csv", "data/deep/table.csv", "db.sqlite", "big.log"}
    assert found.secret == (".env", "data/.env.local")
    assert list_files(tree) == {path: FILES[path] for path in found.copied}
    assert (tree / "db.sqlite").stat().st_mode & 0o777 == 0o600
    (tree / "db.sqlite").write_text("changed")
    assert (project.root / "db.sqlite").read_text() == FILES["db.sqlite"]


def test_what_is_too_large_is_shared(project: Repository, tmp_path: Path) -> None:
    found = copy_ignored(project, tmp_path, limits=CopyLimits(size_bytes=3_500))
    assert found == IgnoredFiles(
        copied=("data/deep/table.csv", "data/table.csv", "db.sqlite"),
        shared=("big.log",),
        secret=(".env", "data/.env.local"),
    )
    few = copy_ignored(project, tmp_path / "other", limits=CopyLimits(files=1))
    assert (len(few.copied), len(few.shared)) == (1, 3)


def test_many_that_are_too_large_are_shared_as_folders(project: Repository, tmp_path: Path) -> None:
    (project.root / ".gitignore").write_text("data/\n*.bin\n.env\n")
    for folder in ("data/train/a", "data/train/b", "data/kept", "data/packed", "loose"):
        (project.root / folder).mkdir(parents=True)
        for number in range(MOST_SHARED):
            (project.root / folder / f"{number}.bin").write_text("large" * 100)
    (project.root / "data" / "kept" / ".env").touch()
    (project.root / "data" / "packed" / "node_modules").mkdir()
    (project.root / "data" / "train" / "few.csv").touch()
    (project.root / "loose" / "notes.txt").write_text("not ignored, not committed")
    found = copy_ignored(project, tmp_path, limits=CopyLimits(size_bytes=100))
    files = [f"{folder}/{number}.bin" for folder in ("data/kept", "data/packed", "loose") for number in range(50)]
    assert set(found.shared) - {"db.sqlite", "big.log"} == {"data/train", *files}
    assert set(found.copied) == {"data/table.csv", "data/deep/table.csv"}
    assert not (tmp_path / "data" / "train").exists()


def test_the_user_includes_what_would_be_left_out(project: Repository, tmp_path: Path) -> None:
    (project.root / ".cdd" / "worktree-include").write_text("/.env\nnode_modules/\n")
    found = copy_ignored(project, tmp_path)
    assert {".env", "node_modules/a/index.js"} <= set(found.copied)
    assert found.secret == ("data/.env.local",)


def test_links_that_lead_out_pipes_and_sockets_are_left_out(project: Repository, tmp_path: Path) -> None:
    (project.root / "link-in").symlink_to("data/table.csv")
    (project.root / "link-out").symlink_to("../outside")
    (project.root / "link-absolute").symlink_to(project.root / "db.sqlite")
    os.mkfifo(project.root / "pipe.log")
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(project.root)  # the name of a socket must be short
        try:
            listening.bind("a.sock")
        finally:
            os.chdir(before)
        found = copy_ignored(project, tmp_path)
    assert not {"link-out", "pipe.log", "a.sock"} & {*found.copied, *found.shared}
    assert os.readlink(tmp_path / "link-in") == "data/table.csv"
    assert os.readlink(tmp_path / "link-absolute") == "db.sqlite"


def test_what_the_tree_has_stays(project: Repository, tmp_path: Path) -> None:
    (tmp_path / "db.sqlite").write_text("of the tree")
    (tmp_path / "data").symlink_to(project.root / "data")
    found = copy_ignored(project, tmp_path)
    assert found.copied == ("big.log",)
    assert (tmp_path / "db.sqlite").read_text() == "of the tree"
