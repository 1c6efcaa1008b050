"""Landing: what the user has stays, what the run did arrives, and a kill leaves no in-between."""

import ctypes
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git import landing
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.landing import BranchMoved, Landed, LandingConflict, Landings
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.run_tree import RunTree, RunTrees
from cdd_agent.git.runner import GitError, GitUnable
from tests.fakes.cases import soak_after
from tests.fakes.files import describe_files

TEN = "".join(f"line {number}\n" for number in range(10))


class Ground:
    """A user's tree, a run tree, and the way from the one to the other."""

    def __init__(self, repository: Repository) -> None:
        self.user = repository
        self.write(".gitignore", ".cdd/\n*.ignored\n")
        self.write("ten.txt", TEN)
        commit_paths(repository, "begin", paths=[".gitignore", "ten.txt"])
        self.base = self.head()
        self.tree: RunTree = RunTrees(repository, repository.root / ".cdd" / "worktrees").tree("csv")
        self.tree.reset(self.base)
        self.landings = Landings(repository, repository.root / ".cdd" / "landing")

    def head(self) -> CommitId:
        head = self.user.read_head()
        assert head is not None
        return head

    def write(self, path: str, text: str) -> None:
        place = self.user.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def read(self, path: str) -> str:
        return (self.user.root / path).read_text()

    def run(self, *deleted: str, **written: str) -> CommitId:
        """Do a run's work; ``__`` in a name is a slash, and a last ``_`` the ending."""
        paths = []
        for path in deleted:
            (self.tree.root / path).unlink()
            paths.append(path)
        for name, text in written.items():
            path = name.replace("__", "/") + ".txt"
            (self.tree.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.tree.root / path).write_text(text)
            paths.append(path)
        return commit_paths(self.tree.repository, "the run", paths=paths)

    def land(self, commit: CommitId, **choices: landing.Choice) -> Landed:
        named = {f"{name}.txt": choice for name, choice in choices.items()}
        return self.landings.land(commit, expected=self.base, base=self.base, result=commit, choices=named)

    def status(self) -> str:
        return self.user.git("status", ("--porcelain", "--untracked-files=all"))


@pytest.fixture
def ground(repository: Repository) -> Ground:
    return Ground(repository)


def test_a_landing_brings_branch_index_and_files_to_the_commit(ground: Ground) -> None:
    commit = ground.run("sub/b.txt", a="changed\n", new__deep="new\n")
    landed = ground.land(commit)
    assert (landed.updated, landed.merged, landed.kept) == (("sub/b.txt", "a.txt", "new/deep.txt"), (), ())
    assert (ground.head(), ground.user.read_branch(), ground.status()) == (commit, "main", "")
    assert (ground.read("a.txt"), ground.read("new/deep.txt")) == ("changed\n", "new\n")
    assert not (ground.user.root / "sub").exists()


def test_what_the_user_has_beside_it_stays_bit_for_bit(ground: Ground) -> None:
    ground.write("sub/b.txt", "being edited\n")
    ground.write("untracked.txt", "u\n")
    ground.write("data.ignored", "i\n")
    ground.write("staged.txt", "s\n")
    ground.user.git("add", "staged.txt")
    (ground.user.root / "ten.txt").unlink()
    left_out = ("a.txt", ".cdd", ".git")
    before, status = describe_files(ground.user.root, leave_out=left_out, times=True), ground.status()
    ground.land(ground.run(a="changed\n"))
    after = describe_files(ground.user.root, leave_out=left_out, times=True)
    assert {path: about for path, about in after.items() if path != "a.txt"} == {
        path: about for path, about in before.items() if path != "a.txt"
    }
    assert ground.status() == status


def test_other_lines_of_the_same_file_are_merged_and_stay_uncommitted(ground: Ground) -> None:
    commit = ground.run(ten=TEN.replace("line 1\n", "line one\n"))
    ground.write("ten.txt", TEN.replace("line 8\n", "line eight\n"))
    landed = ground.land(commit)
    assert landed.merged == ("ten.txt",)
    assert ground.read("ten.txt") == TEN.replace("line 1\n", "line one\n").replace("line 8\n", "line eight\n")
    assert ground.status() == " M ten.txt\n"
    assert "line eight" not in ground.user.git("show", f"{commit}:ten.txt")


def test_what_the_user_staged_in_the_same_file_stays_staged(ground: Ground) -> None:
    commit = ground.run(ten=TEN.replace("line 1\n", "line one\n"))
    ground.write("ten.txt", TEN.replace("line 8\n", "line eight\n"))
    ground.user.git("add", "ten.txt")
    ground.land(commit)
    assert ground.status() == "M  ten.txt\n"
    changed = ground.user.git("diff", ("--cached", "--unified=0", "--"), "ten.txt")
    assert "+line eight" in changed
    assert "line one" not in changed


