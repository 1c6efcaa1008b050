import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import Notice
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.landing import LandingWaits
from cdd_agent.git.repository import Repository
from cdd_agent.git.tree_store import REF, Description
from cdd_agent.runs.back import Back, Move
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state_file import load_state
from tests.cdd_agent.runs.made_runs import RECORDS, Run, history, work_tree

KILLED = 9
CHANGES = ("update-ref", "update-index", "checkout-index", "reset")
"""The calls of git that change what somebody sees."""
LOG = (".cdd/", *(f"{RECORDS}{name}" for name in ("moves.json", ".moves.json", "undone/")))
MOVES = ("os.remove", "os.rename", "os.link", "os.chmod", "os.mkdir", "os.rmdir", "open")


def at(root: Path) -> tuple[Back, list[object]]:
    events: list[object] = []
    return Back.of_project(root, emit=events.append), events


def seen(root: Path) -> tuple[object, ...]:
    """All that a move changes, but for the ids of what it made, which have the time in them.

    A kill right after the files were saved leaves their checkpoint, and nothing has changed.
    """
    repository = Repository.find(root)
    refs = repository.git("for-each-ref", ("--format=%(refname)",), "refs/cdd/checkpoints", "refs/heads", "refs/notes")
    files = {name: about for name, about in work_tree(root).items() if not name.startswith(LOG)}
    steps = [ref for ref in refs.splitlines() if not REF.fullmatch(ref)]
    return files, history(repository), steps, what_returns(root)


def compare(one: tuple[object, ...], other: tuple[object, ...]) -> list[object]:
    return [(a, b) for a, b in zip(one, other, strict=True) if a != b]


def what_returns(root: Path) -> object:
    """The move that an undo would undo."""
    back, _ = at(root)
    try:
        plan = back.plan_return()
    except UsageError as error:
        return error.happened
    return plan.move.what, plan.move.turn


def killed_before(change: int | str, do: Callable[[], object], *, root: Path) -> bool:
    """Whether a process that does it was ended right before its ``change``-th change, as by ``kill -9``.

    A text is a part of the path that changes then.
    """
    child = os.fork()
    if child == 0:
        count = 0

        def look_on(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            told = arguments[1] if event == "subprocess.Popen" else ()
            by_git = isinstance(told, list) and any(c in told for c in CHANGES)
            by_hand = event in MOVES and str(arguments[0]).startswith(f"{root}/")
            if event == "open":
                by_hand = by_hand and isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
            if by_git or by_hand:
                count += 1
                if count == change or (isinstance(change, str) and change in str(arguments[0])):
                    os._exit(KILLED)

        sys.addaudithook(look_on)
        try:
            do()
        except BaseException:  # noqa: BLE001 (nothing of the test's may go on in the child)
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, KILLED)
    return status == KILLED


def forth(root: Path) -> None:
    back, _ = at(root)
    back.go(back.plan_commit("HEAD~5"))


def and_back(root: Path) -> None:
    back, _ = at(root)
    back.go(back.plan_return())


def restore(root: Path) -> None:
    back, _ = at(root)
    back.go(back.plan_files(back.checkpoints.find("start")))


def rewind(root: Path) -> None:
    back, _ = at(root)
    back.go(back.plan_rewind(back.checkpoints.find("start")))


def every(*ways: Callable[[Path], None]) -> list[object]:
    return [pytest.param(way, 1, marks=pytest.mark.slow) for way in ways]


EVERY = [(forth, 24), (restore, 12), *every(forth, and_back, restore, rewind)]


@pytest.mark.parametrize(("way", "step"), EVERY)
def test_a_kill_at_any_change_leaves_before_or_after_or_is_gone_on_with(
    way: Callable[[Path], None], step: int, *, run: Run, tmp_path: Path
) -> None:
    run.back.checkpoints.create(Description(kind="manual", name="start"))
    (run.root / "README.md").write_text("mine\n")
    (run.root / "mine.txt").write_text("mine\n")
    (run.root / "calc.py").chmod(0o600)
    (run.root / "empty").mkdir()
    if way is and_back:
        forth(run.root)
    if way is rewind:
        run.cycle(3)
    project, aside = run.root, tmp_path / "aside"
    shutil.copytree(project, aside, symlinks=True)
    before = seen(project)
    way(project)
    after = seen(project)
    assert after != before
    ends = []
    for change in range(1, 200, step):
        shutil.rmtree(project)
        shutil.copytree(aside, project, symlinks=True)
        if not killed_before(change, lambda: way(project), root=project):
            break
        back, _ = at(project)
        back.finish()
        assert not back.is_interrupted()
        found = seen(project)
        assert found in (before, after), (change, compare(found, before), compare(found, after))
        ends.append(found == after)
    assert len(ends) > 20 // step
    assert ends == sorted(ends)
    assert seen(project) == after


def cut_off(run: Run) -> tuple[Back, list[object]]:
    """A rollback to the first GREEN that was ended after some files were changed."""
    assert killed_before("landing/removed-", lambda: forth(run.root), root=run.root)
    back, events = at(run.root)
    assert back.is_interrupted()
    return back, events


def test_what_changed_before_it_is_gone_on_with_is_kept(run: Run) -> None:
    back, events = cut_off(run)
    (run.root / "test_calc.py").write_text("mine, since\n")
    back.finish()
    assert any(isinstance(event, Notice) and "test_calc.py" in event.text for event in events)
    assert (run.root / "test_calc.py").read_text() == "mine, since\n"
    assert (run.root / "calc.py").read_text() == "# code up to 1\n"
    assert back.repository.read_head() == run.commits["green 1"]
    assert back.checkpoints.list_all()[-1].about.label == "before the rollback"


