"""The model port, from a request to a turn. Adapters: ``anthropic``, ``replay``, ``recording``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cdd_agent.events import Emit
from cdd_agent.model.conversation import JSON, Message, Turn


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
