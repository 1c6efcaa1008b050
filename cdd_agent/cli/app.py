"""The command ``cdd`` with its global options, and the boundary where errors become messages and exit codes.

``cdd schema`` and ``cdd completion`` are here too. They print texts about the command line itself and its output.
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
from cdd_agent.cli import fork as fork_commands
from cdd_agent.cli import generate as generate_commands
from cdd_agent.cli import graph as graph_commands
from cdd_agent.cli import inspect
from cdd_agent.cli import run as run_commands
from cdd_agent.cli.invocation import Invocation, drop_output
from cdd_agent.errors import CddError, EnvironmentMissing, ExitCode, UsageError, suggest
from cdd_agent.repl.terminal import KEYBOARD
from cdd_agent.sandbox.port import LEVELS
from cdd_agent.sandbox.warden import supervision
from cdd_agent.untrusted import keys
from cdd_agent.untrusted.keys import Secret

SCHEMAS = {
    "report": ("pytest_tdd_agent", "report.schema.json"),
    "green-artifact": ("cdd_agent.runs", "artifact.schema.json"),
    "graph": ("cdd_agent.tickets", "graph.schema.json"),
}
"""Name -> package, and file in it."""
SHELLS = ("bash", "zsh", "fish")
_COMPLETION = "_CDD_COMPLETE"
"""The variable by which the script of a shell asks for completions."""


@click.command(short_help="Print a JSON Schema: report, green-artifact, graph.")
@click.argument("name", default="")
def schema(name: str) -> None:
    """Print the JSON Schema NAME.

    report: the output of `pytest --tdd-agent`; #/$defs/event describes a line of its stream. green-artifact: the output
    of `cdd green --out`. graph: a planning graph.
    """
    from importlib.resources import files

    if name not in SCHEMAS:
        happened = f"Unknown schema {name!r}." if name else "Which schema? None was named."
        hint = suggest(name, SCHEMAS, text="did you mean: cdd schema {}", otherwise=f"cdd schema {' | '.join(SCHEMAS)}")
        raise UsageError(happened, hint=hint)
    package, file = SCHEMAS[name]
    sys.stdout.write(files(package).joinpath(file).read_text(encoding="utf-8"))


@click.command(short_help="Print the completion script of a shell: bash, zsh, fish.")
@click.argument("shell", default="")
def completion(shell: str) -> None:
    """Print a script that completes commands, options and tickets in SHELL.

    bash: add eval "$(cdd completion bash)" to ~/.bashrc. zsh: add eval "$(cdd completion zsh)" to ~/.zshrc. fish:
    cdd completion fish > ~/.config/fish/completions/cdd.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell) if shell in SHELLS else None
    if found is None:
        happened = f"Unknown shell {shell!r}." if shell else "Which shell? None was named."
        hint = f"cdd completion {' | '.join(SHELLS)}"
        raise UsageError(happened, hint=suggest(shell, SHELLS, text="did you mean: cdd completion {}", otherwise=hint))
    sys.stdout.write(found(cdd, {}, "cdd", _COMPLETION).source())


@click.command(hidden=True)
@click.argument("folder", type=click.Path(path_type=Path))
@click.pass_obj
def work(invocation: Invocation, folder: Path) -> None:
    """Carry out the job whose parcel is in FOLDER, and leave its result there: a worker of a cluster calls this."""
    from cdd_agent.runs.cluster import PARCEL, RESULT
    from cdd_agent.runs.jobs import MOST_BYTES
    from cdd_agent.runs.parcels import unpack_job
    from cdd_agent.storage import read_ordinary, write_atomic

    job = unpack_job(read_ordinary(folder / PARCEL, limit_bytes=MOST_BYTES), folder)
    if job.python:
        os.environ["CDD_PYTHON"] = job.python
    try:
        status = run(job.arguments, key=invocation.options.key)
    finally:
        write_atomic(folder / RESULT, job.pack_result())
    click.get_current_context().exit(status)


class Commands(click.Group):
    """A group that lists its commands in the order of the work."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were added."""
        return list(self.commands)


_EXIT_CODES = """Exit codes: 0 done, 1 gate closed or tests failed, 2 usage, 3 budget spent, 4 environment (no git, no
model, no tests), 70 internal error, 130 interrupted."""


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_CODES,
)
@click.option("--project", type=click.Path(path_type=Path, exists=True, file_okay=False), help="The project's folder.")
@click.option("--model", metavar="ID", help="The model; any id that the API accepts.")
@click.option(
    "--replay", type=click.Path(path_type=Path), metavar="FILE", help="Play the model's turns from FILE, offline."
)
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Record the model's turns in FILE.")
@click.option(
    "--sandbox",
    type=click.Choice(["auto", *LEVELS]),
    metavar="LEVEL",
    help=f"Sandbox for tests and commands: {', '.join(LEVELS[:-1])} or none; auto uses the first available one.",
)
@click.option("-p", "--prompt", "words", metavar="TEXT", help="Answer the question TEXT, or start what it requests.")
@click.option(
    "--resume", is_flag=False, flag_value="", metavar="[SESSION]", help="Continue the last session, or SESSION."
)
@click.option("--yes", is_flag=True, help="Never ask; take the safe default, which destroys nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one event per line on standard output.")
@click.option("--no-color", is_flag=True, help="Disable colors, like the variable NO_COLOR.")
@click.version_option(__version__, prog_name="cdd", message="%(prog)s %(version)s")
@click.pass_context
def cdd(context: click.Context, /, *, yes: bool, as_json: bool, no_color: bool, **given: Any) -> None:
    """Turn a ticket into tested commits.

    Without a command, cdd opens the chat prompt in this project. `cdd demo` plays an example without an API key.
    """
    words, session = given.pop("words"), given.pop("resume")
    _require_one(words, session, command=context.invoked_subcommand)
    from cdd_agent.config.options import Options

    try:
        os.getcwd()
    except OSError as error:
        raise EnvironmentMissing(
            f"The current folder does not exist: {error.strerror}. It may have been removed.",
            hint="go to another folder: cd; or enter it again if it was recreated: cd .",
        ) from error
    options = Options(**given, key=context.obj)
    context.obj = Invocation(options=options, assume_yes=yes, as_json=as_json, color=False if no_color else None)
    if words is not None:
        run_commands.answer(context.obj, words.strip())
    elif context.invoked_subcommand is None:
        from cdd_agent.cli.chat import chat

        chat(context.obj, first="" if session is None else f"/resume {session}".rstrip())


