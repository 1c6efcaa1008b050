"""A service that fails, lies or stalls, a repository that would redirect it, and a key that nobody else gets to see."""

import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cdd_agent.agent.loop import AgentRun, run_agent
from cdd_agent.agent.tools import ToolOutput, define_tool
from cdd_agent.clock import SystemClock
from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.errors import CddError, ModelError, RecordingError
from cdd_agent.events import Event, Notice, RetryScheduled, TextDelta
from cdd_agent.model import recording
from cdd_agent.model.anthropic import AnthropicModel, Endpoint
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import JSON, Conversation, Request, ToolResult, Turn
from cdd_agent.model.recording import PrivateData, RecordedTurn, RecordingModel
from cdd_agent.model.stream import AnswerLimits, RequestFailed
from cdd_agent.untrusted.keys import Secret
from tests.fakes.cases import soak_after
from tests.fakes.messages_server import STREAM_HEAD, Fault, MessagesServer, event_bytes, turn_events
from tests.fakes.program import KEY, WATCH
from tests.fuzz import sse

ROOT = Path(__file__).parents[2]
WORDS = "- content: ['Hello, how are you?']\n"
CALL = "- content: ['Reading.', {type: tool_use, name: Read, input: {file_path: a.py}}]\n"
QUICK = AnswerLimits(idle_s=0.8, total_s=4.0, tries=2, busy_s=0.0)
IMPATIENT = replace(QUICK, idle_s=0.4)
SHORT = replace(QUICK, total_s=1.5)


class Unhurried(SystemClock):
    """The real time, but for pauses, which are instant."""

    def sleep(self, seconds: float) -> None:
        """Go on at once."""


def turns(text: str) -> tuple[RecordedTurn, ...]:
    return recording.parse_recording(text, source="x")


def sent(text: str, **fault: str) -> list[dict[str, JSON]]:
    """The events of the one turn in ``text``."""
    return list(turn_events(turns(text)[0], Fault(**fault)))  # type: ignore[arg-type]


def stream(events: Iterable[dict[str, JSON]]) -> bytes:
    return STREAM_HEAD + b"".join(map(event_bytes, events))


def response(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in (*headers, f"content-length: {len(body)}", "connection: close"))
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def started(*more: dict[str, JSON]) -> bytes:
    """A stream of a turn that has begun, with ``more`` instead of its blocks, and its proper end."""
    begin, _, *_, ending, stop = sent(WORDS)
    return stream([begin, *more, ending, stop])


