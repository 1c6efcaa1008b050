"""Open the chat prompt in a project, before loading what only an answer needs: ``compose`` and ``session``."""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdd_agent import __version__
from cdd_agent.cli.invocation import Invocation
from cdd_agent.config import settings
from cdd_agent.config.trust import Approvals
from cdd_agent.errors import ExitCode, UsageError, format_count
from cdd_agent.repl.terminal import KEYBOARD, PromptStatus, ReadLine, defer_interrupts
from cdd_agent.tickets.ticket import list_tickets
from cdd_agent.untrusted.text import clean
from cdd_agent.work.records import find_records

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.config.trust import Offer
    from cdd_agent.repl.screen import Screen

_MIN_WIDTH = 20
"""Below this width, the terminal itself breaks the lines."""
_NO_KEY = (
    "No API key is set, so no agent can answer. Exit, run `export ANTHROPIC_API_KEY=...`, and start cdd again. "
    "The other commands work without it."
)


def chat(invocation: Invocation, *, first: str = "") -> None:
    """Run the prompt, from the line ``first`` on. Raises ``click.exceptions.Exit`` unless the exit code is 0."""
    with KEYBOARD.keep_keys() if invocation.is_interactive else nullcontext():
        code = _run(invocation, first=first)
    if code != ExitCode.DONE:
        raise click.exceptions.Exit(int(code))


def _run(invocation: Invocation, *, first: str) -> ExitCode:
    somebody_types = invocation.is_interactive
    shows_welcome = somebody_types and not first
    with KEYBOARD.hide_keys() if somebody_types else nullcontext():
        read, model, diffs = _read_terminal(invocation) if somebody_types else (_read_input(), "", False)
        if shows_welcome:
            _show_welcome(invocation)
    if shows_welcome:
        try:
            read = _ReadAhead(read)
        except EOFError:
            return ExitCode.DONE
    try:
        # An interrupted import could be neither used nor repeated.
        with KEYBOARD.hide_keys() if somebody_types else nullcontext(), defer_interrupts():
            from cdd_agent.repl.session import Session

            project, screen = invocation.project, invocation.screen
            project.has_told_memory = shows_welcome
            screen.shows_changes &= diffs
            program = click.get_current_context().find_root().command
            assert isinstance(program, click.Group)
            run = partial(run_at_prompt, project=project, screen=screen, commands=program.commands)
            session = Session(project, screen=screen, read=read, run=run, model=model, somebody_types=somebody_types)
    except KeyboardInterrupt as stop:
        if not isinstance(read, _ReadAhead):
            raise
        read.pending = stop
    with closing(session):
        code = session.run(first=first)
    if somebody_types and session.id:
        is_archived = session.saved_as != session.id
        what = "Its ticket is done, so this session is archived. Open it" if is_archived else "Continue this session"
        screen.line(f"{what}: {project.options.as_command(f'--resume {session.saved_as}')}", style="dim")
    return code


def run_at_prompt(
    words: Sequence[str], *, project: "Composition", screen: "Screen", commands: Mapping[str, click.Command]
) -> ExitCode:
    """Carry out the command ``words``, whose options apply to it alone. Raises ``UsageError`` for wrong ones."""
    name, *arguments = words
    options = project.options
    invocation = Invocation(options=options, assume_yes=False, as_json=False, color=None, at_prompt=True)
    invocation.share(project, screen=screen)
    try:
        with commands[name].make_context(f"/{name}", arguments, obj=invocation, help_option_names=[]) as context:
            context.command.invoke(context)
    except click.exceptions.Exit as end:
        return ExitCode(end.exit_code)
    except click.UsageError as error:
        hint = "/help lists the commands" if error.ctx is None else error.ctx.get_usage().removeprefix("Usage: ")
        raise UsageError(error.format_message(), hint=hint) from error
    finally:
        project.options = options
    return ExitCode.DONE


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


def _show_welcome(invocation: Invocation) -> None:
    from prompt_toolkit import print_formatted_text
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.output import ColorDepth

    from cdd_agent.workspace.memory import read_memory

    root, options = invocation.root, invocation.options
    count = len(list_tickets(root))
    tickets = format_count(count, "ticket") if count else "no tickets yet"
    first = "/status shows the progress" if count else "Write what you want, or ask about the code"
    lines = [f"{root}: {tickets}. {first}; /help lists all commands.", _name_last_session(root)]
    lines.append(read_memory(root).summary)
    if options.find_recording() is None and not options.key:
        lines.append(_NO_KEY)
    width = max(_MIN_WIDTH, shutil.get_terminal_size().columns - 1)
    text = "\n".join(textwrap.fill(clean(line), width=width, subsequent_indent="  ") for line in lines if line)
    about = f"cdd {__version__} turns a ticket into tested commits.\n"
    depth = ColorDepth.DEPTH_1_BIT if invocation.color is False else None
    print_formatted_text(FormattedText([("bold", about), ("ansibrightblack", f"{text}\n")]), color_depth=depth)


def _name_last_session(root: Path) -> str:
    # The transcripts are read only if the user asks for one.
    with suppress(OSError):
        if names := os.listdir(find_records(root).folder / "sessions"):
            return f"/resume continues the session {max(names)}."
    return ""


def _read_terminal(invocation: Invocation) -> tuple[ReadLine, str, bool]:
    """Return the reader, the name of the model until an answer names another one, and whether to show changes."""
    from cdd_agent.repl.completion import find_candidates
    from cdd_agent.repl.prompt import make_reader

    def allows(offer: "Offer") -> bool:
        # The adapters, which are slow to load, are needed only to ask or to report a declined offer.
        return Approvals(root).find_decision(offer) is True or invocation.project.trust.allows(offer)

    root, options = invocation.root, invocation.options
    own = settings.load(root, allows=allows, model=options.model)
    # Only a recording must be opened to know its model.
    model = own.model if options.find_recording() is None else invocation.project.model.name
    read = make_reader(
        find_records(root).folder / "history",
        candidates=find_candidates(root),
        model=model,
        color=invocation.color,
        editing_mode=own.editing_mode,
    )
    return read, model, own.diffs


def _read_input() -> ReadLine:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")

    def read(_: PromptStatus) -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    return read
