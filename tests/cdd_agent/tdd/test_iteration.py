"""A step that landed runs again with the reviewer's words and comments, in the conversations of its first run."""

from dataclasses import replace

import pytest

from cdd_agent.events import Notice
from cdd_agent.model.conversation import Turn, UserMessage
from cdd_agent.review import Comment, Comments, Place
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.phase_run import Ending
from cdd_agent.work import state as states
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, Status, StepKey
from tests.fakes.clock import FakeClock
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, Project, content_as_it_is, green, item, red

TIDY = CODE.replace("\n", "  # ten percent\n", 1)
NEW_TEST = TEST + "\n\ndef test_free():\n    assert discount(0) == 0.5\n"
NEW_CODE = CODE.replace("return", "return 0.5 if price == 0 else", 1)


def edits(path: str, content: str, *more: object) -> Turn:
    return says(
        call("Read", "toolu_R", file_path=path),
        call("Write", file_path=path, content=content),
        *more,  # type: ignore[arg-type]
        call("CompleteImplementation", "toolu_C", implementation_files=[]),
    )


def run(project: Project, model: ScriptedModel, state: RunState | None = None) -> Ending:
    context = replace(project.context(model), comments=comments_of(project))
    return Cycle(item(), state or project.start(), context=context, save=lambda _: None).run()


def comments_of(project: Project) -> Comments:
    return Comments(project.repository, project.folder, clock=FakeClock())


def reviewed(ending: Ending, project: Project, words: str) -> RunState:
    """The state of a step that landed, and runs again with the reviewer's words."""
    now = ending.state.started_at
    done = states.end_step(ending.state, 1, status=Status.COMPLETED, now=now)
    again = states.retry_step(states.add_guidance(done, 1, words=words), 1)
    key = StepKey(number=1, title="Ten percent off", text_sha256="0")
    return states.start_step(again, key, now=now, base_commit=project.repository.read_head())


@pytest.fixture
def landed(project: Project) -> Ending:
    ending = run(project, ScriptedModel([red(), green(), content_as_it_is()]))
    assert ending.how == "done"
    return ending


def comment_on(project: Project, text: str) -> Comment:
    return comments_of(project).add(Place("discount.py", 1, 1), text, commit="HEAD")


def test_an_iteration_continues_the_conversations_and_answers_the_comments(project: Project, landed: Ending) -> None:
    comment, other = comment_on(project, "And for nothing?"), comment_on(project, "A better name?")
    assert (comment.ticket, comment.step) == ("sale", 1)
    answer = call("AnswerComment", "toolu_A", comment_id=comment.id, text="It costs 0.5 now.", resolves=True)
    wrong = call("AnswerComment", "toolu_B", comment_id="nothing", text="?")
    model = ScriptedModel(
        [
            edits(TEST_FILE, NEW_TEST),
            edits("discount.py", NEW_CODE, answer, wrong),
            content_as_it_is(),
            content_as_it_is(),
        ]
    )
    assert run(project, model, reviewed(landed, project, f"Free things cost 0.5. [{comment.id}]")).how == "done"
    in_red, in_green = model.requests[0], model.requests[1]
    assert "AnswerComment" in [tool.name for tool in in_green.tools]
    for request, earlier in ((in_red, TEST), (in_green, CODE)):
        first, last = request.messages[0], request.messages[-1]
        assert len(request.messages) > 2
        assert repr(earlier)[1:-1] in str(request.messages), "what the model wrote in its first run"
        assert isinstance(first, UserMessage)
        assert "The reviewer wants this to be different" not in str(first)
        assert "The reviewer wants this to be different" in str(last)
        assert "Free things cost 0.5." in str(last)
    found = {each.id: each for each in comments_of(project).list_all()}
    assert found[comment.id].resolved
    assert [(reply.author, reply.text) for reply in found[comment.id].replies] == [("ai", "It costs 0.5 now.")]
    assert not found[other.id].resolved
    assert project.log[-2:] == ["test: Ten percent off", "feat: Ten percent off"]


@pytest.mark.slow
def test_an_iteration_without_new_behavior_is_a_refactoring(project: Project, landed: Ending) -> None:
    model = ScriptedModel([content_as_it_is(), edits("discount.py", TIDY)])
    assert run(project, model, reviewed(landed, project, "Say what it does.")).how == "done"
    assert "change nothing and call `CompleteImplementation`" in str(model.requests[0].messages[-1])
    assert project.log[-1] == "refactor: Ten percent off"
    assert any("carried out in REFACTOR" in event.text for event in project.seen if isinstance(event, Notice))
    assert (project.folder / "discount.py").read_text() == TIDY


@pytest.mark.slow
def test_a_conversation_that_cannot_be_read_is_begun_anew(project: Project, landed: Ending) -> None:
    for path in (find_records(project.folder).folder / "reports" / "sale").glob("*.conversation"):
        path.write_text("{")
    model = ScriptedModel([content_as_it_is(), edits("discount.py", TIDY)])
    assert run(project, model, reviewed(landed, project, "Say what it does.")).how == "done"
    assert len(model.requests[0].messages) == 1
    assert any("A new conversation begins." in event.text for event in project.seen if isinstance(event, Notice))


@pytest.mark.slow
def test_the_first_run_of_a_step_offers_no_answers_to_comments(project: Project) -> None:
    model = ScriptedModel([red(), green(), content_as_it_is()])
    run(project, model)
    assert all("AnswerComment" not in [tool.name for tool in request.tools] for request in model.requests)
