"""Every state that a user's repository may be in: the program works in it, or says in its own words what to do."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdd_agent.errors import CddError, UsageError
from cdd_agent.git.commits import commit_paths, list_warnings, require_identity, require_undisturbed
from cdd_agent.git.notes import append_line, read_note
from cdd_agent.git.repository import ROLLBACK, Repository, require_usable
from cdd_agent.git.run_tree import GitExport
from cdd_agent.git.runner import GitUnable
from cdd_agent.git.tree_store import TreeStore
from tests.cdd_agent.git.hostile.repository import plain, run_plain
from tests.fakes.cases import soak_after

Make = Callable[[Path], Path]
"""Puts a repository into a state, in a folder; returns where the user stands."""


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's configuration is this, whatever machine it is."""
    own = tmp_path / "gitconfig"
    own.write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("cdd_agent.git.repository.LOCK_WAIT_S", 0.1)
    monkeypatch.setattr("cdd_agent.git.runner.LOCK_WAIT_S", 0.1)


def ordinary(folder: Path) -> Path:
    """Three commits of ``a.txt`` and ``sub/b.txt``, and a branch ``other`` that conflicts with them."""
    root = folder / "project"
    (root / "sub").mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    write(root, "a.txt", "one\n")
    write(root, "sub/b.txt", "b\n")
    git(root, "add", "a.txt", "sub/b.txt")
    git(root, "commit", "--quiet", "-m", "first")
    for branch in ("other", "main"):
        git(root, "checkout", "--quiet", "-B", branch, "main")
        write(root, "a.txt", f"of {branch}\n")
        git(root, "commit", "--quiet", "-am", f"of {branch}")
        git(root, "checkout", "--quiet", "main")
    return root


def git(folder: Path, *arguments: str) -> None:
    """As the user types it, with the user's configuration."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


def conflicting(folder: Path, *arguments: str) -> None:
    """The same for a command that stops at a conflict."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode != 0


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def unborn(folder: Path) -> Path:
    root = folder / "project"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    write(root, "a.txt", "one\n")
    return root


def detached(folder: Path) -> Path:
    root = ordinary(folder)
    git(root, "checkout", "--quiet", "--detach")
    return root


def linked(folder: Path) -> Path:
    git(ordinary(folder), "worktree", "add", "--quiet", "-b", "mine", str(folder / "linked"))
    return folder / "linked"


def sparse(folder: Path) -> Path:
    root = ordinary(folder)
    write(root, "outside/c.txt", "c\n")
    git(root, "add", "outside")
    git(root, "commit", "--quiet", "-m", "more")
    git(root, "sparse-checkout", "set", "--cone", "sub")
    assert not (root / "outside").exists()
    return root


def sparse_index(folder: Path) -> Path:
    root = sparse(folder)
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "sub")
    return root


def with_submodule(folder: Path) -> Path:
    root = ordinary(folder)
    library = folder / "library"
    library.mkdir()
    git(library, "init", "--quiet")
    write(library, "l.txt", "l\n")
    git(library, "add", "l.txt")
    git(library, "commit", "--quiet", "-m", "library")
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "library")
    git(root, "commit", "--quiet", "-m", "submodule")
    return root


def inside_submodule(folder: Path) -> Path:
    return with_submodule(folder) / "library"


def symlinked(folder: Path) -> Path:
    root = ordinary(folder)
    (folder / "link").symlink_to(root)
    return folder / "link"


def shallow(folder: Path) -> Path:
    git(folder, "clone", "--quiet", "--depth=1", f"file://{ordinary(folder)}", "clone")
    return folder / "clone"


def partial(folder: Path) -> Path:
    root = ordinary(folder)
    git(root, "config", "uploadpack.allowFilter", "true")
    git(folder, "clone", "--quiet", "--filter=blob:none", f"file://{root}", "clone")
    return folder / "clone"


