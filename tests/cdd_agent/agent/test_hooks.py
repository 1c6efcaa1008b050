"""Hooks run as programs, without a sandbox; ``docs/reference/hooks.md`` has one for each event."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from cdd_agent.agent.blocks import WholeFiles
from cdd_agent.agent.hooks import (
    BlockHooks,
    SandboxedHooks,
    hear_prompts,
    offer_hooks,
    run_until_stop,
    submit_prompt,
    watch_tools,
)
from cdd_agent.agent.loop import AgentRun, run_without_tools
from cdd_agent.agent.tools import Tool, make_file_tools
from cdd_agent.config.trust import Offer
from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.events import Event, Notice
from cdd_agent.hooks import HookCommand, HookEvent, HookGroup, HookReply, HookSettings
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import Conversation
from cdd_agent.sandbox.port import Access
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.work.records import find_records
from cdd_agent.work.state import Usage
from cdd_agent.workspace.files import Workspace
from tests.fakes.model import ScriptedModel, says

DOC = (Path(__file__).parents[3] / "docs/reference/hooks.md").read_text(encoding="utf-8")
GUARD, REMIND, *_ = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
EXAMPLES = {
    event: (f"{'python3' if language == 'python' else 'sh'} hooks/example", text)
    for event, language, text in re.findall(r"\n`(\w+)`[^\n]*:[^\n]*\n\n```(\w+)\n(.*?)```", DOC, re.DOTALL)
}
"""Event -> the command of its example on the page, and the script."""


def on(event: HookEvent, command: str, *, matcher: str = "", timeout: float = 10) -> HookSettings:
    return {event: (HookGroup(hooks=(HookCommand(command=command, timeout=timeout),), matcher=matcher),)}


def make_hooks(
    root: Path,
    settings: HookSettings,
    *,
    seen: list[Event] | None = None,
    allows: Callable[[Offer], bool] = lambda offer: False,
) -> SandboxedHooks:
    offer = offer_hooks(settings, root)
    assert offer is not None
    return SandboxedHooks(
        settings=settings,
        project=root,
        root=root,
        sandbox=PlainSandbox(),
        make_access=lambda: Access(read_write=(root,)),
        variables={},
        session="sale",
        transcript=find_records(root).folder / "journal/sale/events.jsonl",
        emit=(seen if seen is not None else []).append,
        approved=offer,
        allows=allows,
    )


def tools(root: Path, settings: HookSettings) -> dict[str, Tool]:
    workspace = Workspace(root)
    watched = watch_tools(
        make_file_tools(workspace, lambda _: None), hooks=make_hooks(root, settings), workspace=workspace
    )
    return {tool.spec.name: tool for tool in watched}


def write_script(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text)


def test_the_first_example_of_the_page_blocks_a_call(tmp_path: Path) -> None:
    write_script(tmp_path, "hooks/guard.py", GUARD)
    write = tools(tmp_path, on("PreToolUse", "python3 hooks/guard.py", matcher="Write|Edit"))["Write"]
    output = write.run({"file_path": "shop_pb2.py", "content": "x = 1\n"})
    assert output.is_error
    assert output.text.endswith("shop_pb2.py is generated: change the .proto file instead.")
    assert not (tmp_path / "shop_pb2.py").exists()
    assert not write.run({"file_path": "shop.py", "content": "x = 1\n"}).is_error


@pytest.mark.slow
def test_the_second_example_of_the_page_adds_context(tmp_path: Path) -> None:
    write_script(tmp_path, "hooks/remind.py", REMIND)
    write = tools(tmp_path, on("PostToolUse", 'python3 "$CLAUDE_PROJECT_DIR"/hooks/remind.py'))["Write"]
    output = write.run({"file_path": "shop.py", "content": "x = 1\n"})
    assert output.text.endswith("A hook adds: After Write: add the change to CHANGELOG.md.")


def reply_of(root: Path, event: HookEvent, subject: str = "", **fields: object) -> HookReply:
    """Run the example of the page for ``event``."""
    command, text = EXAMPLES[event]
    write_script(root, "hooks/example", text)
    return make_hooks(root, on(event, command)).run(event, fields, subject=subject)


def test_the_page_has_an_example_for_each_event() -> None:
    assert {*EXAMPLES, "PreToolUse", "PostToolUse"} == set(get_args(HookEvent))


@pytest.mark.slow
def test_the_examples_of_the_page_that_answer_with_a_block_or_context(tmp_path: Path) -> None:
    write_script(tmp_path, "docs/conventions.md", "Prices are in cents.\n")
    assert reply_of(tmp_path, "TaskStart").context == "Prices are in cents."
    assert reply_of(tmp_path, "UserPromptSubmit", prompt="use AKIAIOSFODNN7EXAMPLE").block.endswith("a key of AWS.")
    assert reply_of(tmp_path, "UserPromptSubmit", prompt="use the key") == HookReply()
    write_script(tmp_path, "src/shop.py", "breakpoint()  # TODO\n")
    assert reply_of(tmp_path, "FileChanged", file_path="src/shop.py").block == "src/shop.py: remove breakpoint()."
    reasons = ["protected_changed: tests/test_shop.py was modified"]
    assert reply_of(tmp_path, "GateClosed", "green", reasons=reasons).context.startswith("The tests are right.")
    assert reply_of(tmp_path, "GateClosed", "green", reasons=["target_failing: it fails"]) == HookReply()
    assert reply_of(tmp_path, "Stop", stop_hook_active=False).block == "Finish what is marked with TODO in src/shop.py."
    assert reply_of(tmp_path, "Stop", stop_hook_active=True) == HookReply()


@pytest.mark.slow
def test_the_example_that_ends_a_run_and_the_one_that_keeps_a_conversation(tmp_path: Path) -> None:
    with pytest.raises(GateClosed, match="stopped the run: Rounding failed: no_change"):
        reply_of(tmp_path, "TaskCompletion", task_subject="Rounding", status="failed", error="no_change")
    done = reply_of(tmp_path, "TaskCompletion", task_subject="Rounding", status="completed", error="")
    assert done == HookReply()
    archive = tmp_path / "archive.jsonl"
    for lines, reason in ((19, "The conversation is still short."), (20, "")):
        archive.write_text("{}\n" * lines)
        assert reply_of(tmp_path, "PreCompact", "auto", transcript_path=str(archive)).block == reason


def test_a_hook_gets_the_event_as_json(tmp_path: Path) -> None:
    write = tools(tmp_path, on("FileChanged", "cat > given.json", matcher=r".*\.py"))["Write"]
    write.run({"file_path": "shop.txt", "content": ""})
    assert not (tmp_path / "given.json").exists()
    write.run({"file_path": "shop.py", "content": "x = 1\n"})
    assert json.loads((tmp_path / "given.json").read_text()) == {
        "session_id": "sale",
        "transcript_path": str(find_records(tmp_path).folder / "journal/sale/events.jsonl"),
        "cwd": str(tmp_path),
        "hook_event_name": "FileChanged",
        "file_path": "shop.py",
        "event": "add",
    }


def test_a_hook_that_hangs_or_fails_does_no_harm(tmp_path: Path) -> None:
    seen: list[Event] = []
    assert make_hooks(tmp_path, on("Stop", "sleep 60", timeout=0.2), seen=seen).run("Stop", {}).block == ""
    make_hooks(tmp_path, on("Stop", "echo $'\\e[2J' broken >&2; exit 1"), seen=seen).run("Stop", {})
    hung, failed = (event.text for event in seen if isinstance(event, Notice))
    assert hung == "The hook sleep 60: was ended after 0.2 s and is ignored"
    assert failed.endswith("failed with exit status 1: broken") or "broken" in failed
    assert "\x1b" not in failed


def test_a_hook_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(GateClosed, match="stopped the run: lunch"):
        make_hooks(tmp_path, on("Stop", """echo '{"continue": false, "stopReason": "lunch"}'""")).run("Stop", {})


def test_a_file_of_an_answer_has_the_events_of_a_tool_and_an_objection_is_answered(tmp_path: Path) -> None:
    script = "cat >> events; echo >> events; grep -q 2 *.py || { echo 'use 2' >&2; exit 2; }"
    settings = {**on("FileChanged", script), **on("PostToolUse", script, matcher="Write")}
    workspace = Workspace(tmp_path)
    own = BlockHooks(make_hooks(tmp_path, settings), workspace)
    files = WholeFiles(workspace, lambda _: None, max_characters=100, object_to=own.check, report=own.report)
    model = ScriptedModel([says(f"```python:a.py\nx = {number}\n```\n") for number in (1, 2)])
    talk = Conversation("You write code.", token="kvqtzh")
    talk.say("Begin.")
    run_without_tools(talk, files, model=model, budget=Budget(), emit=list[Event]().append, agent="executor")
    assert "a.py: A hook objects: use 2" in str(model.requests[1].messages[-1].content)
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines() if line]
    names = [(each["hook_event_name"], each.get("event", "")) for each in events]
    assert names == [("FileChanged", "add"), ("PostToolUse", ""), ("FileChanged", "change"), ("PostToolUse", "")]
    assert len(model.requests) == 2


def test_the_first_hook_that_blocks_is_the_last_that_runs(tmp_path: Path) -> None:
    commands = ("echo one", "echo two >&2; exit 2", "touch third")
    group = HookGroup(hooks=tuple(HookCommand(command=command) for command in commands))
    reply = make_hooks(tmp_path, {"UserPromptSubmit": (group,)}).run("UserPromptSubmit", {"prompt": "hi"})
    assert (reply.block, reply.context) == ("two", "one")
    assert not (tmp_path / "third").exists()


def test_a_script_that_is_not_the_approved_one_does_not_run(tmp_path: Path) -> None:
    write_script(tmp_path, "hooks/guard.py", GUARD)
    hooks = make_hooks(tmp_path, on("Stop", "python3 hooks/guard.py"))
    write_script(tmp_path, "hooks/guard.py", "open('ran', 'w')\n")
    with pytest.raises(UsageError, match=rf"^hooks/guard\.py in {tmp_path} is not as you approved it") as refused:
        hooks.run("Stop", {})
    assert "in a terminal cdd asks you" in refused.value.hint
    assert not (tmp_path / "ran").exists()


def test_a_changed_script_runs_once_the_user_has_approved_it(tmp_path: Path) -> None:
    asked: list[Offer] = []
    write_script(tmp_path, "hooks/guard.py", GUARD)

    def allow(offer: Offer) -> bool:
        asked.append(offer)
        return True

    hooks = make_hooks(tmp_path, on("Stop", "python3 hooks/guard.py"), allows=allow)
    write_script(tmp_path, "hooks/guard.py", "open('ran', 'w')\n")
    hooks.run("Stop", {})
    assert (tmp_path / "ran").exists()
    assert [offer.shown[-1] for offer in asked] == ["  open('ran', 'w')"]


def test_an_offer_shows_commands_and_scripts(tmp_path: Path) -> None:
    write_script(tmp_path, "hooks/guard.py", "import sys\n")
    offer = offer_hooks(on("Stop", "python3 hooks/guard.py --fast /etc/hostname"), tmp_path)
    assert offer is not None
    assert offer.shown == ("Stop: python3 hooks/guard.py --fast /etc/hostname", "hooks/guard.py:", "  import sys")
    assert offer_hooks({}, tmp_path) is None


def test_an_agent_that_a_hook_blocks_continues_at_most_three_times(tmp_path: Path) -> None:
    hooks = make_hooks(tmp_path, on("Stop", "echo run the linter >&2; exit 2"))
    conversation, runs = Conversation("role"), []

    def run() -> AgentRun:
        runs.append(1)
        return AgentRun(end="answered", text="done", turns=1, calls=0, usage=Usage())

    run_until_stop(run, conversation, hooks=hooks)
    assert len(runs) == 4
    assert "run the linter" in str(conversation.messages[0])


def test_a_prompt_is_blocked_or_gets_context(tmp_path: Path) -> None:
    adds = make_hooks(tmp_path, on("UserPromptSubmit", "echo in cents"))
    assert submit_prompt("prices", adds) == "prices\n\nA hook of the user adds:\nin cents"
    blocks = make_hooks(tmp_path, on("UserPromptSubmit", "grep -q secret && { echo no >&2; exit 2; }; exit 0"))
    with pytest.raises(UsageError, match="A hook blocked your message: no"):
        submit_prompt("a secret", blocks)
    assert hear_prompts(lambda: ("a secret", "hello"), hooks=blocks) == ("hello",)
