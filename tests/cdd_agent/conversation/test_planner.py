import os
from dataclasses import replace

import pytest

from cdd_agent.conversation.planner import Planner
from cdd_agent.errors import DocumentError, ExitCode, GateClosed, UsageError
from cdd_agent.events import Event, Notice, PlanDrafted, ToolCalled
from cdd_agent.model.conversation import JSON, Text, ToolResult, Turn
from cdd_agent.storage import private_folder
from cdd_agent.testrun.impact import ImpactMap, find_impact, save_impact
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state import RunState, StepKey, pending_steps, start_step
from cdd_agent.work.state_file import save_state
from tests.cdd_agent.conversation.conftest import MakeRoom, Room
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
    plan = Planner(ticket, dialog=made.dialog, max_drafts=3).draft()
    assert [step.title for step in plan.steps] == ["Ten percent off"]
    assert ticket.plan_path.read_text() == PLAN
    assert drafted(made) == [PlanDrafted(ticket="sale", number=1, problems=())]
    (block,) = made.model.requests[0].messages[0].content
    assert isinstance(block, Text)
    assert SPEC in block.text


def test_an_invalid_draft_goes_back_with_its_problems_and_never_to_disk(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(INVALID), draft(PLAN, 2))
    Planner(ticket, dialog=made.dialog, max_drafts=3).draft()
    answer = made.model.requests[1].messages[-1].content[0]
    assert isinstance(answer, ToolResult)
    assert "Draft 1 was refused:\n- line 6: " in answer.content
    assert [bool(event.problems) for event in drafted(made)] == [True, False]
    assert ticket.plan_path.read_text() == PLAN


def test_after_the_last_draft_its_problems_are_shown(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(INVALID), draft(INVALID, 2), draft(PLAN, 3))
    with pytest.raises(GateClosed, match=r"submitted 2 drafts\.\n  line 6: ") as closed:
        Planner(ticket, dialog=made.dialog, max_drafts=2).draft()
    assert closed.value.exit_code == ExitCode.CLOSED
    assert str(ticket.plan_path) in closed.value.hint
    assert not ticket.plan_path.exists()
    assert len(made.model.requests) == 2


def test_a_planner_that_only_talks_is_quoted(ticket: Ticket, room: MakeRoom) -> None:
    made = room(says("This cannot be planned."))
    with pytest.raises(GateClosed, match=r"submitted no draft\. It said: This cannot be planned\."):
        Planner(ticket, dialog=made.dialog, max_drafts=3).draft()


def test_a_request_for_change_is_made_of_the_plan_that_is_there(ticket: Ticket, room: MakeRoom) -> None:
    changed = PLAN.replace("Ten percent", "Twenty percent")
    made = room(draft(PLAN), draft(changed, 2))
    planner = Planner(ticket, dialog=made.dialog, max_drafts=1)
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
        Planner(ticket, dialog=made.dialog, max_drafts=1).draft("Change it.")
    assert ticket.plan_path.read_text() == PLAN


def test_criteria_that_were_added_since_are_asked_of_the_next_draft(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(PLAN))
    planner = Planner(ticket, dialog=made.dialog, max_drafts=1)
    ticket.spec_path.write_text(f"{SPEC}  - id: AC-2\n    text: WHEN it is night THE SYSTEM SHALL sleep\n")
    with pytest.raises(GateClosed, match="AC-2"):
        planner.draft()


def test_an_incomplete_spec_is_refused_with_what_it_lacks(ticket: Ticket, room: MakeRoom) -> None:
    ticket.spec_path.write_text(SPEC.replace("description: Cheaper.\n", "") + "open_questions:\n  - How much?\n")
    with pytest.raises(UsageError, match=r"it lacks a description, an answer to the open question: How much\?") as no:
        Planner(ticket, dialog=room().dialog, max_drafts=3)
    assert no.value.hint == "cdd spec sale"


def test_a_pipe_or_no_text_in_place_of_a_document_is_an_error_and_no_wait(ticket: Ticket, room: MakeRoom) -> None:
    ticket.plan_path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(DocumentError, match="not UTF-8"):
        Planner(ticket, dialog=room().dialog, max_drafts=3).draft()
    for path in (ticket.plan_path, ticket.spec_path):
        planner = Planner(ticket, dialog=room().dialog, max_drafts=3)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(DocumentError, match="pipe"):
            planner.draft()
        path.unlink()
        path.write_text(SPEC)


