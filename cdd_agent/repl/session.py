"""The chat prompt: reads a line, hands it to a command or to the agent that listens, and never ends by an error."""

import time

from cdd_agent.errors import CddError, ExitCode, UsageError
from cdd_agent.repl import crash
from cdd_agent.repl.commands import Command, at_prompt, help_lines, parse
from cdd_agent.repl.crew import Agent, Crew
from cdd_agent.repl.display.checkup import show_checks
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.place import Place, Read
from cdd_agent.repl.render import WAITING
from cdd_agent.repl.status import show_ticket, show_tickets
from cdd_agent.repl.talk import conversation as conversation_talk
from cdd_agent.repl.talk import executor as executor_talk
from cdd_agent.tickets.ticket import Ticket, all_tickets, create, find
from cdd_agent.work.hold import holding_ticket
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates
from cdd_agent.workflows.execution.executor import Executor

LEAVES_WITHIN_S = 2.0
"""A second Ctrl-C at the prompt within this time leaves."""


class Session:
    """One sitting at the prompt."""

    def __init__(self, crew: Crew, *, screen: Screen, read: Read, somebody_types: bool = True) -> None:
        """Nothing is asked before ``run``; lines that nobody types are a script, and what fails in it counts."""
        self._crew = crew
        self._screen = screen
        self._read = read
        self._somebody_types = somebody_types
        self._agent: Agent | None = None
        self._slug = ""
        self._over = False

    @property
    def place(self) -> Place:
        """Where the user is now."""
        match self._agent:
            case Executor() as executor:
                step = executor_talk.step_in_work(executor)
                return Place(agent="exec", ticket=self._slug, step=step, sandbox=executor.sandbox)
            case Planner():
                return Place(agent="plan", ticket=self._slug)
            case Socrates():
                return Place(agent="spec", ticket=self._slug)
            case None:
                return Place(ticket=self._slug)

    def run(self, *, first: str = "") -> ExitCode:
        """Handle ``first``, then line after line, until the user leaves.

        The exit code is that of ``first`` if it opened no conversation, or of the last line of a script that failed.
        """
        code, last_stop = ExitCode.DONE, -LEAVES_WITHIN_S
        if first:
            code = self.handle(first)
            if code != ExitCode.DONE and self._agent is None:
                return code
        while not self._over:
            if self._somebody_types:
                self._screen.gap()
                code = ExitCode.DONE
            try:
                line = self._read(self.place)
            except KeyboardInterrupt:
                if not self._somebody_types:
                    return ExitCode.INTERRUPTED
                if time.monotonic() - last_stop < LEAVES_WITHIN_S:
                    return ExitCode.INTERRUPTED
                last_stop = time.monotonic()
                told = "Ctrl-C again, Ctrl-D or /exit leaves; /help shows what to type."
                self._screen.line(told, style="dim", indent=0)
            except EOFError:
                break
            else:
                code = self.handle(line) or code
        return code

    def handle(self, line: str) -> ExitCode:
        """Carry out one line; whatever goes wrong becomes a message, and Ctrl-C ends only this line."""
        try:
            with self._screen.working(WAITING):
                words = line.strip()
                if words.startswith("/"):
                    self._do(*parse(words))
                else:
                    self._speak(words)
        except CddError as error:
            return _tell(error, screen=self._screen)
        except KeyboardInterrupt:
            self._stopped()
            return ExitCode.INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 (a defect in one command must not end the session)
            outside = crash.of_the_system(error)
            if outside is not None:
                return _tell(outside, screen=self._screen)
            happened, hint = crash.explain(error, crash.keep(error))
            self._screen.error(happened, hint=hint)
            return ExitCode.INTERNAL
        return ExitCode.DONE

    def _stopped(self) -> None:
        """Say where Ctrl-C leaves the user."""
        self._over = not self._somebody_types
        self._screen.line("Stopped; nothing is half done.", style="yellow", indent=0)
        if isinstance(self._agent, Executor):
            executor_talk.say_what_is_next(self._agent, screen=self._screen)

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
            case "status" if argument:
                show_ticket(find(self._crew.root, argument), screen=self._screen)
            case "status":
                show_tickets(all_tickets(self._crew.root), screen=self._screen)
            case "doctor":
                show_checks(self._crew.checks(), screen=self._screen)
            case "help":
                for typed, told in help_lines():
                    self._screen.line(f"{typed:<18} {told}".rstrip(), indent=2, hang=19)
            case "exit":
                self._over = True

    def _ticket(self, argument: str) -> Ticket:
        """The ticket that a command names, else the one in work, else the only one there is; no agent listens then."""
        tickets = all_tickets(self._crew.root)
        slug = argument or self._slug or (tickets[0].slug if len(tickets) == 1 else "")
        if not slug:
            known = ", ".join(ticket.slug for ticket in tickets)
            hint = f"name one of: {known}" if known else "make one first: /new SLUG"
            raise UsageError("No ticket is in work.", hint=hint)
        ticket = find(self._crew.root, slug)
        self._slug, self._agent = ticket.slug, None
        return ticket

    def _open_spec(self, ticket: Ticket) -> None:
        """Begin to question a ticket, or say that it is complete."""
        socrates = self._crew.socrates(ticket)
        socrates.check()
        self._agent = socrates
        with holding_ticket(self._crew.root, ticket.folder):
            conversation_talk.question(socrates, "", screen=self._screen)

    def _open_plan(self, ticket: Ticket) -> None:
        """Draft a plan, or show the one that is there, and stay: the user can say what to change."""
        planner = self._crew.planner(ticket)
        planner.check()
        self._agent = planner
        with holding_ticket(self._crew.root, ticket.folder):
            conversation_talk.plan(planner, "", screen=self._screen)

    def _open_exec(self, ticket: Ticket) -> None:
        """Say where the plan stands and wait for a word, or show the end of a finished one."""
        executor = self._crew.executor(ticket)
        self._agent = executor if executor_talk.greet(executor, screen=self._screen) else None

    def _speak(self, words: str) -> None:
        """Give plain words to the agent that listens."""
        match self._agent:
            case Socrates() as socrates:
                with holding_ticket(self._crew.root, socrates.ticket.folder):
                    conversation_talk.question(socrates, words, screen=self._screen)
            case Planner() as planner if words:
                with holding_ticket(self._crew.root, planner.ticket.folder):
                    conversation_talk.plan(planner, words, screen=self._screen)
            case Executor() as executor:
                self._agent = executor if executor_talk.say(executor, words, screen=self._screen) else None
            case _ if words:
                raise UsageError("No agent is listening.", hint="/spec, /plan or /exec with a ticket; /help shows all")

    def _new(self, argument: str) -> None:
        """Make a ticket and take it into work."""
        slug, _, title = argument.partition(" ")
        if not slug:
            raise UsageError("A ticket needs a name.", hint="/new export-as-csv Export as CSV")
        title = title.strip() or slug.replace("-", " ").capitalize()
        ticket = create(self._crew.root, slug, title=title, type="feature")
        self._slug, self._agent = ticket.slug, None
        shown = ticket.spec_path.relative_to(self._crew.root)
        self._screen.line(f"Made {shown}. Write there what you want, or let yourself be asked: /spec", indent=0, hang=2)


def _tell(error: CddError, *, screen: Screen) -> ExitCode:
    """Say what went wrong; its exit code."""
    screen.error(error.happened, hint=at_prompt(error.hint))
    return error.exit_code
