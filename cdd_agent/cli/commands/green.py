"""``cdd green``: code for tests that fail already, and the artifact of what was made."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdd_agent.cli.invocation import Invocation, headless
from cdd_agent.errors import UsageError

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.workflows.green.artifact import GreenArtifact
    from cdd_agent.workflows.green.request import Wanted


@click.command(short_help="Write the code for tests that fail already.")
@click.argument("tests", nargs=-1, metavar="TEST...")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the artifact there."
)
@click.option("--title", metavar="TEXT", help="What the commit is called; made from the tests if not given.")
@click.option(
    "--kind", type=click.Choice(["feature", "bug"]), help="feat: or fix:; told from the failures if not given."
)
@click.option("--spec-id", metavar="ID", help="Of the artifact; the run's name if not given.")
@click.option("--request-id", metavar="ID", help="Of the artifact; made if not given.")
@click.option("--anew", is_flag=True, help="Take back what an interrupted run has done, and begin again.")
@click.option("--allow-dirty", is_flag=True, help="Keep your uncommitted changes as they are, out of every commit.")
@headless
@click.pass_obj
def green(invocation: Invocation, /, tests: tuple[str, ...], **given: Any) -> None:
    """Write the code that makes each TEST pass, a file or node id that fails now; tests are locked.

    The same command goes on with a run that was interrupted.
    """
    from cdd_agent.workflows.green.request import wanted_below

    invocation = invocation.with_options(given)
    out: Path | None = given["out"]
    _require_place(out)

    def find(project: "Composition") -> "Wanted":
        return replace(
            wanted_below(project.adapters.root, tests, here=Path.cwd()),
            title=given["title"] or "",
            kind=given["kind"],
            spec_id=given["spec_id"] or "",
            request_id=given["request_id"] or "",
        )

    with invocation.journaled(find) as (project, wanted):
        artifact = project.green(wanted).run(anew=given["anew"])
    _hand_over(artifact, out=out, invocation=invocation)
    artifact.require_green(wanted.ways.go_on)


def _require_place(out: Path | None) -> None:
    """Raise ``UsageError`` before the work begins if its artifact could not be written."""
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {out.parent} for {out.name}.", hint=f"make it: mkdir -p {out.parent}")


def _hand_over(artifact: "GreenArtifact", *, out: Path | None, invocation: Invocation) -> None:
    """Show the artifact, as JSON to a program, in words to a person; then, as that may fail, write it down."""
    from cdd_agent.repl.talk.artifact import show_artifact
    from cdd_agent.storage import write_atomic
    from cdd_agent.workflows.green.artifact import encode, encode_event

    if invocation.as_json:
        sys.stdout.write(f"{encode_event(artifact).decode('utf-8')}\n")
        sys.stdout.flush()
    else:
        show_artifact(artifact, screen=invocation.screen)
    if out is not None:
        write_atomic(out.absolute(), encode(artifact))
        invocation.screen.line(f"artifact {out}", style="dim", indent=0)
