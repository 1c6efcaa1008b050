import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event as Signal
from threading import Thread, Timer

import pytest
from msgspec import structs

from cdd_agent.clock import SystemClock
from cdd_agent.errors import ExitCode, ModelError, UsageError
from cdd_agent.events import AnswerLost, Event, RetryScheduled, TextDelta, ThinkingDelta
from cdd_agent.model import recording
from cdd_agent.model.anthropic import API_URL, AnthropicModel, Connection, Deadline, Endpoint, MayWait, is_loopback
from cdd_agent.model.conversation import JSON, Conversation, Model, Opaque, Request, Text, ToolResult, ToolSpec, Turn
from cdd_agent.model.recording import ReplayModel
from cdd_agent.model.stream import AnswerLimits, Cause, RequestFailed
from cdd_agent.untrusted.keys import Secret
from cdd_agent.work.state import Usage
from tests.fakes.cases import soak_after
from tests.fakes.clock import FakeClock
from tests.fakes.messages_server import STREAM_HEAD, Fault, MessagesServer

ROOT = Path(__file__).parents[3]
KEY = "sk-ant-canary-0123456789"
HI = "- content: ['Hello, how are you?']\n"
READ = "- content: ['Reading.', {type: tool_use, name: Read, input: {file_path: tests/test_ä.py, lines: [1, 2.5]}}]\n"

THOUGHT: dict[str, JSON] = {"type": "thinking", "thinking": "Let me see: é 1.0 \u2028.", "signature": "c2ln+/=="}
REDACTED: dict[str, JSON] = {"type": "redacted_thinking", "data": "ZW5j"}
STRANGE: dict[str, JSON] = {"type": "hologram", "beam": {"power": 1.0, "on": None, "z": [1, "x"], "a": 10**17}}


def modelled(
    url: str, *, clock: FakeClock | None = None, limits: AnswerLimits | None = None, may_wait: MayWait | None = None
) -> AnthropicModel:
    return AnthropicModel(
        "claude-x",
        key=Secret(KEY),
        clock=clock or FakeClock(),
        endpoint=Endpoint(url=url),
        limits=limits,
        may_wait=may_wait,
    )


@contextmanager
def answering(
    turns: str,
    *,
    faults: Iterable[Fault | None] = (),
    clock: FakeClock | None = None,
    limits: AnswerLimits | None = None,
    may_wait: MayWait | None = None,
) -> Iterator[tuple[MessagesServer, AnthropicModel]]:
    with (
        MessagesServer(recording.parse_recording(turns, source="x"), faults=faults) as server,
        closing(modelled(server.base_url, clock=clock, limits=limits, may_wait=may_wait)) as model,
    ):
        yield server, model


def about(pauses: Iterable[float], *wanted: float) -> bool:
    """Whether the pauses are those that are wanted, give or take the quarter that chance adds or takes."""
    return [round(pause / want) for pause, want in zip(pauses, wanted, strict=True)] == [1] * len(wanted)


def asking(text: str = "go") -> Request:
    conversation = Conversation("Be brief.\nattempt 1")
    conversation.say(text)
    return Request(system=conversation.system, messages=conversation.messages)


def outcome(turns: str, *faults: Fault | None, clock: FakeClock | None = None) -> tuple[Turn, list[Event]]:
    seen: list[Event] = []
    with answering(turns, faults=faults, clock=clock) as (_, model):
        return model.reply(asking(), emit=seen.append), seen


