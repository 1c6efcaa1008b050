"""Scout answers a question, or proposes a ticket; that of a small change is ready for the Executor."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.conversation.scout import Scout, TicketProposal, create_ticket, name_ticket
from cdd_agent.errors import UsageError
from cdd_agent.model.conversation import JSON, ToolCall, ToolResult
from cdd_agent.tickets import plan_markdown, spec, ticket
from cdd_agent.workspace.files import Workspace
from tests.cdd_agent.conversation.conftest import MakeRoom
from tests.fakes.model import says

SMALL = TicketProposal(
    title="Read days",
    slug="read-days",
    kind="bug",
    size="small",
    goal="A day has 24 hours.",
    criteria=("WHEN the text is 1d THE SYSTEM SHALL return 1440",),
    files=("reading.py",),
    tests=("test_days.py::test_one",),
)


def proposes(**changes: JSON) -> ToolCall:
    value: dict[str, JSON] = {
        "title": SMALL.title,
        "slug": SMALL.slug,
        "kind": SMALL.kind,
        "size": SMALL.size,
        "goal": SMALL.goal,
        "criteria": [*SMALL.criteria],
        "files": [*SMALL.files],
        "tests": [*SMALL.tests],
    }
    return ToolCall(id="toolu_propose", name="ProposeTicket", input={**value, **changes})


def test_a_question_is_answered_with_tools_that_only_read(tmp_path: Path, room: MakeRoom) -> None:
    made = room(says("In a.py."), says("And in b.py."))
    (tmp_path / "reading.py").write_text("def read_hours(\n    text: str,\n) -> int:\n    return 0\n")
    scout = Scout(tmp_path, dialog=replace(made.dialog, workspace=Workspace(tmp_path), outline_tokens=100))
    assert scout.hear("Where is it?") is None
    assert scout.hear("Only there?") is None
    assert [spec.name for spec in made.model.requests[1].tools] == ["Read", "Glob", "Grep", "ProposeTicket"]
    assert len(made.model.requests[1].messages) == 3
    assert str(made.model.requests[1].messages).count("  def read_hours(text: str) -> int:") == 1
    assert made.model.requests[1].system.endswith("Work: scout")


def test_a_request_ends_the_turn_with_a_proposal_and_creates_nothing(tmp_path: Path, room: MakeRoom) -> None:
    made = room(says(proposes()), says("As you like."))
    scout = Scout(tmp_path, dialog=made.dialog)
    assert scout.hear("Read days, too.") == SMALL
    assert list(tmp_path.iterdir()) == []
    assert scout.hear("Rather not.") is None


@pytest.mark.parametrize(
    "case",
    [
        ({"slug": "Read days"}, "is not the name of a ticket"),
        ({"slug": "sale"}, "exists already"),
        ({"criteria": ["It works"]}, "it begins with none of"),
        ({"tests": [], "files": []}, "A small change needs files, tests."),
        ({"files": ["../other.py"]}, "../other.py"),
        ({"tests": ["test_days.py::test one"]}, "test one"),
        ({"size": "huge"}, "size"),
    ],
)
def test_the_model_corrects_a_proposal_that_could_not_be_carried_out(
    tmp_path: Path, room: MakeRoom, case: tuple[dict[str, JSON], str]
) -> None:
    changes, why = case
    ticket.create(tmp_path, "sale", title="A sale", type="feature")
    made = room(says(proposes(**changes)), says("Never mind."))
    assert Scout(tmp_path, dialog=made.dialog).hear("Read days, too.") is None
    block = made.model.requests[1].messages[-1].content[0]
    assert isinstance(block, ToolResult)
    assert block.is_error
    assert why in block.content


def test_a_small_change_is_a_ticket_that_the_executor_accepts(tmp_path: Path) -> None:
    made = create_ticket(tmp_path, SMALL, words='Read "days": 1d, too.')
    wanted = spec.load(made.spec_path)
    assert (wanted.title, wanted.type, wanted.status) == ("Read days", "bug", "planned")
    assert wanted.description.strip() == 'Read "days": 1d, too.\n\nA day has 24 hours.'
    assert spec.find_missing(wanted) == ()
    (step,) = plan_markdown.load_valid(made.plan_path, wanted).steps
    assert (step.title, step.kind, step.criteria) == ("Read days", "bug", ("AC-1",))
    assert (step.files, step.tests) == (SMALL.files, SMALL.tests)


def test_a_large_one_waits_for_socrates(tmp_path: Path) -> None:
    made = create_ticket(tmp_path, replace(SMALL, size="large"), words="Read days, too.")
    assert not made.plan_path.exists()
    assert spec.find_missing(spec.load(made.spec_path)) == ("an acceptance criterion",)
    with pytest.raises(UsageError, match="exists already"):
        create_ticket(tmp_path, SMALL, words="Once more.")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("Export rows as CSV", ("export-rows-as-csv", "Export rows as CSV")),
        ("日本語で", ("request", "日本語で")),
        ("a b", ("a-b-2", "a b")),
        (f"Do {'very ' * 30}much\nand more", ("do-very-very-very-very", f"Do {'very ' * 12}very...")),
    ],
)
def test_words_name_a_ticket(tmp_path: Path, words: str, named: tuple[str, str]) -> None:
    ticket.create(tmp_path, "a-b", title="Taken", type="feature")
    proposal = name_ticket(tmp_path, words)
    assert (proposal.slug, proposal.title) == named
