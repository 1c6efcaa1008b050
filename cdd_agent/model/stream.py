"""Read what the Messages API answers: one streamed turn, or why the request failed and whether to send it again.

    bytes -> parse_events -> StreamedTurn.feed -> StreamedTurn.build -> Turn
             (strict JSON)   (shown while it comes)

A turn counts only if the stream ended with ``message_stop`` and a known stop reason. A tool call counts only if its
input is one complete JSON object. docs/decisions/0009-model-transport.md says why the SDK does not do this.

A ``RequestFailed`` is one failed try: an HTTP status, a network error, an answer that breaks off, cannot be read, or
exceeds a limit. ``choose_pause_s`` decides about another try; ``explain`` writes the error for the user.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from cdd_agent.clock import Clock
from cdd_agent.config.settings import DEFAULT_MODEL
from cdd_agent.errors import ModelError, UsageError
from cdd_agent.events import Emit, TextDelta, ThinkingDelta
from cdd_agent.model import conversation
from cdd_agent.model.conversation import JSON, AssistantBlock, StopReason, ToolCall, Turn, make_unusable_input
from cdd_agent.untrusted.documents import load_json
from cdd_agent.work.state import Usage

LONGEST_WAIT_S = 60.0
"""The longest pause that cdd chooses; it asks the user before a longer one that a server requests."""
LONGEST_ASKED_S = 86_400.0
"""cdd does not even ask about a longer pause."""

Cause: TypeAlias = Literal["status", "connection", "timeout", "cut", "garbled", "too_large", "too_slow"]

STATUS_OF_ERROR_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The API's error types. In the middle of a stream an error has a type and no status; other types mean 500."""

_LARGEST_LIMIT = 1e9
_SET_KEY = "export ANTHROPIC_API_KEY=... (keys are made at https://platform.claude.com)"
_WITHOUT_MODEL = "these work without a model: cdd demo, cdd --replay FILE, cdd status, pytest --tdd-agent"
_AGAIN = "run the same command again"
_NEW_CONVERSATION = "start the step again, which begins a new conversation, or"
_STATUS_WORDS = {408: "request timed out", 409: "conflict", 429: "rate limit reached", 529: "overloaded"}

_CAUSES: dict[Cause, tuple[str, str, str]] = {
    "connection": (
        "no connection",
        "Could not connect to {url}{rest}.",
        f"check the network, ANTHROPIC_BASE_URL and HTTPS_PROXY, then {_AGAIN}",
    ),
    "timeout": (
        "no answer in time",
        "{url} did not answer in time{rest}.",
        f"{_AGAIN} in a few minutes; for a slow server: export CDD_MODEL_IDLE_S=300",
    ),
    "cut": (
        "the answer broke off",
        "The answer from {url} broke off before its end{rest}.",
        f"{_AGAIN}; no tool call of the broken answer was run",
    ),
    "garbled": (
        "the answer could not be read",
        "Could not read the answer from {url}{rest}.",
        "check that ANTHROPIC_BASE_URL names a server that speaks the Messages API",
    ),
    "too_large": (
        "the answer is too large",
        "The answer from {url} exceeds the size limit{rest}.",
        f"{_AGAIN}; if it happens every time: export CDD_MODEL_ANSWER_BYTES=8000000",
    ),
    "too_slow": (
        "the answer took too long",
        "The answer from {url} exceeds the time limit{rest}.",
        f"{_AGAIN}; for a slow server: export CDD_MODEL_TOTAL_S=1800",
    ),
}
"""Cause -> summary, error, hint. ``{rest}`` is the number of tries and the message of the failure."""

_STATUSES = {
    401: ("{url} refused the API key (401){rest}.", f"{_SET_KEY}; {_WITHOUT_MODEL}"),
    402: ("The account cannot pay (402){rest}.", f"add credit; {_WITHOUT_MODEL}"),
    403: (
        "The API key may not use {model} at {url} (403){rest}.",
        "choose another model with --model ID, or use a key that is allowed to",
    ),
    404: (
        "{url} knows no model {model!r} (404){rest}.",
        f"choose another with --model ID (the default is {DEFAULT_MODEL}); if ANTHROPIC_BASE_URL is set, "
        "it must not end in /v1",
    ),
    413: ("The request is too large for {url} (413){rest}.", f"{_NEW_CONVERSATION} split it into smaller steps"),
    429: (
        "The rate limit of the API key is reached (429){rest}{pause}.",
        f"wait, then {_AGAIN}: it continues where it stopped",
    ),
}
_REDIRECTED = (
    "{url} redirects to another address ({status}), which cdd does not follow{rest}.",
    "set ANTHROPIC_BASE_URL to the other address, if you trust it with your key and your code",
)
_UNAVAILABLE = (
    "{url} could not answer: {words} ({status}){rest}{pause}.",
    f"{_AGAIN} in a few minutes: it continues where it stopped",
)
_REFUSED = (
    "{url} refused the request to {model} ({status}){rest}.",
    f"{_NEW_CONVERSATION} choose another model with --model ID",
)


