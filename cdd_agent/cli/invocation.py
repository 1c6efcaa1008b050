"""One invocation of cdd: its global options, its screen, and the sink of its events."""

import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from pathlib import Path

    from cdd_agent.compose import Composition
    from cdd_agent.config.options import Options
    from cdd_agent.events import Answer, Emit, Event
    from cdd_agent.repl.screen import Screen
    from cdd_agent.tickets.ticket import Ticket


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """The global options, the screen and the sink. The last two are created at the first use."""

    options: "Options"
    assume_yes: bool
    """Never ask the user."""
    as_json: bool
    """Print one event per line on standard output, and everything else on standard error."""
    color: bool | None
    """With None, the terminal and ``NO_COLOR`` decide."""
    at_prompt: bool = False
    """The command was typed at the prompt, with whose session it shares project and screen."""

    @property
    def is_interactive(self) -> bool:
        """Whether cdd can talk with the user."""
        has_user = self.at_prompt or (sys.stdin.isatty() and sys.stdout.isatty())
        return has_user and not (self.assume_yes or self.as_json)

    def is_agreed(self, question: str, *, otherwise: str = "Nothing was changed.") -> bool:
        """Return whether the user agrees to what was just shown; with --yes, cdd does not ask.

        If not, ``otherwise`` is shown. Raises ``UsageError`` if nobody can be asked.
        """
        if self.assume_yes:
            return True
        from cdd_agent.errors import UsageError
        from cdd_agent.repl.question import confirm

        if not self.is_interactive:
            raise UsageError(f"cdd cannot ask you here. {otherwise}", hint="the same command with --yes")
        agreed = confirm(f"{question} [y/N]", screen=self.screen)
        if not agreed:
            self.screen.line(otherwise)
        return agreed

    @cached_property
    def root(self) -> "Path":
        """The project's folder, after cdd's records of it were found, and moved or set aside if necessary."""
        from cdd_agent.testrun.root import find_root
        from cdd_agent.work.records import is_ready

        root = find_root(self.options)
        _hold_in_place(root)
        if not is_ready(root):
            from cdd_agent.runs.earlier import begin

            for line in begin(root):
                self.screen.line(line)
        return root

    @cached_property
    def screen(self) -> "Screen":
        """The screen of the user."""
        from cdd_agent.repl.screen import Screen

        return Screen(sys.stderr if self.as_json else sys.stdout, color=self.color, animated=not self.as_json)

    @cached_property
    def sink(self) -> "Emit":
        """Prints events on the screen, or as JSON on standard output.

        If the reader of the output has gone, it raises ``BrokenPipeError`` once. Later output is dropped.
        """
        from cdd_agent.repl.render import Renderer

        if self.as_json and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        write = print_json if self.as_json else Renderer(self.screen).write

        def tell(event: "Event") -> None:
            try:
                write(event)
            except BrokenPipeError:
                drop_output()
                raise

        return tell

    def with_options(self, given: dict[str, Any]) -> "Invocation":
        """Return the invocation with the options that stand after the command."""
        behind: dict[str, Any] = {name: given[name] for name in _OF_THE_OPTIONS if given.get(name)}
        own = replace(
            self,
            options=replace(self.options, **behind),
            assume_yes=self.assume_yes or given["yes"],
            as_json=self.as_json or given["as_json"],
        )
        if own.options.scheduler is not None and own.options.record is not None:
            from cdd_agent.errors import UsageError

            happened = "A recording holds the turns of one process, and --scheduler starts several."
            raise UsageError(happened, hint="omit --record")
        if self.at_prompt:
            own.share(self.project, screen=self.screen)
        return own

    def share(self, project: "Composition", *, screen: "Screen") -> None:
        """Work with the project and screen of a session; the project gets the options."""
        project.options = self.options
        vars(self).update(project=project, root=project.root, screen=screen)

    @property
    def interactive_options(self) -> "Options":
        """The options, with functions that ask the user if there is one."""
        if not self.is_interactive:
            return self.options
        if self.options.ask is not None:
            return replace(self.options, attended=True)
        from cdd_agent.repl.commands import is_guidance
        from cdd_agent.repl.question import ask_approval, ask_choice, ask_objection, ask_permission, ask_to_wait
        from cdd_agent.repl.terminal import KEYBOARD

        return replace(
            self.options,
            attended=True,
            ask=lambda offer, changed: ask_approval(offer, changed, screen=self.screen),
            ask_command=lambda question: ask_permission(question, screen=self.screen),
            may_wait=lambda why, wait_s: ask_to_wait(why, wait_s, screen=self.screen),
            objection=lambda: ask_objection(screen=self.screen),
            hear=lambda: KEYBOARD.typed.take_if(is_guidance),
            choose=lambda question, choices: ask_choice(question, choices, screen=self.screen),
        )

    @cached_property
    def project(self) -> "Composition":
        """The project. Its events go to the output."""
        from cdd_agent.compose import Composition
        from cdd_agent.testrun.access import find_top

        _ = self.root  # where records are moved before anything reads them
        project = Composition(self.interactive_options, emit=self.sink)
        _hold_in_place(project.home, find_top(project.home))
        return project

    @contextmanager
    def open_ticket(self, slug: str) -> Iterator[tuple["Composition", "Ticket"]]:
        """Yield the project and a ticket. The events also go to the ticket's journal.

        Raises ``UsageError``, and creates no journal, for an unknown ticket.
        """
        from cdd_agent.runs.places import find_ticket

        ticket = find_ticket(self.project.root, slug)
        with self.work_on(slug):
            yield self.project, ticket

    @contextmanager
    def open_run(self, slug: str) -> Iterator[tuple["Composition", "Ticket"]]:
        """Yield the project and the run of a ticket or of another source, as ``open_ticket`` does."""
        from cdd_agent.runs.places import find_run

        run = find_run(self.project.root, slug)
        with self.work_on(slug):
            yield self.project, run

    @contextmanager
    def work_on(self, slug: str) -> Iterator[None]:
        """Write the project's events to the journal of ``slug``, and show the activity, while the block runs."""
        from cdd_agent.repl.checkpoint_actions import prune_old
        from cdd_agent.repl.render import READY

        with nullcontext() if self.at_prompt else closing(self.project), self.screen.working(READY):
            self.project.follow(slug)
            yield
            prune_old(self.project)