def test_what_the_model_says_instead_of_a_draft_is_told_without_keys(ticket: Ticket, room: MakeRoom) -> None:
    with pytest.raises(GateClosed) as caught:
        Planner(ticket, dialog=room(says(f"Your token is ghp_{'Kk1' * 12}")).dialog, max_drafts=3).draft()
    assert "It said: Your token is [masked: GitHub token]" in caught.value.happened


def notices(made: Room) -> list[str]:
    return [event.text for event in made.seen if isinstance(event, Notice)]


def test_a_draft_that_names_what_cannot_be_written_goes_back_with_line_and_hint(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(PLAN.replace("`discount.py`", "`.git/hooks/x`, `tickets`")), draft(PLAN, 2))
    Planner(ticket, dialog=made.dialog, max_drafts=2).draft()
    first, second = drafted(made)
    assert [problem.partition(", which")[0] for problem in first.problems] == [
        "line 7: step 1 names a file that cannot be written: .git/hooks/x is in .git",
        "line 7: step 1 names tickets",
    ]
    assert second.problems == ()


def test_nobody_lets_the_model_plan_a_file_of_settings(ticket: Ticket, room: MakeRoom) -> None:
    settings = PLAN.replace("`discount.py`", "`discount.py`, `.github/workflows/ci.yml`")
    made = room(draft(settings), draft(PLAN, 2))
    Planner(ticket, dialog=made.dialog, max_drafts=3).draft()
    (problem,) = drafted(made)[0].problems
    assert "step 1 names .github/workflows/ci.yml, and .github begins with a dot" in problem
    assert ticket.plan_path.read_text() == PLAN
    ticket.plan_path.write_text(settings)
    made = room(draft(settings.replace("Cheaper", "Cheap")))
    Planner(ticket, dialog=made.dialog, max_drafts=3).draft("cheaper")
    assert drafted(made)[0].problems == (), "the developer has named it"


def test_a_developer_who_sees_the_plan_is_told_of_files_of_settings(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(PLAN.replace("`discount.py`", "`.rvmrc`")), objection=lambda: None)
    Planner(ticket, dialog=made.dialog, max_drafts=3).draft()
    assert any(".rvmrc begins with a dot" in event.text for event in made.seen if isinstance(event, Notice))


def test_what_is_odd_in_an_accepted_draft_is_told(ticket: Ticket, room: MakeRoom) -> None:
    odd = PLAN.replace("- Kind: feature", "- Kind: feature\n- Size: Large")
    made = room(draft(odd))
    Planner(ticket, dialog=made.dialog, max_drafts=1).draft()
    assert [text.partition(" (")[0] for text in notices(made)] == [
        "line 5: step 1 has no description",
        "line 11: step 1 is large",
    ]


def test_a_test_that_is_there_already_is_told_until_its_step_was_run(ticket: Ticket, room: MakeRoom) -> None:
    tests = ticket.folder.parents[1] / "tests"
    tests.mkdir()
    (tests / "test_discount.py").write_text("def test_discount():\n    pass\n")
    plan = f"{PLAN}\nDo it.\n"
    made = room(draft(plan))
    planner = Planner(ticket, dialog=made.dialog, max_drafts=1)
    saved = planner.draft()
    assert ["which exists already" in text for text in notices(made)] == [True]
    key = StepKey(number=1, title="Ten percent off", text_sha256="0")
    state = RunState(ticket_slug="sale", started_at="2026-01-31T12:00:00Z", step_executions=pending_steps([key]))
    save_state(ticket.state_path, state)
    assert len(planner.find_warnings(saved)) == 1
    save_state(ticket.state_path, start_step(state, key, now=state.started_at, base_commit="0"))
    assert planner.find_warnings(saved) == ()
    ticket.state_path.write_text("{")
    assert len(planner.find_warnings(saved)) == 1


