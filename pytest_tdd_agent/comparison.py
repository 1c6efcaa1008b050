"""What the gates compare: a report with its baseline, test by test. Pure.

The comparison says which tests are new, which failed before, and which belong to a target. Node ids of random or
time-dependent parameters change between runs. They are matched by function: the tests of a function that are missing
in the run are paired with those that are new in it. Targets are matched so only if the baseline shows that their node
ids change by themselves, because the parameters of a test may also come from the product.
"""

from __future__ import annotations

from typing import Callable, Iterable, Iterator, Sequence

from .fingerprint import find_changes
from .report import (
    FAILING,
    RESCUED,
    Case,
    CollectError,
    Sign,
    SuiteReport,
    Verdict,
    list_failing,
    list_rescued,
    replace,
)
from .system import bind_builtins

bind_builtins(globals())


NOT_RUN = ("skipped", "xfailed")
_MARKED = (*NOT_RUN, "xpassed")
_HONEST_IN_A_CONFTEST = ("project_hook", "item_dropped", "replaced_body")


def find_expected_failures(baseline: SuiteReport | None, *, phase: str | None) -> tuple[str, ...]:
    """Return the node ids that failed before the cycle; a baseline from RED also contains the tests that RED added."""
    if baseline is None:
        return ()
    return baseline.old_failures if phase != "refactor" and _is_of_red(baseline) else list_failing(baseline)


def _is_of_red(baseline: SuiteReport) -> bool:
    return baseline.gate is not None and baseline.gate.phase == "red"


