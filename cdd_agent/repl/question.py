"""The questions that cdd asks at the terminal: approve, wait, roll back, choose, save, and run a command.

Without an answer, each raises ``KeyboardInterrupt``. Where Enter alone is an answer, it is the safe one.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rich.cells import chop_cells
from rich.text import Text

from cdd_agent.config.settings import CONFIG_FILE
from cdd_agent.config.trust import Offer, Subject
from cdd_agent.errors import format_count
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.terminal import KEYBOARD
from cdd_agent.shell.permission import CommandAnswer, CommandQuestion
from cdd_agent.untrusted.text import clean

T = TypeVar("T")
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
    "push hooks": "A push would run the repository's hooks without a sandbox and with all your rights, {source}:",
    "agent hooks": "This repository has hooks, which run in the sandbox at events of a run, {source}:",
    "own command": "This repository has a slash command, whose text would be sent to the agent, {source}:",
    "ignored files": "This repository has a list of ignored files that the agent and the tests could read, {source}:",
    "command": "The agent wants to run a command:",
    "records": "Nothing shows that cdd wrote these records for you, {source}:",
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
    """Show the first rows of an offer, each line folded at the width: the end of a long one must not be hidden."""
    screen.line(_HEADINGS[offer.subject].format(source=offer.source), style="bold")
    width = max(_MIN_WIDTH, screen.console.width - 4)
    rows = [row for line in offer.shown for row in chop_cells(clean(line).expandtabs(4), width) or [""]]
    for row in rows[:MOST_LINES]:
        screen.show(Text.assemble((f"  {screen.symbols['bar']} ", "dim"), row), wrap=False)
    if len(rows) > MOST_LINES:
        where = f"{CONFIG_FILE} and the files that its hooks name" if offer.subject == "agent hooks" else offer.source
        screen.line(f"and {format_count(len(rows) - MOST_LINES, 'more line')}; read all of {where}", indent=2)


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
    numbers = tuple(map(str, range(1, len(choices) + 1)))
    text, otherwise = (
        f"Which one? [1-{len(choices)}]",
        f"Type a number from 1 to {len(choices)}, or words of one choice.",
    )
    return _ask(
        text, numbers, understand=lambda answer: match_choice(answer, choices), otherwise=otherwise, screen=screen
    )


_NUMBERED = re.compile(r"#?(?P<number>\d{1,9})\s*(?:[.):]\s*)?(?P<words>.*)", re.DOTALL)
_END_OF_LABEL = re.compile(r"[:;,(]\s|$")


def match_choice(answer: str, choices: Sequence[str]) -> int | None:
    """Return the index of the choice that an answer names: by number, by words of its label, or by both.

    The label of a choice is its beginning, up to a colon or comma. Its explanation does not count: that of one choice
    may name another one.

    >>> choices = ("mine: keep my changes", "theirs: replace these files, and lose my changes")
    >>> match_choice("2", choices), match_choice("theirs", choices), match_choice("2. theirs", choices)
    (1, 1, 1)
    >>> match_choice("1 theirs", choices), match_choice("my changes", choices)
    (None, None)
    """
    numbered = _NUMBERED.fullmatch(answer.strip())
    number, words = (int(numbered["number"]) - 1, numbered["words"]) if numbered else (None, answer)
    if number is not None and not words.strip():
        return number if 0 <= number < len(choices) else None
    typed = _list_words(words)
    labels = [
        _list_words(choice[: found.start()] if (found := _END_OF_LABEL.search(choice)) else choice)
        for choice in choices
    ]
    named = [at for at, choice in enumerate(choices) if typed and typed == _list_words(choice)]
    named = named or [at for at, label in enumerate(labels) if typed and set(typed) <= set(label)]
    return named[0] if len(named) == 1 and number in (None, named[0]) else None


def _list_words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def ask_objection(*, screen: Screen) -> str | None:
    """Ask whether to save the change just shown. Return None for yes or Enter, else the reason, which may be empty."""

    def understand(answer: str) -> tuple[str | None] | None:
        word, why = _split(answer)
        return {"": (None,), "y": (None,), "yes": (None,), "n": (why,), "no": (why,)}.get(word)

    text, otherwise = "Save this? [Y/n, or n and why]", "Press Enter to save it, or type n and what to change."
    return _ask(text, ("y", "n"), understand=understand, otherwise=otherwise, screen=screen)[0]


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

    def understand(answer: str) -> CommandAnswer | None:
        word, why = _split(answer)
        match word:
            case "y" | "yes":
                return CommandAnswer(verdict="once")
            case "a" | "always":
                return CommandAnswer(verdict="always")
            case "" | "n" | "no":
                return CommandAnswer(verdict="no", reason=why)
        return None

    text = "Run it? y: once, a: always in this project, n: no, and why [y/a/N]"
    return _ask(text, ("y", "a", "n"), understand=understand, screen=screen)


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


def confirm(question: str, *, screen: Screen) -> bool:
    """Ask whether to do something that was just shown; Enter alone is a no."""
    meanings = {"y": True, "yes": True, "n": False, "no": False, "": False}
    return _ask(question, ("y", "n"), understand=lambda answer: meanings.get(answer.lower()), screen=screen)


def _split(answer: str) -> tuple[str, str]:
    word, _, rest = answer.partition(" ")
    return word.lower().rstrip(",:"), rest.strip()


def _ask(
    question: str, words: tuple[str, ...], *, understand: Callable[[str], T | None], otherwise: str = "", screen: Screen
) -> T:
    """Ask until ``understand`` returns the meaning of the answer; after another answer, show ``otherwise``."""
    KEYBOARD.set_aside()
    while True:
        answer = screen.ask(question, words=words).strip()
        if (meaning := understand(answer)) is not None:
            return meaning
        # The user was typing it when the question appeared; but a number was a choice that there is not.
        if not answer.isdecimal() and KEYBOARD.give_back(answer):
            screen.line(f"Kept for the prompt, where Enter sends it: {clean(answer)}", style="dim")
        if otherwise:
            screen.line(otherwise)
