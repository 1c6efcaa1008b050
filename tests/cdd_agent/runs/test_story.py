"""The report of a run whose state and journal are written by hand."""

from cdd_agent import events
from cdd_agent.events import Event
from cdd_agent.review import Comments
from cdd_agent.runs.places import locate_run
from cdd_agent.runs.story import load_story
from cdd_agent.work.journal import Journal, journal_path
from cdd_agent.work.outcome import Open
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepExecution
from cdd_agent.work.state_file import save_state
from tests.fakes.clock import FakeClock
from tests.fakes.project import Project

NOW = "2026-01-31T12:00:00Z"


def judged(phase: str, step: int) -> tuple[Event, Event]:
    return (
        events.AttemptStarted(phase=phase, number=1, limit=3, step=step),
        events.GateJudged(phase=phase, attempt=1, open=True, reasons=(), evidence=""),
    )


def test_the_choice_of_a_test_belongs_to_the_cycle_that_it_begins(project: Project) -> None:
    run = locate_run(project.folder, "tdd-sum")
    opened = (
        AttemptRecord(phase="plan", number=1, outcome=Open()),
        AttemptRecord(phase="red", number=1, outcome=Open()),
    )
    steps = {
        number: StepExecution(step_number=number, title="t", text_sha256="", status=Status.COMPLETED, attempts=opened)
        for number in (1, 2)
    }
    save_state(run.state_path, RunState(ticket_slug=run.slug, started_at=NOW, step_executions=steps))
    journal = Journal(journal_path(project.folder, run.slug), clock=FakeClock())
    for number in (1, 2):
        for event in (
            *judged("plan", number),
            events.StepStarted(number=number, total=2, title="t"),
            *judged("red", number),
            events.StepFinished(number=number, status="completed", error=None),
        ):
            journal.write(event)
    journal.close()
    story = load_story(
        run, project=project.folder, comments=Comments(project.repository, project.folder, clock=FakeClock())
    )
    assert [[each.phase for each in step.attempts] for step in story.steps] == [["plan", "red"], ["plan", "red"]]
    assert [each.heading for step in story.steps for each in step.runs] == ["", ""]
