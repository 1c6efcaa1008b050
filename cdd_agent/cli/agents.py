"""``cdd spec``, ``cdd plan``, ``cdd exec``: the agents without a prompt, or the prompt opened in one of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from cdd_agent.cli.chat import chat
from cdd_agent.cli.invocation import Invocation
from cdd_agent.errors import GateClosed
from cdd_agent.events import Notice
from cdd_agent.repl.status import steps_table
from cdd_agent.tickets.ticket import find
from cdd_agent.work.state import RunState, Status

Command = TypeVar("Command", bound=Callable[..., Any])


def _headless(command: Command) -> Command:
    """``--yes`` and ``--json`` after the command as well as before it."""
    with_json = click.option("--json", "as_json", is_flag=True, help="One event a line on standard output.")(command)
    return click.option("--yes", is_flag=True, help="Nobody to ask: take the safe default.")(with_json)


def _merged(invocation: Invocation, given: dict[str, Any]) -> Invocation:
    """The invocation with what was said after the command."""
    return replace(
        invocation,
        assume_yes=invocation.assume_yes or given["yes"],
        as_json=invocation.as_json or given["as_json"],
    )


@click.command()
@click.argument("slug")
@_headless
@click.pass_obj
def spec(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """Socrates questions the ticket SLUG until its spec.yaml is complete."""
    invocation = _merged(invocation, given)
    if invocation.is_interactive:
        chat(invocation, first=f"/spec {slug}")
        return
    with invocation.project(slug) as project:
        ticket = find(project.root, slug)
        socrates = project.socrates(ticket)
        if socrates.missing:
            socrates.open(somebody_answers=False)
        if socrates.missing:
            raise GateClosed(
                f"The spec is not complete: {'; '.join(socrates.missing)}.",
                hint=f"answer in {ticket.spec_path}, or at the prompt: cdd spec {slug}",
            )
        project.emit(Notice(text=f"The spec is complete. Next: cdd plan {slug}"))


@click.command()
@click.argument("slug")
@_headless
@click.pass_obj
def plan(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """The Planner writes plan.md for the ticket SLUG."""
    invocation = _merged(invocation, given)
    if invocation.is_interactive:
        chat(invocation, first=f"/plan {slug}")
        return
    with invocation.project(slug) as project:
        project.planner(find(project.root, slug)).draft()
        project.emit(Notice(text=f"The plan is saved. Next: cdd exec {slug}"))


@click.command(name="exec")
@click.argument("slug")
@click.option("--step", type=int, metavar="N", help="Run only step N.")
@click.option("--retry", type=int, metavar="N", help="Try the failed or skipped step N again, then go on.")
@click.option("--skip", type=int, metavar="N", help="Leave step N out, then go on.")
@click.option("--allow-dirty", is_flag=True, help="Keep your uncommitted changes as they are, out of every commit.")
@_headless
@click.pass_obj
def exec_(invocation: Invocation, /, slug: str, **given: Any) -> None:
    """The Executor carries the plan of the ticket SLUG out, test first, from where it stopped."""
    invocation = _merged(invocation, given)
    invocation = replace(invocation, options=replace(invocation.options, allow_dirty=given["allow_dirty"]))
    if invocation.is_interactive and not any(given[name] for name in ("step", "retry", "skip")):
        chat(invocation, first=f"/exec {slug}")
        return
    with invocation.project(slug) as project:
        executor = project.executor(find(project.root, slug))
        with executor.running():
            if given["retry"]:
                executor.retry(given["retry"])
            if given["skip"]:
                executor.skip(given["skip"], reason="skipped by the user")
            if given["step"]:
                executor.run_step(executor.step(given["step"]))
            else:
                executor.run_all()
        if not invocation.as_json:
            invocation.screen.console.print(steps_table(executor.state))
        _require_completed(executor.state)


def _require_completed(state: RunState) -> None:
    """Raise ``GateClosed`` naming the first step that failed."""
    for number in state.numbers(Status.FAILED):
        raise GateClosed(
            f"Step {number} failed. {state.execution(number).error}",
            hint=f"change the plan or the code, then: cdd exec {state.ticket_slug} --retry {number}",
        )
