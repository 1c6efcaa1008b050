"""What a run tree gets of the submodules that the user has checked out."""

import os
import subprocess
from pathlib import Path

import pytest

from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.git.run_tree import RunTree, RunTrees
from tests.fakes.cases import soak_after
from tests.fakes.files import describe_files

LIBRARY = {".gitattributes": "*.csv filter=loud\n", "table.csv": "1,2\n", ".gitignore": "*.tmp\n"}


def git(folder: Path, *arguments: str) -> str:
    allowed = ("-c", "protocol.file.allow=always", "-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    return subprocess.run(["git", *allowed, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def make_origin(folder: Path, files: dict[str, str], *, inner: Path | None = None) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet")
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "above").symlink_to("..")
    if inner is not None:
        git(folder, "submodule", "--quiet", "add", str(inner), "deep/inner")
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "library")
    return folder


@pytest.fixture
def tree(repository: Repository, tmp_path: Path) -> RunTree:
    """A run tree of a project with the submodule ``parts/library``, which has the submodule ``deep/inner``."""
    inner = make_origin(tmp_path / "inner", {"i.txt": "i\n"})
    library = make_origin(tmp_path / "library", LIBRARY, inner=inner)
    root = repository.root
    (root / ".gitignore").write_text(".cdd/\n")
    git(root, "submodule", "--quiet", "add", str(library), "parts/library")
    git(root, "submodule", "--quiet", "update", "--init", "--recursive")
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "submodule")
    return RunTrees(repository, root / ".cdd" / "worktrees").tree("csv")


def reset(tree: RunTree, repository: Repository) -> tuple[str, ...]:
    head = repository.read_head()
    assert head is not None
    return tree.reset(head)


def test_a_run_tree_has_the_recorded_files_of_submodules_and_commits_leave_them_out(
    tree: RunTree, repository: Repository, tmp_path: Path
) -> None:
    user = repository.root / "parts" / "library"
    git(user, "config", "filter.loud.smudge", f"touch {tmp_path}/ran; tr 1-9 a-i")
    hook = Path(git(user, "rev-parse", "--path-format=absolute", "--git-dir").strip()) / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    (user / "table.csv").write_text("being edited\n")
    before = describe_files(user, times=True), git(repository.root, "status", "--porcelain")
    assert reset(tree, repository) == ()
    library = tree.root / "parts" / "library"
    assert {name: (library / name).read_text() for name in LIBRARY} == LIBRARY
    assert (library / "deep" / "inner" / "i.txt").read_text() == "i\n"
    assert os.readlink(library / "above") == ".."
    assert not list(tree.root.glob("parts/**/.git"))
    assert tree.repository.git("status", ("--porcelain", "--ignored")) == ""
    (library / "table.csv").write_text("changed\n")
    (tree.root / "a.txt").write_text("changed\n")
    assert tree.repository.git("status", ("--porcelain",)) == " M a.txt\n"
    commit_paths(tree.repository, "change", paths=["a.txt"])
    assert tree.repository.git("diff", ("--name-only",), "HEAD^", "HEAD") == "a.txt\n"
    assert (describe_files(user, times=True), git(repository.root, "status", "--porcelain")) == before
    assert not (tmp_path / "ran").exists()


@soak_after(1, "what", ["changed", "a repository", "a file", "a link", "a link above"])
def test_a_reset_restores_what_a_program_did_to_a_submodule(
    tree: RunTree, repository: Repository, *, what: str
) -> None:
    reset(tree, repository)
    user, library = repository.root / "parts", tree.root / "parts" / "library"
    before, clean = describe_files(user, times=True), describe_files(tree.root)
    match what:
        case "changed":
            (library / "table.csv").write_text("9,9\n")
            (library / "deep" / "inner" / "i.txt").unlink()
            (library / "left.tmp").touch()
            (library / "deep" / "left.txt").touch()
        case "a repository":
            for folder in (library, library / "deep" / "inner"):
                git(folder, "init", "--quiet")
        case "a file" | "a link":
            library.rename(tree.root / "aside")
            library.write_text("file\n") if what == "a file" else library.symlink_to(user / "library")
        case _:
            library.parent.rename(tree.root / "aside")
            library.parent.symlink_to(user)
    assert reset(tree, repository) == ()
    assert (describe_files(user, times=True), describe_files(tree.root)) == (before, clean)


@pytest.mark.slow
def test_a_submodule_follows_the_base_and_goes_with_it(tree: RunTree, repository: Repository) -> None:
    start = repository.read_head()
    assert start is not None
    reset(tree, repository)
    user = repository.root / "parts" / "library"
    (user / "table.csv").write_text("3,4\n")
    git(user, "commit", "--quiet", "-a", "-m", "next")
    assert (tree.root / "parts" / "library" / "table.csv").read_text() == "1,2\n"
    git(repository.root, "commit", "--quiet", "-a", "-m", "next")
    reset(tree, repository)
    assert (tree.root / "parts" / "library" / "table.csv").read_text() == "3,4\n"
    git(repository.root, "rm", "--quiet", "parts/library")
    (repository.root / "parts").mkdir(exist_ok=True)
    (repository.root / "parts" / "library").write_text("a file now\n")
    git(repository.root, "add", "-A")
    git(repository.root, "commit", "--quiet", "-m", "none")
    reset(tree, repository)
    assert (tree.root / "parts" / "library").read_text() == "a file now\n"
    tree.reset(start)
    assert not list((tree.root / "parts" / "library").iterdir()), "the user no longer has it"


@pytest.mark.slow
def test_a_submodule_that_is_not_checked_out_stays_empty_and_a_missing_commit_is_reported(
    tree: RunTree, repository: Repository
) -> None:
    reset(tree, repository)
    library = tree.root / "parts" / "library"
    git(repository.root / "parts" / "library", "submodule", "--quiet", "deinit", "--force", "--all")
    assert reset(tree, repository) == ()
    assert (library / "table.csv").exists()
    assert not list((library / "deep" / "inner").iterdir())
    git(repository.root, "update-index", "--cacheinfo", f"160000,{'1' * 40},parts/library")
    git(repository.root, "commit", "--quiet", "-m", "elsewhere")
    assert reset(tree, repository) == ("parts/library",)
    assert not list(library.iterdir())
    (repository.root / "parts" / "library" / ".git").write_text("gitdir: ../nowhere\n")
    assert reset(tree, repository) == ("parts/library",)
