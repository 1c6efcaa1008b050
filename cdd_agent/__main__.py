"""The program ``cdd``, also run by ``python -m cdd_agent``."""

import os
import sys
from types import TracebackType

from cdd_agent import __version__

_HELP_WIDTH = 80
"""Columns for which ``cli/help.txt`` is written, and beyond which no line of help goes."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    _fill_standard_streams()
    if _is_answered(sys.argv[1:]):
        return
    _leave_out_current_folder()
    sys.excepthook = _crash
    from cdd_agent.model import secret

    secret.close_memory()
    key = secret.take()
    from cdd_agent.cli.app import run

    sys.exit(run(sys.argv[1:], key=key))


def _fill_standard_streams() -> None:
    """Put the null device where the caller closed a standard stream, before a file of ours gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (open to the end)


def _is_answered(arguments: list[str]) -> bool:
    """Answer before anything is imported, if that can be; a full disk or a reader gone is left to who tells of it."""
    if arguments == ["--version"]:
        text = f"cdd {__version__}\n"
    elif arguments in (["--help"], ["-h"]) and _is_as_wide_as_help():
        with open(os.path.join(os.path.dirname(__file__), "cli", "help.txt"), encoding="utf-8") as stream:
            text = stream.read()
    else:
        return False
    try:
        print(text, end="", flush=True)  # noqa: T201
    except OSError:
        return False
    return True


def _is_as_wide_as_help() -> bool:
    """Whether what is kept in ``help.txt`` fits: a narrower terminal has the text wrapped for it."""
    try:
        columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
    except ValueError:
        return False
    except OSError:  # no terminal
        return True
    return columns >= _HELP_WIDTH


def _leave_out_current_folder() -> None:
    """Import and run nothing from the current folder, which may be anybody's.

    ``python -m`` puts it first on Python's path; it stays there where the program itself lies in it. A relative entry
    of PATH would find programs there.
    """
    if "PATH" in os.environ:
        os.environ["PATH"] = os.pathsep.join(filter(os.path.isabs, os.environ["PATH"].split(os.pathsep)))
    own = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir))
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:
        return
    if here != own:
        sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != here]


def _crash(kind: type[BaseException], error: BaseException, *_: TracebackType | None) -> None:
    """Keep the traceback of a defect of ours in a file, say where, and end with status 70; 130 for Ctrl-C."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(130)
    from cdd_agent.repl import session

    happened, hint = session.explain(error, session.keep(error))
    sys.stderr.write(f"error: {happened}\nhint: {hint}\n")
    sys.stderr.flush()
    os._exit(70)


if __name__ == "__main__":
    main()
