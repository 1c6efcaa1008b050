"""Fulfill the model port with Anthropic's Messages API, through the official SDK.

    AnthropicModel  tries, pauses, tries again
    Connection      sends one request with the SDK, yields the bytes of the answer
    Transport       adds the key below the SDK, refuses answers that are not streams
    Deadline        ends every wait on the network in time

The SDK costs more to import than the rest of the program. Only the functions that need it import it, with its HTTP
libraries, and the classes that these call have no base class of theirs. docs/decisions/0009-model-transport.md says
which protections the SDK lacks.
"""

import math
import random
import re
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import urlsplit

from cdd_agent.clock import Clock
from cdd_agent.config.settings import DEFAULT_MODEL
from cdd_agent.errors import ModelError, UsageError
from cdd_agent.events import Emit, Event, RetryScheduled, TextDelta, Waiting
from cdd_agent.model import conversation
from cdd_agent.model import stream as streams
from cdd_agent.model.budget import make_answer_lost
from cdd_agent.model.conversation import JSON, Request, Turn, repair_calls
from cdd_agent.model.stream import AnswerLimits, RequestFailed, parse_object, read_answer
from cdd_agent.untrusted.keys import Secret
from cdd_agent.work.state import Usage

if TYPE_CHECKING:
    import httpcore2
    import httpx2
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

API_URL = "https://api.anthropic.com"

