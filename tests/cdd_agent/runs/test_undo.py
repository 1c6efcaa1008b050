"""Undo and redo move branch, state and exactly the files of the last step; files that the user has changed stay."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.runs.undo import Undo
from cdd_agent.tickets.ticket import find
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, Status, replace_step
from cdd_agent.work.state_file import load_state, save_state
from tests.fakes.cases import soak_after
from tests.fakes.command_line import run_words
from tests.fakes.demo import SLUG
from tests.fakes.files import describe_files

SOURCE, TESTS = "durations/reading.py", "tests/test_reading.py"


@pytest.fixture
def undo(finished: Path) -> Undo:
    return Undo(Repository.find(finished), finished)


def state(project: Path) -> RunState:
    loaded = load_state(find(project, SLUG).state_path)
    assert loaded is not None
    return loaded


def subjects(project: Path) -> list[str]:
    return Repository.find(project).git("log", ("--format=%s",)).splitlines()


def git_status(project: Path) -> str:
    return Repository.find(project).git("status", ("--porcelain",))


def test_the_last_step_goes_and_comes_back(finished: Path, undo: Undo) -> None:
    assert "type /undo first" in undo.describe_way_back()
    before, was, log = (
        describe_files(finished, leave_out=(".git", ".cdd", "tickets")),
        state(finished),
        subjects(finished),
    )
    plan = undo.plan_undo()
    assert [each.subject.partition(":")[0] for each in plan.effects.going][-1] == "test"
    assert {change.path for change in plan.effects.files} == {SOURCE, TESTS, f"tickets/{SLUG}/spec.yaml"}
    assert subjects(finished) == log
    undo.apply(plan)
    assert subjects(finished) == log[len(plan.effects.going) :]
    assert git_status(finished) == ""
    assert state(finished).execution(1).status == Status.PENDING
    again = undo.plan_redo()
    assert again.effects.coming == plan.effects.going
    undo.apply(again)
    assert subjects(finished) == log
    assert describe_files(finished, leave_out=(".git", ".cdd", "tickets")) == before
    assert state(finished) == was
    with pytest.raises(UsageError, match="Nothing was undone"):
        undo.plan_redo()


@pytest.mark.slow
def test_an_iteration_is_taken_back_alone(finished: Path, undo: Undo) -> None:
    repository, first = Repository.find(finished), state(finished).execution(1)
    head = repository.git("rev-parse", "HEAD").strip()
    (finished / SOURCE).write_text("# iterated\n")
    message = f"refactor: again\n\nTicket: {SLUG}\nPhase: REFACTOR\nStep: 1\nHandoff-Id: 0123456789abcdef\n"
    commit = commit_paths(repository, message, paths=[SOURCE])
    iterated = replace(first, commits={"refactor": commit}, base_commit=head)
    save_state(find(finished, SLUG).state_path, replace_step(state(finished), iterated))
    plan = undo.plan_undo()
    assert [each.subject for each in plan.effects.going] == ["refactor: again"]
    undo.apply(plan)
    assert repository.git("rev-parse", "HEAD").strip() == head
    step = state(finished).execution(1)
    assert (step.status, step.base_commit) == (Status.COMPLETED, first.base_commit)
    assert set(step.commits.values()) == set(first.commits.values())
    undo.apply(undo.plan_redo())
    assert state(finished).execution(1) == iterated
    for _ in range(2):
        undo.apply(undo.plan_undo())
    assert repository.git("rev-parse", "HEAD").strip() == first.base_commit
    assert state(finished).execution(1).status == Status.PENDING


@soak_after(1, "stages", [False, True])
def test_a_file_that_the_user_has_changed_prevents_it(finished: Path, undo: Undo, stages: bool) -> None:
    with (finished / SOURCE).open("a") as file:
        file.write("# mine\n")
    if stages:
        Repository.find(finished).git("add", SOURCE)
    before = describe_files(finished, leave_out=(".git", ".cdd", "tickets"))
    with pytest.raises(UsageError, match=f"You have changed files that would move:\n  {SOURCE}\nNothing was touched"):
        undo.plan_undo()
    assert describe_files(finished, leave_out=(".git", ".cdd", "tickets")) == before


@pytest.mark.slow
def test_a_file_that_is_saved_after_the_preview_prevents_it_too(finished: Path, undo: Undo) -> None:
    plan, log = undo.plan_undo(), subjects(finished)
    with (finished / TESTS).open("a") as file:
        file.write("# a comment at the end merges, and is not merged\n")
    with pytest.raises(UsageError, match=TESTS):
        undo.apply(plan)
    assert subjects(finished) == log
    assert state(finished).execution(1).status == Status.COMPLETED


@pytest.mark.slow
def test_other_files_of_the_user_stay(finished: Path, undo: Undo) -> None:
    (finished / "notes.txt").write_text("mine\n")
    (finished / "README.md").write_text("mine, too\n")
    undo.apply(undo.plan_undo())
    assert git_status(finished) == " M README.md\n?? notes.txt\n"
    undo.apply(undo.plan_redo())
    assert (finished / "README.md").read_text() == "mine, too\n"


def test_the_hint_for_a_merge_can_be_typed_as_it_is(finished: Path, undo: Undo) -> None:
    repository = Repository.find(finished)
    repository.git(
        "merge",
        ("-q", "--no-ff", "-m"),
        "a merge",
        repository.git("commit-tree", ("-p",), "HEAD", ("-m",), "side", "HEAD^{tree}").strip(),
    )
    with pytest.raises(UsageError) as refused:
        undo.plan_undo()
    assert undo.describe_way_back().endswith("so it stays. git revert -m 1 HEAD takes it back with a new commit.")
    command, _, _ = refused.value.hint.partition(" takes")
    assert command == "git revert -m 1 HEAD"
    run_words(repository, *command.split()[1:4], "--no-edit", "HEAD", "--no-commit")


def test_a_commit_of_the_user_is_not_undone_and_ends_the_redo(finished: Path, undo: Undo) -> None:
    undo.apply(undo.plan_undo())
    (finished / "notes.txt").write_text("mine\n")
    commit_paths(Repository.find(finished), "my notes", paths=["notes.txt"])
    with pytest.raises(UsageError, match="'my notes', is not of a step, so it stays"):
        undo.plan_undo()
    with pytest.raises(UsageError, match="The branch has moved since") as refused:
        undo.plan_redo()
    assert "git cherry-pick COMMIT" in refused.value.hint


@pytest.mark.slow
def test_a_kill_before_the_branch_moves_changes_nothing_and_one_after_it_is_made_good(finished: Path) -> None:
    log = subjects(finished)
    for stop, moved in (("refs/heads/", False), ("--no-quiet", True)):
        script = f"""
