"""Which tests passed, also under another name: the parameters in it may tell a place or the time. Pure."""

from collections import Counter
from collections.abc import Sequence

from pytest_tdd_agent.comparison import function_of
from pytest_tdd_agent.report import SuiteReport


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
