"""A rollback to a commit of a run: what goes, what stays, and how it is undone."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git.commits import commit_aside, commit_paths
from cdd_agent.git.notes import survey_notes
from cdd_agent.git.run_tree import RunTrees
from cdd_agent.git.tree_store import TreeStore
from cdd_agent.runs.feature import find_latest
from cdd_agent.runs.history import read_reachable_notes
from cdd_agent.storage import private_folder
from cdd_agent.tdd.locks import alone
from cdd_agent.tdd.step import StepRefs, landed_head, snapshot_ref
from cdd_agent.work.outcome import Closed
from cdd_agent.work.records import find_records
from cdd_agent.work.state import Status, StepExecution, StepKey, pending_steps
from cdd_agent.work.state_file import lines_path, load_state, save_state
from tests.cdd_agent.runs.made_runs import SLUG, Run, back, history, own_files, refused, undo, work_tree
from tests.fakes.cases import soak_after


def checkpoints_of(run: Run, step: StepExecution) -> StepRefs:
    return StepRefs(ticket=SLUG, step=step, repository=run.repository, snapshots=run.snapshots)


def read_state(run: Run) -> object:
    return load_state(run.state_path)


def test_branch_files_and_index_are_as_the_commit_has_them(run: Run) -> None:
    target = run.commits["refactor 1"]
    back(run, target)
    assert run.repository.read_head() == target
    assert run.repository.read_branch() == "main"
    assert run.repository.list_uncommitted() == ()
    assert run.repository.git("write-tree") == run.repository.git("rev-parse", f"{target}^{{tree}}")
    assert not (run.root / "tests" / "data2.txt").exists()
    assert (run.root / "calc.py").read_text() == "# code up to 1\n"


@pytest.mark.slow
def test_a_folder_that_only_held_what_goes_is_gone(run: Run) -> None:
    back(run, run.commits["plan 1"])
    assert not (run.root / "tests").exists()


@pytest.mark.slow
@pytest.mark.parametrize("spell", [str, lambda commit: commit[:9], lambda _: "HEAD~4", lambda _: "there"])
def test_the_commit_may_be_named_in_any_way(spell: Callable[[str], str], run: Run) -> None:
    run.repository.git("tag", "there", run.commits["refactor 1"])
    back(run, spell(run.commits["refactor 1"]))
    assert run.repository.read_head() == run.commits["refactor 1"]


def test_every_name_of_a_commit_leads_to_it(run: Run) -> None:
    target = run.commits["refactor 1"]
    run.repository.git("tag", "there", target)
    plans = [run.back.plan_commit(name) for name in (target, target[:9], "HEAD~4", "there")]
    found = [plan.effects for plan in plans if plan.effects is not None]
    assert [len(effects.going) for effects in found] == [4] * 4
    assert len({effects.going for effects in found}) == 1


def test_what_went_stays_reachable_and_keeps_its_notes(run: Run) -> None:
    notes = run.repository.git("notes", ("--ref=tdd-handoffs",), "list")
    kept = back(run, run.commits["red 1"])
    run.repository.git("reflog", "expire", ("--expire=now", "--all"))
    run.repository.git("gc", ("--quiet", "--prune=now"))
    assert run.repository.git("rev-parse", kept).strip() == run.commits["refactor 2"]
    assert run.repository.git("notes", ("--ref=tdd-handoffs",), "list") == notes
    assert survey_notes(run.repository).damages == ()
    assert [entry.commit for entry in read_reachable_notes(run.repository).entries] == [
        run.commits["red 1"],
        run.commits["plan 1"],
    ]


# Where one cannot go.


def test_a_commit_that_head_does_not_come_from_names_the_nearest_one(run: Run) -> None:
    run.repository.git("branch", "other", run.commits["refactor 1"])
    run.repository.git("switch", ("--quiet",), "other")
    (run.root / "other.txt").write_text("x")
    other = commit_paths(run.repository, "other", paths=["other.txt"])
    run.repository.git("switch", ("--quiet",), "main")
    error = refused(run, other)
    assert f"{other[:10]} is not part of main" in error.happened
    assert f"cdd tdd rollback {run.commits['refactor 1'][:10]}" in error.hint
    assert "cycle 1, REFACTOR" in error.hint


@pytest.mark.slow
def test_a_commit_without_a_note_names_the_nearest_one(run: Run) -> None:
    (run.root / "by_hand.txt").write_text("x")
    by_hand = commit_paths(run.repository, "docs: by hand", paths=["by_hand.txt"])
    error = refused(run, by_hand)
    assert "has no handoff note" in error.happened
    assert f"rollback {run.commits['refactor 2'][:10]}" in error.hint
    first = run.repository.git("rev-list", ("--max-parents=0",), "HEAD").strip()
    assert f"rollback {run.commits['plan 1'][:10]}" in refused(run, first).hint


@soak_after(
    2,
    ("name", "words"),
    [
        ("HEAD", "HEAD is at .* already"),
        ("nowhere", "'nowhere' does not name a commit"),
        ("HEAD~999", "goes back further"),
        ("--all", "does not name a commit"),
        ("HEAD~1; rm", "does not name a commit"),
    ],
)
def test_names_that_lead_nowhere_are_told(name: str, words: str, run: Run) -> None:
    assert re.search(words, refused(run, name).happened)


def test_on_no_branch_and_in_the_middle_of_a_merge_nothing_goes_back(run: Run) -> None:
    run.repository.git("checkout", ("--quiet", "--detach"))
    assert "on no branch" in refused(run, "HEAD~1").happened
    run.repository.git("switch", ("--quiet",), "main")
    (run.root / ".git" / "MERGE_HEAD").write_text(f"{run.commits['red 1']}\n")
    assert "a merge is in progress" in refused(run, "HEAD~1").happened


def test_while_somebody_works_in_the_repository_nothing_goes_back(run: Run) -> None:
    with alone(run.repository), pytest.raises(UsageError, match="already in progress"):
        back(run, "HEAD~1")
    assert run.repository.read_head() == run.commits["refactor 2"]


# The run's own state.


@pytest.mark.slow
def test_between_two_cycles_the_later_ones_are_forgotten(run: Run) -> None:
    back(run, run.commits["refactor 1"])
    state = load_state(run.state_path)
    assert state is not None
    assert list(state.step_executions) == [1]
    assert state.execution(1).status == Status.COMPLETED
    assert (state.status, state.current_step) == (Status.IN_PROGRESS, None)
    assert (run.state_path.parent / "request.md").read_text() == "A calculator."


@pytest.mark.slow
def test_a_run_with_more_steps_than_one_file_holds_goes_back_too(run: Run) -> None:
    later = pending_steps(StepKey(number=number, title="Later", text_sha256="a") for number in range(3, 60))
    run.save(replace(run.state, step_executions={**run.state.step_executions, **later}))
    assert lines_path(run.state_path).exists()
    back(run, run.commits["refactor 1"])
    state = load_state(run.state_path)
    assert state is not None
    assert list(state.step_executions) == [1, *later]
    undo(run)
    assert read_state(run) == run.state


@soak_after(1, ("name", "landed"), [("plan 2", ["plan"]), ("red 2", ["plan", "red"]), ("green 1", None)])
def test_in_the_middle_of_a_cycle_it_goes_on_with_the_next_phase(name: str, landed: list[str] | None, run: Run) -> None:
    (run.root / "README.md").write_text("mine\n")
    cycle = int(name[-1])
    back(run, run.commits[name])
    state = load_state(run.state_path)
    assert state is not None
    step = state.execution(cycle)
    assert list(state.step_executions) == list(range(1, cycle + 1))
    assert (state.current_step, step.status) == (cycle, Status.IN_PROGRESS)
    assert list(step.commits) == (landed or ["plan", "red", "green"])
    assert {attempt.phase for attempt in step.attempts} == set(step.commits)
    assert run.repository.list_uncommitted() == ("README.md",)
    # A cycle without checkpoints prepares its files anew, from the commit to which the run went back.
    checkpoints = checkpoints_of(run, step)
    assert landed_head(step) == step.base_commit == run.repository.read_head()
    assert (checkpoints.find_last(), checkpoints.read_tip()) == (None, None)


@pytest.mark.slow
def test_the_run_of_the_commit_is_the_one_that_continues(run: Run) -> None:
    later = find_records(run.root).folder / "runs" / "tdd-later"
    later.mkdir()
    (later / "request.md").write_text("More.")
    save_state(
        later / "execution-state.json", replace(run.state, ticket_slug="tdd-later", base_commit=run.commits["green 2"])
    )
    earlier = find_records(run.root).folder / "runs" / "tdd-earlier"
    earlier.mkdir()
    (earlier / "request.md").write_text("Less.")
    kept = work_tree(later)
    back(run, run.commits["refactor 1"])
    found = find_latest(run.root)
    assert found is not None
    assert found.slug == SLUG
    assert work_tree(later) == kept


@soak_after(0, "content", [None, b"{", b'{"schema": 99}'])
def test_a_state_that_cannot_be_read_stays_as_it_is(content: bytes | None, run: Run) -> None:
    run.state_path.unlink()
    if content is not None:
        run.state_path.write_bytes(content)
    back(run, run.commits["red 2"])
    assert run.repository.read_head() == run.commits["red 2"]
    undo(run)
    assert (run.state_path.read_bytes() if content is not None else None) == content
    assert len(run.events) == (0 if content is None else 2)


def test_what_no_attempt_has_saved_counts_as_the_users_and_stays(begun: Run) -> None:
    run = begun
    run.cycle(1, until="RED")
    (run.root / "calc.py").write_text("half\n")
    back(run, run.commits["plan 1"])
    assert run.repository.list_uncommitted() == ("calc.py",)
    assert (run.root / "calc.py").read_text() == "half\n"
    point = run.back.checkpoints.list_all()[-1]
    assert run.repository.git("show", f"{point.files}:calc.py") == "half\n"


@soak_after(0, "carries", [False, True])
def test_what_an_interrupted_phase_left_in_a_run_tree_concerns_no_file_of_the_users(
    begun: Run, *, carries: bool
) -> None:
    run = begun
    run.cycle(1)
    (run.root / "README.md").write_text("mine\n")
    run.cycle(2, until="RED")
    tree = RunTrees(run.repository, private_folder(run.root) / "worktrees").tree(SLUG)
    taken = ["README.md"] if carries else []
    tree.reset(commit_aside(run.repository, taken, parent=run.commits["red 2"], message="tip"))
    TreeStore(tree.repository).take(str(run.step.checkpoint), message="start")
    (tree.root / "calc.py").write_text("half\n")
    (tree.root / "draft.py").write_text("half\n")
    ref = snapshot_ref(SLUG, run.step, name="green-1")
    TreeStore(tree.repository).take(ref, message="attempt")
    step = run.step
    attempt = replace(step.attempts[-1], phase="green", outcome=Closed(), checkpoint=ref)
    run.keep(replace(step, attempts=(*step.attempts, attempt), phase="green"))
    back(run, run.commits["refactor 1"])
    assert run.repository.list_uncommitted() == ("README.md",)
    assert (run.root / "README.md").read_text() == "mine\n"
    assert (run.root / "calc.py").read_text() == "# code up to 1\n"


# Undoing.


def test_undo_brings_everything_back_and_can_be_undone(run: Run) -> None:
    own_files(run)
    before, state = files_of(run), read_state(run)
    refs = run.repository.git("for-each-ref", "refs/cdd/checkpoints", "refs/notes", "refs/heads")
    past = history(run.repository)
    back(run, run.commits["red 1"])
    gone, gone_past, gone_state = files_of(run), history(run.repository), read_state(run)
    undo(run)
    assert files_of(run) == before
    assert history(run.repository) == past
    assert read_state(run) == state
    kept = run.repository.git("for-each-ref", "refs/cdd/checkpoints", "refs/notes", "refs/heads")
    assert set(refs.splitlines()) <= set(kept.splitlines())
    undo(run)
    assert history(run.repository) == gone_past
    assert read_state(run) == gone_state
    assert files_of(run) == gone


def files_of(run: Run) -> dict[str, tuple[int, bytes | str]]:
    """The files of the user, with their permissions."""
    return {name: about for name, about in work_tree(run.root).items() if not name.startswith((".git/", ".cdd/"))}


@pytest.mark.slow
def test_commits_made_after_a_rollback_go_with_its_undoing_and_are_kept(run: Run) -> None:
    back(run, run.commits["refactor 1"])
    (run.root / "other.txt").write_text("x")
    other = commit_paths(run.repository, "docs: since", paths=["other.txt"])
    undo(run)
    assert run.repository.read_head() == run.commits["refactor 2"]
    assert not (run.root / "other.txt").exists()
    assert run.repository.git("rev-parse", f"refs/cdd/undone/{other[:12]}").strip() == other
    undo(run)
    assert run.repository.read_head() == other
    assert (run.root / "other.txt").read_text() == "x"


def test_undo_minds_what_was_changed_since(run: Run) -> None:
    back(run, run.commits["refactor 1"])
    (run.root / "calc.py").write_text("mine\n")
    with pytest.raises(UsageError, match=r"  calc\.py\n"):
        undo(run)


def test_where_nothing_was_rolled_back_nothing_is_undone(run: Run) -> None:
    with pytest.raises(UsageError, match="nothing to undo or bring back here"):
        undo(run)


def test_the_state_follows_across_a_merge(run: Run) -> None:
    before = read_state(run)
    run.repository.git("switch", ("--quiet", "--create"), "side")
    run.cycle(3)
    run.repository.git("switch", ("--quiet",), "main")
    run.repository.git("merge", ("--quiet", "--no-ff", "-m"), "take the side over", "side")
    after = read_state(run)
    back(run, run.commits["refactor 2"])
    then = load_state(run.state_path)
    assert then is not None
    assert replace(then, beyond=()) == before
    undo(run)
    assert read_state(run) == after


@pytest.mark.slow
def test_what_a_sparse_checkout_omits_stays_omitted(run: Run) -> None:
    run.repository.git("sparse-checkout", "set", ("--no-cone",), "/calc.py", "/.gitignore")
    files, index = files_of(run), run.repository.git("ls-files", ("-t", "--stage"))
    back(run, run.commits["green 1"])
    assert (run.root / "calc.py").read_text() == "# code up to 1\n"
    undo(run)
    assert files_of(run) == files
    assert run.repository.git("ls-files", ("-t", "--stage")) == index


def test_a_branch_that_moves_after_the_preview_ends_the_move(run: Run) -> None:
    plan = run.back.plan_commit("HEAD~2")
    run.repository.git("commit", ("--quiet", "--allow-empty", "-m"), "since")
    with pytest.raises(UsageError, match="HEAD is at"):
        run.back.go(plan)
    assert not run.back.is_interrupted()
    run.back.finish()
    assert run.events == []


def test_a_move_that_only_refs_name_is_neither_finished_nor_undone(run: Run) -> None:
    head = run.commits["refactor 2"]
    for ref in (f"undone/{run.commits['plan 1'][:12]}", f"abandoned/{SLUG}/rollback-1", f"checkpoints/{SLUG}/9"):
        run.repository.git("update-ref", f"refs/cdd/{ref}", run.commits["plan 1"])
    run.back.finish()
    with pytest.raises(UsageError, match="nothing to undo or bring back here") as caught:
        undo(run)
    assert f"git log refs/cdd/abandoned/{SLUG}/rollback-1^" in caught.value.hint
    assert run.repository.read_head() == head


@pytest.mark.slow
def test_undo_on_another_branch_names_the_right_one(run: Run) -> None:
    kept = back(run, run.commits["refactor 1"])
    run.repository.git("switch", ("--quiet", "--create"), "other")
    with pytest.raises(UsageError, match="made on the branch main") as caught:
        undo(run)
    assert "git switch main" in caught.value.hint
    assert f"git log {kept.rpartition('/')[2][:10]}" in caught.value.hint


# The look before.


def test_the_look_tells_commits_files_and_what_comes_next(run: Run) -> None:
    run.repository.git("update-ref", "refs/remotes/origin/main", run.commits["plan 2"])
    effects = run.back.plan_commit(run.commits["refactor 1"]).effects
    assert effects is not None
    assert [each.commit for each in effects.going] == [
        run.commits[f"{p} 2"] for p in ("refactor", "green", "red", "plan")
    ]
    assert effects.going[-1].subject == "plan: subtracts"
    assert {(change.path, change.kind) for change in effects.files} == {
        ("calc.py", "modified"),
        ("test-list.md", "modified"),
        ("test_calc.py", "modified"),
        ("tests/data2.txt", "deleted"),
    }
    assert (effects.pushed, effects.next, effects.coming) == (1, "PLAN", ())
