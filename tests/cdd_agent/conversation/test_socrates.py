import os
from dataclasses import replace

import pytest

from cdd_agent.conversation.socrates import Socrates
from cdd_agent.errors import DocumentError, ModelError
from cdd_agent.events import Event, Notice, QuestionAsked, SpecProposed, SpecSaved
from cdd_agent.model.conversation import JSON, Conversation, Text, ToolCall, ToolResult
from cdd_agent.tickets import spec
from cdd_agent.tickets.ticket import Ticket
from tests.cdd_agent.conversation.conftest import MakeRoom, Room
from tests.fakes.cases import soak_after
from tests.fakes.model import call, says

ONE, TWO = "WHEN it is day THE SYSTEM SHALL sell", "WHEN it is night THE SYSTEM SHALL sleep"


ASKED = QuestionAsked(agent="socrates", question="For whom?", options=("For all", "For members"))


def asks(call_id: str = "toolu_ask", **changes: JSON) -> ToolCall:
    value: dict[str, JSON] = {"question": "For whom?", "options": ["For all", "For members"], **changes}
    return ToolCall(id=call_id, name="AskDeveloper", input=value)


def heard(made: Room) -> str:
    """What the model was told last."""
    block = made.model.requests[-1].messages[-1].content[-1]
    assert isinstance(block, Text)
    return block.text


def happened(made: Room, *kinds: type[Event]) -> list[Event]:
    return [event for event in made.seen if isinstance(event, kinds)]


def first_words(made: Room, request: int = 0) -> str:
    (block,) = made.model.requests[request].messages[0].content
    assert isinstance(block, Text)
    return block.text


def last_result(made: Room) -> ToolResult:
    block = made.model.requests[-1].messages[-1].content[-1]
    assert isinstance(block, ToolResult)
    return block


def test_the_first_question_follows_from_the_spec_and_what_it_lacks(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says("For whom?"))
    assert Socrates(ticket, dialog=made.dialog).open(somebody_answers=True) == "For whom?"
    words = first_words(made)
    assert "A sale" in words
    assert "- a description" in words
    assert "- an acceptance criterion" in words
    assert "Nobody is there" not in words


def test_the_first_message_holds_the_outline_the_ticket_and_what_to_do(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says("For whom?"), says("Since when?"))
    (made.dialog.workspace.root / "till.py").write_text("class Till:\n    def add(self): ...\n", encoding="utf-8")
    socrates = Socrates(ticket, dialog=replace(made.dialog, outline_tokens=1000))
    socrates.open(somebody_answers=True)
    socrates.hear("for all")
    outline, spec = made.model.requests[0].messages[0].content
    assert "class Till" in str(outline)
    assert "A sale" in str(spec)
    assert "waits for your first question" in str(spec)
    assert "till.py" not in str(made.model.requests[1].messages[-1].content)


def test_with_nobody_there_it_is_told_not_to_ask(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says("Done."))
    Socrates(ticket, dialog=made.dialog).open(somebody_answers=False)
    assert "Nobody is there to answer" in first_words(made)


def test_answers_become_a_complete_spec_and_the_rest_of_the_file_stays(ticket: Ticket, room: MakeRoom) -> None:
    saves = call("UpdateSpec", description="Cheaper.", acceptance_criteria=[ONE, TWO, ONE])
    made = room(says("For whom?"), says(saves), says("Complete."))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=True)
    assert socrates.hear("for all") == "Complete."
    assert socrates.missing == ()
    saved = spec.load(ticket.spec_path)
    assert [(criterion.id, criterion.text) for criterion in saved.acceptance_criteria] == [("AC-1", ONE), ("AC-2", TWO)]
    assert (saved.title, saved.status) == ("A sale", "refined")
    assert "# The goal, who needs it and why" in ticket.spec_path.read_text()
    (event,) = [event for event in made.seen if isinstance(event, SpecSaved)]
    assert (event.changed, event.missing) == (("description", "acceptance_criteria"), ())


def test_an_open_question_makes_a_refined_spec_a_draft_again(ticket: Ticket, room: MakeRoom) -> None:
    made = room(
        says(call("UpdateSpec", "toolu_1", description="Cheaper.", acceptance_criteria=[ONE])),
        says(call("UpdateSpec", "toolu_2", open_questions=["How much?"])),
        says("One is open."),
    )
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.hear("go")
    assert spec.load(ticket.spec_path).status == "draft"
    assert socrates.missing == ("an answer to the open question: How much?",)
    assert "Still missing: an answer to the open question: How much?" in last_result(made).content