SAME_LINES: dict[str, Callable[[Ground], object]] = {
    "you changed the same lines": lambda ground: ground.write("a.txt", "mine\n"),
    "you deleted it": lambda ground: (ground.user.root / "a.txt").unlink(),
    "you changed the same lines, or created it": lambda ground: ground.write("new.txt", "mine\n"),
    "a pipe": lambda ground: os.mkfifo(ground.user.root / "new.txt"),
    "it is a folder with inside": lambda ground: ground.write("new.txt/inside", ""),
    "is a link": lambda ground: (ground.user.root / "way").symlink_to("/tmp"),
    "is a file": lambda ground: ground.write("way", ""),
    "you staged other changes": lambda ground: stage_only(ground, "mine\n"),
}


def stage_only(ground: Ground, text: str) -> None:
    ground.write("a.txt", text)
    ground.user.git("add", "a.txt")
    ground.write("a.txt", "one\n")


@soak_after(1, "why", SAME_LINES)
def test_what_cannot_be_merged_waits_and_nothing_is_changed(ground: Ground, *, why: str) -> None:
    commit = ground.run(a="changed\n", new="new\n", way__deep="deep\n")
    SAME_LINES[why](ground)
    before = describe_files(ground.user.root, leave_out=(".cdd", ".git"), times=True), ground.status(), ground.head()
    with pytest.raises(LandingConflict, match=why):
        ground.land(commit)
    now = describe_files(ground.user.root, leave_out=(".cdd", ".git"), times=True), ground.status(), ground.head()
    assert now == before


def test_a_folder_on_another_file_system_waits_with_the_reason(ground: Ground) -> None:
    commit = ground.run(a="changed\n", way__deep="deep\n")
    mounted = ground.user.root / "way"
    mounted.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", mounted], capture_output=True, check=False).returncode:
        pytest.skip("only root can mount")
    try:
        with pytest.raises(LandingConflict, match="another file system is mounted there"):
            ground.land(commit)
        assert list(mounted.iterdir()) == []
    finally:
        subprocess.run(["umount", mounted], check=True)
    assert ground.read("a.txt") == "one\n"


def test_an_ignored_file_of_the_user_is_not_overwritten(ground: Ground) -> None:
    (ground.tree.root / "x.ignored").write_text("the run's")
    ground.tree.repository.git("add", ("-f",), "x.ignored")
    commit = commit_paths(ground.tree.repository, "the run", paths=["x.ignored"])
    ground.write("x.ignored", "mine")
    with pytest.raises(LandingConflict, match=r"x\.ignored"):
        ground.land(commit)
    assert ground.read("x.ignored") == "mine"


@soak_after(
    1,
    ("choice", "content"),
    [("mine", "mine\n"), ("theirs", "changed\n"), ("merge", "<<<<<<< yours\nmine\n=======\nchanged\n>>>>>>> cdd\n")],
)
def test_a_conflict_ends_as_the_user_chooses(ground: Ground, choice: landing.Choice, content: str) -> None:
    commit = ground.run(a="changed\n", new="new\n")
    ground.write("a.txt", "mine\n")
    ground.land(commit, a=choice)
    assert (ground.read("a.txt"), ground.read("new.txt"), ground.head()) == (content, "new\n", commit)


def test_a_file_that_the_user_changed_in_the_same_way_stays(ground: Ground) -> None:
    commit = ground.run(a="changed\n")
    ground.write("a.txt", "changed\n")
    assert ground.land(commit).updated == ()
    assert ground.status() == ""


@pytest.mark.slow
def test_a_file_becomes_a_folder_and_a_folder_a_file(ground: Ground) -> None:
    (ground.tree.root / "a.txt").unlink()
    commit = ground.run("sub/b.txt", **{"a.txt__deep": "deep\n"})
    ground.land(commit)
    assert ground.read("a.txt/deep.txt") == "deep\n"
    (ground.tree.root / "a.txt" / "deep.txt").unlink()
    (ground.tree.root / "a.txt").rmdir()
    (ground.tree.root / "a.txt").write_text("file again\n")
    second = commit_paths(ground.tree.repository, "back", paths=["a.txt", "a.txt/deep.txt"])
    ground.landings.land(second, expected=commit, base=commit, result=second)
    assert (ground.read("a.txt"), ground.status()) == ("file again\n", "")


