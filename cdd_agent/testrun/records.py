"""Reads the records of a pytest run while it lasts.

The program in the sandbox gets one end of a socket pair as its standard output: a pipe could be opened again through
``/proc`` and read by the code under test. A thread reads the other end, which no program inherits, to its last byte,
whatever comes: a reader that stops would stop the tests.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from cdd_agent.errors import join_first
from cdd_agent.sandbox.port import Result
from pytest_tdd_agent.recording.assembly import Assembler, Recording
from pytest_tdd_agent.report import StreamProblem

_CHUNK_BYTES = 1 << 18
_JOIN_S = 60.0
SHOWN_TESTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """How the process of a run ended, and the records that it sent."""

    result: Result
    recording: Recording
    silent_s: float
    """Time from the last record to the end."""

    def describe_running(self) -> str:
        """Return `` while ... was running``, or an empty text."""
        tests = self.recording.running
        if not tests:
            return ""
        return f" while {join_first(tests, most=SHOWN_TESTS)} {'was' if len(tests) == 1 else 'were'} running"


class _RecordReader:
    """A thread that feeds an assembler."""

    def __init__(self, source: socket.socket, assembler: Assembler) -> None:
        self.last_s = time.monotonic()
        self._source = source
        self._assembler = assembler
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._source.recv(_CHUNK_BYTES):
                self.last_s = time.monotonic()
                self._assembler.feed(data)

    def end(self) -> bool:
        """Read what was sent, without waiting for anyone who holds the other end, and return whether that worked."""
        # The bytes in the socket can still be read after this.
        self._source.shutdown(socket.SHUT_RD)
        self._thread.join(_JOIN_S)
        return not self._thread.is_alive()


def record_run(run: Callable[[int], Result], *, nonce: str) -> RecordedRun:
    """Run a program whose standard output is the descriptor that ``run`` gets, and read what it sends there."""
    ours, theirs = socket.socketpair()
    with ours:
        assembler = Assembler(nonce)
        reader = _RecordReader(ours, assembler)
        try:
            with theirs:
                result = run(theirs.fileno())
        finally:
            ended_s, is_read = time.monotonic(), reader.end()
        recording = assembler.finish(result.exit_status)
    if not is_read:
        recording = Recording(None, StreamProblem("no_finish"), recording.running)
    return RecordedRun(result=result, recording=recording, silent_s=max(0.0, ended_s - reader.last_s))
