"""The slash commands: a table of names, arguments and help; what each does is the session's."""

import difflib
import re
from dataclasses import dataclass

from cdd_agent.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One slash command."""

    name: str
    argument: str
    """As help shows it; empty for none."""
    help: str


COMMANDS = (
    Command(name="spec", argument="[SLUG]", help="Socrates questions a ticket until its spec is complete"),
    Command(name="plan", argument="[SLUG]", help="the Planner writes the plan of a complete spec"),
    Command(name="exec", argument="[SLUG]", help="the Executor carries the plan out, test first"),
    Command(name="review", argument="[SLUG]", help="look at what completed steps changed, approve"),
    Command(name="green", argument="TEST...", help="code for tests that fail already"),
    Command(name="tdd", argument="[WORD ...]", help="run TEXT, resume, status, history, rollback COMMIT, repair-notes"),
    Command(name="audit", argument="[RANGE]", help="check what handoff notes claim, by running the tests again"),
    Command(name="back", argument="", help="the agent before, its conversation as it was"),
    Command(name="new", argument="SLUG [TITLE]", help="make a ticket to fill in"),
    Command(name="status", argument="[SLUG]", help="the tickets, or where one stands"),
    Command(name="cost", argument="", help="tokens and dollars, of this sitting and of the ticket"),
    Command(name="model", argument="[MODEL]", help="who answers, and its prices; or let another one answer"),
    Command(name="compact", argument="", help="let a summary take the conversation's place"),
    Command(name="clear", argument="", help="a new conversation with the same agent"),
    Command(name="resume", argument="[SESSION]", help="go on with the last session, or with the one named"),
    Command(name="doctor", argument="", help="what a run needs, looked at, and the sandbox proved"),
    Command(name="help", argument="", help="this list"),
    Command(name="exit", argument="", help="leave; everything is saved already"),
)

TDD_WORDS = {
    "run": "TEXT: build the feature that it asks for",
    "resume": "go on from the phase after the last one that landed",
    "status": "where the run stands",
    "history": "what the phases handed over, newest first",
    "rollback": "COMMIT: go back to it; --undo brings it all back",
    "repair-notes": "say what is wrong with the handoff notes; --apply mends it",
}
"""The words after ``/tdd`` -> what follows them, and what they do."""

EXECUTOR_WORDS = {
    "continue": ("c", "next", "n", ""),
    "retry": ("r",),
    "skip": ("s",),
    "done": ("d",),
    "commit": (),
    "keep": ("k",),
    "status": ("st",),
    "exit": (),
}
"""What the Executor listens to -> other ways to say it."""

TAKE_A_STEP = frozenset({"retry", "skip", "done"})
"""Those of them that the number of a step may follow."""


def parse(line: str) -> tuple[Command, str]:
    """The command and argument of a line that begins with a slash.

    The beginning of a name that only one command has is enough. Raises ``UsageError`` with the nearest names.
    """
    name, _, argument = line[1:].strip().partition(" ")
    by_name = {command.name: command for command in COMMANDS}
    begun = [known for known in by_name if name and known.startswith(name)]
    if name in by_name or len(begun) == 1:
        return by_name[name if name in by_name else begun[0]], argument.strip()
    near = begun or difflib.get_close_matches(name, by_name, n=1, cutoff=0.4)
    meant = f"did you mean {' or '.join(f'/{known}' for known in near)}? " if near else ""
    raise UsageError(f"There is no command /{name}.", hint=f"{meant}/help lists the commands")


def at_prompt(hint: str) -> str:
    """``hint`` with the commands of the shell that have no options as they are typed at the prompt.

    >>> at_prompt("draft it anew: cdd plan csv-export")
    'draft it anew: /plan csv-export'
    """
    names = "|".join(command.name for command in COMMANDS)
    return re.sub(rf"\bcdd (?=(?:{names})\b(?!.* --))", "/", hint)


def executor_word(line: str) -> str | None:
    """The word of ``EXECUTOR_WORDS`` that a line says, or None.

    >>> executor_word("N"), executor_word("what?")
    ('continue', None)
    """
    said = line.strip().lower()
    return next((word for word, others in EXECUTOR_WORDS.items() if said == word or said in others), None)


def help_lines() -> tuple[tuple[str, str], ...]:
    """What to type and what it does."""
    return (
        *((f"/{command.name} {command.argument}".rstrip(), command.help) for command in COMMANDS),
        ("", ""),
        ("in /spec", "a number or your own words; later leaves the question open, Enter shows it again"),
        ("@path", "in plain words: the agent is given that file"),
        ("in /plan", "say in plain words what the plan should do differently"),
        ("in /exec", "Enter or continue runs a step; retry N, skip N, done N, status, exit"),
        ("", "commit or keep changes that you made by hand"),
        ("in /review", "approve, next, previous, diff [FILE], the number of a step, exit"),
        ("", ""),
        ("Ctrl-C", "stops what is running; the session goes on"),
        ("Ctrl-D", "leaves, like /exit"),
    )
