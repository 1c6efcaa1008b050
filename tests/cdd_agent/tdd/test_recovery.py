from dataclasses import replace

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import Notice, RolledBack
from cdd_agent.tdd import recovery
from cdd_agent.tdd.context import Context
from cdd_agent.work.state import AttemptRecord, Status, StepExecution
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project


@pytest.fixture
def context(project: Project) -> Context:
    return project.context(ScriptedModel([]))


@pytest.fixture
def step(project: Project, context: Context) -> StepExecution:
    """Begun, with a file of the user's uncommitted."""
    project.write({"mine.txt": "mine\n"})
    fresh = project.start().execution(1)
    return replace(fresh, checkpoint=recovery.begin("sale", fresh, context=context))


def commit(project: Project, name: str) -> str:
    project.write({name: "x = 1\n"})
    project.git("add", name)
    project.git("commit", "--quiet", "-m", name)
    return project.git("rev-parse", "HEAD")


def test_history_goes_back_and_what_was_there_is_kept(project: Project, context: Context, step: StepExecution) -> None:
    wanted = recovery.position(project.repository)
    project.git("checkout", "--quiet", "-b", "elsewhere")
    project.git("checkout", "--quiet", "main")
    made = commit(project, "a.py")
    project.git("add", "mine.txt")
    project.git("update-index", "--skip-worktree", "prices.py")
    recovery.put_back(wanted, ticket="sale", step=step, context=context)
    assert recovery.position(project.repository) == wanted
    assert project.git("ls-files", "-v", "prices.py") == "S prices.py"
    assert (project.folder / "a.py").exists(), "files are not touched"
    (notice,) = project.seen
    assert isinstance(notice, Notice)
    assert project.git("rev-parse", notice.text.rpartition(" ")[2]) == made


def test_a_step_that_was_killed_is_known_whatever_number_an_edited_plan_gives_it(
    project: Project, context: Context, step: StepExecution
) -> None:
    at = recovery.note_position("sale", step, context=context)
    killed = recovery.killed_at("sale", replace(step, step_number=3), branch="main", context=context)
    assert killed is not None
    assert killed.index == at.index


def test_history_that_has_not_moved_is_left_alone(project: Project, context: Context, step: StepExecution) -> None:
    recovery.put_back(recovery.position(project.repository), ticket="sale", step=step, context=context)
    assert project.seen == []
    assert project.git("for-each-ref", "refs/cdd/attempts/") == ""


def test_an_interrupted_attempt_goes_back_to_the_checkpoint_and_each_is_kept(
    project: Project, context: Context, step: StepExecution
) -> None:
    for number in (1, 2):
        project.write({"prices.py": f"half done {number}\n", "half.py": ""})
        recovery.return_to_checkpoint("sale", step, at=None, context=context)
        assert project.status == "?? mine.txt"
    kept = [event.kept for event in project.seen if isinstance(event, RolledBack)]
    assert [project.git("show", f"{ref}:prices.py") for ref in kept] == ["half done 1", "half done 2"]


def test_nothing_is_kept_where_nothing_was_changed(project: Project, context: Context, step: StepExecution) -> None:
    recovery.return_to_checkpoint("sale", step, at=None, context=context)
    assert project.seen == []


def test_the_mark_of_a_killed_run_says_where_to_return_to(
    project: Project, context: Context, step: StepExecution
) -> None:
    assert recovery.killed_at("sale", step, branch="main", context=context) is None
    at = recovery.position(project.repository)
    recovery.mark_running("sale", step, at=at, context=context)
    assert recovery.killed_at("sale", step, branch="main", context=context) == at
    recovery.clear_mark("sale", step, context=context)
    assert recovery.killed_at("sale", step, branch="main", context=context) is None


def test_a_step_is_underway_while_there_is_something_to_lose(
    project: Project, context: Context, step: StepExecution
) -> None:
    assert not recovery.is_underway("sale", step, context=context), "nothing has come of it yet"
    tried = replace(step, attempts=(AttemptRecord(phase="red", number=1, verdict="closed"),))
    assert recovery.is_underway("sale", tried, context=context)
    assert not recovery.is_underway("sale", replace(tried, status=Status.FAILED), context=context)
    recovery.mark_running("sale", step, at=recovery.position(project.repository), context=context)
    assert recovery.is_underway("sale", step, context=context)


