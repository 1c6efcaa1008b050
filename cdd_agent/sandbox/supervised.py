"""Runs one program under a warden: a process that starts it, collects its output and ends all that it leaves behind.

The warden gets an empty environment, because a process can read the environment of its parents. It also stops when cdd
is killed, since its standard input then closes. Also holds the resource limits of a run, the plain sandbox, which
applies them but restricts neither files nor network, and ``end_group``, which ends children that have no warden.
"""

import contextlib
import errno
import marshal
import math
import os
import resource
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cdd_agent.errors import EnvironmentMissing, format_count
from cdd_agent.sandbox.port import Access, Command, Limits, Result
from cdd_agent.sandbox.warden import supervision
from cdd_agent.sandbox.warden.supervision import FIELDS

if TYPE_CHECKING:
    from cdd_agent.sandbox.warden.supervision import Order, Rules

_GIB = 1 << 30
_TASKS = 4096
"""Processes and threads of a run, beside those that the user already has."""


def make_default_limits(timeout_s: float) -> Limits:
    """Return limits that only a runaway program reaches: most memory, and all processors until the timeout."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Limits(
        memory_bytes=max(2 * _GIB, machine * 3 // 4),
        cpu_s=math.ceil(timeout_s * (os.cpu_count() or 1)) + 1,
        file_bytes=4 * _GIB,
        open_files=16_384,
        processes=_TASKS,
    )


def to_rlimits(limits: Limits) -> list[tuple[int, int]]:
    """Return resource and maximum pairs for ``setrlimit``."""
    return [
        (resource.RLIMIT_DATA, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, limits.processes + _count_tasks_of_this_user()),
    ]


def describe_limits(limits: Limits, *, timeout_s: float) -> Iterator[str]:
    """Yield the limits in force, for display."""
    yield f"{timeout_s:g} s"
    yield f"{_format_size(limits.memory_bytes)} of memory a process"
    yield f"{limits.cpu_s} s of processor time a process"
    yield f"{_format_size(limits.file_bytes)} a file"
    yield f"{limits.open_files} open files a process"
    if os.getuid() != 0:  # the kernel does not limit the processes of root
        yield f"{limits.processes} processes"


def _format_size(size_bytes: int) -> str:
    for unit, size in (("GiB", _GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes} bytes"


def _count_tasks_of_this_user() -> int:
    # RLIMIT_NPROC counts all processes and threads of the user, not only those of the run.
    user, count = os.getuid(), 0
    if user == 0:
        return 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            try:
                if entry.name.isdigit() and entry.stat(follow_symlinks=False).st_uid == user:
                    count += len(os.listdir(f"{entry.path}/task"))
            except OSError:  # the process has ended
                continue
    return count


PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "VIRTUAL_ENV", "TERM")
"""Variables that a program gets from this process: no key, no PYTEST_ADDOPTS.

Callers add others; ``testrun`` adds PYTHONPATH for test runs."""

LATE_S = 1.9
"""Time after the timeout at which cdd ends a run itself, because the warden does not respond."""

_STOPPED = "the process that supervised the program did not respond and was stopped; the program's output is lost"

_SIGNALS = frozenset(map(int, signal.Signals))
_WARDEN = "import sys; sys.path.append(sys.argv[1]); from cdd_agent.sandbox.warden.main import main; main()"
_SOURCES = str(Path(__file__).parents[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a sandbox runs a command."""

    level: str
    argv: tuple[str, ...]
    """The program by its absolute path, or a program that confines it."""
    environment: Mapping[str, str]
    rules: "Rules | None" = None
    confinement: tuple[str, ...] = ()
    kill_command: tuple[str, ...] = ()
    """Ends a program that signals do not reach, such as a container."""
    applies_limits: bool = False
    """Whether the program in ``argv`` applies the limits, instead of the warden."""
    reports_like_shell: bool = False
    """Whether the program in ``argv`` exits with 128 plus the number of a signal."""


def build_environment(command: Command, **defaults: str) -> dict[str, str]:
    """Return a program's environment: the passed variables, the sandbox's ``defaults``, the command's variables."""
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    return passed | defaults | dict(command.variables)


