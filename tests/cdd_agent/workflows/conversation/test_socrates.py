import os

import pytest

from cdd_agent.errors import DocumentError
from cdd_agent.events import SpecSaved
from cdd_agent.model.conversation import Text, ToolResult
from cdd_agent.tickets import spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.workflows.conversation.socrates import Socrates
from tests.cdd_agent.workflows.conversation.conftest import MakeRoom, Room
from tests.fakes.model import call, says

ONE, TWO = "WHEN it is day THE SYSTEM SHALL sell", "WHEN it is night THE SYSTEM SHALL sleep"


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
    assert Socrates(ticket, desk=made.desk).open(somebody_answers=True) == "For whom?"
    words = first_words(made)
    assert "A sale" in words
    assert "- a description" in words
    assert "- an acceptance criterion" in words
    assert "Nobody is there" not in words


def test_with_nobody_there_it_is_told_not_to_ask(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says("Done."))
    Socrates(ticket, desk=made.desk).open(somebody_answers=False)
    assert "Nobody is there to answer" in first_words(made)


def test_answers_become_a_complete_spec_and_the_rest_of_the_file_stays(ticket: Ticket, room: MakeRoom) -> None:
    saves = call("UpdateSpec", description="Cheaper.", acceptance_criteria=[ONE, TWO, ONE])
    made = room(says("For whom?"), says(saves), says("Complete."))
    socrates = Socrates(ticket, desk=made.desk)
    socrates.open(somebody_answers=True)
    assert socrates.hear("for all") == "Complete."
    assert socrates.missing == ()
    saved = spec.load(ticket.spec_path)
    assert [(criterion.id, criterion.text) for criterion in saved.acceptance_criteria] == [("AC-1", ONE), ("AC-2", TWO)]
    assert (saved.title, saved.status) == ("A sale", "refined")
    assert "# What is wanted, for whom and why" in ticket.spec_path.read_text()
    (event,) = [event for event in made.seen if isinstance(event, SpecSaved)]
    assert (event.changed, event.missing) == (("description", "acceptance_criteria"), ())


def test_an_open_question_makes_a_refined_spec_a_draft_again(ticket: Ticket, room: MakeRoom) -> None:
    made = room(
        says(call("UpdateSpec", "toolu_1", description="Cheaper.", acceptance_criteria=[ONE])),
        says(call("UpdateSpec", "toolu_2", open_questions=["How much?"])),
        says("One is open."),
    )
    socrates = Socrates(ticket, desk=made.desk)
    socrates.hear("go")
    assert spec.load(ticket.spec_path).status == "draft"
    assert socrates.missing == ("an answer to the open question: How much?",)
    assert "Still missing: an answer to the open question: How much?" in last_result(made).content


@pytest.mark.parametrize(
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
    Socrates(ticket, desk=made.desk).hear("go")
    found = spec.load(ticket.spec_path).acceptance_criteria
    texts = [criterion.text if criterion.text in (ONE, TWO) else "..." for criterion in found]
    assert list(zip([criterion.id for criterion in found], texts, strict=True)) == expected
    assert not any(criterion.text.startswith("AC-") for criterion in found)


def test_an_invalid_spec_is_told_before_anybody_is_asked(ticket: Ticket, room: MakeRoom) -> None:
    ticket.spec_path.write_text("title: A sale\ntype: nonsense\n")
    made = room()
    with pytest.raises(DocumentError, match=r"spec\.yaml"):
        Socrates(ticket, desk=made.desk)
    assert made.model.requests == []


def test_a_key_that_is_not_there_is_told_to_the_model_and_nothing_is_written(ticket: Ticket, room: MakeRoom) -> None:
    before = ticket.spec_path.read_bytes()
    made = room(says(call("UpdateSpec", titel="Sale")), says("I see."))
    Socrates(ticket, desk=made.desk).hear("go")
    assert last_result(made).is_error
    assert "did you mean `title`" in last_result(made).content
    assert ticket.spec_path.read_bytes() == before


def test_a_pipe_or_no_text_in_place_of_the_spec_is_an_error_and_no_wait(ticket: Ticket, room: MakeRoom) -> None:
    socrates = Socrates(ticket, desk=room().desk)
    ticket.spec_path.write_bytes(b"title: caf\xe9\n")
    with pytest.raises(DocumentError, match="no UTF-8"):
        socrates.open(somebody_answers=True)
    ticket.spec_path.unlink()
    os.mkfifo(ticket.spec_path)
    with pytest.raises(DocumentError, match="pipe"):
        socrates.open(somebody_answers=True)