START: dict[str, JSON] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
DELTA: dict[str, JSON] = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi."}}
HALF = stream(sent(WORDS)[:5])


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way in which a service can fail."""

    name: str
    fault: Fault
    said: str
    """What the error says if it goes on failing so; a regular expression."""
    passes: bool = False
    """Whether another try is worth while."""
    limits: AnswerLimits = QUICK


def status(number: int, said: str, *, passes: bool = False) -> Case:
    return Case(name=f"status {number}", fault=Fault(status=number, message="no"), said=said, passes=passes)


def raw(name: str, *parts: bytes | float, said: str, passes: bool = False, limits: AnswerLimits = QUICK) -> Case:
    return Case(name=name, fault=Fault(raw=parts), said=said, passes=passes, limits=limits)


def pause(name: str, value: str) -> Case:
    return Case(
        name=f"retry-after {name}",
        fault=Fault(status=429, headers=(("retry-after", value),)),
        said=r"rate limit .*\(429\) after 2 tries",
        passes=True,
    )


IN_TIME = "did not answer in time after 2 tries"
BROKE_OFF = "broke off before its end after 2 tries"
UNREADABLE = "Could not read the answer"
MALFORMED = "does not follow the Messages API"

CASES = (
    status(400, r"refused the request to claude-x \(400\): no"),
    status(401, r"refused the API key \(401\)"),
    status(402, r"cannot pay \(402\)"),
    status(403, r"may not use claude-x .*\(403\)"),
    status(404, r"knows no model 'claude-x' \(404\)"),
    status(408, r"\(408\) after 2 tries", passes=True),
    status(409, r"\(409\) after 2 tries", passes=True),
    status(413, r"too large .*\(413\)"),
    status(422, r"\(422\)"),
    status(429, r"rate limit .*\(429\) after 2 tries", passes=True),
    status(500, r"server error \(500\) after 2 tries", passes=True),
    status(503, r"\(503\) after 2 tries", passes=True),
    status(504, r"\(504\) after 2 tries", passes=True),
    status(529, r"overloaded \(529\) after 2 tries", passes=True),
    Case(name="502 with a page", fault=Fault(status=502, body="<html>bad"), said=r"\(502\) after 2 tries", passes=True),
    Case(
        name="retry-after a day",
        fault=Fault(status=429, headers=(("retry-after", "86400"),)),
        said="asks to wait 86400 s",
    ),
    pause("negative", "-5"),
    pause("a date gone by", "Sat, 31 Jan 2026 12:00:30 GMT"),
    pause("in words", "soon"),
    pause("of no number", "nan"),
    raw("closed before the headers", said="Could not connect to .* after 2 tries", passes=True),
    Case(
        name="reset before the headers",
        fault=Fault(raw=(), is_reset=True),
        said="Could not connect to .* after 2 tries",
        passes=True,
    ),
    raw("no status line", b"220 smtp ready\r\n\r\n", said="Could not connect to .* after 2 tries", passes=True),
    raw("cut in the middle", HALF, said=BROKE_OFF, passes=True),
    Case(name="reset in the middle", fault=Fault(raw=(HALF,), is_reset=True), said=BROKE_OFF, passes=True),
    Case(name="chunks cut off", fault=Fault(cut_after=5), said=BROKE_OFF, passes=True),
    Case(name="an early, clean end", fault=Fault(without_stop=True), said=BROKE_OFF, passes=True),
    raw("half an event", HALF + b'event: x\ndata: {"type": "mess', said=BROKE_OFF, passes=True),
    raw("no event at all", STREAM_HEAD, said=BROKE_OFF, passes=True),
    Case(name="overloaded in the middle", fault=Fault(error_after=4), said=r"\(529\) after 2 tries", passes=True),
    raw("an error that is a text", HALF + b'data: {"type": "error", "error": "no"}\n\n', said=r"\(500\)", passes=True),
    raw("silence before the headers", 9.0, said=IN_TIME, passes=True, limits=IMPATIENT),
    raw("silence in the middle", HALF, 9.0, said=IN_TIME, passes=True, limits=IMPATIENT),
    raw(
        "nothing but pings",
        *(STREAM_HEAD, *(part for _ in range(70) for part in (event_bytes({"type": "ping"}), 0.05))),
        said=f"{IN_TIME}: nothing but pings for 1.2 s",
        passes=True,
        limits=IMPATIENT,
    ),
    raw(
        "a drip",
        *(STREAM_HEAD, *(part for _ in range(120) for part in (b":", 0.05))),
        said="exceeds the time limit",
        limits=SHORT,
    ),
    raw("52 MB", STREAM_HEAD, *(b"data: " + b"x" * 65_000 for _ in range(800)), said="exceeds the size limit"),
    raw("an event without an end", STREAM_HEAD, b"data: ", *([b"x" * 65_000] * 99), said="exceeds the size limit"),
    raw("no JSON", STREAM_HEAD + b"data: {oops\n\n", said=UNREADABLE),
    raw("a list", STREAM_HEAD + b"data: [1]\n\n", said=UNREADABLE),
    raw("a key twice", STREAM_HEAD + b'data: {"type": "ping", "type": "x"}\n\n', said="occurs twice"),
    raw(
        "a key twice in a delta",
        started(START).partition(b"event: message_delta")[0]
        + b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, '
        + b'"delta": {"type": "text_delta", "text": "a", "text": "b"}}\n\n',
        said="occurs twice",
    ),
    raw("an event of no number", STREAM_HEAD + b'data: {"type": NaN}\n\n', said="not finite"),
    raw("no UTF-8", STREAM_HEAD + b'data: {"type": "\xff"}\n\n', said=UNREADABLE),
    raw("100,000 levels", STREAM_HEAD + b"data: " + b'{"a":' * 100_000 + b"\n\n", said="nested too deeply"),
    raw("a gap in the index", started({**START, "index": 3}), said=MALFORMED),
    raw("a delta before its start", started(DELTA), said=MALFORMED),
    raw("a block that begins twice", started(START, START), said=MALFORMED),
    raw("a block of no type", started({**START, "content_block": {}}), said=MALFORMED),
    raw("a text that is a number", started({**START, "content_block": {"type": "text", "text": 3}}), said=MALFORMED),
    Case(name="an unknown stop reason", fault=Fault(stop_reason="sunset"), said="unknown reason: sunset"),
    Case(name="a refusal", fault=Fault(stop_reason="refusal"), said=r"refused to answer: .*\(cyber\)"),
    Case(name="no room", fault=Fault(stop_reason="model_context_window_exceeded"), said="context window"),
    Case(name="a call that is not there", fault=Fault(stop_reason="tool_use"), said="it calls no tool but ends with"),
    raw(
        "a redirect", response("307 Temporary Redirect", b"", "location: http://127.0.0.1:9/x"), said="does not follow"
    ),
    raw("a redirect to nowhere", response("302 Found"), said=r"\(302\), which cdd does not follow"),
    raw("no content", response("204 No Content"), said="not a stream of events"),
    raw("a page", response("200 OK", b"<html>log in", "content-type: text/html"), said="events but text/html"),
    raw(
        "compressed garbage",
        response("200 OK", b"\x1f\x8bgarbage", "content-type: text/event-stream", "content-encoding: gzip"),
        said="compressed, which was not asked for",
    ),
    raw(
        "an error of compressed garbage",
        response("401 Unauthorized", b"\x1f\x8bgarbage", "content-encoding: gzip"),
        said=r"refused the API key \(401\)",
    ),
    raw(
        "an error that never ends",
        *(b"HTTP/1.1 500 No\r\nconnection: close\r\n\r\n", *([b"<p>no</p>" * 8_000] * 100_000)),
        said=r"\(500\) after 2 tries",
        passes=True,
    ),
    raw(
        "an error that drips",
        *(b"HTTP/1.1 500 No\r\nconnection: close\r\n\r\n", *(part for _ in range(100) for part in (b"n", 0.05))),
        said=r"\(500\) after 2 tries",
        passes=True,
        limits=SHORT,
    ),
    raw("an error of 60,000 levels", response("400 No", b'{"error":' * 60_000), said=r"\(400\)"),
    raw("endless headers", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 60_000, said="Could not connect", passes=True),
)


def asking() -> Request:
    conversation = Conversation("Be brief.")
    conversation.say("go")
    return Request(system=conversation.system, messages=conversation.messages)


def outcome(
    faults: Sequence[Fault], text: str = WORDS, *, limits: AnswerLimits = QUICK
) -> tuple[Turn | ModelError, list[Event], int]:
    """The turn or the error that the real client comes to, what was seen meanwhile, and the number of requests."""
    seen: list[Event] = []
    with MessagesServer(turns(text), faults=faults) as server:
        endpoint = Endpoint(url=server.base_url)
        model = AnthropicModel("claude-x", key=Secret(KEY), clock=Unhurried(), endpoint=endpoint, limits=limits)
        with closing(model):
            try:
                return model.reply(asking(), emit=seen.append), seen, len(server.requests)
            except ModelError as error:
                return error, seen, len(server.requests)


def test_the_table_holds_every_kind_of_fault_once() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert len(CASES) >= 30


@soak_after(5, "case", sorted(CASES, key=lambda case: case not in CASES[2::5]), ids=lambda case: case.name)
def test_every_fault_ends_in_our_one_error_or_in_a_whole_answer(case: Case) -> None:
    """Faults 11 to 22, against the real SDK: no exception but ``ModelError`` gets out, and no half answer."""
    ended, seen, requests = outcome([case.fault] * 2, limits=case.limits)
    assert isinstance(ended, ModelError)
    assert re.search(case.said, str(ended)), str(ended)
    assert ended.hint
    assert requests == (2 if case.passes else 1)
    assert KEY not in f"{ended}{ended.hint}{seen}"
    if case.passes:
        turn, seen, requests = outcome([case.fault], limits=replace(case.limits, tries=4))
        assert isinstance(turn, Turn), turn
        assert turn.text == "Hello, how are you?"
        assert requests >= 2, "more than two only where this machine is slow"
        announced = next(number for number, event in enumerate(seen) if isinstance(event, RetryScheduled))
        retry = seen[announced]
        assert isinstance(retry, RetryScheduled)
        assert retry.withdrawn == any(isinstance(event, TextDelta) for event in seen[:announced])


def test_a_refused_connection_is_tried_again_and_told() -> None:
    with MessagesServer() as server:
        url = server.base_url
    model = AnthropicModel("m", key=Secret(KEY), clock=Unhurried(), endpoint=Endpoint(url=url), limits=QUICK)
    with closing(model), pytest.raises(ModelError, match=f"Could not connect to {url} after 2 tries"):
        model.reply(asking(), emit=lambda _: None)


def test_52_mb_are_cut_off_at_four() -> None:
    """Fault 22: the SDK's own reading takes over a minute for it."""
    began_s = time.monotonic()
    ended, _, _ = outcome([Fault(raw=(STREAM_HEAD, *([b"data: " + b"x" * 65_000 + b"\n"] * 800)))])
    assert "more than 4,000,000 bytes" in str(ended)
    assert time.monotonic() - began_s < 10


