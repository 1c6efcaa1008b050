"""How much a program may use up, and in what words that is told."""

import math
import os
import resource
from collections.abc import Iterator

from cdd_agent.sandbox.port import Limits

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
