"""Opens the chat prompt over a project."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cdd_agent.cli.invocation import Invocation
from cdd_agent.compose import Composition
from cdd_agent.events import Event
from cdd_agent.journal import Journal
from cdd_agent.repl.session import Place, Read, Session, terminal_reader
from cdd_agent.settings import private_folder
from cdd_agent.tickets.ticket import Ticket, all_tickets
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates
from cdd_agent.workflows.execution.executor import Executor


def chat(invocation: Invocation, *, first: str = "") -> None:
    """Run the prompt until the user leaves; ``first`` is a line to begin with."""
    with _crew(invocation) as crew:
        session = Session(crew, screen=invocation.screen, read=_reader(invocation, crew))
        if invocation.is_interactive and not first:
            invocation.screen.line("cdd turns a ticket into tested commits. /help shows what to type.", style="dim")
        session.run(first=first)


class _Crew:
    """The agents of one project, the events of each going to its ticket's journal too."""

    def __init__(self, invocation: Invocation, stack: ExitStack) -> None:
        self._show = invocation.screen.write
        self._stack = stack
        self._journals: dict[str, Journal] = {}
        self._journal: Journal | None = None
        self._project = Composition(invocation.options, emit=self._emit)

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

    def _follow(self, ticket: Ticket) -> None:
        """Write the events from now on to the journal of ``ticket``."""
        if ticket.slug not in self._journals:
            path = private_folder(self.root) / "journal" / ticket.slug / "events.jsonl"
            self._journals[ticket.slug] = self._stack.enter_context(Journal(path, clock=self._project.clock))
        self._journal = self._journals[ticket.slug]

    def _emit(self, event: Event) -> None:
        self._show(event)
        if self._journal is not None:
            self._journal.write(event)


@contextmanager
def _crew(invocation: Invocation) -> Iterator[_Crew]:
    """The crew, its journals closed after the block."""
    with ExitStack() as stack:
        yield _Crew(invocation, stack)


def _reader(invocation: Invocation, crew: _Crew) -> Read:
    """Lines from the terminal, or, where there is none, from standard input as it is."""
    if invocation.is_interactive:
        history = private_folder(crew.root) / "history"
        return terminal_reader(
            history, slugs=lambda: [ticket.slug for ticket in all_tickets(crew.root)], status=lambda: crew.model_name
        )

    def read(_: Place) -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    return read