def test_a_slow_answer_within_its_time_is_whole() -> None:
    """Fault 19: a drip is fine."""
    data = stream(sent(WORDS))
    pieces = [data[start : start + 40] for start in range(len(STREAM_HEAD), len(data), 40)]
    ended, _, _ = outcome([Fault(raw=(STREAM_HEAD, *(part for piece in pieces for part in (piece, 0.01))))])
    assert isinstance(ended, Turn), ended
    assert ended.text == "Hello, how are you?"


def test_nothing_is_waited_for_once_the_turn_is_over() -> None:
    ended, _, _ = outcome([Fault(raw=(stream(sent(WORDS)), 9.0))])
    assert isinstance(ended, Turn), ended


def test_a_call_that_max_tokens_cut_off_is_no_call() -> None:
    """Row 45, fault 18: an unfinished input is never taken for a finished one."""
    ended, _, _ = outcome([Fault(tool_json='{"file_path": "a.py"', stop_reason="max_tokens")], CALL)
    assert isinstance(ended, Turn)
    assert (ended.calls, ended.stop_reason) == ((), "max_tokens")


def test_a_block_of_an_unknown_kind_goes_back_as_it_came() -> None:
    ended, _, _ = outcome([Fault(extra_blocks=({"type": "hologram", "beam": None},))])
    assert isinstance(ended, Turn)
    assert len(ended.content) == 2


