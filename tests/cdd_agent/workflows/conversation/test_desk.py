from pathlib import Path

import pytest

from cdd_agent.agent.tool import Tool, ToolOutput, define
from cdd_agent.agent.tools.completion import Completion
from cdd_agent.errors import BudgetSpent, ExitCode, ModelError
from cdd_agent.model.conversation import ToolResult
from tests.cdd_agent.workflows.conversation.conftest import MakeRoom
from tests.fakes.model import call, says


def note() -> Tool:
    return define("Note", "Note.", inputs=Completion, run=lambda _: ToolOutput(text="noted"), subject=lambda _: "")


@pytest.mark.parametrize(("agent", "first"), [("socrates", "You are Socrates."), ("planner", "You are the Planner.")])
def test_a_conversation_begins_with_the_role_and_its_prompt_ends_with_the_work(
    room: MakeRoom, *, agent: str, first: str
) -> None:
    system = room().desk.conversation(agent, ticket="sale").system
    assert system.startswith(first)
    assert system.splitlines()[-1] == f"Work: {agent} sale"


def test_an_answer_may_read_but_change_no_file(room: MakeRoom, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    made = room(says(call("Read", file_path="a.py"), call("Write", file_path="b.py", content="")), says("Seen."))
    conversation = made.desk.conversation("planner", ticket="sale")
    conversation.say("Look.")
    assert made.desk.ask(conversation, note(), agent="planner").text == "Seen."
    assert [tool.name for tool in made.model.requests[0].tools] == ["Read", "Glob", "Grep", "Note"]
    read, written = made.model.requests[1].messages[-1].content
    assert isinstance(read, ToolResult)
    assert isinstance(written, ToolResult)
    assert (read.is_error, written.is_error) == (False, True)
    assert not (tmp_path / "b.py").exists()


def test_an_answer_that_never_ends_spends_the_budget(room: MakeRoom) -> None:
    made = room(*(says(call("Glob", f"toolu_{n}", pattern="*")) for n in range(3)), max_turns=3)
    conversation = made.desk.conversation("socrates", ticket="sale")
    conversation.say("Ask.")
    with pytest.raises(BudgetSpent, match="socrates used 3 turns and 3 tool calls") as spent:
        made.desk.ask(conversation, note(), agent="socrates")
    assert spent.value.exit_code == ExitCode.BUDGET
    assert "max_turns" in spent.value.hint


def test_calls_that_fail_again_and_again_spend_it_too(room: MakeRoom) -> None:
    made = room(*(says(call("Read", f"toolu_{n}", file_path="none.py")) for n in range(5)))
    conversation = made.desk.conversation("socrates", ticket="sale")
    conversation.say("Ask.")
    with pytest.raises(BudgetSpent, match="used 3 turns"):
        made.desk.ask(conversation, note(), agent="socrates")


def test_the_conversation_can_go_on_after_an_error(room: MakeRoom) -> None:
    made = room(ModelError("Overloaded.", hint="wait"), says("Here I am."))
    conversation = made.desk.conversation("socrates", ticket="sale")
    conversation.say("Ask.")
    with pytest.raises(ModelError):
        made.desk.ask(conversation, note(), agent="socrates")
    conversation.say("Again.")
    assert made.desk.ask(conversation, note(), agent="socrates").text == "Here I am."
