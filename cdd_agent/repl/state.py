"""The state of one sitting at the prompt: who listens, on which ticket, and who listened before.

Whom the prompt gets its agents from.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeAlias

from cdd_agent.agent.sessions import Transcript
from cdd_agent.audit.auditor import Auditor
from cdd_agent.doctor import Check
from cdd_agent.errors import UsageError
from cdd_agent.repl import executor_view
from cdd_agent.repl.progress import Standing
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.status_line import Place
from cdd_agent.review import Review
from cdd_agent.tickets.ticket import Ticket, all_tickets, find
from cdd_agent.workflows.conversation.desk import Desk
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates
from cdd_agent.workflows.execution.executor import Executor
from cdd_agent.workflows.green.request import Wanted
from cdd_agent.workflows.green.run import Green
from cdd_agent.workflows.orchestration.feature import Feature
from cdd_agent.workflows.orchestration.orchestrator import Orchestrator

Agent: TypeAlias = Socrates | Planner | Executor | Review


class Workshop(Protocol):
    """Whoever does work at a word that nobody has to listen for."""

    def green(self, wanted: Wanted) -> Green:
        """GREEN on its own, for tests that fail."""
        ...

    def orchestrator(self, feature: Feature) -> Orchestrator:
        """The orchestrator on a feature."""
        ...


class Crew(Protocol):
    """Whoever makes the agents; events go to the screen and to the ticket's journal."""

    workshop: Workshop
    """What has no conversation."""

    standing: Standing
    """What the events have told so far."""
    transcript: Transcript
    """Keeps what is said in this sitting."""

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

    def review(self, ticket: Ticket) -> Review:
        """The completed steps of a ticket, to be looked at."""
        ...

    @property
    def model_name(self) -> str:
        """Who answers."""
        ...

    def use_model(self, name: str) -> None:
        """Let ``name`` answer whoever is made from now on; raises ``UsageError`` while a recording is played."""
        ...

    def desk(self, ticket: Ticket, *, command: str) -> Desk:
        """Gives conversations to Socrates (``spec``) and the Planner (``plan``)."""
        ...

    def follow(self, ticket: Ticket) -> None:
        """Write the events from now on to the journal of ``ticket``."""
        ...

    def auditor(self) -> Auditor:
        """Whoever audits handoff notes."""
        ...

    def checks(self) -> Iterable[Check]:
        """What the doctor finds, looked at while it is asked for."""
        ...


NAMES = {"socrates": "spec", "planner": "plan", "executor": "exec", "review": "review"}
"""Agent -> the command that opens it."""


