"""Where tickets and steps stand, as plain values: what ``cdd --json status`` prints."""

from collections.abc import Iterator

from cdd_agent.errors import UsageError
from cdd_agent.events import StepListed, TicketListed
from cdd_agent.tickets import spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state_file
from cdd_agent.work.state import Status


def ticket_listed(ticket: Ticket) -> TicketListed:
    """How far ``ticket`` is; one whose files are not valid says why."""
    try:
        wanted, state = spec.load(ticket.spec_path), state_file.load(ticket.state_path)
    except UsageError as error:
        return TicketListed(
            ticket=ticket.slug,
            title="",
            missing=(),
            has_plan=False,
            status="",
            steps=0,
            completed=0,
            failed=0,
            problem=error.happened,
        )
    return TicketListed(
        ticket=ticket.slug,
        title=wanted.title,
        missing=spec.find_missing(wanted),
        has_plan=ticket.plan_path.exists(),
        status="" if state is None else state.status,
        steps=0 if state is None else len(state.step_executions),
        completed=0 if state is None else len(state.numbers(Status.COMPLETED)),
        failed=0 if state is None else len(state.numbers(Status.FAILED)),
        problem="",
    )


def steps_listed(ticket: Ticket) -> Iterator[StepListed]:
    """The steps of the run of ``ticket``, in the order of the plan; raises ``DocumentError`` for a damaged state."""
    state = state_file.load(ticket.state_path)
    for number, step in state.step_executions.items() if state else ():
        yield StepListed(
            ticket=ticket.slug,
            number=number,
            title=step.title,
            status=step.status,
            phase=step.phase or "",
            attempts=tuple(f"{tried.phase} {tried.number} {tried.verdict}" for tried in step.attempts),
            commits=tuple(f"{phase} {commit}" for phase, commit in step.commits.items()),
            error=step.error or "",
            tokens=step.usage.tokens,
            cost_usd=step.usage.cost_usd,
        )
