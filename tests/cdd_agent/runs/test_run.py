"""The run over sources of every kind: its events and its state, whatever ends it."""

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import Event, RunFinished, RunStarted
from cdd_agent.runs.feature import make_feature
from cdd_agent.runs.listed_tests import ListedTests
from cdd_agent.runs.run import Run
from cdd_agent.work.state import RunState, Status
from tests.fakes.clock import FakeClock
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project


def make_run(project: Project, *, clock: FakeClock) -> Run[ListedTests]:
    feature = make_feature(project.folder, "A sale")
    source = ListedTests(feature, repository=project.repository, project=project.folder)
    return Run(source, context=project.context(ScriptedModel(())), clock=clock)


def finish(run: Run[ListedTests], status: Status) -> None:
    run.state = RunState(ticket_slug="sale", started_at="2026-01-31T12:00:00Z", status=status)


def names(seen: list[Event]) -> list[str]:
    return [event.status if isinstance(event, RunFinished) else type(event).__name__ for event in seen]


def test_it_begins_with_what_is_to_be_known_and_ends_with_the_status_it_has(project: Project) -> None:
    clock = FakeClock()
    run = make_run(project, clock=clock)
    with run.running():
        finish(run, Status.COMPLETED)
        clock.sleep(7.0)
    started, finished = project.seen
    assert isinstance(started, RunStarted)
    assert isinstance(finished, RunFinished)
    assert (started.workflow, finished.status, finished.duration_s) == ("tdd", "completed", 7.0)


def run_into(run: Run[ListedTests], error: BaseException) -> None:
    with run.running():
        finish(run, Status.FAILED)
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_run_that_an_error_ends_is_finished_too(project: Project, error: type[BaseException]) -> None:
    with pytest.raises(error):
        run_into(make_run(project, clock=FakeClock()), error())
    assert names(project.seen) == ["RunStarted", "failed"]


def test_a_state_that_cannot_be_kept_leaves_the_run_in_progress(project: Project) -> None:
    run = make_run(project, clock=FakeClock())
    with pytest.raises(UsageError, match="cannot be read"):
        run_into_folder(run)
    assert names(project.seen) == ["RunStarted", "in_progress"]


def run_into_folder(run: Run[ListedTests]) -> None:
    with run.running():
        run.ticket.state_path.mkdir()
        finish(run, Status.FAILED)
