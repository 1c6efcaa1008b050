"""An estimate of the requests, tokens and costs of a generation, made before the first request. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cdd_agent.model.budget import Ceiling, cost_usd
from cdd_agent.tdd.context import Policy
from cdd_agent.work.state import Usage

_LIKELY_REQUESTS = 3
"""Requests of a phase that opens its gate at the first try: write, run the tests, hand in."""
_TOKENS = {"least": 3_000, "likely": 5_500, "most": 12_000}
"""Tokens of a request and its answer. Measured: 201,000 tokens in 37 requests of a plan with four steps."""
_TOKENS_PER_ANSWER = 400
"""Of a node that the Architect gets, and of its answer."""
_OUTPUT_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A quantity that is not known yet."""

    least: int
    likely: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one role will use."""

    role: str
    model: str
    requests: Range
    tokens: Range
    usd: tuple[float, float, float] | None
    """Least, likely and most; None if the price of the model is not known."""


def estimate_nodes(phases: int, *, model: str, policy: Policy) -> Estimate:
    """Return the estimate for the ``phases`` of all nodes, and the integration tests of subgraphs.

    Least: each phase takes one request. Likely: each opens at the first try. Most: every attempt of every node is made,
    with all its turns.
    """
    requests = Range(
        least=phases, likely=phases * _LIKELY_REQUESTS, most=phases * policy.max_attempts * policy.budget.max_turns
    )
    return _estimate("generator", model=model, requests=requests)


def estimate_answers(count: int, *, model: str, max_drafts: int) -> Estimate:
    """Return the estimate for the request with which the Architect closes ``count`` gaps before the skeleton."""
    requests = Range(least=1, likely=1, most=max_drafts)
    return _estimate("architect", model=model, requests=requests, more=count * _TOKENS_PER_ANSWER)


def _estimate(role: str, *, model: str, requests: Range, more: int = 0) -> Estimate:
    """Return the estimate for ``requests``, each with some ``more`` tokens than usual."""
    tokens = Range(**{name: getattr(requests, name) * (each + more) for name, each in _TOKENS.items()})
    costs = [_price(model, each) for each in (tokens.least, tokens.likely, tokens.most)]
    known = [cost for cost in costs if cost is not None]
    usd = (known[0], known[1], known[2]) if len(known) == len(costs) else None
    return Estimate(role=role, model=model, requests=requests, tokens=tokens, usd=usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of the whole run, and what is expected of what it limits."""

    name: str
    """The setting or option."""
    amount: float
    noun: str
    """What is limited; ``USD`` for dollars."""
    least: float
    likely: float


def compare_with_limits(estimates: Sequence[Estimate], ceiling: Ceiling) -> Iterator[Limit]:
    """Yield the limits of a whole run with the sums of the estimates; none for dollars if a price is not known."""
    tokens, requests = [each.tokens for each in estimates], [each.requests for each in estimates]
    prices = [each.usd for each in estimates if each.usd is not None]
    if ceiling.usd and len(prices) == len(estimates):
        least, likely = (sum(each[at] for each in prices) for at in (0, 1))
        name = ceiling.usd_option or "max_usd_per_ticket"
        yield Limit(name=name, amount=ceiling.usd, noun="USD", least=least, likely=likely)
    for kind, noun, ranges in (("tokens", "tokens", tokens), ("calls", "requests", requests)):
        if amount := getattr(ceiling, kind):
            least, likely = sum(each.least for each in ranges), sum(each.likely for each in ranges)
            yield Limit(name=f"max_{kind}_per_ticket", amount=amount, noun=noun, least=least, likely=likely)


def _price(model: str, tokens: int) -> float | None:
    output = int(tokens * _OUTPUT_SHARE)
    return cost_usd(model, Usage(input_tokens=tokens - output, output_tokens=output))
