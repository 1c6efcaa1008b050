"""``cdd new`` and ``cdd status``."""

import click

from cdd_agent.cli.invocation import Invocation


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

    project = invocation.project()
    ticket = create(project.root, slug, title=title or slug.replace("-", " ").capitalize(), type=kind)
    shown = ticket.spec_path.relative_to(project.root)
    invocation.screen.line(f"Made {shown}. Describe what you want there, then: cdd spec {slug}", hang=2)


@click.command(short_help="Show the tickets, or where one stands.")
@click.argument("slug", required=False)
@click.pass_obj
def status(invocation: Invocation, slug: str | None) -> None:
    """Show the tickets of the project, or where the ticket SLUG stands."""
    from cdd_agent.repl.status import show_ticket, show_tickets
    from cdd_agent.tickets.ticket import all_tickets, find

    project = invocation.project()
    if slug is None:
        show_tickets(all_tickets(project.root), screen=invocation.screen)
    else:
        show_ticket(find(project.root, slug), screen=invocation.screen)
