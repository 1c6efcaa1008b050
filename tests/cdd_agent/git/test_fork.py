"""Forks: made, merged with and without conflicts, and dropped without losing work."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from cdd_agent.errors import UsageError
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.fork import Fork, Forks, find_home, make_name
from cdd_agent.git.landing import Favor, LandingConflict
from cdd_agent.git.repository import Repository
from cdd_agent.git.run_tree import Kept, RunTrees
from cdd_agent.git.runner import GitRefused
from cdd_agent.work.records import find_records
from tests.fakes.cases import soak_after
from tests.fakes.command_line import run_words
from tests.fakes.files import describe_files


@pytest.fixture
def forks(repository: Repository) -> Forks:
    (repository.root / ".gitignore").write_text("*.log\n")
    (repository.root / "kept.log").write_text("ignored\n")
    commit_paths(repository, "ignore", paths=[".gitignore"])
    return Forks(repository.root, read_included=lambda: b"kept.log\n")


def start(forks: Forks, direction: str = "Use a dict", *, second: int = 1) -> Fork:
    """Make a fork of the user's HEAD."""
    repository = forks.repository
    head, branch = repository.read_head(), repository.read_branch()
    assert head is not None
    assert branch is not None
    name = make_name(direction, f"2026-11-25T22:45:{second:02}Z")
    fork = Fork(name=name, ticket="sale", step=1, direction=direction, base=head, parent=branch)
    forks.create(fork)
    return fork


def commit(repository: Repository, path: str, text: str) -> None:
    (repository.root / path).write_text(text)
    commit_paths(repository, f"change {path}", paths=[path])


def of_user(forks: Forks) -> object:
    root = forks.repository.root
    return describe_files(root, leave_out=(".cdd", ".git"), times=True), forks.repository.git(
        "status", ("--porcelain",)
    )


def test_a_fork_has_a_branch_and_the_ignored_files_and_the_user_s_tree_stays(forks: Forks) -> None:
    (forks.repository.root / "a.txt").write_text("being edited\n")
    before = of_user(forks)
    fork = start(forks)
    tree = forks.open(fork)
    assert (fork.name, tree.read_branch()) == ("20261125-224501-use-a-dict", "fork/20261125-224501-use-a-dict")
    assert [(tree.root / name).read_text() for name in ("a.txt", "kept.log")] == ["one\n", "ignored\n"]
    assert of_user(forks) == before
    assert find_home(tree.root) == forks.repository.root
    assert find_home(forks.repository.root) == forks.repository.root
    assert forks.find_statuses([fork]) == {fork.name: "active"}


def test_a_fork_is_never_pruned(forks: Forks) -> None:
    fork = start(forks)
    trees = RunTrees(forks.repository, forks.repository.root / ".cdd" / "worktrees")
    os.utime(forks.locate(fork), (0, 0))
    assert trees.prune(Kept(days=1, most=0)) == ()
    assert forks.open(fork).read_branch() == fork.branch


@pytest.mark.slow
def test_a_merge_lands_beside_uncommitted_work(forks: Forks) -> None:
    fork = start(forks, "Use a dict, " * 100)
    commit(forks.open(fork), "a.txt", "forked\n")
    commit(forks.repository, "new.txt", "mine\n")
    mine = forks.repository.root / "sub" / "b.txt"
    mine.write_text("not committed\n")
    plan = forks.plan_merge(fork)
    assert (plan.conflicts, [change.path for change in plan.changes]) == ((), ["a.txt"])
    assert [line.partition(" ")[2] for line in plan.subjects] == ["change a.txt"]
    forks.merge(plan)
    assert (forks.repository.root / "a.txt").read_text() == "forked\n"
    assert mine.read_text() == "not committed\n"
    assert forks.repository.git("status", ("--porcelain",)) == " M sub/b.txt\n"
    subject, _, parents = forks.repository.git("log", ("-1", "--format=%s|%P")).partition("|")
    assert parents == f"{plan.head} {plan.tip}\n"
    assert subject.startswith("merge: Use a dict, ")
    assert len(subject) <= 72
    assert forks.find_statuses([fork]) == {fork.name: "merged"}


@pytest.mark.slow
def test_a_merge_needs_no_commit_of_its_own_where_the_branch_stayed(forks: Forks) -> None:
    fork = start(forks)
    commit(forks.open(fork), "a.txt", "forked\n")
    forks.merge(plan := forks.plan_merge(fork))
    assert forks.repository.read_head() == plan.tip


