"""Jobs on the workers of a dask scheduler.

A job is sent as bytes, and its result comes back as bytes. No key is in either: a worker calls the model with the key
in its environment. The functions that workers call are found by name, so cdd is installed there, with the same
code. Each job goes to a worker that was checked, and to no other: dask would otherwise repeat a job elsewhere by
itself, and nobody could tell what the first attempt has cost.
"""

import contextlib
import hashlib
import importlib.util
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING

import msgspec

import cdd_agent
import pytest_tdd_agent
from cdd_agent.errors import CddError, EnvironmentMissing, UsageError
from cdd_agent.events import Emit, Notice
from cdd_agent.git.runner import Call, run_once
from cdd_agent.installation import suggest_addition
from cdd_agent.runs.jobs import MOST_BYTES, Job, JobResult, build_program, end_processes
from cdd_agent.sandbox.choice import choose, resolve_level
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.testrun.interpreter import ask_interpreter
from cdd_agent.untrusted.keys import VARIABLE, redact_keys
from cdd_agent.untrusted.text import shorten

if TYPE_CHECKING:
    from distributed import Client, Future
    from distributed import Worker as DaskWorker

REQUIREMENT = "distributed>=2026.8,<2027"
PARCEL, RESULT = "parcel", "result"
"""Files in the folder of a job on a worker: its input and its output."""
SLOTS = "CDD_SLOTS"
"""The variable that names a folder in a job's environment. Its folders ``model`` and ``tests`` hold a lock file for
each request to the model, and for each test run, that the jobs of the worker may make at the same time."""
_LOG_BYTES = 1_000_000
_MOST_SHOWN = 20
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.]+\]|[\w.-]+):[0-9]{1,5}")
_REACH_S = 8.0
_ANSWER_S = 60.0
"""How long a worker may take to describe itself; it tries its sandbox for that."""
_POLL_S = 0.5
_PATIENCE_S = 10.0
"""How long the scheduler may take to say good-bye, or to send an error."""
_NEW_WORKER_S = 60.0
"""How long to wait for another worker if none is left."""
_OWN_VARIABLES = ("CDD_", "TDD_", "DASK_")
"""The parcel says how the job runs, so the settings of the worker's shell do not count."""


def check_address(address: str) -> None:
    """Raise ``UsageError`` unless this is the address of a scheduler.

    Raises ``EnvironmentMissing`` without the extra, and if nobody listens there.
    """
    if not _ADDRESS.fullmatch(address):
        raise UsageError(
            f"{shorten(address, 80)!r} is not the address of a scheduler.",
            hint="name it as dask does: --scheduler tcp://HOST:8786, or tls://HOST:8786",
        )
    if importlib.util.find_spec("distributed") is None:
        raise EnvironmentMissing(
            "--scheduler needs the package distributed, which is not installed.", hint=suggest_addition(REQUIREMENT)
        )
    host, port = address.partition("://")[2].rsplit(":", 1)
    try:
        # If nobody listens there, dask tries again until the time is up.
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except (OSError, OverflowError) as error:
        raise _make_unreachable(address, error) from error


def _make_unreachable(address: str, error: Exception) -> EnvironmentMissing:
    return EnvironmentMissing(
        f"The scheduler {address} does not answer: {shorten(str(error) or type(error).__name__, 200)}",
        hint=f"start it: dask scheduler --port {address.rpartition(':')[2]}; then the same command",
    )


class WorkerFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The properties of a machine that decide whether jobs of this run can run there."""

    id: str = ""
    """The name of the worker's process in the cluster."""
    version: str
    """cdd's."""
    code: str
    """The digest of cdd's code."""
    python: str
    """The interpreter that runs the tests, and its pytest."""
    sandbox: str
    git: str
    """Its version; empty without git."""
    has_key: bool


def describe_machine(*, sandbox: str, python: str) -> WorkerFacts:
    """Return the facts of this machine, for a sandbox of the level ``sandbox`` and the interpreter ``python``.

    Without ``python``, tests run with the interpreter that runs cdd.
    """
    try:
        level = choose(resolve_level(sandbox), unattended=True, report=lambda _: None).level
    except CddError as error:
        level = f"no {sandbox}: {error.happened}"
    return WorkerFacts(
        version=cdd_agent.__version__,
        code=digest_code(),
        python=_describe_python(Path(python or sys.executable)),
        sandbox=level,
        git=_find_git(),
        has_key=bool(os.environ.get(VARIABLE, "").strip()),
    )


