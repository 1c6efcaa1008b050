"""Checkpoints save and restore files byte for byte, and leave git's own data alone."""

import os
import random
import resource
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdd_agent.errors import UsageError
from cdd_agent.git import tree_store as module
from cdd_agent.git.repository import Repository
from cdd_agent.git.tree_store import Checkpoint, Checkpoints, Description
from cdd_agent.runs.back import Back
from tests.cdd_agent.git.notes_written import copied
from tests.fakes.cases import soak_after

Act = Callable[[Path], None]


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout


def observe(root: Path) -> dict[str, tuple[object, ...]]:
    """Return path -> type, permissions and content of everything but git's and cdd's folders."""
    seen: dict[str, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in (".git", ".cdd")]
        for name in (*folders, *names):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            key = path.relative_to(root).as_posix()
            if stat.S_ISLNK(mode):
                seen[key] = ("link", os.readlink(path))
            elif stat.S_ISDIR(mode):
                seen[key] = ("folder",)
            else:
                seen[key] = ("file", stat.S_IMODE(mode), path.read_bytes())
    return seen


def observe_git(root: Path) -> tuple[object, ...]:
    """Return what a checkpoint must never change."""
    logs = root / ".git" / "logs" / "HEAD"
    refs = git(root, "for-each-ref", "refs/heads", "refs/tags", "refs/stash")
    index = root / ".git" / "index"
    return index.read_bytes() if index.exists() else b"", (root / ".git" / "HEAD").read_text(), logs.read_bytes(), refs


def restore(checkpoints: Checkpoints, target: Checkpoint) -> None:
    """Restore as ``cdd checkpoint restore`` does."""
    back = Back(checkpoints, emit=print)
    back.go(back.plan_files(target))


def undo(checkpoints: Checkpoints, *, is_redo: bool = False) -> None:
    """Undo or redo as ``cdd checkpoint undo`` and ``redo`` do."""
    back = Back(checkpoints, emit=print)
    back.go(back.plan_return(is_redo=is_redo))


def change(root: Path) -> None:
    """Change, delete and create files in the ways that matter."""
    (root / "a.txt").write_bytes(b"changed\r\nmixed\n")
    (root / "sub" / "b.txt").unlink()
    (root / "-new\nname .txt").write_bytes(b"\x00\xff\r\n")
    (root / "later").mkdir()
    (root / "later" / "c.txt").write_text("c\n")


def prepare_crlf(root: Path) -> None:
    (root / "a.txt").write_bytes(b"one\r\ntwo\n")
    (root / "sub" / "b.txt").write_bytes(b"two\r\n")
    (root / "untracked.txt").write_bytes(b"three\r\n")


def use_text_auto(root: Path) -> None:
    (root / ".gitattributes").write_text("* text=auto\n")


def use_autocrlf(root: Path) -> None:
    git(root, "config", "core.autocrlf", "true")


def use_lfs(root: Path) -> None:
    (root / ".gitattributes").write_text("*.txt filter=lfs diff=lfs merge=lfs -text\n")
    for key, value in (("clean", "no-such-lfs"), ("smudge", "no-such-lfs"), ("required", "true")):
        git(root, "config", f"filter.lfs.{key}", value)


def swap_folders(root: Path) -> None:
    (root / "sub" / "b.txt").unlink()
    (root / "sub").rmdir()
    (root / "sub").write_text("a file now\n")
    (root / "a.txt").unlink()
    (root / "a.txt").mkdir()
    (root / "a.txt" / "inside").write_text("x\n")