class RunComparison:
    """A report, its baseline, and the arguments of the gate."""

    def __init__(
        self,
        report: SuiteReport,
        *,
        phase: str,
        baseline: SuiteReport | None,
        targets: Sequence[str],
        expects: Sequence[str],
    ) -> None:
        """Pair the tests of both reports. The arguments are those of ``gate.judge``."""
        self.report = report
        self.baseline = baseline
        self.targets = targets
        self.expects = expects
        self.tests = {case.nodeid: case for case in report.tests}
        self.before = {case.nodeid: case for case in baseline.tests} if baseline else {}
        lost = [case for nodeid, case in self.before.items() if nodeid not in self.tests]
        new = [case for nodeid, case in self.tests.items() if nodeid not in self.before]
        self._now = _pair_by_function(_sort_nodeids(lost), _sort_nodeids(new))
        self._old = {now: old for old, now in self._now.items()}
        self._old_failures = _find_expected_nodeids(baseline, phase=phase)
        self.is_repair = phase == "green" and baseline is not None and not _is_of_red(baseline)
        """Whether the failures of the baseline are the task: it was taken when the failing tests already existed."""
        self._rescued = list_rescued(report)
        self.old_collect_errors = {error.nodeid for error in baseline.collect_errors} if baseline else set()

    def tests_in(self, target: str) -> list[Case]:
        """Return the tests that belong to a target."""
        exact = self.find_test(target)
        if exact is not None:
            return [exact]
        return [case for case in self.report.tests if is_inside(case.nodeid, target)]

    def find_test(self, nodeid: str) -> Case | None:
        """Return the test of this node id or, if that changes from run to run, the one that takes its place."""
        is_unstable = self.baseline is not None and strip_parameters(nodeid) in self.baseline.unstable
        return self.tests.get(self._now.get(nodeid, nodeid) if is_unstable else nodeid)

    def find_lost_targets(self) -> Iterator[str]:
        """Yield the failing tests of the baseline that belong to a target and are not in the run."""
        for old in self.before.values():
            is_target = any(is_inside(old.nodeid, target) for target in self.targets) or not self.targets
            is_spared = old.nodeid in self._old_failures and not (self.is_repair and self.targets)
            is_wanted = old.outcome in FAILING and not is_spared
            if is_target and is_wanted and not self.find_test(old.nodeid) and not self.find_collect_error(old.nodeid):
                yield old.nodeid

    def errors_in(self, target: str) -> list[CollectError]:
        """Return the collection errors of files that belong to a target."""
        errors = self.report.collect_errors
        return [error for error in errors if error.nodeid == target or is_inside(error.nodeid, target)]

    def old(self, case: Case) -> Case | None:
        """Return the test as it was in the baseline."""
        return self.before.get(self._old.get(case.nodeid, case.nodeid))

    def now(self, old: Case) -> Case | None:
        """Return a test of the baseline as it is in the run."""
        return self.tests.get(self._now.get(old.nodeid, old.nodeid))

    def is_new(self, case: Case) -> bool:
        """Return whether the test is not in the baseline."""
        return self.old(case) is None

    def has_new_id(self, case: Case) -> bool:
        """Return whether the test takes the place of one with other parameters, which do not change by themselves."""
        is_unstable = self.baseline is not None and strip_parameters(case.nodeid) in self.baseline.unstable
        return case.nodeid in self._old and not is_unstable

    def is_unchanged(self, case: Case) -> bool:
        """Return whether the test passed in the baseline under the same node id, and no protected file was changed.

        The expectation of a case is not always part of its node id; it may also come from a data file. If the test's
        own file has no fingerprint, it counts as changed.
        """
        old = self.old(case)
        if self.baseline is None or old is None or old.nodeid != case.nodeid or old.outcome != "passed":
            return False
        before, now = self.baseline.fingerprints, self.report.fingerprints
        file = case.nodeid.split("::", 1)[0]
        return file in before and file in now and not find_changes(before, now)

    def is_old_failure(self, case: Case) -> bool:
        """Return whether the test failed before the cycle and still does not pass."""
        old = self.old(case)
        names = {case.nodeid, case.nodeid if old is None else old.nodeid}
        return case.outcome != "passed" and not names.isdisjoint(self._old_failures)

    def is_old_error(self, error: CollectError) -> bool:
        """Return whether the file could be collected neither before the cycle nor in the baseline."""
        return error.nodeid in self.old_collect_errors and error.nodeid in self._old_failures

    def is_revealed_failure(self, case: Case) -> bool:
        """Return whether a test fails in a file that could not be collected before the cycle: it may have failed."""
        blocker = _find_blocker(self.baseline.collect_errors if self.baseline else (), case.nodeid)
        return case.outcome in FAILING and blocker is not None and blocker.nodeid in self._old_failures

    def is_rescued(self, case: Case) -> bool:
        """Return whether the test passed only when it ran again, unless it also passed before and is not named."""
        old = self.old(case)
        is_other = old is not None and old.outcome == "passed" and case.nodeid not in self.targets
        return case.nodeid in self._rescued and not is_other

    def is_spared(self, case: Case) -> bool:
        """Return whether a test may stay as it was, although a GREEN target contains it among others."""
        old = self.old(case)
        was_marked = old is not None and old.outcome in _MARKED and case.outcome not in FAILING
        return was_marked or (not self.is_repair and self.is_old_failure(case))

    def new_signs(self) -> list[Sign]:
        """Return the signs that the baseline lacks; without an audited one, accept signs that conftest files cause."""
        if self.baseline is None or not self.baseline.audited:
            return [sign for sign in self.report.signs if sign.code not in (*_HONEST_IN_A_CONFTEST, RESCUED)]
        known = set(self.baseline.signs)
        older = {(sign.code, sign.nodeid) for sign in known if sign.case == "text"}  # of a plugin that wrote only texts
        before = {
            sign: replace(sign, nodeid=self._old.get(sign.nodeid or "", sign.nodeid)) for sign in self.report.signs
        }
        return [
            sign
            for sign, old in before.items()
            if sign.code != RESCUED and old not in known and (old.code, old.nodeid) not in older
        ]

    def find_collect_error(self, nodeid: str) -> CollectError | None:
        """Return the error that prevented the collection of a test, its file or its folder."""
        return _find_blocker(self.report.collect_errors, nodeid)

    def new_collect_errors(self) -> Iterator[CollectError]:
        """Return the collection errors that the baseline lacks."""
        return (error for error in self.report.collect_errors if error.nodeid not in self.old_collect_errors)


def _find_blocker(errors: Iterable[CollectError], nodeid: str) -> CollectError | None:
    file = nodeid.split("::", 1)[0]
    for error in errors:
        is_blocked = error.nodeid in (nodeid, file) or nodeid.startswith(error.nodeid + "::")
        if is_blocked or file.startswith(error.nodeid.replace("/__init__.py", "") + "/"):
            return error
    return None


