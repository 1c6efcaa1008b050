"""``cdd audit``: what handoff notes claim, held against the history and against tests run anew."""

from typing import Any

import click

from cdd_agent.cli.invocation import Invocation, headless
from cdd_agent.errors import ExitCode


@click.command(short_help="Check what handoff notes claim, by running the tests again.")
@click.argument("revisions", metavar="[RANGE]", default="HEAD", required=False)
@headless
@click.pass_obj
def audit(invocation: Invocation, /, revisions: str, **given: Any) -> None:
    """Hold every handoff note in RANGE against the history and against its tests, run again in clean copies.

    RANGE is what git takes, such as main..HEAD; without it, all that leads to HEAD. Nothing of the project changes.
    Exit code 1 if a claim fails, 4 if there are no notes or the tests cannot be run.
    """
    from cdd_agent.repl.actions.audit import show_audit

    invocation = invocation.with_options(given)
    with invocation.screen.working("reading notes"):
        audited = invocation.project().auditor().run(revisions)
    if not invocation.as_json:
        show_audit(audited, screen=invocation.screen)
    if any(each.failed for each in audited):
        raise click.exceptions.Exit(int(ExitCode.CLOSED))
