"""The questions that cdd asks at the terminal: approve, wait, roll back, choose, save, and run a command.

Without an answer, each raises ``KeyboardInterrupt``. Where Enter alone is an answer, it is the safe one.
"""

import math
from collections.abc import Mapping

from rich.cells import chop_cells
from rich.text import Text

from cdd_agent.config.trust import Offer, Subject
from cdd_agent.errors import format_count
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.terminal import KEYBOARD
from cdd_agent.shell.permission import CommandAnswer, CommandQuestion
from cdd_agent.untrusted.text import clean

MOST_LINES = 16
MOST_ROWS = 24
_LAST_ROWS = 8
"""How many of these rows show the end of the command."""
_MIN_WIDTH = 20

_HEADINGS: Mapping[Subject, str] = {
    "settings": "This repository contains settings for cdd, in {source}:",
    "test command": "This repository names the command that runs its tests, in {source}:",
    "interpreter": "The interpreter that would run the tests is inside the project, {source}:",
    "hooks": "A commit here would run the repository's hooks without a sandbox and with all your rights, {source}:",
    "agent hooks": "This repository has hooks, which run in the sandbox at events of a run, {source}:",
    "own command": "This repository has a slash command, whose text would be sent to the agent, {source}:",
    "command": "The agent wants to run a command:",
}
_CLASSES: Mapping[str, str] = {
    "read": "Reads the project",
    "tests": "Runs tests",
    "write": "Writes in the project",
    "other": "Another command",
}


def ask_approval(offer: Offer, changed: bool, *, screen: Screen) -> bool:
    """Ask whether an offer may take effect. ``changed`` says that the user decided about other content before."""
    screen.gap()
    show_offer(offer, screen=screen)
    if changed:
        screen.line("It has changed since you decided about it.", style="bold yellow")
    text = f"Answer yes only if you know and trust it. If you say no, {offer.without}. cdd asks again if it changes."
    screen.line(text, style="dim")
    return confirm("Let it take effect? [y/N]", screen=screen)


def show_offer(offer: Offer, *, screen: Screen) -> None:
    """Show the content of an offer, each line cut to the width."""
    screen.line(_HEADINGS[offer.subject].format(source=offer.source), style="bold")
    width = max(_MIN_WIDTH, screen.console.width - 4)
    for line in offer.shown[:MOST_LINES]:
        row = Text(clean(line).expandtabs(4))
        row.truncate(width, overflow="ellipsis")
        screen.line(Text.assemble((f"{screen.symbols['bar']} ", "dim"), row), indent=2)
    if len(offer.shown) > MOST_LINES:
        more = format_count(len(offer.shown) - MOST_LINES, "more line")
        screen.line(f"and {more}; read all of {offer.source}", indent=2)


def ask_to_wait(why: str, wait_s: float, *, screen: Screen) -> bool:
    """Ask whether to make the long pause that the model's service demands."""
    minutes = math.ceil(wait_s / 60)
    screen.line(f"{why}: the model's service asks to wait {minutes} minutes.", style="yellow")
    return confirm("Wait? Ctrl-C ends the wait. [y/N]", screen=screen)


def ask_choice(question: str, choices: tuple[str, ...], *, screen: Screen) -> int:
    """Ask which of ``choices`` the user wants and return its index."""
    screen.gap()
    screen.line(question, style="bold")
    for number, choice in enumerate(choices, start=1):
        screen.line(f"{number}. {choice}", indent=2, hang=3)
    KEYBOARD.set_aside()
    while True:
        numbers = [str(number) for number in range(1, len(choices) + 1)]
        answer = screen.ask(f"Which one? [1-{len(choices)}]", words=numbers).strip()
        if answer.isascii() and answer.isdigit() and 0 < int(answer) <= len(choices):
            return int(answer) - 1
        _keep_for_prompt(answer, screen=screen)


