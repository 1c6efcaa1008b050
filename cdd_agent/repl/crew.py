"""Whom the prompt gets its agents from."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeAlias

from cdd_agent.doctor.check import Check
from cdd_agent.tickets.ticket import Ticket
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

    def checks(self) -> Iterable[Check]:
        """What the doctor finds, looked at while it is asked for."""
        ...
