"""Opens the chat prompt over a project.

The prompt is drawn before anything is loaded that only an answer needs: ``compose`` and ``session`` above all.
"""

import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdd_agent import __version__, settings
from cdd_agent.cli.invocation import Invocation
from cdd_agent.errors import ExitCode
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.place import Place, Read
from cdd_agent.tickets.ticket import Ticket, all_tickets

if TYPE_CHECKING:
    from cdd_agent.agent.talk.transcript import Transcript
    from cdd_agent.compose import Composition
    from cdd_agent.doctor.check import Check
    from cdd_agent.events import Event
    from cdd_agent.journal import Journal
    from cdd_agent.repl.standing import Standing
    from cdd_agent.review.review import Review
    from cdd_agent.trust import Offer
    from cdd_agent.workflows.conversation.desk import Desk
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
        read = _at_terminal(invocation, crew) if somebody_types else _from_input
        if somebody_types and not first:
            _welcome(crew.root, color=invocation.color)
            try:
                read = _ReadAhead(read)
            except EOFError:
                return
        from cdd_agent.repl.session import Session

        session = Session(crew, screen=invocation.screen, read=read, somebody_types=somebody_types)
        code = session.run(first=first)
    if code != ExitCode.DONE:
        raise click.exceptions.Exit(int(code))


class _ReadAhead:
    """Reads the first line at once; whoever is loaded to answer it gets it, or the Ctrl-C, when it asks.

    Raises ``EOFError`` if there is none: nothing need be loaded to leave.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._kept: str | KeyboardInterrupt | None
        try:
            self._kept = read(Place())
        except KeyboardInterrupt as stop:
            self._kept = stop

    def __call__(self, place: Place) -> str:
        kept, self._kept = self._kept, None
        if isinstance(kept, KeyboardInterrupt):
            raise kept
        return self._read(place) if kept is None else kept


def _welcome(root: Path, *, color: bool | None) -> None:
    """Say what this is, where it is, and what to type first."""
    from prompt_toolkit import print_formatted_text
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.output import ColorDepth

    count = len(all_tickets(root))
    known = "1 ticket" if count == 1 else f"{count} tickets" if count else "no tickets yet"
    first = "/status shows where they stand" if count else "/new SLUG makes one"
    where = textwrap.fill(
        clean(f"{root}: {known}; {first}, /help the rest."),
        width=shutil.get_terminal_size().columns - 1,
        subsequent_indent="  ",
    )
    about = f"cdd {__version__} turns a ticket into tested commits.\n"
    depth = ColorDepth.DEPTH_1_BIT if color is False else None
    print_formatted_text(FormattedText([("bold", about), ("ansibrightblack", f"{where}\n")]), color_depth=depth)


class _Crew:
    """The agents of one project, the events of each going to its ticket's journal too."""

    def __init__(self, invocation: Invocation, stack: ExitStack) -> None:
        self._invocation = invocation
        self._stack = stack
        self._journals: dict[str, Journal] = {}
        self._journal: Journal | None = None
        self._model_name = ""
        self.slug = ""
        """Of the ticket in work."""

    @cached_property
    def root(self) -> Path:
        return self._invocation.options.root()

    @cached_property
    def standing(self) -> "Standing":
        from cdd_agent.repl.standing import Standing

        return Standing(model=self._model_name)

    @cached_property
    def transcript(self) -> "Transcript":
        from cdd_agent.agent.talk.recall import prune
        from cdd_agent.agent.talk.transcript import Transcript
        from cdd_agent.clock import SystemClock

        transcript = Transcript(self.root, clock=SystemClock(), tell=self._invocation.sink)
        self._stack.callback(lambda: prune(self.root, present=transcript.id))
        self._stack.callback(transcript.close)
        return transcript

    @property
    def model_name(self) -> str:
        """Of whoever answers; only a recording has to be opened to know it."""
        options = self._invocation.options
        if not self._model_name and options.recording() is not None:
            self._model_name = self._project.model.name
        elif not self._model_name:
            self._model_name = self.settings.model
        return self._model_name

    @cached_property
    def settings(self) -> settings.Settings:
        """The settings in force here."""
        return settings.load(self.root, allows=self._allows, model=self._invocation.options.model)

    @cached_property
    def _project(self) -> "Composition":
        from cdd_agent.compose import Composition

        project = Composition(self._invocation.asking, emit=self._emit)
        project.transcript = self.transcript
        return project

    def _allows(self, offer: "Offer") -> bool:
        return self._project.trust.allows(offer)

    def socrates(self, ticket: Ticket) -> "Socrates":
        self.follow(ticket)
        return self._project.socrates(ticket)

    def planner(self, ticket: Ticket) -> "Planner":
        self.follow(ticket)
        return self._project.planner(ticket)

    def executor(self, ticket: Ticket) -> "Executor":
        self.follow(ticket)
        return self._project.executor(ticket)

    def review(self, ticket: Ticket) -> "Review":
        self.follow(ticket)
        return self._project.review(ticket)

    def use_model(self, name: str) -> None:
        self._project.use_model(name)
        self._model_name = name

    def desk(self, ticket: Ticket, *, command: str) -> "Desk":
        return self._project.desk(ticket, command=command)

    def checks(self) -> "Iterator[Check]":
        from cdd_agent.doctor.checks import examine

        return examine(self._project.premises())

    def follow(self, ticket: Ticket) -> None:
        from cdd_agent.journal import Journal

        if ticket.slug not in self._journals:
            path = settings.private_folder(self.root) / "journal" / ticket.slug / "events.jsonl"
            self._journals[ticket.slug] = self._stack.enter_context(
                Journal(path, clock=self._project.clock, tell=self._invocation.sink)
            )
        self._journal = self._journals[ticket.slug]
        self.slug = ticket.slug

    def _emit(self, event: "Event") -> None:
        if self._journal is not None:
            self._journal.write(event)
        self.standing.write(event)
        self._invocation.sink(event)


def _at_terminal(invocation: Invocation, crew: _Crew) -> Read:
    """Lines that a person types; only a project remembers them."""
    from cdd_agent.repl.actions.offered import candidates_of
    from cdd_agent.repl.terminal.reader import terminal_reader

    return terminal_reader(
        settings.private_folder(crew.root) / "history" if (crew.root / ".git").exists() else None,
        candidates=candidates_of(crew.root, ticket=lambda: crew.slug),
        model=crew.model_name,
        color=invocation.color,
        editing_mode=crew.settings.editing_mode,
    )


def _from_input(_: Place) -> str:
    """One line of standard input as it is."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")
