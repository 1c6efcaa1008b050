"""What the doctor found, a line for each thing, and what to type where something is missing."""

from collections.abc import Iterable

from rich.text import Text

from cdd_agent.doctor.check import Check, State
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen

_NAME_WIDTH = 13
_LOOK = {"ok": ("open", "green"), "note": ("note", "yellow"), "missing": ("closed", "bold red")}


def show_checks(checks: Iterable[Check], *, screen: Screen) -> bool:
    """Show each check as it comes, then what they come to; whether nothing is missing."""
    missing = 0
    for check in checks:
        missing += check.state == "missing"
        _show(check, screen=screen)
    screen.gap()
    if missing:
        things = "1 thing is missing; what to type stands below it."
        if missing > 1:
            things = f"{missing} things are missing; what to type stands below each."
        screen.line(things, style="bold red", indent=0, hang=2)
    else:
        screen.line("Everything that a run needs is there.", style="bold green", indent=0)
    return not missing


def _show(check: Check, *, screen: Screen) -> None:
    """One check: its mark, its name, what was seen, and below that what to type."""
    state: State = check.state
    symbol, style = _LOOK[state]
    head = Text.assemble((f"{screen.symbols[symbol]} ", style), (f"{check.name:<{_NAME_WIDTH}}", "bold"))
    screen.line(head + clean(check.told), indent=0, hang=_NAME_WIDTH + 2)
    for detail in check.details:
        loud = detail.startswith("NOT")
        screen.line(detail, style="bold red" if loud else "dim", indent=_NAME_WIDTH + 2, hang=2)
    if check.fix:
        screen.line(Text.assemble(("fix: ", "bold yellow"), clean(check.fix)), indent=_NAME_WIDTH + 2, hang=5)
