from dataclasses import replace

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import Notice, RolledBack
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.recovery import StepRecovery, checkpoint_ref, read_position
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
    return replace(fresh, checkpoint=StepRecovery("sale", fresh, context=context).begin())


def commit(project: Project, name: str) -> str:
    project.write({name: "x = 1\n"})
    project.git("add", name)
    project.git("commit", "--quiet", "-m", name)
    return project.git("rev-parse", "HEAD")


def test_history_goes_back_and_what_was_there_is_kept(project: Project, context: Context, step: StepExecution) -> None:
    wanted = read_position(project.repository)
    project.git("checkout", "--quiet", "-b", "elsewhere")
    project.git("checkout", "--quiet", "main")
    made = commit(project, "a.py")
    project.git("add", "mine.txt")
    project.git("update-index", "--skip-worktree", "prices.py")
    StepRecovery("sale", step, context=context).restore_position(wanted)
    assert read_position(project.repository) == wanted
    assert project.git("ls-files", "-v", "prices.py") == "S prices.py"
    assert (project.folder / "a.py").exists(), "files are not touched"
    (notice,) = project.seen
    assert isinstance(notice, Notice)
    assert project.git("rev-parse", notice.text.rpartition(" ")[2]) == made


def test_a_step_that_was_killed_is_known_whatever_number_an_edited_plan_gives_it(
    project: Project, context: Context, step: StepExecution
) -> None:
    at = StepRecovery("sale", step, context=context).checkpoints.mark_running()
    killed = StepRecovery("sale", replace(step, step_number=3), context=context).checkpoints.killed_position("main")
    assert killed is not None
    assert killed.index == at.index


def test_history_that_has_not_moved_is_left_alone(project: Project, context: Context, step: StepExecution) -> None:
    StepRecovery("sale", step, context=context).restore_position(read_position(project.repository))
    assert project.seen == []
    assert project.git("for-each-ref", "refs/cdd/attempts/") == ""


def test_an_interrupted_attempt_goes_back_to_the_checkpoint_and_each_is_kept(
    project: Project, context: Context, step: StepExecution
) -> None:
    for number in (1, 2):
        project.write({"prices.py": f"half done {number}\n", "half.py": ""})
        StepRecovery("sale", step, context=context).restore_checkpoint(None)
        assert project.status == "?? mine.txt"
    kept = [event.kept for event in project.seen if isinstance(event, RolledBack)]
    assert [project.git("show", f"{ref}:prices.py") for ref in kept] == ["half done 1", "half done 2"]


def test_nothing_is_kept_where_nothing_was_changed(project: Project, context: Context, step: StepExecution) -> None:
    StepRecovery("sale", step, context=context).restore_checkpoint(None)
    assert project.seen == []


def test_the_mark_of_a_killed_run_says_where_to_return_to(
    project: Project, context: Context, step: StepExecution
) -> None:
    assert StepRecovery("sale", step, context=context).checkpoints.killed_position("main") is None
    at = StepRecovery("sale", step, context=context).checkpoints.mark_running()
    assert StepRecovery("sale", step, context=context).checkpoints.killed_position("main") == at
    StepRecovery("sale", step, context=context).checkpoints.clear_mark()
    assert StepRecovery("sale", step, context=context).checkpoints.killed_position("main") is None


def test_a_step_is_underway_while_there_is_something_to_lose(
    project: Project, context: Context, step: StepExecution
) -> None:
    assert not StepRecovery("sale", step, context=context).is_underway(), "nothing has come of it yet"
    tried = replace(step, attempts=(AttemptRecord(phase="red", number=1, verdict="closed"),))
    assert StepRecovery("sale", tried, context=context).is_underway()
    assert not StepRecovery("sale", replace(tried, status=Status.FAILED), context=context).is_underway()
    StepRecovery("sale", step, context=context).checkpoints.mark_running()
    assert StepRecovery("sale", step, context=context).is_underway()


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
    assert StepRecovery("sale", over, context=context).checkpoints.find_last() == green
    at_work = replace(over, commits={"green": "g"})
    assert StepRecovery("sale", at_work, context=context).checkpoints.find_last() == refused


def test_undoing_takes_the_steps_commits_off_and_keeps_them(
    project: Project, context: Context, step: StepExecution
) -> None:
    red = commit(project, "tests/test_a.py")
    StepRecovery("sale", replace(step, commits={"red": red}), context=context).undo(why="over")
    assert project.log == []
    assert project.status == "?? mine.txt"
    assert project.git("for-each-ref", "--format=%(objectname)", "refs/cdd/abandoned/") == red


def test_undoing_never_takes_somebody_elses_commit_off(project: Project, context: Context, step: StepExecution) -> None:
    red = commit(project, "tests/test_a.py")
    commit(project, "theirs.py")
    StepRecovery("sale", replace(step, commits={"red": red}), context=context).undo(why="over")
    assert project.log == ["tests/test_a.py", "theirs.py"]
    assert any("did not make" in event.text for event in project.seen if isinstance(event, Notice))


def test_taking_a_step_back_refuses_to_run_over_a_persons_changes(
    project: Project, context: Context, step: StepExecution
) -> None:
    red = commit(project, "tests/test_a.py")
    tried = AttemptRecord(phase="red", number=1, verdict="open")
    underway = replace(step, attempts=(tried,), commits={"red": red})
    with pytest.raises(UsageError, match="Files were changed since step 1 was interrupted"):
        StepRecovery("sale", underway, context=context).undo_if_underway(branch="main", why="anew")
    assert project.log == ["tests/test_a.py"]


def test_taking_a_step_back_after_a_commit_of_a_persons_takes_the_models_changes_along(
    project: Project, context: Context, step: StepExecution
) -> None:
    project.write({"half.py": "the model's\n"})
    tried = context.snapshots.take("refs/cdd/checkpoints/sale/red-1", message="red attempt 1")
    attempt = AttemptRecord(phase="red", number=1, verdict="closed", checkpoint=tried.ref)
    theirs = commit(project, "theirs.py")
    StepRecovery("sale", replace(step, attempts=(attempt,)), context=context).undo_if_underway(
        branch="main", why="anew"
    )
    assert project.status == "?? mine.txt"
    assert project.repository.read_head() == theirs
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
        StepRecovery("sale", replace(step, attempts=(attempt,)), context=context).undo_if_underway(
            branch="main", why="anew"
        )
    assert (project.folder / "half.py").read_text() == "a person's\n"


def test_a_new_number_finds_no_checkpoint_of_the_step_that_had_it(context: Context, step: StepExecution) -> None:
    other = replace(step, base_commit="0" * 40, checkpoint=None)
    assert checkpoint_ref("sale", step, name="start") != checkpoint_ref("sale", other, name="start")
    StepRecovery("sale", other, context=context).begin()
    assert context.snapshots.find(str(step.checkpoint)) is not None
