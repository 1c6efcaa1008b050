"""The program of a warden process: runs one order, and ends everything that the run started.

It reads an order from standard input and writes the answer to standard output. Standard input stays open while the
caller waits; when it closes, by Ctrl-C or because cdd was killed, the warden ends the run.
"""

import contextlib
import marshal
import os
import resource
import select
import sys
import time

from cdd_agent.sandbox.warden import kernel, supervision
from cdd_agent.sandbox.warden.supervision import GRACE_S, SWEEP_S, OutputBuffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdd_agent.sandbox.warden.supervision import Order

_TICK_S = 0.25
_CHUNK_BYTES = 1 << 16
_IGNORED_BY_PYTHON = (13, 25)
"""SIGPIPE and SIGXFSZ: programs expect their default actions."""


def main() -> None:
    """Read the order, run it, and write the answer."""
    order: Order = marshal.loads(_read_input(int.from_bytes(_read_input(8), "little")))
    kernel.become_reaper()
    run = SupervisedRun(order)
    run.follow(order["timeout_s"])
    run.end()
    if not run.is_alone:
        _answer(run)


def _answer(run: "SupervisedRun") -> None:
    head, tail, dropped = run.output.read()
    numbers = (run.errno, run.status, dropped, int(run.timed_out), run.survivors, len(head))
    with contextlib.suppress(BrokenPipeError), open(1, "wb") as stream:
        stream.write(b"".join(str(number).encode() + b"\0" for number in numbers) + head + tail)


def _read_input(size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit(1)
        data += more
    return data


class SupervisedRun:
    """A program, its output and all processes that it starts."""

    def __init__(self, order: "Order") -> None:
        """Start the program; ``errno`` says why it failed, ``is_alone`` becomes true when the caller is gone."""
        self.output = OutputBuffer(order["output_cap"])
        self.status = 0
        self.errno = 0
        self.timed_out = False
        self.survivors = 0
        self._order = order
        self._has_ended = self._is_hung_up = self.is_alone = False
        self._killer = 0
        self._out, write_end = os.pipe()
        errors, report = os.pipe()
        warden = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _execute(order, write_end, report=report, warden=warden)
        os.close(write_end)
        os.close(report)
        self._input = order["stdin"]
        if order["stdout"] not in (-1, self._input):
            os.close(order["stdout"])
        self.errno = int(os.read(errors, 16) or b"0")
        os.set_blocking(self._out, False)
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._poll.register(self._out, select.POLLIN)
        if self._input >= 0:
            self._poll.register(self._input, 0)  # without any event, the end of the connection alone is reported
        try:
            self._poll.register(os.pidfd_open(self._pid), select.POLLIN)
        except OSError:
            return  # without pidfd_open (Linux 5.3), the next tick notices the end

    def follow(self, time_s: float) -> None:
        """Collect output until the program has ended, the time is up, or the caller has hung up or is gone."""
        deadline = time.monotonic() + time_s
        while not (self._has_ended or self._is_hung_up or self.is_alone):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                self.timed_out = True
                return
            self._wait(min(left_s, _TICK_S))

    def end(self) -> None:
        """End all remaining processes, at first politely if the program is still running, and read the last output."""
        if self._input >= 0:
            self._poll.unregister(self._input)
            os.close(self._input)
        if not self._has_ended:
            self._terminate()
        deadline = time.monotonic() + SWEEP_S
        while not (has_ended_all := self._reap()) and time.monotonic() < deadline:
            self.survivors = supervision.end_all(os.getpid(), deadline)
        if not has_ended_all:
            self.survivors = max(self.survivors, 1)  # one that no look has found
        while self._read_output():
            pass

    def _terminate(self) -> None:
        command, deadline = self._order["kill_command"], time.monotonic() + GRACE_S
        if command:
            devnull = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
            self._killer = os.posix_spawn(command[0], command, self._order["environment"], file_actions=devnull)
        else:
            try:
                os.killpg(self._pid, 15)
            except OSError:
                return
        while (self._killer or not self._has_ended) and (left_s := deadline - time.monotonic()) > 0:
            self._wait(left_s)

    def _wait(self, time_s: float) -> None:
        for descriptor, _ in self._poll.poll(max(1, int(time_s * 1000))):
            if descriptor == self._out:
                if not self._read_output():
                    self._poll.unregister(self._out)
            elif descriptor == 0:
                self.is_alone = True
                self._poll.unregister(0)
            elif descriptor == self._input:
                self._is_hung_up = True
        self._reap()

    def _read_output(self) -> bool:
        try:
            data = os.read(self._out, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        self.output.feed(data)
        return bool(data)

    def _reap(self) -> bool:
        """Reap ended children, including orphans of the program, and return whether no child is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return False
                if pid == self._killer:
                    self._killer = 0
                if pid == self._pid:
                    self.status = os.waitstatus_to_exitcode(status)
                    self._has_ended = True
        except ChildProcessError:
            self._has_ended = True
            return True


def _execute(order: "Order", output: int, *, report: int, warden: int) -> None:
    """In the child: execute the program, or write the errno of what prevents it to ``report``."""
    try:
        os.setsid()
        kernel.end_with_parent(warden)
        kernel.renounce_privileges()
        from _signal import SIG_DFL, signal  # type: ignore[import-not-found]  # `signal` takes too long to import

        for number in _IGNORED_BY_PYTHON:
            signal(number, SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY) if order["stdin"] < 0 else order["stdin"], 0)
        os.dup2(output if order["stdout"] < 0 else order["stdout"], 1)
        os.dup2(output, 2)
        for descriptor in {order["stdin"], order["stdout"]} - {-1}:
            os.close(descriptor)
        os.chdir(order["cwd"])
        for kind, most in order["limits"]:
            _lower_limit(kind, most)
        if (rules := order["rules"]) is not None:
            if rules["paths"] is not None:
                kernel.apply_landlock(rules["paths"])
                kernel.drop_capabilities()
            kernel.leave_keyring()
            kernel.refuse_calls(network=rules["paths"] is None)
        os.execve(order["argv"][0], order["argv"], order["environment"])
    except OSError as error:
        os.write(report, str(error.errno or 1).encode())
    finally:
        os._exit(127)


def _lower_limit(kind: int, most: int) -> None:
    soft, hard = resource.getrlimit(kind)
    hard = most if hard == resource.RLIM_INFINITY else min(hard, most)
    resource.setrlimit(kind, (hard if soft == resource.RLIM_INFINITY else min(soft, hard), hard))
