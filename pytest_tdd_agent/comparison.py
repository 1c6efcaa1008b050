"""A report beside its baseline: what is new, what was so before, and which tests a target names. Pure.

Node ids that change from run to run, as those of random or clock-dependent parameters do, are matched by function: what
the run lacks of a function's tests in the baseline with what it has more.
"""

from __future__ import annotations

from typing import Callable, Iterable, Iterator, Sequence

from .report import FAILING, Case, CollectError, Sign, SuiteReport, failing

NOT_RUN = ("skipped", "xfailed")
_MARKED = (*NOT_RUN, "xpassed")
_HONEST_IN_A_CONFTEST = ("project_hook", "item_dropped", "replaced_body")


def expected_failures(baseline: SuiteReport | None, *, phase: str | None) -> tuple[str, ...]:
    """Return what failed before the cycle began, by node ids; a baseline that RED made has what RED added too."""
    if baseline is None:
        return ()
    return baseline.old_failures if phase != "refactor" and _is_of_red(baseline) else failing(baseline)


def _is_of_red(baseline: SuiteReport) -> bool:
    return baseline.gate is not None and baseline.gate.phase == "red"


class Comparison:
    """A report beside its baseline, with what the gate is asked."""

    def __init__(
        self,
        report: SuiteReport,
        *,
        phase: str,
        baseline: SuiteReport | None,
        targets: Sequence[str],
        expects: Sequence[str],
    ) -> None:
        """Put them side by side; everything is as for ``gate.judge``."""
        self.report = report
        self.baseline = baseline
        self.targets = targets
        self.expects = expects
        self.tests = {case.nodeid: case for case in report.tests}
        self.before = {case.nodeid: case for case in baseline.tests} if baseline else {}
        lost = [case for nodeid, case in self.before.items() if nodeid not in self.tests]
        new = [case for nodeid, case in self.tests.items() if nodeid not in self.before]
        self._now = _paired(_ids(_passed_first(lost)), _ids(_passed_first(new)))
        self._old = {now: old for old, now in self._now.items()}
        self._old_failures = _expected(baseline, phase=phase)
        self.is_repair = phase == "green" and baseline is not None and not _is_of_red(baseline)
        """What failed in the baseline is what targets ask to mend: it was taken with the tests of the change in it."""
        self.old_collect_errors = {error.nodeid for error in baseline.collect_errors} if baseline else set()

    def covered(self, target: str) -> list[Case]:
        """Return the tests that a target names."""
        exact = self.tests.get(target)
        if exact is not None:
            return [exact]
        return [case for case in self.report.tests if lies_in(case.nodeid, target)]

    def uncollected_in(self, target: str) -> list[CollectError]:
        """Return the errors of the files that a target names."""
        errors = self.report.collect_errors
        return [error for error in errors if error.nodeid == target or lies_in(error.nodeid, target)]

    def old(self, case: Case) -> Case | None:
        """Return what the test was in the baseline."""
        return self.before.get(self._old.get(case.nodeid, case.nodeid))

    def now(self, old: Case) -> Case | None:
        """Return what a test of the baseline is in the run."""
        return self.tests.get(self._now.get(old.nodeid, old.nodeid))

    def is_new(self, case: Case) -> bool:
        """Say whether the baseline lacks the test."""
        return self.old(case) is None

    def is_old_failure(self, case: Case) -> bool:
        """Say whether the test failed before the cycle began, and does not pass now."""
        old = self.old(case)
        names = {case.nodeid, case.nodeid if old is None else old.nodeid}
        return case.outcome != "passed" and not names.isdisjoint(self._old_failures)

    def is_old_error(self, error: CollectError) -> bool:
        """Say whether the file could not be collected before the cycle began, nor in the baseline."""
        return error.nodeid in self.old_collect_errors and error.nodeid in self._old_failures

    def is_spared(self, case: Case) -> bool:
        """Say whether a target of GREEN that holds the test among others leaves it as it was."""
        old = self.old(case)
        was_marked = old is not None and old.outcome in _MARKED and case.outcome not in FAILING
        return was_marked or (not self.is_repair and self.is_old_failure(case))

    def new_signs(self) -> list[Sign]:
        """What the audit saw and had not seen in the baseline; if that had none, hooks are taken for honest."""
        if self.baseline is None or not self.baseline.audited:
            return [sign for sign in self.report.signs if sign.code not in _HONEST_IN_A_CONFTEST]
        known = {(sign.code, sign.nodeid, sign.message) for sign in self.baseline.signs}
        return [
            sign
            for sign in self.report.signs
            if (sign.code, self._old.get(sign.nodeid or "", sign.nodeid), sign.message) not in known
        ]

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


def lies_in(nodeid: str, target: str) -> bool:
    """Say whether a node id is of what a target holds: parameters of a function, a class, a group, a file, a folder."""
    return nodeid.startswith((target + "[", target + "::", target + " > ", target.rstrip("/") + "/"))


def function_of(nodeid: str) -> str:
    """Return a node id without the parameters."""
    file, colons, name = nodeid.partition("::")
    return file + colons + name.partition("[")[0]


def _paired(lost: Sequence[str], found: Sequence[str]) -> dict[str, str]:
    """Each lost node id with a found one of the same function, in order, while there are any."""
    spare: dict[str, list[str]] = {}
    for nodeid in found:
        spare.setdefault(function_of(nodeid), []).append(nodeid)
    takers = {function: iter(nodeids) for function, nodeids in spare.items()}
    pairs = ((nodeid, next(takers.get(function_of(nodeid), iter(())), None)) for nodeid in lost)
    return {nodeid: other for nodeid, other in pairs if other is not None}


def _ids(cases: Iterable[Case]) -> list[str]:
    return [case.nodeid for case in cases]


def _passed_first(cases: Iterable[Case]) -> list[Case]:
    """What passed goes with what passes: as many have to pass as did."""
    return sorted(cases, key=lambda case: case.outcome != "passed")


def _expected(baseline: SuiteReport | None, *, phase: str) -> set[str]:
    """The expected failures by their node ids then and in the baseline, which may be RED's report.

    The last of a function's failures stand for those whose node ids changed, as they are matched last again.
    """
    nodeids = expected_failures(baseline, phase=phase)
    known = set(nodeids)
    tests = {case.nodeid: case for case in baseline.tests} if baseline else {}
    lost = [nodeid for nodeid in nodeids if nodeid not in tests]
    failed = [nodeid for nodeid, case in tests.items() if case.outcome in FAILING and nodeid not in known]
    return known.union(_paired(lost, failed[::-1]).values())


class Aim:
    """What a gate has to judge of a run."""

    def __init__(self, run: Comparison, pick: Callable[[str], tuple[Sequence[Case], Sequence[CollectError]]]) -> None:
        """Take what ``pick`` finds for each target of the run, else what keeps the target from being collected."""
        self.cases: dict[str, Case] = {}
        self.blocked: dict[str, CollectError] = {}
        self.missing: list[str] = []
        for target in run.targets:
            cases, errors = pick(target)
            holder = None if cases or errors else run.uncollected(target)
            self.take(cases, errors if holder is None else [holder])
            if not (cases or errors or holder):
                self.missing.append(target)

    def take(self, cases: Iterable[Case], errors: Iterable[CollectError]) -> None:
        """Judge these too."""
        self.cases.update((case.nodeid, case) for case in cases)
        self.blocked.update((error.nodeid, error) for error in errors)

    def is_empty(self) -> bool:
        """Say that there is nothing to judge."""
        return not (self.cases or self.blocked or self.missing)
