"""Conversations outlive the program, can be shortened, and begun anew."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.agent.sessions import list_sessions
from cdd_agent.errors import CddError, ExitCode, ModelError
from cdd_agent.model.conversation import Text, Turn
from cdd_agent.work.state import Usage
from tests.cdd_agent.repl.typed_prompt import Prompt
from tests.fakes.demo import SLUG
from tests.fakes.model import ScriptedModel, call, says

ASKS = says(call("AskDeveloper", question="What should 1h90 be?", options=["150 minutes", "An error"]))
CRITERIA = says(call("UpdateSpec", acceptance_criteria=['WHEN minutes("1h30") is called THE SYSTEM SHALL return 90']))


def scripted(*turns: Turn | CddError | KeyboardInterrupt, name: str = "some-model") -> ScriptedModel:
    model = ScriptedModel(turns)
    model.name = name
    return model


def texts(model: ScriptedModel) -> list[str]:
    """What the last request says, message by message, without the outline of the project."""
    return [
        "".join(
            block.text
            for block in message.content
            if isinstance(block, Text) and not block.text.startswith("The files of the project:")
        )
        for message in model.requests[-1].messages
    ]


def last_words(model: ScriptedModel) -> str:
    """What the model was told last."""
    return texts(model)[-1]


def test_a_killed_session_is_gone_on_with_to_a_complete_spec(project: Path) -> None:
    first = Prompt(project, model=scripted(ASKS))
    first.says("/spec")
    first.die()
    model = scripted(CRITERIA, says("That can be tested."))
    second = Prompt(project, model=model)
    told = second.says("/resume")
    assert "Continuing the session of " in told
    assert f"/spec {SLUG}" in told
    assert "What should 1h90 be?\n  1  150 minutes\n  2  An error\n" in told
    assert model.requests == []
    answered = second.says("2")
    assert "The spec of minutes-lost is complete" in answered
    assert "AskDeveloper" in str(model.requests[0].messages[1])
    assert str(model.requests[0].messages[3]).endswith("An error'),))")


@pytest.mark.slow
def test_what_was_resumed_can_be_resumed_again(project: Path) -> None:
    first = Prompt(project, model=scripted(says("What is it for?")))
    first.says("/spec")
    first.says("")
    first.die()
    second = Prompt(project, model=scripted(says("And for whom?")))
    second.says("/resume")
    second.says("For trains.")
    second.die()
    (only,) = list_sessions(project)
    assert only.first_words == "For trains."
    third = Prompt(project, model=scripted())
    told = third.says("/resume")
    assert "you  For trains.\nAnd for whom?" in told
    assert third.where == ("spec", SLUG)


def test_a_normal_exit_can_be_resumed_by_its_id(project: Path) -> None:
    first = Prompt(project, model=scripted(says("What is it for?")))
    first.says("/spec")
    first.says("/exit")
    first.die()
    name = first.id
    second = Prompt(project, model=scripted())
    assert "What is it for?" in second.says(f"/resume {name}")


def test_an_answer_that_was_cut_off_is_told(project: Path) -> None:
    first = Prompt(project, model=scripted(says("What is it for?"), ModelError("Gone.", hint="wait")))
    first.says("/spec")
    first.says("For trains.")
    first.die()
    second = Prompt(project, model=scripted(says("Trains, then.")))
    told = second.says("/resume")
    assert (
        told.index("What is it for?")
        < told.index("you  For trains.")
        < told.index("Your last message has no answer yet")
    )
    second.says("For trains, I said.")
    assert second.code == ExitCode.DONE


def test_all_conversations_of_the_session_come_back(finished: Path) -> None:
    first = Prompt(finished, model=scripted(says("Which part?"), says("Nothing to change.")))
    first.says("/spec")
    first.says("It is wrong.")
    first.says("/plan")
    first.die()
    model = scripted(says("Yes, that part."))
    second = Prompt(finished, model=model)
    second.says("/resume")
    assert second.where == ("plan", SLUG)
    second.says("/spec")
    second.says("The first.")
    assert "Which part?" in texts(model)


def test_the_executor_is_opened_where_its_state_is(finished: Path) -> None:
    first = Prompt(finished)
    first.says("/exec")
    first.die()
    told = Prompt(finished).says("/resume")
    assert f"/exec {SLUG}" in told
    assert "nothing is left to do" in told


def test_another_model_goes_on_and_that_is_said(project: Path) -> None:
    first = Prompt(project, model=scripted(says("What is it for?")))
    first.says("/spec")
    first.die()
    second = Prompt(project, model=scripted(name="other-model"))
    assert "The conversation started with some-model; now other-model answers." in second.says("/resume")


def test_nothing_to_resume_is_told(project: Path) -> None:
    prompt = Prompt(project)
    assert "There is no earlier session to resume." in prompt.says("/resume")
    assert prompt.code == ExitCode.USAGE
    assert "There is no session 20260101-120000-bcd." in prompt.says("/resume 20260101-120000-bcd")


@pytest.mark.slow
def test_a_ticket_that_is_gone_is_told(project: Path) -> None:
    first = Prompt(project, model=scripted(says("What is it for?")))
    first.says("/spec")
    first.die()
    shutil.rmtree(project / "tickets" / SLUG)
    second = Prompt(project)
    assert f"There is no ticket '{SLUG}'" in second.says("/resume")
    assert second.where == ("cdd", "")


def test_a_summary_takes_the_conversation_s_place(project: Path) -> None:
    model = scripted(says("What is it for?"), says("They asked what it is for."), says("Trains, then."))
    prompt = Prompt(project, model=model)
    prompt.says("/spec")
    assert "was replaced by a summary of" in prompt.says("/compact")
    prompt.says("For trains.")
    first, last = texts(model)
    assert "They asked what it is for." in first
    assert last.endswith("For trains.")
    prompt.die()
    again = Prompt(project, model=scripted())
    again.says("/resume")
    assert len(again.id) > 0


def test_a_long_conversation_is_shortened_by_itself(project: Path) -> None:
    model = scripted(
        replace(says("What is it for?"), usage=Usage(input_tokens=810_000)),
        says("They asked what it is for."),
        says("Trains, then."),
        name="claude-haiku-5-5",
    )
    prompt = Prompt(project, model=model)
    prompt.says("/spec")
    told = prompt.says("For trains.")
    assert "(810,000 tokens) was replaced by a summary" in told
    assert last_words(model).endswith("For trains.")


def test_a_summary_that_fails_leaves_the_conversation(project: Path) -> None:
    model = scripted(says("What is it for?"), ModelError("Gone.", hint="wait"), says("Trains, then."))
    prompt = Prompt(project, model=model)
    prompt.says("/spec")
    assert "Gone." in prompt.says("/compact")
    prompt.says("For trains.")
    assert "What is it for?" in texts(model)


def test_a_new_conversation_knows_nothing_of_the_old_one(project: Path) -> None:
    model = scripted(says("What is it for?"), says("Hello."))
    prompt = Prompt(project, model=model)
    prompt.says("/spec")
    assert "Started a new conversation" in prompt.says("/clear")
    prompt.says("Hello?")
    assert "What is it for?" not in str(texts(model))
    assert "spec.yaml of the ticket" in texts(model)[0]


def test_without_a_conversation_the_commands_say_why(finished: Path) -> None:
    prompt = Prompt(finished, model=scripted())
    assert "No agent is active." in prompt.says("/clear")
    prompt.says("/plan")
    assert "The conversation is empty" in prompt.says("/compact")


def test_the_executor_has_nothing_to_clear_or_shorten(planned: Path) -> None:
    prompt = Prompt(planned, model=scripted())
    prompt.says("/exec")
    assert "The Executor starts a new conversation for each attempt" in prompt.says("/clear")
    assert "there is nothing to compact" in prompt.says("/compact")
    assert prompt.code == ExitCode.DONE


def test_the_next_session_resumes_the_new_conversation_though_nothing_was_said_in_it(project: Path) -> None:
    first = Prompt(project, model=scripted(says("What is it for?")))
    first.says("/spec")
    first.says("/clear")
    first.die()
    told = Prompt(project, model=scripted()).says("/resume")
    assert "The conversation is empty" in told
    assert "What is it for?" not in told


PROPOSES = says(
    call(
        "ProposeTicket",
        title="Read days",
        slug="read-days",
        kind="bug",
        size="small",
        goal="A day has 24 hours.",
        criteria=["WHEN the text is 1d THE SYSTEM SHALL return 1440"],
        files=["durations/reading.py"],
        tests=["tests/test_days.py::test_one"],
    )
)


def choosing(prompt: Prompt, word: str) -> list[str]:
    """Answer the next question of cdd with the choice that contains ``word``; return all choices."""
    offered: list[str] = []

    def choose(_question: str, choices: tuple[str, ...]) -> int:
        offered.extend(choices)
        return next(number for number, choice in enumerate(choices) if word in choice)

    prompt.crew.options = replace(prompt.crew.options, choose=choose)
    return offered


def test_words_without_an_agent_are_answered_by_scout_with_the_files_they_name(project: Path) -> None:
    model = scripted(says("It reads hours."), says("And minutes."), says("It can read hours."), says("No."))
    prompt = Prompt(project, model=model)
    assert prompt.says("What does @durations/reading.py read?") == "It reads hours.\n"
    assert "def minutes" in last_words(model)
    assert prompt.says("What else?") == "And minutes.\n"
    assert prompt.where == ("cdd", "")
    assert "was replaced by a summary of" in prompt.says("/compact")
    assert prompt.says("And days?") == "No.\n"
    assert "It can read hours." in texts(model)[0]
    assert "Started a new conversation" in prompt.says("/clear")


def test_questions_are_gone_on_with_in_another_session(project: Path) -> None:
    first = Prompt(project, model=scripted(says("It reads hours.")))
    first.says("What does it read?")
    first.die()
    model = scripted(says("And minutes."))
    second = Prompt(project, model=model)
    assert "you  What does it read?\nIt reads hours." in second.says("/resume")
    second.says("What else?")
    assert texts(model) == ["What does it read?", "It reads hours.", "What else?"]


def test_a_request_becomes_a_ticket_from_which_socrates_goes_on(project: Path) -> None:
    model = scripted(PROPOSES, ASKS)
    prompt = Prompt(project, model=model)
    choosing(prompt, "ticket")
    told = prompt.says("Please read days, too.")
    assert "read-days  Read days" in told
    assert "Created tickets/read-days/spec.yaml" in told
    assert "What should 1h90 be?" in told
    assert prompt.where == ("spec", "read-days")
    assert "Please read days, too." in texts(model)[0]


@pytest.mark.slow
def test_a_small_request_can_be_carried_out_at_once(project: Path) -> None:
    prompt = Prompt(project, model=scripted(PROPOSES, *(says("I give up.") for _ in range(3))))
    offered = choosing(prompt, "now")
    told = prompt.says("Please read days, too.")
    assert len(offered) == 3
    assert "Step 1/1  Read days" in told
    assert "RED attempt 3 of 3" in told
    assert prompt.where == ("exec", "read-days")


def test_a_refused_proposal_creates_nothing_and_without_a_user_neither(project: Path) -> None:
    prompt = Prompt(project, model=scripted(PROPOSES, PROPOSES))
    assert "To create it: /new read-days Read days" in prompt.says("Please read days, too.")
    choosing(prompt, "neither")
    assert "Nothing was created. Write what you want instead." in prompt.says("Please read days, too.")
    assert not (project / "tickets" / "read-days").exists()


def test_a_question_to_the_executor_is_answered_and_runs_nothing(planned: Path) -> None:
    model = scripted(says("It reads hours."), PROPOSES, says("It waits."))
    prompt = Prompt(planned, model=model)
    prompt.says("/exec")
    answered = prompt.says("What does @durations/reading.py read?")
    assert answered.startswith("It reads hours.\n")
    assert "Enter runs step 1/1" in answered
    assert "def minutes" in last_words(model)
    assert last_words(model).endswith(f"(I am at the ticket {SLUG}, see tickets/{SLUG}.)")
    told = prompt.says("Could you read days, too?")
    assert "Nothing was changed. To let the model change something, type a sentence without a question mark." in told
    assert not (planned / "tickets" / "read-days").exists()
    assert prompt.where == ("exec", SLUG)
    prompt.die()
    assert f"/exec {SLUG}" in Prompt(planned, model=model).says("/resume")


def test_a_question_in_a_review_is_answered_and_a_wish_with_a_question_mark_is_none(finished: Path) -> None:
    model = scripted(says("Because of AC-1."), *(says("I give up.") for _ in range(3)))
    prompt = Prompt(finished, model=model)
    prompt.says("/review")
    assert prompt.says("Why does it raise an error?") == "Because of AC-1.\n"
    assert "RED attempt 1 of 3" in prompt.says("change this: can 1h90 be an error?")


def test_spec_with_words_makes_the_ticket(project: Path) -> None:
    model = scripted(ASKS)
    prompt = Prompt(project, model=model)
    assert "Created tickets/read-days-too/spec.yaml" in prompt.says("/spec Read days, too")
    assert prompt.where == ("spec", "read-days-too")
    assert "Read days, too" in texts(model)[0]


def test_a_wish_in_a_review_runs_the_step_again_with_it(finished: Path) -> None:
    model = scripted(*(says("I give up.") for _ in range(3)))
    prompt = Prompt(finished, model=model)
    prompt.says(f"/review {SLUG}")
    prompt.says("/comment durations/reading.py:1 Name the unit.")
    told = prompt.says("change this: accept minutes above 59")
    assert "RED attempt 1 of 3" in told
    assert "accept minutes above 59" in str(model.requests[0].messages[-1])
    assert ": Name the unit." in str(model.requests[0].messages[-1])
    assert "AnswerComment" in [tool.name for tool in model.requests[0].tools]
    assert prompt.where == ("exec", SLUG)
    prompt.says("/back")
    assert prompt.where == ("review", SLUG) or "no completed step" in prompt.says("/review")


@pytest.mark.slow
def test_a_fork_of_a_reviewed_step_runs_in_its_folder(finished: Path) -> None:
    model = scripted(*(says("I give up.") for _ in range(3)))
    prompt = Prompt(finished, model=model)
    prompt.says(f"/review {SLUG}")
    told = prompt.says("//fork: don't use a pattern")
    assert "Working in the fork" in told
    assert "RED attempt 1 of 3" in told
    sent = str(model.requests[0].messages[-1])
    assert "Carry it out in another way." in sent
    assert "don't use a pattern" in sent
    assert prompt.where == ("exec", SLUG)
    assert f"Left the agent. Go on there: /exec {SLUG}" in prompt.says("/fork switch main")
    assert "before step 1" in prompt.says("/fork don't touch the tests")
    assert prompt.says("/fork").count(f"{SLUG} step 1: don't") == 2
