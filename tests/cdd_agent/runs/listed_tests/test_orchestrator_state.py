"""Where a run is taken up that HEAD has moved away from."""

import pytest

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.events import Notice
from cdd_agent.model.conversation import Turn
from cdd_agent.runs.feature import make_feature
from cdd_agent.runs.listed_tests import find_state
from cdd_agent.work.state import RunState, Status, StepKey, pending_steps, start_step
from cdd_agent.work.state_file import save_state
from tests.cdd_agent.runs.listed_tests.conftest import REQUEST, SLUG, TITLES, Runs, StoppedAfter, covered, plan
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project

NOW = "2026-01-31T12:00:00Z"
ONE = (f"plan: {TITLES[0]}", f"test: {TITLES[0]}", f"feat: {TITLES[0]}", "refactor: no changes needed")


def model(*turns: Turn | KeyboardInterrupt) -> ScriptedModel:
    return ScriptedModel(turns)


def test_a_run_of_which_nothing_is_there_begins(project: Project) -> None:
    feature = make_feature(project.folder, REQUEST)
    state = find_state(feature, context=project.context(model()), now="2026-01-31T12:00:00Z")
    assert (state.ticket_slug, state.status, dict(state.step_executions)) == (SLUG, Status.IN_PROGRESS, {})


@pytest.mark.slow
def test_commits_that_follow_a_completed_cycle_are_no_obstacle(stopped_after: StoppedAfter) -> None:
    runs = stopped_after(4)
    project = runs.project
    project.write({"more.txt": "mine\n"})
    project.git("add", "more.txt")
    project.git("commit", "-qm", "mine")
    scripted = model(*covered()[4:])
    assert runs.resume(scripted).status == Status.COMPLETED
    assert project.log == [*ONE, "mine", f"plan: {TITLES[1]}", f"test: {TITLES[1]}", "plan: complete, 2 of 2 tests"]
    assert any("notes" in event.text for event in project.seen if isinstance(event, Notice))


def test_on_a_branch_that_the_run_never_was_on_it_says_where_it_is(stopped_after: StoppedAfter) -> None:
    runs = stopped_after(1)
    project = runs.project
    project.git("switch", "-qc", "elsewhere", "HEAD~1")
    project.git("commit", "-q", "--allow-empty", "-m", "mine")
    with pytest.raises(UsageError, match="has no notes of the run") as caught:
        runs.resume(model())
    assert "git switch main" in caught.value.hint


@pytest.mark.slow
def test_work_that_a_hand_has_undone_is_planned_anew_from_the_commit_that_is_left(stopped_after: StoppedAfter) -> None:
    runs, turns = stopped_after(5), covered()
    project = runs.project
    project.git("reset", "-q", "--hard", "HEAD~3")
    scripted = model(*turns[2:])
    assert runs.resume(scripted).status == Status.COMPLETED
    assert project.log == [*ONE, f"plan: {TITLES[1]}", f"test: {TITLES[1]}", "plan: complete, 2 of 2 tests"]


@pytest.mark.slow
def test_before_anything_has_landed_a_commit_that_mends_what_was_in_the_way_is_no_obstacle(
    runs: Runs, project: Project
) -> None:
    project.write({"conftest.py": "import nothing_of_the_kind\n"})
    project.git("add", "conftest.py")
    project.git("commit", "-qm", "broken")
    with pytest.raises(EnvironmentMissing, match="cannot be run"):
        runs.begin(model(plan(1)))
    project.git("rm", "-q", "conftest.py")
    project.git("commit", "-qm", "mended")
    with pytest.raises(KeyboardInterrupt):
        runs.resume(model(plan(1), KeyboardInterrupt()))
    assert project.log == ["broken", "mended", ONE[0]]


def test_a_cycle_of_which_nothing_is_kept_begins_where_head_is_now(project: Project) -> None:
    feature, context = make_feature(project.folder, REQUEST), project.context(model())
    feature.save()
    key = StepKey(number=1, title="the next test", text_sha256="")
    fresh = RunState(ticket_slug=SLUG, started_at=NOW, step_executions=pending_steps((key,)))
    save_state(feature.ticket.state_path, start_step(fresh, key, now=NOW, base_commit=context.repository.read_head()))
    assert list(find_state(feature, context=context, now=NOW).step_executions) == [1]
    project.git("commit", "-q", "--allow-empty", "-m", "mine")
    assert list(find_state(feature, context=context, now=NOW).step_executions) == []
