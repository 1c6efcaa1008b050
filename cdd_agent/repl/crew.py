"""Whom the prompt gets its agents from."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeAlias

from cdd_agent.agent.talk.transcript import Transcript
from cdd_agent.doctor.check import Check
from cdd_agent.repl.standing import Standing
from cdd_agent.review.review import Review
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.workflows.audit.auditor import Auditor
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
