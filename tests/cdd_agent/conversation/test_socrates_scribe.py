"""What is written to spec.yaml, how it is shown before, and what stops it."""

import pytest

from cdd_agent.conversation.socrates import Socrates, SpecEditor
from cdd_agent.events import SpecProposed, SpecSaved
from cdd_agent.model.conversation import JSON, ToolResult
from cdd_agent.tickets import spec
from cdd_agent.tickets.ticket import Ticket
from tests.cdd_agent.conversation.conftest import MakeRoom, Room
from tests.fakes.model import call, says

ONE, VAGUE = "WHEN it is day THE SYSTEM SHALL sell", "WHEN it is night THE SYSTEM SHALL sleep well"


def updates(made: Room, ticket: Ticket, **changes: JSON) -> ToolResult:
    """What the model is told of one call of UpdateSpec."""
    made.model.queue += [says(call("UpdateSpec", None, **changes)), says("So.")]
    Socrates(ticket, dialog=made.dialog).hear("go")
    (block,) = made.model.requests[-1].messages[-1].content
    assert isinstance(block, ToolResult)
    return block


def happened(made: Room) -> list[str]:
    return [type(event).__name__ for event in made.seen if isinstance(event, SpecProposed | SpecSaved)]


def test_the_diff_is_shown_before_the_file_is_written(ticket: Ticket, room: MakeRoom) -> None:
    before = ticket.spec_path.read_text()
    on_disk: list[str] = []

    def looks() -> None:
        on_disk.append(ticket.spec_path.read_text())

    made = room(objection=looks)
    told = updates(made, ticket, title="Summer sale")

    assert on_disk == [before]
    assert happened(made) == ["SpecProposed", "SpecSaved"]
    (proposed,) = [event for event in made.seen if isinstance(event, SpecProposed)]
    assert proposed.diff.splitlines()[:4] == ["--- spec.yaml", "+++ spec.yaml", "@@ -1,5 +1,5 @@", " schema: cdd/1"]
    assert [line for line in proposed.diff.splitlines()[3:] if line[0] in "+-"] == [
        '-title: "A sale"',
        '+title: "Summer sale"',
    ]
    assert "Saved. Still missing: a description" in told.content


def test_a_change_that_the_developer_refuses_is_not_saved_and_the_model_is_told_to_ask(
    ticket: Ticket, room: MakeRoom
) -> None:
    before = ticket.spec_path.read_bytes()
    made = room(objection=lambda: "prices are net")
    told = updates(made, ticket, title="Summer sale")

    assert ticket.spec_path.read_bytes() == before
    assert happened(made) == ["SpecProposed"]
    assert "The developer refused this change" in told.content
    assert told.content.count("Take their words as the answer") == 1
    assert "Their words: prices are net" in told.content
    assert "Ask what they want instead" not in told.content


def test_a_change_to_what_is_there_is_told_and_neither_shown_nor_saved(ticket: Ticket, room: MakeRoom) -> None:
    before = ticket.spec_path.stat().st_mtime_ns
    made = room(objection=lambda: pytest.fail("asked"))
    told = updates(made, ticket, title="A sale", open_questions=[])

    assert "Nothing to save: spec.yaml already says this." in told.content
    assert happened(made) == []
    assert ticket.spec_path.stat().st_mtime_ns == before


def test_a_criterion_without_a_form_is_refused_with_the_rule_and_an_example(ticket: Ticket, room: MakeRoom) -> None:
    made = room()
    told = updates(made, ticket, acceptance_criteria=[ONE, "It opens nicely", "WHEN late THE SYSTEM SHALL"])

    assert told.is_error
    assert '"It opens nicely": it begins with none of THE, WHEN, WHILE, IF, WHERE, GIVEN. For example: ' in told.content
    assert '"WHEN late THE SYSTEM SHALL": nothing follows SHALL. For example: WHEN the list' in told.content
    assert ONE not in told.content
    assert happened(made) == []


def test_a_plain_sentence_of_the_file_may_be_handed_in_again(ticket: Ticket, room: MakeRoom) -> None:
    ticket.spec_path.write_text("title: A sale\ndescription: d\nacceptance_criteria:\n  - Commas are quoted\n")
    updates(room(), ticket, acceptance_criteria=["Commas are quoted", ONE])

    found = spec.load(ticket.spec_path).acceptance_criteria
    assert [criterion.text for criterion in found] == ["Commas are quoted", ONE]


def test_a_vague_criterion_is_saved_with_a_remark(ticket: Ticket, room: MakeRoom) -> None:
    told = updates(room(), ticket, description="d", acceptance_criteria=[ONE, VAGUE])

    assert "Saved. It is complete. AC-2 is vague: 'well' measures nothing" in told.content


def test_a_spec_with_vague_criteria_only_stays_a_draft(ticket: Ticket, room: MakeRoom) -> None:
    told = updates(room(), ticket, description="d", acceptance_criteria=[VAGUE])

    assert "Still missing: an acceptance criterion that can be tested." in told.content
    assert spec.load(ticket.spec_path).status == "draft"


def test_what_somebody_else_wrote_meanwhile_is_neither_lost_nor_passed_over(ticket: Ticket, room: MakeRoom) -> None:
    text = ticket.spec_path.read_text()

    def edits() -> None:
        ticket.spec_path.write_text(f"{text}# a note\n")

    told = updates(room(objection=edits), ticket, title="Summer sale")
    assert told.is_error
    assert "spec.yaml changed while the developer reviewed your change" in told.content
    assert ticket.spec_path.read_text() == f"{text}# a note\n"


def test_a_file_that_somebody_has_broken_meanwhile_is_told_as_it_is_and_kept(ticket: Ticket, room: MakeRoom) -> None:
    dialog = room().dialog.of("socrates", ticket.slug)
    scribe = SpecEditor(ticket, dialog=dialog)
    scribe.describe_changes(dialog.start())
    ticket.spec_path.write_text("title: [half\n")
    told = scribe.tool().run({"title": "Summer sale"})
    assert told.is_error
    assert "spec.yaml has changed. It says now:\ntitle: [half" in told.text
    assert ticket.spec_path.read_text() == "title: [half\n"


def test_an_edit_by_hand_between_two_answers_is_told_to_the_model(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says("For whom?"), says("I see."), says("Yes."))
    socrates = Socrates(ticket, dialog=made.dialog)
    socrates.hear("go")
    ticket.spec_path.write_text(ticket.spec_path.read_text().replace("A sale", "Summer sale"))
    socrates.hear("for all")
    socrates.hear("and?")
    first, second, third = (str(request.messages[-1].content) for request in made.model.requests)
    assert "A sale" in first
    assert "says now:" in second
    assert "Summer sale" in second
    assert "Summer sale" not in third


def test_the_status_of_a_ticket_in_work_stays(ticket: Ticket, room: MakeRoom) -> None:
    ticket.spec_path.write_text("title: A sale\nstatus: executing\ndescription: d\n")
    updates(room(), ticket, acceptance_criteria=[ONE])
    assert spec.load(ticket.spec_path).status == "executing"


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_diff_shows_lines_whatever_ends_them(ticket: Ticket, room: MakeRoom, end: str) -> None:
    ticket.spec_path.write_bytes(f"\ufefftitle: a{end}description: d".encode())
    made = room()
    updates(made, ticket, title="b")
    (proposed,) = [event for event in made.seen if isinstance(event, SpecProposed)]
    assert proposed.diff.splitlines()[3:] == ["-title: a", "+title: b", " description: d"]
