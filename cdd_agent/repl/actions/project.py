"""Tickets, what a run needs, the list of commands, and the end."""

from cdd_agent.errors import UsageError
from cdd_agent.repl.commands import at_prompt, help_lines
from cdd_agent.repl.display.checkup import show_checks
from cdd_agent.repl.sitting import Sitting
from cdd_agent.repl.status import show_ticket, show_tickets
from cdd_agent.tickets.ticket import all_tickets, create, find


def status(sitting: Sitting, argument: str) -> None:
    """The tickets, or where one stands."""
    if argument:
        show_ticket(find(sitting.crew.root, argument), screen=sitting.screen, typed=at_prompt)
    else:
        show_tickets(all_tickets(sitting.crew.root), screen=sitting.screen, typed=at_prompt)


def new(sitting: Sitting, argument: str) -> None:
    """Make a ticket and take it into work."""
    slug, _, title = argument.partition(" ")
    if not slug:
        raise UsageError("A ticket needs a name.", hint="/new export-as-csv Export as CSV")
    title = title.strip() or slug.replace("-", " ").capitalize()
    ticket = create(sitting.crew.root, slug, title=title, type="feature")
    sitting.work_on(ticket)
    shown = ticket.spec_path.relative_to(sitting.crew.root)
    told = f"Made {shown}. Write down there what you want, or let Socrates ask you: /spec"
    sitting.screen.line(told, indent=0, hang=2)


def doctor(sitting: Sitting, _argument: str) -> None:
    """What a run needs, looked at."""
    sitting.screen.say("looking at what a run needs")
    show_checks(sitting.crew.checks(), screen=sitting.screen)


def show_help(sitting: Sitting, _argument: str) -> None:
    """What can be typed."""
    for typed, told in help_lines():
        sitting.screen.line(f"{typed:<18} {told}".rstrip(), indent=2, hang=19)


def leave(sitting: Sitting, _argument: str) -> None:
    """The session is over; everything is saved already."""
    sitting.is_over = True
