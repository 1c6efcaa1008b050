"""``cdd new``, ``cdd status`` and ``cdd review``."""

import sys
from typing import Any

import click

from cdd_agent.cli.invocation import Invocation, headless


@click.command(short_help="Make a ticket from the template.")
@click.argument("slug")
@click.option("--title", help="One line; made from the slug if not given.")
@click.option(
    "--type",
    "kind",
    default="feature",
    show_default=True,
    metavar="TYPE",
    help="feature, bug, enhancement, refactor, chore, doc or spike.",
)
@click.pass_obj
def new(invocation: Invocation, *, slug: str, title: str | None, kind: str) -> None:
    """Make the ticket SLUG from the template."""
    from cdd_agent.tickets.ticket import create

    root = invocation.options.root()
    ticket = create(root, slug, title=title or slug.replace("-", " ").capitalize(), type=kind)
    shown = ticket.spec_path.relative_to(root)
    invocation.screen.line(f"Made {shown}. Describe what you want there, then: cdd spec {slug}", hang=2)


@click.command(short_help="Show the tickets, or where one stands.")
@click.argument("slug", required=False)
@headless
@click.pass_obj
def status(invocation: Invocation, /, slug: str | None, **given: Any) -> None:
    """Show the tickets of the project, or where the ticket SLUG stands."""
    from cdd_agent.repl.status import show_ticket, show_tickets
    from cdd_agent.tickets.ticket import all_tickets, find

    invocation = invocation.with_options(given)
    root = invocation.options.root()
    if invocation.as_json:
        from cdd_agent.repl.actions.listing import steps_listed, ticket_listed

        found = all_tickets(root) if slug is None else (find(root, slug),)
        for ticket in found:
            invocation.sink(ticket_listed(ticket))
            for step in () if slug is None else steps_listed(ticket):
                invocation.sink(step)
        return
    if slug is None:
        show_tickets(all_tickets(root), screen=invocation.screen)
    else:
        show_ticket(find(root, slug), screen=invocation.screen)


@click.command(short_help="Look at what completed steps changed, and approve it.")
@click.argument("slug")
@click.option("--approve", type=int, multiple=True, metavar="N", help="Approve step N; may be said several times.")
@click.option("--full", is_flag=True, help="Show every diff, however long.")
@headless
@click.pass_obj
def review(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """Show what the completed steps of the ticket SLUG changed, on what evidence, and what was decided about them."""
    invocation = invocation.with_options(given)
    if invocation.is_interactive and not given["approve"]:
        from cdd_agent.cli.chat import chat

        chat(invocation, first=f"/review {slug}")
        return
    from cdd_agent.repl.talk.review import MOST_LINES, show_overview, show_step
    from cdd_agent.review.decision import decide
    from cdd_agent.review.subject import completed_steps

    with invocation.ticket(slug) as (project, ticket):
        for number in given["approve"]:
            decide(ticket, number, decision="approved", project=project.adapters.root)
        steps = completed_steps(ticket, project.adapters.repository, project=project.adapters.root)
    if invocation.as_json:
        for step in steps:
            invocation.sink(step.as_event(slug))
        return
    for step in steps:
        most_lines = sys.maxsize if given["full"] else MOST_LINES
        show_step(step, count=len(steps), screen=invocation.screen, most_lines=most_lines)
        invocation.screen.gap()
    show_overview(steps, screen=invocation.screen)
