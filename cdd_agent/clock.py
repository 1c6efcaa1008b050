"""The clock port: time is read and waited for through it, so that tests never sleep."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the program asks of time."""

    def now(self) -> str:
        """The present as UTC, ``2026-01-31T12:00:00Z``: for people, never for ordering."""
        ...

    def monotonic(self) -> float:
        """Seconds since some start; differences are durations."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; Ctrl-C ends the wait."""
        ...


class SystemClock:
    """The real clock."""

    def now(self) -> str:
        """The present as UTC, to the second."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait in the calling thread."""
        time.sleep(seconds)
