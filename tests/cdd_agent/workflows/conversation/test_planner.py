import os

import pytest

from cdd_agent.errors import DocumentError, ExitCode, GateClosed, UsageError
from cdd_agent.events import PlanDrafted
from cdd_agent.model.conversation import JSON, Text, ToolResult, Turn
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.workflows.conversation.planner import Planner
from tests.cdd_agent.workflows.conversation.conftest import MakeRoom, Room
from tests.fakes.model import call, says

SPEC = """\
schema: cdd/1
title: A sale
type: feature
status: refined
description: Cheaper.
acceptance_criteria:
  - id: AC-1
    text: WHEN it is day THE SYSTEM SHALL sell
"""
PLAN = """\
# Implementation Plan: A sale

## Steps

### Step 1: Ten percent off
- Depends on: none
- Files: `discount.py`
- Tests: `tests/test_discount.py::test_discount`
- Criteria: AC-1
- Kind: feature
"""
INVALID = PLAN.replace("Depends on: none", "Depends on: 7")


@pytest.fixture
def ticket(ticket: Ticket) -> Ticket:
    ticket.spec_path.write_text(SPEC)
    return ticket


def draft(content: JSON, number: int = 1) -> Turn:
    return says(call("WritePlan", f"toolu_{number}", content=content))


def drafted(made: Room) -> list[PlanDrafted]:
    return [event for event in made.seen if isinstance(event, PlanDrafted)]


def test_a_valid_draft_is_saved_as_it_was_handed_in(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(PLAN))
    plan = Planner(ticket, desk=made.desk, max_drafts=3).draft()
    assert [step.title for step in plan.steps] == ["Ten percent off"]
    assert ticket.plan_path.read_text() == PLAN
    assert drafted(made) == [PlanDrafted(ticket="sale", number=1, problems=())]
    (block,) = made.model.requests[0].messages[0].content
    assert isinstance(block, Text)
    assert SPEC in block.text


def test_an_invalid_draft_goes_back_with_its_problems_and_never_to_disk(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(INVALID), draft(PLAN, 2))
    Planner(ticket, desk=made.desk, max_drafts=3).draft()
    answer = made.model.requests[1].messages[-1].content[0]
    assert isinstance(answer, ToolResult)
    assert "Draft 1 was refused:\n- line 6: " in answer.content
    assert [bool(event.problems) for event in drafted(made)] == [True, False]
    assert ticket.plan_path.read_text() == PLAN


def test_after_the_last_draft_its_problems_are_shown(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(INVALID), draft(INVALID, 2), draft(PLAN, 3))
    with pytest.raises(GateClosed, match=r"handed in 2 drafts\.\n  line 6: ") as closed:
        Planner(ticket, desk=made.desk, max_drafts=2).draft()
    assert closed.value.exit_code == ExitCode.CLOSED
    assert str(ticket.plan_path) in closed.value.hint
    assert not ticket.plan_path.exists()
    assert len(made.model.requests) == 2


def test_a_planner_that_only_talks_is_quoted(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says("This cannot be planned."))
    with pytest.raises(GateClosed, match=r"handed in no draft\. It said: This cannot be planned\."):
        Planner(ticket, desk=made.desk, max_drafts=3).draft()


def test_a_request_for_change_is_made_of_the_plan_that_is_there(ticket: Ticket, room: MakeRoom) -> None:
    changed = PLAN.replace("Ten percent", "Twenty percent")
    made = room(draft(PLAN), draft(changed, 2))
    planner = Planner(ticket, desk=made.desk, max_drafts=1)
    planner.draft()
    assert planner.draft("Make it twenty.").steps[0].title == "Twenty percent off"
    block = made.model.requests[1].messages[-1].content[0]
    assert isinstance(block, Text)
    assert PLAN in block.text
    assert block.text.endswith("Make it twenty.")
    assert ticket.plan_path.read_text() == changed


def test_a_refused_change_leaves_the_plan_as_it_was(ticket: Ticket, room: MakeRoom) -> None:
    ticket.plan_path.write_text(PLAN)
    made = room(draft(INVALID))
    with pytest.raises(GateClosed):
        Planner(ticket, desk=made.desk, max_drafts=1).draft("Change it.")
    assert ticket.plan_path.read_text() == PLAN


def test_criteria_that_were_added_since_are_asked_of_the_next_draft(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(PLAN))
    planner = Planner(ticket, desk=made.desk, max_drafts=1)
    ticket.spec_path.write_text(f"{SPEC}  - id: AC-2\n    text: WHEN it is night THE SYSTEM SHALL sleep\n")
    with pytest.raises(GateClosed, match="AC-2"):
        planner.draft()


def test_an_incomplete_spec_is_refused_with_what_it_lacks(ticket: Ticket, room: MakeRoom) -> None:
    ticket.spec_path.write_text(SPEC.replace("description: Cheaper.\n", "") + "open_questions:\n  - How much?\n")
    with pytest.raises(UsageError, match=r"it lacks a description, an answer to the open question: How much\?") as no:
        Planner(ticket, desk=room().desk, max_drafts=3)
    assert no.value.hint == "cdd spec sale"


def test_a_pipe_or_no_text_in_place_of_a_document_is_an_error_and_no_wait(ticket: Ticket, room: MakeRoom) -> None:
    ticket.plan_path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(DocumentError, match="no UTF-8"):
        Planner(ticket, desk=room().desk, max_drafts=3).draft()
    for path in (ticket.plan_path, ticket.spec_path):
        planner = Planner(ticket, desk=room().desk, max_drafts=3)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(DocumentError, match="pipe"):
            planner.draft()
        path.unlink()
        path.write_text(SPEC)


def test_what_the_model_says_instead_of_a_draft_is_told_without_keys(ticket: Ticket, room: MakeRoom) -> None:
    with pytest.raises(GateClosed) as caught:
        Planner(ticket, desk=room(says(f"Your token is ghp_{'Kk1' * 12}")).desk, max_drafts=3).draft()
    assert "It said: Your token is [masked: GitHub token]" in caught.value.happened