def _require_one(words: str | None, session: str | None, *, command: str | None) -> None:
    options = {'-p "TEXT"': words, "--resume [SESSION]": session}
    given = [*(option for option, value in options.items() if value is not None), *([command] if command else [])]
    if len(given) > 1:
        raise UsageError(f"{given[0].split()[0]} and {given[1].split()[0]} exclude each other.", hint=f"cdd {given[0]}")


for command in (
    *(run_commands.demo, inspect.init, inspect.doctor, inspect.trust, inspect.new),
    *(run_commands.spec, run_commands.plan, run_commands.exec_, inspect.review, inspect.comment),
    *(fork_commands.fork, inspect.checkpoint, inspect.status, inspect.report),
    *(run_commands.tdd, run_commands.green, graph_commands.graph, generate_commands.generate),
    *(inspect.audit, schema, completion, work),
):
    cdd.add_command(command)


def run(arguments: Sequence[str], *, key: Secret | None = None) -> int:
    """Run the command line and return its exit code. Without ``key``, take the API key out of the environment."""
    # Signals that the caller ignores stay ignored, such as SIGHUP under nohup.
    for number, answer in ((signal.SIGINT, _Interruption()), (signal.SIGTERM, _end), (signal.SIGHUP, _end)):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, answer)
    try:
        return _carry_out(arguments, key=keys.take_key() if key is None else key)
    except CddError as error:
        return _report(error.happened, hint=error.hint, code=error.exit_code)
    except click.ClickException as error:
        return _report(_explain(error), hint=_usage(error), code=ExitCode.USAGE)
    except (KeyboardInterrupt, click.Abort):
        hint = "your work is saved; run the same command again to continue"
        return _report("Stopped.", hint=hint, code=ExitCode.INTERRUPTED)
    except BrokenPipeError:
        drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        from cdd_agent.repl import session

        outside = session.as_environment_error(error)
        if outside is None:
            raise
        drop_output()
        return _report(outside.happened, hint=outside.hint, code=outside.exit_code)


_SECOND_WITHIN_S = 2.0
_SHOW_CURSOR = b"\x1b[?25h\r\n"


class _Interruption:
    """Handles Ctrl-C: the first one unwinds the current work, a second one soon after ends the process at once.

    Ending at once is as safe as ``kill -9``: files are replaced atomically, and an interrupted step restarts from its
    checkpoint.
    """

    def __init__(self) -> None:
        self._last: float | None = None

    def __call__(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        if self._last is not None and now - self._last < _SECOND_WITHIN_S:
            supervision.end_all(os.getpid(), now + _SECOND_WITHIN_S)
            KEYBOARD.restore()
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), _SHOW_CURSOR)
            os._exit(int(ExitCode.INTERRUPTED))
        self._last, KEYBOARD.can_stop = now, False
        raise KeyboardInterrupt


def _end(number: int, _frame: object) -> None:
    if number == signal.SIGHUP:
        drop_output(hung_up=True)
    raise SystemExit(128 + number)


def _carry_out(arguments: Sequence[str], *, key: Secret | None) -> int:
    if asked := os.environ.get(_COMPLETION):
        from click.shell_completion import shell_complete

        return shell_complete(cdd, {"obj": None}, "cdd", _COMPLETION, asked)
    try:
        with cdd.make_context("cdd", list(arguments), obj=key) as context:
            cdd.invoke(context)
    except click.exceptions.Exit as end:
        sys.stdout.flush()
        return end.exit_code
    sys.stdout.flush()
    return int(ExitCode.DONE)


def _report(happened: str, *, hint: str, code: int) -> int:
    from cdd_agent.repl.screen import Screen

    for write in (sys.stdout.flush, partial(Screen(sys.stderr).error, happened, hint=hint)):
        try:
            write()
        except OSError:  # the exit code still reports the error
            drop_output()
    return int(code)


def _explain(error: click.ClickException) -> str:
    if not isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    # Its message is the whole help, which would be printed as an error.
    context = error.ctx
    assert isinstance(context.command, click.Group)
    commands = ", ".join(context.command.list_commands(context))
    return f"{context.command_path} needs one of its commands: {commands}."


def _usage(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or context.parent is None:
        return "cdd --help lists the commands and options"
    if isinstance(error, click.NoSuchOption) and any(error.option_name in known.opts for known in cdd.params):
        return f"it goes before the command: cdd {error.option_name} ... {context.command_path.removeprefix('cdd ')}"
    return f"{context.get_usage().removeprefix('Usage: ')}; {context.command_path} --help shows more"
