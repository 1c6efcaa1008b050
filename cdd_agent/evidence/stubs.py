"""Check whether new tests that fail because names are missing would fail on code that does nothing or answers wrongly.

The tests run again with a stub in place of each missing name. Tests that pass whatever the stubs answer would pass with
any code of that name, so they prove nothing. The functions up to ``add_stubs`` are pure: they find the missing names
and write the stubs. The stub's class comes from ``testrun/inside/inert.py`` and runs on the project's Python, 3.8 or
later.
"""

import ast
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from cdd_agent.evidence.assertions import fail_when_asserting, find_awaited_names
from cdd_agent.evidence.clean_copy import Findings, list_test_functions, note, refuse
from cdd_agent.evidence.mutation import TimedRuns, TimeUp, find_obstacle, report_unverified
from cdd_agent.evidence.source import (
    list_definitions,
    list_functions,
    list_lines,
    name_definitions,
    read_imports,
    read_last_name,
)
from cdd_agent.git.runner import GitError
from cdd_agent.testrun.inside import inert
from cdd_agent.testrun.suite import Suite, list_modules
from cdd_agent.untrusted.python_source import decode, parse, with_deep_stack
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.comparison import is_inside, strip_parameters
from pytest_tdd_agent.failure import BEHAVIORAL, STRUCTURAL, find_effective_kind
from pytest_tdd_agent.report import Case, Clause, Failure, SuiteReport, list_failing
from pytest_tdd_agent.sources import encode_source

Read: TypeAlias = Callable[[str], str | None]
"""Reads a file, relative to the project. Returns None if it does not exist."""

_ROOTS = ("", "src/", "lib/")


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """One missing name, or one that only raises NotImplementedError."""

    path: str
    name: str
    """The name in the module, dotted inside a class. Empty: the module itself is missing."""

    @property
    def what(self) -> str | Clause:
        """The name and the module, or the module."""
        return Clause("name_in_module", {"name": self.name, "path": self.path}) if self.name else self.path


def find_gap(failure: Failure, *, sources: Sequence[str], read: Read) -> Gap | None:
    """Return the gap that causes a failure, or None if it is unknown or outside the project.

    ``sources``: the files of the work item, which may not exist yet.
    """
    missing = failure.missing_name or ""
    match find_effective_kind(failure):
        case "missing_module":
            path = _find_absent(missing, sources, read=read) or _find_in_package(missing, sources, read=read)
            return Gap(path, "") if path else None
        case "import_error" | "attribute_error":
            path = _find_absent(missing, sources, read=read, is_whole=True)
            return Gap(path, "") if path else _split_name(missing, sources, read=read)
        case "signature_mismatch":
            gap = _split_name(missing, sources, read=read)
            return gap and _find_definition(gap, text=read(gap.path))
        case "name_error" if failure.origin == "project" and failure.path and missing.isidentifier():
            return Gap(failure.path, missing)
        case "not_implemented" if failure.origin == "project" and failure.path and failure.line:
            name = ".".join(_find_definitions_at(parse(read(failure.path)), failure.line))
            return Gap(failure.path, _choose_callable(name)) if name else None
        case _:
            return None


def _find_absent(module: str, sources: Sequence[str], *, read: Read, is_whole: bool = False) -> str | None:
    """Return the missing source of this module or, unless ``is_whole``, of one in this package."""
    absent = {source: list_modules((source,)) for source in sources if read(source) is None}
    exact = (source for source, names in absent.items() if module in names)
    inside = (source for source, names in absent.items() if any(name.startswith(f"{module}.") for name in names))
    return next(exact, None) or (None if is_whole else next(inside, None))


def _find_in_package(module: str, sources: Sequence[str], *, read: Read) -> str | None:
    package, _, name = module.rpartition(".")
    file = _find_file(package, sources, read=read) if package else None
    if file is None or not file.endswith("/__init__.py"):
        return None
    path = file.removesuffix("__init__.py") + f"{name}.py"
    return path if read(path) is None else None


