"""Every move can be undone: an undo restores branch, index, files, permissions and states."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdd_agent.errors import UsageError
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.tree_store import Description
from cdd_agent.runs.back import Back, MovePlan
from cdd_agent.work.records import find_records
from cdd_agent.work.state import Status, Usage, end_step, record_usage
from cdd_agent.work.state_file import load_state
from tests.cdd_agent.runs.made_runs import Run, copied, history, own_files, work_tree

COMMITS = tuple(f"{phase} {cycle}" for cycle in (1, 2) for phase in ("plan", "red", "green", "refactor"))
MOVES = (*COMMITS, "step", "restore", "rewind", "undo", "redo")


def observe(run: Run) -> object:
    """Return all that a move changes: the user's files with their permissions, HEAD, branch, index, and the state."""
    files = {name: about for name, about in work_tree(run.root).items() if not name.startswith((".git/", ".cdd/"))}
    folders = [str(path) for path in run.root.rglob("*") if path.is_dir() and not {".git", ".cdd"} & {*path.parts}]
    return files, sorted(folders), history(run.repository), load_state(run.state_path)


def plan(back: Back, move: str, *, run: Run) -> MovePlan:
    match move:
        case "step":
            return back.plan_step()
        case "restore":
            return back.plan_files(back.checkpoints.find("start"))
        case "rewind":
            return back.plan_rewind(back.checkpoints.find("start"))
        case "undo" | "redo":
            return back.plan_return(is_redo=move == "redo")
    return back.plan_commit(run.commits[move])


def check_moves(run: Run, moves: list[str]) -> int:
    """Make those of the moves that are possible, each undo and redo checked against what was seen before."""
    done, undone, made = list[object](), list[object](), 0
    for move in moves:
        before = observe(run)
        try:
            run.back.go(plan(run.back, move, run=run))
        except UsageError:  # as there is nothing to undo, or the commit is not part of the branch
            assert observe(run) == before
            continue
        made += 1
        match move:
            case "undo":
                assert observe(run) == done.pop()
                undone.append(before)
            case "redo":
                assert observe(run) == undone.pop()
                done.append(before)
            case _:
                done, undone = [*done, before], []
    while done:
        run.back.go(run.back.plan_return())
        assert observe(run) == done.pop()
    return made


def prepare(run: Run) -> None:
    """Let the user have changes of every kind, and a checkpoint of some of them."""
    own_files(run)
    (run.root / "calc.py").chmod(0o600)
    run.back.checkpoints.create(Description(kind="manual", name="start"))
    (run.root / "later.txt").write_bytes(b"later\r\n")
    (run.root / "new.txt").unlink()
    (run.root / "empty" / "folder").mkdir(parents=True)


def test_an_undo_leads_back_from_every_kind_of_point(run: Run) -> None:
    moves = ["green 2", "undo", "redo", "restore", "red 1", "undo", "undo", "redo", "rewind", "undo"]
    prepare(run)
    assert check_moves(run, moves) == len(moves)


def test_a_return_restores_what_was_left_whatever_was_committed_and_decided(run: Run) -> None:
    prepare(run)
    run.repository.git("switch", ("--quiet", "--create"), "side", run.commits["red 2"])  # the state is that of main
    commit_paths(run.repository, "docs: mine", paths=["private.txt"])
    before = observe(run)
    run.back.go(run.back.plan_commit(run.commits["red 1"]))
    state = load_state(run.state_path)
    assert state is not None
    run.save(end_step(state, 1, status=Status.SKIPPED, now="t", error="not now"))
    (run.root / "since.txt").write_text("since\n")
    commit_paths(run.repository, "docs: since", paths=["since.txt"])
    then = observe(run)
    for is_redo, expected in ((False, before), (True, then), (False, before)):
        run.back.go(run.back.plan_return(is_redo=is_redo))
        assert observe(run) == expected


def test_undo_and_redo_in_turns_leave_the_log_as_long_as_it_was(run: Run) -> None:
    run.back.checkpoints.create(Description(kind="manual", name="start"))
    before = observe(run)
    run.back.go(run.back.plan_commit("HEAD~2"))
    run.back.go(run.back.plan_files(run.back.checkpoints.find("start")))
    log = find_records(run.root).folder / "moves.json"
    size = len(json.loads(log.read_bytes())["moves"])
    for moves in (["undo", "redo"], ["undo", "undo", "redo", "undo", "redo", "redo"]):
        for move in moves:
            run.back.go(plan(run.back, move, run=run))
            assert run.back.is_undone() == (move == "undo")
        assert len(json.loads(log.read_bytes())["moves"]) == size
    kept = [path.name for path in (log.parent / "undone").iterdir()]
    for move in ("undo", "undo"):
        run.back.go(plan(run.back, move, run=run))
    assert observe(run) == before
    assert len(kept) == 1  # a restore keeps no records of runs


def test_what_was_spent_since_a_move_stays_spent_after_the_return(run: Run) -> None:
    run.back.go(run.back.plan_commit(run.commits["red 1"]))
    state, spent = load_state(run.state_path), Usage(calls=1, input_tokens=10)
    assert state is not None
    run.save(record_usage(state, 1, step=spent, ticket=spent))
    run.back.go(run.back.plan_return())
    state = load_state(run.state_path)
    assert state is not None
    assert (state.usage, state.execution(1).usage, state.execution(1).status) == (spent, spent, Status.COMPLETED)


