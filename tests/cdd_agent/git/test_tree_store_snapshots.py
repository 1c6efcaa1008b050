import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdd_agent.events import Change
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.git.tree_store import Snapshot, TreeStore, survey_folders
from tests.fakes.cases import soak_after
from tests.fakes.command_line import run_words

REF = "refs/cdd/checkpoints/t/1"


def content(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


def test_a_restored_tree_is_the_one_that_was_kept(repository: Repository) -> None:
    root = repository.root
    (root / "a.txt").write_text("edited\n")
    (root / "untracked.txt").write_text("kept too\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    before = content(root)
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")

    (root / "a.txt").write_text("ruined\n")
    (root / "untracked.txt").unlink()
    (root / "run.sh").chmod(0o644)
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "new.txt").write_text("new\n")
    undone = snapshots.restore(kept)

    assert content(root) == before
    assert (root / "run.sh").stat().st_mode & 0o100
    assert not (root / "deep").exists()
    assert {change.path for change in undone} == {"a.txt", "untracked.txt", "run.sh", "deep/er/new.txt"}
    assert snapshots.list_changes_since(kept) == ()


def test_index_head_stash_and_ignored_files_stay_as_they_are(repository: Repository) -> None:
    root = repository.root
    (root / ".gitignore").write_text("*.log\n")
    (root / "a.txt").write_text("staged\n")
    repository.git("add", "a.txt")
    (root / "a.txt").write_text("staged and edited\n")
    (root / "x.log").write_text("ignored\n")
    index = (root / ".git" / "index").read_bytes()
    head, status = repository.read_head(), repository.git("status", ("--porcelain",))

    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    (root / "x.log").write_text("still ignored\n")
    snapshots.restore(kept)

    assert (root / ".git" / "index").read_bytes() == index
    assert repository.read_head() == head
    assert repository.git("status", ("--porcelain",)) == status
    assert (root / "x.log").read_text() == "still ignored\n"


def test_a_folder_left_out_is_neither_kept_nor_changed(repository: Repository) -> None:
    root = repository.root
    (root / "tickets" / "t").mkdir(parents=True)
    (root / "tickets" / "t" / "plan.md").write_text("1\n")
    commit_paths(repository, "plan", paths=["tickets/t/plan.md"])
    snapshots = TreeStore(repository, left_out=("tickets/t",))
    kept = snapshots.take(REF, message="before")
    (root / "tickets" / "t" / "plan.md").write_text("2\n")
    assert snapshots.list_changes_since(kept) == ()
    snapshots.restore(kept)
    assert (root / "tickets" / "t" / "plan.md").read_text() == "2\n"
    head = repository.read_head()
    assert head is not None
    assert snapshots.list_differing_paths(head, kept) == ()


def test_what_was_ignored_when_it_was_held_stays_out_whatever_the_rules_become(repository: Repository) -> None:
    root = repository.root
    (root / ".gitignore").write_text(".env\nbuild/\n*.pyc\n")
    commit_paths(repository, "rules", paths=[".gitignore"])
    (root / ".env").write_text("SECRET\n")
    for name in ("build/out", "tests/a.pyc"):
        (root / name).parent.mkdir()
        (root / name).write_text("made\n")
    first = TreeStore(repository)
    first.freeze_ignored("refs/cdd/checkpoints/t/ignored")
    kept = first.take(REF, message="before")
    (root / ".gitignore").unlink()
    (root / "tests" / "test_a.py").write_text("new\n")
    repository.git("add", ".env")
    later = TreeStore(repository)
    later.freeze_ignored("refs/cdd/checkpoints/t/ignored")
    assert [change.path for change in later.list_changes_since(kept)] == [".gitignore", "tests/test_a.py"]
    later.restore(kept)
    assert {".env", "build/out", "tests/a.pyc"} < set(content(root))
    assert later.is_excluded("build/new")
    assert not TreeStore(repository).is_excluded(".env")


def test_what_cdd_keeps_for_itself_is_left_out_but_the_settings(repository: Repository) -> None:
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    (repository.root / ".cdd" / "reports").mkdir(parents=True)
    for name in ("reports/a.json", "exec.lock", "config.yaml"):
        (repository.root / ".cdd" / name).write_text("")
    assert [change.path for change in snapshots.list_changes_since(kept)] == [".cdd/config.yaml"]


def test_repositories_inside_the_work_tree_are_left_out_and_stay(repository: Repository) -> None:
    root = repository.root
    for name in ("empty", "full", "submodule"):
        (root / name).mkdir()
        inner = Repository.create(root / name)
        (root / name / "x.txt").write_text("x\n")
        if name != "empty":
            for key in ("user.name", "user.email"):
                inner.git("config", key, "a@b.c")
            inner.git("commit", ("--quiet", "--allow-empty", "-m"), "x")
    repository.git("add", "submodule")
    repository.git("commit", ("--quiet", "-m"), "submodule")
    head = repository.read_head()
    assert head is not None
    assert repository.list_nested() == {"empty/", "full/"}
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    assert snapshots.list_differing_paths(head, kept) == ()
    inner.git("commit", ("--quiet", "--allow-empty", "-m"), "y")
    repository.git("add", "full")
    assert snapshots.list_changes_since(kept) == ()
    assert snapshots.restore(kept) == ()
    assert "submodule" in repository.list_nested()
    assert all((root / name / "x.txt").exists() for name in ("empty", "full", "submodule"))


def test_only_the_named_paths_are_restored(repository: Repository) -> None:
    root = repository.root
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    (root / "a.txt").write_text("edited\n")
    (root / "sub" / "b.txt").write_text("edited\n")
    (root / "c.txt").write_text("new\n")
    snapshots.restore(kept, only=["sub/b.txt"])
    assert snapshots.list_changes_since(kept) == (
        Change(path="a.txt", kind="modified"),
        Change(path="c.txt", kind="created"),
    )


def test_a_snapshot_is_found_by_its_ref_until_it_is_forgotten(repository: Repository) -> None:
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    assert snapshots.find(REF) == kept
    snapshots.forget("refs/cdd/checkpoints/t/*")
    assert snapshots.find(REF) is None


def test_a_snapshot_works_before_the_first_commit(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    (tmp_path / "a.txt").unlink()
    snapshots.restore(kept)
    assert (tmp_path / "a.txt").read_text() == "a\n"


names = st.sampled_from(["a.txt", "sub/b.txt", "sub/deeper/c.txt", "ü ñ.txt", "-dash.txt", 'quo"te.txt'])
edits = st.dictionaries(names, st.none() | st.binary(max_size=20))


def apply(root: Path, changes: dict[str, bytes | None]) -> None:
    for name, data in changes.items():
        path = root / name
        if data is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept_edits=edits, later_edits=edits)
def test_restoring_undoes_any_later_edit(
    repository: Repository, kept_edits: dict[str, bytes | None], later_edits: dict[str, bytes | None]
) -> None:
    root = repository.root
    apply(root, kept_edits)
    before = content(root)
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    apply(root, later_edits)
    snapshots.restore(kept)
    assert content(root) == before


def test_a_change_in_the_moment_the_index_was_written_is_seen(repository: Repository) -> None:
    """Size and times are the same then; only the time of the index itself tells git to look inside."""
    root, index = repository.root, repository.location.git_dir / "index"
    moment = 1_700_000_000
    os.utime(root / "a.txt", (moment, moment))
    repository.git("config", "core.trustctime", "false")
    repository.git("update-index", ("-q", "--refresh"))
    os.utime(index, (moment, moment))
    (root / "a.txt").write_text("two\n")
    os.utime(root / "a.txt", (moment, moment))
    kept = TreeStore(repository).take(REF, message="kept")
    assert repository.git("cat-file", "blob", f"{kept.commit}:a.txt") == "two\n"


@soak_after(1, "mark", ["--skip-worktree", "--assume-unchanged"])
def test_changes_that_git_was_told_not_to_look_at_are_kept_and_come_back(repository: Repository, mark: str) -> None:
    """So do users who keep a configuration of their own in a tracked file."""
    path = repository.root / "a.txt"
    path.write_text("the user's own\n")
    repository.git("update-index", (mark,), "a.txt")
    index = repository.location.git_dir / "index"
    before = index.read_bytes()
    assert repository.list_uncommitted() == ("a.txt",)
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    head = repository.read_head()
    assert head is not None
    assert snapshots.list_differing_paths(head, kept) == ("a.txt",)
    for spoil in (lambda: path.write_text("the agent's\n"), path.unlink):
        spoil()
        assert [change.path for change in snapshots.list_changes_since(kept)] == ["a.txt"]
        snapshots.restore(kept)
        assert path.read_text() == "the user's own\n"
    assert index.read_bytes() == before


@soak_after(1, "sparse", [(), ("--sparse-index",)])
def test_files_that_a_sparse_checkout_leaves_away_are_not_taken_for_deleted(
    repository: Repository, sparse: tuple[str, ...]
) -> None:
    (repository.root / "out").mkdir()
    for name in ("sub/b.txt", "out/c.txt", "out/d.txt"):
        (repository.root / name).write_text("committed\n")
    commit_paths(repository, "more", paths=["sub/b.txt", "out/c.txt", "out/d.txt"])
    subprocess.run(["git", "sparse-checkout", "set", "--cone", *sparse, "sub"], cwd=repository.root, check=True)
    assert not (repository.root / "out").exists()
    assert repository.list_uncommitted() == ()
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    head = repository.read_head()
    assert head is not None
    assert snapshots.list_differing_paths(head, kept) == ()
    (repository.root / "out").mkdir()
    (repository.root / "out" / "c.txt").write_text("edited all the same\n")
    assert repository.list_uncommitted() == ("out/c.txt",)
    assert [change.path for change in snapshots.list_changes_since(kept)] == ["out/c.txt"]
    snapshots.take(f"{REF}-edited", message="edited")
    assert not (repository.root / "out" / "d.txt").exists()


CONVERTED = {
    "untracked.txt": b"one\r\ntwo\r\n",
    "edited.txt": b"one\r\nedited\nmixed\r\n",
    "same.txt": b"one\r\n",
    "lf.bat": b"one\n",
    'new\nline "q" \\.txt': b"\r\n",
    "keyword.c": b"$Id: of another system $\r\n",
    "latin.utf16": "gr\u00fc\u00dfe\r\n".encode("utf-16"),
}


def attributed(repository: Repository) -> None:
    """Files whose bytes are others than git would make of what it keeps."""
    root = repository.root
    (root / ".gitattributes").write_text(
        "*.txt text=auto eol=lf\n*.bat text eol=crlf\n*.c ident\n*.utf16 working-tree-encoding=UTF-16\n"
    )
    for name in ("edited.txt", "same.txt"):
        (root / name).write_bytes(b"one\r\n")
    commit_paths(repository, "text", paths=[".gitattributes", "edited.txt", "same.txt"])
    for name, data in CONVERTED.items():
        (root / name).write_bytes(data)


def test_files_follow_a_commit_as_a_checkout_would_make_them(repository: Repository) -> None:
    attributed(repository)
    root, head = repository.root, repository.read_head()
    assert head is not None
    (root / "edited.txt").chmod(0o600)
    TreeStore(repository).restore(Snapshot(ref="HEAD", commit=head), only=["edited.txt"])
    assert (root / "edited.txt").read_bytes() == b"one\n"
    assert (root / "edited.txt").stat().st_mode & 0o777 == 0o600
    assert (root / "same.txt").read_bytes() == b"one\r\n"


def test_the_users_own_filter_makes_the_files_again(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "gitconfig"
    own.write_text(
        '[user]\n\tname = Ada\n\temail = ada@example.org\n[filter "up"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    repository = Repository.find(repository.root)
    root = repository.root
    (root / ".gitattributes").write_text("*.up filter=up\n")
    for name in ("same.up", "edited.up"):
        (root / name).write_text("one\n")
    commit_paths(repository, "filtered", paths=[".gitattributes", "same.up", "edited.up"])
    (root / "edited.up").write_text("edited\n")
    (root / "edited.up").chmod(0o600)
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    commit_paths(repository, "edited", paths=["edited.up"])
    assert snapshots.list_changes_since(kept) == ()
    for name in ("same.up", "edited.up"):
        (root / name).write_text("spoiled\n")
    snapshots.restore(kept)
    assert (root / "same.up").read_text() == "one\n"
    assert (root / "edited.up").read_text() == "edited\n"


def test_a_private_file_stays_private_when_it_is_restored(repository: Repository) -> None:
    root, modes = repository.root, {"private": 0o600, "run": 0o700, "a.txt": 0o640, "odd": 0o604}
    for name, bits in modes.items():
        (root / name).write_text("secret\n")
        (root / name).chmod(bits)
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    for name in modes:
        (root / name).write_text("the agent's\n")
    snapshots.restore(kept)
    assert {name: (root / name).stat().st_mode & 0o777 for name in modes} == modes
    assert {(root / name).read_text() for name in modes} == {"secret\n"}


def test_restoring_no_path_restores_none(repository: Repository) -> None:
    root = repository.root
    kept = TreeStore(repository).take(REF, message="before")
    (root / "a.txt").write_text("edited\n")
    (root / "new.txt").write_text("new\n")
    assert TreeStore(repository).restore(kept, only=()) == ()
    assert (root / "a.txt").read_text() == "edited\n"
    assert (root / "new.txt").exists()


@soak_after(
    3,
    "command",
    [
        "update-index --add --remove --replace -z --stdin",
        "update-index --force-remove -z --stdin",
        "update-index --no-skip-worktree -z --stdin",
        "update-index --no-assume-unchanged -z --stdin",
        "update-index -z --index-info",
        "checkout-index --force -z --stdin",
        "check-attr -z --stdin filter",
        "hash-object -w --no-filters --stdin-paths",
        "cat-file --batch",
    ],
)
def test_no_path_is_not_all_paths(repository: Repository, command: str) -> None:
    """As it is for ``git reset --pathspec-from-file``."""
    for text in ("staged\n", "edited\n"):
        (repository.root / "a.txt").write_text(text)
        if text == "staged\n":
            repository.git("add", "a.txt")
    assert run_words(repository, *command.split()) == ""
    assert (repository.root / "a.txt").read_text() == "edited\n"
    assert repository.git("show", ":a.txt") == "staged\n"


@soak_after(1, "mark", ["--assume-unchanged", "--skip-worktree"])
def test_marks_that_a_program_sets_between_two_snapshots_hide_nothing(repository: Repository, *, mark: str) -> None:
    snapshots = TreeStore(repository)
    kept = snapshots.take(REF, message="before")
    repository.git("update-index", (mark,), "a.txt")
    (repository.root / "a.txt").write_text("hidden\n")
    (repository.root / "planted.txt").write_text("hidden too\n")
    repository.git("update-index", ("--add",), "planted.txt")
    repository.git("update-index", (mark,), "planted.txt")
    assert [change.path for change in snapshots.list_changes_since(kept)] == ["a.txt", "planted.txt"]
    (repository.root / ".git" / "index").unlink()
    assert [change.path for change in snapshots.list_changes_since(kept)] == ["a.txt", "planted.txt"]
    snapshots.restore(kept)
    assert (repository.root / "a.txt").read_text() == "one\n"
    assert not (repository.root / "planted.txt").exists()


def test_a_snapshot_names_the_repositories_that_it_leaves_out(repository: Repository) -> None:
    (repository.root / "inner").mkdir()
    Repository.create(repository.root / "inner")
    snapshots = TreeStore(repository)
    snapshots.take(REF, message="before")
    assert snapshots.nested == {"inner/"}


def test_empty_folders_are_found_among_those_with_files(tmp_path: Path) -> None:
    for path in ("src/a.py", "build/deep/ignored.o", "node_modules/x", "other/.git/HEAD"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    for path in ("src/empty", "new/one", "new/two/three", "build/none", "node_modules/none", ".venv/lib"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "link").symlink_to("src")
    (tmp_path / "run").mkdir()
    for path in ("src/pipe", "run/pipe"):
        os.mkfifo(tmp_path / path)
    found = survey_folders(tmp_path, ["src/a.py", "link"], tops=("",))
    assert sorted(found.empty) == ["new/one", "new/two/three", "src/empty"]
    assert sorted(found.special) == ["run/pipe", "src/pipe"]
    assert survey_folders(tmp_path, ["src/a.py"], tops=("src/",)) == (("src/empty",), ("src/pipe",))
