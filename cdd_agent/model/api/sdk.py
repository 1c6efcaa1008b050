"""The official SDK as a way to send one request and get the bytes of its answer; all else it can do is off.

No redirect is followed, no proxy or password file of the machine is looked up, nothing is retried, nothing is
decompressed, and the SDK never holds the key: it is added below it, to the request on its way out. Importing this
module loads the SDK, which costs more than the rest of the program together.
"""

import ssl
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, cast

import anthropic
import httpx2

from cdd_agent.model.api import failure as failures
from cdd_agent.model.api.deadline import Deadline
from cdd_agent.model.api.endpoint import Endpoint, shown_url
from cdd_agent.model.api.failure import Failure, TryFailed
from cdd_agent.model.api.patience import Patience
from cdd_agent.model.conversation import JSON
from cdd_agent.model.secret import Secret

if TYPE_CHECKING:
    from anthropic.types import MessageParam, TextBlockParam, ThinkingConfigParam, ToolParam

_CONNECT_S = 10.0
_MOST_OF_AN_ERROR = 64_000
"""Bytes that are read of an answer that is none."""
_STAND_IN = "added-on-the-way-out"
"""What the SDK takes for the key."""

_FOREIGN = (
    anthropic.AnthropicError,
    httpx2.HTTPError,
    httpx2.StreamError,
    httpx2.InvalidURL,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    AssertionError,
    ImportError,
    RuntimeError,
)
"""What the SDK, its HTTP library and theirs are known or likely to raise; nothing of ours runs where it is caught."""


class Connection:
    """One client, and the connections it keeps open."""

    def __init__(self, endpoint: Endpoint, *, key: Secret, patience: Patience) -> None:
        """Nothing is sent yet; raises ``TryFailed`` for an address, a proxy or a file that cannot be used."""
        self._total_s = patience.total_s
        timeout = httpx2.Timeout(patience.idle_s, connect=min(_CONNECT_S, patience.idle_s))
        try:
            trusted = ssl.create_default_context(cafile=endpoint.certificates) if endpoint.certificates else True
            direct = httpx2.HTTPTransport(verify=trusted, proxy=endpoint.proxy, trust_env=False)
            self._deadline = Deadline.put_under(direct)
            self._client = anthropic.Anthropic(
                api_key=_STAND_IN,
                base_url=endpoint.url,
                max_retries=0,
                timeout=timeout,
                http_client=httpx2.Client(
                    transport=_Signing(direct, key=key),
                    headers={"accept-encoding": "identity"},
                    follow_redirects=False,
                    trust_env=False,
                    timeout=timeout,
                ),
            )
        except _FOREIGN as error:
            raise TryFailed(Failure(cause="connection", message=str(error), may_retry=False)) from error

    def answer(self, body: dict[str, JSON], *, now: str) -> Generator[bytes]:
        """The bytes of the answer to ``body`` as they come; whatever goes wrong is raised as ``TryFailed``."""
        self._deadline.start(self._total_s)
        try:
            with self._client.messages.with_streaming_response.create(
                model=cast("str", body["model"]),
                max_tokens=cast("int", body["max_tokens"]),
                messages=cast("list[MessageParam]", body["messages"]),
                system=cast("list[TextBlockParam]", body["system"]) if "system" in body else anthropic.omit,
                tools=cast("list[ToolParam]", body["tools"]) if "tools" in body else anthropic.omit,
                thinking=cast("ThinkingConfigParam", body["thinking"]) if "thinking" in body else anthropic.omit,
                stream=True,
            ) as response:
                kind = response.headers.get("content-type", "of no kind")
                if "event-stream" not in kind:
                    raise ValueError(f"it is not a stream of events but {kind}")
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise ValueError("it is compressed, which was not asked for")
                yield from response.iter_bytes()
        except _FOREIGN as error:
            failure = _failure(error, now=now)
            if failure.cause == "timeout" and self._deadline.is_over:
                failure = Failure(cause="too_slow", message=f"{self._total_s:g} s are over")
            raise TryFailed(failure) from error

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()


class _Signing(httpx2.BaseTransport):
    """Adds the key to a copy of each request, and cuts answers that are errors to a length that can be read."""

    def __init__(self, inner: httpx2.BaseTransport, *, key: Secret) -> None:
        self._inner = inner
        self._key = key

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = httpx2.Headers(request.headers)
        if headers.get("authorization") == f"Bearer {_STAND_IN}":  # else the user's own header for a gateway
            headers["authorization"] = f"Bearer {self._key.tell()}"
        signed = httpx2.Request(
            request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions
        )
        response = self._inner.handle_request(signed)
        if response.is_success:
            return response
        is_packed = "content-encoding" in response.headers
        return httpx2.Response(
            response.status_code,
            headers=[(name, value) for name, value in response.headers.items() if name != "content-encoding"],
            stream=_Beginning(response, most=0 if is_packed else _MOST_OF_AN_ERROR),
            extensions=response.extensions,
        )

    def close(self) -> None:
        self._inner.close()


class _Beginning(httpx2.SyncByteStream):
    """The first bytes of an answer, as far as they come in time."""

    def __init__(self, response: httpx2.Response, *, most: int) -> None:
        self._response = response
        self._most = most

    def __iter__(self) -> Iterator[bytes]:
        left = self._most
        stream = cast("httpx2.SyncByteStream", self._response.stream)
        try:
            for chunk in stream if left else ():
                yield chunk[:left]
                left -= len(chunk)
                if left <= 0:
                    return
        except (httpx2.HTTPError, OSError):
            return  # the status says enough

    def close(self) -> None:
        self._response.close()


def _failure(error: Exception, *, now: str) -> Failure:
    """What an exception of the SDK, of its HTTP library, or of the reading means."""
    match error:
        case anthropic.APIStatusError():
            headers = error.response.headers
            target = headers.get("location", "") if error.response.is_redirect else ""
            return Failure(
                cause="status",
                status=error.status_code,
                message=f"it names {shown_url(target)}" if target else str(error.api_message or ""),
                retry_after_s=failures.retry_after_s(headers, now=now),
                may_retry=headers.get("x-should-retry") != "false",
            )
        case anthropic.APITimeoutError() | httpx2.TimeoutException():
            return Failure(cause="timeout", message="")
        case anthropic.APIConnectionError():
            return Failure(cause="connection", message=str(error.__cause__ or error))
        case httpx2.DecodingError():
            return Failure(cause="garbled", message=str(error))
        case httpx2.HTTPError() | httpx2.StreamError() | OSError():
            return Failure(cause="cut", message=str(error))
        case _:
            return Failure(cause="garbled", message=str(error))
