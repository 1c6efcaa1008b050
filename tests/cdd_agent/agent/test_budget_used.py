""""""

from dataclasses import replace

from cdd_agent.agent.budget import of_answer, of_usage
from cdd_agent.agent.loop import turn_ended
from cdd_agent.model import prices
from cdd_agent.model.conversation import Turn, Usage
from cdd_agent.work.state import UsageTotals

OPUS = "claude-opus-5-5"
USAGE = Usage(input_tokens=1, output_tokens=20, cache_read_tokens=300, cache_write_tokens=4000)
COST = prices.cost_usd(OPUS, USAGE)


def test_both_events_of_an_answer_tell_what_it_used() -> None:
    turn = Turn(content=(), stop_reason="end_turn", usage=USAGE)
    whole = UsageTotals(
        input_tokens=1,
        output_tokens=20,
        cache_read_tokens=300,
        cache_write_tokens=4000,
        cost_usd=COST,
        known_usd=COST or 0.0,
    )
    assert COST
    assert of_answer(turn_ended(turn, model=OPUS, agent="socrates")) == whole
    assert of_answer(prices.lost(OPUS, USAGE)) == whole


def test_what_used_nothing_leaves_every_cost_as_it_is() -> None:
    paid = of_usage(USAGE, cost_usd=COST)
    assert paid + of_usage(Usage(), cost_usd=None) == paid
    assert paid + of_usage(USAGE, cost_usd=None) == replace(
        of_usage(USAGE + USAGE, cost_usd=None), known_usd=COST or 0.0
    )
