"""What an attempt at RED came to, in one word: whether its tests fail, and whether that says anything. Pure."""

from collections.abc import Sequence
from enum import StrEnum

from pytest_tdd_agent.failure import stage
from pytest_tdd_agent.report import SuiteReport, Verdict, failing

_TAMPER = frozenset({"tampered", "source_changed", "user_file_changed", "test_removed"})
_BROKE = frozenset({"broke_others"})
_FLAKY = frozenset({"flaky_target"})


class RedVerdict(StrEnum):
    """The outcomes of RED."""

    VALID = "VALID"
    """The new tests fail because the behavior is missing."""
    VALID_MISSING_SYMBOL = "VALID_MISSING_SYMBOL"
    """They fail for want of a name that the work item is to make, so they have not judged any code yet."""
    INVALID = "INVALID"
    """They fail for another reason, or there are none."""
    ALREADY_GREEN = "ALREADY_GREEN"
    """They pass at once."""
    TAMPER = "TAMPER"
    """The attempt changed what RED may not change."""
    BROKE_OTHERS = "BROKE_OTHERS"
    """A test that passed before does not any more."""
    FLAKY = "FLAKY"
    """They came to different ends when they were run again."""


def red_verdict(
    judged: Verdict, report: SuiteReport | None, *, baseline: SuiteReport, expects: Sequence[str] = ()
) -> RedVerdict:
    """The word for RED's verdict over a run; ``expects`` is as for ``pytest_tdd_agent.gate.judge``."""
    codes = {reason.code for reason in judged.reasons}
    for word, telling in (
        (RedVerdict.TAMPER, _TAMPER),
        (RedVerdict.BROKE_OTHERS, _BROKE),
        (RedVerdict.FLAKY, _FLAKY),
    ):
        if codes & telling:
            return word
    if codes == {"already_green"}:
        return RedVerdict.ALREADY_GREEN
    if not judged.open or report is None:
        return RedVerdict.INVALID
    old = set(failing(baseline))
    failures = [case.failure for case in report.tests if case.failure is not None and case.nodeid not in old]
    failures += [error.failure for error in report.collect_errors if error.nodeid not in old]
    is_structural = any(stage(failure, expects) == "structural" for failure in failures)
    return RedVerdict.VALID_MISSING_SYMBOL if is_structural else RedVerdict.VALID