import os, sys
from pathlib import Path
from cdd_agent.git.repository import Repository
from cdd_agent.runs.undo import Undo
from cdd_agent.work.records import find_records
def kill(self, *arguments, **options):
    if any({stop!r} in str(each) for each in arguments) and "--git-path" not in arguments:
        os._exit(9)
    return run(self, *arguments, **options)
undo = Undo(Repository.find(Path({str(finished)!r})), Path({str(finished)!r}))
plan = undo.plan_undo()
run, Repository.git = Repository.git, kill
undo.apply(plan)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 9, done.stderr
        undo = Undo(Repository.find(finished), finished)
        if moved:
            plan = undo.plan_redo()
            assert state(finished).execution(1).status == Status.PENDING
            undo.apply(plan)
        else:
            undo.plan_undo()
        assert git_status(finished) == ""
        assert subjects(finished) == log
        assert state(finished).execution(1).status == Status.COMPLETED


@pytest.mark.parametrize(
    ("text", "why"), [("{", "is damaged"), ('{"schema": 2}', "was written by a newer cdd: it has schema 2")]
)
def test_a_record_that_cannot_be_read_is_named(finished: Path, undo: Undo, *, text: str, why: str) -> None:
    folder = find_records(finished).folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "undone.json").write_text(text)
    with pytest.raises(UsageError, match=rf"undone\.json {why}"):
        undo.plan_redo()
