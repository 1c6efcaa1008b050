"""What one part of the soak found, in the form all parts share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One part tried often enough to have a figure."""

    tried: int
    bad: int = 0
    """How many broke the promise; the bar is 0 unless the table says otherwise."""
    example: str = ""
    """The first that did, with what repeats it (seed and index)."""
    slowest_s: float = 0.0
    p99_s: float = 0.0
    cannot: str = ""
    """Why the part could not run here, such as "strace is not installed"; then ``tried`` is 0 and nothing is claimed."""
    notes: tuple[str, ...] = ()
    """What the table shows below the row, such as "level: bwrap"."""