def is_inside(nodeid: str, target: str) -> bool:
    """Return whether a node id is inside a target: a parametrized function, class, group, file or folder."""
    return nodeid.startswith((target + "[", target + "::", target + " > ", target.rstrip("/") + "/"))


def strip_parameters(nodeid: str) -> str:
    """Return a node id without its parameters."""
    file, colons, name = nodeid.partition("::")
    return file + colons + name.partition("[")[0]


def find_spared(report: SuiteReport, verdict: Verdict, *, baseline: SuiteReport | None) -> set[str]:
    """Return the failing tests and files that ``verdict`` does not name, because they failed before the cycle."""
    run = RunComparison(report, phase=verdict.phase, baseline=baseline, targets=(), expects=())
    failing = [case for case in report.tests if case.outcome in FAILING]
    spared = {case.nodeid for case in failing if run.is_old_failure(case) or run.is_revealed_failure(case)}
    spared.update(error.nodeid for error in report.collect_errors if run.is_old_error(error))
    return spared.difference(reason.nodeid for reason in verdict.reasons if reason.nodeid)


def find_unstable(report: SuiteReport, baseline: SuiteReport) -> tuple[str, ...]:
    """Return the parametrized functions of which each run has tests that the other has not."""
    now, before = ({case.nodeid for case in each.tests if case.nodeid.endswith("]")} for each in (report, baseline))
    lost, found = (set(map(strip_parameters, ids)) for ids in (before - now, now - before))
    return tuple(sorted(lost & found))


def _pair_by_function(lost: Sequence[str], found: Sequence[str]) -> dict[str, str]:
    spare: dict[str, list[str]] = {}
    for nodeid in found:
        spare.setdefault(strip_parameters(nodeid), []).append(nodeid)
    partners = {function: iter(nodeids) for function, nodeids in spare.items()}
    pairs = ((nodeid, next(partners.get(strip_parameters(nodeid), iter(())), None)) for nodeid in lost)
    return {nodeid: other for nodeid, other in pairs if other is not None}


def _sort_nodeids(cases: Iterable[Case]) -> list[str]:
    # Passed tests come first, so that they are paired with passing ones: as many must pass as did before.
    return [case.nodeid for case in sorted(cases, key=lambda case: case.outcome != "passed")]


def _find_expected_nodeids(baseline: SuiteReport | None, *, phase: str) -> set[str]:
    """Return the expected failures under their old node ids and those in the baseline, which may be RED's report."""
    nodeids = find_expected_failures(baseline, phase=phase)
    known = set(nodeids)
    tests = {case.nodeid: case for case in baseline.tests} if baseline else {}
    lost = [nodeid for nodeid in nodeids if nodeid not in tests]
    failed = [nodeid for nodeid, case in tests.items() if case.outcome in FAILING and nodeid not in known]
    # Pairing sorts failures last, so the last failures of a function are the ones whose node ids changed.
    return known.union(_pair_by_function(lost, failed[::-1]).values())


class SelectedTests:
    """The tests and files of a run that a gate judges as its targets."""

    def __init__(
        self, run: RunComparison, pick: Callable[[str], tuple[Sequence[Case], Sequence[CollectError]]]
    ) -> None:
        """Add what ``pick`` returns for each target, or else the error that prevents its collection."""
        self.cases: dict[str, Case] = {}
        self.blocked: dict[str, CollectError] = {}
        self.missing: list[str] = []
        for target in run.targets:
            cases, errors = pick(target)
            blocker = None if cases or errors else run.find_collect_error(target)
            self.add(cases, errors if blocker is None else [blocker])
            if not (cases or errors or blocker):
                self.missing.append(target)

    def add(self, cases: Iterable[Case], errors: Iterable[CollectError]) -> None:
        """Add tests and collection errors."""
        self.cases.update((case.nodeid, case) for case in cases)
        self.blocked.update((error.nodeid, error) for error in errors)

    def is_empty(self) -> bool:
        """Return whether there is nothing to judge."""
        return not (self.cases or self.blocked or self.missing)
