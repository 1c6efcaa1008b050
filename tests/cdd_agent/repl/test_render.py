"""Each event as a person reads it."""

from collections.abc import Callable
from typing import get_args

import pytest
from msgspec import structs

from cdd_agent import events
from cdd_agent.events import Event
from cdd_agent.repl.commands import as_prompt_command
from cdd_agent.repl.render import Renderer
from tests.fakes.demo import captured
from tests.fakes.reasons import make_reason

SUITE = events.SuiteFinished(
    purpose="all tests for the gate",
    framework="pytest",
    passed=3,
    failed=1,
    errors=0,
    skipped=0,
    duration_s=1.23,
    problem=None,
)
CALL = events.ToolCalled(call_id="1", name="RunTests", subject="tests/test_a.py")
CLOSED = events.GateJudged(
    phase="red", attempt=1, open=False, reasons=(make_reason("already_green: it passes"),), evidence="9 passed"
)
HANDOFF = events.HandoffListed(
    ticket="tdd-t",
    cycle=1,
    phase="RED",
    following="GREEN",
    result="FAIL",
    retries=0,
    commit="a",
    description="adds",
    error="",
    reconstructed=False,
)
CASES: list[tuple[Event, str]] = [
    (events.RunStarted(workflow="exec", ticket="t", model="m", sandbox="none"), "model m, sandbox none\n"),
    (
        events.RunFinished(workflow="exec", ticket="t", status="completed", duration_s=9.6),
        "exec t: completed in 10 s\n",
    ),
    (events.RunFinished(workflow="exec", ticket="t", status="in_progress", duration_s=9.6), ""),
    (events.TextDelta(text="It is **done**.\n"), "It is **done**.\n"),
    (events.ThinkingDelta(text="hm"), ""),
    (CALL, "→ RunTests tests/test_a.py\n"),
    (events.ToolReturned(call_id="1", name="Read", ok=True, summary="fine"), ""),
    (events.ToolReturned(call_id="1", name="Bash", ok=True, summary="exit status 0"), ""),
    (events.ToolReturned(call_id="1", name="Bash", ok=True, summary="exit status 4: no"), "  exit status 4: no\n"),
    (events.ToolReturned(call_id="1", name="Read", ok=False, summary="a.py is not there"), "  a.py is not there\n"),
    (events.SuiteStarted(purpose="tests", targets=(), framework="pytest"), ""),
    (SUITE, "→ pytest, all tests for the gate: 3 passed, 1 failed in 1.2 s\n"),
    (CLOSED, "✘ RED gate closed  9 passed\n  already_green: it passes\n"),
    (
        events.GateJudged(phase="green", attempt=1, open=True, reasons=(), evidence="9 passed"),
        "✔ GREEN gate open  9 passed\n",
    ),
    (events.SpecSaved(ticket="t", changed=("open_questions",), missing=()), "✔ spec.yaml saved: open questions\n"),
    (
        events.SpecSaved(ticket="t", changed=(), missing=("a title",)),
        "✔ spec.yaml saved: no change; still missing: a title\n",
    ),
    (events.PlanDrafted(ticket="t", number=2, problems=()), "✔ Draft 2 accepted: plan.md saved\n"),
    (
        events.PlanDrafted(ticket="t", number=1, problems=("line 3: no title",)),
        "✘ Draft 1 refused\n  line 3: no title\n",
    ),
    (events.GraphDrafted(number=1, nodes=2, problems=()), "✔ Draft 1 has no problems: 2 nodes\n"),
    (events.GraphDrafted(number=1, nodes=2, problems=("a needs b",)), "✘ Draft 1 refused\n  a needs b\n"),
    (events.StepStarted(number=2, total=3, title="Quotes"), "Step 2/3  Quotes\n"),
    (events.StepFinished(number=2, status="completed", error=None), "✔ Step 2 completed\n"),
    (events.StepFinished(number=2, status="failed", error="RED was refused"), "✘ Step 2 failed: RED was refused\n"),
    (events.StepFinished(number=2, status="skipped", error="by you"), "• Step 2 skipped: by you\n"),
    (events.AttemptStarted(phase="red", number=1, limit=3), "  RED attempt 1 of 3\n"),
    (events.Committed(phase="red", commit="0123456789", subject="test: x"), "● 01234567  test: x\n"),
    (
        events.Diagnosed(
            step=1, phase="green", attempt=2, cause="test", by="votes", why="Two say so.", votes=("failure: test",)
        ),
        "cause: test  Two say so.\n  failure: test\n",
    ),
    (
        events.RolledBack(checkpoint="a", kept="refs/b", why="it failed"),
        "↶ Rolled back: it failed. The work is saved in refs/b\n",
    ),
    (
        events.AnswerLost(
            model="m", input_tokens=9, output_tokens=1, cache_read_tokens=0, cache_write_tokens=0, cost_usd=None
        ),
        "",
    ),
    (events.Waiting(what="waiting for the model"), ""),
    (
        events.SymbolAnswered(
            question="rename", symbol="a.py::f", engine="ty", places=2, duration_ms=1.5, is_verified=True
        ),
        "",
    ),
    (events.EngineDropped(engine="ty", why="it ended."), "• ty is not asked again in this run: it ended.\n"),
    (events.RetryScheduled(why="busy", wait_s=2.0, number=2, limit=3), "• busy; try 2 of 3 in 2 s\n"),
    (
        events.RetryScheduled(why="overloaded (529)", wait_s=1.8, number=3, limit=4, withdrawn=True),
        "• overloaded (529); the partial answer above is discarded; try 3 of 4 in 2 s\n",
    ),
    (events.Notice(text="mind this"), "• mind this\n"),
    (
        events.Compacted(agent="socrates", before_tokens=12_000, after_characters=900),
        "• The conversation (12,000 tokens) was replaced by a summary of 900 characters.\n",
    ),
    (
        events.QuestionAsked(agent="socrates", question="Which?", options=("the first", "the\x1b[2J other")),
        "Which?\n  1  the first\n  2  the other\n",
    ),
    (events.GuidanceGiven(text="use\x1b[2J tabs"), "you  use tabs\n"),
    (events.FileChanged(path="a.py", diff="@@ -1 +1 @@\n-a\n+b"), ""),
    (
        events.StepReviewed(
            ticket="t", number=1, title="x", commits=("a",), files=(), added=0, removed=0, decision=None
        ),
        "",
    ),
    (
        events.TicketListed(
            ticket="t", title="x", missing=(), has_plan=False, status="", steps=0, completed=0, failed=0, problem=""
        ),
        "",
    ),
    (
        events.StepListed(
            ticket="t",
            number=1,
            title="x",
            status="pending",
            phase="",
            attempts=(),
            commits=(),
            error="",
            tokens=0,
            cost_usd=None,
        ),
        "",
    ),
    (events.ClaimChecked(ticket="t", cycle=1, phase="RED", commit="a", claim="note", holds=True, told="It fits."), ""),
    (events.HandoffsAudited(handoffs=1, held=1, failed=0, unknown=0), ""),
    (HANDOFF, ""),
    (
        events.RunStanding(
            run="tdd-t", last=HANDOFF, completed=(), pending=(), details="", at_work="", next="cdd tdd resume"
        ),
        "",
    ),
    (
        events.RollbackPlanned(
            branch="main",
            source="a",
            target="b",
            going=(),
            coming=(),
            files=(),
            pushed=0,
            kept="refs/cdd/x",
            next="RED",
        ),
        "",
    ),
    (events.NoteDamaged(what="It is lost.", commit=None, action="It stays.", mends=False), ""),
    (events.NoteRepaired(what="It is lost.", commit=None, action="It is made up."), ""),
    (events.NotesRepaired(backup=None, undo=None), ""),
    (events.SpecProposed(ticket="t", diff="@@ -1 +1 @@\n-a\n+b"), "@@ -1 +1 @@\n-a\n+b\n"),
]


