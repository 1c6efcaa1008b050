"""A clock whose time passes only when it is slept through."""

from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


class FakeClock:
    """Sleeping is instant and written down."""

    def __init__(self, *, tick_s: float = 0.0) -> None:
        """``tick_s`` passes at every look at the monotonic time."""
        self.slept: list[float] = []
        self._tick_s = tick_s
        self._passed_s = 0.0

    def now(self) -> str:
        """The fake present as UTC."""
        return (_START + timedelta(seconds=self._passed_s)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def monotonic(self) -> float:
        """Seconds slept so far."""
        self._passed_s += self._tick_s
        return self._passed_s

    def sleep(self, seconds: float) -> None:
        """Note the wait and let the time pass."""
        self.slept.append(seconds)
        self._passed_s += seconds