def test_links_programs_and_private_files_keep_their_kind(ground: Ground) -> None:
    (ground.user.root / "a.txt").chmod(0o600)
    (ground.tree.root / "a.txt").write_text("changed\n")
    (ground.tree.root / "a.txt").chmod(0o755)
    (ground.tree.root / "ten.txt").unlink()
    (ground.tree.root / "ten.txt").symlink_to("a.txt")
    commit = commit_paths(ground.tree.repository, "kinds", paths=["a.txt", "ten.txt"])
    ground.land(commit)
    assert oct((ground.user.root / "a.txt").stat().st_mode & 0o777) == "0o700"
    assert os.readlink(ground.user.root / "ten.txt") == "a.txt"
    assert ground.status() == ""


def test_a_change_of_mode_alone_lands(ground: Ground) -> None:
    (ground.tree.root / "a.txt").chmod(0o755)
    ground.land(commit_paths(ground.tree.repository, "mode", paths=["a.txt"]))
    assert os.access(ground.user.root / "a.txt", os.X_OK)
    assert ground.status() == ""


def test_names_that_are_not_utf8_land(ground: Ground) -> None:
    name = os.fsdecode(b'caf\xe9 \n"x".txt')
    (ground.tree.root / name).write_text("strange\n")
    ground.land(commit_paths(ground.tree.repository, "names", paths=[name]))
    assert (ground.read(name), ground.status()) == ("strange\n", "")


def test_line_ends_that_git_converts_are_no_change_of_the_user(ground: Ground) -> None:
    ground.user.git("config", "core.autocrlf", "true")
    (ground.user.root / "ten.txt").write_bytes(TEN.replace("\n", "\r\n").encode())
    commit = ground.run(ten=f"{TEN}more\n")
    assert ground.land(commit).updated == ("ten.txt",)
    assert (ground.user.root / "ten.txt").read_bytes() == f"{TEN}more\n".replace("\n", "\r\n").encode()
    assert ground.status() == ""


def test_a_branch_that_moved_is_not_moved_again(ground: Ground) -> None:
    commit = ground.run(a="changed\n")
    ground.write("sub/b.txt", "mine\n")
    own = commit_paths(ground.user, "mine", paths=["sub/b.txt"])
    with pytest.raises(BranchMoved):
        ground.land(commit)
    assert (ground.head(), ground.read("a.txt")) == (own, "one\n")


def test_nothing_lands_in_the_middle_of_a_merge(ground: Ground) -> None:
    commit = ground.run(a="changed\n")
    merging = ground.user.location.git_dir / "MERGE_HEAD"
    merging.write_text(f"{ground.base}\n")
    with pytest.raises(UsageError, match="a merge is in progress"):
        ground.land(commit)
    merging.unlink()
    conflict = "".join(
        f"100644 {ground.user.git('hash-object', 'a.txt').strip()} {side}\tten.txt\n" for side in (1, 2, 3)
    )
    ground.user.git("update-index", ("--index-info",), stdin=f"0 {'0' * 40}\tten.txt\n{conflict}".encode())
    with pytest.raises(UsageError, match="a merge with conflicts is in progress"):
        ground.land(commit)
    assert (ground.head(), ground.read("a.txt"), ground.landings.is_pending()) == (ground.base, "one\n", False)


def test_a_way_back_that_never_began_is_dropped_although_the_user_has_committed_since(ground: Ground) -> None:
    commit = ground.run(a="changed\n")
    ground.land(commit)
    lock = ground.user.location.git_dir / "refs" / "heads" / "main.lock"
    lock.touch()
    with pytest.raises(GitError):
        ground.landings.land(ground.base, expected=commit, base=commit, result=ground.base)
    lock.unlink()
    assert ground.landings.is_pending()
    ground.write("own.txt", "mine\n")
    ground.user.git("add", "own.txt")
    ground.user.git("commit", ("--quiet", "--message=mine"))
    assert ground.landings.finish() is None
    assert (ground.read("a.txt"), ground.read("own.txt"), ground.status()) == ("changed\n", "mine\n", "")


@pytest.mark.slow
def test_nothing_lands_while_the_index_is_locked(ground: Ground) -> None:
    commit = ground.run(a="changed\n")
    lock = ground.user.location.git_dir / "index.lock"
    lock.touch()
    with pytest.raises(GitUnable, match="index is locked"):
        ground.land(commit)
    assert (ground.head(), ground.read("a.txt"), ground.landings.is_pending()) == (ground.base, "one\n", False)
    lock.unlink()
    ground.land(commit)
    assert (ground.head(), ground.read("a.txt")) == (commit, "changed\n")