def _split_name(missing: str, sources: Sequence[str], *, read: Read) -> Gap | None:
    """Split a dotted name into the longest module that exists and a name in it."""
    parts = missing.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for end in range(len(parts) - 1, 0, -1):
        file = _find_file(".".join(parts[:end]), sources, read=read)
        if file is not None:
            return Gap(file, ".".join(parts[end:]))
    return None


def _find_file(module: str, sources: Sequence[str], *, read: Read) -> str | None:
    path = module.replace(".", "/")
    own = [source for source in sources if module in list_modules((source,))]
    usual = [f"{root}{path}{end}" for root in _ROOTS for end in (".py", "/__init__.py")]
    return next((file for file in (*own, *usual) if read(file) is not None), None)


def _find_definition(gap: Gap, *, text: str | None) -> Gap | None:
    """Return the function or class that a call does not fit. The name may end in a keyword of the call."""
    scope: ast.AST | None = parse(text)
    names: list[str] = []
    for part in gap.name.split("."):
        scope = next((node for node in list_definitions(scope) if node.name == part), None)
        if scope is None:
            break
        names.append(part)
    return Gap(gap.path, _choose_callable(".".join(names))) if names else None


def _find_definitions_at(tree: ast.AST | None, line: int) -> list[str]:
    for node in list_definitions(tree):
        if line in list_lines(node):
            return [node.name, *_find_definitions_at(node, line)]
    return []


def _choose_callable(name: str) -> str:
    # Python looks up special methods on the class, so only a stub of the whole class can replace one.
    owner, _, last = name.rpartition(".")
    return owner if owner and last.startswith("__") and last.endswith("__") else name


# The stub's code runs in a scope of its own. Otherwise its names would replace those of the module.
_MAKE = """

_cdd_scope = {{"__name__": "stub"}}
exec({source!r}, _cdd_scope)
_cdd_scope["LATER"].update({later!r})
_cdd_stub = _cdd_scope["Stub"]
"""
# Python itself asks modules for names such as __path__, and a stub would be a wrong answer.
_ANY_NAME = """

def __getattr__(name):
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    return globals().setdefault(name, _cdd_stub(name, {arguments}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stubs:
    """The behavior of stubs, as explained in ``inert.py``."""

    truth: bool = False
    answer: tuple[object, ...] = ()
    acts: bool = False

    @property
    def arguments(self) -> str:
        """The arguments that make such a stub, as source."""
        return f"{self.truth}, answer={self.answer!r}, acts={self.acts}"


def list_answers(tests: Sequence[ast.AST]) -> tuple[Stubs, ...]:
    """Return stubs that answer wrongly, with values of the types that the tests compare with.

    First come values that no test names, then the empty value and those that the tests name: to be unequal to one of
    these is no wrong answer.
    """
    values = _list_compared(tests)
    types = list(dict.fromkeys(map(type, values)))[:_MOST_TYPES] or [int, str]
    found = [wrong for kind in types for wrong in _WRONG if type(wrong) is kind and wrong not in values]
    return _make_stubs([*found, types[0](), *values])


def list_answers_of_types(tests: Sequence[ast.AST]) -> tuple[tuple[Stubs, ...], ...]:
    """Return stubs that answer with wrong values of the right type, for each type for which the tests ask."""
    nodes = [node for tree in tests for node in ast.walk(tree)]
    values, found = _list_compared(tests), dict[str, tuple[Stubs, ...]]()
    for name in dict.fromkeys(name for node in nodes for name in _list_types(node)):
        own = [value for value in (*_WRONG, *values) if type(value).__name__ == name]
        found[name] = _make_stubs([*(value for value in own if value not in values), type(own[0])(), *own])
    return tuple(found.values())[:_MOST_TYPES]


def _list_compared(tests: Sequence[ast.AST]) -> list[object]:
    compared = (node for tree in tests for node in ast.walk(tree) if isinstance(node, ast.Compare))
    return [value for node in compared for part in (node.left, *node.comparators) for value in _read_value(part)]


def _make_stubs(values: Iterable[object]) -> tuple[Stubs, ...]:
    return tuple({repr(value): Stubs(answer=(value,)) for value in values}.values())[:_MOST_ANSWERS]


def _list_types(node: ast.AST) -> Iterator[str]:
    """Yield the simple types for which an expression asks, or any type if it asks for an attribute."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, types]):
            asked = [types]
        case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=types):
            asked = types
        case ast.Call(func=ast.Name(id="hasattr" | "callable"), args=[ast.Call(), *_]):
            yield "int"
            return
        case _:
            return
    names = [read_last_name(each) for part in asked for each in ast.walk(part)]
    simple = [_ABSTRACT.get(name, name) for name in names]
    yield from (name for name in simple if name in {type(value).__name__ for value in _WRONG})


