import re
from collections.abc import Iterator
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.model import conversation
from cdd_agent.model.conversation import (
    JSON,
    AssistantMessage,
    Message,
    Opaque,
    Request,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from tests.fakes.messages_server import decode_request

WORDS = st.text(min_size=1).filter(lambda text: bool(text.strip()))
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
TEXTS = st.builds(Text, text=WORDS)
ASSISTANT = st.lists(
    TEXTS
    | st.builds(ToolCall, id=st.text(), name=st.text(), input=st.dictionaries(st.text(), VALUES, max_size=3))
    | st.builds(lambda data: Opaque(wire={"type": "redacted_thinking", "data": data}), st.text()),
    min_size=1,
    max_size=4,
).map(lambda blocks: AssistantMessage(content=tuple(blocks)))
USER = st.lists(
    TEXTS | st.builds(ToolResult, tool_use_id=st.text(), content=st.text(), is_error=st.booleans()),
    min_size=1,
    max_size=4,
).map(lambda blocks: UserMessage(content=tuple(blocks)))


def user(*texts: str) -> UserMessage:
    return UserMessage(content=tuple(Text(text=text) for text in texts))


@given(st.text(), st.lists(ASSISTANT | USER, max_size=4))
def test_a_request_on_the_wire_says_what_was_asked(system: str, messages: list[Message]) -> None:
    request = Request(system=system, messages=tuple(messages))
    joined = Request(system=system, messages=tuple(taking_turns(messages)))
    assert decode_request(conversation.encode_request(request, model="m")) == joined


def taking_turns(messages: list[Message]) -> Iterator[Message]:
    """The messages, those of the user in a row as one."""
    for is_user, some in groupby(messages, key=lambda message: isinstance(message, UserMessage)):
        if is_user:
            said = (message for message in some if isinstance(message, UserMessage))
            yield UserMessage(content=tuple(block for message in said for block in message.content))
        else:
            yield from some


def test_the_user_never_speaks_twice_in_a_row_on_the_wire() -> None:
    result = UserMessage(content=(ToolResult(tool_use_id="a", content="1"),))
    encoded = conversation.encode_messages(
        (user("go"), user("and on"), AssistantMessage(content=()), result, user("stop"))
    )
    assert [message["role"] for message in encoded] == ["user"]
    assert str(encoded[0]["content"]).count("'type'") == 4


def test_a_body_holds_what_the_api_needs_and_nothing_it_refuses() -> None:
    tool = ToolSpec(name="Read", description="Reads.", input_schema={"type": "object"})
    request = Request(system="Be brief.", messages=(user("hi"),), tools=(tool,), max_tokens=99)
    assert conversation.encode_request(request, model="claude-x") == {
        "model": "claude-x",
        "max_tokens": 99,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
        ],
        "tools": [{"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}],
        "thinking": {"type": "adaptive", "display": "summarized"},
    }


def marked(*messages: UserMessage | AssistantMessage) -> list[str]:
    """The texts with a cache mark, of which the API accepts four with that of the system prompt."""
    encoded = str(conversation.encode_request(Request(system="", messages=messages), model="m")["messages"])
    found: list[str] = re.findall(r"'text': '(\w)', 'cache_control'", encoded)
    return found


def test_the_last_block_is_marked_and_what_other_conversations_begin_with() -> None:
    heard = AssistantMessage(content=(Text(text="h"),))
    assert marked(user("a")) == ["a"]
    assert marked(user("a", "b", "c")) == ["a", "b", "c"]
    assert marked(user("a", "b", "c"), heard, user("d", "e")) == ["a", "b", "e"]
    assert marked(user("a", "b", "c", "d"), heard, user("e")) == ["a", "b", "e"]
    assert marked(user("a", "b"), user("c")) == ["a", "c"]


def test_an_opaque_block_is_not_marked() -> None:
    block = {"type": "thinking", "thinking": "", "signature": "s"}
    said = AssistantMessage(content=(Opaque(wire=dict(block)),))
    assert conversation.encode_request(Request(system="", messages=(said,)), model="m")["messages"] == [
        {"role": "assistant", "content": [block]}
    ]


def test_blank_texts_and_empty_messages_are_not_sent() -> None:
    messages = (user("a", "\n"), AssistantMessage(content=()), user(" "))
    assert conversation.encode_messages(messages) == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]


def test_half_a_surrogate_pair_is_sent_as_a_question_mark() -> None:
    assert conversation.encode_block(ToolResult(tool_use_id="a", content="x\udc80"))["content"] == "x?"
