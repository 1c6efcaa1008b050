"""What is said to a model and what it answers, as plain values: no type of any SDK.

A conversation is append-only: a thinking block is bound to everything before it, so nothing already sent may be
edited, only followed.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, assert_never

from cdd_agent.guarded.keys import mask

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
