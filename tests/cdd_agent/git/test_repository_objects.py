"""Objects are read through one process, which sees every change."""

import gc
import os
import signal
from pathlib import Path

import pytest

from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import GitObject, ObjectReader, Repository
from cdd_agent.git.runner import GitError, GitTimeout


def children() -> set[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return set(map(int, listed.split()))


def test_one_process_answers_and_sees_what_changes_between_two_questions(repository: Repository) -> None:
    before = children()
    assert repository.objects.read("refs/cdd/x") is None
    first = repository.read_head()
    repository.git("update-ref", "refs/cdd/x", str(first))
    assert repository.read_ref("refs/cdd/x") == first
    (repository.root / "a.txt").write_text("two\n")
    second = commit_paths(repository, "The second\ncommit", paths=["a.txt"])
    repository.git("update-ref", "refs/cdd/x", second)
    repository.git("pack-refs", ("--all",))
    repository.git("repack", ("-a", "-d", "-q"))
    found = repository.objects.require("refs/cdd/x")
    assert (found.id, found.kind, found.subject) == (second, "commit", "The second commit")
    assert repository.objects.require(f"{second}:a.txt").data == b"two\n"
    assert len(children() - before) == 1


def test_trees_are_compared_as_git_compares_them(repository: Repository) -> None:
    root = repository.root
    (root / "deep" / "er").mkdir(parents=True)
    for name in ("deep/er/x", "deep.txt", "file", "odd\nname", "ä"):
        (root / name).write_text(name)
    first = commit_paths(repository, "1", paths=["deep/er/x", "deep.txt", "file", "odd\nname", "ä", "sub/b.txt"])
    (root / "deep" / "er" / "x").unlink()
    (root / "file").unlink()
    (root / "file").mkdir()
    (root / "file" / "in").write_text("a folder now")
    (root / "odd\nname").chmod(0o755)
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to("file")
    names = ["deep/er/x", "file", "file/in", "odd\nname", "a.txt"]
    second = commit_paths(repository, "2", paths=names)
    fields = repository.git("diff-tree", ("-r", "-z", "--name-status", "--no-renames"), first, second).split("\0")
    kinds = {"A": "created", "D": "deleted", "M": "modified", "T": "modified"}
    expected = [(path, kinds[status]) for status, path in zip(fields[0::2], fields[1::2], strict=False)]
    assert [(change.path, change.kind) for change in repository.list_changes(first, second)] == expected
    assert len(expected) == 5
    entry = repository.objects.find_entry(second, "odd\nname")
    assert entry is not None
    assert entry.mode == "100755"
    assert repository.objects.find_entry(second, "file") is None
    assert repository.objects.find_entry(second, "file/in/it") is None


def test_a_damaged_object_is_an_error_and_the_next_question_is_answered(repository: Repository) -> None:
    blob = repository.objects.require("HEAD:a.txt").id
    file = repository.location.common_dir / "objects" / blob[:2] / blob[2:]
    file.chmod(0o644)
    file.write_bytes(b"x\x9c")
    with pytest.raises(GitError):
        repository.objects.require(blob)
    assert repository.objects.require("HEAD:sub/b.txt").data == b"two\n"


def test_an_interrupted_answer_is_not_taken_for_the_next(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("cdd_agent.git.runner.select.poll", interrupt)
        with pytest.raises(KeyboardInterrupt):
            repository.objects.read("HEAD:a.txt")
    assert repository.objects.require("HEAD:sub/b.txt").data == b"two\n"


@pytest.mark.slow
def test_a_process_that_is_stopped_or_killed_is_replaced(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = children()
    repository.read_head()
    (reader,) = children() - before
    os.kill(reader, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr("cdd_agent.git.runner.TIMEOUT_S", 0.1)
        with pytest.raises(GitTimeout):
            repository.objects.read("HEAD")
    repository.objects.require("HEAD")
    (reader,) = children() - before
    os.kill(reader, signal.SIGKILL)
    with pytest.raises(GitError):
        repository.objects.read("HEAD")
    assert isinstance(repository.objects.require("HEAD"), GitObject)


def test_refs_are_set_through_one_process_that_survives_a_refusal(repository: Repository) -> None:
    head, before = str(repository.read_head()), children()
    repository.refs.set("refs/cdd/a", head)
    with pytest.raises(GitError):
        repository.refs.set("refs/cdd/a/b", head)
    with pytest.raises(GitError):
        repository.refs.set("refs/cdd/c\ncommit", head)
    with pytest.raises(GitError):
        repository.refs.set("refs/cdd/d", "0123456789" * 4)
    for name in ("refs/cdd/a", "refs/cdd/b", "refs/cdd/e/f"):
        repository.refs.set(name, head)
    assert repository.list_refs("refs/cdd/") == dict.fromkeys(("refs/cdd/a", "refs/cdd/b", "refs/cdd/e/f"), head)
    assert len(children() - before) == 1


def test_the_process_ends_with_its_reader(repository: Repository) -> None:
    before = children()
    reader = ObjectReader(repository.runner)
    reader.require("HEAD")
    (started,) = children() - before
    del reader
    gc.collect()
    assert started not in children()


@pytest.mark.parametrize("name", ["refs/cdd/x", "refs/cdd/x-gHEAD"])
def test_a_tag_is_not_taken_for_a_ref_of_the_same_name(repository: Repository, name: str) -> None:
    head = str(repository.read_head())
    name = name.replace("HEAD", head[:8])
    repository.git("update-ref", f"refs/tags/{name}", head)
    assert repository.objects.require(name).id == head
    assert repository.read_ref(name) is None


def test_a_name_with_a_line_break_names_nothing(repository: Repository) -> None:
    assert repository.objects.read("HEAD\nHEAD") is None
    assert repository.objects.require("HEAD:a.txt").data == b"one\n"
