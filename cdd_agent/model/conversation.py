"""What is said to a model and what it answers, as plain values: no type of any SDK.

A conversation is append-only: a thinking block is bound to everything before it, so nothing already sent may be
edited, only followed.

Tool calls that a server sent in a form that could not be carried out or sent back to it. Pure.

The model port, from a request to a turn. Adapters: ``anthropic``, ``replay``, ``recording``.

The Messages API's JSON: a request as it is sent, and a block of an answer as it came. Pure.
"""

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, Protocol, TypeAlias, assert_never

from cdd_agent.events import Emit
from cdd_agent.untrusted.keys import mask

JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None
"""Any value that JSON can write."""

StopReason: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn"]
"""Why a turn ended; any other reason is a ``ModelError`` of the adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Words."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The model asks for a tool to be run."""

    id: str
    name: str
    input: Mapping[str, JSON]
    """Already parsed strictly; not yet checked against the tool's schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer to one tool call."""

    tool_use_id: str
    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """A block that goes back exactly as it came: thinking, redacted thinking, and kinds not known here."""

    wire: Mapping[str, JSON]


AssistantBlock: TypeAlias = Text | ToolCall | Opaque
UserBlock: TypeAlias = Text | ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What the program says: text, or the results of every tool call of the turn before."""

    content: tuple[UserBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """What the model said."""

    content: tuple[AssistantBlock, ...]


Message: TypeAlias = UserMessage | AssistantMessage

Keep: TypeAlias = Callable[[Message], None]
"""Takes a message to whoever keeps it."""

CHARACTERS_PER_TOKEN = 4
"""About."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one or more turns."""

    input_tokens: int = 0
    """Without those read from or written to the cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def total(self) -> int:
        """All of them, whatever they cost."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: "Usage") -> "Usage":
        """Both together."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One complete answer of the model."""

    content: tuple[AssistantBlock, ...]
    stop_reason: StopReason
    usage: Usage

    @property
    def text(self) -> str:
        """The words of the turn, without tool calls and thinking."""
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the turn, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolCall))


def draw_token() -> str:
    """Six letters that no word has and that nobody could know beforehand."""
    return "".join(secrets.choice("bcdfghjkmnpqrstvwxz") for _ in range(6))


class Conversation:
    """The append-only exchange of one agent with the model; no text shaped like a key gets into what is said to it."""

    def __init__(
        self,
        system: str,
        *,
        token: str | None = None,
        preface: str = "",
        keep: Keep | None = None,
        messages: Iterable[Message] = (),
    ) -> None:
        """``system`` never changes afterwards; without the ``token`` that it names, one is drawn.

        ``preface`` goes before the first words that are said, as a text of its own. ``keep`` is called with each
        message that is appended. ``messages`` are those of an earlier sitting, or a summary of one: nobody is called
        for them, and they count as said.
        """
        self.system = mask(system).text
        self.token = token or draw_token()
        """In the marks round what others wrote; the same in the whole conversation."""
        self.preface = mask(preface).text
        """What the first words are said after."""
        self._keep = keep
        self._messages: list[Message] = list(messages)
        self.tokens = _estimated_tokens(self._messages)
        """Of the last request and its answer, as the model counted them; estimated where it was not asked yet."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything said so far, oldest first."""
        return tuple(self._messages)

    def say(self, text: str) -> None:
        """Append a user message of plain text."""
        preface = () if self._messages or not self.preface else (Text(text=self.preface),)
        self._append(UserMessage(content=(*preface, Text(text=mask(text).text))))

    def answer(self, results: Iterable[ToolResult]) -> None:
        """Append the results of all tool calls of the last turn as one user message."""
        self._append(
            UserMessage(content=tuple(replace(result, content=mask(result.content).text) for result in results))
        )

    def hear(self, turn: Turn) -> None:
        """Append the model's turn, unchanged."""
        self._append(AssistantMessage(content=turn.content))
        self.tokens = turn.usage.total or self.tokens

    def _append(self, message: Message) -> None:
        """Make ``message`` the last one."""
        self._messages.append(message)
        if self._keep is not None:
            self._keep(message)


def _estimated_tokens(messages: Iterable[Message]) -> int:
    """About how many tokens ``messages`` are, before a model has counted them."""
    return sum(len(_said(block)) for message in messages for block in message.content) // CHARACTERS_PER_TOKEN


def _said(block: AssistantBlock | UserBlock) -> str:
    """The text of a block, as long as what is sent of it."""
    match block:
        case Text(text=text):
            return text
        case ToolResult(content=content):
            return content
        case ToolCall(input=value):
            return str(value)
        case Opaque(wire=wire):
            return str(wire)
        case _:
            assert_never(block)


_KEY = "not_run_because"
_LONGEST_NAME = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def unusable(why: str) -> dict[str, JSON]:
    """The input of a call that must not be run: no tool takes it, and a recording keeps it."""
    return {_KEY: why}


def why_unusable(call: ToolCall) -> str | None:
    """Why ``call`` must not be run; None for a call like any other."""
    why = call.input.get(_KEY) if len(call.input) == 1 else None
    return why if isinstance(why, str) else None


def mended(turn: Turn, said: Iterable[Message]) -> Turn:
    """``turn`` with call ids that neither it nor ``said`` has twice, and with names that may be sent back.

    A server refuses every later request of a conversation that breaks these rules. An id from an earlier turn is
    merely replaced, as small servers count anew each time; of two calls with one id in a turn, the second is not run.
    """
    taken = {
        block.id
        for message in said
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, ToolCall)
    }
    seen: set[str] = set()
    numbers: dict[str, Iterator[int]] = {}
    content: list[AssistantBlock] = []
    for block in turn.content:
        if not isinstance(block, ToolCall):
            content.append(block)
            continue
        call = replace(block, id=_free(_fit(block.id), taken, numbers=numbers), name=_fit(block.name))
        if block.id in seen:
            call = replace(call, input=unusable(f"its id {block.id[:_LONGEST_NAME]} is that of another call"))
        seen.add(block.id)
        taken.add(call.id)
        content.append(call)
    return replace(turn, content=tuple(content))


def _free(wanted: str, taken: set[str], *, numbers: dict[str, Iterator[int]]) -> str:
    """``wanted``, with a number behind it if it is taken; ``numbers`` holds those not tried yet, for each id."""
    free = wanted
    while free in taken:
        free = f"{wanted}-{next(numbers.setdefault(wanted, count(2)))}"
    return free


def _fit(name: str) -> str:
    """``name`` in the characters and the length that the API takes."""
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, JSON]
    """JSON Schema of an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything one answer depends on."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    """In an order that never changes within a conversation."""
    max_tokens: int = 16_000


class Model(Protocol):
    """Whoever answers."""

    name: str
    """The model's id, as it is shown and saved."""

    def check(self) -> None:
        """Raise ``ModelError`` if it is known beforehand that there will be no answer, such as for want of a key."""
        ...

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """The model's complete turn; text is emitted as ``TextDelta`` events while it comes.

        Raises ``ModelError`` (or ``RecordingError``) if there is none; ``KeyboardInterrupt`` passes through.
        """
        ...


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