@pytest.mark.slow
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_what_fails_after_the_branch_has_moved_is_told_and_finished_later(
    ground: Ground, *, is_elsewhere: bool
) -> None:
    commit = ground.run(a="changed\n")
    ground.user.git("branch", "other")
    lock = ground.user.location.git_dir / "index.lock"

    def lock_index() -> tuple[tuple[str, str], ...]:
        if commit in (ground.user.location.git_dir / "refs" / "heads" / "main").read_text():
            lock.touch()
        return ()

    ground.user.settings = lock_index
    with pytest.raises(GitUnable, match="is on your branch, but not yet in all of your files") as told:
        ground.land(commit)
    assert "run the same command again" in told.value.hint
    ground.user.settings = tuple
    lock.unlink()
    if is_elsewhere:
        ground.user.git("switch", ("--quiet",), "other")
        assert ground.landings.finish() is None, "the files are those of another branch"
        # git takes the file along as it is. Only its content in the commit would let git leave it.
        assert (ground.head(), ground.read("a.txt"), ground.status()) == (ground.base, "changed\n", " M a.txt\n")
        ground.user.git("restore", "a.txt")
        ground.user.git("switch", ("--quiet",), "main")
    ground.landings.finish()
    assert (ground.head(), ground.read("a.txt"), ground.status()) == (commit, "changed\n", "")


def test_a_detached_head_moves_and_no_branch_does(ground: Ground) -> None:
    ground.user.git("checkout", ("--quiet", "--detach"))
    commit = ground.run(a="changed\n")
    ground.land(commit)
    assert (ground.head(), ground.user.git("rev-parse", "main").strip()) == (commit, ground.base)


def test_files_that_a_sparse_checkout_omits_stay_away(ground: Ground) -> None:
    ground.user.git("sparse-checkout", "set", ("--no-cone",), "/*", "!/sub/")
    assert not (ground.user.root / "sub").exists()
    commit = ground.run(sub__b="changed\n", a="changed\n")
    ground.land(commit)
    assert not (ground.user.root / "sub").exists()
    assert (ground.read("a.txt"), ground.status()) == ("changed\n", "")


def test_uncommitted_changes_that_the_run_took_along_stay_uncommitted(ground: Ground) -> None:
    ground.write("ten.txt", TEN.replace("line 8\n", "line eight\n"))
    with_mine = commit_paths(ground.tree.repository, "taken along", paths=[])
    (ground.tree.root / "ten.txt").write_text(ground.read("ten.txt"))
    with_mine = commit_paths(ground.tree.repository, "taken along", paths=["ten.txt"])
    result = ground.run(ten=ground.read("ten.txt").replace("line 1\n", "line one\n"))
    ground.tree.reset(ground.base)
    commit = ground.run(ten=TEN.replace("line 1\n", "line one\n"))
    ground.landings.land(commit, expected=ground.base, base=with_mine, result=result)
    assert ground.read("ten.txt") == TEN.replace("line 1\n", "line one\n").replace("line 8\n", "line eight\n")
    assert ground.user.git("diff", ("--unified=0",), "HEAD", ("--",), "ten.txt").count("\n+line") == 1
    assert ground.status() == " M ten.txt\n"


@soak_after(1, "by_rename", [False, True])
def test_a_save_in_the_moment_of_the_landing_is_never_lost(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, *, by_rename: bool
) -> None:
    """The user saves between the check and the exchange, other lines first and then the same ones."""
    swap, saves = landing._swap, [TEN.replace("line 8\n", "line eight\n"), TEN.replace("line 8\n", "line VIII\n")]

    def save_first(one: Path, other: Path) -> None:
        if saves:
            text = saves.pop(0)
            if by_rename:
                ground.write("saved", text)
                os.replace(ground.user.root / "saved", other)
            else:
                other.write_text(text)
        swap(one, other)

    commit = ground.run(ten=TEN.replace("line 1\n", "line one\n"))
    monkeypatch.setattr(landing, "_swap", save_first)
    landed = ground.land(commit)
    now = ground.read("ten.txt")
    assert "line VIII" in now
    assert landed.merged == ("ten.txt",)
    assert "line one" in now


@soak_after(1, "is_deleted", [False, True])
def test_a_save_in_the_moment_of_a_landing_that_is_killed_then_is_not_lost(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    saved = TEN.replace("line 8\n", "line eight\n")
    commit = ground.run("ten.txt") if is_deleted else ground.run(ten=TEN.replace("line 1\n", "line one\n"))
    function = "rename" if is_deleted else "_swap"
    real = getattr(os if is_deleted else landing, function)

    def save_and_die(one: Path, other: Path) -> None:
        (one if is_deleted else other).write_text(saved)
        real(one, other)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os if is_deleted else landing, function, save_and_die)
        with pytest.raises(KeyboardInterrupt):
            ground.land(commit)
    ground.landings.finish()
    assert "line eight" in ground.read("ten.txt")
    assert is_deleted or "line one" in ground.read("ten.txt")
    assert (ground.head(), ground.landings.is_pending()) == (commit, False)


