"""What an attempt at RED came to, in one word: whether its tests fail, and whether that says anything. Pure."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from cdd_agent.evidence.code.source import Function, parse
from pytest_tdd_agent.comparison import function_of
from pytest_tdd_agent.failure import stage
from pytest_tdd_agent.report import Reason, SuiteReport, Verdict, failing

_TAMPER = frozenset({"tampered", "source_changed", "user_file_changed", "test_removed"})
_BROKE = frozenset({"broke_others"})
_FLAKY = frozenset({"flaky_target"})
_MOST_SHOWN = 5


class RedVerdict(StrEnum):
    """The outcomes of RED."""

    VALID = "VALID"
    """The new tests fail because the behavior is missing."""
    VALID_MISSING_SYMBOL = "VALID_MISSING_SYMBOL"
    """They fail for want of a name that the work item is to make, so they have not judged any code yet."""
    INVALID = "INVALID"
    """They fail for another reason, or there are none."""
    ALREADY_GREEN = "ALREADY_GREEN"
    """They pass at once, all of them."""
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
    old = set(failing(baseline))
    if codes == {"already_green"} and report is not None and old.issuperset(failing(report)):
        return RedVerdict.ALREADY_GREEN
    if not judged.open or report is None:
        return RedVerdict.INVALID
    failures = [case.failure for case in report.tests if case.failure is not None and case.nodeid not in old]
    failures += [error.failure for error in report.collect_errors if error.nodeid not in old]
    is_structural = any(stage(failure, expects) == "structural" for failure in failures)
    return RedVerdict.VALID_MISSING_SYMBOL if is_structural else RedVerdict.VALID


def surplus(report: SuiteReport, *, baseline: SuiteReport, sources: Mapping[str, str]) -> tuple[Reason, ...]:
    """What speaks against a run that has more than one test which the baseline has not, whatever its parameters.

    ``sources``: the Python files that could not be collected, so that the report says nothing of the tests in them.
    """
    before = {function_of(case.nodeid) for case in baseline.tests}
    found: dict[object, str] = {}
    for case in report.tests:
        name = function_of(case.nodeid)
        if name not in before:
            found.setdefault((case.file, case.line) if case.line else name, name)
    listed = [f"{file}::{name}" for file, source in sources.items() for name in _tests_in(parse(source))]
    names = dict.fromkeys((*found.values(), *(name for name in listed if name not in before)))
    if len(names) < 2:
        return ()
    shown = ", ".join(list(names)[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
    message = (
        f"RED adds {len(names)} tests, and one is asked for: {shown}. Keep that one and take the others out; they have "
        "their own turn."
    )
    return (Reason(code="several_tests", nodeid=None, message=message),)


def _tests_in(tree: ast.Module | ast.ClassDef | None) -> Iterator[str]:
    """The names of the tests in a source as pytest and unittest find them, each after its class."""
    for node in tree.body if tree is not None else ():
        if isinstance(node, Function) and node.name.startswith("test"):
            yield node.name
        elif isinstance(node, ast.ClassDef) and (node.name.startswith("Test") or node.bases):
            yield from (f"{node.name}::{name}" for name in _tests_in(node))
