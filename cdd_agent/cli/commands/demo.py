"""``cdd demo``: an example carried from spec to commits by a recording."""

from pathlib import Path
from typing import Any

import click

from cdd_agent.cli.invocation import Invocation, headless
from cdd_agent.errors import UsageError


@click.command(short_help="Run an example from its recording, without a key.")
@click.argument("name", default="csv-export")
@click.option("--list", "listed", is_flag=True, help="Name the examples.")
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Where to put the project; must not exist."
)
@headless
@click.pass_obj
def demo(invocation: Invocation, /, name: str, *, listed: bool, keep: Path | None, **given: Any) -> None:
    """Run spec, plan and exec on the example NAME from its recording: real git, real tests, real gates, no key."""
    from cdd_agent.cli.commands.example import examples, play

    invocation = invocation.with_options(given)
    known = {example.name: example for example in examples()}
    if listed:
        width = max(map(len, known))
        for example in known.values():
            invocation.screen.line(f"{example.name:<{width}}  {example.script.title}", hang=width + 2)
        return
    if name not in known:
        import difflib

        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean: cdd demo {near[0]}" if near else f"cdd demo {' | '.join(known)}"
        raise UsageError(f"There is no example {name!r}.", hint=hint)
    play(invocation, known[name], folder=keep)
