"""Undo and redo move branch, state and exactly the files of the last step; files that the user has changed stay."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import RollbackPlanned
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.runs.back import Back, MovePlan
from cdd_agent.tickets.ticket import find
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, Status, replace_step
from cdd_agent.work.state_file import load_state, save_state
from tests.cdd_agent.runs.made_runs import Run
from tests.fakes.cases import soak_after
from tests.fakes.command_line import run_words
from tests.fakes.demo import SLUG
from tests.fakes.files import describe_files

SOURCE, TESTS = "durations/reading.py", "tests/test_reading.py"


@pytest.fixture
def back(finished: Path) -> Back:
    return Back.of_project(finished, emit=print)


def effects_of(plan: MovePlan) -> RollbackPlanned:
    assert plan.effects is not None
    return plan.effects


def state(project: Path) -> RunState:
    loaded = load_state(find(project, SLUG).state_path)
    assert loaded is not None
    return loaded


def subjects(project: Path) -> list[str]:
    return Repository.find(project).git("log", ("--format=%s",)).splitlines()


def git_status(project: Path) -> str:
    return Repository.find(project).git("status", ("--porcelain",))


def test_the_last_step_goes_and_comes_back(finished: Path, back: Back) -> None:
    assert "type /undo first" in back.suggest_undo()
    before, was, log = (
        describe_files(finished, leave_out=(".git", ".cdd", "tickets")),
        state(finished),
        subjects(finished),
    )
    plan = back.plan_step()
    assert [each.subject.partition(":")[0] for each in effects_of(plan).going][-1] == "test"
    assert {change.path for change in effects_of(plan).files} == {SOURCE, TESTS, f"tickets/{SLUG}/spec.yaml"}
    assert subjects(finished) == log
    back.go(plan)
    assert subjects(finished) == log[len(effects_of(plan).going) :]
    assert git_status(finished) == ""
    assert state(finished).execution(1).status == Status.PENDING
    back.checkpoints.prune(keep=0)
    again = back.plan_return()
    assert effects_of(again).coming == effects_of(plan).going
    assert effects_of(again).kept == effects_of(plan).kept
    back.go(again)
    assert subjects(finished) == log
    kept = Repository.find(finished).read_ref(effects_of(plan).kept)
    assert kept == Repository.find(finished).read_head() == effects_of(plan).source
    assert describe_files(finished, leave_out=(".git", ".cdd", "tickets")) == before
    assert state(finished) == was
    with pytest.raises(UsageError, match="nothing to undo or bring back here"):
        back.plan_return()


@pytest.mark.slow
def test_an_iteration_is_taken_back_alone(finished: Path, back: Back) -> None:
    repository, first = Repository.find(finished), state(finished).execution(1)
    head = repository.git("rev-parse", "HEAD").strip()
    (finished / SOURCE).write_text("# iterated\n")
    message = f"refactor: again\n\nTicket: {SLUG}\nPhase: REFACTOR\nStep: 1\nHandoff-Id: 0123456789abcdef\n"
    commit = commit_paths(repository, message, paths=[SOURCE])
    iterated = replace(first, commits={"refactor": commit}, base_commit=head, landed=first)
    save_state(find(finished, SLUG).state_path, replace_step(state(finished), iterated))
    plan = back.plan_step()
    assert [each.subject for each in effects_of(plan).going] == ["refactor: again"]
    back.go(plan)
    assert repository.git("rev-parse", "HEAD").strip() == head
    step = state(finished).execution(1)
    assert (step.status, step.base_commit) == (Status.COMPLETED, first.base_commit)
    assert set(step.commits.values()) == set(first.commits.values())
    back.go(back.plan_return())
    assert state(finished).execution(1) == iterated
    for _ in range(2):
        back.go(back.plan_step())
    assert repository.git("rev-parse", "HEAD").strip() == first.base_commit
    assert state(finished).execution(1).status == Status.PENDING


@soak_after(1, "stages", [False, True])
def test_a_file_that_the_user_has_changed_prevents_it(finished: Path, back: Back, stages: bool) -> None:
    with (finished / SOURCE).open("a") as file:
        file.write("# mine\n")
    if stages:
        Repository.find(finished).git("add", SOURCE)
    before = describe_files(finished, leave_out=(".git", ".cdd", "tickets"))
    with pytest.raises(UsageError, match=f"You have changed files that would move:\n  {SOURCE}\nNothing was touched"):
        back.plan_step()
    assert describe_files(finished, leave_out=(".git", ".cdd", "tickets")) == before


@pytest.mark.slow
def test_a_file_that_is_saved_after_the_preview_prevents_it_too(finished: Path, back: Back) -> None:
    plan, log = back.plan_step(), subjects(finished)
    with (finished / TESTS).open("a") as file:
        file.write("# a comment at the end merges, and is not merged\n")
    with pytest.raises(UsageError, match=TESTS):
        back.go(plan)
    assert subjects(finished) == log
    assert state(finished).execution(1).status == Status.COMPLETED


@pytest.mark.slow
def test_other_files_of_the_user_stay(finished: Path, back: Back) -> None:
    (finished / "notes.txt").write_text("mine\n")
    (finished / "README.md").write_text("mine, too\n")
    back.go(back.plan_step())
    assert git_status(finished) == " M README.md\n?? notes.txt\n"
    back.go(back.plan_return())
    assert (finished / "README.md").read_text() == "mine, too\n"


def test_the_hint_for_a_merge_can_be_typed_as_it_is(finished: Path, back: Back) -> None:
    repository = Repository.find(finished)
    repository.git(
        "merge",
        ("-q", "--no-ff", "-m"),
        "a merge",
        repository.git("commit-tree", ("-p",), "HEAD", ("-m",), "side", "HEAD^{tree}").strip(),
    )
    with pytest.raises(UsageError) as refused:
        back.plan_step()
    assert back.suggest_undo().endswith("so it stays. git revert -m 1 HEAD takes it back with a new commit.")
    command, _, _ = refused.value.hint.partition(" takes")
    assert command == "git revert -m 1 HEAD"
    run_words(repository, *command.split()[1:4], "--no-edit", "HEAD", "--no-commit")


def test_a_commit_of_the_user_is_not_undone_and_ends_the_redo(finished: Path, back: Back) -> None:
    back.go(back.plan_step())
    (finished / "notes.txt").write_text("mine\n")
    commit_paths(Repository.find(finished), "my notes", paths=["notes.txt"])
    with pytest.raises(UsageError, match="'my notes', is not of a step, so it stays"):
        back.plan_step()
    with pytest.raises(UsageError, match="The branch has moved since") as refused:
        back.plan_return()
    assert "git cherry-pick COMMIT" in refused.value.hint


@pytest.mark.slow
def test_a_kill_before_the_branch_moves_changes_nothing_and_one_after_it_is_made_good(finished: Path) -> None:
    log = subjects(finished)
    for stop, moved in (("refs/heads/", False), ("--no-quiet", True)):
        script = f"""
