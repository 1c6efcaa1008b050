"""JSON-RPC with a program that runs in the sandbox for many questions: a language server, or an MCP server.

Its standard input and output are a socket. One call sends a request and reads until the answer has come or its time is
up, without a thread that reads in between: a server that writes more than the socket holds waits for the next question.
Whatever the program sends is untrusted: messages are bounded, junk is skipped, and its requests are answered.
"""

import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

import msgspec

from cdd_agent.errors import CddError
from cdd_agent.sandbox.port import Command, Result, Sandbox
from cdd_agent.sandbox.supervised import make_default_limits
from cdd_agent.symbols.symbol import SymbolServerError
from cdd_agent.untrusted.text import clean, shorten

ANSWER_S = 10.0
"""The longest wait for an answer."""
LIFE_S = 12 * 3600.0
"""The longest life of a server; its limit of processor time follows from it."""
_END_S = 5.0
"""The longest wait for the end of a server; the sandbox ends it in less."""
_MOST_BYTES = 64_000_000
"""Size of a message: a hundred thousand places have about a third of this."""
_MOST_HEADER_BYTES = 4_096
_MOST_WAITING_BYTES = 4_000_000
"""Messages that the server does not read."""
_CHUNK_BYTES = 1 << 18
_SHOWN_CHARACTERS = 200
_METHOD_NOT_FOUND = -32601
_MEMORY_BYTES = 4 << 30
"""Of each process of a server; ty needs 75 MB for 40,000 lines."""
_MOST_STARTS = 2
HINT = "see which engines answer: cdd doctor"

_T = TypeVar("_T")


class ServerGone(SymbolServerError):
    """A server has ended, or sends something else than messages."""


class UnreadableFrame(Exception):
    """Bytes after which no message can be found."""


class LengthFraming:
    """Messages of the Language Server Protocol: a header with the length, then the body."""

    def write(self, body: bytes) -> bytes:
        """Return a message as it is sent."""
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    def read(self, data: bytearray, *, searched: int) -> bytes | None:
        """Take the next message from ``data``; None if it is incomplete."""
        end = data.find(b"\r\n\r\n", 0, _MOST_HEADER_BYTES)
        if end < 0:
            if len(data) >= _MOST_HEADER_BYTES:
                raise UnreadableFrame("a header without an end")
            return None
        fields = [line.partition(b":") for line in bytes(data[:end]).split(b"\r\n")]
        lengths = [value.strip() for name, _, value in fields if name.strip().lower() == b"content-length"]
        if len(lengths) != 1 or not lengths[0].isdigit() or len(lengths[0]) > 12:
            raise UnreadableFrame("a header without the length of its message")
        size, start = int(lengths[0]), end + 4
        if size > _MOST_BYTES:
            raise UnreadableFrame(f"a message of {size:,} bytes")
        if len(data) < start + size:
            return None
        body = bytes(data[start : start + size])
        del data[: start + size]
        return body


class LineFraming:
    """Messages of the Model Context Protocol over standard input and output: one line each."""

    def write(self, body: bytes) -> bytes:
        """Return a message as it is sent; JSON itself has no line ends."""
        return body + b"\n"

    def read(self, data: bytearray, *, searched: int) -> bytes | None:
        """Take the next line from ``data``; None if it is incomplete. The first ``searched`` bytes have no line end."""
        end = data.find(b"\n", searched)
        if (len(data) if end < 0 else end) > _MOST_BYTES:
            raise UnreadableFrame(f"a line of more than {_MOST_BYTES:,} bytes")
        if end < 0:
            return None
        body = bytes(data[:end])
        del data[: end + 1]
        return body


class _ErrorAnswer(msgspec.Struct, frozen=True):
    message: str = ""


class _Message(msgspec.Struct, frozen=True):
    id: int | str | None = None
    method: str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: _ErrorAnswer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """How a kind of server is spoken to."""

    framing: LengthFraming | LineFraming
    answers: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    """Requests of the server -> what it gets; to others it gets an error."""
    start_s: float = ANSWER_S
    """The longest wait for its start, and for an answer."""
    answer_s: float = ANSWER_S


