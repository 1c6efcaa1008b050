"""What the known models cost and how much they can read, from ``prices.json``, which is read at the first question.

A model that is not in the file has no price, which is not the same as a price of 0: nothing is said of its cost. So a
recording that is played back has none either.
"""

import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import msgspec

from cdd_agent.events import AnswerLost
from cdd_agent.model.conversation import Usage

_FILE = Path(__file__).with_name("prices.json")
_DATE = re.compile(r"-\d{8}\Z", re.ASCII)
"""What the id of one release of a model ends with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Dollars for ``Prices.usd_per_tokens`` tokens of each kind."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    up_to_prompt_tokens: int | None = None
    """The longest prompt that is paid for like this, cached or not; nothing: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrices:
    """One family of models."""

    context_window: int
    """Tokens that one request and its answer may have together."""
    max_output: int
    """Tokens of one answer."""
    tiers: tuple[Tier, ...]
    """The shortest prompts first; the last one is for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The whole file."""

    date: str
    """When it was looked up."""
    source: str
    usd_per_tokens: int
    models: dict[str, ModelPrices]


@cache
def prices() -> Prices:
    """What the file says."""
    return msgspec.json.decode(_FILE.read_bytes(), type=Prices)


def known() -> tuple[str, ...]:
    """The ids of the families whose price is known."""
    return tuple(prices().models)


def window(model: str) -> int | None:
    """How many tokens ``model`` can have before it; None for a model that is not known."""
    found = _family(model)
    return None if found is None else found.context_window


def cost_usd(model: str, usage: Usage) -> float | None:
    """What one turn of ``model`` costs by the list; None for a model that is not known.

    Of the usage of several turns it is at least their cost: the tier is chosen by all of their prompts together.
    """
    found = _family(model)
    if found is None:
        return None
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    tier = next(tier for tier in found.tiers if tier.up_to_prompt_tokens is None or prompt <= tier.up_to_prompt_tokens)
    dollars = (
        usage.input_tokens * tier.input
        + usage.output_tokens * tier.output
        + usage.cache_read_tokens * tier.cache_read
        + usage.cache_write_tokens * tier.cache_write
    )
    return dollars / prices().usd_per_tokens


def lost(model: str, usage: Usage) -> AnswerLost:
    """The event of an answer that is paid for and did not become a turn."""
    return AnswerLost(model=model, cost_usd=cost_usd(model, usage), **asdict(usage))


def _family(model: str) -> ModelPrices | None:
    """What is known of ``model``; the id of a dated release has its family's prices."""
    return prices().models.get(_DATE.sub("", model))
