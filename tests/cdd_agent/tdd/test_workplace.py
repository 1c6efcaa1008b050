"""A run tree as the place of a run: what it begins with, and how commits come from there to the user."""

from hashlib import sha256
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.events import Notice
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.landing import BranchMoved, LandingConflict, Landings
from cdd_agent.git.repository import CommitId, CopyLimits, Entry, Repository
from cdd_agent.git.run_tree import GitExport, RunTrees
from cdd_agent.sandbox.port import Result
from cdd_agent.tdd.workplace import Workplace
from pytest_tdd_agent.report import Failure
from tests.fakes.cases import soak_after
from tests.fakes.suite import make_failed_report

TEN = "".join(f"line {number}\n" for number in range(10))


class Ground:
    """A user's work tree, and a run's."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.user = Repository.create(folder)
        self.user.git("config", "user.name", "Ann")
        self.user.git("config", "user.email", "ann@example.org")
        self.said: list[str] = []
        for name, content in ((".gitignore", ".cdd/\n*.sqlite\n.env\n"), ("ten.txt", TEN), ("other.txt", "other\n")):
            (folder / name).write_text(content)
        self.base = commit_paths(self.user, "begin", paths=[".gitignore", "ten.txt", "other.txt"])
        own = folder / ".cdd"
        self.place = Workplace(
            user=self.user,
            run_tree=RunTrees(self.user, own / "worktrees").tree("csv"),
            landings=Landings(self.user, own / "landing"),
            export=GitExport(folder=own / "git" / "csv"),
            shown_git=Path("/run/cdd/git"),
            emit=lambda event: self.said.append(event.text if isinstance(event, Notice) else ""),
            left_out=("tickets/",),
        )

    def limit(self, limits: CopyLimits) -> None:
        self.user.copy_limits = limits
        self.place.run_tree = RunTrees(self.user, self.user.root / ".cdd" / "worktrees").tree("csv")

    def include(self, patterns: str) -> None:
        self.user.read_included = patterns.encode

    def head(self) -> CommitId:
        head = self.user.read_head()
        assert head is not None
        return head

    def edit(self, old: str, new: str, *, path: str = "ten.txt") -> None:
        file = self.user.root / path
        file.write_text(file.read_text().replace(old, new))

    def run(self, old: str, new: str) -> CommitId:
        file = self.place.tree.root / "ten.txt"
        file.write_text(file.read_text().replace(old, new))
        return commit_paths(self.place.tree, "the run\n\nHandoff-Id: 1\n", paths=["ten.txt"])

    def land(self, made: CommitId, *, tip: CommitId) -> CommitId:
        commit = self.place.adapt(made, tip=tip)
        self.place.land(commit, made=made, tip=tip)
        return commit

    def show(self, commit: str, path: str = "ten.txt") -> str:
        return self.user.git("show", f"{commit}:{path}")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "project")


def test_a_run_begins_with_the_commit_of_the_user_and_the_ignored_files_that_are_approved(ground: Ground) -> None:
    ground.edit("line 0", "being edited")
    ground.include("*.sqlite")
    (ground.user.root / "db.sqlite").write_text("data")
    (ground.user.root / ".env").write_text("KEY=1")
    tip = ground.place.begin()
    assert tip == ground.base
    assert (ground.place.tree.root / "ten.txt").read_text() == TEN
    assert (ground.place.tree.root / "db.sqlite").read_text() == "data"
    assert not (ground.place.tree.root / ".env").exists()
    assert ground.said == [
        "Not in the run tree, because they hold secrets: .env. To have them: name them in .cdd/worktree-include."
    ]


def test_the_values_of_files_that_git_does_not_track_are_known(ground: Ground) -> None:
    (ground.user.root / "data.sqlite").write_text("token = Xk9vQ2mZ7Lp4Rt8s\nother = begin-2026-public\n")
    (ground.user.root / "secrets.json").write_text('{"key": "Wd5nHj3kQa1zBc6t"}')
    (ground.user.root / "other.txt").write_text("begin-2026-public\n")
    commit_paths(ground.user, "public", paths=["other.txt"])
    ground.include("*.sqlite")
    ground.place.carries = True
    ground.place.begin()
    values = ground.place.read_values()
    assert [each.source for each in values.find("Xk9vQ2mZ7Lp4Rt8s\nbegin-2026-public")] == ["data.sqlite"]
    assert [each.source for each in values.find("'Wd5nHj3kQa1zBc6t'")] == ["secrets.json"], "it was taken along"
    assert ground.place.read_values() is values


@pytest.mark.slow
def test_what_is_too_large_is_reported_with_the_setting(ground: Ground) -> None:
    content = b"1,2\n" * 100
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(content).hexdigest()}\nsize 400\n"
    (ground.user.root / "large.bin").write_text(pointer)
    (ground.user.root / ".gitattributes").write_text("*.bin filter=lfs\n")
    commit_paths(ground.user, "large", paths=["large.bin", ".gitattributes"])
    (ground.user.root / "large.bin").write_bytes(content)
    (ground.user.root / "db.sqlite").write_text("data" * 100)
    ground.include("*.sqlite")
    ground.limit(CopyLimits(size_bytes=300))
    ground.place.begin()
    then = "To have copies: raise run_tree_copy_mb and run_tree_copy_files in .cdd/config.yaml."
    assert ground.said == [
        f"Not in the run tree, because they are too large: db.sqlite. {then}",
        f"Only pointers of Git LFS in the run tree: large.bin. {then}",
    ]
    ground.place.can_mount = True
    ground.place.begin()
    assert ground.said[2:] == [f"Read-only for programs, because they are too large to copy: db.sqlite. {then}"]
    assert list(ground.place.mounted) == [ground.user.root / "db.sqlite"]
    ground.limit(CopyLimits())
    ground.place.begin()
    assert list(ground.place.mounted) == []
    assert (ground.place.tree.root / "large.bin").read_bytes() == content


def end(exit_status: int, output: str = "") -> Result:
    return Result(exit_status=exit_status, head=output, dropped_bytes=0, timed_out=False, duration_s=0, level="none")


def test_the_setup_runs_in_prepared_files_and_changes_nothing_that_is_committed(ground: Ground) -> None:
    (ground.user.root / "db.sqlite").write_text("data")
    ground.include("*.sqlite")
    found = []

    def set_up() -> Result:
        root = ground.place.tree.root
        found.append((root / "db.sqlite").read_text())
        (root / "made.sqlite").write_text("made")
        (root / "ten.txt").write_text("changed")
        (root / "other.txt").unlink()
        ground.place.tree.git("commit", ("--quiet", "-a", "-m"), "setup")
        return end(0)

    ground.place.setup = set_up
    tip = ground.place.begin()
    assert (ground.place.tree.read_head(), ground.place.tree.git("status", ("--porcelain",))) == (tip, "")
    assert (ground.place.tree.root / "made.sqlite").read_text() == "made"
    ground.place.begin()
    assert found == ["data", "data"]
    ground.place.prepared = tip
    (ground.place.tree.root / "ten.txt").write_text("changed by a test")
    assert ground.place.begin() == tip
    assert found == ["data", "data"], "the files are ready"
    assert (ground.place.tree.root / "ten.txt").read_text() == TEN
    ground.place.prepared = tip
    ground.edit("other", "by the user", path="other.txt")
    commit_paths(ground.user, "of the user", paths=["other.txt"])
    ground.place.begin()
    assert found == ["data", "data", "data"], "but not for another commit"
    ground.place.setup = lambda: end(3, "no make here")
    with pytest.raises(EnvironmentMissing, match="worktree_setup ended with 3:\nno make here"):
        ground.place.begin()


@pytest.mark.slow
def test_what_the_run_commits_on_the_head_of_the_user_lands_as_it_is(ground: Ground) -> None:
    tip = ground.place.begin()
    made = ground.run("line 9", "by the run")
    ground.edit("line 0", "by the user")
    assert ground.land(made, tip=tip) == made == ground.head()
    assert (ground.user.root / "ten.txt").read_text() == TEN.replace("line 9", "by the run").replace(
        "line 0", "by the user"
    )
    assert "by the user" not in ground.show("HEAD")
    assert ground.place.follow(made, made=made, tip=tip) == made
    assert ground.said == ["In your work tree, cdd merged its changes of ten.txt with yours, which stay uncommitted."]


def test_changes_that_are_taken_along_are_in_the_tree_and_in_no_commit(ground: Ground) -> None:
    ground.edit("line 0", "by the user")
    (ground.user.root / "new.txt").write_text("new of the user\n")
    (ground.user.root / "tickets").mkdir()
    (ground.user.root / "tickets" / "plan.md").write_text("plan\n")
    ground.place.carries = True
    tip = ground.place.begin()
    assert "by the user" in (ground.place.tree.root / "ten.txt").read_text()
    assert (ground.place.tree.root / "new.txt").exists()
    assert not (ground.place.tree.root / "tickets").exists()
    made = ground.run("line 9", "by the run")
    commit = ground.land(made, tip=tip)
    assert commit != made
    assert ground.head() == commit
    assert ground.show("HEAD") == TEN.replace("line 9", "by the run")
    assert ground.user.git("log", ("-1", "--format=%an %s"), commit).strip() == "Ann the run"
    assert ground.user.git("log", ("-1", "--format=%(trailers:key=Handoff-Id,valueonly)"), commit).strip() == "1"
    assert "new.txt" in ground.user.list_uncommitted()
    text = (ground.user.root / "ten.txt").read_text()
    assert ("by the user" in text, "by the run" in text) == (True, True)
    tip = ground.place.follow(commit, made=made, tip=tip)
    assert (ground.place.tree.root / "ten.txt").read_text() == text
    made = ground.run("line 8", "by the run again")
    commit = ground.land(made, tip=tip)
    assert ground.show("HEAD") == TEN.replace("line 9", "by the run").replace("line 8", "by the run again")


def test_what_builds_on_lines_that_are_not_committed_does_not_land(ground: Ground) -> None:
    ground.edit("line 0", "by the user")
    ground.place.carries = True
    tip = ground.place.begin()
    made = ground.run("by the user", "by the run")
    why = r"ten\.txt: the run changed lines of it that differ in your branch"
    with pytest.raises(LandingConflict, match=why) as told:
        ground.place.adapt(made, tip=tip)
    assert ground.head() == ground.base
    assert f"waits: git show {made[:10]}" in told.value.happened
    assert told.value.hint.startswith("commit your changes")


@pytest.mark.slow
def test_what_the_user_committed_to_the_same_lines_is_a_reason_to_restart(ground: Ground) -> None:
    tip = ground.place.begin()
    made = ground.run("line 0", "by the run")
    ground.edit("line 0", "by the user")
    commit_paths(ground.user, "of the user", paths=["ten.txt"])
    with pytest.raises(LandingConflict) as told:
        ground.place.adapt(made, tip=tip)
    assert "--retry" in told.value.hint


def test_a_branch_that_moved_gets_the_commit_on_top(ground: Ground) -> None:
    tip = ground.place.begin()
    made = ground.run("line 9", "by the run")
    ground.edit("other", "by the user", path="other.txt")
    theirs = commit_paths(ground.user, "of the user", paths=["other.txt"])
    with pytest.raises(BranchMoved):
        ground.place.land(made, made=made, tip=tip)
    commit = ground.land(made, tip=tip)
    assert ground.user.git("rev-parse", f"{commit}^").strip() == theirs
    assert (ground.user.root / "other.txt").read_text() == "by the user\n"
    assert ground.place.follow(commit, made=made, tip=tip) == commit
    assert (ground.place.tree.root / "other.txt").read_text() == "by the user\n"


@pytest.mark.slow
def test_a_file_that_the_user_moved_is_changed_where_it_is_now(ground: Ground) -> None:
    tip = ground.place.begin()
    made = ground.run("line 9", "by the run")
    ground.user.git("mv", "ten.txt", "moved.txt")
    ground.user.git("commit", ("--quiet", "-m"), "moved")
    ground.edit("line 0", "being edited", path="moved.txt")
    commit = ground.land(made, tip=tip)
    expected = TEN.replace("line 9", "by the run")
    assert (ground.head(), ground.show(commit, "moved.txt")) == (commit, expected)
    assert (ground.user.root / "moved.txt").read_text() == expected.replace("line 0", "being edited")
    assert not (ground.user.root / "ten.txt").exists()


def test_a_landed_commit_is_taken_back_and_the_changes_of_the_user_stay(ground: Ground) -> None:
    tip = ground.place.begin()
    commit = ground.land(ground.run("line 9", "by the run"), tip=tip)
    ground.edit("line 0", "by the user")
    ground.place.take_back(commit, base=ground.base)
    assert ground.head() == ground.base
    assert (ground.user.root / "ten.txt").read_text() == TEN.replace("line 0", "by the user")


def test_a_head_that_a_program_moved_is_restored(ground: Ground) -> None:
    tip = ground.place.begin()
    ground.run("line 9", "by a program")
    ground.place.restore_head(tip)
    assert ground.place.tree.read_head() == tip
    assert ground.place.tree.list_uncommitted() == ("ten.txt",)


@soak_after(
    2,
    ("number", "text"),
    [(0, "<<<<<<< yours\nby the user\n"), (1, "by the user\n"), (2, "by the run\n")],
    ids=["merge", "mine", "theirs"],
)
def test_the_user_decides_about_lines_that_both_changed(ground: Ground, *, number: int, text: str) -> None:
    asked: list[str] = []

    def choose(question: str, choices: tuple[str, ...]) -> int:
        asked.append(question)
        assert choices[number].startswith(("merge", "mine", "theirs")[number])
        return number

    ground.place.choose = choose
    tip = ground.place.begin()
    made = ground.run("line 0", "by the run")
    ground.edit("line 0", "by the user")
    ground.land(made, tip=tip)
    assert "ten.txt: you changed the same lines" in asked[0]
    assert (ground.user.root / "ten.txt").read_text().startswith(text)
    assert "by the run" in ground.show("HEAD")


def test_later_changes_nothing(ground: Ground) -> None:
    ground.place.choose = lambda _, choices: len(choices) - 1
    tip = ground.place.begin()
    made = ground.run("line 0", "by the run")
    ground.edit("line 0", "by the user")
    with pytest.raises(LandingConflict):
        ground.land(made, tip=tip)
    assert ground.head() == ground.base
    assert (ground.user.root / "ten.txt").read_text().startswith("by the user")


@pytest.mark.slow
def test_a_second_commit_of_a_run_holds_only_its_own_files(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "project")
    ground.place.begin()
    first, tree = ground.run("line 1\n", "line one\n"), ground.place.tree
    (tree.root / "more.txt").write_text("more\n")
    blob = tree.git("hash-object", ("-w",), "more.txt").strip()
    second = commit_paths(tree, "more", paths=["more.txt"], entries={"more.txt": Entry("100644", blob)})
    assert tree.objects.compare(first, second).keys() == {"more.txt"}
    assert commit_paths(tree, "the same", paths=["more.txt"], entries={"more.txt": Entry("100644", blob)}) == second
    (tree.root / "other.txt").write_text("staged by a test\n")
    tree.git("add", "other.txt")
    third = commit_paths(tree, "without", paths=["more.txt"], entries={"more.txt": None})
    assert tree.objects.compare(second, third).keys() == {"more.txt"}


def test_other_ignored_files_are_named_where_the_user_has_not_decided(ground: Ground) -> None:
    (ground.user.root / ".gitignore").write_text(".cdd/\n*.sqlite\ndata/\n*.log\n")
    commit_paths(ground.user, "rules", paths=[".gitignore"])
    (ground.user.root / "data").mkdir()
    for name in ("db.sqlite", "data/a.csv", "run.log"):
        (ground.user.root / name).write_text("mine")
    ground.place.begin()
    assert len(ground.said) == 1
    assert "no build made them: db.sqlite (1 file, 4 B), data/ (1 file, 4 B)." in ground.said[0]
    assert "echo /PATH >> " in ground.said[0]
    ground.said.clear()
    ground.place.has_decided = True
    ground.place._told.clear()
    ground.place.begin()
    assert ground.said == []
    failure = Failure(phase="call", kind="error", origin="project", exception="E", message="No such file: 'data/a.csv'")
    report = make_failed_report(failure)
    (told,) = ground.place.explain_missing(report, output="")
    assert told.startswith("t.py::test fails and names data/a.csv, which git ignores")
    assert told.endswith(f"echo /data/a.csv >> {ground.user.root}/.cdd/worktree-include && cdd trust")
    assert not [*ground.place.explain_missing(report, output="")], "the same failure is not searched again"


def test_what_no_list_can_add_is_explained_too(ground: Ground) -> None:
    for name in ("tool/.git", "tool/a.csv", "../shared.csv"):
        (ground.user.root / name).parent.mkdir(exist_ok=True)
        (ground.user.root / name).touch()
    ground.place.begin()
    output = "No such file: 'tool/a.csv'\nNo such file: '../shared.csv'"
    nested, outside = ground.place.explain_missing(None, output=output)
    assert nested.startswith("The run fails and names tool/a.csv, which belongs to tool, another repository")
    assert outside.startswith("The run fails and names ../shared.csv, which is outside of your repository")