def printed(*happened: Event, width: int = 80) -> str:
    with captured(width) as (screen, shown):
        renderer = Renderer(screen)
        for event in happened:
            renderer.write(event)
        screen.end_prose()
    return shown.getvalue()


@pytest.mark.parametrize(("event", "told"), CASES, ids=lambda value: type(value).__name__)
def test_an_event_is_told_so(event: Event, told: str) -> None:
    assert printed(event) == told


def test_every_kind_of_event_is_known() -> None:
    told = {type(event) for event, _ in CASES} | {events.TurnEnded}
    assert set(get_args(Event)) <= told


def test_what_a_test_run_came_to_stands_below_the_tool_that_ran_it() -> None:
    told = printed(CALL, SUITE, events.ToolReturned(call_id="1", name="RunTests", ok=True, summary="3 passed"), SUITE)
    assert told.splitlines() == [
        "→ RunTests tests/test_a.py",
        "  3 passed, 1 failed in 1.2 s",
        "→ pytest, all tests for the gate: 3 passed, 1 failed in 1.2 s",
    ]


def test_a_run_that_cannot_be_judged_says_why() -> None:
    broken = structs.replace(SUITE, purpose="tests", framework="cargo", problem="the tests did not end")
    assert printed(broken) == "→ cargo, tests: the tests did not end\n"


