"""A report beside its baseline: what is new, what was so before, and which tests a target names. Pure."""

from __future__ import annotations

from typing import Callable, Iterable, Iterator, Sequence

from .report import Case, CollectError, SuiteReport

FAILING = ("failed", "error")
NOT_RUN = ("skipped", "xfailed")
_MARKED = (*NOT_RUN, "xpassed")


class Comparison:
    """A report beside its baseline, with what the gate is asked."""

    def __init__(
        self,
        report: SuiteReport,
        *,
        baseline: SuiteReport | None,
        targets: Sequence[str],
        expects: Sequence[str],
    ) -> None:
        """Put them side by side; ``targets`` and ``expects`` are as for ``gate.judge``."""
        self.report = report
        self.baseline = baseline
        self.targets = targets
        self.expects = expects
        self.tests = {case.nodeid: case for case in report.tests}
        self.before = {case.nodeid: case for case in baseline.tests} if baseline else {}
        self.old_failures = set(baseline.old_failures) if baseline else set()
        """What failed before RED already; all that failed in the baseline, if the phase adds no test."""
        self.old_collect_errors = {error.nodeid for error in baseline.collect_errors} if baseline else set()

    def covered(self, target: str) -> list[Case]:
        """Return the tests that a target names."""
        exact = self.tests.get(target)
        if exact is not None:
            return [exact]
        inside = (target + "[", target + "::", target.rstrip("/") + "/")
        return [case for case in self.report.tests if case.nodeid.startswith(inside)]

    def is_new(self, case: Case) -> bool:
        """Say whether the baseline lacks the test."""
        return case.nodeid not in self.before

    def failed_before(self, case: Case) -> bool:
        """Say whether the test failed in the baseline."""
        old = self.before.get(case.nodeid)
        return old is not None and old.outcome in FAILING

    def is_old_trouble(self, case: Case) -> bool:
        """Say whether the test did not pass before the cycle began, or did not count, and is no worse now."""
        old = self.before.get(case.nodeid)
        is_mark = old is not None and old.outcome in _MARKED and case.outcome not in FAILING
        return is_mark or (case.nodeid in self.old_failures and case.outcome != "passed")

    def uncollected(self, nodeid: str) -> CollectError | None:
        """Return the error that kept a test, or the file or folder it is in, from being collected."""
        file = nodeid.split("::", 1)[0]
        for error in self.report.collect_errors:
            held_back = error.nodeid in (nodeid, file) or nodeid.startswith(error.nodeid + "::")
            if held_back or file.startswith(error.nodeid.replace("/__init__.py", "") + "/"):
                return error
        return None

    def new_collect_errors(self) -> Iterator[CollectError]:
        """What could be collected in the baseline, or was not there."""
        return (error for error in self.report.collect_errors if error.nodeid not in self.old_collect_errors)


class Aim:
    """What a gate has to judge of a run."""

    def __init__(self, run: Comparison, pick: Callable[[str], list[Case]]) -> None:
        """Take the tests that ``pick`` finds for each target of the run."""
        self.cases: dict[str, Case] = {}
        self.blocked: dict[str, CollectError] = {}
        self.missing: list[str] = []
        for target in run.targets:
            cases = pick(target)
            error = None if cases else run.uncollected(target)
            self.cases.update((case.nodeid, case) for case in cases)
            if error is not None:
                self.blocked[error.nodeid] = error
            elif not cases:
                self.missing.append(target)

    def take(self, cases: Iterable[Case], errors: Iterable[CollectError]) -> None:
        """Judge these, as no target says what."""
        self.cases.update((case.nodeid, case) for case in cases)
        self.blocked.update((error.nodeid, error) for error in errors)

    def is_empty(self) -> bool:
        """Say that there is nothing to judge."""
        return not (self.cases or self.blocked or self.missing)