class Sitting:
    """What the commands at the prompt work on and change."""

    def __init__(self, crew: Crew, *, screen: Screen) -> None:
        """Nobody listens yet."""
        self.crew = crew
        self.screen = screen
        self.slug = ""
        """The ticket in work, if any."""
        self.is_over = False
        self._agent: Agent | None = None
        self._alive: dict[tuple[str, str], Socrates | Planner] = {}
        """Agents with a conversation, by name and ticket."""
        self._before: list[tuple[str, str]] = []
        """Agents that listened before, by name and ticket; the last one last."""

    @property
    def agent(self) -> Agent | None:
        """Who listens."""
        return self._agent

    @property
    def place(self) -> Place:
        """Where the user is now."""
        standing = self.crew.standing
        match self._agent:
            case Executor() as executor:
                step = executor_view.step_in_work(executor)
                return standing.fill(Place(agent="exec", ticket=self.slug, step=step, sandbox=executor.sandbox))
            case Planner() | Socrates() as agent:
                return standing.fill(
                    Place(agent=NAMES[name_of(agent)], ticket=self.slug), tokens=agent.conversation.tokens
                )
            case Review() as review:
                return standing.fill(Place(agent="review", ticket=self.slug, step=review.place), tokens=0)
            case None:
                return standing.fill(Place(ticket=self.slug), tokens=0)

    def ticket(self, argument: str) -> Ticket:
        """The ticket that a command names, else the one in work, else the only one there is."""
        tickets = all_tickets(self.crew.root)
        slug = argument or self.slug or (tickets[0].slug if len(tickets) == 1 else "")
        if not slug:
            known = ", ".join(ticket.slug for ticket in tickets)
            hint = f"name one of: {known}" if known else "make one first: /new SLUG"
            raise UsageError("No ticket is in work.", hint=hint)
        return find(self.crew.root, slug)

    def alive(self, name: str, *, slug: str) -> Socrates | Planner | None:
        """The agent of this name that has a conversation about this ticket, if any."""
        return self._alive.get((name, slug))

    def keep(self, agent: Socrates | Planner) -> None:
        """Have ``agent`` go on in its conversation when it is opened the next time."""
        self._alive[name_of(agent), agent.ticket.slug] = agent

    def listen(self, agent: Agent, *, goes_back: bool = False) -> None:
        """Let ``agent`` listen, and remember who did before, unless it is gone back to."""
        here = (name_of(agent), agent.ticket.slug)
        if self._agent is not None and not goes_back:
            self._before.append((name_of(self._agent), self._agent.ticket.slug))
        self._before = [earlier for earlier in self._before if earlier != here]
        self._agent = agent
        self.slug = agent.ticket.slug
        if isinstance(agent, Socrates | Planner):
            self.keep(agent)
        self.crew.follow(agent.ticket)
        self.crew.transcript.turn_to(here[0], ticket=here[1])

    def leave(self, *, for_good: bool = False) -> None:
        """Let nobody listen; who did can be gone back to, unless it is left ``for_good``."""
        if self._agent is not None and not for_good:
            here = (name_of(self._agent), self._agent.ticket.slug)
            self._before = [*(earlier for earlier in self._before if earlier != here), here]
        self._agent = None

    def take_earlier(self) -> tuple[str, str] | None:
        """Name and ticket of the agent that listened before, which is forgotten with that; None if there is none."""
        return self._before.pop() if self._before else None

    def work_on(self, ticket: Ticket) -> None:
        """Take ``ticket`` into work; nobody listens yet."""
        self.leave()
        self.slug = ticket.slug

    def replace_agents(self) -> None:
        """Make all agents anew, after what they are made from has changed; conversations go on.

        One that cannot be made any more, as its ticket is gone, is left for good, and that is told.
        """
        here = self._agent
        for (name, slug), agent in list(self._alive.items()):
            try:
                new = made(name, agent.ticket, crew=self.crew)
            except UsageError as error:
                del self._alive[name, slug]
                self._before = [earlier for earlier in self._before if earlier != (name, slug)]
                tell_left_out(name, slug, error=error, screen=self.screen)
                continue
            desk = self.crew.desk(agent.ticket, command=NAMES[name])
            new.conversation = desk.for_another_model(agent.conversation, name, ticket=slug)
            self._alive[name, slug] = new
        match here:
            case Executor() as executor:
                self.leave(for_good=True)
                self._agent = self.crew.executor(executor.ticket)
            case Socrates() | Planner() as agent:
                self._agent = self._alive.get((name_of(agent), agent.ticket.slug))
                self.crew.follow(agent.ticket)


def made(name: str, ticket: Ticket, *, crew: Crew) -> Socrates | Planner:
    """Socrates or the Planner, by name; raises ``UsageError`` where the ticket does not let it."""
    return crew.socrates(ticket) if name == "socrates" else crew.planner(ticket)


def tell_left_out(name: str, slug: str, *, error: UsageError, screen: Screen) -> None:
    """Say that a conversation cannot be gone on with, and why."""
    told = f"The conversation /{NAMES[name]} {slug} is left out: {error.happened}"
    screen.line(f"{screen.symbols['note']} {told}", style="yellow", indent=0, hang=2)


def name_of(agent: Agent) -> str:
    """``socrates``, ``planner``, ``executor`` or ``review``."""
    return {Socrates: "socrates", Planner: "planner", Executor: "executor", Review: "review"}[type(agent)]