def test_an_answer_of_nothing_is_a_turn_of_nothing() -> None:
    ended, _, _ = outcome([], "- content: []\n")
    assert isinstance(ended, Turn)
    assert ended.content == ()


# Where the request goes.


@soak_after(2, "code", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_takes_neither_the_prompt_nor_the_key_to_another_host(code: str) -> None:
    """Row 48."""
    with MessagesServer(turns(WORDS)) as second:
        ended, _, requests = outcome([Fault(raw=(response(code, b"", f"location: {second.base_url}/v1/messages"),))])
        assert isinstance(ended, ModelError)
        assert f"it points to {second.base_url}/v1/messages" in str(ended)
        assert "ANTHROPIC_BASE_URL" in ended.hint
    assert requests == 1
    assert second.requests == []


@pytest.mark.parametrize(
    "setting",
    [
        "base_url: http://127.0.0.1:9",
        "ANTHROPIC_BASE_URL: http://127.0.0.1:9",
        "headers: {x: y}",
        "proxy: http://127.0.0.1:9",
        "key_helper: cat /etc/passwd",
        "env: {ANTHROPIC_BASE_URL: x}",
        "model_idle_s: 1",
        "answer_bytes: 1",
    ],
)
def test_a_repository_names_neither_address_nor_key_nor_limit(setting: str, tmp_path: Path) -> None:
    """Row 14: even settings that the user has approved cannot."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".cdd").mkdir()
    (project / ".cdd/config.yaml").write_text(f"{setting}\n", encoding="utf-8")
    options = Options(project=project, key=Secret(KEY), ask=lambda offer, changed: True)
    environment = {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state")}
    composition = Composition(options, emit=lambda _: None, environment=environment)
    with pytest.raises(CddError, match="unknown setting"):
        _ = composition.model


def test_a_file_of_variables_in_the_repository_moves_no_address(tmp_path: Path) -> None:
    """Row 14: the address comes from the environment, which no file of the project gets into."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    for name in (".env", ".envrc", ".cdd.env"):
        (project / name).write_text("ANTHROPIC_BASE_URL=http://127.0.0.1:9\nHTTPS_PROXY=http://127.0.0.1:9\n")
    with MessagesServer(turns(WORDS)) as server:
        environment = {"HOME": str(tmp_path / "home"), "ANTHROPIC_BASE_URL": server.base_url}
        options = Options(project=project, key=Secret(KEY))
        model = Composition(options, emit=lambda _: None, environment=environment).model
        assert model.reply(asking(), emit=lambda _: None).text
    assert len(server.requests) == 1


def test_proxies_passwords_and_headers_of_the_machine_are_not_looked_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login ann password secret\n", encoding="ascii")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-ant-another-one-0123")
    with MessagesServer(turns(WORDS)) as server:
        model = AnthropicModel("m", key=Secret(KEY), clock=Unhurried(), endpoint=Endpoint(url=server.base_url))
        with closing(model):
            assert model.reply(asking(), emit=lambda _: None).text
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["accept-encoding"] == "identity"


