"""The phases of each test put together to one outcome. Pure but for its own state.

The worst phase counts, never the last; a failed subtest fails its test; a run again makes the earlier try void.
"""

from __future__ import annotations

from ..report import Case, Failure

_SEVERITY = {"passed": 0, "xfailed": 1, "xpassed": 1, "skipped": 1, "failed": 2, "error": 3}


class _Draft:
    """A test that has begun and not ended."""

    def __init__(self, nodeid: str, *, file: str, line: int, reruns: int) -> None:
        self.nodeid = nodeid
        self.file = file
        self.line = line
        self.reruns = reruns
        self.clear()

    def clear(self) -> None:
        """Forget what it came to."""
        self.outcome = ""
        self.phases: dict[str, float] = {}
        self.failure: Failure | None = None


class Tally:
    """What is known of each test so far."""

    def __init__(self) -> None:
        """Begin with no test."""
        self.cases: dict[str, Case] = {}
        """Tests that have ended, by node id."""
        self._drafts: dict[str, _Draft] = {}

    def begin(self, nodeid: str, *, file: str, line: int) -> None:
        """Note that a test starts; one that had ended is run again."""
        if nodeid in self._drafts:
            return
        earlier = self.cases.pop(nodeid, None)
        reruns = 0 if earlier is None else earlier.reruns + 1
        self._drafts[nodeid] = _Draft(nodeid, file=file, line=line, reruns=reruns)

    def phase(self, nodeid: str, when: str, *, outcome: str, duration_s: float, failure: Failure | None = None) -> None:
        """Note the outcome of a phase (``setup``, ``call`` or ``teardown``)."""
        draft = self._drafts.get(nodeid)
        if draft is None:
            draft = self._drafts[nodeid] = _Draft(nodeid, file=nodeid.split("::", 1)[0], line=0, reruns=0)
        draft.phases[when] = draft.phases.get(when, 0.0) + duration_s
        if not draft.outcome or _SEVERITY[outcome] > _SEVERITY[draft.outcome]:
            draft.outcome = outcome
            draft.failure = failure

    def rerun(self, nodeid: str) -> int:
        """Void what a test came to, as it will be run again; return how often it has been."""
        draft = self._drafts[nodeid]
        draft.clear()
        draft.reruns += 1
        return draft.reruns

    def finish(self, nodeid: str) -> Case | None:
        """Return what the test came to; None while it has no outcome, because it is about to be run again."""
        draft = self._drafts.get(nodeid)
        if draft is None or not draft.outcome:
            return None
        del self._drafts[nodeid]
        case = Case(
            nodeid=nodeid,
            outcome=draft.outcome,
            file=draft.file,
            line=draft.line,
            duration_s=round(sum(draft.phases.values()), 6),
            phases={when: round(seconds, 6) for when, seconds in draft.phases.items()},
            reruns=draft.reruns,
            failure=draft.failure,
        )
        self.cases[nodeid] = case
        return case

    def in_flight(self) -> tuple[str, ...]:
        """Tests that have begun and not ended."""
        return tuple(self._drafts)