def turn_links(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("sub/b.txt")
    (root / "dangling").unlink()
    (root / "dangling").write_text("a file now\n")
    (root / "sub" / "b.txt").unlink()
    (root / "sub").rmdir()
    (root / "sub").symlink_to("..")


def make_links(root: Path) -> None:
    (root / "link").symlink_to("a.txt")
    (root / "dangling").symlink_to("nowhere")


def protect(root: Path) -> None:
    (root / "private").write_text("p\n")
    (root / "private").chmod(0o600)
    (root / "a.txt").chmod(0o755)
    (root / "empty" / "deep").mkdir(parents=True)


def unprotect(root: Path) -> None:
    (root / "private").chmod(0o644)
    (root / "a.txt").chmod(0o644)
    (root / "empty" / "deep").rmdir()
    (root / "empty").rmdir()
    (root / "other").mkdir()


def hide(root: Path) -> None:
    git(root, "update-index", "--assume-unchanged", "a.txt")
    git(root, "update-index", "--skip-worktree", "sub/b.txt")
    prepare_crlf(root)


def nest(root: Path) -> None:
    for name in ("empty", "full"):
        git(root, "init", "-q", name)
        (root / name / "x").write_text("x\n")
    git(root / "full", "-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "--allow-empty", "-m", "x")


def add_intent(root: Path) -> None:
    (root / "intended").write_text("i\n")
    git(root, "add", "-N", "intended")
    (root / "staged").write_text("s\n")
    git(root, "add", "staged")
    (root / "staged").write_text("t\n")


def conflict(root: Path) -> None:
    git(root, "checkout", "-qb", "other")
    (root / "a.txt").write_text("other\n")
    git(root, "commit", "-qam", "other")
    git(root, "checkout", "-q", "main")
    (root / "a.txt").write_text("main\n")
    git(root, "commit", "-qam", "main")
    subprocess.run(["git", "-C", str(root), "merge", "-q", "other"], check=False, capture_output=True)


def make_sparse(root: Path) -> None:
    git(root, "sparse-checkout", "set", "--no-cone", "/a.txt")


def change_first(root: Path) -> None:
    (root / "a.txt").write_text("changed\n")
    (root / "new.txt").write_text("new\n")


@soak_after(
    1,
    ("prepare", "act"),
    [
        (prepare_crlf, change),
        (use_text_auto, change),
        (use_autocrlf, change),
        (use_lfs, change),
        (lambda root: None, swap_folders),
        (swap_folders, lambda root: git(root, "checkout", "-q", "--", ".") and None),
        (make_links, turn_links),
        (protect, unprotect),
        (hide, change),
        (nest, change),
        (add_intent, change),
        (conflict, change),
        (make_sparse, change_first),
    ],
    ids=[
        *("plain", "text-auto", "autocrlf", "lfs", "folders-for-files", "files-for-folders", "links", "permissions"),
        *("hidden", "nested", "intent", "conflict", "sparse"),
    ],
)
def test_a_restore_is_exact_and_so_is_its_undo(repository: Repository, prepare: Act, act: Act) -> None:
    root = repository.root
    if prepare in (use_text_auto, use_autocrlf, use_lfs):
        prepare_crlf(root)
    prepare(root)
    checkpoints, before, untouched = (
        Checkpoints.of_repository(Repository.find(root), root),
        observe(root),
        observe_git(root),
    )
    made = checkpoints.create()
    if prepare is swap_folders:
        (root / "a.txt" / "inside").unlink()
        (root / "a.txt").rmdir()
        (root / "sub").unlink()
    act(root)
    after, acted = observe(root), observe_git(root)

    restore(checkpoints, made)
    assert observe(root) == before
    undo(checkpoints)
    assert observe(root) == after
    if prepare is prepare_crlf:
        undo(checkpoints, is_redo=True)
        assert observe(root) == before
    assert observe_git(root) == acted
    assert prepare is swap_folders or acted == untouched


Made = tuple[str, bytes | str, int] | None
"""Kind, content or target, and permissions of what is made at a path; None deletes it."""
MADE = st.one_of(
    st.none(),
    st.tuples(st.just("file"), st.binary(max_size=8), st.sampled_from([0o644, 0o600, 0o755, 0o640])),
    st.tuples(st.just("link"), st.sampled_from(["a.txt", "nowhere", "sub"]), st.just(0)),
    st.tuples(st.just("folder"), st.just(""), st.just(0)),
)
PATHS = [
    "a.txt",
    "sub",
    "sub/b.txt",
    "sub/deeper/c.txt",
    "new/one",
    "new/two/three",
    "\u00fc \u00f1.txt",
    "-dash",
    'q"\n',
]
EDITS = st.dictionaries(st.sampled_from(PATHS), MADE, max_size=5)


def make(root: Path, edits: dict[str, Made]) -> None:
    for name, made in edits.items():
        path = root / name
        for place in (*reversed(path.parents[: name.count("/")]), path):
            if place.is_symlink() or place.is_file():
                place.unlink()
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        match made:
            case "file", bytes(data), mode:
                path.write_bytes(data)
                path.chmod(mode)
            case "link", str(target), _:
                path.symlink_to(target)
            case "folder", _, _:
                path.mkdir()


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=EDITS, staged=EDITS, later=EDITS)
def test_a_restore_brings_back_files_modes_and_folders(
    repository: Repository, *, first: dict[str, Made], staged: dict[str, Made], later: dict[str, Made]
) -> None:
    root = repository.root
    checkpoints = Checkpoints.of_repository(repository, root)
    make(root, staged)
    git(root, "add", "-A")
    make(root, first)
    before, index = observe(root), git(root, "ls-files", "--stage", "-z")
    made = checkpoints.create()
    make(root, later)
    after, acted = observe(root), observe_git(root)

    restore(checkpoints, made)
    assert observe(root) == before
    undo(checkpoints)
    assert observe(root) == after
    assert observe_git(root) == acted
    # The checkpoint holds the index too, for those who want to compare.
    git(root, "read-tree", f"{made.ref}:index")
    assert git(root, "ls-files", "--stage", "-z") == index


def test_a_folder_whose_last_file_was_deleted_is_restored_as_an_empty_one(repository: Repository) -> None:
    checkpoints, folder = Checkpoints.of_repository(repository, repository.root), repository.root / "sub"
    (folder / "b.txt").unlink()
    made = checkpoints.create()
    folder.rmdir()
    restore(checkpoints, made)
    assert list(folder.iterdir()) == []


def checkpoints_of(root: Path, private: Path) -> Checkpoints:
    has_git = (root / ".git").exists()
    return (
        Checkpoints.of_repository(Repository.find(root), root)
        if has_git
        else Checkpoints.without_git(root, private=private)
    )


@pytest.mark.slow
def test_the_first_commit_is_not_needed_and_neither_is_git(tmp_path: Path) -> None:
    for name in ("unborn", "plain"):
        root = tmp_path / name
        root.mkdir()
        if name == "unborn":
            git(root, "init", "-q")
        (root / "a.txt").write_text("one\r\n")
        (root / ".venv").mkdir()
        (root / ".venv" / "x").write_text("x\n")
        (root / ".gitignore").write_text(".venv/\n" if name == "unborn" else "")
        checkpoints, before = checkpoints_of(root, tmp_path / "private"), observe(root)
        made = checkpoints.create()
        (root / "a.txt").unlink()
        (root / "b.txt").write_text("b\n")
        (root / ".venv" / "x").write_text("y\n")
        restore(checkpoints, made)
        before[".venv/x"] = ("file", 0o644, b"y\n")
        assert observe(root) == before
        assert not (root / ".git" / "cdd" / "repository" / "shadow" / "main" / "refs" / "heads").exists()
        assert [each.number for each in checkpoints_of(root, tmp_path / "private").list_all()] == [1, 2]


def test_a_changed_gitignore_hands_over_no_ignored_file(repository: Repository) -> None:
    root = repository.root
    (root / ".gitignore").write_text("build/\n*.log\n")
    (root / "build").mkdir()
    (root / "build" / "out").write_text("made\n")
    checkpoints = Checkpoints.of_repository(Repository.find(root), root)
    made = checkpoints.create()
    (root / ".gitignore").unlink()
    (root / "later.log").write_text("later\n")
    (root / "new.txt").write_text("new\n")
    checkpoints.create()  # which holds the files that nothing ignores now
    plan = checkpoints.plan(made)
    assert [(each.path, each.kind) for each in plan.changes] == [(".gitignore", "created"), ("new.txt", "deleted")]
    restore(checkpoints, made)
    assert {"build/out", "later.log", ".gitignore"} <= observe(root).keys()
    assert "new.txt" not in observe(root)


def test_an_ignored_file_in_the_place_of_a_saved_one_comes_back_with_the_undo(repository: Repository) -> None:
    root = repository.root
    (root / "data.csv").write_text("1\n")
    checkpoints = Checkpoints.of_repository(Repository.find(root), root)
    made = checkpoints.create()
    (root / ".gitignore").write_text("data.csv\n")
    checkpoints.create()
    (root / "data.csv").write_text("2\n")
    assert [each.path for each in checkpoints.plan(made).changes] == [".gitignore", "data.csv"]
    restore(checkpoints, made)
    assert (root / "data.csv").read_text() == "1\n"
    undo(checkpoints)
    assert (root / "data.csv").read_text() == "2\n"


def test_what_was_saved_after_the_plan_was_shown_stops_the_restore(repository: Repository) -> None:
    root = repository.root
    checkpoints = Checkpoints.of_repository(Repository.find(root), root)
    made = checkpoints.create()
    (root / "a.txt").write_text("shown\n")
    back = Back(checkpoints, emit=print)
    plan = back.plan_files(made)
    (root / "a.txt").write_text("saved since\n")
    (root / "new.txt").write_text("new\n")
    with pytest.raises(UsageError, match=r"since the plan was shown: a\.txt, new\.txt\. Nothing"):
        back.go(plan)
    assert ((root / "a.txt").read_text(), (root / "new.txt").read_text()) == ("saved since\n", "new\n")
    with pytest.raises(UsageError, match=r"(?i)nothing"):
        undo(checkpoints)


def test_a_file_that_was_ignored_since_stays_and_the_restore_is_complete(repository: Repository) -> None:
    root = repository.root
    (root / "out.txt").write_text("1\n")
    checkpoints = Checkpoints.of_repository(Repository.find(root), root)
    (root / ".gitignore").write_text("")
    made = checkpoints.create()
    (root / ".gitignore").write_text("later.txt\n")
    (root / "later.txt").write_text("mine\n")
    restore(checkpoints, made)
    assert (root / "later.txt").read_text() == "mine\n"
    assert (root / ".gitignore").read_text() == ""


def test_an_ignored_folder_in_the_way_stops_the_restore_before_it_begins(repository: Repository) -> None:
    root = repository.root
    checkpoints = Checkpoints.of_repository(Repository.find(root), root)
    made = checkpoints.create()
    (root / "a.txt").unlink()
    (root / "a.txt").mkdir()
    (root / "a.txt" / "x.log").write_text("mine\n")
    (root / ".gitignore").write_text("*.log\n")
    with pytest.raises(UsageError, match=r"a\.txt: it is a folder with x\.log"):
        restore(checkpoints, made)
    assert (root / "a.txt" / "x.log").read_text() == "mine\n"


def test_secrets_and_large_files_are_left_out_and_left_alone(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FILE_BYTES", 100)
    root = repository.root
    (root / ".env").write_text("KEY=1\n")
    (root / "large.bin").write_bytes(b"x" * 101)
    (root / ".gitignore").write_text("ignored\n")
    (root / "run").mkdir()
    for name in ("run/pipe", "ignored"):
        os.mkfifo(root / name)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "sub" / "s"))
    checkpoints = Checkpoints.of_repository(Repository.find(root), root)
    made = checkpoints.create()
    special = dict.fromkeys(("run/pipe", "sub/s"), "it is a socket, a pipe or a device")
    assert made.about.skipped == {".env": "it holds secrets", "large.bin": "it is larger than 0 MiB", **special}
    (root / ".env").write_text("KEY=2\n")
    (root / "large.bin").write_bytes(b"small")
    restore(checkpoints, made)
    assert (root / ".env").read_text() == "KEY=2\n"
    assert (root / "run" / "pipe").is_fifo()
    assert (root / "large.bin").read_bytes() == b"small"
    (root / "a.txt").write_bytes(b"y" * 101)  # git tracks it
    assert "a.txt" not in checkpoints.create().about.skipped


