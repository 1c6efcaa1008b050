"""What the tests say, run again, beside what was handed over. Pure: runs are made by whoever asks."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cdd_agent.evidence.outcomes import not_passing
from cdd_agent.tdd.ground import with_tests_before
from cdd_agent.tdd.policy import WorkItem
from cdd_agent.tdd.rules import verdict
from cdd_agent.workflows.audit.claim import Claim, false, true, unknown
from cdd_agent.workflows.audit.reruns import Evidence
from pytest_tdd_agent.comparison import function_of, lies_in
from pytest_tdd_agent.fingerprint import changed
from pytest_tdd_agent.gate import judge
from pytest_tdd_agent.report import FAILING, Reason, SuiteReport, Verdict, failing, summary

_SHOWN = 3
"""Reasons, or files, that one sentence tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A phase whose tests were run again."""

    item: WorkItem
    """As far as notes and commits tell: its tests as they were named, its sources with all that GREEN changed."""
    now: Evidence
    before: Evidence | None
    """Of the commit before the phase; None: it is the first of all."""
    files: frozenset[str] = frozenset()
    """What the phase changed, relative to the project."""
    recorded: SuiteReport | None = None
    """The report that the gate judged by, if it is still there."""
    knows_sources: bool = True
    """Whether GREEN has told what the item's sources are."""


def new_tests(trial: Trial) -> tuple[str, ...]:
    """What RED added: tests and files that were not there, or passed in a file that it changed and fail now."""
    now, before = trial.now.report, trial.before.report if trial.before else None
    if now is None:
        return ()
    then = {case.nodeid: case.outcome for case in before.tests} if before else {}
    uncollected = {error.nodeid for error in before.collect_errors} if before else set()
    cases = (
        case.nodeid
        for case in now.tests
        if case.nodeid not in then
        or (case.file in trial.files and then[case.nodeid] not in FAILING and case.outcome in FAILING)
    )
    return (*cases, *(error.nodeid for error in now.collect_errors if error.nodeid not in uncollected))


def of_red(trial: Trial) -> Claim:
    """Whether the new tests fail, for a reason that the gate accepts and that was recorded."""
    report = trial.now.report
    if report is None or (trial.before is not None and trial.before.report is None):
        return _not_run(trial.now if report is None else trial.before or trial.now, beside=trial.before)
    baseline = trial.before.report if trial.before else None
    fresh = new_tests(trial)
    choices = [choice for choice in (_named(trial.item, report), fresh) if choice]
    judged = [
        verdict.of_run(replace(trial.item, tests=choice), "red", report=report, baseline=baseline or _nothing(report))
        for choice in (choices or [()])
    ]
    opened = next((number for number, each in enumerate(judged) if each.open), None)
    if opened is not None and choices:
        then, now = _kinds(trial.recorded, choices[opened]), _kinds(report, choices[opened])
        if trial.recorded is not None and then != now:
            return false("run", f"RED failed by {_told(then)}, says its report, and fails by {_told(now)}.")
        return true("run", f"The new tests fail by {_told(now)}.")
    reasons = judged[0].reasons
    codes = {reason.code for reason in reasons}
    if codes == {"name_not_expected"} and not trial.knows_sources:
        if trial.recorded is not None and _kinds(trial.recorded, fresh) == _kinds(report, fresh):
            return true("run", f"The new tests fail as the report says, by {_told(_kinds(report, fresh))}.")
        return unknown("run", f"The step goes on, and does not tell yet what it is to make: {_listed(reasons)}")
    return false("run", f"RED is not red: {_listed(reasons)}")


def of_covered_red(trial: Trial) -> Claim:
    """Whether the tests that passed at once do, and nothing else was broken."""
    report = trial.now.report
    if report is None or (trial.before is not None and trial.before.report is None):
        return _not_run(trial.now if report is None else trial.before or trial.now, beside=trial.before)
    fresh = new_tests(trial) or _named(trial.item, report)
    baseline = trial.before.report if trial.before else None
    judged = _without_files(judge("green", report, baseline=baseline, targets=fresh))
    if not fresh:
        return false("run", "There is no new test that could have passed at once.")
    if not judged.open:
        return false("run", f"The tests do not pass at once: {_listed(judged.reasons)}")
    return true("run", f"{_count(len(fresh), 'new test')} pass at once.")


