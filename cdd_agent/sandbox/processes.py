"""Ending a child process together with everything it started."""

import contextlib
import os
import signal
import subprocess
import time

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
