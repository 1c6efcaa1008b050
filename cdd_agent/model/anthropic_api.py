"""The model port over Anthropic's Messages API, by way of the official SDK.

The SDK is loaded at the first call and asked for the bare bytes of an answer, because its own reading of them raises
errors of four unrelated kinds and hides where a tool's input was cut.
"""

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from cdd_agent.clock import Clock
from cdd_agent.errors import ModelError
from cdd_agent.events import Emit, Event, RetryScheduled, TextDelta
from cdd_agent.model import prices, wire
from cdd_agent.model.api import answer
from cdd_agent.model.api import failure as failures
from cdd_agent.model.api.endpoint import Endpoint
from cdd_agent.model.api.failure import Failure, TryFailed
from cdd_agent.model.api.patience import Patience
from cdd_agent.model.calls import mended
from cdd_agent.model.conversation import AssistantMessage, Turn, Usage
from cdd_agent.model.port import Request
from cdd_agent.model.secret import Secret
from cdd_agent.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from cdd_agent.model.api.sdk import Connection

MayWait: TypeAlias = Callable[[str, float], bool]
"""Asks a person whether to wait: why, and for how many seconds. False where nobody can be asked."""

MOST_PAUSES = 3
"""Times that a turn which the server paused is sent back to be gone on with."""

_SHOWN_CHARACTERS = 300


class AnthropicModel:
    """Claude, or any server that speaks the Messages API."""

    def __init__(
        self,
        name: str = DEFAULT_MODEL,
        *,
        key: Secret | None,
        clock: Clock,
        endpoint: Endpoint | None = None,
        patience: Patience | None = None,
        may_wait: MayWait | None = None,
    ) -> None:
        """Nothing is imported, read or sent yet; without ``may_wait`` no pause above a minute is waited for."""
        self.name = name
        self._key = key or Secret("")
        self._clock = clock
        self._endpoint = endpoint or Endpoint()
        self._patience = patience or Patience()
        self._may_wait = may_wait
        self._connection: Connection | None = None

    def check(self) -> None:
        """Raise ``ModelError`` if there is no key, or one that cannot be sent; nothing is asked of the server."""
        text = self._key.tell()
        if not text:
            raise failures.no_key()
        if not text.isascii() or not text.isprintable() or " " in text:
            raise failures.unusable_key()

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """The complete turn, streamed; a request that fails in a way that may pass is sent again."""
        turn = self._ask(request, emit=emit)
        try:
            for _ in range(MOST_PAUSES):
                if turn.stop_reason != "pause_turn":
                    break
                said = (*request.messages, AssistantMessage(content=turn.content))
                rest = self._ask(replace(request, messages=said), emit=emit)
                turn = Turn(
                    content=turn.content + rest.content, stop_reason=rest.stop_reason, usage=turn.usage + rest.usage
                )
            if turn.stop_reason == "pause_turn":
                raise ModelError(
                    f"The server paused the turn {MOST_PAUSES + 1} times and did not finish it.",
                    hint="run the same command again",
                )
        except BaseException:
            self._lose(turn.usage, emit=emit)
            raise
        return mended(turn, request.messages)

    def close(self) -> None:
        """Let go of the connections; the next call opens new ones."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> "Connection":
        """The one connection of this object, made at the first call."""
        if self._connection is None:
            from cdd_agent.model.api.sdk import Connection

            self._connection = Connection(self._endpoint, key=self._key, patience=self._patience)
        return self._connection

    def _ask(self, request: Request, *, emit: Emit) -> Turn:
        """One complete turn, which may be a paused one, after as many tries as it takes and is allowed.

        Nothing is carried out before a turn is complete, so a try that broke off can be made again; what it showed is
        taken back by the event that announces the next one.
        """
        self.check()
        body = wire.encode_request(request, model=self.name)
        number = 1
        while True:
            shown: list[TextDelta] = []

            def relay(event: Event, shown: list[TextDelta] = shown) -> None:
                if isinstance(event, TextDelta):
                    shown.append(event)
                emit(event)

            try:
                with closing(self._connected().answer(body, now=self._clock.now())) as chunks:
                    lose = partial(self._lose, emit=emit)
                    return answer.read(chunks, patience=self._patience, clock=self._clock, emit=relay, lose=lose)
            except TryFailed as failed:
                pause = self._pause(failed.failure, number=number)
                if pause is None:
                    raise self._explained(failed.failure, tries=number) from self._harmless(failed.__cause__)
                number = pause.number
            except ModelError as error:
                raise self._told(error) from self._harmless(error.__cause__)
            emit(replace(pause, withdrawn=bool(shown)))
            self._clock.sleep(pause.wait_s)

    def _lose(self, usage: Usage, *, emit: Emit) -> None:
        """Tell what was paid for and did not become a turn, if anything."""
        if usage != Usage():
            emit(prices.lost(self.name, usage))

    def _pause(self, failure: Failure, *, number: int) -> RetryScheduled | None:
        """What is announced after the ``number``-th try failed; nothing if it was the last one.

        A long pause, as only a server asks for it, is made only if a person says so.
        """
        limit = self._patience.tries
        wait_s = failures.wait_s(failure, number, chance=random.random()) if number < limit else None
        if wait_s is None:
            return None
        if wait_s > failures.LONGEST_WAIT_S:
            if self._may_wait is None or wait_s > failures.LONGEST_ASKED_S:
                return None
            if not self._may_wait(failure.summary, wait_s):
                return None
        return RetryScheduled(why=failure.summary, wait_s=wait_s, number=number + 1, limit=limit)

    def _explained(self, failure: Failure, *, tries: int) -> ModelError:
        cleaned = replace(failure, message=self._shown(failure.message).rstrip("."))
        return failures.explain(cleaned, model=self.name, url=self._endpoint.url, tries=tries)

    def _told(self, error: ModelError) -> ModelError:
        return ModelError(self._shown(error.happened), hint=error.hint)

    def _shown(self, text: str) -> str:
        """What a server said, on one line, without the key; it is cut last, as half a key is not found."""
        return " ".join(self._key.hidden_in(text).split())[:_SHOWN_CHARACTERS]

    def _harmless(self, error: BaseException | None) -> BaseException | None:
        """``error`` unless it, or what led to it, repeats the key: its traceback may be printed."""
        cause = error
        while cause is not None:
            if self._key.is_in(f"{cause} {cause!r}"):
                return None
            cause = cause.__cause__ or cause.__context__
        return error
