"""How much one run of an agent may use."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one run, checked before the model is asked again."""

    max_turns: int = 20
    max_answer_tokens: int = 16_000
    """Of one turn."""
    max_calls_per_turn: int = 10
    """Tool calls above it are answered with an error and not run."""
    max_tokens_total: int | None = None
    """Of all turns together, read and written, cached or not; nothing: no limit."""
    max_failed_turns: int = 3
    """Turns in a row that came to nothing (every call failed, cut off, empty); then the run is stuck."""
