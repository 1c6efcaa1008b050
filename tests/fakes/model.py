"""A model that says what a test wrote down for it."""

from collections.abc import Iterable

from cdd_agent.errors import CddError, ModelError, TurnMissing
from cdd_agent.events import Emit, TextDelta
from cdd_agent.model.conversation import JSON, AssistantBlock, Request, Text, ToolCall, Turn
from cdd_agent.work.state import Usage


class ScriptedModel:
    """Answers with its turns in their order, raises those that are errors, and keeps every request."""

    name = "scripted"
    answers_examiner = False
    """Whether a turn may be one of the Examiner."""

    def __init__(self, turns: Iterable[Turn | CddError | KeyboardInterrupt]) -> None:
        """``turns`` may grow later through ``queue``."""
        self.queue = list(turns)
        self.requests: list[Request] = []

    def check(self) -> None:
        """It can always be asked."""

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """The next turn, its text emitted whole."""
        if request.is_optional and not self.answers_examiner:
            raise TurnMissing("The scripted model has no such turn.", hint="queue it")
        self.requests.append(request)
        if not self.queue:
            raise ModelError("The scripted model has no turn left.", hint="queue another turn")
        turn = self.queue.pop(0)
        if not isinstance(turn, Turn):
            raise turn
        if turn.text:
            emit(TextDelta(text=turn.text))
        return turn


def says(*content: str | AssistantBlock, tokens: int = 0) -> Turn:
    """A turn of texts and blocks that ends as its content suggests."""
    blocks = tuple(Text(text=block) if isinstance(block, str) else block for block in content)
    calls_tool = any(isinstance(block, ToolCall) for block in blocks)
    return Turn(
        content=blocks,
        stop_reason="tool_use" if calls_tool else "end_turn",
        usage=Usage(input_tokens=tokens, output_tokens=tokens),
    )


def call(name: str, call_id: str | None = None, **value: JSON) -> ToolCall:
    """A call of the tool ``name``; its id is made from the name unless given."""
    return ToolCall(id=call_id or f"toolu_{name}", name=name, input=value)
