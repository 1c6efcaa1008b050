"""One invocation of the program: what was said about every command, and where its events go."""

import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.config.options import Options
    from cdd_agent.events import Emit, Event
    from cdd_agent.repl.screen import Screen
    from cdd_agent.tickets.ticket import Ticket

Command = TypeVar("Command", bound=Callable[..., Any])


class Named(Protocol):
    """What a journal is kept of."""

    @property
    def slug(self) -> str:
        """Its name."""
        ...


Found = TypeVar("Found", bound=Named)


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """The global options, the screen and the sink of events, each made when it is first asked for."""

    options: "Options"
    assume_yes: bool
    """Nobody is to be asked."""
    as_json: bool
    """One event a line on standard output, everything else on standard error."""
    color: bool | None
    """None: as the terminal and ``NO_COLOR`` say."""

    @property
    def is_interactive(self) -> bool:
        """Whether a person can be talked with."""
        return sys.stdin.isatty() and sys.stdout.isatty() and not (self.assume_yes or self.as_json)

    @cached_property
    def screen(self) -> "Screen":
        """Where a person reads."""
        from cdd_agent.repl.screen import Screen

        return Screen(sys.stderr if self.as_json else sys.stdout, color=self.color, animated=not self.as_json)

    @cached_property
    def sink(self) -> "Emit":
        """Where events go: to the screen, or as JSON to standard output.

        JSON is UTF-8 wherever it is read. A reader who goes away ends the run with ``BrokenPipeError``, once: what is
        told on the way out is dropped.
        """
        from cdd_agent.repl.render import Renderer

        if self.as_json and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        write = _print_json if self.as_json else Renderer(self.screen).write

        def tell(event: "Event") -> None:
            try:
                write(event)
            except BrokenPipeError:
                drop_output()
                raise

        return tell

    def with_options(self, given: dict[str, Any]) -> "Invocation":
        """The invocation with what was said after the command as well as before it."""
        return replace(
            self,
            options=replace(self.options, allow_dirty=given.get("allow_dirty", False)),
            assume_yes=self.assume_yes or given["yes"],
            as_json=self.as_json or given["as_json"],
        )

    @property
    def asking(self) -> "Options":
        """The options, with whom to ask where somebody is there and the options do not say whom."""
        if not self.is_interactive:
            return self.options
        if self.options.ask is not None:
            return replace(self.options, attended=True)
        from cdd_agent.repl.question import ask_approval, ask_choice, ask_objection, ask_permission, ask_to_wait

        return replace(
            self.options,
            attended=True,
            ask=lambda offer, changed: ask_approval(offer, changed, screen=self.screen),
            ask_command=lambda question: ask_permission(question, screen=self.screen),
            may_wait=lambda why, wait_s: ask_to_wait(why, wait_s, screen=self.screen),
            objection=lambda: ask_objection(screen=self.screen),
            choose=lambda question, choices: ask_choice(question, choices, screen=self.screen),
        )

    def project(self) -> "Composition":
        """The project, its events going to the output."""
        from cdd_agent.compose import Composition

        return Composition(self.asking, emit=self.sink)

    def ticket(self, slug: str) -> AbstractContextManager[tuple["Composition", "Ticket"]]:
        """The project and one of its tickets, the events going to the output and to the ticket's journal.

        Raises ``UsageError``, and makes no journal, if there is no such ticket.
        """
        from cdd_agent.tickets.ticket import find

        return self.journaled(lambda project: find(project.adapters.root, slug))

    @contextmanager
    def journaled(self, find: Callable[["Composition"], Found]) -> Iterator[tuple["Composition", Found]]:
        """The project and what ``find`` finds in it, the events going to the output and to the journal of that.

        Makes no journal if ``find`` raises.
        """
        from cdd_agent.compose import Composition
        from cdd_agent.journal import Journal, journal_path
        from cdd_agent.repl.render import WAITING

        sinks: list[Emit] = [self.sink]

        def emit(event: "Event") -> None:
            for sink in sinks:
                sink(event)

        composition = Composition(self.asking, emit=emit)
        found = find(composition)
        path = journal_path(composition.adapters.root, found.slug)
        with Journal(path, clock=composition.adapters.clock, report=self.sink) as journal, self.screen.working(WAITING):
            sinks.insert(0, journal.write)
            yield composition, found


def drop_output(*, hung_up: bool = False) -> None:
    """Let go of an output that nobody reads any more: what is still printed on the way out goes nowhere.

    ``hung_up``: the terminal has gone, and each terminal is let go of.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, RuntimeError):  # RuntimeError: a signal cut into a write of the same stream
            lost = hung_up and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
            try:
                stream.flush()
            except OSError:
                lost = True
            if lost:
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def headless(command: Command) -> Command:
    """Lets ``--yes`` and ``--json`` stand after the command as well as before it."""
    with_json = click.option("--json", "as_json", is_flag=True, help="One event a line on standard output.")(command)
    return click.option("--yes", is_flag=True, help="Nobody to ask: take the safe default.")(with_json)


def _print_json(event: "Event") -> None:
    """Write one event as a line of JSON."""
    from cdd_agent.events import encode

    sys.stdout.write(encode(event).decode("utf-8") + "\n")
    sys.stdout.flush()
