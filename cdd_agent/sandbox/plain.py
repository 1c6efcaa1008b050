"""The plain rung: a built environment, a process group of its own that is ended as a whole, a clock, capped output.

It confines no file and no network access, and its level says so.
"""

import os
import subprocess
import tempfile
import time
from typing import IO

from cdd_agent.sandbox.port import Command, Result
from cdd_agent.sandbox.processes import end_group

KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "VIRTUAL_ENV", "TERM")
"""All that a child gets of this process's environment unless the caller adds it: no key, no PYTEST_ADDOPTS.

PYTHONPATH is added by ``testrun.run`` for test runs."""


class PlainSandbox:
    """Runs programs as plain processes of this user."""

    level = "none"

    def run(self, command: Command) -> Result:
        """Run the program in a session of its own, its output in a file so that no orphan can hold a pipe."""
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        started = time.monotonic()
        with tempfile.TemporaryFile() as sink:
            process = subprocess.Popen(
                list(command.argv),
                cwd=command.cwd,
                env=kept | dict(command.variables),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            timed_out = False
            try:
                process.wait(timeout=command.timeout_s)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                end_group(process)
            output, dropped = _capped(sink, command.output_cap)
        return Result(
            exit_status=process.returncode,
            output=output,
            dropped_bytes=dropped,
            timed_out=timed_out,
            duration_s=time.monotonic() - started,
            level=self.level,
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
