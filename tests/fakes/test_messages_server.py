import json
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from cdd_agent.model import recording
from cdd_agent.model.conversation import JSON
from tests.fakes.message_rules import broken_rule
from tests.fakes.messages_server import MessagesServer

THOUGHT: dict[str, JSON] = {"type": "thinking", "thinking": "hm", "signature": "s"}
CALL: dict[str, JSON] = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
RESULT: dict[str, JSON] = {"type": "tool_result", "tool_use_id": "a", "content": "ok"}
WORD: dict[str, JSON] = {"type": "text", "text": "go"}


def asking(*messages: tuple[str, list[JSON]], **more: JSON) -> dict[str, JSON]:
    said: list[JSON] = [{"role": role, "content": content} for role, content in messages]
    return {"model": "m", "max_tokens": 9, "messages": said, **more}


def test_a_request_without_stream_is_answered_in_one_piece() -> None:
    turns = recording.parse_recording("- {when: '^Step 2', content: [second]}\n- content: [first]\n", source="x")
    with MessagesServer(turns) as server:
        connection = HTTPConnection(urlsplit(server.base_url).netloc)
        body = asking(("user", [WORD]), system=[{"type": "text", "text": "Step 1"}])
        connection.request("POST", "/v1/messages", json.dumps(body))
        answer = json.loads(connection.getresponse().read())
        connection.close()
    assert (answer["content"], answer["stop_reason"]) == ([{"type": "text", "text": "first"}], "end_turn")
    assert [turn.number for turn in server.playback.unused] == [1]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (asking(), "at least one message"),
        (asking(("system", [WORD])), "must be user or assistant"),
        (asking(("user", [])), "must not be empty"),
        (asking(("user", [{"type": "text", "text": "\n"}])), "non-whitespace"),
        (asking(("user", [WORD]), temperature=1), "temperature"),
        (asking(("user", [WORD]), tool_choice={"type": "any"}), "forced tool use"),
        (asking(("user", [WORD]), ("assistant", [CALL])), "without tool_result"),
        (asking(("user", [WORD]), ("assistant", [CALL]), ("user", [WORD])), "need their tool_result"),
        (asking(("user", [RESULT])), "need their tool_result here, got ['a']"),
        (asking(("user", [WORD]), ("assistant", [{**THOUGHT, "thinking": "hmm"}])), "cannot be modified"),
    ],
)
def test_a_conversation_that_the_api_refuses_is_refused(body: dict[str, JSON], said: str) -> None:
    assert said in str(broken_rule(body, [THOUGHT]))


def test_a_conversation_that_keeps_the_rules_is_taken() -> None:
    body = asking(("user", [WORD]), ("assistant", [THOUGHT, CALL]), ("user", [RESULT, WORD]))
    assert broken_rule(body, [THOUGHT]) is None
