import subprocess
import sys
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.config.settings import DEFAULT_MODEL
from cdd_agent.model.budget import cost_usd, find_context_window, list_priced_models, load_prices
from cdd_agent.model.recording import ReplayModel
from cdd_agent.work.state import Usage

MILLION = 1_000_000
COUNTS = st.integers(0, 10**7)
USAGES = st.builds(
    Usage, input_tokens=COUNTS, output_tokens=COUNTS, cache_read_tokens=COUNTS, cache_write_tokens=COUNTS
)
MODELS = st.sampled_from(list_priced_models())


def test_a_million_tokens_of_each_kind_cost_what_the_list_says() -> None:
    for usage, dollars in (
        (Usage(input_tokens=MILLION), 4.0),
        (Usage(output_tokens=MILLION), 20.0),
        (Usage(cache_read_tokens=MILLION), 0.4),
        (Usage(cache_write_tokens=MILLION), 5.0),
    ):
        assert cost_usd("claude-opus-5-5", usage) == pytest.approx(dollars)


def test_the_price_of_a_small_model_depends_on_the_whole_prompt_cached_or_not() -> None:
    cheap = Usage(input_tokens=40_000, cache_read_tokens=50_000, cache_write_tokens=10_000, output_tokens=1_000)
    dear = Usage(input_tokens=40_001, cache_read_tokens=50_000, cache_write_tokens=10_000, output_tokens=1_000)
    low, high = (cost_usd("claude-haiku-5-5", usage) for usage in (cheap, dear))
    assert low == pytest.approx((40_000 * 0.10 + 50_000 * 0.01 + 10_000 * 0.125 + 1_000 * 0.50) / MILLION)
    assert high == pytest.approx((40_001 * 0.50 + 50_000 * 0.05 + 10_000 * 0.625 + 1_000 * 2.50) / MILLION)


def test_a_dated_release_costs_what_its_family_does() -> None:
    usage = Usage(input_tokens=MILLION)
    assert cost_usd("claude-sonnet-5-5-20261101", usage) == cost_usd("claude-sonnet-5-5", usage)
    assert find_context_window("claude-sonnet-5-5-20261101") == MILLION


@pytest.mark.parametrize(
    "model",
    [
        "",
        "gpt-9",
        "claude-opus-5",
        "claude-opus-5-5x",
        "claude-opus-5-5-2026110",
        "claude-opus-5-5-20261101\n",
        "my-claude-opus-5-5",
        "replay:claude-opus-5-5",
        ReplayModel([], source="claude-opus-5-5").name,
    ],
)
def test_what_is_not_known_has_no_price_and_no_window(model: str) -> None:
    assert cost_usd(model, Usage()) is None
    assert cost_usd(model, Usage(output_tokens=MILLION)) is None
    assert find_context_window(model) is None


def test_the_usual_model_has_a_price_and_a_window() -> None:
    assert DEFAULT_MODEL in list_priced_models()
    assert find_context_window(DEFAULT_MODEL) == MILLION


@given(MODELS, USAGES, USAGES)
def test_two_turns_together_never_cost_less_than_one_by_one(model: str, one: Usage, other: Usage) -> None:
    together, first, second = (cost_usd(model, usage) for usage in (one + other, one, other))
    assert together is not None
    assert first is not None
    assert second is not None
    assert together >= (first + second) * (1 - 1e-9)


@given(USAGES, USAGES)
def test_where_there_is_one_price_the_cost_of_a_sum_is_the_sum_of_the_costs(one: Usage, other: Usage) -> None:
    together, first, second = (cost_usd(DEFAULT_MODEL, usage) for usage in (one + other, one, other))
    assert together == pytest.approx((first or 0) + (second or 0))


def test_the_file_says_when_and_where_it_was_looked_up() -> None:
    assert date.fromisoformat(load_prices().date) > date(2026, 1, 1)
    assert load_prices().source


@given(MODELS)
def test_each_family_can_be_priced_whatever_the_prompt_and_by_the_rule_of_the_cache(model: str) -> None:
    tiers = load_prices().models[model].tiers
    bounds = [tier.up_to_prompt_tokens for tier in tiers]
    assert bounds[-1] is None
    assert None not in bounds[:-1]
    for tier in tiers:
        assert tier.cache_read == pytest.approx(tier.input * 0.1)
        assert tier.cache_write == pytest.approx(tier.input * 1.25)


def test_the_file_is_not_read_before_it_is_asked() -> None:
    code = "from cdd_agent.model import budget; print(budget.load_prices.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "0\n"