def test_a_proxy_of_the_user_is_used_and_a_server_without_encryption_is_named(tmp_path: Path) -> None:
    (tmp_path / "project/.git").mkdir(parents=True)
    seen: list[Event] = []
    with MessagesServer() as proxy:
        environment = {
            "HOME": str(tmp_path / "home"),
            "ANTHROPIC_BASE_URL": "http://ann:secret@models.invalid",
            "HTTP_PROXY": proxy.base_url,
        }
        options = Options(project=tmp_path / "project", key=Secret(KEY))
        model = Composition(options, emit=seen.append, environment=environment).model
        with pytest.raises(ModelError, match=r"no such endpoint: http://models\.invalid/v1/messages"):
            model.reply(asking(), emit=lambda _: None)
    assert len(proxy.requests) == 1
    assert seen == [Notice(text="Key and code are sent unencrypted to http://models.invalid.")]


# What the model is told of calls that cannot be run.


BAD_CALLS = {
    "an unknown tool": ("Reed", '{"file_path": "a.py"}', "There is no tool Reed. Did you mean Read?"),
    "a name that no tool can have": ("Read<|x|>", "{}", "There is no tool Read"),
    "a wrong type": ("Read", '{"file_path": ["a.py"]}', "Expected `str`, got `array` - at `$.file_path`"),
    "a key too many": ("Read", '{"file_path": "a.py", "cwd": "/"}', "Object has no field `cwd`"),
    "a key too few": ("Read", "{}", "missing required field `file_path`"),
    "a key twice": ("Read", '{"file_path": "a.py", "file_path": "b.py"}', "occurs twice"),
    "no JSON": ("Read", '{"file_path": a.py}', "not one complete JSON object"),
    "half of it": ("Read", '{"file_path": "a.', "not one complete JSON object"),
    "more behind it": ("Read", '{"file_path": "a.py"} {}', "not one complete JSON object"),
    "no number": ("Read", '{"file_path": "a.py", "offset": NaN}', "not one complete JSON object"),
}


