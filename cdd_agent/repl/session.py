"""The chat prompt: reads a line, hands it to a command or to the agent that listens, and never ends by an error.

What nobody expected: a defect of ours leaves its traceback in a file to report, and never on the screen.

Neither the file nor the sentence on the screen holds a key.
"""

import errno
import os
import platform
import re
import shutil
import tempfile
import time
import traceback
from pathlib import Path

from cdd_agent import __version__
from cdd_agent.errors import CddError, EnvironmentMissing, ExitCode
from cdd_agent.model.secret import hidden
from cdd_agent.repl.actions import ACTIONS, speak, stopped
from cdd_agent.repl.commands import at_prompt, parse
from cdd_agent.repl.render import WAITING
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.state import Crew, Sitting
from cdd_agent.repl.status_line import Place, Read
from cdd_agent.untrusted.text import clean

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


LEAVES_WITHIN_S = 2.0
"""A second Ctrl-C at the prompt within this time leaves."""


class Session:
    """One sitting at the prompt."""

    def __init__(self, crew: Crew, *, screen: Screen, read: Read, somebody_types: bool = True) -> None:
        """Nothing is asked before ``run``; lines that nobody types are a script, and what fails in it counts."""
        self._sitting = Sitting(crew, screen=screen)
        self._screen = screen
        self._read = read
        self._somebody_types = somebody_types

    @property
    def place(self) -> Place:
        """Where the user is now."""
        return self._sitting.place

    def run(self, *, first: str = "") -> ExitCode:
        """Handle ``first``, then line after line, until the user leaves.

        The exit code is that of ``first`` if it opened no conversation, or of the last line of a script that failed.
        """
        code, last_stop = ExitCode.DONE, -LEAVES_WITHIN_S
        if first:
            code = self.handle(first)
            if code != ExitCode.DONE and self._sitting.agent is None:
                return code
        while not self._sitting.is_over:
            if self._somebody_types:
                self._screen.gap()
                code = ExitCode.DONE
            try:
                line = self._read(self.place)
            except KeyboardInterrupt:
                if not self._somebody_types:
                    return ExitCode.INTERRUPTED
                if time.monotonic() - last_stop < LEAVES_WITHIN_S:
                    return ExitCode.INTERRUPTED
                last_stop = time.monotonic()
                told = "Ctrl-C again, Ctrl-D or /exit leaves; /help shows what to type."
                self._screen.line(told, style="dim", indent=0)
            except EOFError:
                break
            else:
                code = self.handle(line) or code
        return code

    def handle(self, line: str) -> ExitCode:
        """Carry out one line; whatever goes wrong becomes a message, and Ctrl-C ends only this line."""
        words = line.strip()
        try:
            with self._screen.working(WAITING):
                if words.startswith("/"):
                    command, argument = parse(words)
                    ACTIONS[command.name](self._sitting, argument)
                else:
                    speak(self._sitting, words)
        except CddError as error:
            return _tell(error, screen=self._screen)
        except KeyboardInterrupt:
            self._sitting.is_over = not self._somebody_types
            stopped(self._sitting, words)
            return ExitCode.INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 (a defect in one command must not end the session)
            outside = of_the_system(error)
            if outside is not None:
                return _tell(outside, screen=self._screen)
            happened, hint = explain(error, keep(error))
            self._screen.error(happened, hint=hint)
            return ExitCode.INTERNAL
        return ExitCode.DONE


def _tell(error: CddError, *, screen: Screen) -> ExitCode:
    """Say what went wrong; its exit code."""
    screen.error(error.happened, hint=at_prompt(error.hint))
    return error.exit_code
