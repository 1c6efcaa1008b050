"""The model port over Anthropic's Messages API, by way of the official SDK.

The SDK is imported at the first call: it costs more than the rest of the program together. It is asked for the bare
stream, because its own reading of one raises errors of four unrelated kinds and hides where a tool's input was cut.
"""

import os
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from cdd_agent.clock import Clock
from cdd_agent.errors import ModelError
from cdd_agent.events import Emit, RetryScheduled, TextDelta
from cdd_agent.model import failure as failures
from cdd_agent.model import stream, wire
from cdd_agent.model.conversation import JSON, AssistantMessage, Turn
from cdd_agent.model.failure import Failure
from cdd_agent.model.port import Request
from cdd_agent.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import MessageParam, TextBlockParam, ThinkingConfigParam, ToolParam

API_URL = "https://api.anthropic.com"

MOST_PAUSES = 3
"""Times that a turn which the server paused is sent back to be gone on with."""

SILENCE_S = 300.0
"""A stream without an event for so long is given up, although the server's pings keep it open."""

_CONNECT_S = 10.0
_SHOWN_CHARACTERS = 300


class AnthropicModel:
    """Claude, or any server that speaks the Messages API."""

    def __init__(
        self,
        name: str = DEFAULT_MODEL,
        *,
        api_key: str | None,
        clock: Clock,
        base_url: str | None = None,
        max_attempts: int = 3,
        thinking: bool = True,
    ) -> None:
        """Nothing is imported, read or sent yet.

        ``base_url`` stands in for ``ANTHROPIC_BASE_URL``; ``thinking=False`` is for models that cannot.
        """
        self.name = name
        self._key = (api_key or "").strip()
        self._clock = clock
        self._url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or API_URL
        self._max_attempts = max_attempts
        self._thinking = thinking
        self._client: anthropic.Anthropic | None = None

    def check(self) -> None:
        """Raise ``ModelError`` if there is no key, or one that cannot be sent; nothing is asked of the server."""
        if not self._key:
            raise failures.no_key()
        if not self._key.isascii() or not self._key.isprintable() or " " in self._key:
            raise failures.unusable_key()

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """The complete turn, streamed; a request that fails before any text was shown is sent again."""
        client = self._connected()
        turn = self._ask(client, request, emit=emit)
        for _ in range(MOST_PAUSES):
            if turn.stop_reason != "pause_turn":
                break
            said = (*request.messages, AssistantMessage(content=turn.content))
            rest = self._ask(client, replace(request, messages=said), emit=emit)
            turn = Turn(
                content=turn.content + rest.content, stop_reason=rest.stop_reason, usage=turn.usage + rest.usage
            )
        if turn.stop_reason == "pause_turn":
            raise ModelError(
                f"The server paused the turn {MOST_PAUSES + 1} times and did not finish it.",
                hint="run the same command again",
            )
        return turn

    def close(self) -> None:
        """Let go of the connections; the next call opens new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> "anthropic.Anthropic":
        """The one client of this object, made at the first call; raises ``ModelError`` if there is no usable key."""
        self.check()
        if self._client is None:
            import anthropic
            import httpx2

            timeout = httpx2.Timeout(SILENCE_S, connect=_CONNECT_S)
            try:
                self._client = anthropic.Anthropic(
                    api_key=self._key,
                    base_url=self._url,
                    max_retries=0,
                    timeout=timeout,
                    # A proxy of the environment would be asked for this machine's own servers too.
                    http_client=httpx2.Client(trust_env=False, timeout=timeout) if is_loopback(self._url) else None,
                )
            except (anthropic.AnthropicError, httpx2.InvalidURL, ValueError) as error:
                failure = Failure(cause="connection", message=self._clean(str(error)))
                raise self._explained(failure, tries=1) from error
        return self._client

    def _ask(self, client: "anthropic.Anthropic", request: Request, *, emit: Emit) -> Turn:
        """One complete turn, which may be a paused one, after as many tries as it takes and is allowed."""
        body = wire.encode_request(request, model=self.name, thinking=self._thinking)
        number = 1
        while True:
            is_text_shown = False
            try:
                arrived = stream.StreamedTurn()
                with closing(self._events(client, body)) as events:
                    for event in events:
                        seen = arrived.feed(event)
                        if seen is not None:
                            is_text_shown = is_text_shown or isinstance(seen, TextDelta)
                            emit(seen)
                if arrived.is_over:
                    return arrived.turn()
                raise _TryFailed(Failure(cause="cut", message="the stream ended without message_stop"))
            except _TryFailed as failed:
                wait_s = failures.wait_s(failed.failure, number)
                if wait_s is None or is_text_shown or number >= self._max_attempts:
                    raise self._explained(failed.failure, tries=number) from failed.__cause__
                number += 1
                emit(RetryScheduled(why=failed.failure.summary, wait_s=wait_s, number=number, limit=self._max_attempts))
                self._clock.sleep(wait_s)

    def _events(self, client: "anthropic.Anthropic", body: dict[str, JSON]) -> Generator[dict[str, JSON]]:
        """The events of one answer; whatever goes wrong with the server or the SDK is raised as ``_TryFailed``."""
        import anthropic
        import httpx2

        try:
            with client.messages.with_streaming_response.create(
                model=self.name,
                max_tokens=cast("int", body["max_tokens"]),
                messages=cast("list[MessageParam]", body["messages"]),
                system=cast("list[TextBlockParam]", body["system"]) if "system" in body else anthropic.omit,
                tools=cast("list[ToolParam]", body["tools"]) if "tools" in body else anthropic.omit,
                thinking=cast("ThinkingConfigParam", body["thinking"]) if "thinking" in body else anthropic.omit,
                stream=True,
            ) as response:
                if "event-stream" not in response.headers.get("content-type", ""):
                    raise ValueError("the answer is not a stream of events")
                yield from self._unpinged(stream.events(response.iter_bytes()))
        except (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError, ValueError, TypeError) as error:
            # An error that holds the key must not be printed with a traceback either.
            cause = None if self._key in f"{error} {error!r}" else error
            raise _TryFailed(self._failure(error)) from cause

    def _unpinged(self, events: Iterator[dict[str, JSON]]) -> Iterator[dict[str, JSON]]:
        """The events without pings and errors; an error ends them, and so does a long time of nothing but pings."""
        heard_at = self._clock.monotonic()
        for event in events:
            match event:
                case {"type": "ping"}:
                    if self._clock.monotonic() - heard_at > SILENCE_S:
                        raise _TryFailed(Failure(cause="timeout", message=f"nothing but pings for {SILENCE_S:.0f} s"))
                    continue
                case {"type": "error", "error": {"type": str(kind), "message": str(message)}}:
                    said = self._clean(message)
                    raise _TryFailed(Failure(cause="status", status=failures.status_of(kind), message=said))
                case _:
                    yield event
            heard_at = self._clock.monotonic()

    def _failure(self, error: Exception) -> Failure:
        """What an exception of the SDK, of its HTTP library, or of the reading means."""
        import anthropic
        import httpx2

        match error:
            case anthropic.APIStatusError():
                headers = error.response.headers
                return Failure(
                    cause="status",
                    status=error.status_code,
                    message=self._clean(error.api_message or ""),
                    retry_after_s=failures.retry_after_s(headers, now=self._clock.now()),
                    may_retry=headers.get("x-should-retry") != "false",
                )
            case anthropic.APITimeoutError() | httpx2.TimeoutException():
                return Failure(cause="timeout", message="")
            case anthropic.APIConnectionError():
                return Failure(cause="connection", message=self._clean(str(error.__cause__ or error)))
            case httpx2.HTTPError():
                return Failure(cause="cut", message=self._clean(str(error)))
            case _:
                return Failure(cause="garbled", message=self._clean(str(error)))

    def _explained(self, failure: Failure, *, tries: int) -> ModelError:
        return failures.explain(failure, model=self.name, url=self._url, tries=tries)

    def _clean(self, text: str) -> str:
        """``text`` on one line, cut to a length that can be shown, without the key."""
        return " ".join(text.replace(self._key, "(the key)").split())[:_SHOWN_CHARACTERS].rstrip(".")


class _TryFailed(Exception):
    """One try failed; caught where it is decided whether there is another."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.summary)
        self.failure = failure


def is_loopback(url: str) -> bool:
    """Whether ``url`` names this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d+){3}", host) is not None