def test_a_phase_that_was_given_up_leaves_no_checkpoint_to_go_on_from(
    project: Project, context: Context, step: StepExecution
) -> None:
    green = context.snapshots.take("refs/cdd/checkpoints/sale/green", message="green")
    refused = context.snapshots.take("refs/cdd/checkpoints/sale/refused", message="refused")
    attempts = (
        AttemptRecord(phase="green", number=1, verdict="open", checkpoint=green.ref),
        AttemptRecord(phase="refactor", number=1, verdict="closed", checkpoint=refused.ref),
    )
    over = replace(step, attempts=attempts, commits={"green": "g", "refactor": "g"})
    assert recovery.last_checkpoint(over, context=context) == green
    at_work = replace(over, commits={"green": "g"})
    assert recovery.last_checkpoint(at_work, context=context) == refused


def test_undoing_takes_the_steps_commits_off_and_keeps_them(
    project: Project, context: Context, step: StepExecution
) -> None:
    red = commit(project, "tests/test_a.py")
    recovery.undo_step("sale", replace(step, commits={"red": red}), why="over", context=context)
    assert project.log == []
    assert project.status == "?? mine.txt"
    assert project.git("for-each-ref", "--format=%(objectname)", "refs/cdd/abandoned/") == red


def test_undoing_never_takes_somebody_elses_commit_off(project: Project, context: Context, step: StepExecution) -> None:
    red = commit(project, "tests/test_a.py")
    commit(project, "theirs.py")
    recovery.undo_step("sale", replace(step, commits={"red": red}), why="over", context=context)
    assert project.log == ["tests/test_a.py", "theirs.py"]
    assert any("somebody else's" in event.text for event in project.seen if isinstance(event, Notice))


def test_taking_a_step_back_refuses_to_run_over_a_persons_changes(
    project: Project, context: Context, step: StepExecution
) -> None:
    red = commit(project, "tests/test_a.py")
    tried = AttemptRecord(phase="red", number=1, verdict="open")
    underway = replace(step, attempts=(tried,), commits={"red": red})
    with pytest.raises(UsageError, match="Files were changed since step 1 was interrupted"):
        recovery.take_back("sale", underway, branch="main", why="anew", context=context)
    assert project.log == ["tests/test_a.py"]


def test_taking_a_step_back_after_a_commit_of_a_persons_takes_the_models_changes_along(
    project: Project, context: Context, step: StepExecution
) -> None:
    project.write({"half.py": "the model's\n"})
    tried = context.snapshots.take("refs/cdd/checkpoints/sale/red-1", message="red attempt 1")
    attempt = AttemptRecord(phase="red", number=1, verdict="closed", checkpoint=tried.ref)
    theirs = commit(project, "theirs.py")
    recovery.take_back("sale", replace(step, attempts=(attempt,)), branch="main", why="anew", context=context)
    assert project.status == "?? mine.txt"
    assert project.repository.head() == theirs
    kept = next(event.kept for event in project.seen if isinstance(event, RolledBack))
    assert project.git("show", f"{kept}:half.py") == "the model's"


def test_taking_a_step_back_after_a_commit_refuses_what_a_person_has_not_committed(
    project: Project, context: Context, step: StepExecution
) -> None:
    project.write({"half.py": "the model's\n"})
    tried = context.snapshots.take("refs/cdd/checkpoints/sale/red-1", message="red attempt 1")
    attempt = AttemptRecord(phase="red", number=1, verdict="closed", checkpoint=tried.ref)
    commit(project, "theirs.py")
    project.write({"half.py": "a person's\n"})
    with pytest.raises(UsageError, match=r"Files were changed since step 1 was interrupted:\n  half.py"):
        recovery.take_back("sale", replace(step, attempts=(attempt,)), branch="main", why="anew", context=context)
    assert (project.folder / "half.py").read_text() == "a person's\n"


def test_a_new_number_finds_no_checkpoint_of_the_step_that_had_it(context: Context, step: StepExecution) -> None:
    other = replace(step, base_commit="0" * 40, checkpoint=None)
    assert recovery.checkpoint_ref("sale", step, name="start") != recovery.checkpoint_ref("sale", other, name="start")
    recovery.begin("sale", other, context=context)
    assert context.snapshots.find(str(step.checkpoint)) is not None
