"""Run trees: made, reset whatever is in them, and removed."""

import contextlib
import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import CDD_IDENTITY as IDENTITY
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.run_tree import GitExport, Kept, RunTree, RunTrees, delete_folder
from cdd_agent.work.state import lock_checkpoints
from tests.fakes.cases import soak_after
from tests.fakes.files import describe_files


@pytest.fixture
def trees(repository: Repository) -> RunTrees:
    (repository.root / ".gitignore").write_text(".cdd/\n")
    commit_paths(repository, "ignore", paths=[".gitignore"])
    return RunTrees(repository, repository.root / ".cdd" / "worktrees")


def head_of(repository: Repository) -> CommitId:
    head = repository.read_head()
    assert head is not None
    return head


def prepare(trees: RunTrees, repository: Repository, name: str = "csv") -> RunTree:
    tree = trees.tree(name)
    tree.reset(head_of(repository))
    return tree


def test_a_run_tree_has_the_files_of_its_base_and_the_user_s_tree_stays(
    trees: RunTrees, repository: Repository
) -> None:
    (repository.root / "a.txt").write_text("being edited\n")
    (repository.root / "new.txt").write_text("new\n")
    repository.git("add", "new.txt")
    before = (
        describe_files(repository.root, leave_out=(".cdd", ".git"), times=True),
        repository.git("status", ("--porcelain",)),
    )
    tree = prepare(trees, repository)
    assert (tree.root / "a.txt").read_text() == "one\n"
    assert not (tree.root / "new.txt").exists()
    assert tree.repository.read_head() == head_of(repository)
    assert tree.repository.read_branch() is None
    assert (
        describe_files(repository.root, leave_out=(".cdd", ".git"), times=True),
        repository.git("status", ("--porcelain",)),
    ) == before


def test_a_commit_in_a_run_tree_moves_no_branch_of_the_user(trees: RunTrees, repository: Repository) -> None:
    tree, head = prepare(trees, repository), head_of(repository)
    (tree.root / "a.txt").write_text("changed\n")
    commit = commit_paths(tree.repository, "change", paths=["a.txt"])
    assert (head_of(repository), head_of(tree.repository)) == (head, commit)
    assert repository.git("cat-file", ("-t",), commit).strip() == "commit"
    assert (repository.root / "a.txt").read_text() == "one\n"