def of_green(trial: Trial, *, red: Trial | None) -> Claim:
    """Whether the tests that failed in ``red`` pass, and all that passed before; without a RED only the latter."""
    report, before = trial.now.report, (red.now if red else trial.before)
    if report is None:
        return _not_run(trial.now, beside=before)
    if before is not None and before.report is None:
        return _not_run(before, beside=None)
    baseline = before.report if before else None
    targets = _named(trial.item, report) if began_red(trial) else ()
    if red is not None and red.now.report is not None:
        first = red.before.report if red.before else None
        opened = Verdict(phase="red", open=True)
        baseline = with_tests_before(red.now.report, first=first) if first else replace(red.now.report, gate=opened)
        targets = _failing_of(red.now.report, new_tests(red)) or _named(red.item, red.now.report)
    judged = _without_files(judge("green", report, baseline=baseline, targets=targets))
    if not judged.open:
        return false("run", f"GREEN is not green: {_listed(judged.reasons)}")
    wanted = [case.nodeid for case in (trial.recorded.tests if trial.recorded else ()) if case.outcome == "passed"]
    if lost := not_passing(wanted, report):
        return false("run", f"{lost[0]} passed, says GREEN's report, and does not.")
    return true("run", f"{_count(summary(report)['passed'], 'test')} pass, {len(targets) or 'no'} of them anew.")


def began_red(trial: Trial) -> bool:
    """Whether the item's tests failed before GREEN, so that it needed no RED of its own."""
    before = trial.before.report if trial.before else None
    return before is not None and any(verdict.concerns(trial.item, nodeid) for nodeid in failing(before))


def of_refactor(trial: Trial) -> Claim:
    """Whether the same tests are there as before, and pass."""
    report, before = trial.now.report, trial.before
    if report is None or before is None or before.report is None:
        return _not_run(trial.now if report is None else before or trial.now, beside=before)
    judged = _without_files(judge("refactor", report, baseline=before.report))
    if not judged.open:
        return false("run", f"REFACTOR did not leave everything working: {_listed(judged.reasons)}")
    return true("run", f"The same {_count(len(report.tests), 'test')} as before it, and they pass.")


def of_files(now: Evidence, before: Evidence, *, named: Collection[str]) -> Claim:
    """Whether tests, and what configures pytest, are what they were; ``named`` are tests besides that have changed."""
    names = {*changed(before.digests, now.digests), *named}
    if now.report is not None and before.report is not None:
        names |= set(changed(before.report.fingerprints, now.report.fingerprints))
    if not names:
        return true("tests", f"{_count(len(now.digests), 'file')} of the tests are the same, byte by byte.")
    shown = ", ".join(sorted(names)[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return false("tests", f"Not what it was in the phase before: {shown}{more}.")


def _nothing(like: SuiteReport) -> SuiteReport:
    """The report of a project without tests, of which nothing else is known."""
    return replace(like, tests=(), collect_errors=(), fingerprints={}, signs=(), audited=False, collected=0)


def _not_run(evidence: Evidence, *, beside: Evidence | None) -> Claim:
    """What to say where tests did not run to their end: it is the commit's fault if they do ``beside`` it."""
    told = evidence.problem or "there is no commit before it to compare with"
    if evidence.has_timed_out or evidence is beside or beside is None or beside.report is None:
        return unknown("run", f"The tests cannot be run: {told}.")
    return false("run", f"The tests do not run to their end, as they do on the commit before: {told}.")


def _named(item: WorkItem, report: SuiteReport) -> tuple[str, ...]:
    """Those of the item's tests that the run has something of."""
    ids = [case.nodeid for case in report.tests] + [error.nodeid for error in report.collect_errors]
    return tuple(test for test in item.tests if any(each == test or lies_in(each, test) for each in ids))


def _failing_of(report: SuiteReport, tests: Sequence[str]) -> tuple[str, ...]:
    """Those of ``tests``, node ids and files, that do not pass."""
    failed = {case.nodeid for case in report.tests if case.outcome in FAILING}
    failed |= {error.nodeid for error in report.collect_errors}
    return tuple(test for test in tests if test in failed)


def _without_files(judged: Verdict) -> Verdict:
    """The verdict but for changed files, which are a claim of their own."""
    reasons = tuple(reason for reason in judged.reasons if reason.code != "protected_changed")
    return replace(judged, open=not reasons, reasons=reasons)


def _kinds(report: SuiteReport | None, tests: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Function, or file, of ``tests`` -> the kinds it fails by; parameters may have another name in each run."""
    found: dict[str, list[str]] = {}
    failures = [(case.nodeid, case.failure) for case in report.tests if case.failure is not None] if report else []
    failures += [(error.nodeid, error.failure) for error in report.collect_errors] if report else []
    for nodeid, failure in failures:
        if any(nodeid == test or lies_in(nodeid, test) for test in tests):
            found.setdefault(function_of(nodeid), []).append(failure.kind)
    return {name: tuple(sorted(kinds)) for name, kinds in found.items()}


def _told(kinds: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(sorted({kind for each in kinds.values() for kind in each})) or "nothing"


def _listed(reasons: Sequence[Reason]) -> str:
    """The first reasons, as sentences."""
    more = f" And {len(reasons) - _SHOWN} more reasons." if len(reasons) > _SHOWN else ""
    return " ".join(reason.message for reason in reasons[:_SHOWN]) + more


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
