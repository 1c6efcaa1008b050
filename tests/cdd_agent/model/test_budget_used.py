from dataclasses import replace

from cdd_agent.agent.loop import make_turn_ended
from cdd_agent.model.budget import cost_usd, make_answer_lost, totals_from_answer, totals_from_usage
from cdd_agent.model.conversation import Turn
from cdd_agent.work.state import Usage

OPUS = "claude-opus-5-5"
USAGE = Usage(input_tokens=1, output_tokens=20, cache_read_tokens=300, cache_write_tokens=4000)
COST = cost_usd(OPUS, USAGE)


def test_both_events_of_an_answer_tell_what_it_used() -> None:
    turn = Turn(content=(), stop_reason="end_turn", usage=USAGE)
    whole = Usage(
        input_tokens=1,
        output_tokens=20,
        cache_read_tokens=300,
        cache_write_tokens=4000,
        cost_usd=COST,
        known_usd=COST or 0.0,
    )
    assert COST
    assert totals_from_answer(make_turn_ended(turn, model=OPUS, agent="socrates")) == whole
    assert totals_from_answer(make_answer_lost(OPUS, USAGE)) == whole


def test_what_used_nothing_leaves_every_cost_as_it_is() -> None:
    paid = totals_from_usage(USAGE, cost_usd=COST)
    assert paid + totals_from_usage(Usage(), cost_usd=None) == paid
    assert paid + totals_from_usage(USAGE, cost_usd=None) == replace(
        totals_from_usage(USAGE + USAGE, cost_usd=None), known_usd=COST or 0.0
    )
