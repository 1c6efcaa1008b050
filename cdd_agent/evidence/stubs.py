"""Whether new tests that fail for want of a name judge anything: they run once more with stubs of what is missing.

A test that passes with what does nothing, whatever that answers, would pass with any code of that name.

The stub of a name that is not there yet: everything can be done with it, and nothing comes of it.

The text of this module is put into modules of a clean copy and runs on the project's own Python: it imports nothing
else, and is Python 3.8.

What is not there when a test fails for want of a name: where, under which name, and how it is filled. Pure.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

from cdd_agent.events import Emit
from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.evidence.literals import Function, parse
from cdd_agent.evidence.mutation import Runs, TimeUp, silence
from cdd_agent.evidence.request import Findings
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitError
from cdd_agent.testrun.inside import inert
from cdd_agent.testrun.suite import Suite, modules_of
from cdd_agent.workspace.files import Beneath
from pytest_tdd_agent.comparison import function_of, lies_in
from pytest_tdd_agent.failure import STRUCTURAL, kind_inside
from pytest_tdd_agent.report import Case, Failure, Reason, SuiteReport, failing

Read: TypeAlias = Callable[[str], str | None]
"""A file, relative to the project -> its text; None if there is none."""

_DEFINITION = Function | ast.ClassDef
_ROOTS = ("", "src/", "lib/")


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """One thing that is not there, or only raises that it is not implemented."""

    path: str
    """The module it is missing in, relative to the project."""
    name: str
    """Its name there, dotted if a class has it; empty: the module itself is missing."""

    @property
    def what(self) -> str:
        """How a sentence calls it."""
        return f"{self.name} in {self.path}" if self.name else self.path


def gap_of(failure: Failure, *, sources: Sequence[str], read: Read) -> Gap | None:
    """What has to be filled for a test to get beyond this failure; None if that cannot be told, or it is another's.

    ``sources``: the files that the work item is to bring, which may not be there yet.
    """
    missing = failure.missing_name or ""
    match kind_inside(failure):
        case "missing_module":
            path = _absent(missing, sources, read=read) or _inside_package(missing, sources, read=read)
            return Gap(path, "") if path else None
        case "import_error" | "attribute_error":
            path = _absent(missing, sources, read=read, is_whole=True)
            return Gap(path, "") if path else _in_module(missing, sources, read=read)
        case "signature_mismatch":
            gap = _in_module(missing, sources, read=read)
            return gap and _of_definition(gap, text=read(gap.path))
        case "name_error" if failure.origin == "project" and failure.path and missing.isidentifier():
            return Gap(failure.path, missing)
        case "not_implemented" if failure.origin == "project" and failure.path and failure.line:
            name = ".".join(_definitions_at(parse(read(failure.path)), failure.line))
            return Gap(failure.path, _callable(name)) if name else None
        case _:
            return None


def _absent(module: str, sources: Sequence[str], *, read: Read, is_whole: bool = False) -> str | None:
    """The source that is not there and is this module or, unless ``is_whole``, lies in this package."""
    absent = {source: modules_of((source,)) for source in sources if read(source) is None}
    exact = (source for source, names in absent.items() if module in names)
    inside = (source for source, names in absent.items() if any(name.startswith(f"{module}.") for name in names))
    return next(exact, None) or (None if is_whole else next(inside, None))


def _inside_package(module: str, sources: Sequence[str], *, read: Read) -> str | None:
    """Where a module is to be made that lies in a package that is there."""
    package, _, name = module.rpartition(".")
    home = _home(package, sources, read=read) if package else None
    if home is None or not home.endswith("/__init__.py"):
        return None
    place = home.removesuffix("__init__.py") + f"{name}.py"
    return place if read(place) is None else None


def _in_module(missing: str, sources: Sequence[str], *, read: Read) -> Gap | None:
    """A dotted name told apart into the longest module that is there and a name in it."""
    parts = missing.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for end in range(len(parts) - 1, 0, -1):
        home = _home(".".join(parts[:end]), sources, read=read)
        if home is not None:
            return Gap(home, ".".join(parts[end:]))
    return None


def _home(module: str, sources: Sequence[str], *, read: Read) -> str | None:
    """The file that a module is."""
    path = module.replace(".", "/")
    named = [source for source in sources if module in modules_of((source,))]
    usual = [f"{root}{path}{end}" for root in _ROOTS for end in (".py", "/__init__.py")]
    return next((place for place in (*named, *usual) if read(place) is not None), None)


def _of_definition(gap: Gap, *, text: str | None) -> Gap | None:
    """The function that a call does not fit, or its class; what follows its name is a keyword."""
    scope: ast.AST | None = parse(text)
    found: list[str] = []
    for part in gap.name.split("."):
        scope = next((node for node in _definitions(scope) if node.name == part), None)
        if scope is None:
            break
        found.append(part)
    return Gap(gap.path, _callable(".".join(found))) if found else None


def _definitions_at(tree: ast.AST | None, line: int) -> list[str]:
    """The names of the classes, outermost first, and of the function that a line lies in."""
    for node in _definitions(tree):
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            return [node.name, *_definitions_at(node, line)]
    return []


def _definitions(scope: ast.AST | None) -> Iterator[_DEFINITION]:
    """The functions and classes of a module or a class; those inside of functions are nobody else's."""
    if isinstance(scope, (ast.Module, ast.ClassDef)):
        yield from (node for node in scope.body if isinstance(node, _DEFINITION))


def _callable(name: str) -> str:
    """The class, if the name is that of a method which Python itself calls: a stub of it is no method."""
    owner, _, last = name.rpartition(".")
    return owner if owner and last.startswith("__") and last.endswith("__") else name


_MAKE = """

_cdd_made = {{"__name__": "stub"}}
exec({source!r}, _cdd_made)
_cdd_stub = _cdd_made["Stub"]
"""
_ANY_NAME = """

def __getattr__(name):
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    return globals().setdefault(name, _cdd_stub(name, {truth}))
"""


def filled(text: str | None, names: Iterable[str], *, truth: bool) -> str:
    """The source of a module with stubs under these names; of one that is not there, under whatever name is asked.

    ``truth``: the answer of the stubs to everything.
    """
    made = "" if text is None else text
    made += _MAKE.format(source=_source())
    if text is None:
        made += _ANY_NAME.format(truth=truth)
    for name in names:
        if name:
            made += f"{name} = _cdd_stub({name.rpartition('.')[2]!r}, {truth})\n"
    return made


@cache
def _source() -> str:
    return Path(inert.__file__).read_text(encoding="utf-8")


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
