"""Test runs within one time box, told as events."""

import time
from dataclasses import dataclass, field

from cdd_agent.errors import CddError
from cdd_agent.events import Emit, Event, SuiteStarted
from cdd_agent.evidence.mutation import Mutant
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.workspace.beneath import Beneath

SHORTEST_S = 1.0
"""No run begins with less time than this."""


class TimeUp(CddError):
    """The time box is empty."""


def silence(_: Event) -> None:
    """Tell nobody."""


@dataclass(kw_only=True)
class Runs:
    """Runs tests until the time is up, and says so before each run."""

    limit_s: float
    emit: Emit
    started: float = field(default_factory=time.monotonic)
    quickest_s: float | None = None
    count: int = 0
    """Runs so far."""
    noticed: str = ""
    """Where the code was altered when a target failed."""

    def run(self, suite: Suite, purpose: str, *, tests: tuple[str, ...] = (), is_altered: bool = False) -> SuiteRun:
        """One run; raises ``TimeUp`` if it cannot begin, or does not end, in time."""
        left_s = self.limit_s - self.spent_s()
        if left_s < SHORTEST_S:
            raise self._time_up(purpose)
        self.emit(SuiteStarted(purpose=purpose, targets=tests, framework=suite.conventions.framework))
        self.count += 1
        timed = suite.within(min(suite.timeout_s, left_s, self._patience_s(is_altered)))
        run = timed.run(tests)
        if run.report is None and self.spent_s() >= self.limit_s:
            raise self._time_up(purpose)
        self.quickest_s = min(run.duration_s, self.quickest_s or run.duration_s)
        return run

    def spent_s(self) -> float:
        """Seconds since the time box was opened."""
        return time.monotonic() - self.started

    def _patience_s(self, is_altered: bool) -> float:
        """How long a run may take: altered code may run for ever, so that it gets no more than a few times as long."""
        return float("inf") if self.quickest_s is None or not is_altered else 5 + 5 * self.quickest_s

    def _time_up(self, purpose: str) -> TimeUp:
        where = "evidence_timeout_s in .cdd/config.yaml"
        return TimeUp(f"Not checked: {purpose}, within {self.limit_s:g} s ({where}).", hint=f"raise {where}")


def run_altered(copy: Suite, mutant: Mutant, *, tests: tuple[str, ...], runs: Runs) -> SuiteRun:
    """Tests over sources altered on the copy's disk, so that processes that tests start see them too."""
    files = Beneath(copy.root)
    kept = {path: files.read(path) for path in mutant.texts}
    try:
        for path, text in mutant.texts.items():
            files.write(path, text.encode("utf-8", "surrogateescape"))
        return runs.run(copy, f"targets with {mutant.where} altered", tests=tests, is_altered=True)
    finally:
        for path, content in kept.items():
            files.write(path, content)
