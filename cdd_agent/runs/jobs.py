"""Jobs: work in separate processes, side by side, while the run that submitted it continues.

A job is data in, data out: it works in a folder of its own, or on the files of a parcel on another machine. Only the
run commits to the user's branch, in the order of its items, so the result does not depend on which job ends first.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import Protocol

from cdd_agent.events import Emit
from cdd_agent.model.conversation import Model, Request, Turn
from cdd_agent.sandbox.port import Command, Result, Sandbox
from cdd_agent.storage import hold
from cdd_agent.untrusted import keys
from cdd_agent.untrusted.keys import Secret

MOST_BYTES = 200_000_000
"""The size of a parcel."""
_POLL_S = 0.02
_PATIENCE_S = 10.0
"""How long a process may take to save its state after a signal to stop."""
_CHILD = (
    "import os, sys; sys.path[:] = sys.argv[2].split(os.pathsep);"
    "from cdd_agent.sandbox.warden.kernel import end_with_parent; end_with_parent(int(sys.argv[1]));"
    "from cdd_agent.__main__ import main; sys.argv[:3] = ['cdd']; main()"
)


def build_program() -> list[str]:
    """Return the command that runs cdd with the modules of this process, and ends when this process does."""
    # The folder contains the model's code, where the current folder and relative entries of PYTHONPATH lead.
    return [sys.executable, "-I", "-c", _CHILD, str(os.getpid()), os.pathsep.join(map(os.path.abspath, sys.path))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command of cdd in a folder."""

    number: int
    """The number of the work item; one job at a time has it."""
    folder: Path
    """The input of the command, and its output, if it runs on this machine."""
    arguments: tuple[str | Path, ...]
    """Those of cdd. A path is the folder, or a file that the command reads."""
    log: Path
    """Gets the output."""
    parcel: bytes = b""
    """The input of the command on another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The end of a job. Its output is in its folder, or in the parcel."""

    job: Job
    status: int
    """The exit status of the process; negative: the signal that killed it."""
    place: str = ""
    """The machine; empty for this one."""
    parcel: bytes = b""
    """The output of the command on another machine."""
    is_lost: bool = False
    """The machine has gone, so nobody knows how the command ended, or what it has used."""

    @property
    def why(self) -> str:
        """Why the job is not done; empty if it is."""
        process = f"Its process on {self.place}" if self.place else "Its process"
        if self.is_lost:
            return f"{process} was lost with the worker."
        if self.status == 0:
            return ""
        if self.status < 0:
            return f"{process} was killed by signal {-self.status}."
        return f"{process} ended with exit status {self.status}."


class JobPool(Protocol):
    """Where the jobs of one run are carried out: in processes here, or on the workers of a cluster."""

    is_remote: bool
    """Whether a job is sent as a parcel, and comes back as one."""

    @property
    def most(self) -> int:
        """How many jobs may run at the same time."""

    @property
    def running(self) -> tuple[int, ...]:
        """The numbers of the jobs that have not ended."""

    @property
    def has_room(self) -> bool:
        """Whether one more job may run."""

    def submit(self, job: Job) -> None:
        """Start a job."""

    def as_completed(self) -> Iterator[JobResult]:
        """Yield the result of each job when it ends, whatever ended it, until there is none to wait for.

        An interrupted wait loses no result.
        """

    def cancel(self, *numbers: int) -> None:
        """End these jobs, or all; they get no result."""


class Jobs:
    """The jobs of one run, in processes that end with this one."""

    is_remote = False

    def __init__(self, *, most: int, key: Secret | None = None, program: Sequence[str] = ()) -> None:
        """``most`` jobs may run at the same time. Their model gets the ``key``; their ``program`` is cdd by default."""
        self.most = most
        self._program = program or build_program()
        self._key = key
        self._open: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}
        """The jobs whose results have not been yielded, by number."""
        self._has_ended = Condition()

    @property
    def running(self) -> tuple[int, ...]:
        """The numbers of the jobs that have not ended."""
        return tuple(number for number, (_, process) in self._open.items() if process.returncode is None)

    @property
    def has_room(self) -> bool:
        """Whether one more job may run."""
        return len(self.running) < self.most

    def submit(self, job: Job) -> None:
        """Start a job."""
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as log:
            process = subprocess.Popen(
                [*self._program, *map(str, job.arguments)],
                cwd=job.folder,
                env=os.environ if self._key is None else {**os.environ, keys.VARIABLE: self._key.reveal()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal is for the run, which then cancels its jobs
            )
        self._open[job.number] = (job, process)
        Thread(target=self._watch, args=(process,), daemon=True).start()

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        process.wait()
        with self._has_ended:
            self._has_ended.notify_all()

    def as_completed(self) -> Iterator[JobResult]:
        """Yield the result of each job when it ends, whatever ended it, until there is none to wait for.

        An interrupted wait loses no result.
        """
        while self._open:
            with self._has_ended:
                self._has_ended.wait_for(lambda: len(self.running) < len(self._open))
            number = next(number for number in self._open if number not in self.running)
            job, process = self._open.pop(number)
            yield JobResult(job=job, status=process.returncode)

    def cancel(self, *numbers: int) -> None:
        """End these jobs, or all; they get no result."""
        ending = {number: process for number, (_, process) in self._open.items() if number in numbers or not numbers}
        end_processes(ending.values())
        for number in ending:
            del self._open[number]


def end_processes(processes: Collection["subprocess.Popen[bytes]"]) -> None:
    """End processes, which may save their state before; returns when all have ended."""
    for process in processes:
        process.terminate()
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
        process.kill()
        process.wait()


class Slots:
    """A limited number of places for something that several processes do: as many as there are lock files."""

    def __init__(self, folder: Path, *, most: int | None = None) -> None:
        """The processes lock files in ``folder``; a lock ends with its process. None: as many as the folder has."""
        found = sorted(folder.glob("*.lock")) if most is None else [folder / f"{each}.lock" for each in range(most)]
        self._files = found or [folder / "0.lock"]

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Hold a place while the block runs."""
        self._files[0].parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as lock:
            while True:
                for file in self._files:
                    file.touch()
                    with contextlib.suppress(BlockingIOError):
                        lock.enter_context(hold(file))
                        break
                else:
                    time.sleep(_POLL_S)
                    continue
                break
            yield


class SharedModel:
    """A model for several processes, which together make a limited number of requests at the same time.

    While one process runs tests, another one can ask the model, so more jobs are under way than requests.
    """

    def __init__(self, inner: Model, *, slots: Slots) -> None:
        """Each request takes one of the ``slots``."""
        self.name = inner.name
        self._inner = inner
        self._slots = slots

    def check(self) -> None:
        """Check the inner model."""
        self._inner.check()

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """Return the model's turn, when it is this process's turn to ask."""
        with self._slots.wait():
            return self._inner.reply(request, emit=emit)


class SharedSandbox:
    """A sandbox for several processes, which together run a limited number of programs at the same time."""

    def __init__(self, inner: Sandbox, *, slots: Slots) -> None:
        """Each program takes one of the ``slots``."""
        self.level = inner.level
        self.inner = inner
        """For programs that stay, such as language servers: they would keep a slot to the end."""
        self._slots = slots

    def run(self, command: Command) -> Result:
        """Run the program, when it is this process's turn; its time begins then."""
        with self._slots.wait():
            return self.inner.run(command)