@soak_after(
    2,
    ("second", "expected"),
    [
        ([TWO, ONE], [("AC-2", TWO), ("AC-1", ONE)]),
        ([ONE, "WHEN it snows THE SYSTEM SHALL rest", TWO], [("AC-1", ONE), ("AC-3", "..."), ("AC-2", TWO)]),
        (["AC-2: WHEN it is late THE SYSTEM SHALL sleep", ONE], [("AC-2", "..."), ("AC-1", ONE)]),
        (["AC-9: WHEN it snows THE SYSTEM SHALL rest"], [("AC-3", "...")]),
        ([f"AC-2: {ONE}", TWO], [("AC-1", ONE), ("AC-2", TWO)]),
    ],
    ids=["moved", "one new", "one reworded", "an id that is not there", "a wrong id"],
)
def test_a_criterion_keeps_its_id_for_the_plan_that_names_it(
    ticket: Ticket, room: MakeRoom, *, second: list[str], expected: list[tuple[str, str]]
) -> None:
    made = room(
        says(call("UpdateSpec", "toolu_1", acceptance_criteria=[ONE, TWO])),
        says(call("UpdateSpec", "toolu_2", acceptance_criteria=[*second])),
        says("Saved."),
    )
    Socrates(ticket, dialog=made.dialog).hear("go")
    found = spec.load(ticket.spec_path).acceptance_criteria
    texts = [criterion.text if criterion.text in (ONE, TWO) else "..." for criterion in found]
    assert list(zip([criterion.id for criterion in found], texts, strict=True)) == expected
    assert not any(criterion.text.startswith("AC-") for criterion in found)


def test_an_invalid_spec_is_told_before_anybody_is_asked(ticket: Ticket, room: MakeRoom) -> None:
    ticket.spec_path.write_text("title: A sale\ntype: nonsense\n")
    made = room()
    with pytest.raises(DocumentError, match=r"spec\.yaml"):
        Socrates(ticket, dialog=made.dialog)
    assert made.model.requests == []


def test_a_key_that_is_not_there_is_told_to_the_model_and_nothing_is_written(ticket: Ticket, room: MakeRoom) -> None:
    before = ticket.spec_path.read_bytes()
    made = room(says(call("UpdateSpec", titel="Sale")), says("I see."))
    Socrates(ticket, dialog=made.dialog).hear("go")
    assert last_result(made).is_error
    assert "did you mean `title`" in last_result(made).content
    assert ticket.spec_path.read_bytes() == before


def test_a_pipe_or_no_text_in_place_of_the_spec_is_an_error_and_no_wait(ticket: Ticket, room: MakeRoom) -> None:
    socrates = Socrates(ticket, dialog=room().dialog)
    ticket.spec_path.write_bytes(b"title: caf\xe9\n")
    with pytest.raises(DocumentError, match="not UTF-8"):
        socrates.open(somebody_answers=True)
    ticket.spec_path.unlink()
    os.mkfifo(ticket.spec_path)
    with pytest.raises(DocumentError, match="pipe"):
        socrates.open(somebody_answers=True)


def test_a_question_ends_the_turn_and_is_put_once_it_is_over(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says("Let me ask.", asks(), call("UpdateSpec", title="Sale")))
    socrates = Socrates(ticket, dialog=made.dialog)
    assert socrates.open(somebody_answers=True) == "Let me ask."
    assert happened(made, SpecSaved, QuestionAsked)[1:] == [ASKED]
    assert socrates.question is not None
    assert len(made.model.requests) == 1
    assert [tool.name for tool in made.model.requests[0].tools] == [
        "Read",
        "Glob",
        "Grep",
        "UpdateSpec",
        "AskDeveloper",
    ]


@pytest.mark.parametrize(("words", "meant"), [("2", "For members"), ("for dogs", "for dogs"), ("7", "7")])
def test_a_number_means_its_option_and_other_words_are_the_answer(
    ticket: Ticket, room: MakeRoom, *, words: str, meant: str
) -> None:
    made = room(says(asks()), says("I see."))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=True)
    socrates.hear(words)
    assert heard(made) == meant
    assert happened(made, Notice) == ([Notice(text="your answer: For members")] if words == "2" else [])
    assert socrates.question is None


def test_a_second_question_in_one_turn_is_refused(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says(asks(), asks("toolu_2", question="And when?")), says("I see."))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=True)
    assert happened(made, QuestionAsked) == [ASKED]
    first, second = socrates.conversation.messages[-1].content
    assert isinstance(first, ToolResult)
    assert isinstance(second, ToolResult)
    assert (first.is_error, second.is_error) == (False, True)
    assert 'Ask one question at a time: "For whom?" is pending.' in second.content


@pytest.mark.parametrize(
    "changes", [{"options": ["a", "b", "c", "d", "e", "f"]}, {"question": " "}, {"options": ["1"]}]
)
def test_a_question_that_cannot_be_answered_goes_back_to_the_model(
    ticket: Ticket, room: MakeRoom, changes: dict[str, JSON]
) -> None:
    made = room(says(asks("toolu_1", **changes)), says(asks("toolu_2")))
    Socrates(ticket, dialog=made.dialog).open(somebody_answers=True)
    assert last_result(made).is_error
    assert happened(made, QuestionAsked) == [ASKED]


