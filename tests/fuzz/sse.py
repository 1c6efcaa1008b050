"""Streams of the Messages API, cut and bent: a whole turn or one of our two errors, and never half a turn.

``python -c "from tests.fuzz import sse; print(sse.run(10_000, 7))"``
"""

import json
from dataclasses import dataclass
from random import Random

from cdd_agent.clock import SystemClock
from cdd_agent.errors import ModelError
from cdd_agent.events import Event, TextDelta, ThinkingDelta
from cdd_agent.model import conversation, recording
from cdd_agent.model.conversation import JSON, AssistantMessage, Turn, repair_calls
from cdd_agent.model.stream import AnswerLimits, RequestFailed, read_answer
from tests.fakes.messages_server import Fault, event_bytes, turn_events
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import pick, text, value
from tests.fuzz.trial import Broken, Target

LIMITS = AnswerLimits(answer_bytes=200_000)

_RECORDING = r"""
- content: ["Hello, how are you?\n\nFine — 你好 🙂."]
  usage: {input_tokens: 9, output_tokens: 4, cache_read_tokens: 100}
- content:
  - Reading.
  - {type: tool_use, name: Read, input: {file_path: tests/test_ä.py, lines: [1, 2.5, null, true]}}
  - {type: tool_use, name: Grep, input: {pattern: 'a\"b\\c', glob: '*'}}
- content:
  - {type: tool_use, name: Write, input: {file_path: a.py, content: "def f():\n    return '\\n'\n"}}
- content: ["It goes on and "]
  stop_reason: max_tokens
- content: []
"""

_BLOCKS: tuple[dict[str, JSON], ...] = (
    {"type": "thinking", "thinking": "Let me see: é 1.0.", "signature": "c2ln+/=="},
    {"type": "redacted_thinking", "data": "ZW5j"},
    {"type": "hologram", "beam": {"power": 1.0, "on": None}},
)


def _recorded() -> tuple[tuple[bytes, ...], ...]:
    """Five whole streams, each as its events."""
    turns = recording.parse_recording(_RECORDING, source="fuzz")
    faults = (Fault(pings=2), Fault(extra_blocks=_BLOCKS), Fault(), Fault(extra_blocks=_BLOCKS[:1]), Fault())
    return tuple(tuple(map(event_bytes, turn_events(turn, fault))) for turn, fault in zip(turns, faults, strict=True))


STREAMS = _recorded()

_STOPS = ("end_turn", "tool_use", "max_tokens", "refusal", "pause_turn", "stop_sequence", "sunset", "")
_WORDS = ("text", "tool_use", "index", "delta", "content_block", "type", "partial_json", "stop_reason", "error", "ping")
_ODD = (
    *(
        b"\n",
        b"\r\n",
        b"\n\n",
        b"data:",
        b"data: {}",
        b"event: x",
        b":",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"}",
        b'"',
    ),
    *(b"[[[[", b'{"a":' * 70, b"NaN", b"1e999", b"-0", b"\\ud800", b"\\u0000", b"null", b"9" * 500, b"\xe2\x80\xa8"),
)


@dataclass(frozen=True, slots=True)
class Given:
    """One stream as it arrives."""

    chunks: tuple[bytes, ...]


def make(random: Random) -> Given:
    """One of the streams with a few things wrong in it, cut into pieces anywhere."""
    events = list(random.choice(STREAMS))
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 6))):
        _bend_events(events, random)
    data = bytearray(b"".join(events))
    for _ in range(random.choice((0, 0, 0, 1, 2, 5))):
        _bend_bytes(data, random)
    return Given(tuple(_cut(bytes(data), random)))


