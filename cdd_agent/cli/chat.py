"""Opens the chat prompt over a project.

The prompt is drawn before anything is loaded that only an answer needs: ``compose`` and ``session`` above all.
"""

import io
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdd_agent import __version__
from cdd_agent.cli.invocation import Invocation
from cdd_agent.config import settings
from cdd_agent.config.trust import Approvals
from cdd_agent.errors import ExitCode
from cdd_agent.repl.status_line import Place, Read
from cdd_agent.repl.typed_ahead import ECHO
from cdd_agent.tickets.ticket import Ticket, all_tickets
from cdd_agent.untrusted.text import clean

if TYPE_CHECKING:
    from cdd_agent.audit.auditor import Auditor
    from cdd_agent.compose import Composition
    from cdd_agent.config.trust import Offer
    from cdd_agent.doctor import Check
    from cdd_agent.events import Emit, Event
    from cdd_agent.journal import Journal
    from cdd_agent.repl.state import Workshop
    from cdd_agent.review import Review
    from cdd_agent.workflows.conversation.desk import Desk
    from cdd_agent.workflows.conversation.planner import Planner
    from cdd_agent.workflows.conversation.socrates import Socrates
    from cdd_agent.workflows.execution.executor import Executor

_LEAST_WIDTH = 20
"""For which lines are broken; on a screen that is narrower the terminal breaks them."""


def chat(invocation: Invocation, *, first: str = "") -> None:
    """Run the prompt until the user leaves; ``first`` is a line to begin with.

    Raises ``click.exceptions.Exit`` with what the session ends with, unless that is 0.
    """
    with ExitStack() as stack:
        outset = _Outset(invocation)
        somebody_types = invocation.is_interactive
        is_welcomed = somebody_types and not first
        read = _at_terminal(invocation, outset) if somebody_types else _from_input()
        if is_welcomed:
            _welcome(outset.root, somebody_answers=outset.somebody_answers, color=invocation.color)
            try:
                read = _ReadAhead(read)
            except EOFError:
                return
        try:
            with ECHO.off() if somebody_types else nullcontext(), _undisturbed():
                from cdd_agent.repl.session import Session

                outset.project.has_told_memory = is_welcomed
                crew = _Crew(outset, stack)
                session = Session(crew, screen=invocation.screen, read=read, somebody_types=somebody_types)
        except KeyboardInterrupt as stop:
            if not isinstance(read, _ReadAhead):
                raise
            read.kept = stop
        code = session.run(first=first)
    if code != ExitCode.DONE:
        raise click.exceptions.Exit(int(code))


_NO_KEY = "No model answers yet, for want of a key: leave, set ANTHROPIC_API_KEY, and come back. The rest works."


