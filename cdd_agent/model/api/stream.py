"""A streamed answer put together: events of the Messages API go in, one ``Turn`` comes out. Pure.

A turn counts only if the stream said that it is over and why it ended is known. A tool call counts only if the turn
ended in order to make it and its input is one complete JSON object: of a turn that was cut off the calls are left
out, and a call that cannot be read says so in place of its input.
"""

from typing import get_args

from cdd_agent.errors import ModelError
from cdd_agent.events import TextDelta, ThinkingDelta
from cdd_agent.model import wire
from cdd_agent.model.api.strict_json import read_object
from cdd_agent.model.calls import unusable
from cdd_agent.model.conversation import JSON, AssistantBlock, StopReason, ToolCall, Turn, Usage

_STOPS: dict[str, StopReason] = {stop: stop for stop in get_args(StopReason)}

_USAGE_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}

MOST_BLOCKS = 500
"""Pieces of text, thoughts and calls of one answer; a model writes a few."""

_SHOWN = 100
"""Characters of what is wrong with an input that the model is told."""

_GROWING_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""Kind of delta -> the field of the block, and of the delta, that it adds to."""


class StreamedTurn:
    """The part of an answer that has arrived.

    What its errors repeat of a server's words is whole: whoever knows the key looks for it first, and cuts then.
    """

    def __init__(self) -> None:
        """Nothing has arrived."""
        self.is_over = False
        """Whether the server said that this was all."""
        self._blocks: list[dict[str, JSON]] = []
        self._inputs: list[list[str]] = []
        """The pieces of each block's input."""
        self._stop: str | None = None
        self._refused_for: str | None = None
        self._usage: dict[str, int] = {}

    def feed(self, event: dict[str, JSON]) -> TextDelta | ThinkingDelta | None:
        """Take one event in; what it adds for a person to see, if anything. Raises ``ModelError`` if malformed."""
        match event:
            case {"type": "message_start", "message": dict(message)} if not self._blocks:
                self._count(message.get("usage"))
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)} if index == len(
                self._blocks
            ):
                if index == MOST_BLOCKS:
                    raise _malformed(f"it has more than {MOST_BLOCKS} content blocks")
                self._blocks.append(dict(block))
                self._inputs.append([])
                return _shown(str(block.get("type")), block.get("text") or block.get("thinking"))
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)} if self._is_begun(index):
                return self._grow(index, delta)
            case {"type": "message_delta", "delta": dict(delta)}:
                self._end(delta)
                self._count(event.get("usage"))
            case {"type": "message_stop"}:
                self.is_over = True
            case {"type": "content_block_delta" | "content_block_start" | "message_start" | "message_delta" as kind}:
                raise _malformed(f"a {kind} event lacks a field or comes out of turn")
            case _:
                pass
        return None

    @property
    def usage(self) -> Usage:
        """The tokens that the server has counted so far."""
        return Usage(**self._usage)

    def turn(self) -> Turn:
        """The complete turn; raises ``ModelError`` that says why it cannot be used."""
        stop = _STOPS.get(str(self._stop))
        calls_tool = any(block.get("type") == "tool_use" for block in self._blocks)
        if self._stop == "model_context_window_exceeded":
            raise ModelError(
                "The conversation no longer fits the model's context window.",
                hint="start the step again, which begins a new conversation, or split it into smaller steps",
            )
        if stop is None:
            raise ModelError(
                f"The model ended its turn for a reason this program does not know: {self._stop}.",
                hint="run the same command again; if it happens every time, choose another model with --model ID",
            )
        if stop == "refusal":
            why = f" ({self._refused_for})" if self._refused_for else ""
            raise ModelError(
                f"The model refused to answer: stop reason refusal{why}.",
                hint="reword the ticket or the step, or choose another model with --model ID",
            )
        if calls_tool != (stop == "tool_use") and stop != "max_tokens":
            calls = "it calls a tool" if calls_tool else "it calls no tool"
            raise _malformed(f"{calls} but ends with {stop}")
        content = [self._block(index) for index in range(len(self._blocks))]
        if stop == "max_tokens":
            content = [block for block in content if not isinstance(block, ToolCall)]
        return Turn(content=tuple(content), stop_reason=stop, usage=self.usage)

    def _is_begun(self, index: int) -> bool:
        return 0 <= index < len(self._blocks)

    def _grow(self, index: int, delta: dict[str, JSON]) -> TextDelta | ThinkingDelta | None:
        kind, block = str(delta.get("type")), self._blocks[index]
        if kind == "input_json_delta":
            self._inputs[index].append(str(delta.get("partial_json", "")))
            return None
        if (field := _GROWING_FIELDS.get(kind)) is None:
            return None
        piece = delta.get(field)
        if not isinstance(piece, str):
            raise _malformed(f"a {kind} holds no {field}")
        block[field] = str(block.get(field) or "") + piece
        return _shown(field, piece)

    def _end(self, delta: dict[str, JSON]) -> None:
        """Note why the model stopped."""
        match delta.get("stop_reason"):
            case str(reason):
                self._stop = reason
        match delta.get("stop_details"):
            case {"category": str(category)}:
                self._refused_for = category

    def _count(self, usage: JSON) -> None:
        """Take over the token counts, each of which is a total so far."""
        if isinstance(usage, dict):
            for theirs, ours in _USAGE_FIELDS.items():
                count = usage.get(theirs)
                if isinstance(count, int) and count >= 0:
                    self._usage[ours] = count

    def _block(self, index: int) -> AssistantBlock:
        block = dict(self._blocks[index])
        written = "".join(self._inputs[index])
        if written:
            try:
                block["input"] = read_object(written)
            except ValueError as error:
                block["input"] = unusable(f"its input is not one complete JSON object: {str(error)[:_SHOWN]}")
        try:
            return wire.decode_block(block)
        except ValueError as error:
            raise _malformed(str(error)) from error


def _shown(kind: str, piece: JSON) -> TextDelta | ThinkingDelta | None:
    if not isinstance(piece, str) or not piece:
        return None
    match kind:
        case "text":
            return TextDelta(text=piece)
        case "thinking":
            return ThinkingDelta(text=piece)
        case _:
            return None


def _malformed(complaint: str) -> ModelError:
    return ModelError(
        f"The model's answer does not follow the Messages API: {complaint}.",
        hint="check that ANTHROPIC_BASE_URL names a server that speaks it, then run the same command again",
    )
