"""What a person decides about a step, kept in the state of the run."""

from pathlib import Path
from typing import Literal, TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state_file
from cdd_agent.work.hold import holding_ticket
from cdd_agent.work.state import RunState, review_step

Decision: TypeAlias = Literal["approved"]


def decide(ticket: Ticket, number: int, *, decision: Decision, project: Path) -> RunState:
    """The run with ``decision`` about step ``number``, saved.

    Raises ``UsageError`` if there is no run, if the step is not completed, or if another process holds the ticket.
    """
    with holding_ticket(project, ticket.folder):
        state = state_file.load(ticket.state_path)
        if state is None:
            raise UsageError(f"{ticket.slug} was not carried out yet.", hint=f"cdd exec {ticket.slug}")
        decided = review_step(state, number, decision=decision)
        state_file.save(ticket.state_path, decided)
        return decided
