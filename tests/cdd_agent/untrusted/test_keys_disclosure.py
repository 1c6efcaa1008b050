import base64
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.agent.loop import KeyFilter, hide_keys, run_agent
from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.errors import BudgetSpent
from cdd_agent.events import (
    Emit,
    Event,
    GateJudged,
    Notice,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    TurnEnded,
)
from cdd_agent.model import recording
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import Conversation, Request, Turn
from cdd_agent.tickets.ticket import create
from cdd_agent.untrusted.keys import Secret
from tests.fakes.cases import soak_after
from tests.fakes.messages_server import MessagesServer
from tests.fakes.model import ScriptedModel, says
from tests.fakes.reasons import make_reason

ROOT = Path(__file__).parents[3]
KEY = "local-gateway-key-CANARY-0123456789abcdef"
TOKEN = f"ghp_{'Kk1' * 12}"
PEM = "-----BEGIN PRIVATE KEY-----\n" + f"{'Kk1/' * 16}\n" * 3 + "-----END PRIVATE KEY-----"
AWS = f"aws_secret_access_key =\n {'Kk1/' * 10}"
BASE64 = base64.b64encode(KEY.encode()).decode()


def told(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_no_field_of_an_event_holds_the_key_or_what_is_shaped_like_one() -> None:
    seen: list[Event] = []
    tell = hide_keys(seen.append, key=Secret(KEY))
    tell(ToolCalled(call_id="1", name="Bash", subject=f"curl -H 'x-api-key: {KEY}'"))
    reasons = (make_reason(f"a: {TOKEN}"), make_reason(f"b: {BASE64}"))
    tell(GateJudged(phase="red", attempt=1, open=False, reasons=reasons, evidence="none"))
    tell(Notice(text="as it was"))
    assert seen == [
        ToolCalled(call_id="1", name="Bash", subject="curl -H 'x-api-key: (the key)'"),
        GateJudged(
            phase="red",
            attempt=1,
            open=False,
            reasons=(make_reason("a: [masked: GitHub token]"), make_reason("b: (the key)=")),
            evidence="none",
        ),
        Notice(text="as it was"),
    ]


@given(
    st.lists(st.sampled_from([KEY, TOKEN, PEM, AWS, BASE64, " ", "\n", "it is ", "好"]), max_size=4).map("".join),
    st.lists(st.integers(min_value=0, max_value=300), max_size=12),
)
def test_a_key_that_comes_in_pieces_is_never_shown_and_all_else_is(text: str, cuts: list[int]) -> None:
    whole: list[Event] = []
    hide_keys(whole.append, key=Secret(KEY))(TextDelta(text=text))
    seen: list[Event] = []
    pieces = KeyFilter(hide_keys(seen.append, key=Secret(KEY)))
    ends = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(ends):
        pieces.write(TextDelta(text=text[start:end]))
        pieces.write(ThinkingDelta(text="hm "))
    pieces.flush()
    assert told(seen) == told(whole)


def test_words_are_given_on_as_soon_as_they_are_whole() -> None:
    seen: list[Event] = []
    pieces = KeyFilter(seen.append)
    for text in ("Read", "ing the", " file. ", "好", "的"):
        pieces.write(TextDelta(text=text))
    assert seen == [
        TextDelta(text="Reading "),
        TextDelta(text="the file. "),
        TextDelta(text="好"),
        TextDelta(text="的"),
    ]


def test_whatever_comes_between_comes_after_the_text_before_it() -> None:
    retry = RetryScheduled(why="busy", wait_s=1.0, number=2, limit=3, withdrawn=True)
    seen: list[Event] = []
    pieces = KeyFilter(seen.append)
    for event in (TextDelta(text="half"), retry, TextDelta(text="whole"), ThinkingDelta(text="")):
        pieces.write(event)
    pieces.flush()
    assert seen == [TextDelta(text="half"), retry, ThinkingDelta(text=""), TextDelta(text="whole")]


def test_of_a_turn_that_is_stopped_nothing_is_left_for_the_next_one() -> None:
    class Stopped(ScriptedModel):
        def reply(self, request: Request, *, emit: Emit) -> Turn:
            if not self.requests:
                emit(TextDelta(text="stopp"))
            return super().reply(request, emit=emit)

    model = Stopped([KeyboardInterrupt(), says("Now this.")])
    conversation = Conversation("be brief")
    conversation.say("begin")
    seen: list[Event] = []
    for _ in range(2):
        try:
            run_agent(conversation, [], model=model, budget=Budget(), emit=seen.append, agent="executor")
        except KeyboardInterrupt:
            conversation.say("again")
    assert told(seen) == "Now this."


@pytest.mark.slow
@soak_after(1, "key", [KEY, "sk-ant-api03-CANARYCANARYCANARY0123456789abcdef"])
def test_a_server_that_repeats_the_key_gets_it_on_no_screen(key: str, tmp_path: Path) -> None:
    turns = recording.parse_recording(
        f"- content: ['Your key is {key}', {{type: tool_use, name: '{key}', input: {{}}}}]\n" * 3, source="x"
    )
    ticket = create(tmp_path, "sale", title="A sale", type="feature")
    seen: list[Event] = []
    with MessagesServer(turns) as server:
        options = Options(project=tmp_path, key=Secret(key))
        composition = Composition(options, emit=seen.append, environment={"ANTHROPIC_BASE_URL": server.base_url})
        with pytest.raises(BudgetSpent):
            composition.socrates(ticket).open(somebody_answers=True)
    assert any(isinstance(event, TurnEnded) for event in seen)
    assert "CANARY" not in repr(seen)


_CRASH = """
import sys
sys.argv = ["cdd", "status"]
from cdd_agent import __main__
from cdd_agent.cli import app
def run(arguments, *, key):
    raise ZeroDivisionError(f"{key.reveal()} and " + "ghp_" + "Kk1" * 12)
app.run = run
__main__.main()
"""


def test_a_crash_tells_no_key_and_keeps_none(tmp_path: Path) -> None:
    environment = {**os.environ, "ANTHROPIC_API_KEY": KEY, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", _CRASH], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    (report,) = tmp_path.glob("cdd-crash-*.txt")
    assert ended.returncode == 70
    for text in (ended.stderr, report.read_text(encoding="utf-8")):
        assert "ZeroDivisionError: (the key) and [masked: GitHub token]" in text
        assert "CANARY" not in text
