"""Pytest in child processes that need not import it: a server imports pytest once and forks itself for each run.

Each run is a process of its own, with its own folder, environment, arguments and output, and may die in any way. It
differs from ``python -m pytest`` only in that pytest is imported already, so a file in the project cannot shadow it.
"""

import contextlib
import gc
import importlib
import inspect
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

PRELOADED = "ast asyncio doctest hashlib pdb pydoc subprocess tokenize unittest xml.etree.ElementTree execnet.multi"
"""Modules that pytest, xdist and the plugin import in most runs."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a process ended, and what it printed."""

    status: int
    """The exit status, or the negative number of the signal that killed it."""
    stdout: str
    stderr: str


class PytestServer:
    """A process that has imported pytest and forks a child for each run."""

    def __init__(self, folder: Path, *, python: Path = Path(sys.executable)) -> None:
        """``folder`` is for the output, ``python`` the interpreter."""
        self._output = [folder / "stdout", folder / "stderr"]
        self._alone = threading.Lock()
        command = [str(python), "-B", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        script: str = "",
        timeout_s: float = 0,
    ) -> Done:
        """Run pytest in ``folder`` in a forked process, or a script that runs it; SIGALRM ends it after the time."""
        request = Request(
            script=script,
            timeout_s=timeout_s,
            arguments=list(arguments),
            folder=str(folder),
            environment=dict(environment),
            output=[str(path) for path in self._output],
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._alone:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            status = int(self._process.stdout.readline())
            stdout, stderr = (path.read_text(encoding="utf-8", errors="replace") for path in self._output)
        return Done(status=status, stdout=stdout, stderr=stderr)

    def close(self) -> None:
        """End the server."""
        self._process.communicate()


def start_pytest(arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> Done:
    """Run pytest in ``folder`` in a new interpreter."""
    return start_program([sys.executable, "-m", "pytest", *arguments], folder=folder, environment=environment)


def start_program(command: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> Done:
    """Run a program in ``folder``."""
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return Done(status=done.returncode, stdout=done.stdout, stderr=done.stderr)


class Request(TypedDict):
    """One run that the server is asked for."""

    script: str
    timeout_s: float
    arguments: list[str]
    folder: str
    environment: dict[str, str]
    output: list[str]
    """The files for standard output and standard error."""


def import_pytest() -> None:
    """Import what a run of pytest imports before it reads the project's configuration."""
    from _pytest.config import default_plugins

    for name in (*(f"_pytest.{plugin}" for plugin in default_plugins), *PRELOADED.split()):
        with contextlib.suppress(ModuleNotFoundError):  # xdist is not everywhere
            importlib.import_module(name)
    inspect.getmodule(compile("", "unknown", "exec"))  # fills a cache of all modules' files, which a traceback needs
    gc.collect()
    gc.freeze()  # what is imported is not looked through again when a run ends


def serve(paths: Sequence[str]) -> None:
    """Fork a child for each request, and return in the child, which is ready to run pytest."""
    while line := os.read(0, 1 << 16):
        while not line.endswith(b"\n"):
            line += os.read(0, 1 << 16)
        child = os.fork()
        if child == 0:
            take_on(json.loads(line), paths=paths)
            return
        _, status = os.waitpid(child, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def take_on(request: Request, *, paths: Sequence[str]) -> None:
    """Give this process the descriptors, folder, environment and search path of an interpreter started for the run."""
    for number, path in enumerate([os.devnull, *request["output"]]):
        opened = os.open(path, os.O_RDWR if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    more = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path = [os.getcwd(), *filter(None, more), *paths]
    sys.argv = [request["script"] or "pytest", *request["arguments"]]
    sys.dont_write_bytecode = bool(request["environment"].get("PYTHONDONTWRITEBYTECODE"))
    signal.setitimer(signal.ITIMER_REAL, request["timeout_s"])
    if request["script"]:
        sys.path[0] = os.path.dirname(request["script"])


if __name__ == "__main__":
    import_pytest()
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    serve([path for path in sys.path[1:] if path not in inherited])
    if sys.argv[0] != "pytest":
        runpy.run_path(sys.argv[0], run_name="__main__")
    import pytest

    sys.exit(pytest.main())
