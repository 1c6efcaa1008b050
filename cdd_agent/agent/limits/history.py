"""What was used on a ticket before this sitting."""

from dataclasses import replace
from pathlib import Path

from cdd_agent.agent.limits.used import of_answer
from cdd_agent.errors import UsageError
from cdd_agent.events import TurnEnded
from cdd_agent.events.codec import decode
from cdd_agent.storage import read_ordinary
from cdd_agent.work import state_file
from cdd_agent.work.state import UsageTotals

LIMIT_BYTES = 64_000_000
"""Of a journal that is read for this: the words of some ten thousand turns."""

CARRIES_OUT = "executor"
"""The agent whose usage is in the ticket's state."""


def talked(journal: Path) -> UsageTotals:
    """What conversations on a ticket have used, as far as its journal tells.

    Lines that cannot be read are passed over, and so is a journal that is no ordinary file or too large.
    """
    try:
        lines = read_ordinary(journal, limit_bytes=LIMIT_BYTES).splitlines()
    except OSError:
        return UsageTotals()
    total = UsageTotals()
    for line in lines:
        if b'"TurnEnded"' in line:
            total += _of_turn(line)
    return total


def carried_out(state: Path) -> UsageTotals:
    """What the steps of a ticket have used, as its state tells; nothing if it cannot be read."""
    try:
        saved = state_file.load(state)
    except UsageError:
        return UsageTotals()
    return UsageTotals() if saved is None else saved.usage


def _of_turn(line: bytes) -> UsageTotals:
    """What the turn in a line of the journal used, if it was one of a conversation."""
    try:
        event = decode(line)
    except ValueError:
        return UsageTotals()
    if not isinstance(event, TurnEnded) or event.agent == CARRIES_OUT:
        return UsageTotals()
    counts = (event.input_tokens, event.output_tokens, event.cache_read_tokens, event.cache_write_tokens)
    if min(*counts, event.cost_usd or 0) < 0:
        return UsageTotals()
    return replace(of_answer(event), calls=1)