def call_events(*calls: tuple[str, str, str]) -> bytes:
    """A stream with ``calls``: an id, a name and an input each."""
    begin, *_, ending, stop = sent(CALL)
    blocks: list[dict[str, JSON]] = []
    for index, (call_id, name, written) in enumerate(calls):
        block: dict[str, JSON] = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        delta: dict[str, JSON] = {"type": "input_json_delta", "partial_json": written}
        blocks.append({"type": "content_block_start", "index": index, "content_block": block})
        blocks.append({"type": "content_block_delta", "index": index, "delta": delta})
    return stream([begin, *blocks, ending, stop])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadInput:
    """Input of the tool under test."""

    file_path: str
    offset: int = 1


def agent_run(*streams: bytes) -> tuple[AgentRun, list[str], list[ToolResult]]:
    """How a run over the real client ends, the files it read, and what its calls were answered."""
    read: list[str] = []

    def run(inputs: ReadInput) -> ToolOutput:
        read.append(inputs.file_path)
        return ToolOutput(text="text")

    tool = define_tool("Read", ReadInput, run=run, subject=lambda inputs: inputs.file_path)
    conversation = Conversation("Be brief.")
    conversation.say("go")
    with MessagesServer(turns(WORDS), faults=[Fault(raw=(data,)) for data in streams]) as server:
        model = AnthropicModel("m", key=Secret(KEY), clock=Unhurried(), endpoint=Endpoint(url=server.base_url))
        with closing(model):
            ended = run_agent(conversation, [tool], model=model, budget=Budget(), emit=lambda _: None, agent="x")
    blocks = [block for message in conversation.messages for block in message.content]
    return ended, read, [block for block in blocks if isinstance(block, ToolResult)]


