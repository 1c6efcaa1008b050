"""A sandbox for the suite: it forks runs of pytest from a process that has imported it, which is twice as quick."""

import atexit
import shutil
import signal
import tempfile
import time
from functools import cache
from pathlib import Path

from cdd_agent.sandbox.port import Command, Result
from cdd_agent.sandbox.supervised import PlainSandbox, build_environment
from tests.fakes.preloaded import PytestServer

_PYTEST = "launcher.py"


@cache
def start_server(python: Path) -> PytestServer:
    """Start a server for this interpreter, once in this process."""
    folder = Path(tempfile.mkdtemp(prefix="cdd-server-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    server = PytestServer(folder, python=python)
    atexit.register(server.close)
    return server


class ForkedSandbox:
    """Like ``PlainSandbox``, with neither limits nor an end for what a program leaves running."""

    level = "none"

    def __init__(self, server: PytestServer) -> None:
        """``server`` runs the interpreter of the commands."""
        self._server = server

    def run(self, command: Command) -> Result:
        """Run the launcher of ``PytestSuite`` in the server, and any other program as the plain sandbox does."""
        _, *arguments = command.argv
        if not arguments or Path(arguments[0]).name != _PYTEST:
            return PlainSandbox().run(command)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="cdd-run-", ignore_cleanup_errors=True) as temporary:
            done = self._server.run(
                arguments[1:],
                folder=command.cwd,
                environment=build_environment(command, TMPDIR=temporary),
                script=arguments[0],
                timeout_s=command.timeout_s,
            )
        if command.stdout is not None:
            with open(command.stdout, "w", encoding="utf-8", closefd=False) as stream:
                stream.write(done.stdout)
        printed = done.stderr if command.stdout is not None else done.stdout + done.stderr
        return Result(
            exit_status=done.status,
            head=printed[: command.output_cap],
            dropped_bytes=0,
            timed_out=done.status == -signal.SIGALRM,
            duration_s=time.monotonic() - began,
            level=self.level,
        )