def find_program(command: Command, environment: Mapping[str, str]) -> str:
    """Return the absolute path of the command's program; raises ``FileNotFoundError``."""
    name = command.argv[0]
    path = shutil.which(name, path=environment.get("PATH", os.defpath))
    if path is None:
        raise FileNotFoundError(2, "No such program", name)
    return os.path.abspath(os.path.join(command.cwd, path))


def resolve_limits(command: Command) -> Limits:
    """Return the limits of a command, or the default limits if it has none."""
    return command.limits or make_default_limits(command.timeout_s)


def describe_start_failure(error: OSError, argv: Sequence[str], *, environment: Mapping[str, str]) -> OSError:
    """Return the error; if arguments and environment of the program are too long, it names the longest of them."""
    if error.errno != errno.E2BIG:
        return error
    named = [(f"argument {number}", text) for number, text in enumerate(argv)] + [
        (f"the variable {name}", f"{name}={value}") for name, value in environment.items()
    ]
    sizes = {name: len(os.fsencode(text)) for name, text in named}
    whole = sum(size + _OVERHEAD_BYTES for size in sizes.values())
    longest = max(sizes, key=lambda name: sizes[name])
    return OSError(
        errno.E2BIG,
        f"{os.strerror(errno.E2BIG)}: {longest} has {sizes[longest]:,} bytes, and all arguments and variables together "
        f"have {whole:,}; the system allows {_LONGEST_ARGUMENT:,} and {os.sysconf('SC_ARG_MAX'):,}",
        argv[0],
    )


_OVERHEAD_BYTES = 9
"""The end of an argument or variable, and its address, which count too."""
_LONGEST_ARGUMENT = 32 * os.sysconf("SC_PAGE_SIZE") - 1
"""Limit of Linux for one argument or variable."""
_RUNNING: set[subprocess.Popen[bytes]] = set()
"""The wardens of all threads."""


def end_runs() -> None:
    """End the runs of other threads, which raise ``EnvironmentMissing`` then."""
    for warden in tuple(_RUNNING):
        # A warden stops when its input closes, as when cdd is killed.
        with contextlib.suppress(OSError):
            _pipes(warden)[0].close()


def run_launch(command: Command, launch: Launch) -> Result:
    """Run ``launch`` until it ends; see ``Sandbox.run``."""
    limits = resolve_limits(command)
    order: Order = {
        "argv": list(launch.argv),
        "environment": dict(launch.environment),
        "cwd": str(command.cwd),
        "timeout_s": float(command.timeout_s),
        "output_cap": command.output_cap,
        "limits": [(resource.RLIMIT_CORE, 0), *(() if launch.applies_limits else to_rlimits(limits))],
        "rules": launch.rules,
        "stdin": -1 if command.stdin is None else command.stdin,
        "stdout": -1 if command.stdout is None else command.stdout,
        "kill_command": list(launch.kill_command),
    }
    started = time.monotonic()
    with _keep_open(command.access):
        try:
            answer, remarks, output = _run_warden(order, program=command.argv[0])
        except OSError as error:
            raise describe_start_failure(error, command.argv, environment=launch.environment) from error
    duration_s = time.monotonic() - started
    _, status, dropped, timed_out, survivors, head_size = answer
    if survivors:
        remarks.append(f"could not end {format_count(survivors, 'process')} that the program started")
    return Result(
        exit_status=128 - status if launch.reports_like_shell and status - 128 in _SIGNALS else status,
        head=output[:head_size].decode("utf-8", "replace"),
        tail=output[head_size:].decode("utf-8", "replace"),
        dropped_bytes=dropped,
        timed_out=bool(timed_out),
        duration_s=duration_s,
        level=launch.level,
        limits=(*launch.confinement, *describe_limits(limits, timeout_s=command.timeout_s)),
        survivors=survivors,
        remarks=tuple(remarks),
    )


