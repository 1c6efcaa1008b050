"""A defect of ours: its traceback goes to a file that can be reported, and never to the screen."""

import os
import platform
import tempfile
import traceback
from pathlib import Path

from cdd_agent import __version__


def keep(error: BaseException) -> Path:
    """Write the traceback of ``error`` to a new file and return where it is."""
    handle, name = tempfile.mkstemp(prefix="cdd-crash-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as report:
        report.write(f"cdd {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n")
        report.writelines(traceback.format_exception(error))
    return Path(name)


def explain(error: BaseException, report: Path) -> tuple[str, str]:
    """What happened and what to do about it, in two sentences."""
    return (
        f"cdd met a defect of its own: {type(error).__name__}: {error}",
        f"what was saved stays, and the same command goes on from there; please report the file {report}",
    )
