"""What follows a closed attempt: go on from its files, go back to where the phase began, or stop. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pytest_tdd_agent.report import SuiteReport, failing

_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?= ?m?s\b)|(?<=object at )\S+", re.IGNORECASE)
"""Addresses and durations: the same error has another one in every run."""

_BENT = frozenset({"tampered", "suspicious_code", "canary_failed", "special_cased"})
"""Reasons that leave nothing worth keeping of an attempt."""


class Course(StrEnum):
    """How the next attempt begins, if there is to be one."""

    REPAIR = "repair"
    """With the files as the last one left them."""
    ROLL_BACK = "roll_back"
    """With the files as they were when the phase began."""
    STOP = "stop"
    """Not at all: one more would come to the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a closed attempt came to."""

    codes: frozenset[str]
    """Of the gate's reasons."""
    failing: frozenset[str]
    """Node ids."""
    symptoms: frozenset[tuple[str, ...]]
    """What fails and how; where no test was run, the reasons."""


def trial_of(reasons: Sequence[str], report: SuiteReport | None) -> Trial:
    """The trial of an attempt with these reasons, each ``code: message``, and the report it was judged by."""
    symptoms = frozenset(_symptoms(report)) if report is not None else frozenset()
    return Trial(
        codes=frozenset(reason.partition(":")[0] for reason in reasons),
        failing=frozenset(failing(report)) if report is not None else frozenset(),
        symptoms=symptoms or frozenset((_VARYING.sub("", reason),) for reason in reasons),
    )


def _symptoms(report: SuiteReport) -> list[tuple[str, ...]]:
    failures = [(case.nodeid, case.failure) for case in report.tests if case.failure and case.outcome != "passed"]
    failures += [(error.nodeid, error.failure) for error in report.collect_errors]
    return [
        (nodeid, failure.kind, failure.exception, _VARYING.sub("", failure.message)) for nodeid, failure in failures
    ]


def course(trials: Sequence[Trial], *, failing_before: int, most_alike: int, is_strict: bool) -> Course:
    """What follows the last of ``trials``, the closed attempts at one phase, oldest first.

    ``failing_before``: how many tests failed when the phase began. After ``most_alike`` attempts in a row to the same
    end there is no progress. ``is_strict``: one test that is broken is enough to go back, else more must fail than did.
    """
    last = trials[-1]
    alike = next((n for n, trial in enumerate(reversed(trials)) if trial.symptoms != last.symptoms), len(trials))
    if alike >= most_alike:
        return Course.STOP
    has_broken = "broke_others" in last.codes and (is_strict or len(last.failing) > failing_before)
    if alike > 1 or has_broken or last.codes & _BENT:
        return Course.ROLL_BACK
    return Course.REPAIR
