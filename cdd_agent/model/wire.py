"""The Messages API's JSON: a request as it is sent, and a block of an answer as it came. Pure."""

from collections.abc import Iterable
from typing import assert_never

from cdd_agent.model.conversation import (
    JSON,
    AssistantBlock,
    AssistantMessage,
    Message,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
    UserBlock,
    UserMessage,
)
from cdd_agent.model.port import Request, ToolSpec

THINKING: dict[str, JSON] = {"type": "adaptive", "display": "summarized"}
"""As much thinking as the model sees fit, with a summary to show meanwhile."""

CACHE_MARK: dict[str, JSON] = {"type": "ephemeral"}
"""Everything up to a block that carries this is kept by the server for the next request."""


def encode_request(request: Request, *, model: str, thinking: bool = True) -> dict[str, JSON]:
    """The body of a request, with cache marks on the system prompt (which covers the tools) and the last block."""
    messages = encode_messages(request.messages)
    _mark_last_block(messages)
    body: dict[str, JSON] = {"model": model, "max_tokens": request.max_tokens}
    if request.system:
        body["system"] = [{"type": "text", "text": sendable(request.system), "cache_control": CACHE_MARK}]
    body["messages"] = list(messages)
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
    if thinking:
        body["thinking"] = THINKING
    return body


def encode_messages(messages: Iterable[Message]) -> list[dict[str, JSON]]:
    """Each message with its blocks; blank texts, and messages of nothing else, are left out as the API refuses them.

    Messages of the user in a row, as they come about when an answer is stopped, become one: not every server takes two.
    """
    encoded: list[tuple[str, list[JSON]]] = []
    for message in messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        content: list[JSON] = [
            encode_block(block) for block in message.content if not (isinstance(block, Text) and not block.text.strip())
        ]
        if content and encoded and role == encoded[-1][0] == "user":
            encoded[-1][1].extend(content)
        elif content:
            encoded.append((role, content))
    return [{"role": role, "content": content} for role, content in encoded]


def encode_block(block: AssistantBlock | UserBlock) -> dict[str, JSON]:
    """One block; what is opaque goes back as it came."""
    match block:
        case Text(text=text):
            return {"type": "text", "text": sendable(text)}
        case ToolCall():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": dict(block.input)}
        case ToolResult():
            flag: dict[str, JSON] = {"is_error": True} if block.is_error else {}
            content = sendable(block.content)
            return {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": content, **flag}
        case Opaque(wire=wire):
            return dict(wire)
        case _:
            assert_never(block)


def decode_block(block: dict[str, JSON]) -> AssistantBlock:
    """One complete block of an answer; whatever is neither text nor a tool call stays opaque.

    Raises ``ValueError`` for a text or a tool call without its fields.
    """
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text=text)
        case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": dict(value)}:
            return ToolCall(id=call_id, name=name, input=value)
        case {"type": "text" | "tool_use" as kind}:
            raise ValueError(f"a {kind} block lacks a field")
        case {"type": str()}:
            return Opaque(wire=block)
        case _:
            raise ValueError("a block has no type")


def sendable(text: str) -> str:
    """``text`` with a question mark for each half of a surrogate pair, which UTF-8 has no form for."""
    return text.encode("utf-8", "replace").decode("utf-8")


def decode_message(message: JSON) -> Message:
    """A message of a request, with the cache marks dropped; raises ``ValueError`` for what this program never sends."""
    match message:
        case {"role": "assistant", "content": list(blocks)}:
            return AssistantMessage(content=tuple(decode_block(_unmarked(block)) for block in blocks))
        case {"role": "user", "content": list(blocks)}:
            return UserMessage(content=tuple(_decode_user_block(_unmarked(block)) for block in blocks))
        case _:
            raise ValueError("a message needs a role, user or assistant, and a list of blocks")


def _decode_user_block(block: dict[str, JSON]) -> UserBlock:
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text=text)
        case {"type": "tool_result", "tool_use_id": str(call_id), "content": str(content)}:
            return ToolResult(tool_use_id=call_id, content=content, is_error=block.get("is_error") is True)
        case _:
            raise ValueError(f"a user message cannot hold a block of type {block.get('type')!r}")


def _unmarked(block: JSON) -> dict[str, JSON]:
    if not isinstance(block, dict):
        raise ValueError("a block must be an object")
    return {key: value for key, value in block.items() if key != "cache_control"}


def _encode_tool(tool: ToolSpec) -> JSON:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}


def _mark_last_block(messages: list[dict[str, JSON]]) -> None:
    """Put a cache mark on the last block of all, unless it is of a kind that takes none."""
    content = messages[-1]["content"] if messages else None
    last = content[-1] if isinstance(content, list) else None
    if isinstance(last, dict) and last.get("type") in ("text", "tool_use", "tool_result"):
        last["cache_control"] = CACHE_MARK
