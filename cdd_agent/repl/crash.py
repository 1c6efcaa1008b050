"""What nobody expected: a defect of ours leaves its traceback in a file to report, and never on the screen."""

import errno
import os
import platform
import tempfile
import traceback
from pathlib import Path

from cdd_agent import __version__
from cdd_agent.errors import EnvironmentMissing

_OF_THE_SYSTEM = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


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


def of_the_system(error: BaseException) -> EnvironmentMissing | None:
    """``error`` as one of the environment, if the disk is full or access is denied: that is no defect of ours."""
    if not isinstance(error, OSError) or error.errno not in _OF_THE_SYSTEM:
        return None
    where = f": {error.filename}" if error.filename else ""
    return EnvironmentMissing(f"{error.strerror}{where}.", hint="make room or grant access, then do it again")
