"""The chat prompt: reads a line, hands it to a command or to the agent that listens, and never ends by an error."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory

from cdd_agent.errors import CddError, UsageError
from cdd_agent.repl import executor_talk
from cdd_agent.repl.commands import Command, help_lines, parse
from cdd_agent.repl.completion import CommandCompleter
from cdd_agent.repl.render import Screen
from cdd_agent.repl.status import steps_table, tickets_table
from cdd_agent.tickets.ticket import Ticket, all_tickets, create, find
from cdd_agent.work import state_file
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates
from cdd_agent.workflows.execution.executor import Executor

Agent: TypeAlias = Socrates | Planner | Executor


class Crew(Protocol):
    """Whoever makes the agents; events go to the screen and to the ticket's journal."""

    @property
    def root(self) -> Path:
        """The project's folder."""
        ...

    def socrates(self, ticket: Ticket) -> Socrates:
        """Socrates on a ticket."""
        ...

    def planner(self, ticket: Ticket) -> Planner:
        """The Planner on a ticket."""
        ...

    def executor(self, ticket: Ticket) -> Executor:
        """The Executor on a ticket."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the user is: shown in the prompt and the toolbar."""

    agent: str = "cdd"
    ticket: str = ""


Read: TypeAlias = Callable[[Place], str]
"""Gives one line the user typed; raises ``EOFError`` when there are no more and ``KeyboardInterrupt`` for Ctrl-C."""


def terminal_reader(history: Path, *, slugs: Callable[[], list[str]], status: Callable[[], str]) -> Read:
    """Reads lines with history, suggestions and completion; ``status`` is the right half of the toolbar."""
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)),
        auto_suggest=AutoSuggestFromHistory(),
        completer=CommandCompleter(slugs),
        complete_while_typing=True,
    )

    def read(place: Place) -> str:
        name = f"{place.agent} {place.ticket}".strip()

        def toolbar() -> FormattedText:
            return FormattedText([("", f" {name} · {status()} · /help ")])

        message = FormattedText([("bold", f"{name}> ")])
        return session.prompt(message, bottom_toolbar=toolbar)

    return read


class Session:
    """One sitting at the prompt."""

    def __init__(self, crew: Crew, *, screen: Screen, read: Read) -> None:
        """Nothing is asked before ``run``."""
        self._crew = crew
        self._screen = screen
        self._read = read
        self._agent: Agent | None = None
        self._slug = ""
        self._over = False

    @property
    def place(self) -> Place:
        """Where the user is now."""
        names = {Socrates: "spec", Planner: "plan", Executor: "exec"}
        return Place(agent=names[type(self._agent)] if self._agent else "cdd", ticket=self._slug)

    def run(self, *, first: str = "") -> None:
        """Handle ``first``, then line after line, until the user leaves."""
        if first:
            self.handle(first)
        while not self._over:
            try:
                line = self._read(self.place)
            except KeyboardInterrupt:
                self._screen.line("Ctrl-D or /exit leaves; what you type after / is a command.", style="dim", indent=0)
            except EOFError:
                break
            else:
                self.handle(line)

    def handle(self, line: str) -> None:
        """Carry out one line; whatever goes wrong becomes a message, and Ctrl-C ends only this line."""
        try:
            if line.startswith("/"):
                command, argument = parse(line)
                self._do(command, argument)
            else:
                self._speak(line.strip())
            if isinstance(self._agent, Socrates) and not self._agent.missing:
                self._agent = None
                self._screen.line(f"The spec of {self._slug} is complete. Next: /plan", style="green", indent=0)
        except CddError as error:
            self._screen.line(f"error: {error.happened}", style="bold red", indent=0)
            self._screen.line(f"hint: {error.hint}", style="yellow", indent=0)
        except KeyboardInterrupt:
            self._screen.line("Stopped. Nothing is half done; say it again to go on.", style="yellow", indent=0)
        except Exception as error:  # noqa: BLE001 (a defect in one command must not end the session)
            self._screen.line(
                f"error: a defect of cdd's own: {type(error).__name__}: {error}", style="bold red", indent=0
            )

    def _do(self, command: Command, argument: str) -> None:
        """Carry out a slash command."""
        match command.name:
            case "spec":
                self._open_spec(self._ticket(argument))
            case "plan":
                self._open_plan(self._ticket(argument))
            case "exec":
                self._open_exec(self._ticket(argument))
            case "new":
                self._new(argument)
            case "status":
                self._status(argument or self._slug)
            case "help":
                width = max(len(typed) for typed, _ in help_lines())
                for typed, told in help_lines():
                    self._screen.line(f"{typed:<{width}}  {told}", indent=2)
            case "exit":
                self._over = True

    def _ticket(self, argument: str) -> Ticket:
        """The ticket that a command names, or the one in work."""
        slug = argument or self._slug
        if not slug:
            known = ", ".join(ticket.slug for ticket in all_tickets(self._crew.root))
            hint = f"name one of: {known}" if known else "make one first: /new SLUG"
            raise UsageError("No ticket is in work.", hint=hint)
        ticket = find(self._crew.root, slug)
        self._slug = ticket.slug
        return ticket

    def _open_spec(self, ticket: Ticket) -> None:
        """Begin to question a ticket, or say that it is complete."""
        socrates = self._crew.socrates(ticket)
        self._agent = socrates
        if socrates.missing:
            socrates.open(somebody_answers=True)

    def _open_plan(self, ticket: Ticket) -> None:
        """Draft a plan and stay, so that the user can say what to change."""
        planner = self._crew.planner(ticket)
        self._agent = planner
        planner.draft()
        self._screen.line(f"Read it in {ticket.plan_path}. Say what to change, or: /exec", style="green", indent=0)

    def _open_exec(self, ticket: Ticket) -> None:
        """Say where the plan stands and wait for a word, or show the end of a finished one."""
        executor = self._crew.executor(ticket)
        self._agent = executor if executor_talk.greet(executor, screen=self._screen) else None

    def _speak(self, words: str) -> None:
        """Give plain words to the agent that listens."""
        match self._agent:
            case Socrates() as socrates if words:
                socrates.hear(words)
            case Planner() as planner if words:
                planner.draft(words)
            case Executor() as executor:
                self._agent = executor if executor_talk.say(executor, words, screen=self._screen) else None
            case _ if words:
                raise UsageError("No agent is listening.", hint="/spec, /plan or /exec with a ticket; /help shows all")

    def _new(self, argument: str) -> None:
        """Make a ticket and take it into work."""
        slug, _, title = argument.partition(" ")
        if not slug:
            raise UsageError("A ticket needs a name.", hint="/new export-as-csv Export as CSV")
        ticket = create(
            self._crew.root, slug, title=title.strip() or slug.replace("-", " ").capitalize(), type="feature"
        )
        self._slug = ticket.slug
        self._screen.line(f"Made {ticket.spec_path}. Next: /spec", style="green", indent=0)

    def _status(self, slug: str) -> None:
        """Show the tickets, or the steps of one."""
        state = state_file.load(find(self._crew.root, slug).state_path) if slug else None
        table = tickets_table(all_tickets(self._crew.root)) if state is None else steps_table(state)
        self._screen.console.print(table)
