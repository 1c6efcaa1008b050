"""One answer read from its bytes, as long as it keeps within what an answer may take."""

from collections.abc import Callable, Iterable, Iterator

from cdd_agent.clock import Clock
from cdd_agent.events import Emit
from cdd_agent.model.api import failure as failures
from cdd_agent.model.api import sse
from cdd_agent.model.api.failure import Failure, TryFailed
from cdd_agent.model.api.patience import Patience
from cdd_agent.model.api.stream import StreamedTurn
from cdd_agent.model.conversation import JSON, Turn, Usage


def read(
    chunks: Iterable[bytes], *, patience: Patience, clock: Clock, emit: Emit, lose: Callable[[Usage], None]
) -> Turn:
    """The turn in ``chunks``; what can be shown of it is emitted as it comes.

    Raises ``TryFailed`` for a stream that broke off, went wrong or took too long or too much, and ``ModelError`` for
    a whole one that cannot be used; ``lose`` hears then, and if the user stops it, what the server had counted.
    Nothing is read beyond the event that ends the turn.
    """
    arrived = StreamedTurn()
    try:
        for event in _heard(_within(chunks, patience=patience, clock=clock), patience=patience, clock=clock):
            seen = arrived.feed(event)
            if seen is not None:
                emit(seen)
            if arrived.is_over:
                return arrived.turn()
        raise TryFailed(Failure(cause="cut", message="the stream ended without message_stop"))
    except BaseException:
        lose(arrived.usage)
        raise


def _within(chunks: Iterable[bytes], *, patience: Patience, clock: Clock) -> Iterator[bytes]:
    """The chunks, as long as neither their size nor their time is used up."""
    began_s, size = clock.monotonic(), 0
    for chunk in chunks:
        size += len(chunk)
        if size > patience.answer_bytes:
            raise TryFailed(Failure(cause="too_large", message=f"more than {patience.answer_bytes:,} bytes"))
        if clock.monotonic() - began_s > patience.total_s:
            raise TryFailed(Failure(cause="too_slow", message=f"{patience.total_s:g} s are over"))
        yield chunk


def _heard(chunks: Iterable[bytes], *, patience: Patience, clock: Clock) -> Iterator[dict[str, JSON]]:
    """The events without pings and errors; an error ends them, and so does a long time of nothing but pings."""
    heard_s = clock.monotonic()
    events = sse.events(chunks)
    while True:
        try:
            event = next(events)
        except StopIteration:
            return
        except ValueError as error:
            raise TryFailed(Failure(cause="garbled", message=str(error))) from error
        match event:
            case {"type": "ping"}:
                if clock.monotonic() - heard_s > patience.pings_s:
                    silence = f"nothing but pings for {patience.pings_s:g} s"
                    raise TryFailed(Failure(cause="timeout", message=silence))
                continue
            case {"type": "error", "error": {"type": str(kind), "message": str(message)}}:
                raise TryFailed(Failure(cause="status", status=failures.status_of(kind), message=message))
            case {"type": "error"}:
                raise TryFailed(Failure(cause="status", status=500, message="an error that says nothing"))
            case _:
                yield event
        heard_s = clock.monotonic()