def test_a_move_waits_for_its_branch_if_the_user_switches_meanwhile(run: Run) -> None:
    run.repository.git("branch", "side")
    back, events = cut_off(run)
    run.repository.git("switch", ("--quiet", "--discard-changes"), "side")
    for command in (back.finish, back.plan_return, back.plan_step):
        with pytest.raises(LandingWaits, match=r"moved the branch main, whose .* HEAD is on side now") as said:
            command()
    assert said.value.hint.startswith("git switch main; then run the same command again")
    run.repository.git("switch", ("--quiet",), "main")
    assert back.plan_return().move.what.startswith("the rollback to ")
    assert [event.text.partition(":")[0] for event in events if isinstance(event, Notice)] == [
        "Finished what was interrupted"
    ]
    state = load_state(run.state_path)
    assert state is not None
    assert list(state.execution(1).commits) == ["plan", "red", "green"]
    assert run.repository.list_uncommitted() == ()


@pytest.mark.slow
def test_a_move_is_finished_on_a_new_branch_at_the_same_commit(run: Run) -> None:
    back, _ = cut_off(run)
    run.repository.git("switch", ("--quiet", "--create"), "side")
    back.finish()
    assert not back.is_interrupted()
    assert run.repository.list_uncommitted() == ()
    assert (run.root / "calc.py").read_text() == "# code up to 1\n"
    run.repository.git("switch", ("--quiet",), "main")
    assert back.plan_return().move.what.startswith("the rollback to ")


class KilledAtEnd(Back):
    """Is killed between the landing and the last line of the log."""

    def _end(self, move: Move, runs: Iterable[Ticket]) -> None:
        raise KeyboardInterrupt


def test_a_move_whose_end_was_not_logged_is_made_although_head_is_elsewhere(run: Run) -> None:
    back = KilledAtEnd.of_project(run.root, emit=run.events.append)
    with pytest.raises(KeyboardInterrupt):
        back.go(back.plan_commit(run.commits["red 1"]))
    run.repository.git("switch", ("--quiet", "--create"), "side", run.commits["red 2"])
    run.back.finish()
    assert [str(event) for event in run.events if "has moved since" in str(event)] == []
    run.repository.git("switch", ("--quiet",), "main")
    run.back.go(run.back.plan_return())
    assert run.repository.read_head() == run.commits["refactor 2"]
    assert load_state(run.state_path) == run.state


def test_a_restore_whose_end_was_not_logged_can_be_undone_although_files_changed_since(begun: Run) -> None:
    begun.back.checkpoints.create(Description(kind="manual", name="start"))
    (begun.root / "README.md").write_text("mine\n")
    back = KilledAtEnd.of_project(begun.root, emit=begun.events.append)
    with pytest.raises(KeyboardInterrupt):
        back.go(back.plan_files(back.checkpoints.find("start")))
    (begun.root / "new.txt").write_text("saved since\n")
    begun.back.go(begun.back.plan_return())
    assert (begun.root / "README.md").read_text() == "mine\n"


@pytest.mark.slow
def test_a_branch_that_was_moved_meanwhile_is_left_alone(run: Run) -> None:
    back, events = cut_off(run)
    back.repository.git("update-ref", "HEAD", run.commits["plan 1"])
    back.finish()
    assert back.repository.read_head() == run.commits["plan 1"]
    assert not back.is_interrupted()
    (told,) = events
    assert isinstance(told, Notice)
    assert "the branch has moved since: cdd leaves it" in told.text
    number = back.checkpoints.list_all()[-1].number
    assert told.text.endswith(f"cdd checkpoint restore {number}")
    assert back.repository.read_ref(f"refs/cdd/undone/{run.commits['refactor 2'][:12]}") == run.commits["refactor 2"]


@pytest.mark.slow
def test_what_was_cut_off_in_one_work_tree_is_no_affair_of_another(run: Run, tmp_path: Path) -> None:
    back, _ = cut_off(run)
    other = tmp_path / "other"
    back.repository.git("worktree", "add", ("--quiet",), str(other), ("-b",), "other", run.commits["red 2"])
    elsewhere, events = at(other.resolve())
    elsewhere.finish()
    assert (events, elsewhere.is_interrupted(), back.is_interrupted()) == ([], False, True)
    elsewhere.go(elsewhere.plan_commit("HEAD~1"))
    assert elsewhere.repository.read_head() == run.commits["plan 2"]
    back.finish()
    assert not back.is_interrupted()
    assert back.repository.read_head() == run.commits["green 1"]
    assert back.repository.list_uncommitted() == ()


@pytest.mark.slow
def test_the_state_follows_although_the_user_has_committed_since(run: Run) -> None:
    back, _ = cut_off(run)
    (run.root / "mine.txt").write_text("mine\n")
    mine = commit_paths(run.repository, "mine", paths=["mine.txt"])
    back.finish()
    assert back.repository.read_head() == mine
    assert back.repository.list_uncommitted() == ()
    state = load_state(run.state_path)
    assert state is not None
    assert list(state.execution(1).commits) == ["plan", "red", "green"]


def test_where_nothing_was_cut_off_nothing_is_done(run: Run) -> None:
    before = seen(run.root)
    run.back.finish()
    assert seen(run.root) == before
    assert run.events == []