def test_the_problems_of_a_plan_edited_by_hand_are_known_by_line_and_told_to_the_model(
    ticket: Ticket, room: MakeRoom
) -> None:
    ticket.plan_path.write_text(INVALID.replace("`discount.py`", "`../discount.py`"))
    made = room(draft(PLAN))
    planner = Planner(ticket, dialog=made.dialog, max_drafts=1)
    found = planner.find_problems(planner.load())
    assert [problem.line for problem in found] == [6, 7]
    planner.draft("Mend it.")
    block = made.model.requests[0].messages[-1].content[0]
    assert isinstance(block, Text)
    assert all(f"- {problem}" in block.text for problem in found)


def test_a_new_conversation_between_two_drafts_breaks_nothing(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(PLAN), draft(PLAN, 2))
    planner = Planner(ticket, dialog=made.dialog, max_drafts=1)
    planner.draft()
    planner.conversation = planner.dialog.start()
    planner.draft("Again.")
    (block,) = made.model.requests[1].messages[0].content
    assert isinstance(block, Text)
    assert SPEC.replace("refined", "planned") in block.text
    assert PLAN in block.text


def test_a_saved_plan_is_held_against_the_spec_as_it_is_now(ticket: Ticket, room: MakeRoom) -> None:
    planner = Planner(ticket, dialog=room(draft(PLAN)).dialog, max_drafts=1)
    assert planner.find_problems(planner.draft()) == ()
    ticket.spec_path.write_text(f"{SPEC}  - id: AC-2\n    text: WHEN it is night THE SYSTEM SHALL sleep\n")
    assert [problem.message for problem in planner.find_problems(planner.load())] == [
        "no step implements the criterion AC-2"
    ]
    assert planner.criteria == ("AC-1", "AC-2")


def test_a_plan_that_is_changed_while_the_model_drafts_is_never_overwritten(ticket: Ticket, room: MakeRoom) -> None:
    by_hand = PLAN.replace("Ten percent", "Five percent")
    made = room(draft(PLAN), draft(by_hand.replace("discount.py", "sale.py"), 2))

    class Meanwhile:
        """The developer's editor, which saves just before the first draft comes in."""

        def __call__(self, event: Event) -> None:
            made.seen.append(event)
            if isinstance(event, ToolCalled) and not ticket.plan_path.exists():
                ticket.plan_path.write_text(by_hand)

    Planner(ticket, dialog=replace(made.dialog, emit=Meanwhile()), max_drafts=1).draft()
    (block,) = made.model.requests[1].messages[-1].content
    assert isinstance(block, ToolResult)
    assert block.is_error
    assert "Not saved: plan.md has changed. It says now:" in block.content
    assert "Five percent off" in block.content
    assert "Five percent off" in ticket.plan_path.read_text()
    assert "sale.py" in ticket.plan_path.read_text()


def test_the_first_message_outlines_the_project_within_its_limit(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(PLAN), draft(PLAN))
    (made.dialog.workspace.root / "till.py").write_text("class Till:\n    def add(self): ...\n", encoding="utf-8")
    planner = Planner(ticket, dialog=replace(made.dialog, outline_tokens=1000), max_drafts=1)
    planner.draft()
    planner.draft("Again.")
    first, second = (str(request.messages[-1].content) for request in made.model.requests)
    assert r"till.py (2 lines)\n  class Till:\n    def add(self): ..." in first
    assert "till.py" not in second


def test_the_first_message_lists_the_tests_of_each_file_that_a_run_has_noted(ticket: Ticket, room: MakeRoom) -> None:
    made = room(draft(PLAN), draft(PLAN))
    root = made.dialog.workspace.root
    (root / "till.py").write_text("N = 1\n", encoding="utf-8")
    private_folder(root)
    save_impact(
        ImpactMap(files={"till.py": ("test_till.py::test_n",), "gone.py": ("test_a.py::test_b",)}), find_impact(root)
    )
    planner = Planner(ticket, dialog=replace(made.dialog, outline_tokens=1000), max_drafts=1)
    planner.draft()
    planner.draft("Again.")
    first, second = (str(request.messages[-1].content) for request in made.model.requests)
    assert "- `till.py`: test_till.py (test_n)" in first
    assert "gone.py" not in first
    assert "test_till.py" not in second
