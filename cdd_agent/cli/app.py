"""The command ``cdd`` with its global options, and the boundary where errors become messages and exit codes.

``cdd schema``: the form of what the program writes for other programs, as JSON Schema.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from cdd_agent import __version__
from cdd_agent.cli import inspect
from cdd_agent.cli import run as demo
from cdd_agent.cli import run as run_commands
from cdd_agent.cli.invocation import Invocation, drop_output
from cdd_agent.errors import CddError, EnvironmentMissing, ExitCode, UsageError
from cdd_agent.model import secret
from cdd_agent.model.secret import Secret
from cdd_agent.repl.terminal import ECHO
from cdd_agent.sandbox.warden import supervision

SCHEMAS = {
    "report": ("pytest_tdd_agent", "report.schema.json"),
    "green-artifact": ("cdd_agent.workflows.green", "artifact.schema.json"),
}
"""Name -> the package and the file in it."""


@click.command(short_help="Print a JSON Schema: report, green-artifact.")
@click.argument("name", default="")
def schema(name: str) -> None:
    """Print the JSON Schema of the document NAME.

    report: what `pytest --tdd-agent` writes; a line of its stream is #/$defs/event there. green-artifact: what `cdd
    green --out` writes.
    """
    from importlib.resources import files

    if name not in SCHEMAS:
        happened = f"There is no schema {name!r}." if name else "Which schema? None was named."
        import difflib

        near = difflib.get_close_matches(name, SCHEMAS, n=1)
        hint = f"did you mean: cdd schema {near[0]}" if near else f"cdd schema {' | '.join(SCHEMAS)}"
        raise UsageError(happened, hint=hint)
    package, file = SCHEMAS[name]
    sys.stdout.write(files(package).joinpath(file).read_text(encoding="utf-8"))


class Commands(click.Group):
    """A group that lists its commands in the order of the work, and names the nearest for one it does not know."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands in the order in which they were added."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` name; raises ``UsageError`` with the nearest one."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean: cdd {near[0]}" if near else "cdd --help lists the commands"
            raise UsageError(f"There is no command {args[0]!r}.", hint=hint)
        return super().resolve_command(ctx, args)


_EXIT_CODES = """Exit codes: 0 done, 1 gate closed or tests failed, 2 usage, 3 budget spent, 4 environment (no git, no
model, no tests), 70 internal error, 130 interrupted."""


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_CODES,
)
@click.option("--project", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder of the project.")
@click.option("--model", metavar="ID", help="Model to ask; any id the API knows.")
@click.option("--replay", type=click.Path(path_type=Path), metavar="FILE", help="Play recorded turns back: no network.")
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Keep the model's turns in FILE.")
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "docker", "bwrap", "landlock", "none"]),
    metavar="LEVEL",
    help="What shuts tests and commands in: docker, bwrap, landlock or none; auto takes the first there is.",
)
@click.option("--yes", is_flag=True, help="Nobody to ask: take the safe default, never a destructive one.")
@click.option("--json", "as_json", is_flag=True, help="One event a line on standard output.")
@click.option("--no-color", is_flag=True, help="No colors; the variable NO_COLOR says the same.")
@click.version_option(__version__, prog_name="cdd", message="%(prog)s %(version)s")
@click.pass_context
def cdd(context: click.Context, /, **given: Any) -> None:
    """Turn a ticket into tested commits.

    Without a command: the chat prompt in this project. `cdd demo` shows everything from a recording, without a key.
    """
    from cdd_agent.config.options import Options

    _require_current_folder()
    context.obj = Invocation(
        options=Options(
            project=given["project"],
            model=given["model"],
            replay=given["replay"],
            record=given["record"],
            key=context.obj,
            sandbox=given["sandbox"],
        ),
        assume_yes=given["yes"],
        as_json=given["as_json"],
        color=False if given["no_color"] else None,
    )
    if context.invoked_subcommand is None:
        from cdd_agent.cli.chat import chat

        chat(context.obj)


