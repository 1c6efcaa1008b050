"""The command ``cdd`` with its global options, and the boundary where errors become messages and exit codes."""

import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cdd_agent import __version__
from cdd_agent.cli import agents, demo, tickets
from cdd_agent.cli.chat import chat
from cdd_agent.cli.invocation import Invocation
from cdd_agent.compose import Options
from cdd_agent.errors import CddError, ExitCode
from cdd_agent.repl.clean import clean
from cdd_agent.repl.render import Screen


class Commands(click.Group):
    """A group that names the nearest command for one it does not know."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` name; raises ``click.UsageError`` with the nearest names."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean `cdd {near[0]}`?" if near else "`cdd --help` lists the commands."
            raise click.UsageError(f"There is no command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--project", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder of the project.")
@click.option("--model", metavar="ID", help="Model to ask; any id the API knows.")
@click.option("--replay", type=click.Path(path_type=Path), metavar="FILE", help="Play recorded turns back: no network.")
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Keep the model's turns in FILE.")
@click.option("--yes", is_flag=True, help="Nobody to ask: take the safe default, never a destructive one.")
@click.option("--json", "as_json", is_flag=True, help="One event a line on standard output.")
@click.option("--no-color", is_flag=True, help="No colors.")
@click.version_option(__version__, prog_name="cdd", message="%(prog)s %(version)s")
@click.pass_context
def cdd(context: click.Context, /, **given: Any) -> None:
    """Turn a ticket into reviewed, tested commits.

    Without a command: the chat prompt in this project. `cdd demo` shows everything from a recording, without a key.
    """
    options = Options(project=given["project"], model=given["model"], replay=given["replay"], record=given["record"])
    stream = sys.stderr if given["as_json"] else sys.stdout
    context.obj = Invocation(
        options=options,
        screen=Screen(stream, color=False if given["no_color"] else None),
        assume_yes=given["yes"],
        as_json=given["as_json"],
    )
    if context.invoked_subcommand is None:
        chat(context.obj)


for command in (agents.spec, agents.plan, agents.exec_, demo.demo, tickets.new, tickets.status):
    cdd.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; what went wrong is on standard error."""
    try:
        cdd.main(list(arguments), prog_name="cdd", standalone_mode=False)
    except CddError as error:
        return _told(error.happened, hint=error.hint, code=error.exit_code)
    except click.ClickException as error:
        usage = error.ctx.get_usage() if isinstance(error, click.UsageError) and error.ctx else ""
        return _told(error.format_message(), hint=usage or "cdd --help", code=ExitCode.USAGE)
    except (KeyboardInterrupt, click.Abort):
        return _told("Stopped.", hint="run the same command again to go on from the last checkpoint", code=130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    return int(ExitCode.DONE)


def _told(happened: str, *, hint: str, code: int) -> int:
    """Say what happened and what to do; the exit code."""
    sys.stderr.write(f"error: {clean(happened)}\nhint: {clean(hint)}\n")
    return int(code)
