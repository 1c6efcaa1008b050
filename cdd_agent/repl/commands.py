"""The slash commands: a table of names, arguments and help; what each does is the session's."""

import difflib
from dataclasses import dataclass

from cdd_agent.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One slash command."""

    name: str
    argument: str
    """As help shows it; empty for none."""
    help: str
    takes_slug: bool = False
    """Whether ticket slugs complete its argument."""


COMMANDS = (
    Command(
        name="spec", argument="[SLUG]", help="Socrates questions a ticket until its spec is complete", takes_slug=True
    ),
    Command(name="plan", argument="[SLUG]", help="the Planner writes the plan of a complete spec", takes_slug=True),
    Command(name="exec", argument="[SLUG]", help="the Executor carries the plan out, test first", takes_slug=True),
    Command(name="new", argument="SLUG [TITLE]", help="make a ticket"),
    Command(name="status", argument="[SLUG]", help="tickets, or the steps of one", takes_slug=True),
    Command(name="help", argument="", help="this list"),
    Command(name="exit", argument="", help="leave; everything is saved already"),
)

EXECUTOR_WORDS = {
    "continue": ("c", "next", "n", ""),
    "retry": ("r",),
    "skip": ("s",),
    "status": ("st",),
    "exit": (),
}
"""What the Executor listens to -> other ways to say it."""


def parse(line: str) -> tuple[Command, str]:
    """The command and argument of a line that begins with a slash; raises ``UsageError`` with the nearest name."""
    name, _, argument = line[1:].strip().partition(" ")
    by_name = {command.name: command for command in COMMANDS}
    if name not in by_name:
        near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.4)
        hint = f"did you mean /{near[0]}?" if near else "/help lists the commands"
        raise UsageError(f"There is no command /{name}.", hint=hint)
    return by_name[name], argument.strip()


def executor_word(line: str) -> str | None:
    """The word of ``EXECUTOR_WORDS`` that a line says, or None.

    >>> executor_word("N"), executor_word("what?")
    ('continue', None)
    """
    said = line.strip().lower()
    return next((word for word, others in EXECUTOR_WORDS.items() if said == word or said in others), None)


def help_lines() -> list[tuple[str, str]]:
    """What to type and what it does."""
    lines = [(f"/{command.name} {command.argument}".rstrip(), command.help) for command in COMMANDS]
    lines.append(("Inside /spec", "answer in plain words"))
    lines.append(("Inside /plan", "say in plain words what the plan should do differently"))
    lines.append(("Inside /exec", "continue (or an empty line), retry, skip, status, exit"))
    lines.append(("Ctrl-C", "stops what is running; the session goes on"))
    lines.append(("Ctrl-D", "leaves, like /exit"))
    return lines