def partial_and_sparse(folder: Path) -> Path:
    root = sparse(folder)
    git(root, "config", "uploadpack.allowFilter", "true")
    git(folder, "clone", "--quiet", "--filter=blob:none", "--sparse", f"file://{root}", "clone")
    git(folder / "clone", "sparse-checkout", "set", "sub")
    return folder / "clone"


def borrowing(folder: Path) -> Path:
    git(folder, "clone", "--quiet", "--shared", str(ordinary(folder)), "clone")
    return folder / "clone"


def split_index(folder: Path) -> Path:
    root = ordinary(folder)
    git(root, "update-index", "--split-index")
    return root


def separate_folder(folder: Path) -> Path:
    root = ordinary(folder)
    git(root, "init", "--quiet", f"--separate-git-dir={folder / 'elsewhere'}")
    return root


def sha256(folder: Path) -> Path:
    root = folder / "project"
    root.mkdir()
    git(root, "init", "--quiet", "--object-format=sha256")
    write(root, "a.txt", "one\n")
    git(root, "add", "a.txt")
    git(root, "commit", "--quiet", "-m", "first")
    return root


WORKING = (
    ordinary,
    unborn,
    detached,
    linked,
    sparse,
    sparse_index,
    with_submodule,
    inside_submodule,
    symlinked,
    shallow,
    partial,
    partial_and_sparse,
    borrowing,
    split_index,
    separate_folder,
    sha256,
)


@soak_after(2, "make", WORKING, ids=lambda make: make.__name__)
def test_in_this_state_it_works(tmp_path: Path, *, make: Make) -> None:
    repository = Repository.find(make(tmp_path))
    root = repository.root
    require_usable(repository.location)
    require_identity(repository)
    assert repository.find_unfinished() is None
    tracked = plain(root, "ls-files").stdout
    index = repository.location.git_dir / "index"
    before = index.read_bytes() if index.exists() else b""
    head, status = repository.read_head(), plain(root, "--no-optional-locks", "status", "--porcelain").stdout

    snapshots = TreeStore(repository)
    kept = snapshots.take("refs/cdd/checkpoints/t/1", message="before")
    write(root, "sub/new.txt", "new\n")
    write(root, "sub/b.txt", "changed\n")
    assert {"sub/new.txt", "sub/b.txt"} == {change.path for change in snapshots.list_changes_since(kept)}
    snapshots.restore(kept)

    assert (index.read_bytes() if index.exists() else b"") == before
    assert (repository.read_head(), plain(root, "--no-optional-locks", "status", "--porcelain").stdout) == (
        head,
        status,
    )
    write(root, "sub/new.txt", "new\n")
    commit = commit_paths(repository, "feat: new", paths=["sub/new.txt"])
    assert repository.read_head() == commit != head
    if head is not None:
        assert [change.path for change in repository.list_changes(head, commit)] == ["sub/new.txt"]
    assert set(plain(root, "ls-files").stdout.split(b"\n")) == set((tracked + b"sub/new.txt\n").split(b"\n"))
    append_line(repository, commit, line="{}")
    assert read_note(repository, commit).lines == ("{}",)


@soak_after(1, "make", [shallow, partial, partial_and_sparse], ids=lambda make: make.__name__)
def test_programs_see_the_history_as_far_as_it_is_there(tmp_path: Path, *, make: Make) -> None:
    repository, export = Repository.find(make(tmp_path)), tmp_path / "export"
    head = repository.read_head()
    assert head is not None
    GitExport(folder=export).update(repository, head, branch="main", shown_at=export)
    here, there = (plain(folder, "log", "--format=%H") for folder in (repository.root, export))
    assert (there.stdout, there.returncode) == (here.stdout, 0)


def merging(folder: Path) -> Path:
    root = ordinary(folder)
    conflicting(root, "merge", "other")
    return root


def rebasing(folder: Path) -> Path:
    root = ordinary(folder)
    conflicting(root, "rebase", "other")
    return root