def test_a_switch_of_the_branch_after_the_preview_prevents_a_move(run: Run) -> None:
    planned = run.back.plan_commit(run.commits["red 1"])
    run.repository.git("switch", ("--quiet", "--create"), "other")
    before = observe(run)
    with pytest.raises(UsageError, match=r"on other, but the rollback to .* on main\. Nothing was changed"):
        run.back.go(planned)
    assert observe(run) == before
    assert run.repository.read_ref("refs/heads/main") == run.commits["refactor 2"]
    assert run.back.checkpoints.list_all() == ()


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(st.sampled_from(MOVES), min_size=1, max_size=8))
def test_undo_and_redo_lead_back_after_any_moves(
    made: Run, tmp_path_factory: pytest.TempPathFactory, *, moves: list[str]
) -> None:
    run = copied(made, tmp_path_factory.mktemp("moves") / "project")
    prepare(run)
    check_moves(run, moves)


def test_a_restore_whose_checkpoint_was_deleted_does_not_hide_the_moves_before_it(run: Run) -> None:
    run.back.checkpoints.create(Description(kind="manual", name="start"))
    run.back.go(run.back.plan_commit("HEAD~1"))
    (run.root / "README.md").write_text("mine\n")
    lost = run.back.go(run.back.plan_files(run.back.checkpoints.find("start")))
    run.back.checkpoints.delete([lost])
    run.events.clear()
    planned = run.back.plan_return()
    assert planned.move.what.startswith("the rollback to ")
    run.back.go(planned)
    assert run.repository.read_head() == run.commits["refactor 2"]
    (notice,) = run.events
    assert "cannot return to before the restore of checkpoint 1 any more" in str(notice)


def test_an_undo_says_before_it_is_made_what_a_deleted_checkpoint_costs_or_a_renamed_branch(run: Run) -> None:
    run.back.checkpoints.delete([run.back.go(run.back.plan_commit("HEAD~1"))])
    run.events.clear()
    run.back.plan_return()
    assert "differ in permissions and line ends" in str(run.events)
    run.repository.git("branch", ("-m",), "renamed")
    with pytest.raises(UsageError, match="on the branch main, which was renamed or deleted") as said:
        run.back.plan_return()
    assert said.value.hint.startswith("if renamed is the same branch: git branch -m main;")


def test_a_restore_can_be_undone_after_the_project_was_moved(begun: Run) -> None:
    begun.back.checkpoints.create(Description(kind="manual", name="start"))
    (begun.root / "README.md").write_text("mine\n")
    begun.back.go(begun.back.plan_files(begun.back.checkpoints.find("start")))
    moved = begun.root.rename(begun.root.with_name("moved"))
    back = Back.of_project(moved, emit=print)
    assert len(back.checkpoints.list_all()) == 2
    back.go(back.plan_return())
    assert (moved / "README.md").read_text() == "mine\n"


def test_a_pipe_in_the_place_of_a_file_is_named_with_what_moves_it_away(begun: Run) -> None:
    start = begun.back.checkpoints.create(Description(kind="manual", name="start"))
    (begun.root / "README.md").unlink()
    os.mkfifo(begun.root / "README.md")
    for refused in (begun.back.checkpoints.create, lambda: begun.back.plan_files(start)):
        with pytest.raises(UsageError, match=r"^README\.md: a socket, a pipe or a device has taken the place") as said:
            refused()
        assert said.value.hint == "move it away: mv README.md README.md.aside; then the same again"


def test_a_folder_that_nobody_may_write_in_prevents_a_move_before_it_begins(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.root / "tests" / "mine.txt").write_text("mine\n")
    start = run.back.checkpoints.create(Description(kind="manual", name="start"))
    (run.root / "README.md").write_text("later\n")
    (run.root / "tests" / "mine.txt").unlink()
    before, folder, may = observe(run), run.root / "tests", os.access

    def can_access(path: Path, mode: int, *, effective_ids: bool = False) -> bool:
        return path != folder and may(path, mode, effective_ids=effective_ids)

    monkeypatch.setattr(os, "access", can_access)  # root may write in every folder
    for planned in (run.back.plan_files(start), run.back.plan_commit(run.commits["red 1"])):
        with pytest.raises(UsageError, match=f"cdd may not write in its folder: chmod u.wx {folder}"):
            run.back.go(planned)
    assert observe(run) == before
    assert not run.back.is_interrupted()


def test_a_restore_changes_no_file_that_was_not_shown(begun: Run) -> None:
    start = begun.back.checkpoints.create(Description(kind="manual", name="start"))
    (begun.root / "README.md").write_text("mine\n")
    planned = begun.back.plan_files(start)
    (begun.root / "new.txt").write_text("saved since\n")
    with pytest.raises(UsageError, match=r"since the plan was shown: new\.txt\. Nothing was changed"):
        begun.back.go(planned)
    assert (begun.root / "README.md").read_text() == "mine\n"
    assert begun.back.checkpoints.list_all() == (start,)
