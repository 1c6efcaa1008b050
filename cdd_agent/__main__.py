"""The program ``cdd``, also run by ``python -m cdd_agent``."""

import os
import sys
import tempfile
import traceback
from typing import Any

from cdd_agent import __version__


def main() -> None:
    """Run the command line and end the process with its exit code."""
    if sys.argv[1:] == ["--version"]:
        print(f"cdd {__version__}")  # noqa: T201 (answered before anything is imported)
        return
    sys.excepthook = _crash
    from cdd_agent.cli.app import run

    sys.exit(run(sys.argv[1:]))


def _crash(*raised: Any) -> None:
    """Keep the traceback of a defect of ours in a file, say where, and end with status 70."""
    kind, error, trace = raised
    handle, path = tempfile.mkstemp(prefix="cdd-crash-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as report:
        report.writelines(traceback.format_exception(kind, error, trace))
    sys.stderr.write(
        f"error: cdd met a defect of its own: {kind.__name__}: {error}\n"
        f"hint: your files are as the last line above says; please report {path}\n"
    )
    sys.stdout.flush()
    os._exit(70)


if __name__ == "__main__":
    main()