@contextlib.contextmanager
def _keep_open(access: Access) -> Iterator[None]:
    """Give this user back the folders that the next run has to enter, if the program took the permission away.

    These are the writable folders and those inside them that hold a read-only path. The user's own closed folders stay
    closed.
    """
    above = {parent for path in access.read_only for parent in path.parents}
    inside = (folder for folder in above if any(folder.is_relative_to(root) for root in access.read_write))
    before = {}
    for folder in sorted({*access.read_write, *inside}):  # a folder before those inside it, which need it
        with contextlib.suppress(OSError):
            before[folder] = os.lstat(folder)
    try:
        yield
    finally:
        for folder, old in before.items():
            with contextlib.suppress(OSError):
                new = os.lstat(folder)
                # The program can have put a link to another folder in its place.
                is_same = stat.S_ISDIR(new.st_mode) and os.path.samestat(old, new)
                if is_same and old.st_mode & ~new.st_mode & stat.S_IRWXU:
                    os.chmod(folder, stat.S_IMODE(new.st_mode | old.st_mode & stat.S_IRWXU))


def _run_warden(order: "Order", *, program: str) -> tuple[list[int], list[str], bytes]:
    """Return the numbers that the warden answers, remarks, and the output."""
    with tempfile.TemporaryFile() as errors:
        warden = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WARDEN, _SOURCES],
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            pass_fds={order["stdin"], order["stdout"]} - {-1},
        )
        _RUNNING.add(warden)
        try:
            answer = _read_answer(warden, order)
        except BaseException:
            _end(warden)
            raise
        finally:
            _RUNNING.discard(warden)
        if answer is None:
            survivors = supervision.end_all(warden.pid, time.monotonic() + 0.1)
            warden.kill()
        _end(warden)
        if answer is None:
            return [0, -signal.SIGKILL, 0, 1, survivors, 0], [_STOPPED], b""
        if not answer:
            errors.seek(0)
            why = (errors.read().decode("utf-8", "replace").strip().splitlines() or ["it was killed"])[-1]
            happened = f"The process that supervises {program} ended early: {why}"
            raise EnvironmentMissing(happened, hint="run the command again")
    try:
        *head, output = answer.split(b"\0", FIELDS)
        numbers = [int(number) for number in head]
        if len(numbers) < FIELDS:
            raise ValueError
    except ValueError as error:
        happened = f"The process that supervises {program} gave no valid answer: another program wrote to its output."
        raise EnvironmentMissing(
            happened, hint="check what the program does; the sandbox level none does not prevent this, see: cdd doctor"
        ) from error
    if numbers[0]:
        raise OSError(numbers[0], os.strerror(numbers[0]), program)
    return numbers, [], output


def _read_answer(warden: subprocess.Popen[bytes], order: "Order") -> bytes | None:
    """Return the warden's answer, empty if it was killed, and None after the time limit."""
    stdin, stdout = _pipes(warden)
    data = marshal.dumps(dict(order))
    with contextlib.suppress(BrokenPipeError):
        stdin.write(len(data).to_bytes(8, "little") + data)
        stdin.flush()
    deadline = time.monotonic() + order["timeout_s"] + LATE_S
    answer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            more = os.read(stdout.fileno(), 1 << 16)
            if not more:
                return answer
            answer += more
    return None


def _end(warden: subprocess.Popen[bytes]) -> None:
    """Let the warden end the remaining processes."""
    stdin, stdout = _pipes(warden)
    with contextlib.suppress(BrokenPipeError):
        stdin.close()
    try:
        warden.wait(timeout=LATE_S)
    except subprocess.TimeoutExpired:
        supervision.end_all(warden.pid, time.monotonic() + LATE_S)
        warden.kill()
        warden.wait()
    stdout.close()


def _pipes(warden: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert warden.stdin is not None
    assert warden.stdout is not None
    return warden.stdin, warden.stdout


class PlainSandbox:
    """Runs programs as unconfined processes of this user."""

    level = "none"

    def run(self, command: Command) -> Result:
        """Run the program with a temporary folder; it can read, write and reach whatever this user can."""
        # In a shared folder pytest removes what the user's older runs left there, and waits for that.
        with tempfile.TemporaryDirectory(prefix="cdd-run-", ignore_cleanup_errors=True) as temporary:
            environment = build_environment(command, TMPDIR=temporary)
            argv = (find_program(command, environment), *command.argv[1:])
            return run_launch(command, Launch(level=self.level, argv=argv, environment=environment))


GRACE_S = 1.0
"""Time between SIGTERM and SIGKILL, and for the kernel to carry out the latter."""


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the process group that ``process`` leads, including what the leader left behind, and reap the leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + GRACE_S
        # The group exists until the last process in it has been reaped.
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.005)
    process.wait()
