"""The sandbox port: one way to run a program that a model wrote or asked for.

``ProcessSandbox`` is the plain rung: a built environment, a process group of its own that is ended as a whole, a
wall clock and capped output. It confines no file and no network access, and its level says so.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from cdd_agent.processes import end_group

KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "VIRTUAL_ENV", "TERM")
"""All that a child gets of this process's environment unless the caller adds it: no key, no PYTEST_ADDOPTS.

PYTHONPATH is added by ``testrun.run`` for test runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """How a program ended."""

    exit_status: int
    """The program's own; negative: minus the signal that ended it."""
    output: str
    """Standard output and error as they came; the middle is dropped where it is longer than the cap."""
    dropped_bytes: int
    timed_out: bool
    duration_s: float


class Sandbox(Protocol):
    """Whatever runs programs for us."""

    level: str
    """``none``, or what confines the programs: shown in the prompt, the reports and the state."""

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        variables: Mapping[str, str],
        timeout_s: float,
        output_cap: int = 64_000,
    ) -> ProcessResult:
        """Run ``argv`` to its end, or end it and all its group after ``timeout_s`` seconds.

        ``variables`` are added to the few that pass from this process. ``output_cap`` is in bytes. Raises
        ``OSError`` if the program cannot be started; ``KeyboardInterrupt`` ends the group and passes through.
        """
        ...


class ProcessSandbox:
    """Runs programs as plain processes of this user."""

    level = "none"

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        variables: Mapping[str, str],
        timeout_s: float,
        output_cap: int = 64_000,
    ) -> ProcessResult:
        """Run ``argv`` in a session of its own, its output in a file so that no orphan can hold a pipe."""
        environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | dict(variables)
        started = time.monotonic()
        with tempfile.TemporaryFile() as sink:
            process = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            timed_out = False
            try:
                process.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                end_group(process)
            output, dropped = _capped(sink, output_cap)
        return ProcessResult(
            exit_status=process.returncode,
            output=output,
            dropped_bytes=dropped,
            timed_out=timed_out,
            duration_s=time.monotonic() - started,
        )


def _capped(stream: IO[bytes], cap: int) -> tuple[str, int]:
    """The head and tail of ``stream`` that fit into ``cap`` bytes, and how many bytes lie between them."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if size <= cap:
        return stream.read().decode("utf-8", "replace"), 0
    half = cap // 2
    head = stream.read(half)
    stream.seek(size - half)
    tail = stream.read()
    dropped = size - len(head) - len(tail)
    middle = f"\n[... {dropped} bytes dropped ...]\n".encode()
    return (head + middle + tail).decode("utf-8", "replace"), dropped
