"""The state of a session at the prompt: the agents, the ticket, and the progress of the work."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from cdd_agent import events
from cdd_agent.agent.sessions import Transcript, repair_messages
from cdd_agent.conversation.planner import Planner
from cdd_agent.conversation.scout import AGENT as SCOUT
from cdd_agent.conversation.scout import Scout
from cdd_agent.conversation.socrates import Socrates
from cdd_agent.errors import ExitCode, UsageError
from cdd_agent.events import Event
from cdd_agent.git.tree_store import Checkpoint
from cdd_agent.model.budget import find_context_window, totals_from_answer
from cdd_agent.model.conversation import Message
from cdd_agent.repl import dialogs
from cdd_agent.repl.render import format_cost
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.terminal import KEYBOARD, PromptStatus
from cdd_agent.runs.places import find_run, is_of_project, list_present
from cdd_agent.runs.plan_steps import PlanSteps
from cdd_agent.runs.review import Review
from cdd_agent.runs.run import Run
from cdd_agent.tickets.ticket import Ticket, list_tickets
from cdd_agent.work.state import Usage

if TYPE_CHECKING:
    from cdd_agent.compose import Composition

RunCommand: TypeAlias = Callable[[Sequence[str]], ExitCode]
"""Carries out a command that the command line has too."""
Agent: TypeAlias = Socrates | Planner | Run[PlanSteps] | Review

AGENT_COMMANDS = {"socrates": "spec", "planner": "plan", "executor": "exec", "review": "review"}
"""Agent -> the command that opens it."""


class ProgressTracker:
    """Follows the events of a session for the prompt and the toolbar. Its ``write`` is an ``Emit``."""

    def __init__(self, *, model: str = "") -> None:
        """Show ``model`` until an event names another one."""
        self.model = model
        self.phase = ""
        self.gate = ""
        self.tokens = 0
        """Tokens of the last request and its answer."""
        self.used = Usage()
        """What all agents of the session have used."""

    def write(self, event: Event) -> None:
        """Update the progress after an event."""
        match event:
            case events.TurnEnded() | events.AnswerLost():
                used = totals_from_answer(event)
                self.used += replace(used, calls=1)
                self.tokens, self.model = used.tokens, event.model or self.model
            case events.Compacted():
                self.tokens = 0
            case events.RunStarted(model=model):
                self.model = model
            case events.StepStarted() | events.StepFinished(status="completed" | "skipped"):
                self.phase = self.gate = ""  # the toolbar shows the next step now
            case events.AttemptStarted(phase=phase):
                self.phase, self.gate, self.tokens = phase, "", 0
            case events.GateJudged(phase=phase, is_expected=True):
                self.phase, self.gate = phase, ""
            case events.GateJudged(phase=phase, open=is_open):
                self.phase, self.gate = phase, "open" if is_open else "closed"
            case _:
                pass

    def fill(self, status: PromptStatus, *, tokens: int | None = None) -> PromptStatus:
        """Return ``status`` with phase, model, context and cost. ``tokens`` overrides those of the last request."""
        percent = compute_context_percent(self.model, tokens=self.tokens if tokens is None else tokens)
        if status.agent == "exec":
            status = replace(status, phase=self.phase, gate=self.gate)
        return replace(status, model=self.model, context_percent=percent, cost=format_cost(self.used))


def compute_context_percent(model: str, *, tokens: int) -> int | None:
    """Return how much of the model's context ``tokens`` fill, or None if that is nothing or unknown."""
    size = find_context_window(model)
    return min(100, tokens * 100 // size) if size and tokens else None


class SessionState:
    """The state that the commands at the prompt read and change."""

    def __init__(self, project: "Composition", *, screen: Screen, run: RunCommand, model: str = "") -> None:
        """Start without an active agent. ``model`` is shown until an event names another one."""
        self.project = project
        self.screen = screen
        self.run = run
        self.progress = ProgressTracker(model=model)
        project.publisher.listeners += [self.progress.write, self._follow_step]
        self.transcript = Transcript(project.root, clock=project.clock, tell=project.emit)
        project.transcript = self.transcript
        project.measure_talks = self.measure_talks
        self.slug = ""
        self.is_over = False
        self.agent: Agent | None = None
        """The agent that gets plain words."""
        self.scout: Scout | None = None
        """Answers plain words while no agent is active. None: it was not asked yet."""
        self._alive: dict[tuple[str, str], Socrates | Planner] = {}
        """Agents with a conversation, by name and ticket."""
        self.previous: list[tuple[str, str]] = []
        """Name and ticket of the agents that were active before, latest last."""
        self.unsaved = ""
        """Why files cannot be saved before messages of the user."""
        self._cut: dict[int, dict[str, tuple[Message, ...]]] = {}
        """Number of a checkpoint before a rewind -> token of a conversation -> its messages then."""

    def measure_talks(self) -> tuple[str, dict[str, int]]:
        """Return the session, and the number of messages of each conversation by its token."""
        talks = (agent.conversation for agent in self._talkers)
        return self.transcript.id, {talk.token: len(talk.messages) for talk in talks}

    @property
    def _talkers(self) -> tuple[Socrates | Planner | Scout, ...]:
        return (*self._alive.values(), *([self.scout] if self.scout is not None else ()))

    def cut_talks(self, target: Checkpoint, *, before: Checkpoint) -> tuple[int, tuple[str, ...]]:
        """Give each conversation the messages that it had at ``target``, and remember those ``before``.

        Return the number of messages that were cut, and the agents whose conversations began elsewhere and stay.
        """
        self._cut[before.number] = {each.conversation.token: each.conversation.messages for each in self._talkers}
        known, about = self._cut.get(target.number, {}), target.about
        is_ours = bool(about.session) and about.session == self.transcript.id
        cut, stay = 0, []
        for agent in self._talkers:
            conversation, dialog = agent.conversation, agent.dialog
            token, count = conversation.token, about.talks.get(conversation.token, 0 if is_ours else None)
            if count is None:
                stay.append(SCOUT if dialog.agent == SCOUT else f"/{AGENT_COMMANDS[dialog.agent]} {dialog.ticket}")
                continue
            messages = known.get(token, repair_messages(conversation.messages[:count]))
            cut += len(conversation.messages) - len(messages)
            if messages != conversation.messages:
                agent.conversation = dialog.resume(token, messages)
        return cut, tuple(stay)

    def _follow_step(self, event: Event) -> None:
        """Let the lines that are typed from now on belong to the step that has started."""
        if isinstance(event, events.StepStarted):
            step = f"{event.number}/{event.total}"
            KEYBOARD.typed.place = PromptStatus(agent="exec", ticket=self.slug, step=step).place

    @property
    def prompt_status(self) -> PromptStatus:
        """Where the user is now."""
        progress = self.progress
        match self.agent:
            case Run() as executor:
                step = dialogs.format_current_step(executor)
                return progress.fill(
                    PromptStatus(
                        agent="exec", ticket=self.slug, step=step, sandbox=executor.context.suite.sandbox.level
                    )
                )
            case Planner() | Socrates() as agent:
                asked = agent.question if isinstance(agent, Socrates) else None
                question = asked.question if asked is not None else ""
                status = PromptStatus(agent=AGENT_COMMANDS[agent_name(agent)], ticket=self.slug, question=question)
                return progress.fill(status, tokens=agent.conversation.tokens)
            case Review() as review:
                return progress.fill(PromptStatus(agent="review", ticket=self.slug, step=review.position), tokens=0)
            case None:
                tokens = self.scout.conversation.tokens if self.scout is not None else 0
                return progress.fill(PromptStatus(ticket=self.slug), tokens=tokens)

    def find_ticket(self, argument: str) -> Ticket:
        """Return the ticket or run that a command names, else the current one, else the only one of the project."""
        root = self.project.root
        tickets = list_tickets(root) or tuple(filter(is_of_project, list_present(root)))
        slug = argument or self.slug or (tickets[0].slug if len(tickets) == 1 else "")
        if not slug:
            known = ", ".join(ticket.slug for ticket in tickets)
            hint = f"name one of: {known}" if known else "say what you want, in your words, or create one: /new SLUG"
            raise UsageError("No ticket is selected.", hint=hint)
        return find_run(self.project.root, slug)

    def find_agent(self, name: str, *, slug: str) -> Socrates | Planner | None:
        """Return the agent of this name that already talks about this ticket, if any."""
        return self._alive.get((name, slug))

    def remember(self, agent: Socrates | Planner) -> None:
        """Continue this agent's conversation when it is opened again."""
        self._alive[agent_name(agent), agent.ticket.slug] = agent

    def switch_to(self, agent: Agent, *, goes_back: bool = False) -> None:
        """Make ``agent`` the active one. Unless the user ``goes_back``, /back returns to the one before."""
        here = (agent_name(agent), agent.ticket.slug)
        if self.agent is not None and not goes_back:
            self.previous.append((agent_name(self.agent), self.agent.ticket.slug))
        self.previous = [previous for previous in self.previous if previous != here]
        self.agent = agent
        self.slug = agent.ticket.slug
        if isinstance(agent, Socrates | Planner):
            self.remember(agent)
        self.project.follow(agent.ticket.slug)
        self.transcript.switch_agent(here[0], ticket=here[1])
        KEYBOARD.typed.place = PromptStatus(agent=AGENT_COMMANDS[here[0]], ticket=here[1]).place

    def leave_agent(self, *, for_good: bool = False) -> None:
        """Deactivate the agent. Unless it is left ``for_good``, /back returns to it."""
        if self.agent is not None and not for_good:
            here = (agent_name(self.agent), self.agent.ticket.slug)
            self.previous = [*(previous for previous in self.previous if previous != here), here]
        self.agent = None
        KEYBOARD.typed.place = PromptStatus(ticket=self.slug).place

    def read_again(self) -> None:
        """Let the active agent follow an undo or redo: the Executor reads the state, and a review ends."""
        if isinstance(self.agent, Run):
            self.agent.read()
        elif isinstance(self.agent, Review):
            self.leave_agent(for_good=True)

    def rebuild_agents(self) -> None:
        """Create all agents again, with their conversations, after the model has changed.

        An agent whose ticket no longer exists is dropped, and a note says so.
        """
        here = self.agent
        if self.scout is not None:
            conversation, self.scout = self.scout.conversation, self.project.scout()
            self.scout.conversation = self.scout.dialog.drop_thoughts(conversation)
        for (name, slug), agent in list(self._alive.items()):
            try:
                new = create_agent(name, agent.ticket, project=self.project)
            except UsageError as error:
                del self._alive[name, slug]
                self.previous = [previous for previous in self.previous if previous != (name, slug)]
                report_dropped(name, slug, error=error, screen=self.screen)
                continue
            new.conversation = new.dialog.drop_thoughts(agent.conversation)
            self._alive[name, slug] = new
        match here:
            case Run() as executor:
                self.leave_agent(for_good=True)
                self.project.follow(executor.ticket.slug)
                self.agent = self.project.executor(executor.ticket)
            case Socrates() | Planner() as agent:
                self.agent = self._alive.get((agent_name(agent), agent.ticket.slug))
                self.project.follow(agent.ticket.slug)


def create_agent(name: str, ticket: Ticket, *, project: "Composition") -> Socrates | Planner:
    """Return Socrates or the Planner. Raises ``UsageError`` if the ticket does not allow it."""
    project.follow(ticket.slug)
    return project.socrates(ticket) if name == "socrates" else project.planner(ticket)


def report_dropped(name: str, slug: str, *, error: UsageError, screen: Screen) -> None:
    """Say that a conversation cannot be continued, and why."""
    screen.note(f"The conversation /{AGENT_COMMANDS[name]} {slug} cannot be continued: {error.happened}")


def agent_name(agent: Agent) -> str:
    """Return ``socrates``, ``planner``, ``executor`` or ``review``."""
    return {Socrates: "socrates", Planner: "planner", Run: "executor", Review: "review"}[type(agent)]
