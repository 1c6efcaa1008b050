"""How much one run of an agent may use."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one run, checked before the model is asked again."""

    max_turns: int = 20
    max_answer_tokens: int = 16_000
    """Of one turn."""
    max_calls_per_turn: int = 10
    """Tool calls above it are answered with an error and not run."""
    max_calls_total: int | None = None
    """Tool calls of all turns together, those that fail included; the run ends with the last. Nothing: no limit."""
    max_tokens_total: int | None = None
    """Of all turns together, read and written, cached or not; nothing: no limit."""
    max_failed_turns: int = 3
    """Turns in a row that came to nothing (every call failed, cut off, empty); then the run is stuck."""

    def after(self, calls: int) -> "Budget":
        """What is left of it once so many tool calls were made."""
        most = self.max_calls_total
        return self if most is None else replace(self, max_calls_total=max(0, most - calls))
