"""What differs between two commits, read from a real repository."""

from pathlib import Path

from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.review.diff import between


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
    before = repository.head() or ""
    (repository.root / "kept.txt").write_text("one\n2\n")
    (repository.root / "gone.txt").unlink()
    (repository.root / "a b\té.txt").write_text("diff --git a/x b/x\n@@ not a hunk @@\n")
    (repository.root / "picture").write_bytes(b"\0\1\2")
    commit_paths(repository, "second", paths=["kept.txt", "gone.txt", "a b\té.txt", "picture"])
    found = {file.path: file for file in between(repository, before, after=repository.head() or "")}
    assert {path: (file.kind, file.added, file.removed) for path, file in found.items()} == {
        "kept.txt": ("modified", 1, 1),
        "gone.txt": ("deleted", 0, 1),
        "a b\té.txt": ("created", 2, 0),
        "picture": ("created", None, None),
    }
    assert found["kept.txt"].hunks == "@@ -1,2 +1,2 @@\n one\n-two\n+2"
    assert found["a b\té.txt"].hunks.endswith("+diff --git a/x b/x\n+@@ not a hunk @@")
    assert found["picture"].hunks == ""


def test_a_mode_alone_is_a_change_without_hunks(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    before = repository.head() or ""
    (repository.root / "kept.txt").chmod(0o755)
    commit_paths(repository, "second", paths=["kept.txt"])
    (file,) = between(repository, before, after=repository.head() or "")
    assert (file.path, file.added, file.hunks) == ("kept.txt", 0, "")
