"""What it costs a program to draw its prompt on a terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

from tests.bench.measure import Spent

COLUMNS, ROWS = 100, 30
PATIENCE_S = 60


class NoPromptError(Exception):
    """No prompt was drawn; holds what the screen shows."""


class _Screen(pyte.Screen):
    """A screen whose answers, as to where the cursor is, go back to the program."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(COLUMNS, ROWS)
        self._descriptor = descriptor

    def write_process_input(self, data: str) -> None:
        os.write(self._descriptor, data.encode())


def draw(argv: Sequence[str], folder: Path, *, environment: Mapping[str, str], ready: Sequence[str]) -> Spent:
    """CPU seconds and peak memory (MB) of a program until the screen shows all of ``ready``; it is ended then.

    Raises ``NoPromptError`` if that does not come.
    """
    pid, descriptor = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.execvpe(argv[0], list(argv), dict(environment))
        finally:
            os._exit(127)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        shown = _shown(descriptor, ready=ready)
        peak_mb = 0.0 if shown is not None else _peak_mb(pid)
    finally:
        os.killpg(pid, signal.SIGKILL)
        _, _, used = os.wait4(pid, 0)
        os.close(descriptor)
    if shown is not None:
        raise NoPromptError(shown)
    return used.ru_utime + used.ru_stime, peak_mb


def _shown(descriptor: int, *, ready: Sequence[str]) -> str | None:
    """Follow the screen until it shows all of ``ready``; what it shows if that does not come."""
    screen = _Screen(descriptor)
    stream = pyte.ByteStream(screen)
    end = time.monotonic() + PATIENCE_S
    patterns = [re.compile(pattern, re.MULTILINE) for pattern in ready]
    while time.monotonic() < end:
        if not select.select([descriptor], [], [], 0.1)[0]:
            continue
        try:
            read = os.read(descriptor, 1 << 16)
        except OSError:  # the program has ended
            break
        stream.feed(read)
        text = "\n".join(screen.display)
        if all(pattern.search(text) for pattern in patterns):
            return None
    return "\n".join(line.rstrip() for line in screen.display if line.strip())


def _peak_mb(pid: int) -> float:
    """The most memory that a living process has had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0
