"""One run by way of a warden, a process that starts the program, keeps its output and ends all that it leaves behind.

The warden gets an empty environment, so that nothing below it can read a key out of its parent's. It ends with us:
its standard input closes even when we are killed, and it takes everything along.

How much a program may use up, and in what words that is told.

The plain rung: a built environment, limits, and an end for everything that was started.

It confines no file and no network access, and its level says so.
"""

import contextlib
import marshal
import math
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import Access, Command, Limits, Result
from cdd_agent.sandbox.warden import supervision
from cdd_agent.sandbox.warden.guard import Guard, turn
from cdd_agent.sandbox.warden.supervision import FIELDS, MENDED

if TYPE_CHECKING:
    from cdd_agent.sandbox.warden.supervision import Order, Rules

_GIB = 1 << 30
_TASKS = 4096
"""So many processes and threads a run may have beside those that the user has already."""


def standard(timeout_s: float) -> Limits:
    """Limits that no honest test suite meets: they are for the program that would take the machine down.

    Memory is what a process may have in use, three quarters of the machine's; what it only reserves does not count.
    Processor time is what all processors could give until the time is up.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Limits(
        memory_bytes=max(2 * _GIB, machine * 3 // 4),
        cpu_s=math.ceil(timeout_s * (os.cpu_count() or 1)) + 1,
        file_bytes=4 * _GIB,
        open_files=16_384,
        processes=_TASKS,
    )


def in_kernel_terms(limits: Limits) -> list[tuple[int, int]]:
    """Resource and most, as ``setrlimit`` takes them; no core file is ever written."""
    pairs = (
        (resource.RLIMIT_DATA, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, None if limits.processes is None else limits.processes + _tasks_of_this_user()),
    )
    return [(resource.RLIMIT_CORE, 0), *((kind, most) for kind, most in pairs if most is not None)]


def in_words(limits: Limits, *, timeout_s: float) -> Iterator[str]:
    """The limits in force; the kernel holds root to no number of processes, so that it is not told then."""
    yield f"{timeout_s:g} s"
    if limits.memory_bytes is not None:
        yield f"{_size(limits.memory_bytes)} of memory a process"
    if limits.cpu_s is not None:
        yield f"{limits.cpu_s} s of processor time a process"
    if limits.file_bytes is not None:
        yield f"{_size(limits.file_bytes)} a file"
    if limits.open_files is not None:
        yield f"{limits.open_files} open files a process"
    if limits.processes is not None and os.getuid() != 0:
        yield f"{limits.processes} processes"


def _size(size_bytes: int) -> str:
    """In the largest unit that leaves a number above 1."""
    for unit, size in (("GiB", _GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes} bytes"


def _tasks_of_this_user() -> int:
    """How many processes and threads this user has: the kernel counts those too."""
    user, count = os.getuid(), 0
    if user == 0:
        return 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            try:
                if entry.name.isdigit() and entry.stat(follow_symlinks=False).st_uid == user:
                    count += len(os.listdir(f"{entry.path}/task"))
            except OSError:
                continue
    return count


KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "VIRTUAL_ENV", "TERM")
"""All that a program gets of this process's environment unless the caller adds it: no key, no PYTEST_ADDOPTS.

PYTHONPATH is added by ``testrun.run`` for test runs."""

LATE_S = 1.9
"""After so much more than its time a run is ended from here: its warden has been stopped."""

_STOPPED = "the process that watched over the program was stopped; what it printed is lost"

_SIGNALS = frozenset(map(int, signal.Signals))
_WARDEN = "import sys; sys.path.append(sys.argv[1]); from cdd_agent.sandbox.warden.main import main; main()"
_SOURCES = str(Path(__file__).parents[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a rung carries out a command."""

    level: str
    argv: tuple[str, ...]
    """The program itself, by an absolute path, or one that confines it."""
    environment: Mapping[str, str]
    rules: "Rules | None" = None
    """What the kernel refuses it; None: nothing."""
    confined: tuple[str, ...] = ()
    """What the rung forbids, in words."""
    bound: frozenset[Path] = field(default_factory=frozenset)
    """Paths that the rung itself protects, so that nobody has to look after them."""
    ending: tuple[str, ...] = ()
    """A command that ends what no signal of ours reaches."""
    is_limited_elsewhere: bool = False
    """The limits are told to what runs the program, and not in force for what is started here."""
    is_told_as_by_a_shell: bool = False
    """An end by a signal is told as 128 and its number."""