def test_later_puts_the_question_into_the_open_ones_and_the_model_goes_on(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says(asks()), says(asks("toolu_2", question="And when?")), objection=lambda: pytest.fail("asked"))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=True)
    socrates.hear("Later")
    assert spec.load(ticket.spec_path).open_questions == ("For whom?",)
    assert [type(event) for event in happened(made, SpecProposed, SpecSaved)] == [SpecProposed, SpecSaved]
    assert "will answer this later. The question is in open_questions" in heard(made)
    assert socrates.question is not None
    assert socrates.question.question == "And when?"


def test_a_spec_changed_by_hand_while_a_question_waits_is_told_though_it_is_put_off(
    ticket: Ticket, room: MakeRoom
) -> None:
    made = room(says(asks()), says("I see."))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=True)
    ticket.spec_path.write_text(ticket.spec_path.read_text() + "remark: Integers only, by hand.\n")
    socrates.hear("later")
    assert "Integers only, by hand." in heard(made)
    assert "will answer this later. The question is in open_questions" in heard(made)


def test_an_option_in_the_words_that_put_off_is_an_answer(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says(asks(options=["Skip", "Stop"])), says("I see."))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=True)
    socrates.hear("skip")
    assert heard(made) == "skip"
    assert spec.load(ticket.spec_path).open_questions == ()


def test_a_question_is_put_again_and_without_one_the_last_words_are_given(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says(asks()), says("And **when**?"))
    socrates = Socrates(ticket, dialog=made.dialog)
    assert socrates.ask_again() == ""
    socrates.open(somebody_answers=True)
    socrates.ask_again()
    assert happened(made, QuestionAsked) == [ASKED, ASKED]
    socrates.hear("for all")
    assert socrates.ask_again() == "And **when**?"
    assert len(made.model.requests) == 2


def test_an_answer_that_did_not_get_through_can_be_given_again(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says(asks()), ModelError("Overloaded.", hint="wait"), says("I see."))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=True)
    with pytest.raises(ModelError):
        socrates.hear("1")
    socrates.hear("2")
    assert heard(made) == 'To the question "For whom?": For members'


def test_a_new_conversation_is_told_the_ticket_again(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says(asks()), says("For whom?"))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=True)
    socrates.conversation = socrates.dialog.start()
    assert socrates.question is None
    socrates.hear("2")
    assert "A sale" in heard(made)
    assert heard(made).endswith("\n\n2")


def test_an_earlier_conversation_still_has_its_question(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says(asks()), says("I see."))
    first = Socrates(ticket, dialog=made.dialog)
    first.open(somebody_answers=True)
    second = Socrates(ticket, dialog=made.dialog)
    second.conversation = first.conversation
    second.hear("1")
    assert heard(made).endswith("\n\nFor all")


def test_a_summary_in_the_place_of_a_conversation_leaves_the_question(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says(asks()), says("I see."))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=True)
    summary = Conversation("You are Socrates.")
    summary.say("What was said so far.")
    socrates.conversation = summary
    socrates.hear("1")
    assert heard(made).endswith('To the question "For whom?": For all')


def test_with_nobody_there_nothing_can_be_asked_and_what_was_is_left_open(ticket: Ticket, room: MakeRoom) -> None:
    made = room(
        says(call("UpdateSpec", description="Cheaper.", acceptance_criteria=[ONE])),
        says(asks()),
        says("I inferred the rest.\n\n**How much?** Ten percent, or twenty?"),
    )
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=False)
    assert "AskDeveloper" not in [tool.name for tool in made.model.requests[0].tools]
    assert spec.load(ticket.spec_path).open_questions == ("For whom?", "How much? Ten percent, or twenty?")
    assert happened(made, QuestionAsked) == []
    assert socrates.missing == (
        "an answer to the open question: For whom?",
        "an answer to the open question: How much? Ten percent, or twenty?",
    )


def test_with_nobody_there_what_nothing_could_be_inferred_of_is_left_open(ticket: Ticket, room: MakeRoom) -> None:
    Socrates(ticket, dialog=room(says("The code says nothing.")).dialog).open(somebody_answers=False)
    assert spec.load(ticket.spec_path).open_questions == (
        "What is the goal, who needs it, and why?",
        "How can one tell that it is done?",
    )


def test_with_nobody_there_a_spec_that_was_inferred_has_no_open_question(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says(call("UpdateSpec", description="Cheaper.", acceptance_criteria=[ONE])), says("Complete."))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.open(somebody_answers=False)
    assert socrates.missing == ()


def test_the_model_does_not_say_when_a_spec_is_complete(ticket: Ticket, room: MakeRoom) -> None:
    socrates = Socrates(ticket, dialog=room(says("The spec is complete.")).dialog)
    socrates.open(somebody_answers=True)
    assert socrates.missing == ("a description", "an acceptance criterion")
