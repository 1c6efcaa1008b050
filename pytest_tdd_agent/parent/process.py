"""Run the test process below this one, and end every process that it leaves.

The parent stays in the process group of the child, so that the terminal treats both as one program: Ctrl-C and Ctrl-Z
reach both, and the child may read what is typed. The kernel gives orphans to a subreaper, so the parent finds each
descendant, whatever its group and session.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Callable, Iterable, Mapping, Sequence

from ..system import bind_builtins

bind_builtins(globals())

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_CAP_SYS_PTRACE = 19

_GRACE_S = 0.5
"""For processes that are about to end anyway, such as a tracker of shared memory."""
_LIMIT_S = 5.0
"""For processes that start new ones faster than they are ended."""
_REPEAT_S = 1.0
"""After this time, an interrupt that only the parent has received is passed on."""
_POLL_S = 0.01
_BLOCK_BYTES = 1 << 16

CAN_WAIT = all(hasattr(signal, name) for name in ("pthread_sigmask", "sigwait", "sigpending"))
"""Whether this platform can run a child as this module does."""

Prctl = Callable[[int, int], int]


def find_prctl() -> Prctl | None:
    """Return Linux's function that changes properties of this process, None on another system."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        function = ctypes.CDLL(None).prctl
        unused = [ctypes.c_ulong(0)] * 3
    except (ImportError, OSError, AttributeError):
        return None

    def prctl(option: int, value: int) -> int:
        return int(function(ctypes.c_int(option), ctypes.c_ulong(value), *unused))

    return prctl


@dataclass(frozen=True)
class ProcessEnd:
    """How the test process ended."""

    status: int
    """The exit status, or the negative number of the signal that ended the process."""
    survivors: tuple[int, ...] | None
    """Descendants that could not be ended; None if this system does not tell which there are."""


class Child:
    """The test process, and the stream of what it sends."""

    def __init__(self, *, prctl: Prctl | None, is_stopping: Callable[[], bool]) -> None:
        """Prepare a pair of sockets, because a process can read from a pipe that it should only write to.

        ``is_stopping`` tells whether the child knows of an interrupt.
        """
        self._is_stopping = is_stopping
        self._prctl = prctl
        self._ours, self._theirs = socket.socketpair()
        self._theirs.set_inheritable(True)
        self.descriptor = self._theirs.fileno()
        """The number of the descriptor to which the child writes."""
        self._signals = {each for each in _list_signals() if signal.getsignal(each) != signal.SIG_IGN}
        self._known = frozenset(_list_descendants() or ())  # a shell may have started them before it became pytest

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        output: int | None,
        receive: Callable[[bytes], object],
    ) -> ProcessEnd:
        """Run the child to its end and pass what it sends to ``receive``; raises OSError if it cannot be started.

        ``output``: the descriptor that is the child's standard output; None: that of this process.
        """
        if self._prctl is not None:
            self._prctl(_PR_SET_DUMPABLE, 0)  # so no process of this user can trace it or read its memory
            self._prctl(_PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a signal that is ignored may not arrive
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {*self._signals, signal.SIGCHLD})
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=output,
            close_fds=False,  # Python's own are never inherited, and those of the user's shell must be
            preexec_fn=lambda: self._prepare(before),  # noqa: PLW1509 (no thread has been started yet)
        )
        self._theirs.close()
        reader = threading.Thread(target=self._read, args=(receive,), daemon=True)
        reader.start()
        process.returncode = status = self._wait(process.pid)
        survivors = _end_descendants(self._known) if self._prctl is not None else None
        reader.join(_GRACE_S)
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RD)  # a process that took the descriptor along may write no more
        reader.join()
        return ProcessEnd(status=status, survivors=survivors)

    def _prepare(self, mask: Iterable[int]) -> None:
        if self._prctl is not None:
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a parent that is killed must not leave the tests running
            self._prctl(_PR_CAPBSET_DROP, _CAP_SYS_PTRACE)  # or tests that run as root could trace the parent anyway
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _read(self, receive: Callable[[bytes], object]) -> None:
        with suppress(OSError):
            while True:
                block = self._ours.recv(_BLOCK_BYTES)
                if not block:
                    return
                receive(block)

    def _wait(self, pid: int) -> int:
        """Pass on signals until the child has ended; return its status."""
        repeat_at: float | None = None
        while True:
            status = _reap(pid)
            if status is not None:
                return status
            number, is_for_all = _wait_for_signal({*self._signals, signal.SIGCHLD}, until=repeat_at)
            if number == signal.SIGINT:
                repeat_at = None if is_for_all else monotonic() + _REPEAT_S
            elif number in self._signals:
                os.kill(pid, number)
            elif repeat_at is not None and monotonic() >= repeat_at:
                if not self._is_stopping():
                    os.kill(pid, signal.SIGINT)
                repeat_at = None


def _list_signals() -> set[signal.Signals]:
    return {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def _wait_for_signal(numbers: set[signal.Signals], *, until: float | None) -> tuple[int, bool]:
    """Return the next signal, 0 at that time, and whether the terminal sent it to the whole process group."""
    if not hasattr(signal, "sigtimedwait"):  # macOS can neither wait for a time nor tell who sent a signal
        while until is not None and not signal.sigpending() & numbers:
            if monotonic() >= until:
                return 0, False
            sleep(_POLL_S)
        return signal.sigwait(numbers), _is_in_foreground()
    left = 3600.0 if until is None else max(0.0, until - monotonic())
    info = signal.sigtimedwait(numbers, left)
    return (0, False) if info is None else (info.si_signo, info.si_code > 0)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:
        return False


def _reap(child: int) -> int | None:
    """Reap all children that have ended; return the exit status of ``child``, or the negative number of its signal."""
    found: int | None = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                found = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if pid == 0:
                break
    return found


def _end_descendants(known: frozenset[int]) -> tuple[int, ...] | None:
    """End all descendants except the ``known`` ones; return those that are left, None if /proc cannot be read."""
    began = monotonic()
    while True:
        _reap(0)
        left = _list_descendants(known)
        passed_s = monotonic() - began
        if not left or passed_s > _LIMIT_S:
            return left
        if passed_s > _GRACE_S:
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        sleep(_POLL_S)


def _list_descendants(known: frozenset[int] = frozenset()) -> tuple[int, ...] | None:
    """Return the processes below this one, except those that are ``known`` or below them; None without /proc."""
    children: dict[int, list[int]] = {}
    try:
        for name in os.listdir("/proc"):
            if name.isdigit():
                children.setdefault(_find_parent(int(name)), []).append(int(name))
    except OSError:
        return None
    if os.getpid() not in {pid for below in children.values() for pid in below}:
        return None
    found: list[int] = []
    pending = [os.getpid()]
    while pending:
        below = [pid for pid in children.get(pending.pop(), ()) if pid not in known]
        found += below
        pending += below
    return tuple(found)


def _find_parent(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])  # the name before it may contain anything
    return 0
