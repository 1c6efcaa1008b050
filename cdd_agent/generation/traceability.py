"""Which tests enter which nodes, and which of them wait for code.

A test *waits* while code that it needs is not written: it enters a stub, or a module with late code. While a repository
grows, such a test says nothing about the code that is there.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from cdd_agent.errors import format_count, join_first
from cdd_agent.evidence import source
from cdd_agent.evidence.source import Function, name_definitions
from cdd_agent.generation.late_code import has_late_code, list_effects
from cdd_agent.generation.layout import SOURCES
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.tdd.baseline import leave_out
from cdd_agent.untrusted.python_source import parse
from pytest_tdd_agent.comparison import strip_parameters
from pytest_tdd_agent.report import Failure, SuiteReport, list_failing

_MOST_NAMED = 3
"""Failing tests in a sentence."""


@dataclass(frozen=True, kw_only=True)
class MissingCode:
    """The code that is not written yet."""

    stubs: Mapping[str, Collection[str]]
    """Path -> qualified names of the definitions that are stubs."""
    texts: Mapping[str, str]
    """Path -> source, of modules."""
    counts_late: bool = True
    """Whether code that waits for stubs counts, too."""

    def find_waiting(self, report: SuiteReport, entered: Mapping[str, Collection[str]]) -> frozenset[str]:
        """Return the failing tests that wait, and files that cannot be collected. ``entered``: as in ``SuiteRun``."""
        tests = set(self._list_entering(entered))
        waiting = {name for name in list_failing(report) if strip_parameters(name) in tests}
        for nodeid, failure in list_failures(report):
            is_none = "NoneType" in failure.message and bool(self._late)
            if is_none or any(self._is_missing(path, line) for path, line in _list_places(failure)):
                waiting.add(nodeid)
        return frozenset(waiting)

    def _list_entering(self, entered: Mapping[str, Collection[str]]) -> Iterator[str]:
        for key, tests in entered.items():
            path, _, name = key.partition("::")
            if is_inside(name, self.stubs.get(path, ())) or (not name and path in self._late):
                yield from tests

    @cached_property
    def _late(self) -> frozenset[str]:
        """The modules with code that waits for stubs, and those that such code could change, as by ``register(f)``."""
        late = {path: text for path, text in self.texts.items() if self.counts_late and has_late_code(text)}
        names = {name for text in late.values() if "#: after " in text for name in list_effects(text)}
        stems = (f"{SOURCES}/{name.replace('.', '/').rpartition('/')[0]}" for name in names)
        changed = {path for stem in stems for path in (f"{stem}.py", f"{stem}/__init__.py")}
        return frozenset(late.keys() | changed.intersection(self.texts))

    @cached_property
    def _lines(self) -> Mapping[str, frozenset[int]]:
        return {path: frozenset(list_lines(self.texts.get(path, ""), names)) for path, names in self.stubs.items()}

    def _is_missing(self, path: str, line: int) -> bool:
        return path in self._late or line in self._lines.get(path, ())


@dataclass(frozen=True, kw_only=True)
class TracedResults:
    """How the tests of a user end, and which nodes they enter."""

    plan: GenerationPlan
    report: SuiteReport
    """Of all tests."""
    entered: Mapping[str, Collection[str]]
    """As in ``SuiteRun``."""
    doubts: Mapping[str, str] = field(default_factory=dict)
    """Title of a node that was checked -> why the checks of its code doubt it, or nothing."""

    @cached_property
    def _entering(self) -> Mapping[str, frozenset[str]]:
        """Title of a node -> the tests that enter it, without parameters."""
        layout = self.plan.layout
        owners = {
            place: title for title, node in self.plan.by_title.items() for place in layout.place_definitions(node)
        }
        found: dict[str, set[str]] = {}
        for key, tests in self.entered.items():
            path, _, name = key.partition("::")
            for title in {owners[path, scope] for scope in _list_scopes(name) if (path, scope) in owners}:
                found.setdefault(title, set()).update(tests)
        return {title: frozenset(tests) for title, tests in found.items()}

    def list_entering(self, title: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the passing and the failing tests that enter a node."""
        tests, failing = self._entering.get(title, frozenset()), set(list_failing(self.report))
        inside = [case for case in self.report.tests if strip_parameters(case.nodeid) in tests]
        passing = tuple(case.nodeid for case in inside if case.outcome == "passed")
        return passing, tuple(name for name in failing if strip_parameters(name) in tests)

    def count(self) -> tuple[int, int]:
        """Return how many tests pass, and how many there are; a file that cannot be collected counts as one."""
        cases = self.report.tests
        return sum(case.outcome == "passed" for case in cases), len(cases) + len(self.report.collect_errors)

    @property
    def failing(self) -> tuple[str, ...]:
        """The tests that fail, and the files that cannot be collected."""
        return list_failing(self.report)

    def summarize(self) -> str:
        """Return in one sentence how many tests pass, or which fail."""
        passed, total = self.count()
        if self.failing:
            names = join_first(self.failing, most=_MOST_NAMED)
            return f"{len(self.failing)} of {format_count(total, 'given test')} fail: {names}."
        others = f" Skipped, or expected to fail: {total - passed}." if total > passed else ""
        return f"{format_count(passed, 'given test')} passed, and none failed.{others}"

    def explain_doubt(self, title: str) -> str:
        """Return why the tests do not prove a node; empty if they do."""
        passing, failing = self.list_entering(title)
        if failing:
            return f"tests that enter it fail: {join_first(sorted(failing), most=_MOST_NAMED)}"
        return self.doubts.get(title, "") if passing else "no test that passes enters it"

    def find_suspects(self, waiting: Collection[str]) -> dict[str, SuiteReport]:
        """Return the node that may be at fault for each failing test that does not wait -> the report of such tests.

        It is the one that the most failing and the fewest passing tests enter.
        """
        failing, blamed = {*list_failing(self.report)}, dict[str, set[str]]()
        rates = {title: self._rate(tests) for title, tests in self._entering.items()}
        for nodeid in failing.difference(waiting):
            inside = [title for title, tests in self._entering.items() if strip_parameters(nodeid) in tests]
            if inside:
                blamed.setdefault(max(inside, key=rates.__getitem__), set()).add(nodeid)
        known = {*(case.nodeid for case in self.report.tests), *failing}
        return {title: leave_out(self.report, known - nodeids) for title, nodeids in blamed.items()}

    def _rate(self, tests: Collection[str]) -> float:
        """Return the share of the ``tests``, without parameters, that have a failing case."""
        failing = set(map(strip_parameters, list_failing(self.report)))
        return len(failing.intersection(tests)) / len(tests)


