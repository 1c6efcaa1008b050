"""``cdd tdd``: a feature, one listed test a cycle, PLAN, RED, GREEN and REFACTOR each with an agent of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cdd_agent.cli.invocation import Invocation, headless

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.events import Event
    from cdd_agent.workflows.orchestration.feature import Feature
    from cdd_agent.workflows.orchestration.orchestrator import Orchestrator

Find = Callable[["Composition"], "Feature"]
"""Says which feature is meant."""


@click.group(short_help="A feature, one listed test a cycle: PLAN, RED, GREEN, REFACTOR.")
def tdd() -> None:
    """Build a feature test by test: an agent for each phase, a gate after it, a commit and a note for each."""


@tdd.command(short_help="Begin a feature.")
@click.argument("text", nargs=-1, required=True)
@click.option("--allow-dirty", is_flag=True, help="Keep your uncommitted changes as they are, out of every commit.")
@headless
@click.pass_obj
def run(invocation: Invocation, /, text: tuple[str, ...], **given: Any) -> None:
    """Build the feature that TEXT asks for."""
    from cdd_agent.workflows.orchestration.recollection import to_begin

    def find(project: "Composition") -> "Feature":
        return to_begin(project.adapters.root, project.adapters.repository, text=" ".join(text))

    with orchestrator(invocation.with_options(given), find) as made:
        made.run()


@tdd.command(short_help="Go on with a feature.")
@click.option("--allow-dirty", is_flag=True, help="Keep your uncommitted changes as they are, out of every commit.")
@headless
@click.pass_obj
def resume(invocation: Invocation, /, **given: Any) -> None:
    """Go on from the phase after the last one that landed, whatever ended the run."""
    from cdd_agent.workflows.orchestration.recollection import to_resume

    def find(project: "Composition") -> "Feature":
        return to_resume(project.adapters.root, project.adapters.repository)

    with orchestrator(invocation.with_options(given), find) as made:
        made.run()


@contextmanager
def orchestrator(invocation: Invocation, find: Find) -> Iterator["Orchestrator"]:
    """The orchestrator on the feature that ``find`` names, the events going to the output and to its journal."""
    from cdd_agent.compose import Composition
    from cdd_agent.journal import Journal, journal_path
    from cdd_agent.repl.render import WAITING

    sinks = [invocation.sink]

    def emit(event: "Event") -> None:
        for sink in sinks:
            sink(event)

    project = Composition(invocation.asking, emit=emit)
    feature = find(project)
    path = journal_path(project.adapters.root, feature.slug)
    with (
        Journal(path, clock=project.adapters.clock, tell=invocation.sink) as journal,
        invocation.screen.working(WAITING),
    ):
        sinks.insert(0, journal.write)
        yield project.orchestrator(feature)