@dataclass(kw_only=True)
class ServerConnection:
    """A running server."""

    name: str
    socket: socket.socket
    talk: Talk
    why_ended: Callable[[], str] = lambda: ""
    """Returns why the server has ended, if it has."""
    is_open: bool = True

    def __post_init__(self) -> None:
        """Prepare the buffers."""
        self.socket.setblocking(False)
        self._out, self._in = bytearray(), bytearray()
        self._searched = self._last_id = 0
        self._arrived = deque[_Message]()

    def request(self, method: str, parameters: object, *, deadline: float) -> msgspec.Raw:
        """Send a request and return its result. Raises ``ServerGone``, and ``SymbolServerError``.

        ``deadline`` is a time of ``time.monotonic``. After it the connection is closed.
        """
        self._last_id += 1
        wanted = self._last_id
        self._send({"jsonrpc": "2.0", "id": wanted, "method": method, "params": parameters})
        while (message := self._receive(deadline)) is not None:
            if message.method is not None:
                self._reply(message)
            elif message.id == wanted:
                if message.error is not None:
                    said = shorten(clean(message.error.message), _SHOWN_CHARACTERS)
                    raise SymbolServerError(f"{self.name} refused {method}: {said.rstrip('.')}.", hint=HINT)
                return message.result
        self.close()
        raise SymbolServerError(f"{self.name} did not answer {method} in time.", hint=HINT)

    def notify(self, method: str, parameters: object) -> None:
        """Send a message that has no answer, now or with the next request; raises ``ServerGone``."""
        self._send({"jsonrpc": "2.0", "method": method, "params": parameters})
        self._write()

    def close(self) -> None:
        """Hang up, which ends the server."""
        self.is_open = False
        self.socket.close()

    def _send(self, message: object) -> None:
        if not self.is_open:
            raise self._give_up("was ended")
        if len(self._out) > _MOST_WAITING_BYTES:
            raise self._give_up("does not read what it is sent")
        self._out += self.talk.framing.write(msgspec.json.encode(message))

    def _reply(self, message: _Message) -> None:
        if message.id is None:  # a notification, such as a line of a log
            return
        if message.method is not None and message.method in self.talk.answers:
            self._send({"jsonrpc": "2.0", "id": message.id, "result": self.talk.answers[message.method]})
        else:
            error = {"code": _METHOD_NOT_FOUND, "message": "Method not found"}
            self._send({"jsonrpc": "2.0", "id": message.id, "error": error})

    def _receive(self, deadline: float) -> _Message | None:
        """Return the next message, and meanwhile send what waits; None after the deadline."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            while not self._arrived:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return None
                selector.modify(self.socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0))
                for _, ready in selector.select(left_s):
                    if ready & selectors.EVENT_WRITE:
                        self._write()
                    if ready & selectors.EVENT_READ:
                        self._read()
        # A server that never stops talking must not outlast the deadline.
        return self._arrived.popleft() if time.monotonic() < deadline else None

    def _write(self) -> None:
        try:
            del self._out[: self.socket.send(self._out)]
        except BlockingIOError:
            return
        except OSError as error:
            raise self._give_up("has ended") from error

    def _read(self) -> None:
        try:
            data = self.socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise self._give_up("has ended")
        self._in += data
        try:
            while (body := self.talk.framing.read(self._in, searched=self._searched)) is not None:
                self._searched = 0
                if (message := _decode(body)) is not None:
                    self._arrived.append(message)
        except UnreadableFrame as error:
            raise self._give_up(f"sent {error}") from error
        self._searched = len(self._in)

    def _give_up(self, happened: str) -> ServerGone:
        self.close()
        why = self.why_ended()
        return ServerGone(f"{self.name} {happened}{why and f': {why}'}.", hint=HINT)


def _decode(body: bytes) -> _Message | None:
    """Return a message; None for other lines, which libraries print."""
    try:
        return msgspec.json.decode(body, type=_Message)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


class SandboxedServer:
    """A server in the sandbox. The first question starts it; if it dies, it is restarted once."""

    def __init__(
        self,
        name: str,
        *,
        sandbox: Sandbox,
        make_command: Callable[[], Command],
        greet: Callable[[ServerConnection, float], None],
        talk: Talk,
    ) -> None:
        """Start nothing yet. ``greet`` does what the protocol asks for at first, until a time of ``time.monotonic``."""
        self.name = name
        self._sandbox = sandbox
        self._make_command = make_command
        self._greet = greet
        self._talk = talk
        self._starts = 0
        self._connection: ServerConnection | None = None
        self._thread: threading.Thread | None = None
        self._ended: list[Result | Exception] = []

    @property
    def connection(self) -> ServerConnection | None:
        """The connection, if the server is running."""
        return self._connection if self._connection is not None and self._connection.is_open else None

    def ask(self, question: Callable[[ServerConnection, float], _T]) -> _T:
        """Call ``question`` with the running server and a deadline of ``time.monotonic``, and return its result.

        Raises ``SymbolServerError``. If the server dies meanwhile, it is restarted and asked again.
        """
        try:
            return question(self._connect(), time.monotonic() + self._talk.answer_s)
        except ServerGone:
            if self._starts >= _MOST_STARTS:
                raise
            return question(self._connect(), time.monotonic() + self._talk.answer_s)

    def close(self) -> None:
        """End the server, and wait for its end."""
        if self._connection is not None:
            self._connection.close()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _connect(self) -> ServerConnection:
        if (running := self.connection) is not None:
            return running
        self.close()
        if self._starts >= _MOST_STARTS:
            raise ServerGone(f"{self.name} has ended {_MOST_STARTS} times.", hint=HINT)
        self._starts += 1
        try:
            command = self._make_command()
        except OSError as error:
            raise SymbolServerError(f"{self.name} cannot be started: {error}.", hint=HINT) from error
        ours, theirs = socket.socketpair()
        self._ended = []
        # A daemon thread, because a server must not keep cdd from exiting. When cdd ends, the warden ends the server.
        # The thread does not hold this object: when nobody uses it any more, the server ends too.
        arguments = {"theirs": theirs, "ended": self._ended}
        self._thread = threading.Thread(
            target=_run_server, args=(self._sandbox, command), kwargs=arguments, daemon=True
        )
        self._thread.start()
        weakref.finalize(self, ours.close)
        connection = ServerConnection(name=self.name, socket=ours, talk=self._talk, why_ended=self._explain_end)
        self._connection = connection
        try:
            self._greet(connection, time.monotonic() + self._talk.start_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def _explain_end(self) -> str:
        if self._thread is not None:
            self._thread.join(_END_S)
        match self._ended:
            case [Result(output=output)] if output.strip():
                return shorten(clean(output.strip().splitlines()[-1]), _SHOWN_CHARACTERS)
            case [Exception() as error]:
                return shorten(clean(str(error)), _SHOWN_CHARACTERS)
            case _:
                return ""


def _run_server(sandbox: Sandbox, command: Command, *, theirs: socket.socket, ended: list[Result | Exception]) -> None:
    """Run a server until it ends, and add how it ended to ``ended``."""
    number = theirs.fileno()
    limits = replace(make_default_limits(command.timeout_s), memory_bytes=_MEMORY_BYTES)
    with theirs:
        try:
            ended.append(sandbox.run(replace(command, stdin=number, stdout=number, limits=limits)))
        except (OSError, CddError) as error:
            ended.append(error)