def test_a_file_that_the_user_is_editing_prevents_the_merge(forks: Forks) -> None:
    fork = start(forks)
    commit(forks.open(fork), "a.txt", "forked\n")
    (forks.repository.root / "a.txt").write_text("one\nmine\n")
    before, plan = of_user(forks), forks.plan_merge(fork)
    with pytest.raises(LandingConflict, match=r"a\.txt"):
        forks.merge(plan)
    assert of_user(forks) == before
    assert forks.repository.read_head() == plan.head


@pytest.fixture
def conflicting(forks: Forks) -> Fork:
    fork = start(forks)
    commit(forks.open(fork), "a.txt", "forked\n")
    commit(forks.repository, "a.txt", "mine\n")
    return fork


@pytest.mark.slow
@pytest.mark.parametrize("favor", ["ours", "theirs"])
def test_one_side_can_be_taken(forks: Forks, conflicting: Fork, favor: Favor) -> None:
    plan = forks.plan_merge(conflicting)
    assert plan.conflicts == ("a.txt",)
    tip, tree = forks.read_tip(conflicting), forks.open(conflicting)
    places = (forks.repository.root, tree.location.git_dir)
    before = [describe_files(place, leave_out=("objects",), times=True) for place in places]
    settled = forks.settle(plan, favor)
    # Not even written and restored: a kill in between has nothing to leave behind.
    assert [describe_files(place, leave_out=("objects",), times=True) for place in places] == before
    assert forks.plan_merge(conflicting).conflicts == ("a.txt",)
    merged = forks.merge(settled).commit
    assert forks.repository.git("rev-parse", f"{merged}^@").split() == [plan.head, tip]
    assert (forks.repository.root / "a.txt").read_text() == {"ours": "mine\n", "theirs": "forked\n"}[favor]


@pytest.mark.slow
@pytest.mark.parametrize("favor", ["ours", "theirs"])
def test_a_side_is_taken_as_git_merge_takes_it(forks: Forks, favor: Favor) -> None:
    lines = [f"line {number}\n" for number in range(30)]
    shared = {
        "t.txt": "".join(lines).encode(),
        "b.bin": b"\0one",
        "x.sh": b"echo\n",
        "whole.lock": b"1\n2\n3\n4\n5\n6\n",
    }
    shared[".gitattributes"] = b"*.lock -merge\n"
    root, git = forks.repository.root, forks.repository.git

    def save(folder: Path, files: dict[str, bytes], *, link: str, mode: int) -> None:
        for path, data in files.items():
            (folder / path).write_bytes(data)
        (folder / "x.sh").chmod(mode)
        (folder / "link").unlink(missing_ok=True)
        (folder / "link").symlink_to(link)
        commit_paths(Repository.find(folder), "all", paths=[*files, "x.sh", "link"])

    save(root, shared, link="before", mode=0o644)
    fork = start(forks)
    sides = ((forks.locate(fork), b"fork", 0o755), (root, b"mine", 0o644))
    for folder, word, mode in sides:
        own = [*lines]
        own[3], own[28 if word == b"mine" else 14] = f"both {word!r}\n", "only here\n"
        changed = {"t.txt": "".join(own).encode(), "b.bin": b"\0" + word, "new.txt": b"same\n" + word + b"\n"}
        changed["whole.lock"] = (b"" if word == b"mine" else b"0\n") + b"1\n2\n3\n4\n5\n" + word + b"\n"
        save(folder, changed, link=word.decode(), mode=mode)
    plan = forks.plan_merge(fork)
    assert set(plan.conflicts) == {"t.txt", "b.bin", "new.txt", "whole.lock", "link"}
    settled = forks.settle(plan, favor)
    git("merge", ("--quiet", "--no-commit", "--no-ff", "-X"), favor, plan.tip)
    assert git("diff", settled.tree, git("write-tree").strip()) == ""


def test_a_merge_driver_of_the_repository_is_named_and_never_run(forks: Forks, conflicting: Fork) -> None:
    root = forks.repository.root
    (root / ".gitattributes").write_text("*.txt merge=mine\n")
    forks.repository.git("config", "merge.mine.driver", "touch ran")
    forks = Forks(root)
    with pytest.raises(UsageError, match=r"^a\.txt is merged by the driver mine") as refused:
        forks.plan_merge(conflicting)
    assert f"git merge {conflicting.branch}" in refused.value.hint
    assert forks.require_droppable(conflicting) == (1, ())
    assert not (root / "ran").exists()


