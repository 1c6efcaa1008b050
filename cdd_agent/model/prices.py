"""Prices and context windows of known models, from ``prices.json``.

A model that is not in the file, such as a replayed recording, has an unknown cost, which is not the same as 0.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from cdd_agent.events import AnswerLost
from cdd_agent.work.state import Usage

_FILE = Path(__file__).with_name("prices.json")
_DATE = re.compile(r"-\d{8}\Z", re.ASCII)
"""The end of the id of a dated release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Dollars per ``Prices.usd_per_tokens`` tokens of each kind."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    up_to_prompt_tokens: int | None = None
    """The longest prompt at this price, including cached tokens; None means any length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrices:
    """The prices and limits of one family of models."""

    context_window: int
    """Tokens of a request and its answer together."""
    max_output: int
    """Tokens of one answer."""
    tiers: tuple[Tier, ...]
    """From the shortest prompts to those of any length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The content of the file."""

    date: str
    """The date of the prices."""
    source: str
    usd_per_tokens: int
    models: dict[str, ModelPrices]


@cache
def load_prices() -> Prices:
    """Read the file, once."""
    return msgspec.json.decode(_FILE.read_bytes(), type=Prices)


def list_priced_models() -> tuple[str, ...]:
    """Return the ids of the model families with a known price."""
    return tuple(load_prices().models)


def find_context_window(model: str) -> int | None:
    """Return the tokens of the model's context window, or None for an unknown model."""
    family = _find_family(model)
    return None if family is None else family.context_window


def cost_usd(model: str, usage: Usage) -> float | None:
    """Return the cost of one turn, or None for an unknown model.

    For the usage of several turns it is an upper bound, because their prompts together choose the tier.
    """
    family = _find_family(model)
    if family is None:
        return None
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    tier = next(tier for tier in family.tiers if tier.up_to_prompt_tokens is None or prompt <= tier.up_to_prompt_tokens)
    dollars = (
        usage.input_tokens * tier.input
        + usage.output_tokens * tier.output
        + usage.cache_read_tokens * tier.cache_read
        + usage.cache_write_tokens * tier.cache_write
    )
    return dollars / load_prices().usd_per_tokens


def make_answer_lost(model: str, usage: Usage) -> AnswerLost:
    """Return the event for an answer that costs money but did not become a turn."""
    return AnswerLost(model=model, cost_usd=cost_usd(model, usage), **usage.token_counts)


def _find_family(model: str) -> ModelPrices | None:
    return load_prices().models.get(_DATE.sub("", model))