def is_inside(name: str, definitions: Collection[str]) -> bool:
    """Return whether a function is one of the definitions, or inside of one.

    >>> is_inside("Stack.push", {"Stack"}), is_inside("Stacked", {"Stack"}), is_inside("", {"Stack"})
    (True, False, False)
    """
    return any(scope in definitions for scope in _list_scopes(name))


def _list_scopes(name: str) -> Iterator[str]:
    """Yield the qualified names of the definitions around a function, the outermost first, and its own."""
    yield from accumulate(name.split("."), "{}.{}".format)


def is_conftest(nodeid: str) -> bool:
    """Return whether a file that cannot be collected is one that pytest loads before all tests beside it."""
    return nodeid.rpartition("/")[2] == "conftest.py"


def group_tests(chosen: Collection[str], among: Iterable[str]) -> tuple[str, ...]:
    """Return functions, classes and files for the ``chosen`` tests: those in which all tests ``among`` are chosen.

    >>> group_tests({"t.py::A::a[1]", "t.py::A::a[2]"}, ["t.py::A::a[1]", "t.py::A::a[2]", "t.py::b"])
    ('t.py::A',)
    """
    mixed = {group for nodeid in among if nodeid not in chosen for group in (nodeid, *_list_groups(nodeid))}
    found = (next((group for group in _list_groups(nodeid) if group not in mixed), nodeid) for nodeid in chosen)
    return tuple(sorted(set(found)))


def _list_groups(nodeid: str) -> Iterator[str]:
    """Yield the file, the classes and the function of a test, the largest first."""
    yield from accumulate(strip_parameters(nodeid).split("::"), "{}::{}".format)


def list_lines(text: str, names: Collection[str]) -> Iterator[int]:
    """Yield the lines of the functions in definitions with these qualified names."""
    for name, each in name_definitions(parse(text)):
        if isinstance(each, Function) and is_inside(name, names):
            yield from source.list_lines(each)


def list_changed(before: str, after: str) -> frozenset[str]:
    """Return the qualified names of the functions of a module that have changed, or are no longer there.

    >>> sorted(list_changed("def f(): return 1\\ndef g(): return 1", "def f(): return 2\\ndef g(): return 1"))
    ['f']
    """
    old, new = (
        {(name, ast.dump(each)) for name, each in name_definitions(parse(text)) if isinstance(each, Function)}
        for text in (before, after)
    )
    return frozenset(name for name, _ in old - new)


def list_failures(report: SuiteReport) -> Iterator[tuple[str, Failure]]:
    """Yield node id and failure of the tests that fail, and of the files that cannot be collected."""
    yield from ((case.nodeid, case.failure) for case in report.tests if case.failure is not None)
    yield from ((error.nodeid, error.failure) for error in report.collect_errors)


def _list_places(failure: Failure) -> Iterable[tuple[str, int]]:
    last = (failure.path, failure.line) if failure.path and failure.line else None
    return [*((frame.path, frame.line) for frame in failure.frames), *([last] if last else [])]