def environment_for(command: Command, **rung: str) -> dict[str, str]:
    """The environment built for a program: the few variables of ours, over them the ``rung``'s, then the command's."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return kept | rung | dict(command.variables)


def program(command: Command, environment: Mapping[str, str]) -> str:
    """The absolute path of the command's program; raises ``FileNotFoundError``."""
    name = command.argv[0]
    found = shutil.which(name, path=environment.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(2, "No such program", name)
    return os.path.abspath(os.path.join(command.cwd, found))


def bounds_of(command: Command) -> Limits:
    """The limits of a command, or the standard ones if it has none."""
    return command.limits if command.limits != Limits() else standard(command.timeout_s)


def carry_out(command: Command, launch: Launch) -> Result:
    """Run ``launch`` and wait for its end; see ``Sandbox.run``."""
    bounds = bounds_of(command)
    order: Order = {
        "argv": list(launch.argv),
        "environment": dict(launch.environment),
        "cwd": str(command.cwd),
        "timeout_s": float(command.timeout_s),
        "output_cap": command.output_cap,
        "limits": in_kernel_terms(Limits() if launch.is_limited_elsewhere else bounds),
        "rules": launch.rules,
        "kept": kept_below(command.access, bound=launch.bound),
        "aside": None if command.access.aside is None else str(command.access.aside),
        "ending": list(launch.ending),
        "held": [],
    }
    with turn(root for root, _ in order["kept"]) as held:
        order["held"] = list(held)
        started = time.monotonic()
        answer, remarks, output = _asked(order, program=command.argv[0])
        duration_s = time.monotonic() - started
    _, status, dropped, timed_out, survivors, size = answer
    if survivors:
        left = "1 process that it started is" if survivors == 1 else f"{survivors} processes that it started are"
        remarks.append(f"{left} still alive and could not be ended")
    return Result(
        exit_status=128 - status if launch.is_told_as_by_a_shell and status - 128 in _SIGNALS else status,
        head=output[:size].decode("utf-8", "replace"),
        tail=output[size:].decode("utf-8", "replace"),
        dropped_bytes=dropped,
        timed_out=bool(timed_out),
        duration_s=duration_s,
        level=launch.level,
        limits=(*launch.confined, *in_words(bounds, timeout_s=command.timeout_s)),
        survivors=survivors,
        remarks=tuple(remarks),
    )


def kept_below(access: Access, *, bound: frozenset[Path]) -> list[tuple[str, str]]:
    """The paths to be looked after, each as the topmost folder that may be written to and a name below it."""
    found, writable = [], frozenset(access.read_write)
    for path in access.kept:
        tops = [folder for folder in path.parents if folder in writable]
        if tops and not all(_is_bound(each, access, bound=bound) for each in (path, path.resolve())):
            found.append((str(tops[-1]), path.relative_to(tops[-1]).as_posix()))
    return found


def _is_bound(path: Path, access: Access, *, bound: frozenset[Path]) -> bool:
    """Whether a path is one of ``bound``, or in one of them and in no writable folder inside that."""
    nearest = next((each for each in (path, *path.parents) if each in bound or each in access.read_write), None)
    return nearest in bound


def _asked(order: "Order", *, program: str) -> tuple[list[int], list[str], bytes]:
    """The numbers that a warden answers with, what was put back, and the output.

    What stays as it is we compare ourselves, as a warden can be killed or answered for; it does only if we are.
    """
    with tempfile.TemporaryFile() as complaint:
        warden = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WARDEN, _SOURCES],
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaint,
            start_new_session=True,
            pass_fds=order["held"],
        )
        guard = None
        try:
            guard = Guard(order["kept"], order["aside"])
            answer = _answer(warden, order)
        except BaseException:
            _end(warden)
            if guard is not None:
                guard.mend()
            raise
        if answer is None:
            survivors = supervision.end_all(warden.pid, time.monotonic() + 0.1)
            warden.kill()
        remarks = guard.mend()
        _end(warden, is_mended=True)
        if answer is None:
            return [0, -signal.SIGKILL, 0, 1, survivors, 0], [_STOPPED, *remarks], b""
        if not answer:
            complaint.seek(0)
            why = (complaint.read().decode("utf-8", "replace").strip().splitlines() or ["it was killed"])[-1]
            happened = f"The process that watches over {program} ended early: {why}"
            raise EnvironmentMissing("; ".join((happened, *remarks)), hint="run the command again")
    try:
        *head, output = answer.split(b"\0", FIELDS)
        numbers = [int(number) for number in head]
        if len(numbers) < FIELDS:
            raise ValueError
    except ValueError as error:
        happened = f"The process that watches over {program} does not say how it ended: something wrote in its place."
        raise EnvironmentMissing(
            " ".join((happened, *remarks)),
            hint="look at what was run; at level none nothing keeps it from that, see: cdd doctor",
        ) from error
    if numbers[0]:
        raise OSError(numbers[0], os.strerror(numbers[0]), program)
    return numbers, remarks, output


def _answer(warden: subprocess.Popen[bytes], order: "Order") -> bytes | None:
    """What a warden answers, nothing at all if it was killed; None if it does not answer in time."""
    into, out = _pipes(warden)
    told = marshal.dumps(dict(order))
    with contextlib.suppress(BrokenPipeError):
        into.write(len(told).to_bytes(8, "little") + told)
        into.flush()
    deadline = time.monotonic() + order["timeout_s"] + LATE_S
    answer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            more = os.read(out.fileno(), 1 << 16)
            if not more:
                return answer
            answer += more
    return None


def _end(warden: subprocess.Popen[bytes], *, is_mended: bool = False) -> None:
    """Let the warden end all that is left, and unless that is done mend; or end all in its place."""
    into, out = _pipes(warden)
    with contextlib.suppress(BrokenPipeError):
        if is_mended:
            into.write(MENDED)
        into.close()
    try:
        warden.wait(timeout=LATE_S)
    except subprocess.TimeoutExpired:
        supervision.end_all(warden.pid, time.monotonic() + LATE_S)
        warden.kill()
        warden.wait()
    out.close()


def _pipes(warden: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert warden.stdin is not None
    assert warden.stdout is not None
    return warden.stdin, warden.stdout


class PlainSandbox:
    """Runs programs as processes of this user."""

    level = "none"

    def run(self, command: Command) -> Result:
        """Run the program; it may read, write and reach whatever this user may.

        Temporary files get a folder that is gone afterwards: pytest removes what older runs of the user left in a
        shared one, and waits until that is done.
        """
        with tempfile.TemporaryDirectory(prefix="cdd-run-", ignore_cleanup_errors=True) as temporary:
            environment = environment_for(command, TMPDIR=temporary)
            argv = (program(command, environment), *command.argv[1:])
            return carry_out(command, Launch(level=self.level, argv=argv, environment=environment))
