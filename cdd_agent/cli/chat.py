"""Open the chat prompt in a project, before loading what only an answer needs: ``compose`` and ``session``."""

import io
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdd_agent import __version__
from cdd_agent.cli.invocation import Invocation
from cdd_agent.config import settings
from cdd_agent.config.trust import Approvals
from cdd_agent.errors import ExitCode
from cdd_agent.repl.terminal import ECHO, PromptStatus, ReadLine
from cdd_agent.tickets.ticket import list_tickets
from cdd_agent.untrusted.text import clean

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.config.trust import Offer

_MIN_WIDTH = 20
"""Below this width, the terminal itself breaks the lines."""
_NO_KEY = (
    "No API key is set, so no agent can answer. Exit, run `export ANTHROPIC_API_KEY=...`, and start cdd again. "
    "The other commands work without it."
)


def chat(invocation: Invocation, *, first: str = "") -> None:
    """Run the prompt, from the line ``first`` on. Raises ``click.exceptions.Exit`` unless the exit code is 0."""
    startup = _Startup(invocation)
    somebody_types = invocation.is_interactive
    shows_welcome = somebody_types and not first
    read = _read_terminal(invocation, startup) if somebody_types else _read_input()
    if shows_welcome:
        _show_welcome(invocation.root, somebody_answers=startup.somebody_answers, color=invocation.color)
        try:
            read = _ReadAhead(read)
        except EOFError:
            return
    try:
        with ECHO.disable() if somebody_types else nullcontext(), _defer_interrupts():
            from cdd_agent.repl.session import Session

            startup.project.has_told_memory = shows_welcome
            model = startup.model_name if somebody_types else ""
            screen = invocation.screen
            session = Session(startup.project, screen=screen, read=read, model=model, somebody_types=somebody_types)
    except KeyboardInterrupt as stop:
        if not isinstance(read, _ReadAhead):
            raise
        read.pending = stop
    with closing(session):
        code = session.run(first=first)
    if code != ExitCode.DONE:
        raise click.exceptions.Exit(int(code))


class _ReadAhead:
    """Reads the first line before the session is loaded, and returns it, or its Ctrl-C, at the first call.

    Raises ``EOFError`` if the user leaves, so that nothing more is loaded.
    """

    def __init__(self, read: ReadLine) -> None:
        self._read = read
        self.pending: str | KeyboardInterrupt | None
        try:
            self.pending = read(PromptStatus())
        except KeyboardInterrupt as stop:
            self.pending = stop

    def __call__(self, status: PromptStatus) -> str:
        pending, self.pending = self.pending, None
        if isinstance(pending, KeyboardInterrupt):
            raise pending
        return self._read(status) if pending is None else pending


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Deliver Ctrl-C after the block. An interrupted import could be neither used nor repeated."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)


def _show_welcome(root: Path, *, somebody_answers: bool, color: bool | None) -> None:
    from prompt_toolkit import print_formatted_text
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.output import ColorDepth

    from cdd_agent.workspace.memory import read_memory

    count = len(list_tickets(root))
    tickets = "1 ticket" if count == 1 else f"{count} tickets" if count else "no tickets yet"
    first = "/status shows the progress" if count else "/new SLUG creates one"
    lines = [f"{root}: {tickets}; {first}, /help lists all commands.", read_memory(root).summary]
    if not somebody_answers:
        lines.append(_NO_KEY)
    width = max(_MIN_WIDTH, shutil.get_terminal_size().columns - 1)
    text = "\n".join(textwrap.fill(clean(line), width=width, subsequent_indent="  ") for line in lines if line)
    about = f"cdd {__version__} turns a ticket into tested commits.\n"
    depth = ColorDepth.DEPTH_1_BIT if color is False else None
    print_formatted_text(FormattedText([("bold", about), ("ansibrightblack", f"{text}\n")]), color_depth=depth)


class _Startup:
    """The facts that the prompt shows at once, and the project, which is loaded at the first use."""

    def __init__(self, invocation: Invocation) -> None:
        self.invocation = invocation

    @property
    def somebody_answers(self) -> bool:
        return self.invocation.options.find_recording() is not None or bool(self.invocation.options.key)

    @cached_property
    def settings(self) -> settings.Settings:
        return settings.load(self.invocation.root, allows=self._allows, model=self.invocation.options.model)

    @cached_property
    def model_name(self) -> str:
        """The model at the start. Only a recording must be opened to know it."""
        is_recorded = self.invocation.options.find_recording() is not None
        return self.project.model.name if is_recorded else self.settings.model

    @cached_property
    def project(self) -> "Composition":
        return self.invocation.open_project()

    def _allows(self, offer: "Offer") -> bool:
        # The adapters, which are slow to load, are needed only to ask or to report a declined offer.
        return Approvals(self.invocation.root).find_decision(offer) is True or self.project.trust.allows(offer)


def _read_terminal(invocation: Invocation, startup: _Startup) -> ReadLine:
    from cdd_agent.repl.completion import find_candidates
    from cdd_agent.repl.prompt import make_reader

    has_history = (invocation.root / ".git").exists()
    return make_reader(
        settings.private_folder(invocation.root) / "history" if has_history else None,
        candidates=find_candidates(invocation.root),
        model=startup.model_name,
        color=invocation.color,
        editing_mode=startup.settings.editing_mode,
    )


def _read_input() -> ReadLine:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")

    def read(_: PromptStatus) -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    return read