@dataclass(kw_only=True, eq=False, repr=False)
class RequestFailed(Exception):
    """One try failed. The adapter catches this and decides whether to try again."""

    cause: Cause
    message: str
    """The words of the server or of the network library. They may hold the key until the adapter removes it."""
    status: int = 0
    """The HTTP status, also of an error in the middle of a stream; 0 if there was none."""
    retry_after_s: float | None = None
    """The pause that the server requested."""
    may_retry: bool = True
    """False if the server forbade another try."""

    @property
    def is_transient(self) -> bool:
        """Return whether the same request may succeed a little later."""
        if self.cause == "status":
            return self.may_retry and (self.status in (408, 409, 429) or self.status >= 500)
        return self.may_retry and self.cause in ("connection", "timeout", "cut")

    @property
    def is_busy(self) -> bool:
        """Return whether the service is overloaded, or the rate limit is reached; both pass within minutes."""
        return self.cause == "status" and self.status in (429, 529)

    @property
    def summary(self) -> str:
        """The failure in a few words."""
        if self.cause != "status":
            return _CAUSES[self.cause][0]
        return f"{_describe_status(self.status)} ({self.status})"

    def __str__(self) -> str:
        """Return the summary: the message may hold the key."""
        return self.summary


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """How long an answer may take and how large it may get. Only the user's environment can change these."""

    idle_s: float = 60.0
    """Longest wait for the next byte."""
    total_s: float = 600.0
    """From the request to the end of the answer."""
    answer_bytes: int = 4_000_000
    """Size of the stream as it is sent."""
    tries: int = 4
    """The first try and three more, after 1, 2 and 4 seconds."""
    busy_s: float = 300.0
    """All pauses of one request together while the service is busy, however many tries that takes."""

    @property
    def pings_s(self) -> float:
        """Longest wait while only pings arrive: they show that the server is alive, not that it makes progress."""
        return 3 * self.idle_s

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "AnswerLimits":
        """Read ``CDD_MODEL_IDLE_S``, ``_TOTAL_S``, ``_ANSWER_BYTES`` and ``_BUSY_S``, or raise ``UsageError``."""
        usual = cls()
        return cls(
            idle_s=_read_limit("CDD_MODEL_IDLE_S", environment, default=usual.idle_s),
            total_s=_read_limit("CDD_MODEL_TOTAL_S", environment, default=usual.total_s),
            answer_bytes=int(_read_limit("CDD_MODEL_ANSWER_BYTES", environment, default=usual.answer_bytes)),
            busy_s=_read_limit("CDD_MODEL_BUSY_S", environment, default=usual.busy_s, least=0.0),
        )


def choose_pause_s(failed: RequestFailed, number: int, *, chance: float) -> float | None:
    """Return the seconds to wait after the ``number``-th try failed, or None if another try would fail as well.

    1, 2, 4 ... 60 seconds, but never less than the server requested. ``chance`` (0 to 1) moves the pause by up to a
    quarter, so that programs that failed together do not retry together.
    """
    if not failed.is_transient:
        return None
    own_s: float = 2.0 ** min(number - 1, 10) * (0.75 + chance / 2)
    return max(min(own_s, LONGEST_WAIT_S), failed.retry_after_s or 0.0)


def parse_retry_after(value: str, *, now: str) -> float | None:
    """Return the seconds until the end of a ``Retry-After`` header, a number or a date; None for anything else."""
    value = value.strip()
    # float() alone would also take "nan", "inf" and "1e400".
    if re.fullmatch(r"[+-]?[0-9]{1,99}(\.[0-9]{0,9})?", value):
        return max(float(value), 0.0)
    try:
        date = parsedate_to_datetime(value)
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max((date - datetime.fromisoformat(now)).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError, IndexError):  # IndexError: an empty date, in Python 3.11
        return None


def check_key(key: str) -> None:
    """Raise ``ModelError`` if ``key`` is empty or cannot be written into a header."""
    if not key:
        raise ModelError("No model is available: ANTHROPIC_API_KEY is not set.", hint=f"{_SET_KEY}; {_WITHOUT_MODEL}")
    if not key.isascii() or not key.isprintable() or " " in key:
        happened = "The API key cannot be sent: it holds a space, a line break or a character outside ASCII."
        raise ModelError(happened, hint=f"copy it again, then {_SET_KEY}")


def explain(failed: RequestFailed, *, model: str, url: str, tries: int) -> ModelError:
    """Return the error for the user: what happened after how many tries, and what to do about it."""
    status = failed.status
    if failed.cause != "status":
        _, happened, hint = _CAUSES[failed.cause]
    elif status in _STATUSES:
        happened, hint = _STATUSES[status]
    elif 300 <= status < 400:
        happened, hint = _REDIRECTED
    else:
        happened, hint = _UNAVAILABLE if status in (408, 409) or status >= 500 else _REFUSED
    after = f" after {tries} tries" if tries > 1 else ""
    asked_s = failed.retry_after_s
    sentence = happened.format(
        url=redact_url(url),
        model=model,
        status=status,
        words=_describe_status(status),
        rest=after + (f": {failed.message}" if failed.message else ""),
        pause="" if asked_s is None else f"; the server asks to wait {asked_s:.0f} s",
    )
    return ModelError(sentence, hint=hint)


def redact_url(url: str) -> str:
    """Return ``url`` without user name, password and query, so that it can be shown."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return url.rpartition("@")[2]
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}".rstrip("/")


def _describe_status(status: int) -> str:
    return _STATUS_WORDS.get(status) or ("server error" if status >= 500 else "refused")


def _read_limit(variable: str, environment: Mapping[str, str], *, default: float, least: float = 1e-3) -> float:
    value = environment.get(variable)
    if not value:
        return default
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number <= _LARGEST_LIMIT:
        hint = f"unset {variable} or correct it"
        raise UsageError(f"{variable}={value} is not a number from {least:g} to {_LARGEST_LIMIT:.0f}.", hint=hint)
    return number


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
