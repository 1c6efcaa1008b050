"""``cdd doctor``: what must work before a run, and what to type where it does not."""

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from cdd_agent.cli.invocation import Invocation, headless
from cdd_agent.errors import ExitCode

if TYPE_CHECKING:
    from cdd_agent.doctor.check import Check


@click.command(short_help="Look at all that a run needs, and prove the sandbox.")
@headless
@click.pass_obj
def doctor(invocation: Invocation, /, **given: Any) -> None:
    """Look at all that a run needs: a line for each thing, with what to type where something is missing.

    The sandbox is proved: four forbidden acts are tried in it. Asks nothing, and runs nothing that the repository
    brings and that is not approved. Exit code 4 if something is missing.
    """
    from cdd_agent.doctor.checks import examine
    from cdd_agent.repl.display.checkup import show_checks

    invocation = invocation.with_options(given)
    with invocation.screen.working("looking"):
        checks = examine(invocation.project().adapters.premises())
        is_well = show_checks(_written(checks) if invocation.as_json else checks, screen=invocation.screen)
    if not is_well:
        raise click.exceptions.Exit(int(ExitCode.ENVIRONMENT))


def _written(checks: "Iterable[Check]") -> "Iterator[Check]":
    """The checks, each also a line of JSON on standard output."""
    for check in checks:
        sys.stdout.write(json.dumps({"event": "Checked", **dataclasses.asdict(check)}) + "\n")
        sys.stdout.flush()
        yield check