def error_of(turns: str, *faults: Fault | None, clock: FakeClock | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        outcome(turns, *faults, clock=clock)
    printed = "".join(traceback.format_exception(caught.value))
    assert KEY not in printed + caught.value.hint + repr(caught.value.args)
    assert caught.value.hint
    return caught.value


def texts(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_a_turn_is_streamed_and_counted() -> None:
    turn, seen = outcome("- content: ['Hello, how are you?']\n  usage: {input_tokens: 9, output_tokens: 4}\n")
    assert turn == Turn(
        content=(Text(text="Hello, how are you?"),),
        stop_reason="end_turn",
        usage=Usage(input_tokens=9, output_tokens=4),
    )
    assert len(seen) > 2
    assert texts(seen) == turn.text


def test_the_real_client_and_the_replay_give_the_same_turns() -> None:
    turns = recording.parse_recording(READ + HI, source="x")

    def played(model: Model) -> list[Turn]:
        conversation = Conversation("Be brief.")
        conversation.say("go")
        heard = []
        for _ in turns:
            turn = model.reply(Request(system="Be brief.", messages=conversation.messages), emit=lambda event: None)
            heard.append(turn)
            conversation.hear(turn)
            conversation.answer(ToolResult(tool_use_id=call.id, content="ok") for call in turn.calls)
        return heard

    with answering(READ + HI) as (_, model):
        assert played(model) == played(ReplayModel(turns))


def test_a_request_carries_the_key_the_tools_and_the_cache_marks() -> None:
    tool = ToolSpec(name="Read", description="Reads.", input_schema={"type": "object", "properties": {}})
    with answering(HI) as (server, model):
        request = asking()
        model.reply(Request(system=request.system, messages=request.messages, tools=(tool,)), emit=lambda event: None)
    (seen,) = server.requests
    mark = {"cache_control": {"type": "ephemeral"}}
    assert seen.body["system"] == [{"type": "text", "text": "Be brief.\nattempt 1", **mark}]
    assert seen.body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "go", **mark}]}]
    assert seen.body["tools"] == [{"name": "Read", "description": "Reads.", "input_schema": dict(tool.input_schema)}]
    assert seen.body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert seen.body["model"] == "claude-x"
    assert not {"temperature", "top_p", "tool_choice"} & set(seen.body)
    assert seen.headers["authorization"] == f"Bearer {KEY}"


def test_thinking_is_shown_and_goes_back_unchanged() -> None:
    blocks = (THOUGHT, REDACTED, STRANGE)
    seen: list[Event] = []
    with answering(READ + HI, faults=[Fault(extra_blocks=blocks)]) as (server, model):
        conversation = Conversation("s")
        conversation.say("go")
        turn = model.reply(Request(system="s", messages=conversation.messages), emit=seen.append)
        conversation.hear(turn)
        conversation.answer([ToolResult(tool_use_id=turn.calls[0].id, content="text of the file")])
        model.reply(Request(system="s", messages=conversation.messages), emit=seen.append)
    assert turn.content[:3] == tuple(Opaque(wire=block) for block in blocks)
    assert "".join(event.text for event in seen if isinstance(event, ThinkingDelta)) == THOUGHT["thinking"]
    answer = server.requests[1].body["messages"]
    assert isinstance(answer, list)
    assert isinstance(answer[1], dict)
    content = answer[1]["content"]
    assert isinstance(content, list)
    assert [repr(block) for block in content[:3]] == [repr(block) for block in blocks]


def test_all_parallel_calls_are_heard_and_answered_in_one_message() -> None:
    calls = "{type: tool_use, name: Read, input: {file_path: a}}, {type: tool_use, name: Glob, input: {pattern: '*'}}"
    with answering(f"- content: [{calls}]\n{HI}") as (_, model):
        conversation = Conversation("s")
        conversation.say("go")
        turn = model.reply(Request(system="s", messages=conversation.messages), emit=lambda event: None)
        assert [(call.name, call.input) for call in turn.calls] == [
            ("Read", {"file_path": "a"}),
            ("Glob", {"pattern": "*"}),
        ]
        conversation.hear(turn)
        conversation.answer(ToolResult(tool_use_id=call.id, content="ok") for call in turn.calls)
        assert model.reply(Request(system="s", messages=conversation.messages), emit=lambda event: None).text


def test_a_forgotten_tool_result_is_a_refused_request() -> None:
    with answering(READ + HI) as (_, model):
        conversation = Conversation("s")
        conversation.say("go")
        conversation.hear(model.reply(Request(system="s", messages=conversation.messages), emit=lambda event: None))
        conversation.say("never mind")
        with pytest.raises(ModelError, match=r"refused the request to claude-x \(400\).*tool_result"):
            model.reply(Request(system="s", messages=conversation.messages), emit=lambda event: None)


