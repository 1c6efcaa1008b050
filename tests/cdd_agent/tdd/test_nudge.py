"""An answer in words without any work gets one nudge in the same conversation, and stays words."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cdd_agent.errors import CddError
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import Request, Text, Turn
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.phase_run import Ending
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, TIDY, Project, content_as_it_is, green, item, red, writes

NUDGE = "You changed no file, so there is nothing to judge yet."
WORDS = says("I'll implement the discount now.")


class Answers(ScriptedModel):
    """Answers after a nudge, too."""

    answers_examiner = True

    def __init__(self, turns: Iterable[Turn | CddError | KeyboardInterrupt]) -> None:
        """``turns`` are those of all requests."""
        super().__init__(turns)


def run(project: Project, model: ScriptedModel, *, blocks: bool = False, max_turns: int = 4) -> Ending:
    context: Context = project.context(model, edit_format="blocks" if blocks else "tools")
    context = replace(context, policy=replace(context.policy, budget=Budget(max_turns=max_turns)))
    return Cycle(item(), project.start(), context=context, save=lambda _: None).run()


def last_said(request: Request) -> str:
    """The last message to the model."""
    return "".join(part.text for part in request.messages[-1].content if isinstance(part, Text))


def list_nudges(model: ScriptedModel) -> list[str]:
    return [text for text in map(last_said, model.requests) if "there is nothing to judge yet" in text]


def attempts(ending: Ending) -> list[tuple[str, str]]:
    return [(each.phase, each.verdict) for each in ending.state.execution(1).attempts]


def test_words_in_red_and_green_are_followed_by_work_in_the_same_conversation(project: Project) -> None:
    model = Answers([WORDS, red(), WORDS, green(), content_as_it_is()])
    ending = run(project, model)
    assert ending.how == "done"
    assert attempts(ending) == [("red", "open"), ("green", "open"), ("refactor", "open")]
    first, second = list_nudges(model)
    assert first == second
    assert first.startswith(NUDGE)
    for tool in ("CompleteImplementation", "ReportBlocked"):
        assert f"`{tool}` with the reason" in first
    assert model.requests[1].messages[:-2] == model.requests[0].messages


def test_words_are_never_taken_as_a_report_that_a_test_is_wrong(project: Project) -> None:
    model = Answers([red(), *[WORDS] * 6])
    ending = run(project, model)
    assert ending.how == "failed"
    assert len(list_nudges(model)) == 3, "one in each attempt"
    codes = [reason.code for each in ending.state.execution(1).attempts for reason in each.reasons]
    assert codes == ["no_change"] * 3
    assert not ending.state.execution(1).times_sent_back


@pytest.mark.slow
def test_a_wrong_test_can_be_reported_after_the_nudge(project: Project) -> None:
    reports = says(call("ReportBlocked", why="test_is_wrong", reason="90 should be 10"))
    other = TEST.replace("== 90", "== 90.0")
    model = Answers([red(), WORDS, reports, writes(TEST_FILE, other), green(), content_as_it_is()])
    ending = run(project, model)
    assert (ending.how, ending.state.execution(1).times_sent_back) == ("done", 1)


@pytest.mark.slow
def test_words_after_work_and_words_about_good_code_need_no_nudge(project: Project) -> None:
    works = says(call("Write", file_path=TEST_FILE, content=TEST))
    model = Answers([works, says("The test is written."), green(), says("The code is good.")])
    assert run(project, model).how == "done"
    assert list_nudges(model) == []


@pytest.mark.slow
def test_without_turns_left_there_is_no_nudge(project: Project) -> None:
    model = Answers([*[WORDS] * 3])
    assert run(project, model, max_turns=1).how == "failed"
    assert list_nudges(model) == []


def test_a_recording_without_the_nudge_plays_as_before(project: Project) -> None:
    model = ScriptedModel([WORDS, red(), green(), content_as_it_is()])
    ending = run(project, model)
    assert ending.how == "done"
    assert attempts(ending)[0] == ("red", "closed")


def block(path: str, content: str) -> Turn:
    return says(f"```python:{path}\n{content}```\n")


def test_whole_files_without_a_file_get_a_nudge_and_a_block_reports_a_wrong_test(project: Project) -> None:
    report = says("I looked at it.\n\n```blocked:test_is_wrong\n90 should be 10\n```\n")
    other = TEST.replace("== 90", "== 90.0")
    turns = [block(TEST_FILE, TEST), WORDS, report, block(TEST_FILE, other), block("discount.py", CODE)]
    model = Answers([*turns, block("discount.py", TIDY)])
    ending = run(project, model, blocks=True)
    assert ending.how == "done"
    assert ending.state.execution(1).times_sent_back
    (nudge,) = list_nudges(model)
    assert "Your answer has no file and no report" in nudge
    assert "CompleteImplementation" not in nudge


@pytest.mark.parametrize(
    "answer",
    [
        "```blocked:test_is_wrong\n```\n",
        "```blocked:test_is_wrong\nno\n```\n```python:discount.py\nx = 1\n```\n",
        "```blocked:cannot_be_done\nno\n```\n```blocked:cannot_be_done\nno\n```\n",
    ],
)
def test_a_report_that_is_unclear_goes_back_to_the_model(project: Project, answer: str) -> None:
    model = Answers([block(TEST_FILE, TEST), says(answer), block("discount.py", CODE), says("It is good.")])
    assert run(project, model, blocks=True).how == "done"
    assert "is one block with the reason in it" in last_said(model.requests[2])