def test_a_tool_call_takes_one_row() -> None:
    long = events.ToolCalled(call_id="1", name="Bash", subject="python3 -c 'import csv\nprint(csv)' and more")
    assert printed(long, width=30) == "→ Bash python3 -c 'import csv…\n"


def test_a_step_is_indented_below_its_title() -> None:
    told = printed(
        events.StepStarted(number=1, total=2, title="A"),
        events.AttemptStarted(phase="red", number=1, limit=3),
        events.TextDelta(text="I read."),
        events.TurnEnded(
            agent="e", text="I read.", stop_reason="end_turn", input_tokens=1, output_tokens=1, cache_read_tokens=0
        ),
        CLOSED,
        events.StepFinished(number=1, status="completed", error=None),
    )
    assert told.splitlines() == [
        "Step 1/2  A",
        "  RED attempt 1 of 3",
        "    I read.",
        "    ✘ RED gate closed  9 passed",
        "      already_green: it passes",
        "✔ Step 1/2 completed",
    ]


def test_each_speaker_of_a_step_is_named_when_the_speaker_changes() -> None:
    parts = [("executor", "I read."), ("executor", " I write.\n"), ("examiner", "I doubt.\n"), ("executor", "I fix.\n")]
    told = printed(*(events.TextDelta(text=text, agent=agent) for agent, text in parts))
    assert told.split("\n") == ["Executor:", "I read. I write.", "Examiner:", "I doubt.", "Executor:", "I fix.", ""]
    assert printed(events.TextDelta(text="Which?", agent="socrates")) == "Which?\n"  # the prompt names Socrates


def test_a_reason_is_shown_once_in_a_step() -> None:
    started = events.StepStarted(number=1, total=1, title="A")
    again = structs.replace(CLOSED, attempt=2, reasons=(*CLOSED.reasons, make_reason("no_change: nothing was written")))
    failed = events.StepFinished(
        number=1,
        status="failed",
        error="RED was refused 2 times; the last reasons: already_green: it passes",
        brief="RED was refused 2 times",
    )
    told = printed(started, CLOSED, again, failed, started, CLOSED)
    assert told.count("it passes") == 2  # once for each run of the step
    assert "already_green: the same as at attempt 1\n    no_change: nothing was written\n" in told
    assert "✘ Step 1/1 failed: RED was refused 2 times\n" in told
    assert "the last reasons" in printed(structs.replace(failed, brief=""))


def test_a_red_that_an_iteration_does_not_need_is_no_failure() -> None:
    assert printed(structs.replace(CLOSED, is_expected=True)) == ""


def test_model_and_sandbox_are_said_once() -> None:
    started = events.RunStarted(workflow="exec", ticket="t", model="m", sandbox="none")
    assert printed(started, started).count("sandbox") == 1


@pytest.mark.parametrize(("event", "_told"), CASES, ids=lambda value: type(value).__name__)
def test_no_row_is_wider_than_a_narrow_terminal(event: Event, _told: str) -> None:
    assert max(map(len, printed(event, width=24).splitlines()), default=0) <= 24


@pytest.mark.parametrize(
    ("typed", "rest"),
    [(lambda command: command, "    3 more lines\n"), (as_prompt_command, "    3 more lines; /diff shows all\n")],
)
def test_a_change_is_shown_on_a_terminal_and_a_long_one_is_folded(typed: Callable[[str], str], rest: str) -> None:
    with captured() as (screen, stream):
        screen.as_typed, screen.shows_changes, screen.indent = typed, True, 2
        lines = [f"+{number}" for number in range(1, 23)]
        Renderer(screen).write(events.FileChanged(path="a.py", diff="\n".join(["@@ -0,0 +1,22 @@", *lines])))
    shown = stream.getvalue()
    assert "@@ -0,0 +1,22 @@\n+1\n" in shown
    assert "+19\n" + rest in shown
    assert screen.indent == 2
