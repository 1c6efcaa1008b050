"""The program ``cdd``, also run by ``python -m cdd_agent``."""

import os
import sys
from types import TracebackType

from cdd_agent import __version__

_HELP_WIDTH = 80
"""Width of the text in ``cli/help.txt``, and of help in general."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    _fill_standard_streams()
    if _answer_early(sys.argv[1:]):
        return
    _exclude_current_folder()
    sys.excepthook = _crash
    import gc

    gc.disable()  # no imported module is garbage, and each search for some would go through all of them
    from cdd_agent.untrusted import keys

    keys.protect_memory()
    key = keys.take_key()
    from cdd_agent.cli.app import run

    gc.freeze()
    gc.enable()
    sys.exit(run(sys.argv[1:], key=key))


def _fill_standard_streams() -> None:
    # If the caller closed a standard stream, a file that cdd opens would get its number and receive the output.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (open to the end)


def _answer_early(arguments: list[str]) -> bool:
    """Print the version or help without importing anything, and return whether that was possible."""
    if arguments == ["--version"]:
        text = f"cdd {__version__}\n"
    elif arguments in (["--help"], ["-h"]) and _is_as_wide_as_help():
        with open(os.path.join(os.path.dirname(__file__), "cli", "help.txt"), encoding="utf-8") as stream:
            text = stream.read()
    else:
        return False
    try:
        print(text, end="", flush=True)  # noqa: T201
    except OSError:  # a full disk or a closed pipe: the command line reports it
        return False
    return True


def _is_as_wide_as_help() -> bool:
    # On a narrower terminal the command line wraps the text.
    try:
        columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
    except ValueError:
        return False
    except OSError:  # no terminal
        return True
    return columns >= _HELP_WIDTH


def _exclude_current_folder() -> None:
    # The current folder may contain anybody's files. `python -m` puts it first on the path of modules, where it only
    # stays if cdd itself is there. Relative entries of PATH would find programs there.
    if "PATH" in os.environ:
        os.environ["PATH"] = os.pathsep.join(filter(os.path.isabs, os.environ["PATH"].split(os.pathsep)))
    own = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir))
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:
        return
    # PYTHONPATH is for the project's programs, where a model can put a module with the name of one that cdd imports.
    named = {os.path.realpath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    top = here
    while top != os.path.dirname(top) and not os.path.lexists(os.path.join(top, ".git")):
        top = os.path.dirname(top)
    inside = top if os.path.lexists(os.path.join(top, ".git")) else here

    def is_own(entry: str) -> bool:
        real = os.path.realpath(entry)
        is_project = real == here or (real in named and f"{real}/".startswith(f"{inside}/"))
        return real == own or not is_project

    sys.path[:] = filter(is_own, sys.path)


def _crash(kind: type[BaseException], error: BaseException, *_: TracebackType | None) -> None:
    """Save the traceback of a defect in a file, name the file and exit with 70; with 130 for Ctrl-C."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(130)
    from cdd_agent.repl import session

    happened, hint = session.describe_crash(error, session.save_crash_report(error))
    if "exec" in sys.argv:
        hint += "; or do the step yourself, then open cdd exec in a terminal and type: done N"
    sys.stderr.write(f"error: {happened}\nhint: {hint}\n")
    sys.stderr.flush()
    os._exit(70)


if __name__ == "__main__":
    main()
