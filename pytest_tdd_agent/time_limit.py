"""A time limit for each test: setup, call and teardown together.

There are two alarms. At the limit, a signal handler notes the stack and raises ``TimeLimitExceeded`` in the test, so
pytest reports that the test failed. A test can survive that: it catches every exception, waits in compiled code, or
has no main thread. So ``GRACE_S`` later, the thread of ``faulthandler``, which runs no Python code, writes the stacks
of all threads after the last record and ends the process; ``recording.assembly`` reads them.

The tests after one that did not end are skipped, because most of them would wait for the limit too.
"""

from __future__ import annotations

import faulthandler
import signal
import threading
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Generator

import pytest

from .failure import TimeLimitExceeded, format_time_limit
from .recording.witness import Witness
from .system import bind_builtins

if TYPE_CHECKING:
    from pluggy import Result

bind_builtins(globals())

GRACE_S = 3.0
_RETRY_S = 0.05
_SHORTEST_S = 0.001
_OWN_PACKAGE = __name__.rpartition(".")[0]


class TimeLimit:
    """Hooks of every process that runs tests."""

    def __init__(self, limit_s: float, *, witness: Witness, descriptor: int) -> None:
        """Note in ``witness`` which test does not end; the stacks of an ended process go to ``descriptor``."""
        self._limit_s = limit_s
        self._witness = witness
        self._descriptor = descriptor
        # Bound now, because tests may replace them in every module.
        self._clock = monotonic
        self._end_later, self._end_never = faulthandler.dump_traceback_later, faulthandler.cancel_dump_traceback_later
        self._deadline = 0.0
        self._running = "", ""
        """Node id and phase."""
        self._unreported = ""
        """The test whose phase ended beyond the limit and is not reported yet."""
        has_alarm = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        self._set_timer = signal.setitimer if has_alarm else None
        if has_alarm:
            signal.signal(signal.SIGALRM, self._interrupt)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Result[object], None]:
        """Let the process live on after a test."""
        yield
        self._end_never()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Result[object], None]:
        """Start the time of a test."""
        self._deadline = self._clock() + self._limit_s
        self._end_soon()
        yield from self._watch(item, "setup")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Result[object], None]:
        """Interrupt the test at the limit."""
        yield from self._watch(item, "call")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Result[object], None]:
        """Interrupt the teardown at the limit."""
        yield from self._watch(item, "teardown")

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector) -> None:
        """Set the second alarm again, which pytest's own hook switches off after each failure."""
        if isinstance(node, pytest.Item):
            self._end_soon()

    def _end_soon(self) -> None:
        left_s = max(self._deadline - self._clock(), 0.0)
        self._end_later(left_s + GRACE_S, exit=True, file=self._descriptor)

    def _watch(self, item: pytest.Item, phase: str) -> Generator[None, Result[object], None]:
        """Interrupt a phase at the limit, unless an earlier phase was interrupted."""
        if self._witness.endless:
            yield
            return
        self._running = item.nodeid, phase
        self._set_alarm(max(self._deadline - self._clock(), _SHORTEST_S))
        yield
        self._set_alarm(0.0)
        if self._clock() >= self._deadline and not self._witness.endless:
            self._note(None)  # nothing interrupted it: the test uses the same signal, or compiled code kept it waiting

    def _set_alarm(self, seconds: float) -> None:
        if self._set_timer is not None:
            self._set_timer(signal.ITIMER_REAL, seconds)

    def _interrupt(self, _: int, frame: FrameType | None) -> None:
        """Handle the signal: raise in the test."""
        __tracebackhide__ = True
        module = "" if frame is None else str(frame.f_globals.get("__name__"))
        if module.startswith(f"{_OWN_PACKAGE}."):
            self._set_alarm(_RETRY_S)  # the plugin may be about to send a record, which would be torn
            return
        self._note(frame)
        raise TimeLimitExceeded(format_time_limit(self._limit_s))

    def _note(self, frame: FrameType | None) -> None:
        self._unreported, phase = self._running
        self._witness.note_endless(self._unreported, frame, phase=phase, limit_s=self._limit_s)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Result[pytest.TestReport], None]:
        """Let a phase fail that caught the exception, or ended by itself too late."""
        outcome = yield
        if self._unreported == item.nodeid:
            self._unreported = ""
            report = outcome.get_result()
            if report.outcome != "failed":
                report.outcome = "failed"
                report.longrepr = format_time_limit(self._limit_s)
                report.__dict__.pop("wasxfail", None)  # an expected failure is one that ends


class LaterTests:
    """Skips tests, not in a wrapper: the teardown of other plugins needs what their wrappers do in setup."""

    def __init__(self, limit_s: float, witness: Witness) -> None:
        """Skip the tests after those that ``witness`` knows."""
        self._limit_s = limit_s
        self._witness = witness

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test if an earlier one did not end."""
        for nodeid in self._witness.endless:
            if nodeid == item.nodeid:  # a plugin runs it again
                raise TimeLimitExceeded(format_time_limit(self._limit_s))
            pytest.skip(f"not run, because {nodeid} did not end")
