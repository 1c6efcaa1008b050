"""``cdd new`` and ``cdd status``."""

import click

from cdd_agent.cli.invocation import Invocation
from cdd_agent.repl.status import steps_table, tickets_table
from cdd_agent.tickets.ticket import all_tickets, create, find
from cdd_agent.work import state_file


@click.command()
@click.argument("slug")
@click.option("--title", help="One line; made from the slug if not given.")
@click.option(
    "--type", "kind", default="feature", show_default=True, help="feature bug enhancement refactor chore doc spike"
)
@click.pass_obj
def new(invocation: Invocation, *, slug: str, title: str | None, kind: str) -> None:
    """Make the ticket SLUG from the template."""
    with invocation.project() as project:
        ticket = create(project.root, slug, title=title or slug.replace("-", " ").capitalize(), type=kind)
        shown = ticket.spec_path.relative_to(project.root)
        invocation.screen.line(f"Made {shown}. Describe what you want there, then: cdd spec {slug}")


@click.command()
@click.argument("slug", required=False)
@click.pass_obj
def status(invocation: Invocation, slug: str | None) -> None:
    """The tickets of the project, or the steps of the ticket SLUG."""
    with invocation.project() as project:
        if slug is None:
            invocation.screen.console.print(tickets_table(all_tickets(project.root)))
            return
        state = state_file.load(find(project.root, slug).state_path)
        if state is None:
            invocation.screen.line(f"No step of {slug} has been run yet. Next: cdd exec {slug}")
            return
        invocation.screen.console.print(steps_table(state))
