"""What is asked of the checks, and what they answer.

Which tests passed, also under another name: the parameters in it may tell a place or the time. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_tdd_agent.comparison import function_of
from pytest_tdd_agent.report import Reason, SuiteReport


def not_passing(wanted: Sequence[str], report: SuiteReport) -> tuple[str, ...]:
    """Those of the tests that did not pass.

    One that the report does not name counts as passed if of its function at least as many passed as are wanted.
    """
    named = {case.nodeid for case in report.tests}
    passed = {case.nodeid for case in report.tests if case.outcome == "passed"}
    passed_of, wanted_of = Counter(map(function_of, passed)), Counter(map(function_of, wanted))

    def has_passed(nodeid: str) -> bool:
        function = function_of(nodeid)
        return nodeid in passed or (nodeid not in named and passed_of[function] >= wanted_of[function])

    return tuple(nodeid for nodeid in wanted if not has_passed(nodeid))


CODES = {
    "vacuous_test": "The new tests pass once a name that they miss is there, even if what has it does nothing.",
    "suspicious_code": "The change adds code that looks at, or reaches into, the process that tests it.",
    "special_cased": "A branch of the change holds the input of a target test and gives just what the test expects.",
    "canary_failed": "Tests with a known result, added beside the targets, were not reported as they had to be.",
    "not_reproduced": "In a clean copy with RED's tests and configuration, a target does not pass.",
    "unproven_change": "No target test notices when the changed code is altered.",
}
"""Code of a reason -> what it means."""


PYTHON = (".py", ".pyw")
"""How the names of sources end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductChange:
    """One file of the product that differs; ``path`` is relative to the project, only Python sources have texts."""

    path: str
    old: str | None
    """Its text before; None: there was none."""
    new: str | None
    """Its text now; None: it was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A GREEN whose gate is open, with all that the checks look at. Paths and node ids are relative to the project."""

    targets: tuple[str, ...]
    """Node ids of tests that the change made pass; empty: only the changed code itself is looked at."""
    changes: tuple[ProductChange, ...]
    tests: Mapping[str, str]
    """File of a target -> its source."""
    stated: str
    """The step as the person and the plan state it: literals in it are no secret of the tests."""
    red: str
    """Commit or tree before the change, with the tests."""
    green: str
    """Commit or tree with the change."""
    baseline: SuiteReport
    """Of the tests before the change."""
    time_box_s: float
    """Wall clock for all runs together; 0: no runs."""
    elsewhere: Callable[[], Iterable[str]] = tuple
    """The sources of the product before the change; asked for only if something was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the checks came to."""

    reasons: tuple[Reason, ...] = ()
    """Why the change is refused, with the codes of ``CODES``; empty: it is confirmed."""
    notices: tuple[str, ...] = ()
    """What could not be checked, and why."""

    def __add__(self, other: "Findings") -> "Findings":
        """Both together."""
        return Findings(reasons=self.reasons + other.reasons, notices=self.notices + other.notices)


def is_python(change: ProductChange) -> bool:
    """Whether the change leaves a Python source behind."""
    return change.new is not None and change.path.endswith(PYTHON)
