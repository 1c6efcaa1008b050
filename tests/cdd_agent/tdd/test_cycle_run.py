"""What is told of a run, whatever ends it."""

import pytest

from cdd_agent.events import Event, Notice, RunFinished, RunStarted
from cdd_agent.tdd.cycle import Workflow, WorkflowRun
from cdd_agent.work.state import RunState, Status
from tests.fakes.clock import FakeClock
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project


def state(status: Status) -> RunState:
    return RunState(ticket_slug="sale", started_at="2026-01-31T12:00:00Z", status=status)


def make_run(workflow: Workflow, project: Project, *, clock: FakeClock) -> WorkflowRun:
    context, path = project.context(ScriptedModel(())), project.folder / "state.json"
    return WorkflowRun(workflow, state(Status.IN_PROGRESS), path=path, context=context, clock=clock, meter=None)


def names(seen: list[Event]) -> list[str]:
    return [event.status if isinstance(event, RunFinished) else type(event).__name__ for event in seen]


def test_it_begins_with_what_is_to_be_known_and_ends_with_the_status_it_has(project: Project) -> None:
    clock = FakeClock()
    run = make_run("tdd", project, clock=clock)
    with run.report(("mind the hooks",), settle=lambda: run.save(state(Status.COMPLETED))):
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
    with pytest.raises(error), run.report((), settle=lambda: run.save(state(Status.FAILED))):
        raise error
    assert names(project.seen) == ["RunStarted", "failed"]


def test_a_state_that_cannot_be_kept_leaves_the_run_in_progress(project: Project) -> None:
    def full() -> None:
        raise OSError("No space left on device")

    run = make_run("green", project, clock=FakeClock())
    with pytest.raises(OSError, match="No space"), run.report((), settle=full):
        pass
    assert names(project.seen) == ["RunStarted", "in_progress"]
