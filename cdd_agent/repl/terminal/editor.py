"""The user's own editor, for a text that is too long for the line."""

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cdd_agent.errors import UsageError

_USUAL = "vi"
"""Where neither ``VISUAL`` nor ``EDITOR`` names one."""
_NAME = "message.md"


def edited(text: str, *, environment: Mapping[str, str] = os.environ) -> str:
    """``text`` as the user leaves it in the editor, without the line feed that editors put at the end.

    It lies in a folder that nobody else can look into, and which is removed with all that the editor puts there.
    Raises ``UsageError`` if there is no such editor, if it ends with an error, if there is no room for the text, and
    if it cannot be read back.
    """
    named = environment.get("VISUAL") or environment.get("EDITOR") or _USUAL
    try:
        with tempfile.TemporaryDirectory(prefix="cdd-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / _NAME
            path.write_text(f"{text}\n" if text else "", encoding="utf-8", errors="replace", newline="\n")
            _edit([*_command(named), str(path)], named=named)
            content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The text for {named} cannot be put down, or is not where it was: {error.strerror}.",
            hint="save it where it was opened, and look with df -h whether a disk is full",
        ) from error
    return content.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")


def _command(named: str) -> list[str]:
    """The words of an editor's command line."""
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise UsageError(f"EDITOR={named} is no command: {error}.", hint="correct EDITOR, or VISUAL") from error
    return words or [_USUAL]


def _edit(argv: Sequence[str], *, named: str) -> None:
    """Run the editor in this terminal until it ends; Ctrl-C is for the editor alone."""
    try:
        process = subprocess.Popen(argv)
    except OSError as error:
        raise UsageError(
            f"The editor {named} cannot be started: {error.strerror}.", hint="set EDITOR to one that can"
        ) from error
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    if status:
        raise UsageError(f"{named} ended with status {status}; the text is as it was.", hint="try it once more")