@cache
def digest_code() -> str:
    """Return a digest of the code and data of both packages."""
    digest = hashlib.sha256()
    for package in (cdd_agent, pytest_tdd_agent):
        top = Path(package.__path__[0])
        for path in sorted(top.rglob("*")):
            inside = path.relative_to(top).as_posix()
            # A wheel has the examples in the package, and a checkout has them beside it.
            if path.is_file() and "__pycache__" not in inside and not inside.startswith("examples/"):
                digest.update(
                    f"{package.__name__}/{inside}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
                )
    return digest.hexdigest()


def _describe_python(path: Path) -> str:
    found = ask_interpreter(Path(os.sep), path, environment=os.environ)
    return f"no interpreter at {path}: {found}" if isinstance(found, str) else format_python(found.python, found.pytest)


def format_python(version: str, pytest: str) -> str:
    """Return an interpreter as the facts of a machine name it."""
    return f"Python {version} with pytest {pytest or 'missing'}"


def _find_git() -> str:
    try:
        return run_once(Call(verb="version"), folder=Path(os.sep)).strip().removeprefix("git version ")
    except (CddError, OSError):
        return ""


def list_differences(found: WorkerFacts, expected: WorkerFacts) -> Iterator[tuple[str, str]]:
    """Yield what is in the way of jobs on a worker, and what to do there; ``expected.has_key``: it needs a key."""
    if (found.version, found.code) != (expected.version, expected.code):
        what = f"cdd {found.version}, and {expected.version} here"
        if found.version == expected.version:
            what = f"cdd {found.version} with other code than here"
        yield what, "install there the cdd that runs here"
    if found.python != expected.python:
        hint = "start dask worker with the same Python and pytest; see which: python -m pytest --version --version"
        yield f"{shorten(found.python, 200)}, and {expected.python} here", hint
    if found.sandbox != expected.sandbox:
        hint = "name a sandbox that all machines have: --sandbox LEVEL; see which: cdd doctor"
        yield f"sandbox: {shorten(found.sandbox, 200)}, and {expected.sandbox} here", hint
    if not found.git:
        yield "git is missing", "install git there"
    if expected.has_key and not found.has_key:
        yield "no key for the model", f"set {VARIABLE} before dask worker starts"


# On the workers


async def describe_worker(*, sandbox: str, python: str, dask_worker: "DaskWorker") -> bytes:
    """Return the ``WorkerFacts`` of a worker; dask calls this also while all threads for jobs are busy."""
    import asyncio

    found = await asyncio.to_thread(describe_machine, sandbox=sandbox, python=python)
    return msgspec.msgpack.encode(msgspec.structs.replace(found, id=dask_worker.id))


