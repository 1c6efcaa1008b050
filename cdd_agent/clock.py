"""The clock port: all reading of time and waiting goes through it, and tests replace it instead of sleeping."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and waits."""

    def now(self) -> str:
        """Return the time in UTC, such as ``2026-01-31T12:00:00Z``, for display and not for ordering."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start, for measuring durations."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; Ctrl-C interrupts."""
        ...


class SystemClock:
    """The real clock."""

    def now(self) -> str:
        """Return the time in UTC, to the second."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait in the calling thread."""
        time.sleep(seconds)
