"""One run from its start to the end of its last process: the program of a process of its own.

It reads an order on standard input and writes the answer to standard output. Standard input stays open as long as
somebody waits for the answer; when it closes, by Ctrl-C or because cdd was killed, all that was started is ended.
"""

import marshal
import os
import resource
import select
import sys
import time

from cdd_agent.sandbox.warden import kernel, supervision
from cdd_agent.sandbox.warden.guard import Guard
from cdd_agent.sandbox.warden.supervision import GRACE_S, MENDED, SWEEP_S, Ring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdd_agent.sandbox.warden.supervision import Order, Rules

_TICK_S = 0.25
"""How often orphans are reaped that have ended meanwhile."""
_CHUNK_BYTES = 1 << 16
_IGNORED_BY_PYTHON = (13, 25)
"""SIGPIPE and SIGXFSZ: a program expects them as they are by default."""


def main() -> None:
    """Read the order, carry it out, answer."""
    head = _read(8)
    order: Order = marshal.loads(_read(int.from_bytes(head, "little")))
    for descriptor in order["held"]:
        os.set_inheritable(descriptor, False)
    kernel.become_reaper()
    guard = Guard(order["kept"], order["aside"])
    run = Run(order)
    run.follow(order["timeout_s"])
    run.end()
    if run.is_alone or not _is_heard(run):
        guard.mend()


def _is_heard(run: "Run") -> bool:
    """Answer; whether somebody took it and compared in our place what stays as it is."""
    head, tail, dropped = run.output.kept()
    numbers = (run.errno, run.status, dropped, int(run.timed_out), run.survivors, len(head))
    try:
        with open(1, "wb") as stream:
            stream.write(b"".join(str(number).encode() + b"\0" for number in numbers) + head + tail)
    except BrokenPipeError:
        return False
    return os.read(0, len(MENDED)) == MENDED


def _read(size: int) -> bytes:
    """So many bytes of standard input."""
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit(1)
        data += more
    return data


class Run:
    """The program, its output and all that it starts."""

    def __init__(self, order: "Order") -> None:
        """Start the program; ``errno`` says if it could not be, ``is_alone`` when nobody waits for its end."""
        self.output = Ring(order["output_cap"])
        self.status = 0
        self.errno = 0
        self.timed_out = False
        self.survivors = 0
        self._order = order
        self._has_ended = self.is_alone = False
        self._ender = 0
        self._out, write_end = os.pipe()
        said, saying = os.pipe()
        warden = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _become(order, write_end, saying=saying, warden=warden)
        os.close(write_end)
        os.close(saying)
        self.errno = int(os.read(said, 16) or b"0")
        os.set_blocking(self._out, False)
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._poll.register(self._out, select.POLLIN)
        try:
            self._poll.register(os.pidfd_open(self._pid), select.POLLIN)
        except OSError:
            return  # an older kernel: its end is seen at the next tick

    def follow(self, time_s: float) -> None:
        """Take the output until the program has ended, its time is up or nobody waits for it any more."""
        deadline = time.monotonic() + time_s
        while not (self._has_ended or self.is_alone):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                self.timed_out = True
                return
            self._turn(min(left_s, _TICK_S))

    def end(self) -> None:
        """End everything that is left, politely what was stopped before its end, and take the rest of the output."""
        if not self._has_ended:
            self._ask_to_end()
        deadline = time.monotonic() + SWEEP_S
        while not self._reap() and time.monotonic() < deadline:
            self.survivors = supervision.end_all(os.getpid(), deadline)
        while self._take():
            pass

    def _ask_to_end(self) -> None:
        ending, deadline = self._order["ending"], time.monotonic() + GRACE_S
        if ending:
            nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
            self._ender = os.posix_spawn(ending[0], ending, self._order["environment"], file_actions=nowhere)
        else:
            try:
                os.killpg(self._pid, 15)
            except OSError:
                return
        while (self._ender or not self._has_ended) and (left_s := deadline - time.monotonic()) > 0:
            self._turn(left_s)

    def _turn(self, time_s: float) -> None:
        """Wait for something to happen, and see to it."""
        for descriptor, _ in self._poll.poll(max(1, int(time_s * 1000))):
            if descriptor == self._out:
                if not self._take():
                    self._poll.unregister(self._out)
            elif descriptor == 0:
                self.is_alone = True
                self._poll.unregister(0)
        self._reap()

    def _take(self) -> bool:
        """Take what has been printed; whether there was something."""
        try:
            data = os.read(self._out, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        self.output.feed(data)
        return bool(data)

    def _reap(self) -> bool:
        """Take leave of every child that has ended, the program or an orphan of it; whether none is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return False
                if pid == self._ender:
                    self._ender = 0
                if pid == self._pid:
                    self.status = os.waitstatus_to_exitcode(status)
                    self._has_ended = True
        except ChildProcessError:
            self._has_ended = True
            return True


def _become(order: "Order", output: int, *, saying: int, warden: int) -> None:
    """In the child: become the program, or say the errno of what stands against that."""
    try:
        os.setsid()
        kernel.depend_on(warden)
        kernel.renounce_privileges()
        for number in _IGNORED_BY_PYTHON:
            _default(number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(order["cwd"])
        for kind, most in order["limits"]:
            _limit(kind, most)
        if order["rules"] is not None:
            _submit(order["rules"])
        os.execve(order["argv"][0], order["argv"], order["environment"])
    except OSError as error:
        os.write(saying, str(error.errno or 1).encode())
    finally:
        os._exit(127)


def _submit(rules: "Rules") -> None:
    """Give up what the rules do not allow."""
    if rules["paths"] is not None:
        kernel.restrict(rules["paths"], network=rules["network"])
        kernel.give_up_capabilities()
    kernel.leave_keys()
    kernel.refuse_calls(network=rules["network"])


def _limit(kind: int, most: int) -> None:
    """Lower a limit of this process to ``most``; one that is lower already stays."""
    soft, hard = resource.getrlimit(kind)
    hard = most if hard == resource.RLIM_INFINITY else min(hard, most)
    resource.setrlimit(kind, (hard if soft == resource.RLIM_INFINITY else min(soft, hard), hard))


def _default(number: int) -> None:
    """A signal as it is by default."""
    from _signal import SIG_DFL, signal  # type: ignore[import-not-found]

    signal(number, SIG_DFL)