def _require_current_folder() -> None:
    """Raise ``EnvironmentMissing`` where the program was started in a folder that has been removed since."""
    try:
        os.getcwd()
    except OSError as error:
        raise EnvironmentMissing(
            f"The current folder cannot be found, it may have been removed: {error.strerror}.",
            hint="go to one that is there: cd; or enter it anew if it was made again: cd .",
        ) from error


for command in (
    *(demo.demo, inspect.doctor, inspect.trust, inspect.new),
    *(run_commands.spec, run_commands.plan, run_commands.exec_, inspect.review, inspect.status),
    *(run_commands.tdd, run_commands.green, inspect.audit, schema),
):
    cdd.add_command(command)


def run(arguments: Sequence[str], *, key: Secret | None = None) -> int:
    """Run the command line and return its exit code; what went wrong is on standard error.

    Without ``key`` it is taken out of the environment.
    """
    _listen()
    try:
        return _carry_out(arguments, key=secret.take_key() if key is None else key)
    except CddError as error:
        return _told(error.happened, hint=error.hint, code=error.exit_code)
    except click.ClickException as error:
        return _told(error.format_message(), hint=_usage(error), code=ExitCode.USAGE)
    except (KeyboardInterrupt, click.Abort):
        hint = "what was saved stays, and the same command goes on from there"
        return _told("Stopped.", hint=hint, code=ExitCode.INTERRUPTED)
    except BrokenPipeError:
        drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        from cdd_agent.repl import session

        outside = session.as_environment_error(error)
        if outside is None:
            raise
        drop_output()
        return _told(outside.happened, hint=outside.hint, code=outside.exit_code)


_SECOND_WITHIN_S = 2.0
_SHOW_CURSOR = b"\x1b[?25h\r\n"
"""What a display that was cut off has hidden."""


class _Interruption:
    """Ctrl-C: the first unwinds the turn, the step or the command; a second one soon after ends the process at once.

    That is no worse than a kill: files are replaced whole, and a step that was cut off goes back to its checkpoint
    when it is gone on with.
    """

    def __init__(self) -> None:
        self._last: float | None = None

    def __call__(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        if self._last is not None and now - self._last < _SECOND_WITHIN_S:
            supervision.end_all(os.getpid(), now + _SECOND_WITHIN_S)
            ECHO.restore()
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), _SHOW_CURSOR)
            os._exit(int(ExitCode.INTERRUPTED))
        self._last = now
        raise KeyboardInterrupt


def _listen() -> None:
    """From now on end in order when told to; what the caller had ignored, as ``nohup`` does, stays ignored."""
    for number, answer in ((signal.SIGINT, _Interruption()), (signal.SIGTERM, _end), (signal.SIGHUP, _end)):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, answer)


def _end(number: int, _frame: object) -> None:
    """Unwind as for Ctrl-C when the process is told to end: children are ended, files are back at the checkpoint."""
    if number == signal.SIGHUP:
        drop_output(hung_up=True)
    raise SystemExit(128 + number)


def _carry_out(arguments: Sequence[str], *, key: Secret | None) -> int:
    """What the command says its exit code is, once all it printed is written."""
    try:
        with cdd.make_context("cdd", list(arguments), obj=key) as context:
            cdd.invoke(context)
    except click.exceptions.Exit as end:
        sys.stdout.flush()
        return end.exit_code
    sys.stdout.flush()
    return int(ExitCode.DONE)


def _told(happened: str, *, hint: str, code: int) -> int:
    """Say what happened and what to do; the exit code."""
    from cdd_agent.repl.screen import Screen

    for tell in (sys.stdout.flush, partial(Screen(sys.stderr).error, happened, hint=hint)):
        try:
            tell()
        except OSError:  # the exit code says it all the same
            drop_output()
    return int(code)


def _usage(error: click.ClickException) -> str:
    """How the command is typed that was typed wrongly."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or context.parent is None:
        return "cdd --help lists the commands and options"
    return f"{context.get_usage().removeprefix('Usage: ')}; {context.command_path} --help tells more"
