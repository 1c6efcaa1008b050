"""``cdd spec``, ``cdd plan``, ``cdd exec``: the agents without a prompt, or the prompt opened in one of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cdd_agent.cli.invocation import Invocation, headless
from cdd_agent.errors import GateClosed

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.tickets.ticket import Ticket
    from cdd_agent.work.state import RunState
    from cdd_agent.workflows.execution.executor import Executor


@click.command(short_help="Socrates questions a ticket until its spec is complete.")
@click.argument("slug")
@headless
@click.pass_obj
def spec(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """Socrates questions the ticket SLUG until its spec.yaml is complete."""
    from cdd_agent.events import Notice

    invocation = invocation.with_options(given)
    if invocation.is_interactive:
        _open(invocation, f"/spec {slug}")
        return
    with _alone_on(invocation, slug) as (project, ticket):
        socrates = project.socrates(ticket)
        if socrates.missing:
            socrates.open(somebody_answers=False)
        if socrates.missing:
            raise GateClosed(
                f"The spec is not complete: {'; '.join(socrates.missing)}.",
                hint=f"answer in {ticket.spec_path.relative_to(project.adapters.root)}, "
                f"or, in a terminal: cdd spec {slug}",
            )
        project.adapters.emit(Notice(text=f"The spec is complete. Next: cdd plan {slug}"))


@click.command(short_help="The Planner writes the plan of a complete spec.")
@click.argument("slug")
@headless
@click.pass_obj
def plan(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """The Planner writes plan.md for the ticket SLUG."""
    from cdd_agent.events import Notice

    invocation = invocation.with_options(given)
    if invocation.is_interactive:
        _open(invocation, f"/plan {slug}")
        return
    with _alone_on(invocation, slug) as (project, ticket):
        planner = project.planner(ticket)
        drafted = planner.draft()
        if not invocation.as_json:
            from cdd_agent.repl.plan_tree import show_plan

            show_plan(drafted, screen=invocation.screen, criteria=planner.criteria, created=planner.created(drafted))
        project.adapters.emit(Notice(text=f"The plan is saved. Next: cdd exec {slug}"))


@click.command(name="exec", short_help="The Executor carries the plan out, test first.")
@click.argument("slug")
@click.option("--step", type=int, metavar="N", help="Run only step N.")
@click.option("--retry", type=int, metavar="N", help="Try the failed or skipped step N again, then go on.")
@click.option("--skip", type=int, metavar="N", help="Leave step N out, then go on.")
@click.option("--allow-dirty", is_flag=True, help="Keep your uncommitted changes as they are, out of every commit.")
@headless
@click.pass_obj
def exec_(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """The Executor carries the plan of the ticket SLUG out, test first, from where it stopped."""
    invocation = invocation.with_options(given)
    if invocation.is_interactive and not any(given[name] is not None for name in ("step", "retry", "skip")):
        _open(invocation, f"/exec {slug}")
        return
    with invocation.ticket(slug) as (project, ticket):
        executor = project.executor(ticket)
        _carry_out(executor, given)
    if not invocation.as_json:
        from cdd_agent.repl.talk.summary import show_summary

        invocation.screen.gap()
        show_summary(executor.state, screen=invocation.screen)
    _require_completed(executor.state)


def _open(invocation: Invocation, said: str) -> None:
    """The prompt, with what is said first in it."""
    from cdd_agent.cli.chat import chat

    chat(invocation, first=said)


@contextmanager
def _alone_on(invocation: Invocation, slug: str) -> Iterator[tuple["Composition", "Ticket"]]:
    """The project and a ticket of it that nobody else writes while the block runs."""
    from cdd_agent.work.hold import holding_ticket

    with invocation.ticket(slug) as (project, ticket), holding_ticket(project.adapters.root, ticket.folder):
        yield project, ticket


def _carry_out(executor: "Executor", given: dict[str, Any]) -> None:
    """Run what the options name: one step, or all that are left."""
    for name in ("step", "retry", "skip"):
        if given[name] is not None:
            executor.step(given[name])
    with executor.running():
        if given["retry"] is not None:
            executor.retry(given["retry"])
        if given["skip"] is not None:
            executor.skip(given["skip"], reason="skipped by the user")
        if given["step"] is not None:
            executor.run_step(executor.step(given["step"]))
        else:
            executor.run_all()


def _require_completed(state: "RunState") -> None:
    """Raise ``GateClosed`` naming the first step that failed."""
    from cdd_agent.work.state import Status

    for number in state.numbers(Status.FAILED):
        raise GateClosed(
            f"Step {number} failed: {state.execution(number).title}.",
            hint=f"change the plan or the code, then: cdd exec {state.ticket_slug} --retry {number}",
        )
