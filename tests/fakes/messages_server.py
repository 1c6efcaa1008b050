"""A loopback server that speaks the Messages API and answers from a recording.

Its turns are chosen by the rule of the replay model. It refuses what the real server refuses, keeps every request,
and fails on demand: one ``Fault`` a request, in order.
"""

import json
import select
import socket
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from cdd_agent.errors import RecordingError
from cdd_agent.model import conversation
from cdd_agent.model.conversation import JSON, Request
from cdd_agent.model.recording import RecordedTurn, ReplayModel
from tests.fakes.message_rules import broken_rule

PIECE_LENGTH = 7
"""Characters of a delta: short, so that words and JSON are cut anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with one answer; a turn is used up only if its whole stream was sent."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    message: str = "scripted fault"
    body: str | None = None
    """Sent with the status instead of the API's JSON."""
    cut_after: int | None = None
    """Events after which the connection is reset."""
    error_after: int | None = None
    """Events after which an error event ends the stream."""
    error_type: str = "overloaded_error"
    without_stop: bool = False
    """The stream ends well, but without ``message_stop``."""
    stop_reason: str | None = None
    """Instead of the turn's."""
    tool_json: str | None = None
    """Instead of every tool's input."""
    extra_blocks: tuple[dict[str, JSON], ...] = ()
    """Opaque blocks that come before the turn's."""
    pings: int = 0
    """Sent after ``message_start``."""
    raw_events: tuple[str, ...] | None = None
    """Data sent instead of the turn's events."""
    raw: tuple[bytes | float, ...] | None = None
    """Bytes written to the connection instead of any answer, and pauses in seconds; then it is closed."""
    is_reset: bool = False
    """Whether the connection is reset after the raw bytes, rather than closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """One request as it came."""

    body: dict[str, JSON]
    headers: dict[str, str] = field(default_factory=dict)


class MessagesServer:
    """The server, running while its ``with`` block does."""

    def __init__(self, turns: Sequence[RecordedTurn] = (), *, faults: Iterable[Fault | None] = ()) -> None:
        """Answer from ``turns``; the n-th of ``faults`` befalls the n-th request."""
        self.requests: list[SeenRequest] = []
        self.playback = ReplayModel(turns, source="(loopback)")
        self.sent_blocks: list[JSON] = []
        self._faults = list(faults)
        self._lock = threading.Lock()
        owner = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                with suppress(BrokenPipeError, ConnectionResetError):  # a client may hang up
                    owner.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "MessagesServer":
        """Start to answer."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, once every connection is closed by its client."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, http: BaseHTTPRequestHandler) -> None:
        """Answer one POST."""
        body: JSON = json.loads(http.rfile.read(int(http.headers["content-length"])))
        with self._lock:
            if isinstance(body, dict):
                self.requests.append(SeenRequest(body=body, headers={k.lower(): v for k, v in http.headers.items()}))
            fault = (self._faults.pop(0) if self._faults else None) or Fault()
            if fault.raw is not None:
                return _send_raw(http, fault)
            if http.path != "/v1/messages":
                return _send(http, 404, error_json("not_found_error", f"no such endpoint: {http.path}"))
            if fault.status != 200 or fault.body is not None:
                sent = fault.body or error_json("scripted_error", fault.message)
                return _send(http, fault.status, sent, headers=fault.headers)
            broken = broken_rule(body, self.sent_blocks)
            if broken or not isinstance(body, dict):
                return _send(http, 400, error_json("invalid_request_error", str(broken)))
            try:
                turn = self.playback.find_turn(decode_request(body))
            except RecordingError as error:
                return _send(http, 400, error_json("invalid_request_error", str(error)))
            events = list(turn_events(turn, fault))
            if self._stream(http, events, fault) if body.get("stream") else _send_whole(http, turn):
                self.playback.mark_used(turn)
                self.sent_blocks += fault.extra_blocks
        return None

    def _stream(self, http: BaseHTTPRequestHandler, events: list[dict[str, JSON]], fault: Fault) -> bool:
        """Send the events, as far as ``fault`` lets them; returns whether the answer was whole."""
        http.send_response(200)
        http.send_header("content-type", "text/event-stream; charset=utf-8")
        http.send_header("request-id", f"req_{len(self.requests)}")
        http.send_header("connection", "close")
        http.send_header("transfer-encoding", "chunked")
        http.end_headers()
        http.close_connection = True
        lines = [event_bytes(event).decode() for event in events]
        if fault.raw_events is not None:
            lines = [f"event: message\ndata: {data}\n\n" for data in fault.raw_events]
        if fault.error_after is not None:
            data = error_json(fault.error_type, fault.message)
            lines[fault.error_after :] = [f"event: error\ndata: {data}\n\n"]
        for line in lines[: fault.cut_after]:
            data_bytes = line.encode()
            http.wfile.write(b"%x\r\n%s\r\n" % (len(data_bytes), data_bytes))
        if fault.cut_after is not None:
            http.connection.shutdown(socket.SHUT_RDWR)
            return False
        with suppress(BrokenPipeError, ConnectionResetError):  # a client has all it needs by now
            http.wfile.write(b"0\r\n\r\n")
        return not fault.without_stop and fault.error_after is None and fault.raw_events is None


