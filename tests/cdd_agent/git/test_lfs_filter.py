"""Files in Git LFS: run trees have their content, and commits their pointers."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from cdd_agent.git.commits import commit_paths, list_pointers
from cdd_agent.git.repository import CopyLimits, Repository
from cdd_agent.git.run_tree import RunTree, RunTrees, write_files
from cdd_agent.git.runner import GitUnable
from cdd_agent.git.tree_store import TreeStore
from pytest_tdd_agent.report import Clause

CONTENT = {"stored.bin": b"1,2\n", "there.bin": b"3\0" * 50_000, "absent.bin": b"5,6\n", "edited.bin": b"7,8\n"}
PLAIN = b"no pointer was committed\n"


def make_pointer(content: bytes) -> bytes:
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n".encode()


def store(repository: Repository, content: bytes) -> None:
    oid = hashlib.sha256(content).hexdigest()
    place = repository.location.common_dir / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    place.parent.mkdir(parents=True)
    place.write_bytes(content)


@pytest.fixture
def project(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A project whose user has some content, where the filters of user and repository must not run."""
    for name in ("own", "other"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/{name}-ran\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "gitconfig").write_text(
        f'[user]\n\tname = Ada\n\temail = ada@example.org\n[filter "lfs"]\n\tprocess = {tmp_path}/own\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (repository.root / ".gitignore").write_text(".cdd/\n")
    commit_paths(repository, "ignore", paths=[".gitignore"])
    files = {path: make_pointer(content) for path, content in CONTENT.items()}
    for path, data in {**files, "plain.bin": PLAIN, ".gitattributes": b"*.bin filter=lfs -text\n"}.items():
        blob = repository.git("hash-object", ("-w", "--no-filters", "--stdin"), stdin=data).strip()
        repository.git("update-index", ("--add", "--cacheinfo"), f"100644,{blob},{path}")
    repository.git("commit", ("--quiet", "-m"), "large")
    repository.git("config", "filter.lfs.process", str(tmp_path / "other"))
    repository.git("config", "filter.lfs.smudge", str(tmp_path / "other"))
    for path, data in files.items():
        (repository.root / path).write_bytes(data)
    store(repository, CONTENT["stored.bin"])
    (repository.root / "there.bin").write_bytes(CONTENT["there.bin"])
    (repository.root / "edited.bin").write_bytes(b"9,9\n")
    (repository.root / "plain.bin").write_bytes(PLAIN)
    return repository


def prepare(project: Repository) -> RunTree:
    tree, head = RunTrees(project, project.root / ".cdd" / "worktrees").tree("csv"), project.read_head()
    assert head is not None
    tree.reset(head)
    return tree


def read_all(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.bin")}


EXPECTED = {
    "stored.bin": CONTENT["stored.bin"],
    "there.bin": CONTENT["there.bin"],
    "absent.bin": make_pointer(CONTENT["absent.bin"]),
    "edited.bin": make_pointer(CONTENT["edited.bin"]),
    "plain.bin": PLAIN,
}


@pytest.mark.slow
def test_content_that_the_user_has_is_provided_and_no_commit_changes(project: Repository, tmp_path: Path) -> None:
    tree = prepare(project)
    assert read_all(tree.root) == EXPECTED
    for name in EXPECTED:
        os.utime(tree.root / name)
    assert tree.repository.git("status", ("--porcelain",)) == ""
    snapshots = TreeStore(tree.repository)
    before = snapshots.take("refs/cdd/before", message="before")
    (tree.root / "a.txt").write_text("changed\n")
    (tree.root / "there.bin").write_bytes(b"changed")
    assert [change.path for change in snapshots.list_changes_since(before)] == ["a.txt", "there.bin"]
    snapshots.restore(before, only=["there.bin"])
    assert read_all(tree.root) == EXPECTED
    commit = commit_paths(tree.repository, "change", paths=["a.txt"])
    assert tree.repository.git("diff", ("--name-only",), f"{commit}^", commit) == "a.txt\n"
    assert read_all(prepare(project).root) == EXPECTED
    assert list_pointers(tree.repository) == ("absent.bin", "edited.bin")
    store(project, CONTENT["absent.bin"])
    assert read_all(prepare(project).root) == {**EXPECTED, "absent.bin": CONTENT["absent.bin"]}
    assert not list(tmp_path.glob("*-ran"))


def test_content_is_in_clean_copies_also_of_the_user_s_own_tree(project: Repository, tmp_path: Path) -> None:
    copies = {project: tmp_path / "one", prepare(project).repository: tmp_path / "two"}
    for repository, folder in copies.items():
        folder.mkdir()
        write_files(repository, "HEAD", folder=folder, index={"GIT_INDEX_FILE": f"{folder}.index"})
        assert read_all(folder) == EXPECTED


@pytest.mark.slow
def test_beyond_the_limit_pointers_stay(project: Repository) -> None:
    project.copy_limits = CopyLimits(size_bytes=1000)
    tree = prepare(project)
    assert read_all(tree.root) == {**EXPECTED, "there.bin": make_pointer(CONTENT["there.bin"])}
    assert tree.repository.git("status", ("--porcelain",)) == ""


def test_a_run_commits_nothing_in_git_lfs(project: Repository) -> None:
    tree = prepare(project)
    for name in ("there.bin", "new.bin"):
        (tree.root / name).write_bytes(b"changed")
        with pytest.raises(GitUnable, match=f"{name} cannot be committed. Its content is in Git LFS"):
            commit_paths(tree.repository, "change", paths=[name])
    assert set(tree.repository.explain_fixed(["a.txt", "there.bin"])) == {"there.bin"}
    assert project.explain_fixed(["there.bin"]) == {}, "in the user's files, his filter stores the content"


@pytest.mark.slow
def test_content_that_git_lfs_of_the_user_stored_is_no_change(project: Repository) -> None:
    tree, content = prepare(project), b"by the user"
    store(project, content)
    (tree.root / "there.bin").write_bytes(content)
    pointer = tree.repository.blobs.write(make_pointer(content))
    tree.repository.git("update-index", ("--cacheinfo",), f"100644,{pointer},there.bin")
    assert tree.repository.git("diff", ("--name-only",)) == ""


@pytest.mark.slow
def test_submodules_have_it_too(project: Repository, tmp_path: Path) -> None:
    library = project.root / "library"
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(project.root), str(library)], check=True)
    inner = Repository(library)
    inner.git("read-tree", "HEAD")
    store(inner, CONTENT["stored.bin"])
    (library / "there.bin").write_bytes(CONTENT["there.bin"])
    head = inner.read_head()
    project.git("update-index", ("--add", "--cacheinfo"), f"160000,{head},library")
    made = project.git("commit-tree", project.git("write-tree").strip(), ("-p",), "HEAD", ("-m",), "library").strip()
    project.git("update-ref", "HEAD", made)
    tree = prepare(project)
    assert read_all(tree.root / "library") == EXPECTED
    assert tree.repository.explain_fixed(["library/a.txt"]) == {"library/a.txt": Clause("in_submodule")}
    assert not list(tmp_path.glob("*-ran"))
