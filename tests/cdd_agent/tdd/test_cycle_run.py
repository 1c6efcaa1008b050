"""What is told of a run, whatever ends it."""

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import Event, Notice, RunFinished, RunStarted
from cdd_agent.tdd.workflow_run import Workflow, WorkflowRun
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state import RunState, Status
from tests.fakes.clock import FakeClock
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project


def state(status: Status) -> RunState:
    return RunState(ticket_slug="sale", started_at="2026-01-31T12:00:00Z", status=status)


def make_run(workflow: Workflow, project: Project, *, clock: FakeClock) -> WorkflowRun:
    ticket = Ticket(slug="sale", folder=project.folder / "run")
    return WorkflowRun(workflow, ticket, context=project.context(ScriptedModel(())), clock=clock, meter=None)


def names(seen: list[Event]) -> list[str]:
    return [event.status if isinstance(event, RunFinished) else type(event).__name__ for event in seen]


def test_it_begins_with_what_is_to_be_known_and_ends_with_the_status_it_has(project: Project) -> None:
    clock = FakeClock()
    run = make_run("tdd", project, clock=clock)
    with run.report(("mind the hooks",), is_open_ended=True):
        run.state = state(Status.COMPLETED)
        clock.sleep(7.0)
    started, remark, finished = project.seen
    assert isinstance(started, RunStarted)
    assert isinstance(remark, Notice)
    assert isinstance(finished, RunFinished)
    assert (started.workflow, remark.text, finished.status, finished.duration_s) == (
        "tdd",
        "mind the hooks",
        "completed",
        7.0,
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_run_that_an_error_ends_is_finished_too(project: Project, error: type[BaseException]) -> None:
    run = make_run("exec", project, clock=FakeClock())
    run.state = state(Status.FAILED)
    with pytest.raises(error), run.report((), is_open_ended=True):
        raise error
    assert names(project.seen) == ["RunStarted", "failed"]


def test_a_state_that_cannot_be_kept_leaves_the_run_in_progress(project: Project) -> None:
    run = make_run("green", project, clock=FakeClock())
    (project.folder / "run").write_text("a file in place of the folder")
    with pytest.raises(UsageError, match="cannot be read"), run.report(()):
        run.state = state(Status.FAILED)
    assert names(project.seen) == ["RunStarted", "in_progress"]
