"""The input and the result of the evidence checks on an open GREEN gate."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_tdd_agent.comparison import strip_parameters
from pytest_tdd_agent.report import Reason, SuiteReport


def find_not_passing(wanted: Sequence[str], report: SuiteReport) -> tuple[str, ...]:
    """Return the tests that did not pass.

    Parameters in a node id may contain a path or the time. A test that the report does not name therefore counts as
    passed if at least as many tests of its function passed as are wanted.
    """
    reported = {case.nodeid for case in report.tests}
    passed = {case.nodeid for case in report.tests if case.outcome == "passed"}
    passed_of, wanted_of = Counter(map(strip_parameters, passed)), Counter(map(strip_parameters, wanted))

    def has_passed(nodeid: str) -> bool:
        function = strip_parameters(nodeid)
        return nodeid in passed or (nodeid not in reported and passed_of[function] >= wanted_of[function])

    return tuple(nodeid for nodeid in wanted if not has_passed(nodeid))


CODES = {
    "vacuous_test": "The new tests pass with a stub that does nothing in place of the missing name.",
    "suspicious_code": "The change adds code that inspects or manipulates the process that tests it.",
    "special_cased": "A branch of the change handles the input of a target test and returns the expected value.",
    "canary_failed": "Tests with a known result, added to the targets, were reported incorrectly.",
    "not_reproduced": "A target fails in a clean copy with RED's tests and configuration.",
    "unproven_change": "No target test fails when the changed code is altered.",
}
"""Code of a reason -> its meaning."""

PYTHON = (".py", ".pyw")
"""The extensions of Python sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductChange:
    """One changed file of the product. ``path`` is relative to the project. Only Python sources have texts."""

    path: str
    old: str | None
    """The text before. None: the file is new."""
    new: str | None
    """The text now. None: the file was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """A GREEN with an open gate, and the input of its checks. Paths and node ids are relative to the project."""

    targets: tuple[str, ...]
    """Node ids of tests that the change made pass. Empty: only the changed code itself is checked."""
    changes: tuple[ProductChange, ...]
    tests: Mapping[str, str]
    """File of a target -> its source."""
    stated: str
    """The step's text. The product may contain the literals that it names."""
    red: str
    """Commit or tree before the change, with the tests."""
    green: str
    """Commit or tree with the change."""
    baseline: SuiteReport
    """The report of the tests before the change."""
    time_box_s: float
    """The time limit for all runs together. 0: no runs."""
    elsewhere: Callable[[], Iterable[str]] = tuple
    """Returns the product's sources before the change. Called only if a check found something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The result of the checks."""

    reasons: tuple[Reason, ...] = ()
    """The reasons to refuse the change, with codes from ``CODES``. Empty: it is confirmed."""
    notices: tuple[str, ...] = ()
    """The checks that could not be done, and why."""

    def __add__(self, other: "Findings") -> "Findings":
        """Combine two results."""
        return Findings(reasons=self.reasons + other.reasons, notices=self.notices + other.notices)


def is_python(change: ProductChange) -> bool:
    """Return whether the change results in a Python source."""
    return change.new is not None and change.path.endswith(PYTHON)
