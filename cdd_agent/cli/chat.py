"""Opens the chat prompt over a project."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import click

from cdd_agent import __version__
from cdd_agent.cli.invocation import Invocation
from cdd_agent.compose import Composition
from cdd_agent.doctor.check import Check
from cdd_agent.doctor.checks import examine
from cdd_agent.errors import ExitCode
from cdd_agent.events import Event
from cdd_agent.journal import Journal
from cdd_agent.repl.place import Place, Read
from cdd_agent.repl.session import Session
from cdd_agent.settings import private_folder
from cdd_agent.tickets.ticket import Ticket, all_tickets
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates
from cdd_agent.workflows.execution.executor import Executor


def chat(invocation: Invocation, *, first: str = "") -> None:
    """Run the prompt until the user leaves; ``first`` is a line to begin with.

    Raises ``click.exceptions.Exit`` with what the session ends with, unless that is 0.
    """
    with ExitStack() as journals:
        crew = _Crew(invocation, journals)
        somebody_types = invocation.is_interactive
        if somebody_types and not first:
            _welcome(invocation, crew)
        read = _at_terminal(invocation, crew) if somebody_types else _from_input
        session = Session(crew, screen=invocation.screen, read=read, somebody_types=somebody_types)
        code = session.run(first=first)
    if code != ExitCode.DONE:
        raise click.exceptions.Exit(int(code))


def _welcome(invocation: Invocation, crew: "_Crew") -> None:
    """Say what this is, where it is, and what to type first."""
    count = len(all_tickets(crew.root))
    known = "1 ticket" if count == 1 else f"{count} tickets" if count else "no tickets yet"
    invocation.screen.line(f"cdd {__version__} turns a ticket into tested commits.", style="bold")
    first = "/status shows where they stand" if count else "/new SLUG makes one"
    invocation.screen.line(f"{crew.root}: {known}; {first}, /help the rest.", style="dim", hang=2)


class _Crew:
    """The agents of one project, the events of each going to its ticket's journal too."""

    def __init__(self, invocation: Invocation, stack: ExitStack) -> None:
        self._show = invocation.sink
        self._stack = stack
        self._journals: dict[str, Journal] = {}
        self._journal: Journal | None = None
        self._project = Composition(invocation.asking, emit=self._emit)

    @property
    def root(self) -> Path:
        return self._project.root

    @property
    def model_name(self) -> str:
        return self._project.model.name

    def socrates(self, ticket: Ticket) -> Socrates:
        self._follow(ticket)
        return self._project.socrates(ticket)

    def planner(self, ticket: Ticket) -> Planner:
        self._follow(ticket)
        return self._project.planner(ticket)

    def executor(self, ticket: Ticket) -> Executor:
        self._follow(ticket)
        return self._project.executor(ticket)

    def checks(self) -> Iterator[Check]:
        return examine(self._project.premises())

    def _follow(self, ticket: Ticket) -> None:
        """Write the events from now on to the journal of ``ticket``."""
        if ticket.slug not in self._journals:
            path = private_folder(self.root) / "journal" / ticket.slug / "events.jsonl"
            self._journals[ticket.slug] = self._stack.enter_context(
                Journal(path, clock=self._project.clock, tell=self._show)
            )
        self._journal = self._journals[ticket.slug]

    def _emit(self, event: Event) -> None:
        if self._journal is not None:
            self._journal.write(event)
        self._show(event)


def _at_terminal(invocation: Invocation, crew: _Crew) -> Read:
    """Lines that a person types; only a project remembers them."""
    from cdd_agent.repl.terminal.reader import terminal_reader

    return terminal_reader(
        private_folder(crew.root) / "history" if (crew.root / ".git").exists() else None,
        slugs=lambda: [ticket.slug for ticket in all_tickets(crew.root)],
        model=crew.model_name,
        color=invocation.color,
    )


def _from_input(_: Place) -> str:
    """One line of standard input as it is."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")
