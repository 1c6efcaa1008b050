"""What a person decides about a step, kept in the state of the run.

One review: where a person is among the completed steps of a ticket, and what was decided so far.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.git.repository import Repository
from cdd_agent.review.subject import StepToReview, completed_steps
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state_file
from cdd_agent.work.lock import holding_ticket
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


class Review:
    """A sitting over the completed steps of one ticket."""

    def __init__(self, ticket: Ticket, *, repository: Repository, project: Path) -> None:
        """Begins at the first step that nothing was decided about; raises ``UsageError`` if no step is completed."""
        self.ticket = ticket
        self._project = project
        self.steps = completed_steps(ticket, repository, project=project)
        open_steps = [at for at, step in enumerate(self.steps) if step.decision is None]
        self.at = open_steps[0] if open_steps else 0

    @property
    def step(self) -> StepToReview:
        """The step that is looked at."""
        return self.steps[self.at]

    @property
    def left(self) -> int:
        """How many steps nothing was decided about."""
        return sum(step.decision is None for step in self.steps)

    @property
    def place(self) -> str:
        """``2/3``: the step that is looked at, of how many."""
        return f"{self.at + 1}/{len(self.steps)}"

    def approve(self) -> None:
        """Approve the step that is looked at, and go to the next one that is open."""
        state = decide(self.ticket, self.step.number, decision="approved", project=self._project)
        self.steps = tuple(replace(step, decision=state.execution(step.number).review) for step in self.steps)
        following = [*range(self.at + 1, len(self.steps)), *range(self.at)]
        self.at = next((at for at in following if self.steps[at].decision is None), self.at)
