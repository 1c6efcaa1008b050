"""The chat prompt: reads lines and passes each to a command or to the active agent. No error ends it.

An error of the system, such as a full disk, is shown with a fix. For a defect of cdd, the screen shows one sentence and
the traceback goes to a file. Neither contains an API key.
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
from typing import TYPE_CHECKING

from cdd_agent import __version__
from cdd_agent.agent.sessions import ARCHIVED, prune_sessions
from cdd_agent.errors import CddError, EnvironmentMissing, ExitCode
from cdd_agent.repl.actions import carry_out, report_stop, send_typed
from cdd_agent.repl.checkpoint_actions import prune_old
from cdd_agent.repl.commands import as_prompt_command, as_shell_command, refuse_shell_command
from cdd_agent.repl.render import READY
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.state import RunCommand, SessionState, agent_name
from cdd_agent.repl.terminal import KEYBOARD, PromptStatus, ReadLine
from cdd_agent.repl.workflow_actions import open_shell, run_in_shell
from cdd_agent.runs.review import archive_finished
from cdd_agent.storage import find_deleted, find_full_disk
from cdd_agent.tickets.ticket import list_tickets
from cdd_agent.untrusted.keys import redact_keys
from cdd_agent.untrusted.text import clean

if TYPE_CHECKING:
    from cdd_agent.compose import Composition

LEAVES_WITHIN_S = 2.0
"""A second Ctrl-C at the prompt within this time ends the session."""

_NO_REPORT = Path(os.devnull)
_NOT_A_FILE = "check it with ls -l, and replace it by an ordinary file, or remove it"
_ACCESS = "check the owner with ls -ld, and grant access"
_FIXES = {
    errno.ENOSPC: "free space on that disk (df -h shows how much is left)",
    errno.EDQUOT: "remove some of your files, or ask for a larger quota (quota -s shows it)",
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: "mount that disk for writing, or move the project",
    errno.EMFILE: "too many files are open: ulimit -n 4096",
    errno.ENFILE: "too many files are open on this machine: end some programs",
    errno.EIO: "the disk or the terminal reports a fault (see dmesg): repair it, or move the project",
    errno.ELOOP: _NOT_A_FILE,
    errno.EISDIR: _NOT_A_FILE,
    errno.ENXIO: _NOT_A_FILE,
    errno.ENOTDIR: "check it with ls -l, and replace it by a folder, or remove it",
    errno.EFBIG: "check it with ls -l, or raise the limit: ulimit -f unlimited",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ENOLCK: "that disk does not support locks: move the project to a local one",
    errno.ENOMEM: "end some programs to free memory",
    errno.E2BIG: "make the arguments of that program, or your environment, shorter: env | wc --bytes --max-line-length",
}
"""Error number -> what the user can do."""


def save_crash_report(error: BaseException) -> Path:
    """Write the traceback to a new file and return its path, or the null device if that fails."""
    try:
        handle, name = tempfile.mkstemp(prefix="cdd-crash-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as report:
            report.write(f"cdd {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n")
            report.write(redact_keys(clean("".join(traceback.format_exception(error)))))
    except OSError:
        return _NO_REPORT
    return Path(name)


def describe_crash(error: BaseException, report: Path) -> tuple[str, str]:
    """Return the sentence and the hint for a defect of cdd."""
    request = "the report could not be written" if report == _NO_REPORT else f"please report the file {report}"
    return (
        redact_keys(clean(f"cdd has a bug: {type(error).__name__}: {error}")),
        f"your work is saved; run the same command again to continue; {request}",
    )


def as_environment_error(error: BaseException) -> EnvironmentMissing | None:
    """Return the error as one of the environment, such as a full disk, or None if it is a defect of cdd."""
    if isinstance(error, shutil.Error):
        error = _first_copy_error(error)
    if isinstance(error, FileNotFoundError) and (deleted := find_deleted(Path(os.fsdecode(error.filename or "")))):
        return EnvironmentMissing(
            f"{deleted} was deleted while cdd used it.", hint="run the same command again; your work is saved"
        )
    if not isinstance(error, OSError) or error.errno not in _FIXES:
        return None
    where = clean(f": {_failing_path(error)}") if error.filename else ""
    happened, fix = f"{error.strerror}{where}.", _FIXES[error.errno]
    place = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else Path.cwd()
    if error.errno == errno.ENOSPC and (full := find_full_disk(place)):
        happened, fix = f"{happened} {clean(full.happened)}", full.hint
    hint = f"{fix}, then run the same command again; your work is saved"
    return EnvironmentMissing(happened, hint=hint)


def _failing_path(error: OSError) -> str:
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else _NO_REPORT
    if error.errno != errno.ENOTDIR:
        return str(error.filename)
    # The error names the whole path, but only one part of it is not a folder.
    existing = next((each for each in (path, *path.parents) if os.path.lexists(each)), path)
    return str(error.filename if existing.is_dir() else existing)


def _first_copy_error(error: shutil.Error) -> OSError:
    # copytree collects errors as text, without their numbers.
    match error.args:
        case ([(_, target, str() as why), *_],) if found := re.match(r"\[Errno (\d+)\]", why):
            number = int(found[1])
            return OSError(number, os.strerror(number), str(target))
    return error


class Session:
    """One session at the prompt."""

    def __init__(
        self,
        project: "Composition",
        *,
        screen: Screen,
        read: ReadLine,
        run: RunCommand,
        model: str = "",
        somebody_types: bool = True,
    ) -> None:
        """Prepare a session. Without ``somebody_types`` the lines are a script, whose errors set the exit code."""
        self._state = SessionState(project, screen=screen, run=run, model=model)
        self._screen = screen
        screen.as_typed = self._as_typed
        self._read = read
        self._somebody_types = somebody_types
        self._is_archived = self._is_first = self._is_failing = False

    def _as_typed(self, text: str) -> str:
        # A first line that fails and opens no conversation ends the session: the reader is in a shell.
        ends = self._is_first and self._is_failing and self._state.agent is None
        return (as_shell_command if ends else as_prompt_command)(text)

    def close(self) -> None:
        """Close the journals and the transcript, archive finished sessions, and remove old ones and old checkpoints."""
        prune_old(self._state.project)
        self._state.project.close()
        self._state.transcript.close()
        self._is_archived = self.id in archive_finished(self._state.project.root)
        prune_sessions(self._state.project.root, present=self.id)

    @property
    def id(self) -> str:
        """The id of the session; empty while nothing is saved."""
        return self._state.transcript.id

    @property
    def saved_as(self) -> str:
        """The name under which it can be continued after ``close``, which archives it if its tickets are finished."""
        return f"{ARCHIVED}{self.id}" if self._is_archived else self.id

    @property
    def prompt_status(self) -> PromptStatus:
        """Where the user is now."""
        return self._state.prompt_status

    def run(self, *, first: str = "") -> ExitCode:
        """Handle ``first``, then line after line until the user leaves.

        The exit code is that of ``first`` if it opened no conversation, or that of the last failing line of a script.
        """
        code, last_stop = ExitCode.DONE, -LEAVES_WITHIN_S
        if first:
            self._is_first = True
            code = self.handle(first)
            self._is_first = False
            if code != ExitCode.DONE and self._state.agent is None:
                return code
        while not self._state.is_over:
            try:
                if self._somebody_types:
                    self._screen.gap()
                    code = ExitCode.DONE
                line = self._read(self.prompt_status)
            except KeyboardInterrupt:
                if not self._somebody_types or time.monotonic() - last_stop < LEAVES_WITHIN_S:
                    return ExitCode.INTERRUPTED
                last_stop = time.monotonic()
                text = "Press Ctrl-C again or Ctrl-D to leave, or type /exit. /help lists the commands."
                self._screen.line(text, style="dim")
            except EOFError:
                break
            else:
                code = self.handle(line) or code
        return code

    def handle(self, line: str) -> ExitCode:
        """Carry out one line. Errors become messages, and Ctrl-C ends only this line."""
        words = line.strip()
        try:
            if words == "!":
                open_shell(self._state)
                return ExitCode.DONE
            if words.startswith("!"):
                return run_in_shell(self._state, words[1:].strip())
            with KEYBOARD.stop_at_escape(), self._screen.working(READY):
                if words.startswith("/"):
                    return carry_out(self._state, words) or ExitCode.DONE
                if words.startswith("cdd "):
                    refuse_shell_command(words, {ticket.slug for ticket in list_tickets(self._state.project.root)})
                send_typed(self._state, words)
        except CddError as error:
            return self._report(error)
        except KeyboardInterrupt:
            self._state.is_over = not self._somebody_types
            KEYBOARD.typed.hold()
            report_stop(self._state, words)
            return ExitCode.INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 (a defect in one command must not end the session)
            outside = as_environment_error(error)
            if outside is not None:
                return self._report(outside)
            happened, hint = describe_crash(error, save_crash_report(error))
            if self._state.agent is not None and agent_name(self._state.agent) == "executor":
                hint = f"{hint}; or do the step yourself, then type: done N"
            self._screen.error(happened, hint=hint)
            return ExitCode.INTERNAL
        return ExitCode.DONE

    def _report(self, error: CddError) -> ExitCode:
        self._is_failing = True
        self._screen.error(error.happened, hint=error.hint)
        self._is_failing = False
        return error.exit_code
