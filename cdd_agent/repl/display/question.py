"""Asking a person at the terminal: may what a repository brings take effect, is a long pause to be waited for."""

import math
from collections.abc import Mapping

from rich.text import Text

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.terminal.typed_ahead import forget_typed_ahead
from cdd_agent.trust import Offer, Subject

MOST_LINES = 16
"""Of an offer, on the screen; what is left out is said."""
_LEAST_WIDTH = 20

_MEANS: Mapping[Subject, str] = {
    "settings": "This repository brings settings for cdd, in {source}:",
    "interpreter": "The interpreter that would run the tests lies in the project, {source}:",
    "hooks": "A commit here would run the repository's hooks, with all your rights and in no sandbox, {source}:",
}


def may_take_effect(offer: Offer, changed: bool, *, screen: Screen) -> bool:
    """Show what would take effect and return the answer, which is no unless it is yes.

    ``changed``: the user has decided about another content before. Raises ``KeyboardInterrupt`` where no answer comes.
    """
    screen.gap()
    show(offer, screen=screen)
    if changed:
        screen.line("It has changed since you decided about it.", style="bold yellow", indent=0)
    told = f"Say yes if you made it, or know it. If you say no, {offer.without}. Only a change is asked about again."
    screen.line(told, style="dim", indent=0)
    return _says_yes("Let it take effect? [y/N]", screen=screen)


def may_wait(why: str, wait_s: float, *, screen: Screen) -> bool:
    """Whether to make a long pause that the model's service asks for, which is no unless the answer is yes.

    Raises ``KeyboardInterrupt`` where no answer comes.
    """
    minutes = math.ceil(wait_s / 60)
    screen.line(f"{why}: the model's service asks to wait {minutes} minutes.", style="yellow", indent=0, hang=2)
    return _says_yes("Wait? Ctrl-C ends the wait. [y/N]", screen=screen)


def _says_yes(question: str, *, screen: Screen) -> bool:
    """The answer to ``question``, asked until it is one."""
    forget_typed_ahead()
    while True:
        try:
            said = screen.ask(question).strip().lower()
        except EOFError as error:
            raise KeyboardInterrupt from error
        if said in {"y", "yes", "n", "no", ""}:
            return said in {"y", "yes"}


def show(offer: Offer, *, screen: Screen) -> None:
    """What an offer is and what it says, each line cut to the width."""
    screen.line(_MEANS[offer.subject].format(source=offer.source), style="bold", indent=0, hang=2)
    width = max(_LEAST_WIDTH, screen.console.width - 4)
    for line in offer.shown[:MOST_LINES]:
        shown = Text(clean(line).expandtabs(4))
        shown.truncate(width, overflow="ellipsis")
        screen.line(Text.assemble(("│ ", "dim"), shown), indent=2)
    if len(offer.shown) > MOST_LINES:
        screen.line(f"and {len(offer.shown) - MOST_LINES} more lines; read all of {offer.source}", indent=2)
