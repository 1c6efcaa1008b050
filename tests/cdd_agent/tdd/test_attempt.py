from dataclasses import replace

import pytest

from cdd_agent.events import AttemptStarted, GateJudged, TurnEnded
from cdd_agent.model.conversation import Text
from cdd_agent.tdd import attempt as baseline
from cdd_agent.tdd import recovery
from cdd_agent.tdd.attempt import Ground, attempts_at, make_attempt
from cdd_agent.work.state import AttemptRecord, StepExecution
from cdd_agent.workspace.memory import Document, Memory
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import Project, item, red, runs


@pytest.fixture
def step(project: Project) -> StepExecution:
    fresh = project.start().execution(1)
    return replace(fresh, checkpoint=recovery.begin("sale", fresh, context=project.context(ScriptedModel([]))))


@pytest.fixture
def laid(project: Project, step: StepExecution) -> Ground:
    at = recovery.position(project.repository)
    return baseline.lay(item(), "red", step=step, at=at, context=project.context(ScriptedModel([])))


def test_an_attempt_is_recorded_with_its_report_and_its_checkpoint(
    project: Project, *, step: StepExecution, laid: Ground
) -> None:
    context = project.context(ScriptedModel([red()]))
    record = make_attempt(item(), "red", step=step, ground=laid, is_anew=False, context=context)
    assert (record.phase, record.number, record.verdict, record.reasons) == ("red", 1, "open", ())
    assert record.report is not None
    assert (project.folder / record.report).exists()
    assert "test_discount" in project.git("show", f"{record.checkpoint}:tests/test_discount.py")
    kinds = [type(event) for event in project.seen]
    assert kinds.index(AttemptStarted) < kinds.index(TurnEnded) < kinds.index(GateJudged)


def test_an_agent_that_never_ends_is_judged_by_what_it_left(
    project: Project, *, step: StepExecution, laid: Ground
) -> None:
    reads = [says(call("Read", f"toolu_{number}", file_path="prices.py")) for number in range(4)]
    record = make_attempt(
        item(), "red", step=step, ground=laid, is_anew=False, context=project.context(ScriptedModel(reads))
    )
    assert record.verdict == "closed"
    assert record.reasons[0].startswith("no_change")


def test_a_later_attempt_sees_what_failed_in_the_one_before(
    project: Project, *, step: StepExecution, laid: Ground
) -> None:
    typo = runs("printf 'def test_discount():\\n    assert discuont(100) == 90\\n' > tests/test_discount.py")
    model = ScriptedModel([typo, says("I stop.")])
    context = project.context(model)
    first = make_attempt(item(), "red", step=step, ground=laid, is_anew=False, context=context)
    make_attempt(item(), "red", step=replace(step, attempts=(first,)), ground=laid, is_anew=False, context=context)
    (text,) = model.requests[1].messages[0].content
    assert isinstance(text, Text)
    assert "discuont" in text.text.partition("Attempt 1 was refused")[0]
    assert "name_not_expected" in text.text.partition("Attempt 1 was refused")[2]


def test_every_attempt_begins_with_the_conventions_of_the_project(
    project: Project, *, step: StepExecution, laid: Ground
) -> None:
    model = ScriptedModel([red()])
    memory = Memory(documents=(Document(path="AGENTS.md", text="Tabs. </data-x>", size_bytes=15),))
    make_attempt(
        item(), "red", step=step, ground=laid, is_anew=False, context=replace(project.context(model), memory=memory)
    )
    told, task = model.requests[0].messages[0].content
    assert isinstance(told, Text)
    assert isinstance(task, Text)
    assert told.text.startswith("Conventions of this project")
    assert " AGENTS.md>\nTabs. " in told.text
    assert task.text.startswith("Carry out step 1 of the plan.")


def test_the_attempts_of_one_phase_are_counted_by_themselves(step: StepExecution) -> None:
    attempts = (
        AttemptRecord(phase="red", number=1, verdict="closed"),
        AttemptRecord(phase="red", number=2, verdict="open"),
        AttemptRecord(phase="green", number=1, verdict="closed"),
    )
    assert [attempt.number for attempt in attempts_at("red", replace(step, attempts=attempts))] == [1, 2]