def test_a_save_of_the_same_lines_in_that_moment_is_kept_and_told(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = landing._swap

    def save_first(one: Path, other: Path) -> None:
        if ground.read("a.txt") == "one\n":
            ground.write("a.txt", "mine\n")
        swap(one, other)

    commit = ground.run(a="changed\n")
    monkeypatch.setattr(landing, "_swap", save_first)
    assert ground.land(commit).kept == ("a.txt",)
    assert ground.read("a.txt") == "mine\n"


def test_a_file_system_that_cannot_exchange_is_served_too(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        pass

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Old())
    ground.land(ground.run(a="changed\n", new="new\n"))
    assert (ground.read("a.txt"), ground.read("new.txt"), ground.status()) == ("changed\n", "new\n", "")


KILLED = """
import os, sys
from pathlib import Path
from cdd_agent.git.landing import Landings
from cdd_agent.git.repository import Repository
root, commit, base, point = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
count = 0
def at_each(event, arguments):
    global count
    if event in ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "subprocess.Popen") or (
        event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    ) or event == "ctypes.dlsym":
        count += 1
        if count == point:
            os.kill(os.getpid(), 9)
repository = Repository.find(root)
sys.addaudithook(at_each)
Landings(repository, root / ".cdd" / "landing").land(commit, expected=base, base=base, result=commit)
print(count)
"""


@soak_after(1, "most", (2, 12))
def test_a_kill_at_any_point_leaves_nothing_in_between(repository: Repository, tmp_path: Path, *, most: int) -> None:
    ground = Ground(repository)
    commit = ground.run("sub/b.txt", a="changed\n", new="new\n", ten=TEN.replace("line 1\n", "line one\n"))
    ground.write("ten.txt", TEN.replace("line 8\n", "line eight\n"))
    ground.write("untracked.txt", "mine\n")
    start = tmp_path / "start"
    subprocess.run(["cp", "-a", str(ground.user.root), str(start)], check=True)

    def attempt(point: int) -> tuple[int, str]:
        subprocess.run(["rm", "-rf", str(ground.user.root)], check=True)
        subprocess.run(["cp", "-a", str(start), str(ground.user.root)], check=True)
        argv = [sys.executable, "-c", KILLED, str(ground.user.root), commit, ground.base, str(point)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    before = describe_files(start, leave_out=(".cdd", ".git")), " M ten.txt\n?? untracked.txt\n"
    status, count = attempt(-1)
    assert status == 0
    after = describe_files(ground.user.root, leave_out=(".cdd", ".git")), ground.status()
    assert after[1] == before[1]
    points = range(1, int(count) + 1)
    chosen = random.Random(0).sample(points, k=min(most, len(points)))
    for point in chosen:
        assert attempt(point)[0] == -9
        Landings(Repository.find(ground.user.root), ground.user.root / ".cdd" / "landing").finish()
        now = describe_files(ground.user.root, leave_out=(".cdd", ".git")), ground.status()
        assert now == (after if ground.head() == commit else before), point
        assert not list((ground.user.root / ".cdd" / "landing").glob("*.json"))


@pytest.mark.slow
def test_a_user_who_saves_all_the_time_finds_every_save(ground: Ground) -> None:
    """Files beside the run's: saved, created, deleted and renamed while twenty commits land."""
    stop, saved = threading.Event(), dict[str, str]()

    def save() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            path = f"mine/{number % 7}.txt"
            ground.write(path, f"save {number}\n")
            saved[path] = f"save {number}\n"
            if number % 5 == 0:
                other = f"mine/renamed {number % 3}.txt"
                (ground.user.root / path).replace(ground.user.root / other)
                saved[other] = saved.pop(path)

    user = threading.Thread(target=save)
    user.start()
    try:
        expected = ground.base
        for number in range(20):
            commit = ground.run(a=f"version {number}\n", **{f"new{number}": "new\n"})
            ground.landings.land(commit, expected=expected, base=expected, result=commit)
            expected = commit
    finally:
        stop.set()
        user.join()
    assert {path: ground.read(path) for path in saved} == saved
    assert ground.user.git("log", ("--format=", "--name-only"), f"{ground.base}..HEAD").count("mine/") == 0
    assert all(line.startswith("?? mine/") or line.startswith('?? "mine/') for line in ground.status().splitlines())
