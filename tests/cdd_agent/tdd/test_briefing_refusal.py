"""What a try at a step leaves for the next one."""

from dataclasses import replace

import pytest

from cdd_agent.events import Notice
from cdd_agent.model.conversation import Text, Turn
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.phase_run import Ending
from cdd_agent.work import state as states
from cdd_agent.work.state import RunState, StepExecution
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, Project, content_as_it_is, green, item, red, writes
from tests.fakes.reasons import make_reason

WRONG = writes("discount.py", "def discount(price):\n    return price\n")
DOUBT = says("Ten percent of 100 is 10.", call("ReportBlocked", why="test_is_wrong", reason="90 should be 10"))
OTHER_TEST = TEST.replace("== 90", "== 90.0")


def doubts(path: str, content: str) -> Turn:
    """Writes a file, and then reports that the test is wrong."""
    return replace(DOUBT, content=(call("Write", "toolu_W", file_path=path, content=content), *DOUBT.content))


def run(project: Project, model: ScriptedModel, state: RunState | None = None) -> Ending:
    made = project.context(model)
    return Cycle(item(), state or project.start(), context=made, save=lambda _: None).run()


def task(model: ScriptedModel, number: int) -> str:
    """The last text of the first message of a request, which is about one attempt."""
    text = model.requests[number].messages[0].content[-1]
    assert isinstance(text, Text)
    return text.text


def retried(ending: Ending, guidance: str = "") -> RunState:
    state = states.retry_step(states.add_guidance(ending.state, 1, words=guidance), 1)
    step = state.execution(1)
    key = states.StepKey(number=1, title=step.title, text_sha256=step.text_sha256)
    return states.start_step(state, key, now="2026-01-31T12:00:00Z")


def test_a_wrong_test_sends_the_step_back_to_red_once_and_its_code_to_the_next_green(project: Project) -> None:
    model = ScriptedModel(
        [red(), doubts("discount.py", CODE), writes(TEST_FILE, OTHER_TEST), green(), content_as_it_is()]
    )
    ending = run(project, model)
    assert ending.how == "done"
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
    assert (project.folder / TEST_FILE).read_text() == OTHER_TEST
    again, following = task(model, 2), task(model, 3)
    assert again.splitlines()[-1] == "Work: executor sale step 1 red attempt 1"
    assert "test_is_wrong: 90 should be 10" in again
    assert "+    assert discount(100) == 90" in again
    assert "Ten percent of 100 is 10." in again
    assert "The code of that attempt. Take over what fits" in following
    assert "+    return price - 10" in following
    assert "Since then, RED has written the test again" in following
    (notice,) = [event.text for event in project.seen if isinstance(event, Notice) and "back to RED" in event.text]
    kept = notice.rpartition("kept as ")[2].rstrip(".")
    assert project.git("show", f"{kept}:discount.py") + "\n" == CODE
    assert ending.state.execution(1).times_sent_back


@pytest.mark.slow
def test_a_second_wrong_test_ends_the_step(project: Project) -> None:
    model = ScriptedModel([red(), DOUBT, red(), DOUBT])
    ending = run(project, model)
    assert (ending.how, project.log, project.status) == ("blocked", [], "")


def test_a_red_below_a_commit_of_the_user_is_not_taken_back(project: Project) -> None:
    class Committing(ScriptedModel):
        def reply(self, *args: object, **named: object) -> Turn:
            if len(self.requests) == 1:
                project.write({"notes.txt": "mine\n"})
                project.git("add", "notes.txt")
                project.git("commit", "-qm", "mine")
            return super().reply(*args, **named)  # type: ignore[arg-type]

    ending = run(project, Committing([red(), DOUBT]))
    assert ending.how == "blocked"
    assert "mine" in project.log


@soak_after(1, "last", [says(call("ReportBlocked", why="cannot_be_done", reason="no way")), None])
def test_a_retry_begins_with_what_was_refused_and_with_the_guidance(project: Project, *, last: Turn | None) -> None:
    first = ScriptedModel([red(), WRONG, content_as_it_is(), last or content_as_it_is()])
    ending = run(project, first)
    assert ending.how in ("blocked", "failed")
    assert project.log == []
    model = ScriptedModel([red(), green(), content_as_it_is()])
    assert run(project, model, retried(ending, "Subtract ten.")).how == "done"
    in_red, in_green, in_refactor = (task(model, number) for number in range(3))
    assert "An earlier try at this step was refused in GREEN, and its changes were undone:" in in_red
    assert "The changes of that try in this phase:" in in_red
    assert "+    return price" in in_green
    assert ("no way" if last else "no_change") in in_green
    assert "An earlier try" not in in_refactor
    assert all("Subtract ten." in text for text in (in_red, in_green, in_refactor))


def test_a_completed_step_forgets_what_was_refused(project: Project) -> None:
    step = replace(
        StepExecution(step_number=1, title="t", text_sha256="", status=states.Status.IN_PROGRESS),
        refusal=states.RefusedTry(phase="red", reasons=(make_reason("no_tests: none"),)),
        guidance="Be brief.",
    )
    state = replace(project.start(), step_executions={1: step})
    ended = states.end_step(state, 1, status=states.Status.COMPLETED, now="2026-01-31T12:00:00Z").execution(1)
    assert (ended.refusal, ended.guidance) == (None, "")
    failed = states.end_step(state, 1, status=states.Status.FAILED, now="2026-01-31T12:00:00Z")
    assert states.retry_step(failed, 1).execution(1).guidance == "Be brief."


def test_what_the_user_says_during_an_attempt_holds_for_the_later_phases_too(project: Project) -> None:
    lines = [("round half up",), ("in cents",), ()]
    model = ScriptedModel([red(), green(), content_as_it_is()])
    context = replace(project.context(model), hear=lambda: lines.pop(0) if lines else ())
    saved = list[RunState]()
    assert Cycle(item(), project.start(), context=context, save=saved.append).run().how == "done"
    first = next(step for state in saved if (step := state.execution(1)).guidance)
    assert (first.guidance, first.attempts) == ("round half up", ())  # at once: a kill does not lose it
    assert "The user's guidance for this step" not in task(model, 0)
    assert "round half up" in task(model, 1)
    assert "round half up\nin cents" in task(model, 2)