@soak_after(2, "status", [408, 409, 500, 503])
def test_a_passing_failure_is_tried_again_after_one_two_and_four_seconds(status: int) -> None:
    clock = FakeClock()
    turn, seen = outcome(HI, *[Fault(status=status)] * 3, clock=clock)
    assert turn.text == "Hello, how are you?"
    assert about(clock.slept, 1, 2, 4)
    scheduled = [event for event in seen if isinstance(event, RetryScheduled)]
    assert [(event.number, event.limit) for event in scheduled] == [(2, 4), (3, 4), (4, 4)]
    assert [event.wait_s for event in scheduled] == clock.slept
    assert not any(event.withdrawn for event in scheduled)
    assert str(status) in scheduled[0].why


def test_the_failure_after_three_more_tries_is_the_last() -> None:
    clock = FakeClock()
    error = error_of(HI, *[Fault(status=500, message="Broken")] * 4, clock=clock)
    assert "server error (500) after 4 tries" in str(error)
    assert about(clock.slept, 1, 2, 4)
    assert error.exit_code == ExitCode.ENVIRONMENT


@soak_after(1, "status", [429, 529])
def test_a_busy_service_is_given_minutes(status: int) -> None:
    clock = FakeClock()
    turn, seen = outcome(HI, *[Fault(status=status)] * 7, clock=clock)
    assert turn.text == "Hello, how are you?"
    assert [event.limit for event in seen if isinstance(event, RetryScheduled)] == [0] * 7
    assert 80 < sum(clock.slept) < 160
    assert max(clock.slept) <= 60


@pytest.mark.slow
def test_the_time_for_a_busy_service_ends_and_can_be_set() -> None:
    clock = FakeClock()
    assert "overloaded (529) after" in str(error_of(HI, *[Fault(status=529)] * 20, clock=clock))
    assert 240 <= sum(clock.slept) <= 300
    clock, limits = FakeClock(), AnswerLimits(busy_s=0)
    with (
        answering(HI, faults=[Fault(status=529)] * 4, clock=clock, limits=limits) as (_, model),
        pytest.raises(ModelError, match="after 4 tries"),
    ):
        model.reply(asking(), emit=lambda event: None)


def test_the_servers_own_pause_is_kept() -> None:
    clock = FakeClock()
    faults = [Fault(status=429, headers=(("retry-after", "17"),)), Fault(status=429, headers=(("retry-after", "60"),))]
    outcome(HI, *faults, clock=clock)
    assert clock.slept == [17.0, 60.0]


def test_a_pause_of_an_hour_is_told_and_not_waited_for() -> None:
    clock = FakeClock()
    error = error_of(HI, Fault(status=429, headers=(("retry-after", "3600"),)), clock=clock)
    assert "asks to wait 3600 s" in str(error)
    assert clock.slept == []


@pytest.mark.parametrize(("asked", "says", "slept"), [(3600, True, [3600.0]), (3600, False, []), (100_000, True, [])])
def test_a_long_pause_is_made_only_if_a_person_says_so(asked: int, says: bool, slept: list[float]) -> None:
    clock, questions = FakeClock(), []

    def may_wait(why: str, wait_s: float) -> bool:
        questions.append((why, wait_s))
        return says

    fault = Fault(status=429, headers=(("retry-after", str(asked)),))
    with answering(HI, faults=[fault], clock=clock, may_wait=may_wait) as (_, model):
        if slept:
            assert model.reply(asking(), emit=lambda event: None).text
        else:
            with pytest.raises(ModelError, match=f"asks to wait {asked} s"):
                model.reply(asking(), emit=lambda event: None)
    assert clock.slept == slept
    assert questions == ([("rate limit reached (429)", 3600.0)] if asked == 3600 else [])


