"""The sandbox port: one way to run a program that a model wrote or asked for.

Ending a child process together with everything it started.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program, with all it starts, may use up; None: no limit of ours.

    Where none at all is given, those of ``limits.standard`` are in force.
    """

    memory_bytes: int | None = None
    """Address space of each process."""
    cpu_s: int | None = None
    """Processor time of each process."""
    file_bytes: int | None = None
    """Size of each file it writes."""
    open_files: int | None = None
    """Of each process."""
    processes: int | None = None
    """Of this user together; the kernel does not hold root to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a program may reach beyond the system's own programs, by absolute paths."""

    read_write: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    """What it needs to read, and what stays as it is inside ``read_write``: the longer of two paths decides, and of
    equal ones this. What does not exist is left out."""
    kept: tuple[Path, ...] = ()
    """What stays as it is inside ``read_write`` and is looked after on every rung: a path that is missing there must
    not come to be. What happened to it nevertheless is undone when the run has ended, and remarked."""
    aside: Path | None = None
    """Folder for what came to be at a ``kept`` path; None: it is removed."""
    network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run, and within what bounds."""

    argv: tuple[str, ...]
    cwd: Path
    access: Access
    timeout_s: float
    variables: Mapping[str, str] = field(default_factory=dict)
    """Added to the few that pass from this process."""
    limits: Limits = Limits()
    output_cap: int = 64_000
    """In bytes; what is longer keeps its head and its tail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a program ended."""

    exit_status: int
    """The program's own; negative: minus the signal that ended it."""
    head: str
    """Standard output and error as they came, or as they began where they are longer than the cap."""
    dropped_bytes: int
    """Of what came between ``head`` and ``tail``."""
    timed_out: bool
    duration_s: float
    level: str
    tail: str = ""
    """How they ended; empty if nothing is dropped."""
    limits: tuple[str, ...] = ()
    """The bounds that were in force, in words."""
    survivors: int = 0
    """Processes of it that could not be ended."""
    remarks: tuple[str, ...] = ()
    """What a person should know of the run: a protected file that was changed and is put back."""

    @property
    def output(self) -> str:
        """Head and tail, with a line between them that says how much is missing."""
        return joined(self.head, self.tail, dropped_bytes=self.dropped_bytes)


def joined(head: str, tail: str, *, dropped_bytes: int) -> str:
    """Head and tail of an output, with a line between them that says how much is missing."""
    return f"{head}\n[... {dropped_bytes} bytes dropped ...]\n{tail}" if dropped_bytes else head + tail


class Sandbox(Protocol):
    """Whatever runs programs for us."""

    level: str
    """``none``, or what confines the programs: shown in the prompt, the reports and the state."""

    def run(self, command: Command) -> Result:
        """Run the program to its end, or end it and all that it started when its time is up.

        Raises ``OSError`` if the program cannot be started, and ``EnvironmentMissing`` if it is not known how it ended:
        what watches over it was killed, or something answered in its place. ``KeyboardInterrupt`` ends it and passes
        through.
        """
        ...


GRACE_S = 1.0
"""From the polite signal to the one that cannot be caught, and for the kernel to carry that one out."""


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the process group that ``process`` leads, the leader and whatever it left behind, and reap the leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.005)
    process.wait()
