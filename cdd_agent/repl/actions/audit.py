"""What an audit found: a table of handoffs and claims for each ticket, and below it what does not hold."""

from collections.abc import Sequence
from itertools import groupby

from rich.table import Table
from rich.text import Text

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.sitting import Sitting
from cdd_agent.workflows.audit.claim import CLAIMS, Audited, Claim

_LOOK = {True: ("open", "green"), False: ("closed", "bold red"), None: ("note", "yellow")}
_SHORT = 8


def audit(sitting: Sitting, argument: str) -> None:
    """Hold the handoff notes of a range against history and tests."""
    sitting.screen.say("reading notes")
    show_audit(sitting.crew.auditor().run(argument or "HEAD"), screen=sitting.screen)


def show_audit(audited: Sequence[Audited], *, screen: Screen) -> None:
    """Every handoff with its claims, what does not hold or cannot be told, and what it all comes to."""
    for ticket, handoffs in groupby(audited, key=lambda each: each.ticket):
        screen.gap()
        screen.line(Text(clean(ticket) or "no ticket", style="bold"), indent=0, hang=2)
        _show_table(tuple(handoffs), screen=screen)
    screen.gap()
    for each in audited:
        for claim in each.claims:
            if not claim.holds:
                _tell(each, claim, screen=screen)
    _sum_up(audited, screen=screen)


def _show_table(audited: Sequence[Audited], *, screen: Screen) -> None:
    """The handoffs of one ticket with their claims."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("cycle", "phase", "commit", *CLAIMS):
        table.add_column(heading, no_wrap=True)
    for each in audited:
        marks = (_mark(each, name, screen=screen) for name in CLAIMS)
        table.add_row(str(each.cycle or ""), each.phase, each.commit[:_SHORT], *marks)
    screen.show(table)


def _mark(audited: Audited, name: str, *, screen: Screen) -> Text:
    """Whether a claim holds; nothing where it is not made."""
    claim = next((claim for claim in audited.claims if claim.name == name), None)
    if claim is None:
        return Text()
    symbol, style = _LOOK[claim.holds]
    return Text(screen.symbols[symbol], style=style)


def _tell(audited: Audited, claim: Claim, *, screen: Screen) -> None:
    """One claim that does not hold, or of which nothing can be told."""
    symbol, style = _LOOK[claim.holds]
    of = f"{audited.phase} of {audited.ticket}, cycle {audited.cycle}, " if audited.phase else ""
    head = Text.assemble((f"{screen.symbols[symbol]} {clean(of)}{audited.commit[:_SHORT]}: {claim.name}: ", style))
    screen.line(head + clean(claim.told), indent=0, hang=2)


def _sum_up(audited: Sequence[Audited], *, screen: Screen) -> None:
    """How many claims hold."""
    claims = [claim for each in audited for claim in each.claims]
    failed, unknown = (sum(claim.holds is holds for claim in claims) for holds in (False, None))
    told = f"{_count(len(audited), 'handoff')}, {_count(len(claims), 'claim')}: "
    if failed:
        screen.line(told + f"{failed} not true.", style="bold red", indent=0, hang=2)
    elif unknown:
        screen.line(told + f"{unknown} cannot be told, the rest true.", style="bold yellow", indent=0, hang=2)
    else:
        screen.line(told + "all true.", style="bold green", indent=0, hang=2)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
