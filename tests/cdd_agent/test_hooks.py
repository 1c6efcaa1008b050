import json

import pytest

from cdd_agent.config.settings import parse_settings
from cdd_agent.hooks import MAX_CHARACTERS, HookCommand, HookGroup, HookReply, describe_hooks, parse_reply


def reply(output: object = "", *, event: str = "PreToolUse", status: int = 0, errors: str = "") -> HookReply:
    text = output if isinstance(output, str) else json.dumps(output)
    return parse_reply(event, exit_status=status, output=text, errors=errors)  # type: ignore[arg-type]


def specific(**fields: object) -> dict[str, object]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({}, HookReply()),
        ({"decision": "approve"}, HookReply()),
        ({"decision": "block", "reason": "no"}, HookReply(block="no")),
        ({"decision": "block"}, HookReply(block="the hook gave no reason")),
        (specific(permissionDecision="deny", permissionDecisionReason="no"), HookReply(block="no")),
        (specific(permissionDecision="allow", permissionDecisionReason="yes"), HookReply()),
        (specific(permissionDecision="ask"), HookReply(block="a person has to decide about this")),
        (
            specific(permissionDecision="allow", updatedInput={}),
            HookReply(block="the hook wants another input (updatedInput), which cdd does not support"),
        ),
        (specific(additionalContext="cents"), HookReply(context="cents")),
        ({"continue": False, "stopReason": "lunch"}, HookReply(stop="lunch")),
        ({"continue": True, "systemMessage": "hi"}, HookReply(message="hi")),
        ({"hookSpecificOutput": [], "reason": 3, "decision": "block"}, HookReply(block="the hook gave no reason")),
    ],
)
def test_an_answer_in_json_has_the_meaning_that_it_has_elsewhere(answer: object, expected: HookReply) -> None:
    assert reply(answer) == expected


def test_status_2_blocks_and_any_other_failure_is_a_message() -> None:
    assert reply(status=2, errors="no\n") == HookReply(block="no")
    assert reply("out", status=1) == HookReply(message="failed with exit status 1: out")
    assert reply(status=-9).message == "failed with exit status -9: no output"


def test_plain_text_is_context_for_prompts_only() -> None:
    assert reply("on main\n", event="UserPromptSubmit").context == "on main"
    assert reply("on main\n") == HookReply()
    assert "not valid JSON" in reply("{nonsense").message


def test_texts_are_cleaned_bounded_and_without_keys() -> None:
    key = "sk-ant-api03-" + "a" * 95
    found = reply(f"\x1b[2Jred {key} {'x' * MAX_CHARACTERS}", event="TaskStart").context
    assert found.startswith("red ")
    assert key not in found
    assert "characters left out" in found


def test_a_matcher_is_a_regular_expression_for_the_whole_name() -> None:
    def matches(matcher: str, subject: str) -> bool:
        return HookGroup(hooks=(), matcher=matcher).matches(subject)

    assert matches("Edit|Write", "Write")
    assert not matches("Edit|Write", "WriteAll")
    assert matches("*", "Bash")
    assert matches("", "Bash")
    assert matches("Bash", ""), "events without a subject have nothing to match"


def test_hooks_are_read_from_the_settings() -> None:
    settings = parse_settings(
        b"hooks: {PreToolUse: [{matcher: Bash, hooks: [{type: command, command: ./x}]}], Stop: []}"
    )
    assert settings.hooks["PreToolUse"][0] == HookGroup(hooks=(HookCommand(command="./x"),), matcher="Bash")
    assert list(describe_hooks(settings.hooks)) == ["PreToolUse Bash: ./x"]
