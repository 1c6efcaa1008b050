"""The course after a closed attempt: repair its files, go back to those at the start of the phase, or stop. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cdd_agent.tdd.context import Phase
from pytest_tdd_agent.report import SuiteReport, list_failing

_CHEATING_CODES = frozenset({"tampered", "suspicious_code", "canary_failed", "expectation_ignored"})
"""The attempt's work is not worth repairing."""

_VARYING = re.compile(
    r"(?i)0x[0-9a-f]+|(?<=object at )\S+|\d+(\.\d+)?(?= ?([mnuµ]?s|sec(ond)?s?|min(ute)?s?)\b)"
    r"|\d+([-:]\d\d){2}([.,]\d+)?|\d{10,}(\.\d+)?"
    r"|/(tmp|(private/)?var/folders)/[^\s'\"]+|\btmp[a-z0-9_]{8}\b|[0-9a-f]{8}(-?[0-9a-f]{4}){3,}"
)
"""Addresses, times, temporary names and random identifiers, which differ between runs of the same failure."""


class Course(StrEnum):
    """The start of the next attempt."""

    REPAIR = "repair"
    """From the files as the last attempt left them."""
    ROLL_BACK = "roll_back"
    """From the files as they were when the phase began."""
    STOP = "stop"
    """No further attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of a closed attempt, for comparison with others."""

    codes: frozenset[str]
    """Of the gate's reasons."""
    failing: frozenset[str]
    """Node ids."""
    symptoms: frozenset[tuple[str, ...]]
    """The failures without varying details; if no test ran, the reasons."""


def summarize_attempt(reasons: Sequence[str], report: SuiteReport | None) -> Trial:
    """Return the trial of an attempt with these reasons, each ``code: message``, and this report."""
    failures = []
    if report is not None:
        failures = [(case.nodeid, case.failure) for case in report.tests if case.failure and case.outcome != "passed"]
        failures += [(error.nodeid, error.failure) for error in report.collect_errors]
    # Lines of the product move with every attempt, lines of the tests do not.
    at = [f"{failure.path}:{failure.line if failure.origin == 'test' else ''}" for _, failure in failures]
    symptoms = frozenset[tuple[str, ...]](
        (nodeid, failure.kind, failure.exception, place, _VARYING.sub("", failure.message))
        for (nodeid, failure), place in zip(failures, at, strict=True)
    )
    return Trial(
        codes=frozenset(reason.partition(":")[0] for reason in reasons),
        failing=frozenset(list_failing(report)) if report is not None else frozenset(),
        symptoms=symptoms or frozenset((_VARYING.sub("", reason),) for reason in reasons),
    )


def choose_course(
    trials: Sequence[Trial], *, phase: Phase, failing_before: int, max_identical_failures: int, is_strict: bool
) -> Course:
    """Return what follows the closed attempts at a phase, oldest first.

    ``failing_before`` is the number of failing tests when the phase began. If ``is_strict``, one broken test causes a
    rollback; otherwise only an increase of failing tests does.
    """
    last = trials[-1]
    alike = next((n for n, trial in enumerate(reversed(trials)) if trial.symptoms != last.symptoms), len(trials))
    if alike >= max_identical_failures:
        return Course.STOP
    # In REFACTOR the item's own tests passed before, so that one which fails is broken too.
    broken = last.codes & ({"broke_others", "target_failed"} if phase == "refactor" else {"broke_others"})
    has_broken = bool(broken) and (is_strict or len(last.failing) > failing_before)
    return Course.ROLL_BACK if alike > 1 or has_broken or last.codes & _CHEATING_CODES else Course.REPAIR
