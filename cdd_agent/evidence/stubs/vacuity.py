"""Whether new tests that fail for want of a name judge anything: they run once more with stubs of what is missing.

A test that passes with what does nothing, whatever that answers, would pass with any code of that name.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from cdd_agent.events import Emit
from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.evidence.code.source import Function, parse
from cdd_agent.evidence.request import Findings
from cdd_agent.evidence.runs import Runs, TimeUp, silence
from cdd_agent.evidence.stubs.gaps import Gap, filled, gap_of
from cdd_agent.git.failure import GitError
from cdd_agent.git.repository import Repository
from cdd_agent.testrun.suite import Suite
from cdd_agent.workspace.beneath import Beneath
from pytest_tdd_agent.comparison import function_of, lies_in
from pytest_tdd_agent.failure import STRUCTURAL, kind_inside
from pytest_tdd_agent.report import Case, Failure, Reason, SuiteReport, failing

ROUNDS = 5
"""Runs that may show the next missing name."""
_SHOWN = 3
_BY_KIND = frozenset({"isinstance", "issubclass", "type", "assertIsNot", "assertIsNotNone", "assertNotIsInstance"})
"""By these, and by ``is not``, a test asks what every stub answers in the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTests:
    """A RED whose gate is open, and whose tests fail for want of names. Paths and node ids are the project's."""

    report: SuiteReport
    """Of the run that the gate judged."""
    baseline: SuiteReport
    sources: tuple[str, ...]
    """Files that the work item is to bring."""
    tree: str
    """Commit or tree with the tests."""
    time_box_s: float
    """Wall clock for all runs together; 0: no runs."""

    def wanting(self) -> tuple[str, ...]:
        """Node ids of the tests that have come to fail, and files that cannot be collected any more."""
        old = set(failing(self.baseline))
        return tuple(nodeid for nodeid in failing(self.report) if nodeid not in old)

    def failures(self) -> tuple[Failure | None, ...]:
        """Why they do."""
        wanting = self.wanting()
        errors = tuple(error.failure for error in self.report.collect_errors if error.nodeid in wanting)
        return errors + tuple(case.failure for case in self.report.tests if case.nodeid in wanting)

    def among(self, report: SuiteReport) -> tuple[Case, ...]:
        """Those of a run's tests that have come to fail; of a file that was not collected, those that are new."""
        wanting = self.wanting()
        functions = set(map(function_of, wanting))
        known = {case.nodeid for case in self.baseline.tests}

        def is_new(nodeid: str) -> bool:
            return nodeid not in known and any(lies_in(nodeid, holder) for holder in wanting)

        return tuple(case for case in report.tests if function_of(case.nodeid) in functions or is_new(case.nodeid))


def vacuous_tests(asked: NewTests, *, suite: Suite, repository: Repository, emit: Emit | None = None) -> Findings:
    """A refusal if every new test passes with stubs; a notice if that was to be found out, and could not be.

    One run if some test does not pass then, as it should. Only the tests of Python projects are tried. Nothing in the
    work tree, the index or the history is touched.
    """
    failures = asked.failures()
    if not suite.conventions.is_python or not asked.time_box_s or not _are_structural(failures):
        return Findings()
    runs = Runs(limit_s=asked.time_box_s, emit=emit or silence, quickest_s=asked.report.duration_s)
    try:
        with clean_copy(repository, suite, green=asked.tree, red=asked.tree) as copy:
            return _Trial(asked=asked, copy=copy, runs=runs).findings()
    except TimeUp as error:
        return Findings(notices=(error.happened,))
    except (GitError, OSError) as error:
        why = error.happened if isinstance(error, GitError) else str(error)
        return _unknown(f"no clean copy could be made: {why.strip().splitlines()[0].rstrip('.')}")