class _ReadAhead:
    """Reads the first line at once; whoever is loaded to answer it gets it, or the Ctrl-C, when it asks.

    Raises ``EOFError`` if there is none: nothing need be loaded to leave.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self.kept: str | KeyboardInterrupt | None
        try:
            self.kept = read(Place())
        except KeyboardInterrupt as stop:
            self.kept = stop

    def __call__(self, place: Place) -> str:
        kept, self.kept = self.kept, None
        if isinstance(kept, KeyboardInterrupt):
            raise kept
        return self._read(place) if kept is None else kept


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits until the block has ended, since what is half loaded cannot be used, and not be loaded again."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)


def _welcome(root: Path, *, somebody_answers: bool, color: bool | None) -> None:
    """Say what this is, where it is, and what to type first."""
    from prompt_toolkit import print_formatted_text
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.output import ColorDepth

    from cdd_agent.workspace.memory import read_memory

    count = len(all_tickets(root))
    known = "1 ticket" if count == 1 else f"{count} tickets" if count else "no tickets yet"
    stand = "it stands" if count == 1 else "they stand"
    first = f"/status shows where {stand}" if count else "/new SLUG makes one"
    told = [f"{root}: {known}; {first}, /help the rest.", read_memory(root).told]
    if not somebody_answers:
        told.append(_NO_KEY)
    width = max(_LEAST_WIDTH, shutil.get_terminal_size().columns - 1)
    where = "\n".join(textwrap.fill(clean(line), width=width, subsequent_indent="  ") for line in told if line)
    about = f"cdd {__version__} turns a ticket into tested commits.\n"
    depth = ColorDepth.DEPTH_1_BIT if color is False else None
    print_formatted_text(FormattedText([("bold", about), ("ansibrightblack", f"{where}\n")]), color_depth=depth)


class _Outset:
    """What the prompt shows before there is an agent; the project behind it is loaded once somebody asks for it."""

    def __init__(self, invocation: Invocation) -> None:
        self.invocation = invocation
        self.listeners: list[Emit] = []
        """Who hears of events before they are shown."""

    @property
    def somebody_answers(self) -> bool:
        """Whether there is a key, or a recording to be played."""
        return self.invocation.options.recording() is not None or bool(self.invocation.options.key)

    @cached_property
    def root(self) -> Path:
        from cdd_agent.testrun.root import find_root

        return find_root(self.invocation.options)

    @cached_property
    def settings(self) -> settings.Settings:
        """The settings in force here."""
        return settings.load(self.root, allows=self._allows, model=self.invocation.options.model)

    @cached_property
    def model_name(self) -> str:
        """Of whoever answers at first; only a recording has to be opened to know it."""
        is_recorded = self.invocation.options.recording() is not None
        return self.project.adapters.model.name if is_recorded else self.settings.model

    @cached_property
    def project(self) -> "Composition":
        from cdd_agent.compose import Composition

        return Composition(self.invocation.asking, emit=self._emit)

    def _allows(self, offer: "Offer") -> bool:
        """As the user has said, or says now; only to ask, or to tell what is declined, are the adapters needed."""
        return Approvals(self.root).decision(offer) is True or self.project.adapters.trust.allows(offer)

    def _emit(self, event: "Event") -> None:
        for listen in self.listeners:
            listen(event)
        self.invocation.sink(event)


class _Crew:
    """The agents of one project, the events of each going to its ticket's journal too."""

    def __init__(self, outset: _Outset, stack: ExitStack) -> None:
        from cdd_agent.agent.sessions import Transcript, prune
        from cdd_agent.repl.progress import Standing

        self.root = outset.root
        self._outset = outset
        self._project = outset.project
        self.workshop: Workshop = outset.project
        self._stack = stack
        self._journals: dict[str, Journal] = {}
        self._journal: Journal | None = None
        self.standing = Standing(model=outset.model_name if outset.invocation.is_interactive else "")
        outset.listeners += [self._keep, self.standing.write]
        self.transcript = Transcript(self.root, clock=self._project.adapters.clock, tell=outset.invocation.sink)
        self._project.transcript = self.transcript
        stack.callback(lambda: prune(self.root, present=self.transcript.id))
        stack.callback(self.transcript.close)

    @property
    def model_name(self) -> str:
        return self._project.adapters.model.name

    def use_model(self, name: str) -> None:
        self._project.adapters.use_model(name)

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

    def desk(self, ticket: Ticket, *, command: str) -> "Desk":
        return self._project.desk(ticket, command=command)

    def auditor(self) -> "Auditor":
        return self._project.auditor()

    def checks(self) -> "Iterator[Check]":
        from cdd_agent.doctor import examine

        return examine(self._project.adapters.premises())

    def follow(self, ticket: Ticket) -> None:
        from cdd_agent.journal import Journal, journal_path

        if ticket.slug not in self._journals:
            path = journal_path(self.root, ticket.slug)
            self._journals[ticket.slug] = self._stack.enter_context(
                Journal(path, clock=self._project.adapters.clock, tell=self._outset.invocation.sink)
            )
        self._journal = self._journals[ticket.slug]

    def _keep(self, event: "Event") -> None:
        """Write ``event`` to the journal of the ticket in work."""
        if self._journal is not None:
            self._journal.write(event)


def _at_terminal(invocation: Invocation, outset: _Outset) -> Read:
    """Lines that a person types; only a project remembers them."""
    from cdd_agent.repl.candidates import candidates_of
    from cdd_agent.repl.prompt import terminal_reader

    return terminal_reader(
        settings.private_folder(outset.root) / "history" if (outset.root / ".git").exists() else None,
        candidates=candidates_of(outset.root),
        model=outset.model_name,
        color=invocation.color,
        editing_mode=outset.settings.editing_mode,
    )


def _from_input() -> Read:
    """Lines of standard input as they are, bytes in them that are no text replaced."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")

    def read(_: Place) -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    return read