def test_a_conflict_is_resolved_in_the_fork_and_can_be_aborted(forks: Forks, conflicting: Fork) -> None:
    file, tip = forks.locate(conflicting) / "a.txt", forks.read_tip(conflicting)
    assert forks.resolve(forks.plan_merge(conflicting)) == ("a.txt",)
    marked = f"<<<<<<< {conflicting.branch}\nforked\n=======\nmine\n>>>>>>> {conflicting.parent}\n"
    assert file.read_text() == marked
    assert forks.open(conflicting).git("status", ("--porcelain",)) == "UU a.txt\n"
    with pytest.raises(UsageError, match=r"still have conflict marks: a\.txt") as refused:
        forks.plan_merge(conflicting)
    assert f"cdd fork merge {conflicting.name} --abort" in refused.value.hint
    forks.abort(conflicting)
    assert (file.read_text(), forks.read_tip(conflicting)) == ("forked\n", tip)
    with pytest.raises(UsageError, match="No merge is in progress"):
        forks.abort(conflicting)
    forks.repository.git("tag", conflicting.parent, "HEAD^")  # git takes the tag for the branch
    forks.resolve(forks.plan_merge(conflicting))
    assert file.read_text().startswith("<<<<<<< HEAD\nforked\n=======\nmine\n")
    file.write_text("both\n")
    forks.merge(forks.plan_merge(conflicting))
    assert (forks.repository.root / "a.txt").read_text() == "both\n"


@pytest.mark.slow
def test_a_deleted_file_takes_no_side(forks: Forks) -> None:
    fork = start(forks)
    tree = forks.open(fork)
    tree.git("rm", ("-q",), "a.txt")
    tree.git("commit", ("-qm",), "delete")
    commit(forks.repository, "a.txt", "mine\n")
    with pytest.raises(UsageError, match="so no side can be taken") as refused:
        forks.settle(forks.plan_merge(fork), "ours")
    assert "--resolve" in refused.value.hint
    assert not forks.is_resolving(fork)
    assert tree.git("status", ("--porcelain",)) == ""


def test_uncommitted_files_of_a_fork_are_not_left_behind_by_a_merge(forks: Forks) -> None:
    fork = start(forks)
    (forks.locate(fork) / "a.txt").write_text("changed\n")
    with pytest.raises(UsageError, match=r"has uncommitted changes: a\.txt") as refused:
        forks.plan_merge(fork)
    assert f"git -C {forks.locate(fork)} add -A" in refused.value.hint


def test_a_dropped_fork_leaves_its_commits_and_its_uncommitted_files(forks: Forks) -> None:
    fork = start(forks)
    commit(forks.open(fork), "a.txt", "forked\n")
    (forks.locate(fork) / "new.txt").write_text("not committed\n")
    assert forks.require_droppable(fork) == (1, ("new.txt",))
    forks.switch("sale", fork)
    forks.drop(fork)
    git = forks.repository.git
    assert [git("show", f"{fork.kept}:{path}") for path in ("a.txt", "new.txt")] == ["forked\n", "not committed\n"]
    assert not forks.locate(fork).exists()
    assert git("branch", ("--list",), "fork/*") == ""
    assert git("worktree", "list").count("\n") == 1
    (dropped,) = forks.list_all()
    assert forks.find_statuses([dropped]) == {fork.name: "abandoned"}
    assert forks.find_current("sale") is None
    with pytest.raises(UsageError, match="was dropped"):
        forks.plan_merge(dropped)


@pytest.mark.slow
def test_squashed_work_counts_as_merged(forks: Forks) -> None:
    fork = start(forks)
    commit(forks.open(fork), "a.txt", "forked\n")
    commit(forks.open(fork), "new.txt", "new\n")
    for path, text in (("a.txt", "forked\n"), ("new.txt", "new\n")):
        commit(forks.repository, path, text)
    assert forks.find_statuses([fork]) == {fork.name: "merged"}
    assert forks.require_droppable(fork) == (0, ())


@pytest.mark.slow
def test_a_deleted_folder_and_a_deleted_branch_are_told_apart(forks: Forks) -> None:
    fork = start(forks)
    commit(forks.open(fork), "a.txt", "forked\n")
    shutil.rmtree(forks.locate(fork))
    with pytest.raises(UsageError, match=r"The folder of the fork .* is gone") as refused:
        forks.open(fork)
    command = refused.value.hint.partition(": ")[2].partition(";")[0]
    run_words(forks.repository, *command.split()[1:])
    assert forks.open(fork).read_branch() == fork.branch
    shutil.rmtree(forks.locate(fork))
    forks.merge(forks.plan_merge(fork))
    forks.repository.git("update-ref", ("-d",), f"refs/heads/{fork.branch}")
    with pytest.raises(UsageError, match=r"The branch fork/.* is gone"):
        forks.open(fork)
    forks.drop(fork)


def test_a_branch_that_is_checked_out_elsewhere_is_named(forks: Forks, tmp_path: Path) -> None:
    fork = start(forks)
    forks.open(fork).git("switch", ("-q", "--detach"))
    with pytest.raises(UsageError, match=r"is on no branch, not on fork/"):
        forks.open(fork)
    forks.repository.git("worktree", "add", ("-q",), str(tmp_path / "other"), fork.branch)
    with pytest.raises(UsageError, match=r"is checked out in .*other"):
        forks.drop(fork)
    assert forks.locate(fork).exists()