def error_json(kind: str, message: str) -> str:
    """The body of an error of the API."""
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}})


def decode_request(body: dict[str, JSON]) -> Request:
    """What a request body asks, without its tools: the other way round of ``wire.encode_request``."""
    system, messages = body.get("system") or [], body["messages"]
    assert isinstance(system, list)
    assert isinstance(messages, list)
    texts = [str(block["text"]) for block in system if isinstance(block, dict)]
    return Request(
        system="\n".join(texts), messages=tuple(conversation.decode_message(message) for message in messages)
    )


def turn_events(turn: RecordedTurn, fault: Fault | None = None) -> Iterator[dict[str, JSON]]:
    """The events of a streamed turn, in their order."""
    fault = fault or Fault()
    usage: dict[str, JSON] = {
        "input_tokens": turn.usage.input_tokens,
        "cache_read_input_tokens": turn.usage.cache_read_tokens,
        "cache_creation_input_tokens": turn.usage.cache_write_tokens,
        "output_tokens": 1,
    }
    yield {"type": "message_start", "message": {**_message(turn), "content": [], "stop_reason": None, "usage": usage}}
    for _ in range(1 + fault.pings):
        yield {"type": "ping"}
    blocks = [*fault.extra_blocks, *(conversation.encode_block(block) for block in turn.content)]
    for index, block in enumerate(blocks):
        start, deltas = _split(block, fault)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending: dict[str, JSON] = {"stop_reason": fault.stop_reason or turn.stop_reason, "stop_sequence": None}
    if fault.stop_reason == "refusal":
        ending["stop_details"] = {"type": "refusal", "category": "cyber", "explanation": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": turn.usage.output_tokens}}
    if not fault.without_stop:
        yield {"type": "message_stop"}


def _split(block: dict[str, JSON], fault: Fault) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
    """The start of a block and the deltas that complete it."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(text)]
        case {"type": "thinking", "thinking": str(text), "signature": str(signature)}:
            deltas: list[dict[str, JSON]] = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(text)]
            start: dict[str, JSON] = {**block, "thinking": "", "signature": ""}
            return start, [*deltas, {"type": "signature_delta", "signature": signature}]
        case {"type": "tool_use"}:
            text = json.dumps(block["input"]) if fault.tool_json is None else fault.tool_json
            pieces = ["", *_pieces(text)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            return block, []


def _pieces(text: str) -> list[str]:
    return [text[start : start + PIECE_LENGTH] for start in range(0, len(text), PIECE_LENGTH)]


def _message(turn: RecordedTurn) -> dict[str, JSON]:
    return {
        "id": f"msg_{turn.number:04d}",
        "type": "message",
        "role": "assistant",
        "model": "loopback",
        "content": [conversation.encode_block(block) for block in turn.content],
        "stop_reason": turn.stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": turn.usage.input_tokens, "output_tokens": turn.usage.output_tokens},
    }


def _send_whole(http: BaseHTTPRequestHandler, turn: RecordedTurn) -> bool:
    """Answer a request that did not ask for a stream."""
    _send(http, 200, json.dumps(_message(turn)))
    return True


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
"""What a streamed answer begins with that ends with its connection."""


def event_bytes(event: dict[str, JSON]) -> bytes:
    """One event as it is sent."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _send_raw(http: BaseHTTPRequestHandler, fault: Fault) -> None:
    """Write what ``fault`` says to the connection, as long as the client listens, and end it."""
    http.close_connection = True
    for part in fault.raw or ():
        if isinstance(part, bytes):
            http.wfile.write(part)
        elif select.select([http.connection], [], [], part)[0]:
            break  # the client has gone: it has nothing more to say
    if fault.is_reset:
        http.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        http.connection.close()


def _send(http: BaseHTTPRequestHandler, status: int, body: str, *, headers: Iterable[tuple[str, str]] = ()) -> None:
    data = body.encode()
    http.send_response(status)
    for name, value in (("content-type", "application/json"), *headers):
        http.send_header(name, value)
    http.send_header("content-length", str(len(data)))
    http.send_header("connection", "close")
    http.end_headers()
    http.wfile.write(data)
    http.close_connection = True
