import os
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Change, Repository
from cdd_agent.git.snapshot import Snapshots

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
    snapshots = Snapshots(repository)
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
    assert snapshots.changes_since(kept) == ()


def test_index_head_stash_and_ignored_files_stay_as_they_are(repository: Repository) -> None:
    root = repository.root
    (root / ".gitignore").write_text("*.log\n")
    (root / "a.txt").write_text("staged\n")
    repository.git("add", "a.txt")
    (root / "a.txt").write_text("staged and edited\n")
    (root / "x.log").write_text("ignored\n")
    index = (root / ".git" / "index").read_bytes()
    head, status = repository.head(), repository.git("status", "--porcelain")

    snapshots = Snapshots(repository)
    kept = snapshots.take(REF, message="before")
    (root / "x.log").write_text("still ignored\n")
    snapshots.restore(kept)

    assert (root / ".git" / "index").read_bytes() == index
    assert repository.head() == head
    assert repository.git("status", "--porcelain") == status
    assert (root / "x.log").read_text() == "still ignored\n"


def test_a_folder_left_out_is_neither_kept_nor_changed(repository: Repository) -> None:
    root = repository.root
    (root / "tickets" / "t").mkdir(parents=True)
    (root / "tickets" / "t" / "plan.md").write_text("1\n")
    commit_paths(repository, "plan", paths=["tickets/t/plan.md"])
    snapshots = Snapshots(repository, left_out=("tickets/t",))
    kept = snapshots.take(REF, message="before")
    (root / "tickets" / "t" / "plan.md").write_text("2\n")
    assert snapshots.changes_since(kept) == ()
    snapshots.restore(kept)
    assert (root / "tickets" / "t" / "plan.md").read_text() == "2\n"
    head = repository.head()
    assert head is not None
    assert snapshots.paths_unlike(head, kept) == ()


def test_what_was_ignored_when_it_was_held_stays_out_whatever_the_rules_become(repository: Repository) -> None:
    root = repository.root
    (root / ".gitignore").write_text(".env\nbuild/\n*.pyc\n")
    commit_paths(repository, "rules", paths=[".gitignore"])
    (root / ".env").write_text("SECRET\n")
    for name in ("build/out", "tests/a.pyc"):
        (root / name).parent.mkdir()
        (root / name).write_text("made\n")
    first = Snapshots(repository)
    first.hold_ignored("refs/cdd/checkpoints/t/ignored")
    kept = first.take(REF, message="before")
    (root / ".gitignore").unlink()
    (root / "tests" / "test_a.py").write_text("new\n")
    repository.git("add", ".env")
    later = Snapshots(repository)
    later.hold_ignored("refs/cdd/checkpoints/t/ignored")
    assert [change.path for change in later.changes_since(kept)] == [".gitignore", "tests/test_a.py"]
    later.restore(kept)
    assert {".env", "build/out", "tests/a.pyc"} < set(content(root))
    assert later.leaves_out("build/new")
    assert not Snapshots(repository).leaves_out(".env")


def test_what_cdd_keeps_for_itself_is_left_out_but_the_settings(repository: Repository) -> None:
    snapshots = Snapshots(repository)
    kept = snapshots.take(REF, message="before")
    (repository.root / ".cdd" / "reports").mkdir(parents=True)
    for name in ("reports/a.json", "exec.lock", "config.yaml"):
        (repository.root / ".cdd" / name).write_text("")
    assert [change.path for change in snapshots.changes_since(kept)] == [".cdd/config.yaml"]


def test_repositories_inside_the_work_tree_are_left_out_and_stay(repository: Repository) -> None:
    root = repository.root
    for name in ("empty", "full", "submodule"):
        (root / name).mkdir()
        inner = Repository.create(root / name)
        (root / name / "x.txt").write_text("x\n")
        if name != "empty":
            inner.git("-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "--quiet", "--allow-empty", "-m", "x")
    repository.git("add", "submodule")
    repository.git("commit", "--quiet", "-m", "submodule")
    head = repository.head()
    assert head is not None
    assert repository.apart() == {"empty/", "full/"}
    snapshots = Snapshots(repository)
    kept = snapshots.take(REF, message="before")
    assert snapshots.paths_unlike(head, kept) == ()
    inner.git("-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "--quiet", "--allow-empty", "-m", "y")
    repository.git("add", "full")
    assert snapshots.changes_since(kept) == ()
    assert snapshots.restore(kept) == ()
    assert "submodule" in repository.apart()
    assert all((root / name / "x.txt").exists() for name in ("empty", "full", "submodule"))


def test_only_the_named_paths_are_restored(repository: Repository) -> None:
    root = repository.root
    snapshots = Snapshots(repository)
    kept = snapshots.take(REF, message="before")
    (root / "a.txt").write_text("edited\n")
    (root / "sub" / "b.txt").write_text("edited\n")
    (root / "c.txt").write_text("new\n")
    snapshots.restore(kept, only=["sub/b.txt"])
    assert snapshots.changes_since(kept) == (
        Change(path="a.txt", kind="modified"),
        Change(path="c.txt", kind="created"),
    )


def test_a_snapshot_is_found_by_its_ref_until_it_is_forgotten(repository: Repository) -> None:
    snapshots = Snapshots(repository)
    kept = snapshots.take(REF, message="before")
    assert snapshots.find(REF) == kept
    snapshots.forget("refs/cdd/checkpoints/t/*")
    assert snapshots.find(REF) is None


def test_a_snapshot_works_before_the_first_commit(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    snapshots = Snapshots(repository)
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
    snapshots = Snapshots(repository)
    kept = snapshots.take(REF, message="before")
    apply(root, later_edits)
    snapshots.restore(kept)
    assert content(root) == before


def test_a_change_in_the_moment_the_index_was_written_is_seen(repository: Repository) -> None:
    """Size and times are the same then; only the time of the index itself tells git to look inside."""
    root, index = repository.root, repository.place.git_dir / "index"
    moment = 1_700_000_000
    os.utime(root / "a.txt", (moment, moment))
    repository.git("config", "core.trustctime", "false")
    repository.git("update-index", "-q", "--refresh")
    os.utime(index, (moment, moment))
    (root / "a.txt").write_text("two\n")
    os.utime(root / "a.txt", (moment, moment))
    kept = Snapshots(repository).take(REF, message="kept")
    assert repository.git("cat-file", "blob", f"{kept.commit}:a.txt") == "two\n"