class _Ended(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The answer of a worker."""

    status: int = 0
    log: bytes = b""
    parcel: bytes = b""
    is_lost: bool = False
    """This process of the worker is not the one that was checked, and has done nothing."""


def carry_out(parcel: bytes, *, worker: str, task: str, program: Sequence[str] = ()) -> bytes:
    """Carry out a job in the process ``worker`` of a cluster, as the task ``task``, in a new folder.

    Its command ends with the worker, and when the task is cancelled.
    """
    from distributed import get_worker

    me = get_worker()
    if me.id != worker:
        return msgspec.msgpack.encode(_Ended(is_lost=True))
    place = Path(me.local_directory)
    try:
        slots = _make_slots(place / "slots", me.state.total_resources, threads=me.state.nthreads)
        with tempfile.TemporaryDirectory(prefix="cdd-job-", dir=place) as name:
            folder = Path(name)
            write_atomic(folder / PARCEL, parcel, is_durable=False)
            words = [*(program or (*build_program(), "work")), str(folder)]
            status = _run(words, folder, slots=slots, is_unwanted=lambda: _is_unwanted(me, task))
            log = (folder / "log").read_bytes()[-_LOG_BYTES:]
            result = folder / RESULT
            sent = read_ordinary(result, limit_bytes=MOST_BYTES) if result.exists() else b""
    except OSError as error:
        what = f"{error.strerror or error}: {error.filename or place}\n"
        return msgspec.msgpack.encode(_Ended(status=4, log=what.encode("utf-8", "replace")))
    return msgspec.msgpack.encode(_Ended(status=status, log=_hide_keys(log), parcel=sent))


def _is_unwanted(worker: "DaskWorker", task: str) -> bool:
    """Return whether nobody waits for a task: it was cancelled, or the scheduler has gone, so the worker closes."""
    # A cancelled task is gone, or has this state, while its function still runs.
    known = worker.state.tasks.get(task)
    return known is None or known.state == "cancelled" or worker.status.name in ("closing", "closed", "failed")


def _hide_keys(log: bytes) -> bytes:
    text = log.decode("utf-8", "replace")
    if own := os.environ.get(VARIABLE, "").strip():
        text = text.replace(own, "(the key)")
    return redact_keys(text).encode("utf-8", "replace")


def _make_slots(folder: Path, resources: Mapping[str, float], *, threads: int) -> Path:
    """Make the lock files of a worker: as many as its resources say, and as its threads without."""
    for name in ("model", "tests"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(max(1, int(resources.get(name, threads)))):
            (folder / name / f"{number}.lock").touch()
    return folder


def _run(words: Sequence[str], folder: Path, *, slots: Path, is_unwanted: Callable[[], bool]) -> int:
    """Run a program until it ends, or until nobody waits for it, and return its exit status."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_VARIABLES)}
    # Approvals and secrets of the user do not count for the files of another machine.
    variables = {**own, "XDG_STATE_HOME": str(slots.parent / "state"), SLOTS: str(slots)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        while not _wait(process, _POLL_S):
            if is_unwanted():
                break
    finally:
        end_processes([process])
    return process.returncode


def _wait(process: "subprocess.Popen[bytes]", most_s: float) -> bool:
    """Return whether the process has ended, at the latest after some seconds."""
    handle = os.pidfd_open(process.pid)  # `Popen.wait` with a limit sleeps for up to 50 ms
    try:
        select.select([handle], [], [], most_s)
    finally:
        os.close(handle)
    return process.poll() is not None


# At the coordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process of the cluster that was checked."""

    address: str
    id: str
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """The requirements of a run for each worker."""

    here: WorkerFacts
    """``has_key``: a worker needs a key."""
    sandbox: str
    python: str
    """The path of the interpreter that runs the tests; empty: cdd's own."""


class _WorkerError(Exception):
    """A task returned nothing that can be used."""


_FAILURES = (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, ImportError, EOFError)
"""The exceptions of a task that cannot be read here, and of a connection that ends; ``TimeoutError`` is an OSError."""


def _read(future: "Future", *, wait_s: float) -> bytes:
    """Return the bytes that a task returned; raise ``_WorkerError`` if there are none."""
    from concurrent.futures import CancelledError

    try:
        if (error := future.exception(timeout=wait_s)) is not None:
            raise _WorkerError(f"{type(error).__name__}: {error}")
        found = future.result(timeout=wait_s)
    except (*_FAILURES, CancelledError) as error:
        raise _WorkerError(str(error) or "it does not answer") from error
    if not isinstance(found, bytes):
        raise _WorkerError(f"it answers with {type(found).__name__}")
    return found


def _describe_error(future: "Future") -> str:
    try:
        _read(future, wait_s=_PATIENCE_S)
    except _WorkerError as error:
        return shorten(str(error), 1000)
    return ""


class Cluster:
    """The scheduler, and its workers that were checked."""

    def __init__(self, address: str, *, client: "Client", requirement: Requirement, emit: Emit) -> None:
        """See ``connect``."""
        self.address = address
        self.client = client
        self.workers: dict[tuple[str, str], Worker] = {}
        """Address and folder of a process -> worker. One that was started again has another folder."""
        self._requirement = requirement
        self._emit = emit
        self._refused: set[tuple[str, str]] = set()

    @classmethod
    def connect(cls, address: str, *, requirement: Requirement, emit: Emit) -> "Cluster":
        """Connect to a scheduler and check its workers; raise ``EnvironmentMissing`` unless all of them fit."""
        check_address(address)
        import logging

        import dask
        from distributed import Client

        # The scheduler's and the workers' own reports are for their terminals; an error here becomes a CddError.
        for name in ("distributed", "tornado", "asyncio", *logging.Logger.manager.loggerDict):
            if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):  # many set their level themselves
                logging.getLogger(name).setLevel(logging.CRITICAL)
        dask.config.set({"distributed.admin.large-graph-warning-threshold": f"{2 * MOST_BYTES}B"})
        try:
            client = Client(address, timeout=_REACH_S, set_as_default=False, name="cdd")
        except (OSError, ValueError, RuntimeError) as error:
            raise _make_unreachable(address, error) from error
        cluster = cls(address, client=client, requirement=requirement, emit=emit)
        try:
            cluster._check_all()
        except BaseException:
            cluster.close()
            raise
        return cluster

    def close(self) -> None:
        """Disconnect; the scheduler drops the tasks that are left."""
        with contextlib.suppress(OSError, RuntimeError):
            self.client.close(timeout=_PATIENCE_S)

    def _check_all(self) -> None:
        """Check the present workers; raise ``EnvironmentMissing`` if there are none, or if one does not fit."""
        found = self._list_present()
        if not found:
            raise self._make_error("has no worker")
        wrong, hints = dict[str, None](), dict[str, None]()
        for place, differences in self._ask(found).items():
            for what, hint in differences:
                wrong[f"\n  {place[0]}: {what}"] = hints[hint] = None
        if wrong:
            raise EnvironmentMissing(
                f"Workers of {self.address} do not fit:{''.join([*wrong][:_MOST_SHOWN])}",
                hint=f"{'; '.join(hints)}; then the same command",
            )

    def _list_present(self) -> dict[tuple[str, str], int]:
        """Return address and folder of each worker -> its threads; raise ``EnvironmentMissing`` without a scheduler."""
        if self.client.status != "running":
            raise self._make_error("is gone")
        try:
            known = self.client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, RuntimeError, TimeoutError) as error:
            raise self._make_error("is gone") from error
        return {(address, str(each["local_directory"])): int(each["nthreads"]) for address, each in known.items()}

    def _make_error(self, what: str) -> EnvironmentMissing:
        port = self.address.rpartition(":")[2]
        start = f"dask scheduler --port {port}" if what == "is gone" else f"dask worker {self.address}"
        return EnvironmentMissing(
            f"The scheduler {self.address} {what}.", hint=f"start one: {start}; then the same command continues"
        )

    def _ask(self, threads: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """Return what is wrong with workers, and what to do there; add those to the others that fit.

        ``threads``: place -> threads of a worker.
        """
        answers = self._call([address for address, _ in threads])
        wrong: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for place in threads:
            answer = answers.get(place[0], TimeoutError("it does not answer"))
            try:
                if not isinstance(answer, bytes):
                    raise TypeError(f"{type(answer).__name__}: {answer}")
                facts = msgspec.msgpack.decode(answer, type=WorkerFacts)
            except (TypeError, ValueError) as error:
                why = shorten(str(error), 200)
                wrong[place] = [
                    (f"it cannot run cdd: {why}", "install there the cdd that runs here, and start it again")
                ]
                continue
            wrong[place] = list(list_differences(facts, self._requirement.here))
            if not wrong[place]:
                self.workers[place] = Worker(address=place[0], id=facts.id, threads=threads[place])
        return wrong

    def _call(self, addresses: list[str]) -> dict[str, object]:
        """Return address -> answer of each worker, or its exception; those that do not answer are missing."""
        answers: dict[str, object] = {}
        try:
            answers = self.client.run(
                describe_worker,
                sandbox=self._requirement.sandbox,
                python=self._requirement.python,
                workers=addresses,
                on_error="return",
                callback_timeout=_ANSWER_S,
            )
        except _FAILURES as error:
            if len(addresses) == 1:
                return {addresses[0]: error}
            for address in addresses:  # one of them is in the way of the others
                answers |= self._call([address])
        return answers

    def refresh(self) -> None:
        """Forget workers that have gone, and check those that have come; raise ``EnvironmentMissing`` if it is gone."""
        present = self._list_present()
        self.workers = {place: worker for place, worker in self.workers.items() if place in present}
        new = {place: threads for place, threads in present.items() if place not in {*self.workers, *self._refused}}
        for place, wrong in self._ask(new).items() if new else ():
            if wrong:
                self._refused.add(place)
                self._emit(Notice(text=f"The worker {place[0]} gets nothing to do: {'; '.join(w for w, _ in wrong)}."))

    def wait_for_worker(self) -> None:
        """Wait until there is a worker; raise ``EnvironmentMissing`` if none comes."""
        until, has_told = time.monotonic() + _NEW_WORKER_S, False
        while not self.workers:
            self.refresh()
            if self.workers:
                return
            if time.monotonic() > until:
                raise self._make_error("has no worker left")
            if not has_told:
                self._emit(Notice(text=f"No worker is left at {self.address}. Waiting for another one."))
                has_told = True
            time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    job: Job
    worker: Worker
    future: "Future"


class ClusterJobs:
    """The jobs of one run, on the workers of a cluster."""

    is_remote = True

    def __init__(self, cluster: Cluster, *, most: int = 0, program: Sequence[str] = ()) -> None:
        """``most`` jobs run at the same time; 0: as many as the workers have threads.

        A worker runs their ``program`` with the folder of the job, cdd by default.
        """
        self._cluster = cluster
        self._most = most
        self._program = tuple(program)
        self._open: dict[int, _Task] = {}
        """The jobs whose results have not been yielded, by number."""
        self._count = 0
        self._has_changed = Condition()

    @property
    def most(self) -> int:
        """How many jobs may run at the same time."""
        threads = sum(worker.threads for worker in self._cluster.workers.values())
        return min(threads, self._most or threads)

    @property
    def running(self) -> tuple[int, ...]:
        """The numbers of the jobs that have not ended."""
        return tuple(number for number, task in self._open.items() if not task.future.done())

    @property
    def has_room(self) -> bool:
        """Whether one more job may run."""
        return len(self.running) < self.most

    def submit(self, job: Job) -> None:
        """Send a job to the worker that has the least to do."""
        self._cluster.wait_for_worker()
        load = [task.worker for task in self._open.values() if not task.future.done()]
        worker = min(self._cluster.workers.values(), key=lambda each: load.count(each) / each.threads)
        self._count += 1
        key = f"cdd-{os.getpid()}-{self._count}-{os.urandom(8).hex()}"
        future = self._cluster.client.submit(
            carry_out,
            job.parcel,
            worker=worker.id,
            task=key,
            program=self._program,
            key=key,
            workers=[worker.address],
            allow_other_workers=False,
            pure=False,
        )
        self._open[job.number] = _Task(job=job, worker=worker, future=future)
        future.add_done_callback(self._notify)

    def _notify(self, _: object) -> None:
        with self._has_changed:
            self._has_changed.notify_all()

    def as_completed(self) -> Iterator[JobResult]:
        """Yield the result of each job when it ends, whatever ended it, until there is none to wait for.

        An interrupted wait loses no result. Raises ``EnvironmentMissing`` if the scheduler is gone.
        """
        while self._open:
            with self._has_changed:
                self._has_changed.wait_for(lambda: len(self.running) < len(self._open), timeout=_POLL_S)
            running = self.running
            number = next((number for number in self._open if number not in running), None)
            if number is None:
                self._cluster.refresh()
                workers = self._cluster.workers.values()
                number = next((each for each, task in self._open.items() if task.worker not in workers), None)
            if number is not None:
                task = self._open.pop(number)
                yield self._read_result(task)

    def _read_result(self, task: _Task) -> JobResult:
        job, future = task.job, task.future
        lost = JobResult(job=job, status=0, place=task.worker.address, is_lost=True)
        if future.status != "finished":
            # The worker has gone, or was started again at its address, where dask would repeat the job.
            self._cluster.refresh()
            if future.status == "error" and task.worker in self._cluster.workers.values():
                why = _describe_error(future)
                self._add_to_log(job, f"{why}\n".encode("utf-8", "replace"))
                return JobResult(job=job, status=1, place=task.worker.address)
            self._cluster.client.cancel([future])
            return lost
        try:
            ended = msgspec.msgpack.decode(_read(future, wait_s=_ANSWER_S), type=_Ended)
        except (_WorkerError, msgspec.DecodeError, ValueError) as error:
            self._add_to_log(job, shorten(str(error), 1000).encode("utf-8", "replace"))
            return lost
        self._add_to_log(job, ended.log[-_LOG_BYTES:])
        if ended.is_lost:
            return lost
        return JobResult(job=job, status=ended.status, place=task.worker.address, parcel=ended.parcel)

    def _add_to_log(self, job: Job, text: bytes) -> None:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as log:
            log.write(text)

    def cancel(self, *numbers: int) -> None:
        """End these jobs, or all; they get no result."""
        ending = {number: task for number, task in self._open.items() if number in numbers or not numbers}
        for number in ending:
            del self._open[number]
        if ending and self._cluster.client.status == "running":
            with contextlib.suppress(OSError, RuntimeError):
                self._cluster.client.cancel([task.future for task in ending.values()])
