"""What one part of the soak found, in the form all parts share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One part tried often enough to have a figure."""

    tried: int
    bad: int = 0
    """How many broke the promise; the bar is always 0."""
    example: str = ""
    """The first that did, with what repeats it (seed and index)."""
    slowest_s: float = 0.0
    p99_s: float = 0.0
    cannot: str = ""
    """Why the part could not run here, such as "strace is not installed"; then nothing is claimed."""
    notes: tuple[str, ...] = ()
    """What the table shows below the row, such as "level: bwrap"."""


def merged(parts: tuple[Figures, ...]) -> Figures:
    """The figures of several workers as one; of percentiles the worst."""
    return Figures(
        tried=sum(part.tried for part in parts),
        bad=sum(part.bad for part in parts),
        example=next((part.example for part in parts if part.example), ""),
        slowest_s=max(part.slowest_s for part in parts),
        p99_s=max(part.p99_s for part in parts),
        cannot=next((part.cannot for part in parts if part.cannot), ""),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )
