"""The phases of each test put together to one outcome. Pure but for its own state.

The worst phase counts, never the last; a failed subtest fails its test; a run again makes the earlier try void.
"""

from __future__ import annotations

from ..report import Case, Failure

SEVERITY = {"passed": 0, "xfailed": 1, "xpassed": 1, "skipped": 1, "failed": 2, "error": 3}
"""Outcome -> how much it counts among the phases of a test."""


class Draft:
    """A test that has begun and not ended."""

    __slots__ = ("failure", "file", "line", "nodeid", "outcome", "phases", "reruns")

    def __init__(self, nodeid: str, *, file: str, line: int, reruns: int) -> None:
        """Begin without a phase."""
        self.nodeid = nodeid
        self.file = file
        self.line = line
        self.reruns = reruns
        self.outcome = ""
        self.phases: dict[str, float] = {}
        self.failure: Failure | None = None

    def case(self) -> Case:
        """Return the record of the test."""
        return Case(
            nodeid=self.nodeid,
            outcome=self.outcome,
            file=self.file,
            line=self.line,
            duration_s=round(sum(self.phases.values()), 6),
            phases={when: round(seconds, 6) for when, seconds in self.phases.items()},
            reruns=self.reruns,
            failure=self.failure,
        )


class Tally:
    """What is known of the tests that are running."""

    def __init__(self) -> None:
        """Begin with no test."""
        self._drafts: dict[str, Draft] = {}

    def begin(self, nodeid: str, *, file: str, line: int, reruns: int = 0) -> None:
        """Note that a test starts; ``reruns``: how often it has ended before."""
        if nodeid not in self._drafts:
            self._drafts[nodeid] = Draft(nodeid, file=file, line=line, reruns=reruns)

    def passed(self, nodeid: str, when: str, *, duration_s: float) -> None:
        """Note a phase that passed, as most do, in as few calls as can be."""
        if nodeid in self._drafts and when not in self._drafts[nodeid].phases:
            draft = self._drafts[nodeid]
            draft.phases[when] = duration_s
            if when == "call":
                draft.outcome = draft.outcome or "passed"
        else:
            self.phase(nodeid, when, outcome="passed", duration_s=duration_s)

    def phase(self, nodeid: str, when: str, *, outcome: str, duration_s: float, failure: Failure | None = None) -> None:
        """Note the outcome of a phase (``setup``, ``call`` or ``teardown``)."""
        draft = self._drafts.get(nodeid)
        if draft is None:
            draft = self._drafts[nodeid] = Draft(nodeid, file=nodeid.split("::", 1)[0], line=0, reruns=0)
        phases = draft.phases
        phases[when] = phases[when] + duration_s if when in phases else duration_s
        if outcome == "passed" and when != "call":
            return  # has the body run? with --setup-only it has not
        if not draft.outcome or SEVERITY[outcome] > SEVERITY[draft.outcome]:
            draft.outcome = outcome
            draft.failure = failure

    def rerun(self, nodeid: str) -> int:
        """Void what a test came to, as it will be run again; return how often it has been."""
        draft = self._drafts[nodeid]
        draft.outcome, draft.phases, draft.failure = "", {}, None
        draft.reruns += 1
        return draft.reruns

    def finish(self, nodeid: str) -> Draft | None:
        """Return what is known of a test that ended; None if its body has not run, or will again."""
        draft = self._drafts.get(nodeid)
        if draft is None or not draft.outcome:
            return None
        return self._drafts.pop(nodeid)

    def in_flight(self) -> tuple[str, ...]:
        """Tests that have begun and not ended."""
        return tuple(self._drafts)
