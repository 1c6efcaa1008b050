import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.events import Notice
from cdd_agent.git.repository import Repository
from cdd_agent.git.tree_store import REF, Checkpoints, TreeStore
from cdd_agent.runs.rollback import Rollbacks
from cdd_agent.tdd.locks import alone
from tests.cdd_agent.runs.made_runs import Run, history, work_tree

KILLED = 9
CHANGES = ("update-ref", "checkout-index", "reset")
"""The calls of git that change what somebody sees."""


def rollbacks_at(root: Path) -> tuple[Rollbacks, list[object]]:
    repository = Repository.find(root)
    events: list[object] = []
    return Rollbacks(repository=repository, snapshots=TreeStore(repository), root=root, emit=events.append), events


def seen(root: Path) -> object:
    """All that a rollback changes, but for the ids of what it made, which have the time in them.

    A kill right after the files were saved leaves their checkpoint, and nothing has changed.
    """
    repository = Repository.find(root)
    refs = repository.git("for-each-ref", ("--format=%(refname)",), "refs/cdd/checkpoints", "refs/heads", "refs/notes")
    return work_tree(root), history(repository), [ref for ref in refs.splitlines() if not REF.fullmatch(ref)]


def killed_before(change: int, do: Callable[[], object], *, root: Path) -> bool:
    """Whether a process that does it was ended right before its ``change``-th change, as by ``kill -9``."""
    child = os.fork()
    if child == 0:
        count = 0

        def look_on(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            told = arguments[1] if event == "subprocess.Popen" else ()
            by_git = isinstance(told, list) and not {"--index-info"} & set(told) and any(c in told for c in CHANGES)
            by_hand = event in ("os.remove", "os.rename") and str(arguments[0]).startswith(f"{root}/")
            if by_git or by_hand:
                count += 1
                if count == change:
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
    rollbacks, _ = rollbacks_at(root)
    with alone(rollbacks.repository):
        rollbacks.apply(rollbacks.plan("HEAD~5"))


def and_back(root: Path) -> None:
    rollbacks, _ = rollbacks_at(root)
    with alone(rollbacks.repository):
        rollbacks.apply(rollbacks.plan_undo())


EVERY = [(forth, 16), pytest.param(forth, 1, marks=pytest.mark.slow), pytest.param(and_back, 1, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("way", "step"), EVERY)
def test_a_kill_at_any_change_leaves_before_or_after_or_is_gone_on_with(
    way: Callable[[Path], None], step: int, *, run: Run, tmp_path: Path
) -> None:
    (run.root / "README.md").write_text("mine\n")
    (run.root / "mine.txt").write_text("mine\n")
    if way is and_back:
        forth(run.root)
    project, aside = run.root, tmp_path / "aside"
    shutil.copytree(project, aside, symlinks=True)
    before = seen(project)
    way(project)
    after = seen(project)
    ends = []
    for change in range(1, 100, step):
        shutil.rmtree(project)
        shutil.copytree(aside, project, symlinks=True)
        if not killed_before(change, lambda: way(project), root=project):
            break
        rollbacks, _ = rollbacks_at(project)
        with alone(rollbacks.repository):
            rollbacks.finish()
        assert not rollbacks.is_interrupted()
        found = seen(project)
        assert found in (before, after), change
        ends.append(found == after)
    assert len(ends) > 10 // step
    assert ends == sorted(ends)
    assert seen(project) == after


def cut_off(run: Run) -> tuple[Rollbacks, list[object]]:
    """A rollback to the first GREEN that was ended after some files were changed."""
    assert killed_before(5, lambda: forth(run.root), root=run.root)
    rollbacks, events = rollbacks_at(run.root)
    assert rollbacks.is_interrupted()
    return rollbacks, events


def test_what_changed_before_it_is_gone_on_with_is_kept(run: Run) -> None:
    rollbacks, events = cut_off(run)
    (run.root / "calc.py").write_text("mine, since\n")
    with alone(rollbacks.repository):
        rollbacks.finish()
    checkpoints = Checkpoints.of_repository(Repository.find(run.root), run.root).list_all()
    ref = checkpoints[-1].ref
    assert [each.about.label for each in checkpoints] == ["before the rollback", "before the rollback"]
    assert rollbacks.repository.git("show", f"{ref}:work/calc.py") == "mine, since\n"
    assert any(isinstance(event, Notice) and ref in event.text and "calc.py" in event.text for event in events)
    assert (run.root / "calc.py").read_text() == "# code up to 1\n"
    assert rollbacks.repository.read_head() == run.commits["green 1"]


@pytest.mark.slow
def test_a_branch_that_was_moved_meanwhile_is_left_alone(run: Run) -> None:
    rollbacks, events = cut_off(run)
    rollbacks.repository.git("update-ref", "HEAD", run.commits["plan 1"])
    with alone(rollbacks.repository):
        rollbacks.finish()
    assert rollbacks.repository.read_head() == run.commits["plan 1"]
    assert not rollbacks.is_interrupted()
    (told,) = events
    assert isinstance(told, Notice)
    assert "leaves the branch unchanged" in told.text
    assert "refs/cdd/abandoned/tdd-calculator/rollback-1" in told.text
    assert rollbacks.repository.git("for-each-ref", "refs/cdd/abandoned")


@pytest.mark.slow
def test_what_was_cut_off_in_one_work_tree_is_no_affair_of_another(run: Run, tmp_path: Path) -> None:
    rollbacks, _ = cut_off(run)
    other = tmp_path / "other"
    rollbacks.repository.git("worktree", "add", ("--quiet",), str(other), ("-b",), "other", run.commits["red 2"])
    elsewhere, events = rollbacks_at(other.resolve())
    elsewhere.finish_interrupted()
    assert (events, elsewhere.is_interrupted(), rollbacks.is_interrupted()) == ([], False, True)
    with alone(elsewhere.repository):
        elsewhere.apply(elsewhere.plan("HEAD~1"))
    assert elsewhere.repository.read_head() == run.commits["plan 2"]
    rollbacks.finish_interrupted()
    assert not rollbacks.is_interrupted()
    assert rollbacks.repository.read_head() == run.commits["green 1"]
    assert rollbacks.repository.list_uncommitted() == ()


def test_where_nothing_was_cut_off_nothing_is_done(run: Run) -> None:
    before = seen(run.root)
    with alone(run.rollbacks.repository):
        run.rollbacks.finish()
    assert seen(run.root) == before
    assert run.events == []
