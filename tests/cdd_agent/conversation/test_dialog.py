from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.agent.sessions import Transcript, load_session
from cdd_agent.agent.tools import Completion, Tool, ToolOutput, define_tool
from cdd_agent.errors import BudgetSpent, ExitCode, ModelError
from cdd_agent.events import Event, Notice
from cdd_agent.model.conversation import AssistantMessage, Opaque, Text, ToolResult, UserMessage
from cdd_agent.work.records import find_records
from cdd_agent.workspace.memory import Memory, MemoryFile
from tests.cdd_agent.agent.test_hooks import make_hooks, on
from tests.cdd_agent.conversation.conftest import MakeRoom
from tests.fakes.clock import FakeClock
from tests.fakes.model import call, says


def note() -> Tool:
    return define_tool("Note", Completion, run=lambda _: ToolOutput(text="noted"), subject=lambda _: "")


@pytest.mark.parametrize(("agent", "first"), [("socrates", "You are Socrates."), ("planner", "You are the Planner.")])
def test_a_conversation_begins_with_the_role_and_its_prompt_ends_with_the_work(
    room: MakeRoom, *, agent: str, first: str
) -> None:
    system = room().dialog.of(agent, "sale").start().system
    assert system.startswith(first)
    assert system.splitlines()[-1] == f"Work: {agent} sale"


def test_an_answer_may_read_but_change_no_file(room: MakeRoom, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    made = room(says(call("Read", file_path="a.py"), call("Write", file_path="b.py", content="")), says("Seen."))
    dialog = made.dialog.of("planner", "sale")
    conversation = dialog.start()
    conversation.say("Look.")
    assert dialog.ask(conversation, note()).text == "Seen."
    assert [tool.name for tool in made.model.requests[0].tools] == ["Read", "Glob", "Grep", "Note"]
    read, written = made.model.requests[1].messages[-1].content
    assert isinstance(read, ToolResult)
    assert isinstance(written, ToolResult)
    assert (read.is_error, written.is_error) == (False, True)
    assert not (tmp_path / "b.py").exists()


def test_an_answer_that_never_ends_spends_the_budget(room: MakeRoom) -> None:
    made = room(*(says(call("Glob", f"toolu_{n}", pattern="*")) for n in range(3)), max_turns=3)
    dialog = made.dialog.of("socrates", "sale")
    conversation = dialog.start()
    conversation.say("Ask.")
    with pytest.raises(BudgetSpent, match="socrates used 3 turns and 3 tool calls") as spent:
        dialog.ask(conversation, note())
    assert spent.value.exit_code == ExitCode.BUDGET
    assert "max_turns" in spent.value.hint


def test_calls_that_fail_again_and_again_spend_it_too(room: MakeRoom) -> None:
    made = room(*(says(call("Read", f"toolu_{n}", file_path="none.py")) for n in range(5)))
    dialog = made.dialog.of("socrates", "sale")
    conversation = dialog.start()
    conversation.say("Ask.")
    with pytest.raises(BudgetSpent, match="used 3 turns"):
        dialog.ask(conversation, note())


def test_the_conversation_can_go_on_after_an_error(room: MakeRoom) -> None:
    made = room(ModelError("Overloaded.", hint="wait"), says("Here I am."))
    dialog = made.dialog.of("socrates", "sale")
    conversation = dialog.start()
    conversation.say("Ask.")
    with pytest.raises(ModelError):
        dialog.ask(conversation, note())
    conversation.say("Again.")
    assert dialog.ask(conversation, note()).text == "Here I am."


def test_every_conversation_begins_with_the_conventions(room: MakeRoom) -> None:
    document = MemoryFile(path="AGENTS.md", text="Tabs.", size_bytes=5)
    dialog = replace(room().dialog, memory=Memory(files=(document,)))
    conversation = dialog.of("planner", "sale").start()
    conversation.say("Look.")
    (told, words) = conversation.messages[0].content
    assert isinstance(told, Text)
    assert f"<data-{conversation.token} AGENTS.md>\nTabs." in told.text
    assert words == Text(text="Look.")
    assert conversation.token in conversation.system


def test_a_long_conversation_is_replaced_by_its_summary_and_a_short_one_stays(room: MakeRoom) -> None:
    made = room(says("They talked."))
    made.model.name = "claude-haiku-5-5"
    dialog = replace(made.dialog, compact_at_percent=80, agent="socrates", ticket="sale")
    conversation = dialog.start()
    conversation.say("Hello.")
    conversation.tokens = 799_999
    assert dialog.summarize_if_long(conversation) is conversation
    conversation.tokens = 800_000
    shorter = dialog.summarize_if_long(conversation)
    assert "They talked." in str(shorter.messages)
    assert shorter.system == conversation.system
    assert len(conversation.messages) == 1
    (archive,) = (find_records(dialog.workspace.root).folder / "archive").iterdir()
    assert archive.name == "sale-socrates-1.jsonl"
    assert "Hello." in archive.read_text()


def test_a_hook_gets_the_archive_before_a_summary_and_can_keep_the_conversation(room: MakeRoom) -> None:
    made, seen = room(says("They talked.")), list[Event]()
    read = "import json, sys; print(open(json.load(sys.stdin)['transcript_path']).read())"
    command = f'python3 -c "{read}" | grep -o Hello >&2; exit 2'
    hooks = make_hooks(made.dialog.workspace.root, on("PreCompact", command, matcher="manual"), seen=seen)
    dialog = replace(made.dialog, hooks=hooks, agent="socrates", ticket="sale")
    conversation = dialog.start()
    conversation.say("Hello.")
    assert dialog.summarize(conversation) is conversation
    (notice,) = seen
    assert isinstance(notice, Notice)
    assert notice.text.endswith("blocked PreCompact manual: Hello")
    assert "They talked." in str(dialog.summarize(conversation, trigger="auto").messages)


def test_a_resumed_conversation_goes_on_in_the_transcript(room: MakeRoom, tmp_path: Path) -> None:
    transcript = Transcript(tmp_path, clock=FakeClock(), tell=lambda _: None)
    dialog = replace(room().dialog, transcript=transcript, agent="socrates", ticket="sale")
    messages = (UserMessage(content=(Text(text="Hello."),)), AssistantMessage(content=(Text(text="Yes?"),)))
    conversation = dialog.resume("bcdfgh", messages)
    assert "<data-bcdfgh" in conversation.system
    conversation.say("Go on.")
    transcript.close()
    (read,) = load_session(tmp_path, transcript.id).conversations
    assert read.messages == (*messages, UserMessage(content=(Text(text="Go on."),)))


def test_another_model_is_not_given_the_thoughts_of_the_first(room: MakeRoom) -> None:
    dialog = room().dialog.of("socrates", "sale")
    conversation = dialog.start()
    conversation.say("Hello.")
    conversation.hear(says(Opaque(wire={"type": "thinking", "thinking": "hmm"}), "Yes?"))
    other = dialog.drop_thoughts(conversation)
    assert other.messages[1] == AssistantMessage(content=(Text(text="Yes?"),))
    assert (other.token, other.system) == (conversation.token, conversation.system)