def ask_objection(*, screen: Screen) -> str | None:
    """Ask whether to save the change just shown. Return None for yes or Enter, else the reason, which may be empty."""
    KEYBOARD.set_aside()
    while True:
        word, why = _ask_word("Save this? [Y/n, or n and why]", ("y", "n"), screen=screen)
        match word:
            case "" | "y" | "yes":
                return None
            case "n" | "no":
                return why
        _keep_for_prompt(f"{word} {why}", screen=screen)
        screen.line("Press Enter to save it, or type n and what to change.")


def ask_permission(question: CommandQuestion, *, screen: Screen) -> CommandAnswer:
    """Show a command with the reason for the question, and ask whether it may run. A no can carry a reason."""
    screen.gap()
    screen.line("The agent asks to run:", style="bold")
    start, end = question.start, question.end
    is_part = bool(question.line[:start].strip() or question.line[end:].strip())
    parts = (question.line[:start], question.line[start:end], question.line[end:])
    before, asked, after = (clean(part).expandtabs(4) for part in parts)
    whole = Text.assemble((before, "dim"), (asked, "bold"), (after, "dim")) if is_part else Text(asked)
    _show_rows(whole, screen=screen)
    if is_part:
        screen.line("This part needs your approval:")
        _show_rows(Text(asked, style="bold"), screen=screen)
    why = f"{_CLASSES[question.kind]}: {question.why}" if question.why else _CLASSES[question.kind]
    screen.line(f"{why}.", style="dim")
    if question.pattern:
        screen.line(f"Always would cover: {clean(question.pattern)}", style="dim")
    KEYBOARD.set_aside()
    while True:
        text = "Run it? y: once, a: always in this project, n: no, and why [y/a/N]"
        word, why = _ask_word(text, ("y", "a", "n"), screen=screen)
        match word:
            case "y" | "yes":
                return CommandAnswer(verdict="once")
            case "a" | "always":
                return CommandAnswer(verdict="always")
            case "" | "n" | "no":
                return CommandAnswer(verdict="no", reason=why)
        _keep_for_prompt(f"{word} {why}", screen=screen)


def _show_rows(text: Text, *, screen: Screen) -> None:
    """Show a command in full, or its first and last rows, folded at the width rather than between words."""
    width = max(_MIN_WIDTH, screen.console.width - 4)
    rows: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        offsets, at = [], 0
        for piece in chop_cells(line.plain, width)[:-1]:
            at += len(piece)
            offsets.append(at)
        rows += line.divide(offsets)
    hidden = len(rows) - MOST_ROWS
    for number, row in enumerate(rows):
        if hidden <= 0 or number < MOST_ROWS - _LAST_ROWS or number >= len(rows) - _LAST_ROWS:
            screen.show(Text.assemble((f"  {screen.symbols['bar']} ", "dim"), row), wrap=False)
        elif number == MOST_ROWS - _LAST_ROWS:
            screen.line(f"and {hidden} more rows, which are not shown, and then", style="bold yellow", indent=2)


def _ask_word(question: str, words: tuple[str, ...], *, screen: Screen) -> tuple[str, str]:
    word, _, rest = screen.ask(question, words=words).strip().partition(" ")
    return word.lower().rstrip(",:"), rest.strip()


def confirm(question: str, *, screen: Screen) -> bool:
    """Ask whether to do something that was just shown; Enter alone is a no."""
    KEYBOARD.set_aside()
    while True:
        answer = screen.ask(question, words=("y", "n")).strip()
        if answer.lower() in {"y", "yes", "n", "no", ""}:
            return answer.lower() in {"y", "yes"}
        _keep_for_prompt(answer, screen=screen)


def _keep_for_prompt(answer: str, *, screen: Screen) -> None:
    """Keep a line that answers no question: the user was typing it when the question appeared."""
    if KEYBOARD.give_back(answer):
        screen.line(f"Kept for the prompt: {KEYBOARD.typed.queued[-1]}", style="dim")