@pytest.mark.slow
def test_a_fork_is_found_by_a_part_of_its_name(forks: Forks) -> None:
    with pytest.raises(UsageError, match="There is no fork 'dict'") as refused:
        forks.find("dict")
    assert "cdd fork SLUG DIRECTION" in refused.value.hint
    first, _ = start(forks), start(forks, "Use a list", second=2)
    assert forks.find("dict").name == first.name
    with pytest.raises(UsageError, match="'use' is part of several names"):
        forks.find("use")


def test_no_name_in_the_list_of_forks_becomes_an_option_of_git(forks: Forks, tmp_path: Path) -> None:
    fork, target = start(forks), tmp_path / "overwritten"
    for word in (f"--output={target}", f"--output={target}\0", "--all"):
        planted = replace(fork, base=word)
        with pytest.raises(GitRefused, match="not the name of a commit"):
            forks.count_commits(planted)
        with pytest.raises(GitRefused, match="not the name of a commit"):
            forks.create(replace(planted, name="another"))
    assert not target.exists()


def test_a_list_with_a_name_that_leads_elsewhere_is_damaged(forks: Forks, tmp_path: Path) -> None:
    start(forks)
    path = find_records(forks.repository.root).repository / "forks.json"
    kept = path.read_text()
    for name in (
        "../../src",
        "x/../../../a",
        "..",
        ".",
        "",
        "-rf",
        "a\n",
        "A b",
        "a.lock",
        "/etc",
        "x" * 300,
        "a\u202eb",
    ):
        file = json.loads(kept)
        file["forks"][0]["name"] = name
        path.write_text(json.dumps(file))
        with pytest.raises(UsageError, match=r"forks.json is damaged.*forks\[0\]\.name"):
            forks.list_all()


@soak_after(1, "link", (".cdd/worktrees", ".cdd", ""))
def test_a_link_in_a_fork_takes_nothing_behind_it_along(forks: Forks, tmp_path: Path, *, link: str) -> None:
    fork, other = start(forks), tmp_path / "other"
    for inner in ("precious", ".cdd/worktrees/precious", "worktrees/precious"):
        (other / inner).mkdir(parents=True)
    place = forks.locate(fork) / link
    place.parent.mkdir(exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    place.symlink_to(other)
    before = sorted(other.rglob("*"))
    with pytest.raises(UsageError, match=f"leads through a link to {other}"):
        forks.drop(fork)
    assert sorted(other.rglob("*")) == before
    assert not forks.repository.read_ref(fork.kept)
    place.unlink()
    forks.drop(fork)


def test_folders_of_any_name_in_a_fork_are_dropped_with_it(forks: Forks) -> None:
    fork = start(forks)
    inner = forks.locate(fork) / ".cdd" / "worktrees"
    for name in ("sale", "-rf", "a b", "\u202e"):
        (inner / name).mkdir(parents=True)
    (inner / "file").touch()
    forks.drop(fork)
    assert not forks.locate(fork).exists()


@pytest.mark.slow
def test_the_list_of_forks_may_be_damaged_or_newer(forks: Forks) -> None:
    start(forks)
    path = find_records(forks.repository.root).repository / "forks.json"
    path.write_text("{")
    with pytest.raises(UsageError, match="is damaged"):
        forks.list_all()
    path.write_text('{"schema": 3}')
    with pytest.raises(UsageError, match="newer cdd"):
        forks.list_all()


@pytest.mark.slow
def test_a_fork_with_changes_in_a_submodule_is_not_dropped(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    library = Repository.create(tmp_path / "library")
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.org")):
        library.git("config", name, value)
    commit(library, "rows.py", "rows = 1\n")
    local = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
    add = ["git", "submodule", "--quiet", "add", str(library.root), "parts"]
    subprocess.run(add, cwd=forks.repository.root, env={**os.environ, **local}, check=True)
    subprocess.run(["git", "commit", "-qm", "parts"], cwd=forks.repository.root, check=True)
    fork = start(forks)
    file = forks.locate(fork) / "parts" / "rows.py"
    assert (file.read_text(), forks.require_droppable(fork)) == ("rows = 1\n", (0, ()))
    file.write_text("rows = 2\n")
    with pytest.raises(UsageError, match="Files of the submodule parts were changed in the fork") as refused:
        forks.drop(fork)
    assert f"rm -r {file.parent}" in refused.value.hint
    shutil.rmtree(file.parent)
    forks.drop(fork)
    assert not forks.locate(fork).exists()
