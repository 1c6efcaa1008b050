"""Asking a person at the terminal: may this take effect, may a command run, is a pause waited for, a change saved."""

import math
from collections.abc import Mapping

from rich.cells import chop_cells
from rich.text import Text

from cdd_agent.config.trust import Offer, Subject
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.typed_ahead import forget_typed_ahead
from cdd_agent.shell.permission import CommandAnswer, CommandQuestion
from cdd_agent.untrusted.text import clean

MOST_LINES = 16
"""Of an offer, on the screen; what is left out is said."""
MOST_ROWS = 24
"""Of a command, on the screen; how many are left out is said."""
_LAST_ROWS = 8
"""Of those, so many show how it ends."""
_LEAST_WIDTH = 20

_MEANS: Mapping[Subject, str] = {
    "settings": "This repository brings settings for cdd, in {source}:",
    "test command": "This repository says how its tests are run, in {source}:",
    "interpreter": "The interpreter that would run the tests lies in the project, {source}:",
    "hooks": "A commit here would run the repository's hooks, with all your rights and in no sandbox, {source}:",
    "command": "The agent wants to run a command:",
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


def may_go_back(*, screen: Screen) -> bool:
    """Whether to go the way back that was just shown, which is no unless the answer is yes.

    Raises ``KeyboardInterrupt`` where no answer comes.
    """
    return _says_yes("Go there? [y/N]", screen=screen)


def one_of(question: str, choices: tuple[str, ...], *, screen: Screen) -> int:
    """The number, from 0, of what a person chooses; asked until it is one. Raises ``KeyboardInterrupt`` for none."""
    screen.gap()
    screen.line(question, style="bold", indent=0, hang=2)
    for number, choice in enumerate(choices, start=1):
        screen.line(f"{number}. {choice}", indent=2, hang=3)
    forget_typed_ahead()
    while True:
        said = screen.ask(f"Which one? [1-{len(choices)}]").strip()
        if said.isascii() and said.isdigit() and 0 < int(said) <= len(choices):
            return int(said) - 1


def objection(*, screen: Screen) -> str | None:
    """What the developer has against saving the change that was just shown, in their words, which may be none at all.

    None: it is to be saved, which Enter says too. Raises ``KeyboardInterrupt`` where no answer comes.
    """
    forget_typed_ahead()
    while True:
        said, why = _said("Save this? [Y/n, or n and why]", screen=screen)
        match said:
            case "" | "y" | "yes":
                return None
            case "n" | "no":
                return why
        screen.line("Enter saves it; n and your words say what should be different.", indent=0)


_CLASSES: Mapping[str, str] = {
    "read": "Reads the project",
    "tests": "Runs tests",
    "write": "Writes in the project",
    "other": "Another command",
    "outside": "Reaches outside the project",
}


def may_run(question: CommandQuestion, *, screen: Screen) -> CommandAnswer:
    """Show a command, the part of it that is asked about, and why; the answer is no unless it is yes or once.

    What is typed behind a no is its reason. Raises ``KeyboardInterrupt`` where no answer comes.
    """
    screen.gap()
    screen.line("The agent asks to run:", style="bold", indent=0)
    parts = (
        question.line[: question.start],
        question.line[question.start : question.end],
        question.line[question.end :],
    )
    is_part = bool(parts[0].strip() or parts[2].strip())
    before, asked, after = (clean(part).expandtabs(4) for part in parts)
    whole = Text.assemble((before, "dim"), (asked, "bold"), (after, "dim")) if is_part else Text(asked)
    _show_rows(whole, screen=screen)
    if is_part:
        screen.line("This part is asked about:", indent=0)
        _show_rows(Text(asked, style="bold"), screen=screen)
    why = f"{_CLASSES[question.kind]}: {question.why}" if question.why else _CLASSES[question.kind]
    screen.line(f"{why}.", style="dim", indent=0, hang=2)
    if question.loses:
        warned = f"This would lose work: {question.loses}. You are asked each time."
        screen.line(warned, style="bold red", indent=0, hang=2)
        return _answer("Run it this once? [y/N, or n and why]", keeps=False, screen=screen)
    return _answer("Run it? y: always in this project, o: once, n: no, and why [y/o/N]", keeps=True, screen=screen)


def _show_rows(text: Text, *, screen: Screen) -> None:
    """A command over as many rows as it needs, folded at the width and not between words; how many more, if many."""
    width = max(_LEAST_WIDTH, screen.console.width - 4)
    found: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        places, at = [], 0
        for piece in chop_cells(line.plain, width)[:-1]:
            at += len(piece)
            places.append(at)
        found += line.divide(places)
    left_out = len(found) - MOST_ROWS
    for number, row in enumerate(found):
        if left_out <= 0 or number < MOST_ROWS - _LAST_ROWS or number >= len(found) - _LAST_ROWS:
            screen.show(Text.assemble((f"  {screen.symbols['bar']} ", "dim"), row), wrap=False)
        elif number == MOST_ROWS - _LAST_ROWS:
            screen.line(f"and {left_out} more rows, which are not shown, and then", style="bold yellow", indent=2)


def _answer(question: str, *, keeps: bool, screen: Screen) -> CommandAnswer:
    """What a person says to a command, asked until it is an answer."""
    forget_typed_ahead()
    while True:
        said, why = _said(question, screen=screen)
        match said:
            case "y" | "yes":
                return CommandAnswer(verdict="always" if keeps else "once")
            case "o" | "once":
                return CommandAnswer(verdict="once")
            case "" | "n" | "no":
                return CommandAnswer(verdict="no", reason=why)


def _said(question: str, *, screen: Screen) -> tuple[str, str]:
    """The first word of an answer, in small letters, and what stands behind it."""
    word, _, rest = screen.ask(question).strip().partition(" ")
    return word.lower().rstrip(",:"), rest.strip()


def _says_yes(question: str, *, screen: Screen) -> bool:
    """The answer to ``question``, asked until it is one; Enter alone says no."""
    forget_typed_ahead()
    while True:
        said = screen.ask(question).strip().lower()
        if said in {"y", "yes", "n", "no", ""}:
            return said in {"y", "yes"}


def show(offer: Offer, *, screen: Screen) -> None:
    """What an offer is and what it says, each line cut to the width."""
    screen.line(_MEANS[offer.subject].format(source=offer.source), style="bold", indent=0, hang=2)
    width = max(_LEAST_WIDTH, screen.console.width - 4)
    for line in offer.shown[:MOST_LINES]:
        shown = Text(clean(line).expandtabs(4))
        shown.truncate(width, overflow="ellipsis")
        screen.line(Text.assemble((f"{screen.symbols['bar']} ", "dim"), shown), indent=2)
    if len(offer.shown) > MOST_LINES:
        screen.line(f"and {len(offer.shown) - MOST_LINES} more lines; read all of {offer.source}", indent=2)
