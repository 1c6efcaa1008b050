"""Who answers, and what it takes: the model, its prices, tokens and dollars."""

from difflib import get_close_matches

from cdd_agent.errors import UsageError
from cdd_agent.model import prices
from cdd_agent.model.conversation import Usage
from cdd_agent.repl import standing
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.sitting import Sitting
from cdd_agent.tickets.ticket import find
from cdd_agent.work import state_file
from cdd_agent.work.state import UsageTotals

_SAMPLE_TOKENS = 1_000
"""Few enough for the price of a short prompt."""


def show_cost(sitting: Sitting, _argument: str) -> None:
    """What this sitting has used, and what carrying out the ticket in work has."""
    _show_used("this sitting", sitting.crew.standing.used, screen=sitting.screen)
    if sitting.slug:
        state = state_file.load(find(sitting.crew.root, sitting.slug).state_path)
        if state is not None:
            _show_used(f"all of /exec {sitting.slug}", state.usage, screen=sitting.screen)


def model(sitting: Sitting, argument: str) -> None:
    """Show who answers, how much it can read and what it costs; or let another model answer from now on."""
    if not argument:
        _show_model(sitting)
        return
    if len(argument.split()) > 1:
        raise UsageError(f"{argument!r} is not the id of a model.", hint=f"/model {argument.split(maxsplit=1)[0]}")
    sitting.crew.use_model(argument)
    sitting.crew.standing.model = argument
    sitting.crew.standing.tokens = 0
    sitting.screen.line(f"{argument} answers from now on; the conversations go on.", indent=0, hang=2)
    sitting.replace_agents()
    if prices.window(argument) is None:
        near = get_close_matches(argument, prices.known(), n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        told = f"Its price is not known, so its cost is not either, and no limit in dollars holds.{meant}"
        sitting.screen.line(f"{sitting.screen.symbols['note']} {told}", style="yellow", indent=0, hang=2)


def _show_model(sitting: Sitting) -> None:
    """Model, context and prices."""
    name = sitting.crew.model_name
    size = prices.window(name)
    sitting.screen.line(f"model    {name}", indent=0)
    if size is None:
        sitting.screen.line("context  of unknown size", indent=0)
        told = f"not known; known are those of {', '.join(prices.known())}"
        sitting.screen.line(f"prices   {told}", indent=0, hang=9)
        return
    filled = sitting.place.context_percent
    told = f", {filled} % of them filled" if filled is not None else ""
    sitting.screen.line(f"context  {size:,} tokens{told}", indent=0)
    each = {
        "read": Usage(input_tokens=_SAMPLE_TOKENS),
        "written": Usage(output_tokens=_SAMPLE_TOKENS),
        "read from the cache": Usage(cache_read_tokens=_SAMPLE_TOKENS),
        "written to it": Usage(cache_write_tokens=_SAMPLE_TOKENS),
    }
    million = 1_000_000 // _SAMPLE_TOKENS
    told = ", ".join(f"{(prices.cost_usd(name, usage) or 0.0) * million:.2f} {word}" for word, usage in each.items())
    when = prices.prices().date
    sitting.screen.line(f"prices   in USD per million tokens: {told} (of {when})", indent=0, hang=9)


def _show_used(what: str, used: UsageTotals, *, screen: Screen) -> None:
    """Calls, tokens and dollars."""
    if not used.tokens and not used.calls:
        screen.line(f"{what}: nothing was asked of a model", indent=0, hang=2)
        return
    read = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
    parts = (
        "1 call" if used.calls == 1 else f"{used.calls} calls",
        f"{read:,} tokens read",
        f"{used.cache_read_tokens:,} of them from the cache" if used.cache_read_tokens else "",
        f"{used.output_tokens:,} written",
        standing.cost(used),
    )
    screen.line(f"{what}: {'; '.join(part for part in parts if part)}", indent=0, hang=2)