def _bend_events(events: list[bytes], random: Random) -> None:
    """Drop, repeat, move, mix in or rewrite one event."""
    at = random.randrange(len(events) + 1)
    other = random.choice(random.choice(STREAMS))
    match random.randrange(7):
        case 0:
            del events[at : at + random.randint(1, 3)]
        case 1:
            events.insert(at, other)
        case 2 if events:
            events.insert(at, events[random.randrange(len(events))])
        case 3 if events:
            events.insert(at, events.pop(random.randrange(len(events))))
        case 4:
            del events[at:]
        case 5:
            kind = pick(random, ("overloaded_error", "api_error", "odd", ""))
            usual: JSON = {"type": kind, "message": text(random)}
            error = value(random) if random.random() < 0.3 else usual
            events.insert(at, _event({"type": "error", "error": error}))
        case _ if events:
            number = random.randrange(len(events))
            events[number] = _rewritten(events[number], random)
        case _:
            pass


def _rewritten(event: bytes, random: Random) -> bytes:
    """The event with one of its values replaced, somewhere."""
    usable = len(event) < 4000 and event.endswith(b"}\n\n")
    body = (json.loads(event.partition(b"data: ")[2]) if usable else {}) or {"type": "ping"}
    holder = body
    while True:
        key = random.choice(list(holder))
        if not isinstance(holder[key], dict) or not holder[key] or random.random() < 0.2:
            break
        holder = holder[key]
    match random.randrange(5):
        case 0:
            del holder[key]
        case 1:
            holder[pick(random, _WORDS)] = value(random)
        case 2:
            holder[key] = random.choice((-1, 0, 1, 2, 99, True, None, "", [], {}, 1.5))
        case 3:
            holder[key] = pick(random, _STOPS)
        case _:
            holder[key] = text(random)
    return _event(body)


def _event(body: JSON) -> bytes:
    """One event with ``body``, in which a number may be too long for Python to write it."""
    try:
        written = json.dumps(body)
    except ValueError:
        written = '{"type": "ping", "number": ' + "9" * 5000 + "}"
    return b"event: x\ndata: " + written.encode() + b"\n\n"


def _bend_bytes(data: bytearray, random: Random) -> None:
    """Change, add or drop some bytes."""
    at = random.randrange(len(data) + 1)
    match random.randrange(5):
        case 0 if at < len(data):
            data[at] ^= 1 << random.randrange(8)
        case 1:
            data[at:at] = random.choice(_ODD)
        case 2:
            del data[at : at + random.choice((1, 2, 10, 100))]
        case 3:
            del data[at:]
        case _:
            data[at:at] = data[at : at + random.choice((1, 10, 100))] * random.choice((1, 2, 50))


def _cut(data: bytes, random: Random) -> list[bytes]:
    """The same bytes in pieces of one length."""
    size = random.choice((1, 7, 64, 1000, len(data) + 1))
    return [data[start : start + size] for start in range(0, len(data), size)]


def read(given: Given) -> None:
    """Read the stream, and check the turn if there is one: raises what the reading raises, and ``Broken``."""
    seen: list[Event] = []
    turn = read_answer(given.chunks, limits=LIMITS, clock=SystemClock(), emit=seen.append, lose=lambda _: None)
    if not all(isinstance(event, TextDelta | ThinkingDelta) for event in seen):
        raise Broken("something else than words was shown")
    if b"message_stop" not in b"".join(given.chunks):
        raise Broken("a turn without its end was taken")
    check(repair_calls(turn, ()))


def check(turn: Turn) -> None:
    """Raise ``Broken`` if ``turn`` could run what it must not, or could not be sent back."""
    if bool(turn.calls) != (turn.stop_reason == "tool_use"):
        raise Broken(f"{len(turn.calls)} calls with {turn.stop_reason}")
    ids = [call.id for call in turn.calls]
    if len(set(ids)) != len(ids):
        raise Broken("two calls with one id")
    if any(call.defect == "" for call in turn.calls):
        raise Broken("a call is not run and nothing says why")
    messages = conversation.encode_messages([AssistantMessage(content=turn.content)])
    json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()


TARGET = Target(make=make, read=read, allowed=(ModelError, RequestFailed), corpus=tuple(map(Given, STREAMS)))


def run(count: int, seed: int) -> Figures:
    """Try ``count`` streams."""
    return TARGET.run(count, seed)
