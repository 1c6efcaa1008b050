"""What the toolbar knows comes from the events."""

import pytest

from cdd_agent import events
from cdd_agent.events import Event
from cdd_agent.repl.state import ProgressTracker, compute_context_percent
from cdd_agent.repl.terminal import PromptStatus


def turn(model: str = "claude-opus-5-5", *, tokens: int = 100_000, cost_usd: float | None = 0.5) -> Event:
    return events.TurnEnded(
        agent="executor",
        text="",
        stop_reason="end_turn",
        input_tokens=tokens,
        output_tokens=0,
        cache_read_tokens=0,
        model=model,
        cost_usd=cost_usd,
    )


def after(*happened: Event, agent: str = "exec") -> PromptStatus:
    standing = ProgressTracker(model="claude-opus-5-5")
    for event in happened:
        standing.write(event)
    return standing.fill(PromptStatus(agent=agent))


RED = events.AttemptStarted(phase="red", number=1, limit=3)
CLOSED = events.GateJudged(phase="red", attempt=1, open=False, reasons=(), evidence="")


def test_phase_and_gate_follow_the_attempts() -> None:
    assert (after(RED).phase, after(RED).gate) == ("red", "")
    assert (after(RED, CLOSED).phase, after(RED, CLOSED).gate) == ("red", "closed")
    assert after(RED, CLOSED, RED).gate == ""
    assert after(RED, CLOSED, events.StepStarted(number=2, total=2, title="x")).phase == ""


def test_the_gate_of_a_step_that_is_over_is_not_shown_beside_the_next_one() -> None:
    completed, failed = (events.StepFinished(number=1, status=told, error=None) for told in ("completed", "failed"))
    assert (after(RED, CLOSED, completed).phase, after(RED, CLOSED, completed).gate) == ("", "")
    assert after(RED, CLOSED, failed).gate == "closed"


def test_phases_are_the_executor_s_alone() -> None:
    assert after(RED, agent="spec").phase == ""


def test_the_context_is_that_of_the_last_turn() -> None:
    assert after().context_percent is None
    assert after(turn()).context_percent == 10
    assert after(turn(), RED).context_percent is None
    compacted = events.Compacted(agent="socrates", before_tokens=1, after_characters=1)
    assert after(turn(), compacted).context_percent is None
    assert after(turn(model="unknown")).context_percent is None
    assert compute_context_percent("claude-opus-5-5", tokens=10_000_000) == 100


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ((), ""),
        ((turn(),), "0.50 USD"),
        ((turn(), turn()), "1.00 USD"),
        ((turn(cost_usd=None),), "cost unknown"),
        ((turn(), turn(cost_usd=None)), "at least 0.50 USD"),
    ],
)
def test_the_cost_is_never_told_lower_than_it_is(turns: tuple[Event, ...], told: str) -> None:
    assert after(*turns).cost == told


def test_an_answer_that_was_lost_is_paid_for_too() -> None:
    lost = events.AnswerLost(
        model="claude-opus-5-5",
        input_tokens=1,
        output_tokens=1,
        cache_read_tokens=0,
        cache_write_tokens=0,
        cost_usd=0.25,
    )
    assert after(turn(), lost).cost == "0.75 USD"


def test_the_model_is_the_one_that_answered() -> None:
    assert after().model == "claude-opus-5-5"
    assert after(turn(model="claude-haiku-5-5")).model == "claude-haiku-5-5"