def rebasing_by_patches(folder: Path) -> Path:
    root = ordinary(folder)
    conflicting(root, "rebase", "--apply", "other")
    return root


def picking(folder: Path) -> Path:
    root = ordinary(folder)
    conflicting(root, "cherry-pick", "other")
    return root


def reverting(folder: Path) -> Path:
    root = ordinary(folder)
    write(root, "a.txt", "later\n")
    git(root, "commit", "--quiet", "-am", "later")
    conflicting(root, "revert", "--no-edit", "HEAD~1")
    return root


def bisecting(folder: Path) -> Path:
    root = ordinary(folder)
    git(root, "bisect", "start")
    return root


def applying_mail(folder: Path) -> Path:
    root = ordinary(folder)
    (folder / "patch").write_bytes(plain(root, "format-patch", "--stdout", "other~1..other").stdout)
    conflicting(root, "am", str(folder / "patch"))
    return root


@soak_after(
    2,
    ("make", "told", "typed"),
    [
        (merging, "a merge", "git merge --abort"),
        (rebasing, "a rebase", "git rebase --abort"),
        (rebasing_by_patches, "a rebase", "git rebase --abort"),
        (picking, "a cherry-pick", "git cherry-pick --abort"),
        (reverting, "a revert", "git revert --abort"),
        (bisecting, "a bisect", "git bisect reset"),
        (applying_mail, "git am", "git am --abort"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_in_progress_is_named_with_what_ends_it(tmp_path: Path, *, make: Make, told: str, typed: str) -> None:
    repository = Repository.find(make(tmp_path))
    unfinished = repository.find_unfinished()
    assert unfinished is not None
    assert unfinished[0] == told
    assert typed in unfinished[1]
    git(repository.root, *typed.removeprefix("git ").split())
    assert repository.find_unfinished() is None


def test_a_rollback_that_was_cut_off_is_in_progress_until_its_ref_is_gone(tmp_path: Path) -> None:
    repository = Repository.find(ordinary(tmp_path))
    git(repository.root, "update-ref", ROLLBACK, "HEAD")
    git(repository.root, "pack-refs", "--all")
    with pytest.raises(UsageError) as error:
        require_undisturbed(repository, ())
    assert (error.value.happened, error.value.hint) == (
        "In this project a rollback by an earlier version of cdd is in progress.\nNothing was touched.",
        f"end it first: git update-ref -d {ROLLBACK}; before: git log {ROLLBACK}",
    )
    git(repository.root, "update-ref", "-d", ROLLBACK)
    assert repository.find_unfinished() is None


def bare(folder: Path) -> Path:
    git(folder, "init", "--quiet", "--bare", "bare.git")
    return folder / "bare.git"


def inside_git_folder(folder: Path) -> Path:
    return ordinary(folder) / ".git"


def nowhere(folder: Path) -> Path:
    return folder


def another_users(folder: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    root = ordinary(folder)
    for path in (root, root / ".git"):
        os.chown(path, 12345, 12345)
    return root


def orphaned(folder: Path) -> Path:
    work = linked(folder)
    shutil.rmtree(folder / "project")
    return work


def tree_elsewhere(folder: Path) -> Path:
    root = ordinary(folder)
    git(root, "config", "core.worktree", str(folder))
    return root


def broken_configuration(folder: Path) -> Path:
    root = ordinary(folder)
    (root / ".git" / "config").write_text("[core\n")
    return root


def no_folder(folder: Path) -> Path:
    return folder / "absent"


@soak_after(
    3,
    ("make", "told", "typed"),
    [
        (bare, "bare repository", "worktree add"),
        (inside_git_folder, "or inside one", "worktree add"),
        (nowhere, "not in a git work tree", "git init"),
        (another_users, "belongs to another user", "safe.directory"),
        (orphaned, "no longer exists", "git worktree repair"),
        (tree_elsewhere, "a folder above or beside it", "config --unset core.worktree"),
        (broken_configuration, "damaged", "git"),
        (no_folder, "is not a folder", "name a folder"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_where_there_is_no_repository_to_use_it_says_why(tmp_path: Path, *, make: Make, told: str, typed: str) -> None:
    with pytest.raises(CddError, match=told) as caught:
        Repository.find(make(tmp_path))
    assert typed in caught.value.hint
    assert caught.value.exit_code == 4


def locked(folder: Path) -> Path:
    root = ordinary(folder)
    lock = root / ".git" / "index.lock"
    lock.touch()
    hours_ago = time.time() - 3 * 3600 - 5
    os.utime(lock, (hours_ago, hours_ago))
    return root


def alternates_missing(folder: Path) -> Path:
    clone = borrowing(folder)
    shutil.rmtree(folder / "project")
    return clone


@pytest.mark.parametrize(
    ("make", "told", "typed"),
    [
        (locked, r"index\.lock has existed for 3 hours", "rm "),
        (alternates_missing, "borrows objects from .*, which does not exist", "objects/info/alternates"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_keeps_commits_from_being_made_is_told_first(tmp_path: Path, *, make: Make, told: str, typed: str) -> None:
    repository = Repository.find(make(tmp_path))
    with pytest.raises(GitUnable, match=told) as caught:
        require_usable(repository.location)
    assert typed in caught.value.hint
    assert caught.value.exit_code == 4


def test_a_lock_left_over_stays_and_what_can_work_does(tmp_path: Path) -> None:
    repository = Repository.find(locked(tmp_path))
    lock = repository.location.git_dir / "index.lock"
    snapshots = TreeStore(repository)
    kept = snapshots.take("refs/cdd/kept", message="kept")
    write(repository.root, "a.txt", "changed\n")
    assert [change.path for change in snapshots.restore(kept)] == ["a.txt"]
    assert repository.list_uncommitted() == ()
    write(repository.root, "a.txt", "changed\n")
    with pytest.raises(GitUnable, match="3 hours"):
        commit_paths(repository, "refused at the user's index", paths=["a.txt"])
    head = repository.read_head()
    assert head is not None
    append_line(repository, head, line="{}")
    assert lock.exists()


def test_a_lock_that_goes_in_a_moment_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("repository", "runner"):
        monkeypatch.setattr(f"cdd_agent.git.{module}.LOCK_WAIT_S", 20.0)
    repository = Repository.find(ordinary(tmp_path))
    lock = repository.location.git_dir / "index.lock"
    for use in (lambda: require_usable(repository.location), lambda: repository.git("read-tree", "HEAD")):
        lock.touch()
        other = subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(0.3); os.unlink({str(lock)!r})"])
        use()
        assert other.wait() == 0


@pytest.mark.slow
def test_a_lock_on_a_ref_that_goes_in_a_moment_is_waited_for(tmp_path: Path) -> None:
    repository = Repository.find(ordinary(tmp_path))
    head = repository.read_head()
    assert head is not None
    lock = repository.location.git_dir / "refs" / "cdd-made.lock"
    lock.touch()
    other = subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(0.6); os.unlink({str(lock)!r})"])
    repository.git("update-ref", "refs/cdd-made", head)
    assert other.wait() == 0


@contextlib.contextmanager
def an_ordinary_user() -> Iterator[int]:
    """Root may write everywhere, so a test that is run by root goes on as somebody who may not."""
    if os.geteuid() != 0:
        yield os.geteuid()
        return
    nobody = 65534
    os.setresuid(nobody, nobody, 0)
    try:
        yield nobody
    finally:
        os.setresuid(0, 0, 0)


def test_a_folder_of_gits_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o777)
        monkeypatch.setenv("HOME", made)
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(folder / "gitconfig"))
        (folder / "gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
        with an_ordinary_user():
            root = ordinary(folder)
            repository = Repository.find(root)
            write(root, "new.txt", "new\n")
            inside = [path for path in (root / ".git", *(root / ".git").rglob("*")) if path.is_dir()]
            for path in inside:
                path.chmod(0o555)
            with pytest.raises(GitUnable, match=r"\.git is not writable") as first:
                require_usable(repository.location)
            with pytest.raises(GitUnable, match="git's folder is not writable") as second:
                TreeStore(repository).take("refs/cdd/kept", message="kept")
            for path in inside:
                path.chmod(0o755)
        assert "chown" in first.value.hint
        assert "chmod -R u+w" in second.value.hint


def damaged_head(folder: Path) -> Path:
    root = ordinary(folder)
    head = plain(root, "rev-parse", "HEAD").stdout.decode().strip()
    path = root / ".git" / "objects" / head[:2] / head[2:]
    path.chmod(0o644)
    path.write_bytes(b"")
    return root


def damaged_packed_head(folder: Path) -> Path:
    root = ordinary(folder)
    git(root, "pack-refs", "--all")
    head = plain(root, "rev-parse", "HEAD").stdout.decode().strip()
    (root / ".git" / "objects" / head[:2] / head[2:]).unlink()
    return root


def emptied_branch(folder: Path) -> Path:
    root = ordinary(folder)
    (root / ".git" / "refs" / "heads" / "main").write_text("")
    return root


@soak_after(1, "make", [damaged_head, damaged_packed_head, emptied_branch], ids=lambda make: make.__name__)
def test_a_damaged_head_is_not_taken_for_a_new_repository(tmp_path: Path, *, make: Make) -> None:
    repository = Repository.find(make(tmp_path))
    write(repository.root, "a.txt", "changed\n")
    for use in (repository.read_head, lambda: commit_paths(repository, "root?", paths=["a.txt"])):
        with pytest.raises(GitUnable, match=r"HEAD of .* does not name a readable commit|damaged") as caught:
            use()
        assert "git fsck" in caught.value.hint


def test_a_missing_object_is_told_as_damage(tmp_path: Path) -> None:
    root = ordinary(tmp_path)
    blob = plain(root, "rev-parse", "HEAD:a.txt").stdout.decode().strip()
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(GitUnable, match="damaged") as caught:
        Repository.find(root).git("cat-file", "blob", blob)
    assert "git fsck" in caught.value.hint


def test_nobody_known_to_git_can_keep_checkpoints_and_is_told_before_the_first_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = ordinary(tmp_path)
    (tmp_path / "gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    repository = Repository.find(root)
    write(root, "a.txt", "changed\n")
    TreeStore(repository).take("refs/cdd/kept", message="kept")
    for use in (lambda: require_identity(repository), lambda: commit_paths(repository, "mine", paths=["a.txt"])):
        with pytest.raises(CddError, match="does not know your name and email") as caught:
            use()
        assert "git config user.name" in caught.value.hint
        assert caught.value.exit_code == 4
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Grace")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "grace@example.org")
    require_identity(repository)
    commit_paths(repository, "by the one the environment names", paths=["a.txt"])
    assert plain(root, "log", "-1", "--format=%an").stdout == b"Grace\n"


def test_signing_that_fails_is_told_as_such_and_checkpoints_need_none(tmp_path: Path) -> None:
    root = ordinary(tmp_path)
    own = tmp_path / "gitconfig"
    own.write_text(f"{own.read_text()}[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = /bin/false\n")
    repository = Repository.find(root)
    head = repository.read_head()
    write(root, "a.txt", "changed\n")
    TreeStore(repository).take("refs/cdd/kept", message="kept")
    with pytest.raises(GitUnable, match="could not sign") as caught:
        commit_paths(repository, "signed", paths=["a.txt"])
    assert "git config commit.gpgSign false" in caught.value.hint
    assert repository.read_head() == head
    git(root, "config", "commit.gpgSign", "false")
    assert commit_paths(repository, "unsigned", paths=["a.txt"]) != head


LFS = """\
#!/bin/sh
# Stands in for git-lfs: pointers in the history, contents in a store, nothing fetched where the variable says so.
store={store}
case $1 in
clean)
    cat > {store}/in
    if head -c 7 {store}/in | grep -q version; then cat {store}/in; exit; fi
    sum=$(sha256sum {store}/in | cut -d' ' -f1)
    mv {store}/in {store}/$sum
    printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize 1\\n' $sum;;
smudge)
    cat > {store}/pointer
    sum=$(sed -n 's/^oid sha256://p' {store}/pointer)
    if [ -e {store}/$sum ]; then cat {store}/$sum
    elif [ "$GIT_LFS_SKIP_SMUDGE" = 1 ]; then cat {store}/pointer
    else echo network > {store}/fetched; exit 1; fi;;
esac
"""


def test_files_of_lfs_stay_as_they_are_and_a_pointer_is_told(tmp_path: Path) -> None:
    root, store, program = ordinary(tmp_path), tmp_path / "store", tmp_path / "lfs"
    store.mkdir()
    program.write_text(LFS.replace("{store}", str(store)))
    program.chmod(0o755)
    own = tmp_path / "gitconfig"
    own.write_text(
        f'{own.read_text()}[filter "lfs"]\n\tclean = {program} clean\n\tsmudge = {program} smudge\n\trequired = true\n'
    )
    write(root, ".gitattributes", "*.bin filter=lfs\n")
    write(root, "here.bin", "content of here\n")
    write(root, "absent.bin", "content of absent\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "large files")
    pointer = plain(root, "cat-file", "blob", "HEAD:absent.bin").stdout
    assert pointer.startswith(b"version https://git-lfs")
    for stored in store.iterdir():
        if stored.read_text() == "content of absent\n":
            stored.unlink()
    (root / "absent.bin").write_bytes(pointer)
    repository = Repository.find(root)

    assert [remark for remark in list_warnings(repository) if "absent.bin" in remark and "git lfs pull" in remark]
    assert not [remark for remark in list_warnings(repository) if "here.bin" in remark]
    snapshots = TreeStore(repository)
    kept = snapshots.take("refs/cdd/kept", message="kept")
    write(root, "here.bin", "ruined\n")
    (root / "absent.bin").unlink()
    snapshots.restore(kept)
    assert (root / "here.bin").read_text() == "content of here\n"
    assert (root / "absent.bin").read_bytes() == pointer
    write(root, "here.bin", "new content\n")
    commit_paths(repository, "large", paths=["here.bin"])
    assert plain(root, "cat-file", "blob", "HEAD:here.bin").stdout.startswith(b"version https://git-lfs")
    assert not (store / "fetched").exists()


def test_a_filter_that_fails_is_told_as_the_users_own(tmp_path: Path) -> None:
    root = ordinary(tmp_path)
    own = tmp_path / "gitconfig"
    own.write_text(f'{own.read_text()}[filter "lfs"]\n\tclean = git-lfs-is-not-here clean\n\trequired = true\n')
    write(root, ".gitattributes", "*.bin filter=lfs\n")
    write(root, "x.bin", "content\n")
    with pytest.raises(GitUnable, match="A filter of your git settings failed") as caught:
        TreeStore(Repository.find(root)).take("refs/cdd/kept", message="kept")
    assert "git lfs install" in caught.value.hint


def test_an_editor_that_looks_at_the_repository_meanwhile_changes_nothing(tmp_path: Path) -> None:
    """Reading never takes the index's lock, so it neither rewrites it nor gets in the way of the user's own git."""
    repository = Repository.find(ordinary(tmp_path))
    index = repository.location.git_dir / "index"
    before = index.read_bytes()
    write(repository.root, "a.txt", (repository.root / "a.txt").read_text())
    os.utime(repository.root / "a.txt", (1, 1))
    assert repository.list_uncommitted() == ()
    assert index.read_bytes() == before
    run_plain(repository.root, ["status"])
    assert index.read_bytes() != before, "plain git would have written it"