@pytest.mark.parametrize("limit", ["MOST_NEW_FILES", "MOST_NEW_BYTES"])
def test_too_many_new_files_make_no_checkpoint(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(module, limit, 2)
    root = repository.root
    (root / "data").mkdir()
    for name in "abc":
        (root / "data" / name).write_text(name)
    checkpoints = Checkpoints.of_repository(Repository.find(root), root)
    with pytest.raises(UsageError, match="3 new files") as refused:
        checkpoints.create()
    assert "data: add it to .gitignore" in refused.value.hint
    assert checkpoints.list_all() == ()


def test_a_project_in_a_folder_leaves_the_others_alone(repository: Repository) -> None:
    root = repository.root
    checkpoints = Checkpoints.of_repository(Repository.find(root / "sub"), root / "sub")
    made = checkpoints.create()
    (root / "a.txt").write_text("mine\n")
    (root / "sub" / "b.txt").write_text("changed\n")
    restore(checkpoints, made)
    assert ((root / "a.txt").read_text(), (root / "sub" / "b.txt").read_text()) == ("mine\n", "two\n")


@pytest.mark.slow
def test_a_linked_work_tree_has_checkpoints_of_its_own(repository: Repository, tmp_path: Path) -> None:
    git(repository.root, "worktree", "add", "-q", str(tmp_path / "linked"))
    linked = Checkpoints.of_repository(Repository.find(tmp_path / "linked"), tmp_path / "linked")
    made = linked.create()
    (tmp_path / "linked" / "a.txt").write_text("changed\n")
    restore(linked, made)
    assert (tmp_path / "linked" / "a.txt").read_text() == "one\n"
    assert Checkpoints.of_repository(repository, repository.root).list_all() == ()
    assert [each.number for each in linked.list_all()] == [1, 2]


@pytest.mark.slow
def test_git_shows_no_checkpoint_and_keeps_each(repository: Repository) -> None:
    checkpoints = Checkpoints.of_repository(repository, repository.root)
    (repository.root / "new.txt").write_text("new\n")
    made = checkpoints.create()
    before = git(repository.root, "log", "--all", "--oneline")
    git(repository.root, "gc", "-q", "--prune=now")
    (repository.root / "new.txt").unlink()
    restore(checkpoints, made)
    assert (repository.root / "new.txt").read_text() == "new\n"
    assert before.count("\n") == 1


def test_old_checkpoints_without_a_name_are_pruned(repository: Repository) -> None:
    checkpoints = Checkpoints.of_repository(repository, repository.root)
    for name in ("", "mine", "", ""):
        checkpoints.create(Description(kind="manual", name=name))
    assert checkpoints.prune(keep=1) == 2
    assert [(each.number, each.about.label) for each in checkpoints.list_all()] == [(2, "mine"), (4, "by hand")]
    assert checkpoints.create().number == 5
    assert checkpoints.find("mine").number == 2
    with pytest.raises(UsageError, match="has no checkpoint 'x'"):
        checkpoints.find("x")


def size_of_objects(root: Path) -> int:
    """Return the bytes that the objects of git take."""
    counted = dict(line.split(": ") for line in git(root, "count-objects", "-v").splitlines())
    return (int(counted["size"]) + int(counted["size-pack"])) * 1024


def commit_files(repository: Repository, count: int, *, numbers: random.Random) -> tuple[Checkpoints, list[Path]]:
    """Commit ``count`` files of 20 kB, and return them after the first checkpoint of them."""
    root = repository.root
    paths = [root / f"part{number % 20}" / f"file{number}.txt" for number in range(count)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(numbers.randbytes(20_000))
    git(root, "add", "-A")
    git(root, "commit", "-qm", "many")
    checkpoints = Checkpoints.of_repository(repository, root)
    checkpoints.create()
    return checkpoints, paths


def time_edits(checkpoints: Checkpoints, paths: list[Path], *, times: int, numbers: random.Random) -> list[float]:
    """Edit five files and make a checkpoint, ``times`` times; return the seconds that each checkpoint took."""
    durations = []
    for _ in range(times):
        for path in numbers.sample(paths, 5):
            path.write_bytes(path.read_bytes()[:-100] + numbers.randbytes(100))
        began = time.monotonic()
        checkpoints.create()
        durations.append(time.monotonic() - began)
    return durations


@pytest.mark.slow
def test_a_thousand_files_take_a_fifth_of_a_second_and_a_hundred_checkpoints_20_mb(repository: Repository) -> None:
    numbers = random.Random(1)
    checkpoints, paths = commit_files(repository, 1_000, numbers=numbers)
    before = size_of_objects(repository.root)
    durations = time_edits(checkpoints, paths, times=100, numbers=numbers)
    assert size_of_objects(repository.root) - before < 20_000_000
    assert min(durations) < 0.2  # the best, because other programs use the processors too


@pytest.mark.slow
def test_ten_thousand_files_of_200_mb_take_half_a_second(repository: Repository) -> None:
    numbers = random.Random(1)
    checkpoints, paths = commit_files(repository, 10_000, numbers=numbers)
    assert min(time_edits(checkpoints, paths, times=5, numbers=numbers)) < 0.5


def test_the_state_of_a_ticket_stays(repository: Repository) -> None:
    state = repository.root / "tickets" / "t" / "execution-state.json"
    state.parent.mkdir(parents=True)
    state.write_text("1")
    checkpoints = Checkpoints.of_repository(repository, repository.root)
    made = checkpoints.create()
    state.write_text("2")
    restore(checkpoints, made)
    assert state.read_text() == "2"


def test_a_submodule_is_listed_as_left_out(repository: Repository, committed: Path) -> None:
    copied(committed, repository.root / "module")
    git(repository.root, "add", "module")
    made = Checkpoints.of_repository(repository, repository.root).create()
    assert made.about.skipped == {"module/": "it is another repository"}


def test_a_damaged_private_index_is_made_again(repository: Repository) -> None:
    checkpoints = Checkpoints.of_repository(repository, repository.root)
    one = checkpoints.create()
    (repository.root / ".git" / "cdd" / "repository" / "shadow" / "main" / "index").write_bytes(b"junk")
    (repository.root / ".git" / "cdd" / "repository" / "shadow" / "main" / "index.lock").write_bytes(b"")
    other = checkpoints.create()
    assert checkpoints.compare(one, other)[2] == ()


def test_after_a_full_disk_the_next_checkpoint_is_made(repository: Repository) -> None:
    root, limits = repository.root, resource.getrlimit(resource.RLIMIT_FSIZE)
    checkpoints = Checkpoints.of_repository(Repository.find(root), root)
    checkpoints.create()
    (head,) = (root / ".git" / "cdd" / "repository" / "shadow").glob("*/HEAD")
    head.unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            checkpoints.create()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.filename == str(head)
    checkpoints.create()