@soak_after(4, ("name", "written", "said"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_bad_call_is_answered_and_the_model_goes_on(name: str, written: str, said: str) -> None:
    """Fault 20; the last request is one that the API takes."""
    ended, read, (result,) = agent_run(call_events(("call_0", name, written)))
    assert (ended.end, ended.text) == ("answered", "Hello, how are you?")
    assert result.is_error
    assert said in result.content
    assert read == []


def test_of_two_calls_with_one_id_only_the_first_is_run() -> None:
    good = '{"file_path": "a.py"}'
    ended, read, results = agent_run(call_events(("x", "Read", good), ("x", "Read", good), ("y", "Read", good)))
    assert ended.end == "answered"
    assert read == ["a.py", "a.py"]
    assert [(result.tool_use_id, result.is_error) for result in results] == [("x", False), ("x-2", True), ("y", False)]


def test_an_id_that_a_small_server_uses_again_is_no_failure() -> None:
    again = call_events(("call_0", "Read", '{"file_path": "a.py"}'))
    ended, read, results = agent_run(again, again)
    assert (ended.end, read) == ("answered", ["a.py", "a.py"])
    assert [result.tool_use_id for result in results] == ["call_0", "call_0-2"]


def test_three_turns_of_bad_calls_are_the_last() -> None:
    ended, read, results = agent_run(*(call_events((f"c{n}", "Reed", "{}"), (f"d{n}", "Read", "{")) for n in range(4)))
    assert (ended.end, ended.turns, ended.calls) == ("stuck", 3, 6)
    assert all(result.is_error for result in results)
    assert read == []


# The key.


@soak_after(1, "fault", [Fault(status=401, message=f"bad key {KEY}"), Fault(status=401), Fault(raw=(HALF,))])
def test_the_key_is_in_no_frame_of_ours_or_of_the_sdk_when_something_fails(fault: Fault) -> None:
    """A page of errors that shows local variables would show it; only the HTTP library holds it, while it sends."""
    with MessagesServer((), faults=[fault] * 4) as server:
        model = AnthropicModel("m", key=Secret(KEY), clock=Unhurried(), endpoint=Endpoint(url=server.base_url))
        with closing(model), pytest.raises(ModelError) as caught:
            model.reply(asking(), emit=lambda _: None)
    found, frames = [], 0
    error: BaseException | None = caught.value
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename != __file__:
                frames += 1
                found += [name for name, value in frame.f_locals.items() if KEY in deep(value)]
        error = error.__cause__
    assert found == []
    assert frames >= 1
    assert KEY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", ["run.yaml", "run.json"])
def test_a_recording_holds_what_was_said_and_nothing_of_how_it_was_sent(name: str, tmp_path: Path) -> None:
    """Row 47: neither headers nor address nor key are ever within its reach."""
    with MessagesServer(turns(CALL), faults=[Fault(status=500, message=KEY)]) as server:
        key, endpoint = Secret(KEY), Endpoint(url=server.base_url)
        inner = AnthropicModel("m", key=key, clock=Unhurried(), endpoint=endpoint)
        model = RecordingModel(inner, tmp_path / name, private=PrivateData(key=key))
        with closing(inner):
            model.reply(asking(), emit=lambda _: None)
    written = (tmp_path / name).read_text(encoding="utf-8")
    assert recording.load_recording(tmp_path / name)[0].content == turns(CALL)[0].content
    for word in ("authorization", "bearer", "127.0.0.1", "http", "anthropic", "canary", "user-agent"):
        assert word not in written.lower()


def test_a_service_that_says_the_key_is_not_written_down(tmp_path: Path) -> None:
    """Row 47: of whatever shape the key is."""
    (tmp_path / "project/.git").mkdir(parents=True)
    key = "proxy-key-0123456789abcdef"
    with MessagesServer(turns(f"- content: ['your key is {key}']\n")) as server:
        options = Options(project=tmp_path / "project", key=Secret(key), record=tmp_path / "run.yaml")
        environment = {"HOME": str(tmp_path / "home"), "ANTHROPIC_BASE_URL": server.base_url}
        model = Composition(options, emit=lambda _: None, environment=environment).model
        with pytest.raises(RecordingError, match="it contains the API key") as caught:
            model.reply(asking(), emit=lambda _: None)
    assert key not in str(caught.value)
    assert not (tmp_path / "run.yaml").exists()


def deep(value: object) -> str:
    """What a page of errors could show of ``value``."""
    attributes = getattr(value, "__dict__", {})
    inner = {name: repr(item) for name, item in attributes.items()}
    headers = getattr(value, "headers", None)
    return f"{value!r} {inner} {dict(headers) if headers is not None else ''}"


def test_the_watch_over_a_replay_sees_what_it_looks_for(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCH, encoding="ascii")
    (tmp_path / "anthropic.py").touch()  # to import the real one takes two seconds
    code = (
        "import socket\ntry:\n socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError:\n pass\nimport anthropic"
    )
    environment = {"WATCHED": str(tmp_path / "log"), "PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", code, "cdd_agent"], env=environment, check=True)
    seen = (tmp_path / "log").read_text(encoding="utf-8")
    assert "socket.connect" in seen
    assert "import ('anthropic'" in seen


# Streams that nobody thought of.


def test_bent_streams_end_in_a_whole_turn_or_in_our_errors() -> None:
    """Row 46, faults 14 to 17; ten thousand and more in the soak."""
    figures = sse.run(500, seed=20261122)
    assert (figures.tried, figures.bad) == (500, 0), figures.example
    assert figures.slowest_s < 1


def test_a_stream_cut_anywhere_is_never_taken_for_a_whole_one() -> None:
    data = b"".join(sse.STREAMS[1])
    for cut in range(0, len(data), 23):
        with pytest.raises(RequestFailed, match="broke off"):
            sse.read(sse.Given((data[:cut],)))


def test_the_streams_themselves_are_whole() -> None:
    for events in sse.STREAMS:
        sse.read(sse.Given(events))
