"""What one answer of a model used, as totals that can be added up. Pure."""

from dataclasses import asdict

from cdd_agent.events import AnswerLost, TurnEnded
from cdd_agent.model.conversation import Usage
from cdd_agent.work.state import UsageTotals


def of_answer(event: TurnEnded | AnswerLost) -> UsageTotals:
    """What the event tells of; that it was a call is not counted."""
    usage = Usage(
        input_tokens=event.input_tokens,
        output_tokens=event.output_tokens,
        cache_read_tokens=event.cache_read_tokens,
        cache_write_tokens=event.cache_write_tokens,
    )
    return of_usage(usage, cost_usd=event.cost_usd)


def of_usage(usage: Usage, *, cost_usd: float | None) -> UsageTotals:
    """The tokens and what they cost; no tokens have no cost, known or unknown."""
    return UsageTotals(**asdict(usage), cost_usd=cost_usd if usage.total else None, known_usd=cost_usd or 0.0)
