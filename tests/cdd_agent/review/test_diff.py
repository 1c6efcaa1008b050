"""What differs between two commits, read from a real repository."""

from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.review import diff_commits


def made(folder: Path) -> Repository:
    folder.mkdir()
    repository = Repository.create(folder)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    (folder / "kept.txt").write_text("one\ntwo\n")
    (folder / "gone.txt").write_text("gone\n")
    commit_paths(repository, "first", paths=["kept.txt", "gone.txt"])
    return repository


def test_each_file_has_its_kind_its_counts_and_its_hunks(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    before = repository.read_head() or ""
    (repository.root / "kept.txt").write_text("one\n2\n")
    (repository.root / "gone.txt").unlink()
    (repository.root / "a b\té.txt").write_text("diff --git a/x b/x\n@@ not a hunk @@\n")
    (repository.root / "picture").write_bytes(b"\0\1\2")
    commit_paths(repository, "second", paths=["kept.txt", "gone.txt", "a b\té.txt", "picture"])
    found = {file.path: file for file in diff_commits(repository, before, after=repository.read_head() or "")}
    assert {path: (file.kind, file.added, file.removed) for path, file in found.items()} == {
        "kept.txt": ("modified", 1, 1),
        "gone.txt": ("deleted", 0, 1),
        "a b\té.txt": ("created", 2, 0),
        "picture": ("created", None, None),
    }
    assert found["kept.txt"].hunks == "@@ -1,2 +1,2 @@\n one\n-two\n+2"
    assert found["a b\té.txt"].hunks.endswith("+diff --git a/x b/x\n+@@ not a hunk @@")
    assert found["picture"].hunks == ""


def test_a_renamed_file_is_one_with_two_names(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    lines = [f"line {number}\n" for number in range(20)]
    for name in ("a\tb.py", "b.py"):
        (repository.root / name).write_text(name + "".join(lines))
    before = commit_paths(repository, "second", paths=["a\tb.py", "b.py"])
    (repository.root / "a\tb.py").rename(repository.root / "c.py")
    (repository.root / "b.py").rename(repository.root / "d.py")
    (repository.root / "d.py").write_text("b.py" + "".join(lines).replace("line 3\n", "line three\n"))
    (repository.root / "gone.txt").unlink()
    after = commit_paths(repository, "third", paths=["a\tb.py", "b.py", "c.py", "d.py", "gone.txt"])
    same, edited, gone = diff_commits(repository, before, after=after)
    assert [file.name for file in (same, edited, gone)] == ["R a\tb.py -> c.py", "R b.py -> d.py", "D gone.txt"]
    assert (same.counts, same.hunks) == ("+0 -0", "")
    assert edited.counts == "+1 -1"
    assert "\n-line 3\n+line three\n" in edited.hunks


def test_a_mode_alone_is_a_change_without_hunks(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    before = repository.read_head() or ""
    (repository.root / "kept.txt").chmod(0o755)
    commit_paths(repository, "second", paths=["kept.txt"])
    (file,) = diff_commits(repository, before, after=repository.read_head() or "")
    assert (file.path, file.added, file.hunks) == ("kept.txt", 0, "")


def test_a_file_that_becomes_a_link_leaves_the_diffs_of_the_others_where_they_belong(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    before = repository.read_head() or ""
    (repository.root / "gone.txt").unlink()
    (repository.root / "gone.txt").symlink_to("kept.txt")
    (repository.root / "kept.txt").write_text("one\n")
    commit_paths(repository, "second", paths=["gone.txt", "kept.txt"])
    link, kept = diff_commits(repository, before, after=repository.read_head() or "")
    assert (link.path, link.kind, link.added, link.removed) == ("gone.txt", "modified", 1, 1)
    assert link.hunks == "@@ -1 +0,0 @@\n-gone\n@@ -0,0 +1 @@\n+kept.txt\n\\ No newline at end of file"
    assert kept.hunks == "@@ -1,2 +1 @@\n one\n-two"


def test_a_submodule_that_is_to_be_ignored_is_shown_all_the_same(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    first = repository.read_head() or ""
    (repository.root / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ./lib\n\tignore = all\n')
    (repository.root / "kept.txt").write_text("one\n")
    before = commit_paths(repository, "second", paths=[".gitmodules", "kept.txt"])
    (repository.root / "kept.txt").write_text("two\n")
    repository.git("update-index", ("--add", "--cacheinfo"), f"160000,{first},lib")
    repository.git("update-index", "kept.txt")
    after = repository.git(
        "commit-tree", repository.git("write-tree").strip(), ("-p",), before, ("-m",), "third"
    ).strip()
    kept, lib = diff_commits(repository, before, after=after)
    assert (kept.path, kept.hunks) == ("kept.txt", "@@ -1 +1 @@\n-one\n+two")
    assert (lib.path, lib.hunks) == ("lib", f"@@ -0,0 +1 @@\n+Subproject commit {first}")


def test_a_commit_that_is_gone_is_named(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    for before, after in (("0" * 40, "HEAD"), ("HEAD", "0" * 40)):
        with pytest.raises(UsageError, match="no longer has the commit 0000000000 of this ticket"):
            diff_commits(repository, before, after=after)
