"""Test runs within one time box, told as events."""

import time
from dataclasses import dataclass, replace

from cdd_agent.errors import CddError
from cdd_agent.events import Emit, Event, SuiteStarted
from cdd_agent.testrun.run import Suite, SuiteRun

SHORTEST_S = 1.0
"""No run begins with less time than this."""


class TimeUp(CddError):
    """The time box is empty."""


def silence(_: Event) -> None:
    """Tell nobody."""


@dataclass(kw_only=True)
class Runs:
    """Runs tests until the time is up, and says so before and after each run."""

    deadline: float
    emit: Emit
    quickest_s: float | None = None

    def run(self, suite: Suite, purpose: str, *, tests: tuple[str, ...] = (), is_altered: bool = False) -> SuiteRun:
        """One run; raises ``TimeUp`` if it cannot begin, or does not end, before the deadline."""
        left_s = self.deadline - time.monotonic()
        if left_s < SHORTEST_S:
            raise self._time_up(purpose)
        self.emit(SuiteStarted(purpose=purpose, targets=tests))
        timed = replace(suite, timeout_s=min(suite.timeout_s, left_s, self._patience_s(is_altered)))
        run = timed.run(tests)
        self.emit(run.finished(purpose))
        if run.report is None and time.monotonic() >= self.deadline:
            raise self._time_up(purpose)
        self.quickest_s = min(run.duration_s, self.quickest_s or run.duration_s)
        return run

    def _patience_s(self, is_altered: bool) -> float:
        """How long a run may take: altered code may run for ever, so that it gets no more than a few times as long."""
        return float("inf") if self.quickest_s is None or not is_altered else 5 + 5 * self.quickest_s

    def _time_up(self, purpose: str) -> TimeUp:
        return TimeUp(f"The time for checks ran out, so not checked: {purpose}.", hint="raise the time limit")