def test_ctrl_c_ends_a_pause_at_once() -> None:
    fault = Fault(status=429, headers=(("retry-after", "50"),))
    with MessagesServer((), faults=[fault]) as server:
        model = AnthropicModel(key=Secret(KEY), clock=SystemClock(), endpoint=Endpoint(url=server.base_url))

        def emit(event: Event) -> None:
            if isinstance(event, RetryScheduled):
                Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

        began_s = time.monotonic()
        with closing(model), pytest.raises(KeyboardInterrupt):
            model.reply(asking(), emit=emit)
    assert time.monotonic() - began_s < 10


def test_a_forbidden_retry_is_not_made() -> None:
    clock = FakeClock()
    error_of(HI, Fault(status=500, headers=(("x-should-retry", "false"),)), clock=clock)
    assert clock.slept == []


@soak_after(
    3,
    ("status", "said", "hint"),
    [
        (400, "refused the request to claude-x (400): no", "--model"),
        (401, "refused the API key (401)", "ANTHROPIC_API_KEY"),
        (402, "cannot pay (402)", "credit"),
        (403, "may not use claude-x", "--model"),
        (404, "knows no model 'claude-x' (404)", "claude-opus-5-5"),
        (413, "too large", "smaller steps"),
    ],
)
def test_a_lasting_failure_is_told_at_once(status: int, said: str, hint: str) -> None:
    clock = FakeClock()
    error = error_of(HI, Fault(status=status, message="no"), clock=clock)
    assert said in str(error)
    assert hint in error.hint
    assert clock.slept == []


def test_a_server_that_repeats_the_key_does_not_make_it_visible() -> None:
    assert "bad key (the key) given" in str(error_of(HI, Fault(status=401, message=f"bad key {KEY} given")))


def ended(**delta: JSON) -> Fault:
    """An answer whose end says ``delta``."""
    events = ({"type": "message_delta", "delta": delta}, {"type": "message_stop"})
    return Fault(raw_events=tuple(map(json.dumps, events)))


@soak_after(1, "before", (90, 0, 30, 210))
@pytest.mark.parametrize(
    "fault",
    [
        lambda words: ended(stop_reason=words),
        lambda words: ended(stop_reason="refusal", stop_details={"category": words}),
        lambda words: Fault(raw_events=(json.dumps({words: 1})[:-1] + f', "{words}": 2}}',)),
        lambda words: Fault(error_type="invalid_request_error", error_after=2, message=words),
        lambda words: Fault(status=400, message=words),
    ],
)
def test_the_key_is_in_no_error_wherever_the_server_repeats_it(fault: Callable[[str], Fault], before: int) -> None:
    """Nor is a part of it, where what the server says is cut."""
    told = str(error_of(HI, fault("x" * before + KEY)))
    assert KEY[:8] not in told
    assert "(the key)" in told


def test_an_overload_in_the_middle_of_a_stream_is_tried_again() -> None:
    clock = FakeClock()
    turn, seen = outcome(HI, Fault(error_after=2), clock=clock)
    assert turn.text == texts(seen) == "Hello, how are you?"
    assert about(clock.slept, 1)
    (announced,) = (event for event in seen if isinstance(event, RetryScheduled))
    assert "529" in announced.why


@soak_after(1, "fault", [Fault(cut_after=2), Fault(cut_after=0), Fault(raw_events=('{"type": "ping"}',))])
def test_a_stream_that_breaks_off_before_any_text_is_tried_again(fault: Fault) -> None:
    clock = FakeClock()
    turn, seen = outcome(HI, fault, clock=clock)
    assert turn.text == texts(seen)
    assert about(clock.slept, 1)


def test_thinking_that_was_shown_does_not_forbid_another_try() -> None:
    turn, _ = outcome(HI, Fault(extra_blocks=(THOUGHT,), cut_after=5))
    assert turn.text == "Hello, how are you?"


@soak_after(1, "fault", [Fault(cut_after=5), Fault(without_stop=True), Fault(error_after=5)])
def test_text_that_was_shown_is_taken_back_before_it_is_shown_again(fault: Fault) -> None:
    turn, seen = outcome(HI, fault)
    at = next(number for number, event in enumerate(seen) if isinstance(event, RetryScheduled))
    announced = seen[at]
    assert isinstance(announced, RetryScheduled)
    assert announced.withdrawn
    assert turn.text.startswith(texts(seen[:at]))
    assert texts(seen[:at])
    assert texts(seen[at:]) == turn.text == "Hello, how are you?"


