"""Read one streamed answer of the Messages API: bytes go in, one ``Turn`` comes out.

    bytes -> parse_events -> StreamedTurn.feed -> StreamedTurn.build -> Turn
             (strict JSON)   (shown while it comes)

A turn counts only if the stream ended with ``message_stop`` and a known stop reason. A tool call counts only if its
input is one complete JSON object. docs/decisions/0009-model-transport.md says why the SDK does not do this.
"""

from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import get_args

from cdd_agent.clock import Clock
from cdd_agent.errors import ModelError
from cdd_agent.events import Emit, TextDelta, ThinkingDelta
from cdd_agent.model import conversation
from cdd_agent.model.conversation import JSON, AssistantBlock, StopReason, ToolCall, Turn, make_unusable_input
from cdd_agent.model.failure import STATUS_OF_ERROR_TYPE, AnswerLimits, RequestFailed
from cdd_agent.untrusted.documents import load_json
from cdd_agent.work.state import Usage

MAX_BLOCKS = 500
"""Content blocks of one answer; a model writes a few."""
MAX_DEPTH = 64
"""Nested objects and lists of one event or tool input."""
_MAX_COMPLAINT = 100
"""Characters of a parse error that go to the model."""
_STOPS: dict[str, StopReason] = {stop: stop for stop in get_args(StopReason)}
_USAGE_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}
_DELTA_FIELDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""Type of a delta -> the field of the delta with the next piece, which has the same name in the block."""
_SHOWN: dict[str, type[TextDelta] | type[ThinkingDelta]] = {"text": TextDelta, "thinking": ThinkingDelta}
"""Field of a block -> the event that shows it to the user."""


def read_answer(
    chunks: Iterable[bytes], *, limits: AnswerLimits, clock: Clock, emit: Emit, lose: Callable[[Usage], None]
) -> Turn:
    """Return the turn in ``chunks``, and emit its text and thoughts while they arrive.

    Raises ``RequestFailed`` if the stream fails or exceeds a limit, ``ModelError`` if its turn cannot be used. Then,
    and if the user interrupts, ``lose`` gets the tokens that the server has counted.
    """
    turn = StreamedTurn()
    try:
        for event in _drop_pings(parse_events(_limit_size(chunks, limits)), limits, clock=clock):
            delta = turn.feed(event)
            if delta is not None:
                emit(delta)
            # Some servers keep the connection open after the last event: do not wait for its end.
            if turn.is_complete:
                return turn.build()
        raise RequestFailed(cause="cut", message="the stream ended without message_stop")
    except BaseException:
        lose(turn.usage)
        raise


def _limit_size(chunks: Iterable[bytes], limits: AnswerLimits) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limits.answer_bytes:
            raise RequestFailed(cause="too_large", message=f"more than {limits.answer_bytes:,} bytes")
        yield chunk


def _drop_pings(events: Iterable[dict[str, JSON]], limits: AnswerLimits, *, clock: Clock) -> Iterator[dict[str, JSON]]:
    """Yield the events that belong to the turn; raise ``RequestFailed`` for an error event or a long run of pings."""
    # The idle timeout of the connection does not notice a server that only pings: each ping restarts it.
    last_s = clock.monotonic()
    for event in events:
        match event:
            case {"type": "ping"}:
                if clock.monotonic() - last_s > limits.pings_s:
                    raise RequestFailed(cause="timeout", message=f"nothing but pings for {limits.pings_s:g} s")
                continue
            case {"type": "error", "error": {"type": str(kind), "message": str(message)}}:
                status = STATUS_OF_ERROR_TYPE.get(kind, 500)
                raise RequestFailed(cause="status", status=status, message=message)
            case {"type": "error"}:
                raise RequestFailed(cause="status", status=500, message="an error without a message")
            case _:
                yield event
        last_s = clock.monotonic()


def parse_events(chunks: Iterable[bytes]) -> Iterator[dict[str, JSON]]:
    """Yield the complete JSON objects of a stream of server-sent events; ``RequestFailed`` for other data."""
    data: list[bytes] = []
    for line in _split_lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            try:
                event = parse_object(b"\n".join(data).decode("utf-8"))
            except ValueError as error:
                raise RequestFailed(cause="garbled", message=str(error)) from error
            yield event
            data = []


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    # bytes.splitlines() would also split at a lone \r, and half a \r\n can end a chunk.
    pieces: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        pieces.append(first)  # joined once per line: adding each chunk to a long line takes quadratic time
        for piece in others:
            yield b"".join(pieces).removesuffix(b"\r")
            pieces = [piece]


def parse_object(text: str) -> dict[str, JSON]:
    """Return the JSON object in ``text``, which every parser must read alike.

    Raises ``ValueError`` for other values, for text after the object, duplicate keys, ``NaN`` and infinite numbers,
    integers of more than 4,300 digits, lone surrogates and more than 64 levels.
    """
    value = load_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"it is a {type(value).__name__}, not an object")
    _check(value, MAX_DEPTH)
    return value


def _check(value: JSON, levels: int) -> None:
    match value:
        case str():
            value.encode()  # fails for a lone surrogate such as "\ud800", which could not be sent back
        case float() if not isfinite(value):  # NaN, Infinity and 1e999, which json.loads takes
            raise ValueError("a number is not finite")
        case dict() | list() if not levels:
            raise ValueError("it is nested too deeply")
        case dict():
            for key, item in value.items():
                _check(key, levels)
                _check(item, levels - 1)
        case list():
            for item in value:
                _check(item, levels - 1)


class StreamedTurn:
    """The part of an answer that has arrived.

    Its errors quote the server in full: the adapter has to find the key in them before it shortens them.
    """

    def __init__(self) -> None:
        """Start with an empty answer."""
        self.is_complete = False
        """Whether ``message_stop`` has arrived."""
        self._blocks: list[dict[str, JSON]] = []
        self._pieces: list[dict[str, list[str]]] = []
        """For each block: field -> the pieces that follow its start."""
        self._stop = ""
        self._refusal_category = ""
        self._usage: dict[str, int] = {}

    @property
    def usage(self) -> Usage:
        """The tokens that the server has counted so far."""
        return Usage(**self._usage)

    def feed(self, event: dict[str, JSON]) -> TextDelta | ThinkingDelta | None:
        """Add one event; return what the user may see of it. Raises ``ModelError`` if it is malformed."""
        match event:
            case {"type": "message_start", "message": dict(message)} if not self._blocks:
                self._count(message.get("usage"))
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)} if index == len(
                self._blocks
            ):
                if index == MAX_BLOCKS:
                    raise _malformed(f"it has more than {MAX_BLOCKS} content blocks")
                self._blocks.append(dict(block))
                self._pieces.append({})
                return _show(str(block.get("type")), block.get("text") or block.get("thinking"))
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)} if (
                0 <= index < len(self._blocks)
            ):
                return self._extend(index, delta)
            case {"type": "message_delta", "delta": dict(delta)}:
                self._stop = str(delta.get("stop_reason") or self._stop)
                match delta.get("stop_details"):
                    case {"category": str(category)}:
                        self._refusal_category = category
                self._count(event.get("usage"))
            case {"type": "message_stop"}:
                self.is_complete = True
            case {"type": "content_block_delta" | "content_block_start" | "message_start" | "message_delta" as kind}:
                raise _malformed(f"a {kind} event lacks a field or is out of order")
            case _:
                pass  # new kinds of events may appear at any time
        return None

    def build(self) -> Turn:
        """Return the complete turn, or raise the ``ModelError`` that says why it cannot be used."""
        stop = _STOPS.get(self._stop)
        if self._stop == "model_context_window_exceeded":
            hint = "start the step again, which begins a new conversation, or split it into smaller steps"
            raise ModelError("The conversation no longer fits the model's context window.", hint=hint)
        if stop is None:
            hint = "run the same command again; if it happens every time, choose another model with --model ID"
            raise ModelError(f"The model ended its turn for an unknown reason: {self._stop or None}.", hint=hint)
        if stop == "refusal":
            category = f" ({self._refusal_category})" if self._refusal_category else ""
            hint = "reword the ticket or the step, or choose another model with --model ID"
            raise ModelError(f"The model refused to answer: stop reason refusal{category}.", hint=hint)
        calls_tool = any(block.get("type") == "tool_use" for block in self._blocks)
        if calls_tool != (stop == "tool_use") and stop != "max_tokens":
            raise _malformed(f"{'it calls a tool' if calls_tool else 'it calls no tool'} but ends with {stop}")
        content = [self._build_block(index) for index in range(len(self._blocks))]
        if stop == "max_tokens":
            # Even a call with a complete input may be one of several that belong together.
            content = [block for block in content if not isinstance(block, ToolCall)]
        return Turn(content=tuple(content), stop_reason=stop, usage=self.usage)

    def _extend(self, index: int, delta: dict[str, JSON]) -> TextDelta | ThinkingDelta | None:
        kind = str(delta.get("type"))
        if (field := _DELTA_FIELDS.get(kind)) is None:
            return None
        piece = delta.get(field)
        if not isinstance(piece, str):
            raise _malformed(f"a {kind} has no {field}")
        self._pieces[index].setdefault(field, []).append(piece)
        return _show(field, piece)

    def _count(self, usage: JSON) -> None:
        for theirs, ours in _USAGE_FIELDS.items():
            count = usage.get(theirs) if isinstance(usage, dict) else None
            if isinstance(count, int) and count >= 0:
                self._usage[ours] = count  # a running total, so it replaces the last one

    def _build_block(self, index: int) -> AssistantBlock:
        block = dict(self._blocks[index])
        for field, pieces in self._pieces[index].items():
            block[field] = "".join([str(block.get(field) or ""), *pieces])
        if written := block.pop("partial_json", None):
            try:
                block["input"] = parse_object(str(written))
            except ValueError as error:
                # The call stays in the turn: the API refuses the conversation if a call or its result is missing.
                complaint = str(error)[:_MAX_COMPLAINT]
                block["input"] = make_unusable_input(f"its input is not one complete JSON object: {complaint}")
        try:
            return conversation.decode_block(block)
        except ValueError as error:
            raise _malformed(str(error)) from error


def _show(kind: str, piece: JSON) -> TextDelta | ThinkingDelta | None:
    event = _SHOWN.get(kind)
    return event(text=piece) if event and isinstance(piece, str) and piece else None


def _malformed(complaint: str) -> ModelError:
    return ModelError(
        f"The model's answer does not follow the Messages API: {complaint}.",
        hint="check that ANTHROPIC_BASE_URL names a server that speaks it, then run the same command again",
    )
