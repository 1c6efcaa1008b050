"""What an audit says: one claim of a handoff, and whether it holds."""

from dataclasses import dataclass

CLAIMS = {
    "note": "The note is whole, and what it says of phase, gate and result fits together.",
    "commit": "The note is of this commit: its trailers, or the handoff's id, say the same.",
    "chain": "The phases before are there.",
    "report": "The report of the run is still there, and is the one whose digest the note has.",
    "run": "The tests, run again in a clean copy, say what the note says.",
    "tests": "Test files and what configures pytest are what they were in the phase before.",
}
"""Name of a claim -> what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of one handoff."""

    name: str
    """One of ``CLAIMS``."""
    holds: bool | None
    """None: it cannot be told."""
    told: str
    """A sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One handoff with what became of its claims."""

    ticket: str
    cycle: int
    phase: str
    """``RED``; empty where nothing says."""
    commit: str
    """That its note is on, or that its trailers are in."""
    claims: tuple[Claim, ...]

    @property
    def failed(self) -> tuple[Claim, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if claim.holds is False)


def true(name: str, told: str) -> Claim:
    """A claim that holds."""
    return Claim(name=name, holds=True, told=told)


def false(name: str, told: str) -> Claim:
    """A claim that does not hold."""
    return Claim(name=name, holds=False, told=told)


def unknown(name: str, told: str) -> Claim:
    """A claim of which nothing can be told."""
    return Claim(name=name, holds=None, told=told)