def test_a_tool_call_of_a_broken_stream_is_not_run() -> None:
    call = "- content: [{type: tool_use, name: Read, input: {file_path: a}}]\n"
    turn, _ = outcome(call, Fault(without_stop=True))
    assert len(turn.calls) == 1
    assert "broke off" in str(error_of(call, *[Fault(without_stop=True)] * 4))


@soak_after(
    3,
    ("fault", "said"),
    [
        (Fault(stop_reason="refusal"), "refusal (cyber)"),
        (Fault(stop_reason="model_context_window_exceeded"), "context window"),
        (Fault(stop_reason="sunset"), "unknown reason: sunset"),
        (Fault(error_type="invalid_request_error", error_after=2, message="bad"), "(400): bad"),
        (Fault(raw_events=("{oops",)), "Could not read the answer"),
        (Fault(raw_events=("[1]",)), "Could not read the answer"),
        (Fault(body="<html>proxy</html>"), "not a stream of events"),
        (Fault(status=502, body="<html>bad gateway</html>", headers=(("x-should-retry", "false"),)), "(502)"),
    ],
)
def test_an_answer_that_cannot_be_used_says_why(fault: Fault, said: str) -> None:
    assert said in str(error_of(HI, fault))


def test_a_call_cut_off_at_max_tokens_is_left_out() -> None:
    turn, _ = outcome(READ, Fault(tool_json='{"file_path": "src/very', stop_reason="max_tokens"))
    assert (turn.text, turn.calls, turn.stop_reason) == ("Reading.", (), "max_tokens")


def test_an_input_that_is_not_json_is_never_run() -> None:
    turn, _ = outcome(READ, Fault(tool_json='{"file_path": oops}'))
    assert "not one complete JSON object" in str(turn.calls[0].defect)


COUNTED = """\
- content: ['Hello, how are you?']
  usage: {input_tokens: 9, output_tokens: 4, cache_read_tokens: 100, cache_write_tokens: 3}
"""
LOST = AnswerLost(
    model="claude-x", input_tokens=9, output_tokens=1, cache_read_tokens=100, cache_write_tokens=3, cost_usd=None
)


def lost(events: Iterable[Event]) -> list[AnswerLost]:
    return [event for event in events if isinstance(event, AnswerLost)]


def test_what_an_answer_that_broke_off_had_cost_is_told_before_the_next_try() -> None:
    turn, seen = outcome(COUNTED, Fault(cut_after=5), Fault(error_after=5))
    assert lost(seen) == [LOST, LOST]
    assert turn.usage == Usage(input_tokens=9, output_tokens=4, cache_read_tokens=100, cache_write_tokens=3)
    at = seen.index(LOST)
    assert isinstance(seen[at + 1], RetryScheduled)


def test_a_try_that_never_got_an_answer_has_cost_nothing() -> None:
    _, seen = outcome(COUNTED, Fault(status=529), Fault(is_reset=True, raw=()))
    assert lost(seen) == []


def test_what_a_whole_answer_that_cannot_be_used_has_cost_is_told() -> None:
    seen: list[Event] = []
    with (
        answering(COUNTED, faults=[Fault(stop_reason="refusal")]) as (_, model),
        pytest.raises(ModelError, match="refused to answer"),
    ):
        model.reply(asking(), emit=seen.append)
    assert lost(seen) == [structs.replace(LOST, output_tokens=4)]


def test_what_an_answer_that_the_user_stops_has_cost_is_told() -> None:
    seen: list[Event] = []

    def stop(event: Event) -> None:
        seen.append(event)
        if isinstance(event, TextDelta):
            raise KeyboardInterrupt

    with answering(COUNTED) as (_, model), pytest.raises(KeyboardInterrupt):
        model.reply(asking(), emit=stop)
    assert lost(seen) == [LOST]


def test_a_paused_turn_is_a_turn_with_that_reason() -> None:
    turn, _ = outcome("- content: ['One, ']", Fault(stop_reason="pause_turn"))
    assert (turn.text, turn.stop_reason) == ("One, ", "pause_turn")


def test_a_stream_of_nothing_but_pings_is_given_up() -> None:
    clock = FakeClock(tick_s=50)
    with pytest.raises(ModelError, match="nothing but pings for 180 s"):
        outcome(HI * 4, *[Fault(pings=9)] * 4, clock=clock)


def test_pings_keep_a_stream_open_for_a_while() -> None:
    assert outcome(HI, Fault(pings=9), clock=FakeClock(tick_s=4))[0].text


@pytest.mark.parametrize("key", [None, "", " \n"])
def test_without_a_key_nothing_is_sent_and_the_way_out_is_named(key: str | None) -> None:
    with MessagesServer() as server:
        model = AnthropicModel(
            key=None if key is None else Secret(key), clock=FakeClock(), endpoint=Endpoint(url=server.base_url)
        )
        with pytest.raises(ModelError, match="No model is available: ANTHROPIC_API_KEY is not set") as caught:
            model.reply(asking(), emit=lambda event: None)
    assert server.requests == []
    assert all(way in caught.value.hint for way in ("cdd demo", "--replay FILE", "cdd status", "pytest --tdd-agent"))


@pytest.mark.parametrize("key", ["sk-ant-a b", "sk-ant-ü", "sk-ant-a\nb"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(key: str) -> None:
    model = AnthropicModel(key=Secret(key), clock=FakeClock())
    with pytest.raises(ModelError, match="cannot be sent") as caught:
        model.reply(asking(), emit=lambda event: None)
    assert "sk-ant" not in str(caught.value)


def test_no_connection_names_the_address_without_its_password() -> None:
    clock = FakeClock()
    with MessagesServer() as server:
        url = server.base_url
    model = modelled(url.replace("//", "//ann:secret@"), clock=clock)
    with pytest.raises(ModelError) as caught:
        model.reply(asking(), emit=lambda event: None)
    model.close()
    assert f"Could not connect to {url} after 4 tries" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert about(clock.slept, 1, 2, 4)


def test_an_address_that_is_none_is_named() -> None:
    clock = FakeClock()
    model = modelled("http://127.0.0.1:bad", clock=clock)
    with pytest.raises(ModelError, match="127"):
        model.reply(asking(), emit=lambda event: None)
    assert clock.slept == []


def test_a_server_of_this_machine_is_asked_past_any_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert outcome(HI)[0].text == "Hello, how are you?"


def test_an_error_of_a_listener_is_not_taken_for_the_models() -> None:
    def emit(event: Event) -> None:
        if isinstance(event, TextDelta):
            raise ValueError("the listener is broken")

    with answering(HI) as (server, model), pytest.raises(ValueError, match="the listener is broken"):
        model.reply(asking(), emit=emit)
    assert len(server.requests) == 1


def test_ctrl_c_passes_through_and_the_next_call_works() -> None:
    def emit(event: Event) -> None:
        raise KeyboardInterrupt

    with answering(HI * 2) as (_, model):
        with pytest.raises(KeyboardInterrupt):
            model.reply(asking(), emit=emit)
        assert model.reply(asking(), emit=lambda event: None).text


def test_making_a_model_does_not_import_the_sdk() -> None:
    code = (
        "import sys\nfrom cdd_agent.clock import SystemClock\n"
        "from cdd_agent.model.anthropic import AnthropicModel\n"
        "AnthropicModel(key=None, clock=SystemClock())\nprint('anthropic' in sys.modules, 'httpx2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


@pytest.mark.slow
@soak_after(1, ("key", "is_loaded"), [("sk-ant-1", True), ("", False)])
def test_the_sdk_is_loaded_in_the_background_as_soon_as_it_is_known_that_it_can_be_used(
    *, key: str, is_loaded: bool
) -> None:
    code = (
        "import contextlib, sys, threading\nfrom cdd_agent.clock import SystemClock\n"
        "from cdd_agent.errors import ModelError\nfrom cdd_agent.model.anthropic import AnthropicModel\n"
        "from cdd_agent.untrusted.keys import Secret\n"
        f"with contextlib.suppress(ModelError):\n    AnthropicModel(key=Secret({key!r}), clock=SystemClock()).check()\n"
        "[thread.join() for thread in threading.enumerate() if thread.name == 'sdk']\nprint('anthropic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(is_loaded)


# The address.


PROXY = "http://ann:secret@proxy:3128"


def named(**environment: str) -> Endpoint:
    return Endpoint.from_environment(environment)


def test_without_variables_it_is_the_api_itself() -> None:
    assert named() == Endpoint(url=API_URL, proxy=None, certificates=None)


def test_the_address_and_the_authorities_are_the_environment_s() -> None:
    endpoint = named(ANTHROPIC_BASE_URL="http://models.lan:8080", SSL_CERT_FILE="/etc/ssl/company.pem")
    assert (endpoint.url, endpoint.certificates) == ("http://models.lan:8080", "/etc/ssl/company.pem")


@pytest.mark.parametrize(
    "url", ["models.lan", "ftp://models.lan", "http://", "http://host:bad", "http://[::1", "file:///x"]
)
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="ANTHROPIC_BASE_URL is not an address") as caught:
        named(ANTHROPIC_BASE_URL=url.replace("//", "//ann:secret@"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_is_the_user_s_and_its_password_is_not_shown(name: str) -> None:
    endpoint = named(**{name: PROXY})
    assert endpoint.proxy == PROXY
    assert "secret" not in repr(endpoint)


def test_a_proxy_for_plain_http_is_none_for_https() -> None:
    assert named(HTTP_PROXY=PROXY).proxy is None
    assert named(HTTP_PROXY=PROXY, ANTHROPIC_BASE_URL="http://models.lan").proxy == PROXY


@pytest.mark.parametrize("url", ["http://localhost:1", "http://[::1]:1", "http://127.0.0.9"])
def test_an_endpoint_on_this_machine_has_no_proxy(url: str) -> None:
    assert is_loopback(url)
    assert named(ALL_PROXY=PROXY, HTTP_PROXY=PROXY, ANTHROPIC_BASE_URL=url).proxy is None


def test_a_name_that_begins_like_this_machine_is_not_it() -> None:
    assert not is_loopback("https://127.org")


@pytest.mark.parametrize(
    ("direct", "is_direct"),
    [
        ("*", True),
        ("anthropic.com", True),
        (".anthropic.com", True),
        ("*.anthropic.com", True),
        ("localhost, api.anthropic.com", True),
        ("api.anthropic.com:443", True),
        ("api.anthropic.com:8443", False),
        ("pi.anthropic.com", False),
        ("api.anthropic.com.evil.org", False),
        (" , ", False),
    ],
)
def test_no_proxy_names_the_servers_that_are_asked_directly(direct: str, is_direct: bool) -> None:
    assert (named(HTTPS_PROXY=PROXY, NO_PROXY=direct).proxy is None) is is_direct


@pytest.mark.parametrize(
    ("url", "is_clear"), [("http://models.lan", True), ("https://models.lan", False), ("http://127.0.0.1:1", False)]
)
def test_what_is_sent_over_plain_http_can_be_read_on_the_way(url: str, is_clear: bool) -> None:
    assert Endpoint(url=url).is_in_the_clear is is_clear


# Servers that take their time.


TOTAL_S = 0.8
SOON_S = TOTAL_S + 5
"""What a busy machine may add; what the server sends would take longer."""
DRIP = tuple(part for _ in range(180) for part in (b"a", 0.05))


def failed(endpoint: Endpoint, *, idle_s: float, said: str = "go") -> tuple[Cause, float]:
    """Return how a request to ``endpoint`` failed, and after how many seconds."""
    body: dict[str, JSON] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": said}]}
    limits = AnswerLimits(idle_s=idle_s, total_s=TOTAL_S)
    connection = Connection(endpoint, key=Secret("a-key-of-nobody"), limits=limits, clock=SystemClock())
    with closing(connection):
        began_s = time.monotonic()
        with pytest.raises(RequestFailed) as caught:
            list(connection.stream(body))
        return caught.value.cause, time.monotonic() - began_s


@soak_after(
    1,
    "sent",
    [
        pytest.param((b"HTTP/1.1 200 OK\r\nx-a: ", *DRIP), id="headers"),
        pytest.param(DRIP, id="status line"),
        pytest.param((STREAM_HEAD, *DRIP), id="answer"),
        pytest.param((9.0,), id="nothing"),
    ],
)
def test_a_server_that_is_never_silent_for_long_has_no_more_than_the_total(sent: tuple[bytes | float, ...]) -> None:
    with MessagesServer(faults=[Fault(raw=sent)]) as server:
        cause, took_s = failed(Endpoint(url=server.base_url), idle_s=0.5 if sent != (9.0,) else 60)
    assert cause == "too_slow"
    assert TOTAL_S <= took_s < SOON_S


@pytest.mark.slow
def test_of_an_error_that_drips_the_status_is_told_in_time() -> None:
    with MessagesServer(faults=[Fault(raw=(b"HTTP/1.1 500 No\r\nconnection: close\r\n\r\n", *DRIP))]) as server:
        cause, took_s = failed(Endpoint(url=server.base_url), idle_s=0.5)
    assert cause == "status"
    assert took_s < SOON_S


def test_silence_within_the_total_is_a_failure_that_may_pass() -> None:
    with MessagesServer(faults=[Fault(raw=(9.0,))]) as server:
        cause, took_s = failed(Endpoint(url=server.base_url), idle_s=0.3)
    assert cause == "timeout"
    assert took_s < TOTAL_S


@contextmanager
def listening(answer: Callable[[socket.socket, Signal], None]) -> Iterator[str]:
    """Run a server that leaves its one connection to ``answer``, which returns when the signal is set."""
    is_over = Signal()

    def serve() -> None:
        with suppress(TimeoutError), listener.accept()[0] as accepted:  # the client may have given up before
            answer(accepted, is_over)

    with socket.socket() as listener:
        listener.settimeout(SOON_S)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()


def read_slowly(accepted: socket.socket, is_over: Signal) -> None:
    while not is_over.wait(0.05):
        accepted.recv(4096)


def open_a_tunnel(accepted: socket.socket, is_over: Signal) -> None:
    accepted.recv(4096)
    accepted.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    is_over.wait(SOON_S)


@pytest.mark.slow
def test_a_server_that_takes_the_request_byte_by_byte_has_no_more_than_the_total() -> None:
    with listening(read_slowly) as url:
        cause, took_s = failed(Endpoint(url=url), idle_s=0.7, said="x" * 20_000_000)
    assert cause == "too_slow"
    assert took_s < SOON_S


@pytest.mark.slow
def test_a_tunnel_that_never_speaks_tls_has_no_more_than_the_time_of_a_connection() -> None:
    with listening(open_a_tunnel) as proxy:
        cause, took_s = failed(Endpoint(url="https://models.invalid", proxy=proxy), idle_s=0.3)
    assert cause in ("timeout", "too_slow")
    assert took_s < SOON_S


@pytest.mark.parametrize("proxy", [None, "http://127.0.0.1:9"])
def test_no_connection_is_begun_once_the_time_is_over(proxy: str | None) -> None:
    """Port 9 refuses, so any other cause than the time is a connection that was begun."""
    endpoint, limits = Endpoint(url="http://127.0.0.1:9", proxy=proxy), AnswerLimits(total_s=0.0)
    connection = Connection(endpoint, key=Secret(KEY), limits=limits, clock=SystemClock())
    with closing(connection), pytest.raises(RequestFailed) as caught:
        list(connection.stream({"model": "m", "max_tokens": 9, "messages": []}))
    assert caught.value.cause == "too_slow"


def test_a_wait_takes_its_own_time_or_the_time_that_is_left() -> None:
    deadline = Deadline()
    assert deadline.shorten(7) == 7
    deadline.start(5)
    assert deadline.shorten(3) == 3
    assert 4 < deadline.shorten(60) <= 5
    assert 4 < deadline.shorten(None) <= 5
