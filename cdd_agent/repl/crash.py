"""What nobody expected: a defect of ours leaves its traceback in a file to report, and never on the screen.

Neither the file nor the sentence on the screen holds a key.
"""

import errno
import os
import platform
import re
import shutil
import tempfile
import traceback
from pathlib import Path

from cdd_agent import __version__
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.model.secret import hidden
from cdd_agent.repl.display.clean import clean

_NOWHERE = Path(os.devnull)
_OTHERWISE = "then the same command again: what was saved before is whole"
_WAYS_OUT = {
    errno.ENOSPC: "make room on that disk (df -h shows which is full)",
    errno.EDQUOT: "remove some files of yours, or ask for a larger quota (quota -s shows it)",
    errno.EACCES: "look at whose it is with ls -ld, and grant access",
    errno.EPERM: "look at whose it is with ls -ld, and grant access",
    errno.EROFS: "that disk can only be read: mount it to be written, or move the project",
    errno.EMFILE: "too many files are open: ulimit -n 4096",
    errno.ENFILE: "the machine has too many files open: end some programs",
    errno.EIO: "the disk or the terminal reports a fault (dmesg shows it): mend that, or move the project",
    errno.ELOOP: "look at it with ls -l, and put an ordinary file in its place, or nothing",
    errno.EISDIR: "look at it with ls -l, and put an ordinary file in its place, or nothing",
    errno.ENOTDIR: "look at it with ls -l, and put a folder in its place, or nothing",
    errno.ENXIO: "look at it with ls -l, and put an ordinary file in its place, or nothing",
    errno.EFBIG: "look at it with ls -l, or raise the limit: ulimit -f unlimited",
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.ENOLCK: "locks do not work on that disk: move the project to a local one",
    errno.ENOMEM: "end some programs to free memory",
}
"""What the system refused -> what to do about it."""


def keep(error: BaseException) -> Path:
    """Write the traceback of ``error`` to a new file and return where it is: nowhere, if there is no room for it."""
    try:
        handle, name = tempfile.mkstemp(prefix="cdd-crash-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as report:
            report.write(f"cdd {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n")
            report.write(hidden(clean("".join(traceback.format_exception(error)))))
    except OSError:
        return _NOWHERE
    return Path(name)


def explain(error: BaseException, report: Path) -> tuple[str, str]:
    """What happened and what to do about it, in two sentences."""
    ask = "there was no room to keep what to report" if report == _NOWHERE else f"please report the file {report}"
    return (
        hidden(clean(f"cdd met a defect of its own: {type(error).__name__}: {error}")),
        f"what was saved stays, and the same command goes on from there; {ask}",
    )


def of_the_system(error: BaseException) -> EnvironmentMissing | None:
    """``error`` as one of the environment, if a disk is full or access is denied, say: that is no defect of ours."""
    if isinstance(error, shutil.Error):
        error = _first(error)
    if not isinstance(error, OSError) or error.errno not in _WAYS_OUT:
        return None
    where = clean(f": {_culprit(error)}") if error.filename else ""
    return EnvironmentMissing(f"{error.strerror}{where}.", hint=f"{_WAYS_OUT[error.errno]}, {_OTHERWISE}")


def _culprit(error: OSError) -> str:
    """What the error is about: of a path below something that is no folder, that."""
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else _NOWHERE
    if error.errno != errno.ENOTDIR:
        return str(error.filename)
    found = next((each for each in (path, *path.parents) if os.path.lexists(each)), path)
    return str(error.filename if found.is_dir() else found)


def _first(error: shutil.Error) -> OSError:
    """The first of the errors that copying a folder has gathered; it keeps only their words."""
    match error.args:
        case ([(_, target, str() as why), *_],) if found := re.match(r"\[Errno (\d+)\]", why):
            number = int(found[1])
            return OSError(number, os.strerror(number), str(target))
    return error
