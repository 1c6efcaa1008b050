"""One invocation of the program: what was said about every command, and where its events go."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from cdd_agent.compose import Composition, Options
from cdd_agent.events import Emit, Event, encode
from cdd_agent.journal import Journal
from cdd_agent.repl.render import Screen
from cdd_agent.settings import private_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The global options and the screen."""

    options: Options
    screen: Screen
    assume_yes: bool
    """Nobody is to be asked."""
    as_json: bool
    """One event a line on standard output."""

    @property
    def is_interactive(self) -> bool:
        """Whether a person can be talked with."""
        return sys.stdin.isatty() and sys.stdout.isatty() and not (self.assume_yes or self.as_json)

    @contextmanager
    def project(self, slug: str | None = None) -> Iterator[Composition]:
        """The project with its events going to the output and, for a ticket, to its journal as well."""
        sinks: list[Emit] = [_print_json if self.as_json else self.screen.write]

        def emit(event: Event) -> None:
            for sink in sinks:
                sink(event)

        composition = Composition(self.options, emit=emit)
        with ExitStack() as stack:
            if slug is not None:
                path = private_folder(composition.root) / "journal" / slug / "events.jsonl"
                sinks.append(stack.enter_context(Journal(path, clock=composition.clock)).write)
            yield composition


def _print_json(event: Event) -> None:
    """Write one event as a line of JSON."""
    sys.stdout.write(encode(event).decode("utf-8") + "\n")
    sys.stdout.flush()