import os, sys
from pathlib import Path
from cdd_agent.git.repository import Repository
from cdd_agent.runs.back import Back, MovePlan
from cdd_agent.work.records import find_records
def kill(self, *arguments, **options):
    if any({stop!r} in str(each) for each in arguments) and "--git-path" not in arguments:
        os._exit(9)
    return run(self, *arguments, **options)
back = Back.of_project(Path({str(finished)!r}), emit=print)
plan = back.plan_step()
run, Repository.git = Repository.git, kill
back.go(plan)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 9, done.stderr
        back = Back.of_project(finished, emit=print)
        if moved:
            plan = back.plan_return()
            assert state(finished).execution(1).status == Status.PENDING
            back.go(plan)
        else:
            back.plan_step()
        assert git_status(finished) == ""
        assert subjects(finished) == log
        assert state(finished).execution(1).status == Status.COMPLETED


@pytest.mark.parametrize(
    ("text", "why"), [("{", "is damaged"), ('{"schema": 2}', "was written by a newer cdd: it has schema 2")]
)
def test_a_record_that_cannot_be_read_is_named(finished: Path, back: Back, *, text: str, why: str) -> None:
    folder = find_records(finished).folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "moves.json").write_text(text)
    with pytest.raises(UsageError, match=rf"moves\.json {why}"):
        back.plan_return()


def test_the_last_cycle_of_a_feature_goes_and_comes_back(run: Run) -> None:
    before = load_state(run.state_path)
    plan = run.back.plan_step()
    assert plan.move.what == "step 2 of tdd-calculator"
    assert len(effects_of(plan).going) == 4
    run.back.go(plan)
    assert run.repository.read_head() == run.commits["refactor 1"]
    then = load_state(run.state_path)
    assert then is not None
    assert list(then.step_executions) == [1]
    run.back.go(run.back.plan_return())
    assert run.repository.read_head() == run.commits["refactor 2"]
    assert load_state(run.state_path) == before


@pytest.mark.parametrize("number", ["9" * 5_000, "1234567890", "0", "1x"])
def test_a_commit_whose_number_no_step_has_is_not_of_a_step(begun: Run, number: str) -> None:
    message = f"feat: theirs\n\nTicket: {SLUG}\nStep: {number}\nHandoff-Id: h\n"
    (begun.root / "README.md").write_text("theirs\n")
    commit_paths(begun.repository, message, paths=["README.md"])
    with pytest.raises(UsageError, match="'feat: theirs', is not of a step, so it stays"):
        begun.back.plan_step()


def test_the_step_of_another_project_stays_and_the_error_says_where_to_undo_it(run: Run) -> None:
    (run.root / "other").mkdir()
    other = Back.of_project(run.root / "other", emit=print)
    with pytest.raises(UsageError, match="is a step of the project at the top of the repository, so it stays") as said:
        other.plan_step()
    assert said.value.hint == f"start cdd there: cd {run.root}; then type /undo"
    assert other.suggest_undo().endswith("then type /undo.")


def test_a_step_that_is_the_first_commit_stays(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    commit_paths(repository, "feat: a\n\nTicket: sale\nStep: 1\nHandoff-Id: h\n", paths=["a.txt"])
    with pytest.raises(UsageError, match="begins with the first commit of the repository"):
        Back.of_project(tmp_path, emit=print).plan_step()