MayWait: TypeAlias = Callable[[str, float], bool]
"""Asks the user whether to wait: the reason and the seconds. Returns False if nobody can be asked."""
_MAX_MESSAGE = 300
"""Characters of a server's message in an error."""
_MAX_ERROR_BYTES = 64_000
_CONNECT_S = 10.0
_WRITE_BYTES = 4096
"""One write. A socket that is ready to write takes this much without another wait."""
_PLACEHOLDER = "added-by-the-transport"
"""The API key that the SDK gets, because it logs requests and keeps them in its errors."""
_LIBRARY_ERRORS = (
    *(OSError, ValueError, TypeError, AttributeError, LookupError, AssertionError, ImportError, RuntimeError),
)
"""The built-in errors that bugs in the SDK or its libraries raise. cdd's own code never runs where these are caught."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server that speaks the Messages API. Only the user's environment can name it."""

    url: str = API_URL
    proxy: str | None = field(default=None, repr=False)
    """It may hold a password."""
    certificates: str | None = None
    """A file of authorities to trust instead of the system's, such as a company's."""

    @property
    def is_in_the_clear(self) -> bool:
        """Return whether others on the network could read what is sent, including the key."""
        return urlsplit(self.url).scheme == "http" and not is_loopback(self.url)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Endpoint":
        """Read ``ANTHROPIC_BASE_URL``, ``HTTPS_PROXY``, ``NO_PROXY`` and ``SSL_CERT_FILE``, or raise ``UsageError``."""
        url = environment.get("ANTHROPIC_BASE_URL") or API_URL
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_usable = False
        if not is_usable:
            happened = f"ANTHROPIC_BASE_URL is not an address of a server: {streams.redact_url(url)}."
            raise UsageError(happened, hint=f"write it like {API_URL}, or: unset ANTHROPIC_BASE_URL")
        names = (f"{parts.scheme}_proxy", f"{parts.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
        proxy = next((environment[name] for name in names if environment.get(name)), None)
        direct = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        if proxy is not None:
            from urllib.request import proxy_bypass  # Not at the top: few users have a proxy.

            server = f"{parts.hostname}:{parts.port or {'http': 80, 'https': 443}[parts.scheme]}"
            # urllib does not know the ``*.`` before a domain, which other programs accept.
            if is_loopback(url) or proxy_bypass(server, {"no": direct.replace("*.", ".")}):
                proxy = None
        return cls(url=url, proxy=proxy, certificates=environment.get("SSL_CERT_FILE") or None)


def is_loopback(url: str) -> bool:
    """Return whether ``url`` names this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d+){3}", host) is not None


@cache
def _load_sdk() -> Thread:
    def load() -> None:
        with suppress(*_LIBRARY_ERRORS):  # the first request raises them again
            import_module("anthropic.resources.messages")

    thread = Thread(target=load, name="sdk", daemon=True)
    thread.start()
    return thread


class AnthropicModel:
    """Claude, or any model behind a server that speaks the Messages API."""

    def __init__(
        self,
        name: str = DEFAULT_MODEL,
        *,
        key: Secret | None,
        clock: Clock,
        endpoint: Endpoint | None = None,
        limits: AnswerLimits | None = None,
        may_wait: MayWait | None = None,
    ) -> None:
        """Open nothing yet. Without ``may_wait`` a longer pause than the limits allow ends the request."""
        self.name = name
        self._key = key or Secret("")
        self._clock = clock
        self._endpoint = endpoint or Endpoint()
        self._limits = limits or AnswerLimits()
        self._may_wait = may_wait
        self._connection: Connection | None = None

    def check(self) -> None:
        """Raise ``ModelError`` if the key is missing or cannot be sent; send nothing.

        The SDK is loaded in the background meanwhile: a run of tests often comes before the first request.
        """
        streams.check_key(self._key.reveal())
        _load_sdk()

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """Return the complete turn, after as many tries as the limits allow; emit its text while it comes.

        A retry is safe because tools run only when a turn is complete. The ``RetryScheduled`` event withdraws the text
        that the failed try has shown.
        """
        self.check()
        name = request.model or self.name
        body = conversation.encode_request(request, model=name)
        number, waited_s = 1, 0.0
        while True:
            shown: list[Event] = []
            try:
                turn = self._try_once(body, model=name, emit=emit, shown=shown)
                return repair_calls(turn, request.messages)
            except RequestFailed as failed:
                retry = self._plan_retry(failed, number, waited_s=waited_s, withdrawn=bool(shown))
                if retry is None:
                    cleaned = replace(failed, message=self._clean(failed.message).rstrip("."))
                    error = streams.explain(cleaned, model=name, url=self._endpoint.url, tries=number)
                    raise error from self._drop_if_revealing(failed.__cause__)
            except ModelError as error:
                raise ModelError(self._clean(error.happened), hint=error.hint) from self._drop_if_revealing(
                    error.__cause__
                )
            emit(retry)
            self._clock.sleep(retry.wait_s)
            number, waited_s = retry.number, waited_s + retry.wait_s

    def close(self) -> None:
        """Close the network connections. The next request opens new ones."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _try_once(self, body: dict[str, JSON], *, model: str, emit: Emit, shown: list[Event]) -> Turn:
        if self._connection is None:
            emit(Waiting(what="loading the SDK of the model's service"))
            self._connection = Connection(self._endpoint, key=self._key, limits=self._limits, clock=self._clock)

        emit(Waiting(what="waiting for the model"))

        def relay(event: Event) -> None:
            if isinstance(event, TextDelta):
                shown.append(event)
            emit(event)

        def lose(usage: Usage) -> None:
            if usage != Usage():
                emit(make_answer_lost(model, usage))

        with closing(self._connection.stream(body)) as chunks:
            return read_answer(chunks, limits=self._limits, clock=self._clock, emit=relay, lose=lose)

    def _plan_retry(
        self, failed: RequestFailed, number: int, *, waited_s: float, withdrawn: bool
    ) -> RetryScheduled | None:
        limit, may_wait = self._limits.tries, self._may_wait or (lambda *_: False)
        wait_s = streams.choose_pause_s(failed, number, chance=random.random())
        if wait_s is None or wait_s > streams.LONGEST_ASKED_S:
            return None
        if failed.is_busy and waited_s + wait_s <= self._limits.busy_s:
            limit = 0
        elif number >= limit or (wait_s > streams.LONGEST_WAIT_S and not may_wait(failed.summary, wait_s)):
            return None
        return RetryScheduled(why=failed.summary, wait_s=wait_s, number=number + 1, limit=limit, withdrawn=withdrawn)

    def _clean(self, text: str) -> str:
        # Shortening comes last: half a key is not recognized.
        return " ".join(self._key.hide_in(text).split())[:_MAX_MESSAGE]

    def _drop_if_revealing(self, error: BaseException | None) -> BaseException | None:
        """Return ``error`` unless its traceback, which may be printed, repeats the key."""
        cause = error
        while cause is not None:
            if self._key.is_in(f"{cause} {cause!r}"):
                return None
            cause = cause.__cause__ or cause.__context__
        return error


class Connection:
    """One client of the SDK, and the network connections it keeps open."""

    def __init__(self, endpoint: Endpoint, *, key: Secret, limits: AnswerLimits, clock: Clock) -> None:
        """Import the SDK; raise ``RequestFailed`` for an address, a proxy or a file that cannot be used."""
        _load_sdk().join()  # two threads that import the same modules may find them half loaded
        import anthropic
        import httpx2

        self._total_s = limits.total_s
        self._deadline = Deadline()
        try:
            transport = Transport(endpoint, key=key, deadline=self._deadline, clock=clock)
            self._client = anthropic.Anthropic(
                api_key=_PLACEHOLDER,
                base_url=endpoint.url,
                max_retries=0,  # the SDK would wait for hours if a server asks, and a screen could show nothing of it
                timeout=httpx2.Timeout(limits.idle_s, connect=min(_CONNECT_S, limits.idle_s)),
                http_client=httpx2.Client(
                    transport=cast("httpx2.BaseTransport", transport),
                    headers={"accept-encoding": "identity"},
                    trust_env=False,  # httpx2 would look up proxies and .netrc; Endpoint names the proxy
                ),
            )
        except (anthropic.AnthropicError, httpx2.InvalidURL, *_LIBRARY_ERRORS) as error:
            raise RequestFailed(cause="connection", message=str(error), may_retry=False) from error

    def stream(self, body: dict[str, JSON]) -> Generator[bytes]:
        """Send ``body`` and yield the bytes of the answer; raise ``RequestFailed`` for everything that fails."""
        import anthropic
        import httpcore2
        import httpx2

        self._deadline.start(self._total_s)
        try:
            parameters = cast("MessageCreateParamsStreaming", {**body, "stream": True})
            with self._client.messages.with_streaming_response.create(**parameters) as response:
                yield from response.iter_bytes()
        except (
            *(anthropic.AnthropicError, httpx2.HTTPError, httpx2.InvalidURL, RequestFailed),
            *(httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, *_LIBRARY_ERRORS),
        ) as error:
            # The SDK wraps each error that comes before the answer, and none that comes during it.
            has_begun = not isinstance(error, anthropic.APIConnectionError)
            cause = error if has_begun else error.__cause__ or error
            if isinstance(cause, RequestFailed):
                raise replace(cause) from cause.__cause__
            raise self._classify(cause, has_begun=has_begun) from cause

    def close(self) -> None:
        """Close the network connections."""
        self._client.close()

    def _classify(self, error: BaseException, *, has_begun: bool) -> RequestFailed:
        import httpcore2

        match error:
            case httpcore2.TimeoutException() if self._deadline.is_over:
                return RequestFailed(cause="too_slow", message=f"{self._total_s:g} s are over")
            case httpcore2.TimeoutException():
                return RequestFailed(cause="timeout", message="")
            case _ if not has_begun:
                # ImportError: a SOCKS proxy needs a package that is not installed.
                return RequestFailed(
                    cause="connection", message=str(error), may_retry=not isinstance(error, ImportError)
                )
            case httpcore2.NetworkError() | httpcore2.ProtocolError() | OSError():
                return RequestFailed(cause="cut", message=str(error))
            case _:
                return RequestFailed(cause="garbled", message=str(error))


class Transport:
    """Carries requests for the SDK's HTTP client, with a deadline; has the methods of ``httpx2.BaseTransport``."""

    def __init__(self, endpoint: Endpoint, *, key: Secret, deadline: "Deadline", clock: Clock) -> None:
        """Open nothing yet; raises what the libraries raise for an unusable proxy or certificate file."""
        import httpcore2
        import httpx2

        file = endpoint.certificates
        proxy = httpx2.Proxy(endpoint.proxy) if endpoint.proxy else None
        self._key = key
        self._clock = clock
        self._pool = httpcore2.ConnectionPool(
            ssl_context=httpx2.create_ssl_context(
                verify=ssl.create_default_context(cafile=file) if file else True, trust_env=False
            ),
            proxy=httpcore2.Proxy(str(proxy.url), auth=proxy.raw_auth) if proxy else None,
            max_keepalive_connections=0,  # reading stops at message_stop, so a connection is never free for reuse
            network_backend=cast("httpcore2.NetworkBackend", deadline),
        )

    def handle_request(self, request: "httpx2.Request") -> "httpx2.Response":
        """Send ``request`` with the key; return the answer if it is a stream of events, else raise."""
        import httpx2

        answer = self._pool.handle_request(self._sign(request))
        headers = httpx2.Headers(answer.headers)
        try:
            self._check(answer, headers)
        except BaseException:  # until the answer is returned, nobody else closes its connection
            answer.close()
            raise

        class _Body(httpx2.SyncByteStream):  # the one base class that httpx2 checks for
            def __iter__(self) -> Iterator[bytes]:
                return answer.iter_stream()

            def close(self) -> None:
                answer.close()

        return httpx2.Response(answer.status, headers=headers, stream=_Body(), extensions=answer.extensions)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def _sign(self, request: "httpx2.Request") -> "httpcore2.Request":
        """Return a copy with the key, so that ``request``, which the SDK keeps in its errors, never holds it."""
        import httpcore2
        import httpx2

        headers = httpx2.Headers(request.headers)
        if headers.get("authorization") == f"Bearer {_PLACEHOLDER}":  # else a header that the user set for a gateway
            headers["authorization"] = f"Bearer {self._key.reveal()}"
        return httpcore2.Request(
            request.method,
            str(request.url),
            headers=headers.raw,
            content=cast("httpx2.SyncByteStream", request.stream),
            extensions=request.extensions,
        )

    def _check(self, answer: "httpcore2.Response", headers: Mapping[str, str]) -> None:
        kind = headers.get("content-type", "of no kind")
        if not 200 <= answer.status < 300:
            raise self._read_error(answer, headers)
        if "event-stream" not in kind:
            raise RequestFailed(cause="garbled", message=f"it is not a stream of events but {kind}")
        if headers.get("content-encoding", "identity") != "identity":
            raise RequestFailed(cause="garbled", message="it is compressed, which was not asked for")

    def _read_error(self, answer: "httpcore2.Response", headers: Mapping[str, str]) -> RequestFailed:
        """Return the failure of an answer that is not a success, with the message at the start of its body."""
        import httpcore2

        body = b""
        # Without the rest of the body, the status says enough.
        with suppress(httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
            for chunk in () if "content-encoding" in headers else answer.iter_stream():
                body += chunk
                if len(body) > _MAX_ERROR_BYTES:
                    break
        message = ""  # stays empty for any other body, such as a proxy's page
        with suppress(ValueError):
            match parse_object(body.decode()):
                case {"error": {"message": str(message)}}:
                    pass
        if 300 <= answer.status < 400 and "location" in headers:
            message = f"it points to {streams.redact_url(headers['location'])}"
        return RequestFailed(
            cause="status",
            status=answer.status,
            message=message,
            retry_after_s=streams.parse_retry_after(headers.get("retry-after", ""), now=self._clock.now()),
            may_retry=headers.get("x-should-retry") != "false",
        )


class Deadline:
    """Opens connections whose waits all end at one moment; has the methods of ``httpcore2.NetworkBackend``.

    The timeouts of the HTTP libraries limit one read or write. A server that sends or accepts a byte now and then, of
    its headers for example, never exceeds them. Not limited here: the look-up of a host name, and the packets of one
    record within two layers of TLS (a server behind a proxy at ``https://``).
    """

    def __init__(self) -> None:
        """Start without an end."""
        self._end_s = math.inf

    @property
    def is_over(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() >= self._end_s

    def start(self, total_s: float) -> None:
        """Allow ``total_s`` seconds from now."""
        self._end_s = time.monotonic() + total_s

    def shorten(self, timeout_s: float | None) -> float:
        """Return ``timeout_s``, or the time that is left if that is less; raise a timeout if none is left."""
        import httpcore2

        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise httpcore2.ReadTimeout("the time of the answer is over")
        return left_s if timeout_s is None else min(timeout_s, left_s)

    def connect_tcp(self, host: str, port: int, *, timeout: float | None = None, **_: object) -> "_TimedStream":
        """Open a connection. httpcore2 also passes a local address and socket options, which cdd does not set."""
        import httpcore2

        return _TimedStream(httpcore2.SyncBackend().connect_tcp(host, port, self.shorten(timeout)), deadline=self)


class _TimedStream:
    """A connection whose waits end with the deadline; has the methods of ``httpcore2.NetworkStream``."""

    def __init__(self, inner: "httpcore2.NetworkStream", *, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadline.shorten(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # In pieces: one write of a long request waits again each time that the server accepts a byte.
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._inner.write(buffer[start : start + _WRITE_BYTES], self._deadline.shorten(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, *timeouts: float, **named: float
    ) -> "_TimedStream":
        # httpcore2 passes the timeout by name, but by position through the tunnel of a proxy.
        timeout_s = timeouts[0] if timeouts else named.get("timeout")
        inner = self._inner.start_tls(ssl_context, server_hostname, self._deadline.shorten(timeout_s))
        return _TimedStream(inner, deadline=self._deadline)

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)