@dataclass(kw_only=True)
class _Trial:
    """The new tests in a clean copy, which gets stubs as the want of them shows."""

    asked: NewTests
    copy: Suite
    runs: Runs
    gaps: set[Gap] = field(default_factory=set)
    texts: dict[str, str | None] = field(default_factory=dict)
    """Module with stubs -> its text without them; None: it was not there."""

    def findings(self) -> Findings:
        """What the runs come to."""
        failures = self.asked.failures()
        for _ in range(ROUNDS):
            unknown = self._note(failures)
            if unknown is not None:
                return _unknown(f"there can be no stub of {unknown}")
            report = self._run(truth=False)
            if report is None:
                return _unknown("a run with stubs did not come to its end")
            failures = self._failures(report)
            if not failures:
                return self._passing(self.asked.among(report))
            if not _are_structural(failures):
                return Findings()
        return _unknown(f"more names are missing than {ROUNDS} runs show")

    def _note(self, failures: Sequence[Failure | None]) -> str | None:
        """Note what is missing; the name for which nothing more can be done, None if there is none."""
        found = set()
        for failure in filter(None, failures):
            gap = gap_of(failure, sources=self.asked.sources, read=self._read)
            if gap is None or gap in self.gaps:
                return failure.missing_name or f"what is not implemented in {failure.path}"
            found.add(gap)
        self.gaps |= found
        return None

    def _read(self, path: str) -> str | None:
        """The text of a file in the copy, without stubs."""
        text = self.texts.get(path)
        if text is not None:
            return text
        try:
            return Beneath(self.copy.root.resolve()).read(path).decode("utf-8", "surrogateescape")
        except OSError:
            return None

    def _run(self, *, truth: bool) -> SuiteReport | None:
        """What the new tests say with stubs for all that is missing."""
        for path in sorted({gap.path for gap in self.gaps}):
            text = self.texts.setdefault(path, self._read(path))
            made = filled(text, sorted(gap.name for gap in self.gaps if gap.path == path), truth=truth)
            Beneath(self.copy.root.resolve()).write(path, made.encode("utf-8", "surrogateescape"))
        tests = tuple(dict.fromkeys(map(function_of, self.asked.wanting())))
        purpose = "new tests with stubs of what is missing"
        return self.runs.run(self.copy, purpose, tests=tests, is_altered=True).report

    def _failures(self, report: SuiteReport) -> tuple[Failure | None, ...]:
        """Why new tests do not pass here; empty if there are some, and all pass."""
        new = self.asked.among(report)
        errors = tuple(error.failure for error in report.collect_errors)
        bad = errors + tuple(case.failure for case in new if case.outcome != "passed")
        return bad if new or bad else (None,)

    def _passing(self, new: Sequence[Case]) -> Findings:
        """The refusal of tests that pass with stubs whose answer is no, if they also do where it is yes."""
        if any(asks_by_kind(self._read(case.nodeid.partition("::")[0]), case.nodeid) for case in new):
            return Findings()
        report = self._run(truth=True)
        if report is None:
            return _unknown("a run with stubs did not come to its end")
        if self._failures(report):
            return Findings()
        names = [case.nodeid for case in new]
        who = f"{names[0]} passes" if len(names) == 1 else f"All {len(names)} new tests, {_listed(names)}, pass"
        message = (
            f"{who} with a stub of {_listed([gap.what for gap in sorted(self.gaps)])} that does nothing, so that "
            "any code of that name would do. Assert what the code is to return, raise or change, and nothing that "
            "holds without it."
        )
        return Findings(reasons=(Reason(code="vacuous_test", nodeid=names[0], message=message),))


def asks_by_kind(source: str | None, nodeid: str) -> bool:
    """Whether a test asks what kind of thing it got, or what it is not: with a stub it may pass by chance."""
    name = function_of(nodeid).rpartition("::")[2]
    tree = parse(source)
    functions = ast.walk(tree) if tree is not None else ()
    inner = [node for each in functions if isinstance(each, Function) and each.name == name for node in ast.walk(each)]
    names = {node.id for node in inner if isinstance(node, ast.Name)}
    names |= {node.attr for node in inner if isinstance(node, ast.Attribute)}
    return not names.isdisjoint(_BY_KIND) or any(isinstance(node, ast.IsNot) for node in inner)


def _are_structural(failures: Sequence[Failure | None]) -> bool:
    """Whether there are some, all for want of a name, so that no test has judged anything."""
    kinds = [failure and kind_inside(failure) for failure in failures]
    return bool(kinds) and all(kind in STRUCTURAL for kind in kinds)


def _unknown(why: str) -> Findings:
    return Findings(notices=(f"Not checked whether the new tests judge any code: {why}.",))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