def test_a_commit_in_a_run_tree_is_made_as_in_the_checkout_of_the_user(
    trees: RunTrees, repository: Repository, tmp_path: Path
) -> None:
    work, hooks, log = tmp_path / "work.cfg", tmp_path / "hooks", tmp_path / "log"
    hooks.mkdir()
    for name, words in (("hooks/commit-msg", "mine"), ("other", "theirs")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {words} >> {log}\n")
        (tmp_path / name).chmod(0o755)
    work.write_text(
        f"[author]\n\temail = work@example.org\n[committer]\n\temail = c@example.org\n[core]\n\thooksPath = {hooks}\n"
    )
    (tmp_path / "trees.cfg").write_text("[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = false\n")
    repository.git("config", f"includeIf.onbranch:{repository.read_branch()}.path", str(work))
    repository.git("config", "includeIf.gitdir:**/worktrees/**.path", str(tmp_path / "trees.cfg"))
    repository.may_run_hooks = lambda *_: True
    tree = prepare(trees, repository)
    (tree.root / "a.txt").write_text("two\n")
    commit_paths(tree.repository, "change", paths=["a.txt"])
    assert tree.repository.git("log", ("-1", "--format=%ae %ce %G?")) == "work@example.org c@example.org N\n"
    assert log.read_text() == "mine\n"


@soak_after(1, "value", [str, lambda root: os.path.join("..", os.path.basename(root))])
def test_a_work_tree_that_the_shared_configuration_names_is_not_that_of_a_run(
    trees: RunTrees, repository: Repository, *, value: Callable[[Path], str]
) -> None:
    repository.git("config", "extensions.worktreeConfig", "true")
    repository.git("config", "core.worktree", value(repository.root))
    repository.may_run_hooks = lambda *_: True
    for _ in range(2):
        tree = prepare(trees, repository)
        (tree.root / "a.txt").write_text("two\n")
        made = commit_paths(tree.repository, "change", paths=["a.txt"])
        assert [change.path for change in repository.list_changes(head_of(repository), made)] == ["a.txt"]
    assert repository.git("config", ("--get",), "core.worktree") == f"{value(repository.root)}\n"


def litter(root: Path) -> None:
    """Everything that a program may leave behind."""
    (root / "a.txt").write_text("changed\n")
    (root / "sub" / "b.txt").unlink()
    (root / "sub" / "b.txt").mkdir()
    (root / "sub" / "b.txt" / "deep").touch()
    (root / ".gitignore").write_text("*\n")
    (root / "x.pyc").write_bytes(b"planted")
    inner = root / "inner"
    inner.mkdir()
    Repository.create(inner)
    (root / ".vscode").mkdir()
    (root / ".vscode" / "settings.json").write_text("{}")
    os.mkfifo(root / "pipe")
    (root / "away").symlink_to("/")
    closed = root / "closed" / "inside"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    closed.chmod(0)
    closed.parent.chmod(0)


def test_a_reset_leaves_nothing_of_what_a_program_left(trees: RunTrees, repository: Repository) -> None:
    tree = prepare(trees, repository)
    clean = describe_files(tree.root)
    litter(tree.root)
    again = prepare(trees, repository)
    assert (again.root, describe_files(again.root)) == (tree.root, clean)


@soak_after(2, "what", ["gone", "a folder", "another repository", "a link"])
def test_a_changed_gitfile_leads_nobody_elsewhere(trees: RunTrees, repository: Repository, *, what: str) -> None:
    tree = prepare(trees, repository)
    clean = describe_files(tree.root)
    marker = tree.root / ".git"
    marker.unlink()
    (repository.root.parent / "other").mkdir()
    other = Repository.create(repository.root.parent / "other")
    if what == "a folder":
        Repository.create(tree.root)
    elif what == "another repository":
        marker.write_text(f"gitdir: {repository.root.parent / 'other' / '.git'}\n")
    elif what == "a link":
        marker.symlink_to(repository.root.parent / "other" / ".git")
    again = prepare(trees, repository)
    assert describe_files(again.root) == clean
    assert other.read_head() is None


@soak_after(2, "name", ["..", "a/b", "", "-x", ".git"])
def test_a_name_stays_inside_the_folder(trees: RunTrees, *, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a run tree"):
        trees.tree(name)


def test_a_run_tree_is_on_a_commit_while_it_has_its_files(trees: RunTrees, repository: Repository) -> None:
    head = head_of(repository)
    assert not trees.tree("csv").is_on(head)
    tree = prepare(trees, repository)
    assert tree.is_on(head)
    assert not tree.is_on(None)
    delete_folder(tree.root)
    assert not trees.tree("csv").is_on(head), "git would make an empty one"


def test_a_damaged_run_tree_is_made_anew(trees: RunTrees, repository: Repository) -> None:
    tree = prepare(trees, repository)
    clean = describe_files(tree.root)
    (tree.repository.location.git_dir / "index").write_bytes(b"nonsense")
    assert describe_files(prepare(trees, repository).root) == clean


def test_old_run_trees_go_and_their_commits_stay(trees: RunTrees, repository: Repository) -> None:
    for number, name in enumerate(("one", "two", "three")):
        tree = prepare(trees, repository, name)
        os.utime(tree.root, (time.time() - 1000 * (3 - number),) * 2)
    old = prepare(trees, repository, "old")
    (old.root / "a.txt").write_text("changed\n")
    commit = commit_paths(old.repository, "change", paths=["a.txt"])
    os.utime(old.root, (0, 0))
    assert set(trees.prune(Kept(days=7, most=2))) == {"old", "one"}
    assert not trees.has("old")
    assert trees.has("three")
    assert "worktrees/old" not in repository.git("worktree", "list")
    assert repository.git("cat-file", ("-t",), commit).strip() == "commit"


@soak_after(1, "kept", [Kept(most=0), Kept(size_bytes=10_000), Kept(days=0)], ids=["number", "size", "age"])
def test_a_run_tree_that_a_run_uses_stays(trees: RunTrees, repository: Repository, *, kept: Kept) -> None:
    for name in ("used", "other"):
        tree = prepare(trees, repository, name)
        (tree.root / "large.bin").write_bytes(bytes(10_000))
    with lock_checkpoints(repository.location.common_dir, "used"):
        assert trees.prune(kept) == ("other",)
        assert trees.prune(kept) == ()
    assert trees.prune(kept) == ("used",)


def test_a_run_tree_whose_commit_has_not_landed_stays_until_it_is_old(trees: RunTrees, repository: Repository) -> None:
    tree = prepare(trees, repository)
    (tree.root / "a.txt").write_text("changed\n")
    commit = commit_paths(tree.repository, "change", paths=["a.txt"])
    assert trees.prune(Kept(most=0)) == trees.prune(Kept(size_bytes=0)) == ()
    repository.git("update-ref", "refs/heads/landed", commit)
    assert trees.prune(Kept(most=0)) == ("csv",)


def test_the_user_s_own_tree_may_be_a_linked_one(repository: Repository, tmp_path: Path) -> None:
    repository.git("worktree", "add", ("--quiet", "-b"), "side", str(tmp_path / "side"))
    side = Repository.find(tmp_path / "side")
    tree = RunTrees(side, tmp_path / "side" / ".cdd" / "worktrees").tree("csv")
    tree.reset(head_of(side))
    assert tree.repository.location.common_dir == repository.location.git_dir
    assert (tree.root / "a.txt").read_text() == "one\n"


def see(tree: RunTree, export: GitExport, *arguments: str) -> str:
    """Call git as a program in the sandbox does, which finds the export by its gitfile."""
    (tree.root / ".git").write_bytes(export.gitfile.read_bytes())
    try:
        return run_plain("git", "-C", str(tree.root), *arguments)
    finally:
        tree.restore_gitfile()


def run_plain(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def export(tree: RunTree, folder: Path, head: CommitId) -> GitExport:
    made = GitExport(folder=folder)
    made.update(tree.repository, head, branch="main", shown_at=folder)
    return made


def test_programs_see_the_history_of_the_base_with_its_tags(
    trees: RunTrees, repository: Repository, tmp_path: Path
) -> None:
    repository.git("tag", ("--annotate", "--message=first"), "v1.0", variables=IDENTITY)
    (repository.root / "a.txt").write_text("two\n")
    commit_paths(repository, "second", paths=["a.txt"])
    tree = prepare(trees, repository)
    made = export(tree, tmp_path / "git", head_of(repository))
    assert see(tree, made, "describe", "--tags").startswith("v1.0-1-g")
    assert see(tree, made, "log", "-1", "--format=%s").strip() == "second"
    assert see(tree, made, "rev-parse", "--abbrev-ref", "HEAD").strip() == "main"
    assert see(tree, made, "status", "--porcelain") == ""
    assert see(tree, made, "fsck", "--full") == ""
    repository.git("tag", ("--annotate", "--message=late"), "v0.9", "HEAD~1", variables=IDENTITY)
    (repository.root / "a.txt").write_text("three\n")
    commit_paths(repository, "third", paths=["a.txt"])
    tree = prepare(trees, repository)
    made = export(tree, tmp_path / "git", head_of(repository))
    assert see(tree, made, "tag").split() == ["v0.9", "v1.0"]
    assert see(tree, made, "fsck", "--full") == ""


@pytest.mark.parametrize("name", ["packed-refs", "HEAD", "config", "index", "gitfile", "exported"])
@pytest.mark.parametrize("make", [os.link, os.symlink])
def test_the_history_for_programs_is_not_written_into_a_file_of_the_user(
    trees: RunTrees, repository: Repository, *, name: str, make: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    tree, folder, users = prepare(trees, repository), tmp_path / "git", tmp_path / "users"
    before = repository.git("rev-parse", "HEAD~1")
    users.write_text(before)
    folder.mkdir()
    (folder / "exported").write_text(before)
    (folder / name).unlink(missing_ok=True)
    make(users, folder / name)
    with contextlib.suppress(OSError):
        export(tree, folder, head_of(repository))
    assert users.read_text() == before


def test_a_link_in_place_of_a_run_tree_takes_nothing_behind_it(
    trees: RunTrees, repository: Repository, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    run_plain("git", "init", "--quiet", str(other))
    tree = prepare(trees, repository)
    delete_folder(tree.root)
    tree.root.symlink_to(other)
    before = describe_files(other, times=True)
    for act in (tree.restore_gitfile, lambda: prepare(trees, repository)):
        with pytest.raises(UsageError, match=f"{tree.root} is a link"):
            act()
    assert describe_files(other, times=True) == before


@pytest.mark.parametrize("name", ["cdd-submodules", "index", "HEAD", "lfs"])
def test_a_link_in_gits_record_of_a_run_tree_is_an_error(trees: RunTrees, repository: Repository, *, name: str) -> None:
    folder = prepare(trees, repository).repository.location.git_dir
    link = folder / name
    link.unlink(missing_ok=True)
    link.symlink_to("/")
    (folder / "annex").symlink_to("/")
    with pytest.raises(UsageError, match=f"{link} is a link"):
        prepare(trees, repository)


def test_programs_see_neither_the_stash_nor_other_branches_nor_settings(
    trees: RunTrees, repository: Repository, tmp_path: Path
) -> None:
    (repository.root / "a.txt").write_text("stashed secret\n")
    repository.git("stash", variables=IDENTITY)
    secret = repository.git("rev-parse", "stash@{0}:a.txt").strip()
    repository.git("config", "remote.origin.url", "https://user:token@example.org/x")
    tree = prepare(trees, repository)
    made = export(tree, tmp_path / "git", head_of(repository))
    everything = see(tree, made, "cat-file", "--batch-check", "--batch-all-objects")
    assert secret not in everything
    assert head_of(repository) in everything
    assert "token" not in see(tree, made, "config", "--list")
    assert see(tree, made, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


def test_an_export_of_another_history_forgets_the_first(
    trees: RunTrees, repository: Repository, tmp_path: Path
) -> None:
    first = head_of(repository)
    (repository.root / "a.txt").write_text("to be forgotten\n")
    second = commit_paths(repository, "second", paths=["a.txt"])
    tree = prepare(trees, repository)
    export(tree, tmp_path / "git", second)
    made = export(tree, tmp_path / "git", first)
    assert second not in see(tree, made, "cat-file", "--batch-check", "--batch-all-objects")


def test_an_export_removes_what_a_killed_one_left(trees: RunTrees, repository: Repository, tmp_path: Path) -> None:
    tree = prepare(trees, repository)
    made = export(tree, tmp_path / "git", head_of(repository))
    left = [made.folder / ".HEAD.cdd-dwyjzq8_.tmp", made.folder / "refs" / "heads" / ".main.cdd-a1b2c3d4.tmp"]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    export(tree, tmp_path / "git", head_of(repository))
    assert not any(path.exists() for path in left)


def test_a_large_history_is_cut(
    trees: RunTrees, repository: Repository, tmp_path: Path, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdd_agent.git.run_tree._MOST_HISTORY_BYTES", -1)
    (repository.root / "a.txt").write_text("two\n")
    commit_paths(repository, "second", paths=["a.txt"])
    tree = prepare(trees, repository)
    made = export(tree, tmp_path / "git", head_of(repository))
    assert see(tree, made, "log", "--format=%s").split() == ["second"]
    assert see(tree, made, "status", "--porcelain") == ""
    assert see(tree, made, "fsck", "--full") == ""


def test_nothing_behind_a_link_in_place_of_a_folder_is_changed_or_deleted(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.mkdir()
    os.mkfifo(users / "pipe")
    (users / "private").touch(mode=0o000)
    (tmp_path / "link").symlink_to(users)
    with pytest.raises(NotADirectoryError):
        delete_folder(tmp_path / "link")
    assert (users / "pipe").is_fifo()
    assert stat.S_IMODE((users / "private").stat().st_mode) == 0