def _hold_in_place(*folders: "Path") -> None:
    """Hold folders to the end of the command, or of the session at the prompt."""
    from cdd_agent.storage import hold_in_place

    if (context := click.get_current_context(silent=True)) is not None:
        for folder in folders:
            context.with_resource(hold_in_place(folder))


def drop_output(*, hung_up: bool = False) -> None:
    """Redirect standard streams without a reader to the null device; with ``hung_up``, those on a terminal too."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, RuntimeError):  # RuntimeError: a signal interrupted a write
            lost = hung_up and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
            try:
                stream.flush()
            except OSError:
                lost = True
            if lost:
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


_Command = TypeVar("_Command", bound=Callable[..., Any])
_OF_THE_OPTIONS = (
    *("allow_dirty", "allow_files", "anyway", "install", "jobs", "max_usd", "no_review", "python", "scheduler"),
)
_INSTEAD = "name ignored files that your tests need in .cdd/worktree-include"
_OF_THE_INVOCATION = ("yes", "as_json", *_OF_THE_OPTIONS)


def headless(command: Callable[..., None]) -> Callable[..., None]:
    """Pass the invocation to ``command``, and accept ``--yes`` and ``--json`` after the command too."""

    @click.option("--yes", is_flag=True, help="Never ask; take the safe default.")
    @click.option("--json", "as_json", is_flag=True, help="Print one event per line on standard output.")
    @click.pass_obj
    @wraps(command)
    def call(invocation: Invocation, /, **given: Any) -> None:
        own = {name: value for name, value in given.items() if name not in _OF_THE_INVOCATION}
        command(invocation.with_options(given), **own)

    return call


def in_run_tree(command: _Command) -> _Command:
    """Add the options on what a run takes along and what may land."""
    dirty = "Take your uncommitted changes along, and commit none of them."
    allowed = "Let this file land without a question, although programs may obey it; may be repeated."
    command = click.option("--allow-file", "allow_files", multiple=True, metavar="PATH", help=allowed)(command)
    command = click.option("--allow-dirty", is_flag=True, help=dirty)(command)
    return refuse_in_place(command)


def on_workers(command: _Command) -> _Command:
    """Add the option on the cluster that does the work."""

    def check(*given: Any) -> str | None:
        address: str | None = given[-1]
        if address is not None:
            from cdd_agent.runs.cluster import check_address

            check_address(address)
        return address

    helped = "Let the workers of this dask scheduler do the work: tcp://HOST:PORT, or tls://HOST:PORT."
    return click.option("--scheduler", metavar="ADDRESS", callback=check, help=helped)(command)


def refuse_in_place(command: _Command) -> _Command:
    """Accept ``--in-place``, which earlier versions had, only to say what to do instead."""

    def refuse(_: click.Context, *given: object) -> None:
        from cdd_agent.errors import UsageError

        if given[-1]:
            raise UsageError("--in-place was removed: every run works in a run tree.", hint=f"leave it out; {_INSTEAD}")

    return click.option("--in-place", is_flag=True, hidden=True, expose_value=False, callback=refuse)(command)


def name_ticket(*, required: bool = True, or_run: bool = False) -> Callable[[_Command], _Command]:
    """Add the argument SLUG, which a shell can complete. ``or_run``: runs without a ticket count too."""
    return click.argument(
        "slug", required=required, shell_complete=lambda context, _, start: _list_slugs(context, start, or_run=or_run)
    )


def _list_slugs(context: click.Context, start: str, *, or_run: bool) -> list[str]:
    from cdd_agent.config.options import Options
    from cdd_agent.errors import CddError
    from cdd_agent.runs.places import list_runs
    from cdd_agent.testrun.root import find_root
    from cdd_agent.tickets.ticket import list_tickets

    try:
        root = find_root(Options(project=context.find_root().params.get("project")))
        return [
            ticket.slug for ticket in (list_runs if or_run else list_tickets)(root) if ticket.slug.startswith(start)
        ]
    except (CddError, OSError):  # a message would end up in the line that the user types
        return []


def print_json(event: "Event | Answer") -> None:
    """Print one event, or one line of an answer, on standard output."""
    from cdd_agent.events import encode
    from cdd_agent.work.wording import add_messages

    sys.stdout.write(encode(event, complete=add_messages).decode("utf-8") + "\n")
    sys.stdout.flush()