def _read_value(part: ast.expr) -> tuple[object, ...]:
    try:
        value = ast.literal_eval(repr(ast.literal_eval(part)))
        return (value,) if type(value) in map(type, _WRONG) else ()
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ()


def quote_texts(tests: Iterable[ast.Module]) -> str:
    """Return the texts in tests as comments, so that a test finds what it looks for in the source."""
    nodes = (node for tree in tests for node in ast.walk(tree))
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return "".join(f"# {line}\n" for text in dict.fromkeys(texts) for line in text.splitlines() if line.isprintable())


def add_stubs(text: str | None, names: Iterable[str], *, stubs: Stubs, later: Collection[str] = ()) -> str:
    """Add stubs of these names to a module's source. A missing module (None) gets a stub for any name.

    ``later``: the last names of functions that return coroutines.
    """
    filled = (text or "") + _MAKE.format(source=Path(inert.__file__).read_text(encoding="utf-8"), later=sorted(later))
    if text is None:
        filled += _ANY_NAME.format(arguments=stubs.arguments)
    for name in names:
        if name:
            filled += f"{name} = _cdd_stub({name.rpartition('.')[2]!r}, {stubs.arguments})\n"
    return filled


ROUNDS = 5
_MOST_TYPES = 2
_MOST_ANSWERS = 6
_WORD = "cdd-wrong"
_WRONG: tuple[object, ...] = (
    1009,
    -1009,
    1009.5,
    -1009.5,
    _WORD,
    _WORD.encode(),
    False,
    True,
    [_WORD],
    (_WORD,),
    {_WORD: _WORD},
    {_WORD},
)
"""Wrong answers of each type."""
_ABSTRACT = {"Mapping": "dict", "Sequence": "list", "Iterable": "list", "Collection": "list", "Number": "int"}
"""Abstract type -> a type that fits it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTests:
    """The new tests of a RED with an open gate. Paths and node ids are relative to the project."""

    report: SuiteReport
    baseline: SuiteReport
    sources: tuple[str, ...]
    tree: str

    @property
    def newly_failing(self) -> tuple[str, ...]:
        """The tests that fail now but did not before, and files that can no longer be collected."""
        old = set(list_failing(self.baseline))
        return tuple(nodeid for nodeid in list_failing(self.report) if nodeid not in old)

    @property
    def failures(self) -> tuple[Failure | None, ...]:
        """The failures of these tests."""
        new = self.newly_failing
        errors = tuple(error.failure for error in self.report.collect_errors if error.nodeid in new)
        return errors + tuple(case.failure for case in self.report.tests if case.nodeid in new)

    def select(self, report: SuiteReport) -> tuple[Case, ...]:
        """Return these tests in another report. If a file could not be collected, all its new tests count."""
        newly_failing = self.newly_failing
        functions = set(map(strip_parameters, newly_failing))
        known = {case.nodeid for case in self.baseline.tests}

        def is_new(nodeid: str) -> bool:
            return nodeid not in known and any(is_inside(nodeid, failing) for failing in newly_failing)

        return tuple(case for case in report.tests if strip_parameters(case.nodeid) in functions or is_new(case.nodeid))


@with_deep_stack
def find_wanted_names(new: NewTests, *, root: Path) -> set[Gap]:
    """Return the missing names that assertions look up by a text, as in ``assert hasattr(calc, "add")``.

    ``root`` is the folder of the project.
    """
    read, found = partial(_read_file, ConfinedFolder(root.resolve())), set[Gap]()
    for tree in _parse_tests(new, read=read):
        imported = read_imports(tree)
        asserted = (node for each in ast.walk(tree) if isinstance(each, ast.Assert) for node in ast.walk(each))
        for where, text in _list_questions(asserted):
            owners = {imported[node.id] for node in where if isinstance(node, ast.Name) and node.id in imported}
            for owner in sorted(owners):
                gap = _split_name(f"{owner}.{text}", new.sources, read=read)
                known = name_definitions(parse(read(gap.path))) if gap is not None else ()
                if gap is not None and gap.name not in (name for name, _ in known):
                    found.add(gap)
    return found


def _list_questions(nodes: Iterable[ast.AST]) -> Iterator[tuple[list[ast.AST], str]]:
    """Yield where a text is looked up, and the text: as an argument beside an object, or with ``in``."""
    for node in nodes:
        match node:
            case ast.Call(args=[*_, ast.Constant(value=str(text))] | [_, ast.Constant(value=str(text)), _]):
                yield [*node.args], text
            case ast.Compare(left=ast.Constant(value=str(text)), ops=[ast.In() | ast.NotIn()], comparators=[where]):
                yield [*ast.walk(where)], text


def _read_file(files: ConfinedFolder, path: str) -> str | None:
    try:
        return decode(files.read(path))
    except OSError:
        return None


def _parse_tests(new: NewTests, *, read: Read) -> list[ast.Module]:
    files = dict.fromkeys(nodeid.partition("::")[0] for nodeid in new.newly_failing)
    return [tree for tree in map(parse, map(read, files)) if tree is not None]


def check_new_tests(new: NewTests, *, runs: TimedRuns) -> Findings:
    """Refuse new tests that all pass with stubs. Return a notice if this could not be checked.

    A finding says so if they fail there. Usually one run is enough, because some test fails with the stubs. Only Python
    projects are checked. Work tree, index and history stay unchanged.
    """
    if not runs.suite.conventions.is_python or not runs.limit_s:
        return Findings()
    gaps = set() if _are_structural(new.failures) else find_wanted_names(new, root=runs.suite.root)
    if not gaps and not _are_structural(new.failures):
        return Findings()
    runs.spent.quickest_s = new.report.duration_s
    try:
        with runs.copy(green=new.tree, red=new.tree) as copy:
            check = _StubCheck(new=new, copy=copy, runs=runs, gaps=gaps)
            findings = check.run()
            findings = findings if findings.reasons else check.judge_empty_results() or findings
            check.restore()
    except TimeUp as error:
        return report_unverified("stubs", error)
    except (GitError, OSError) as error:
        return _undecided(find_obstacle(error))
    return findings if findings != Findings() else runs.confirm("stubs", "fails_with_stubs", gaps=check.shown_gaps)


@dataclass(kw_only=True)
class _StubCheck:
    """A clean copy that gets a stub for each missing name as it appears."""

    new: NewTests
    copy: Suite
    runs: TimedRuns
    gaps: set[Gap]
    texts: dict[str, str | None] = field(default_factory=dict)
    """Module with stubs -> its text without them. None: it did not exist."""

    @property
    def shown_gaps(self) -> tuple[str | Clause, ...]:
        """The names of the stubs."""
        return tuple(gap.what for gap in sorted(self.gaps))

    def run(self) -> Findings:
        """Add stubs and run the tests until they pass, fail otherwise, or no stub is left to add."""
        failures = () if self.gaps else self.new.failures
        tests = _parse_tests(self.new, read=self._read)
        of_types = list_answers_of_types(self._select_code(tests))
        answers = of_types[0] if of_types else list_answers(tests)
        for _ in range(ROUNDS):
            obstacle = self._add_gaps(failures)
            if obstacle is not None:
                return _undecided(Clause("no_stub", {"name": obstacle}))
            report = self._run_tests(answers[0])
            if report is None:
                return _undecided(Clause("stubs_did_not_end"))
            failures = self._find_failures(report)
            if not _are_structural(failures):
                is_usable = not failures or _has_judgment(failures)
                return (
                    self._judge_types(of_types, failures) if of_types and is_usable else self._judge(answers, failures)
                )
        return _undecided(Clause("many_gaps", {"rounds": ROUNDS}))

    def judge_empty_results(self) -> Findings | None:
        """Refuse tests that run no assertion if all results are empty. Return None for others."""
        files = ConfinedFolder(self.copy.root.resolve())
        names = {strip_parameters(nodeid).rpartition("::")[2] for nodeid in self.new.newly_failing}
        paths = dict.fromkeys(nodeid.partition("::")[0] for nodeid in self.new.newly_failing)
        texts = {path: self._read(path) or "" for path in paths}
        if any("::" not in nodeid for nodeid in self.new.newly_failing):
            functions = [each for tree in map(parse, texts.values()) if tree for each in list_functions(tree)]
            names |= {each.name for each in functions if each.name.startswith("test")}
        failing = {
            path: fail_when_asserting(text, names, is_harmless=self._is_harmless) for path, text in texts.items()
        }
        if not self.gaps or None in failing.values():
            return None
        try:
            for path, text in failing.items():
                files.write(path, encode_source(text or ""))
            # Code that acts runs assertions of what should not happen, such as those about log messages.
            for stubs in (Stubs(), Stubs(acts=True)):
                report = self._run_tests(stubs)
                if report is None or self._find_failures(report):
                    return None
                listed = [case.nodeid for case in self.new.select(report)]
        finally:
            for path, text in texts.items():
                files.write(path, encode_source(text))
        tests = tuple(listed)
        return refuse("vacuous_test", "asserts_nothing", nodeid=tests[0], tests=tests, gaps=self.shown_gaps)

    def _is_harmless(self, name: str) -> bool:
        """Return whether an imported name belongs to the standard library or to the product."""
        top, is_test = name.partition(".")[0], self.copy.conventions.is_test
        modules = [name.rpartition(".")[0], name]
        paths = [path for each in modules if (path := _find_file(each, self.new.sources, read=self._read)) is not None]
        missing = set(list_modules(tuple(gap.path for gap in self.gaps)))
        return top in sys.stdlib_module_names or bool(missing & {*modules}) or any(not is_test(path) for path in paths)

    def _select_code(self, tests: Iterable[ast.Module]) -> list[ast.AST]:
        """Return the new tests and the helper functions of their files."""
        names = {nodeid.partition("[")[0].rpartition("::")[2] for nodeid in self.new.newly_failing}
        found = [each for tree in tests for each in list_functions(tree)]
        # A file that cannot be imported fails as a whole, and all of its tests are new.
        is_whole = any("::" not in nodeid for nodeid in self.new.newly_failing)
        return [each for each in found if is_whole or each.name in names or not each.name.startswith("test")]

    def restore(self) -> None:
        """Take the stubs out of the modules that existed, so that other checks can use the copy."""
        files = ConfinedFolder(self.copy.root.resolve())
        for path, text in self.texts.items():
            if text is not None:
                files.write(path, encode_source(text))

    def _add_gaps(self, failures: Sequence[Failure | None]) -> str | Clause | None:
        """Add the gaps behind ``failures``, or return a missing name that no new stub can provide."""
        gaps = set()
        for failure in filter(None, failures):
            gap = find_gap(failure, sources=self.new.sources, read=self._read)
            if gap is None or gap in self.gaps:
                return failure.missing_name or Clause("unimplemented", {"path": failure.path or ""})
            gaps.add(gap)
        self.gaps |= gaps
        return None

    def _read(self, path: str) -> str | None:
        text = self.texts.get(path)
        return text if text is not None else _read_file(ConfinedFolder(self.copy.root.resolve()), path)

    def _run_tests(self, stubs: Stubs) -> SuiteReport | None:
        tests = _parse_tests(self.new, read=self._read)
        later = find_awaited_names(tests)
        for path in sorted({gap.path for gap in self.gaps}):
            text = self.texts.setdefault(path, self._read(path))
            names = sorted(gap.name for gap in self.gaps if gap.path == path)
            filled = add_stubs(text, names, stubs=stubs, later=later) + quote_texts(tests)
            ConfinedFolder(self.copy.root.resolve()).write(path, encode_source(filled))
        functions = list_test_functions(self.new.newly_failing)
        # A loop that waits for a stub may never end, so the run gets the short time of altered code.
        return self.runs.run(self.copy, "new tests with stubs", tests=functions, is_altered=True).report

    def _find_failures(self, report: SuiteReport) -> tuple[Failure | None, ...]:
        """Return the failures of the new tests. Empty only if there are new tests, and all pass."""
        new = self.new.select(report)
        errors = tuple(error.failure for error in report.collect_errors)
        failures = errors + tuple(case.failure for case in new if case.outcome != "passed")
        return failures if new or failures else (None,)

    def _judge(self, answers: Sequence[Stubs], failures: Sequence[Failure | None]) -> Findings:
        """Refuse tests that pass whatever the stubs answer, or with stubs that do nothing if they can use no answer.

        ``failures`` are those with the first answer.
        """
        tried = Clause("stub_answers", {"answers": " or ".join(repr(stubs.answer[0]) for stubs in answers)})
        what, others = (Clause("stub_is_idle"), (Stubs(),)) if failures else (tried, answers[1:])
        names: list[str] = []
        for stubs in (*others, Stubs(answer=(None,)), Stubs(truth=True)):
            # A test that cannot use an answer of some type judges nothing by that.
            if _has_judgment(failures):
                return Findings()
            report = self._run_tests(stubs)
            if report is None:
                return _undecided(Clause("stubs_did_not_end"))
            failures = self._find_failures(report)
            if failures and not stubs.answer:
                return Findings()
            names = [case.nodeid for case in self.new.select(report)]
        return self._refuse(names, what, acting=Stubs(truth=True, acts=True))

    def _judge_types(self, of_types: Sequence[Sequence[Stubs]], failures: Sequence[Failure | None]) -> Findings:
        """Refuse tests that ask for a type, and pass with all values of it. ``failures`` are those with the first."""
        for answers in of_types:
            names: list[str] = []
            for stubs in answers:
                if stubs is not of_types[0][0]:
                    report = self._run_tests(stubs)
                    if report is None:
                        return _undecided(Clause("stubs_did_not_end"))
                    failures = self._find_failures(report)
                    names = [case.nodeid for case in self.new.select(report)]
                if failures:
                    break
            else:
                what = Clause("stub_type", {"type": type(answers[0].answer[0]).__name__})
                return self._refuse(names, what, acting=replace(answers[0], acts=True))
        return Findings()

    def _refuse(self, names: Sequence[str], what: Clause, *, acting: Stubs) -> Findings:
        """Refuse the tests, unless they fail with ``acting``, a stub that has effects."""
        who = Clause("one_passes" if len(names) == 1 else "all_new_pass", {"count": len(names), "tests": tuple(names)})
        report = self._run_tests(acting)
        if report is not None and self._find_failures(report):
            return note("stubs", "passes_when_idle", outcome="noted", who=who)
        return refuse("vacuous_test", nodeid=names[0], who=who, gaps=self.shown_gaps, what=what)


def _has_judgment(failures: Sequence[Failure | None]) -> bool:
    return any(failure is not None and failure.kind in BEHAVIORAL for failure in failures)


def _are_structural(failures: Sequence[Failure | None]) -> bool:
    kinds = [failure and find_effective_kind(failure) for failure in failures]
    return bool(kinds) and all(kind in STRUCTURAL for kind in kinds)


def _undecided(why: Clause) -> Findings:
    return note("stubs", "stubs_undecided", why=why)
