"""Decide whether to believe an open GREEN gate: check the changed code first, then run tests in a clean copy.

Code is suspicious if it deceives the process that tests it and no product needs it. A kind of code that the product had
before the change is accepted: a pytest plugin, for example, imports pytest.

In the copy, the targets run between canaries: tests with a known result. One passes, the other fails with a random
word. Code that forges the report, or changes which tests pass, does not know them. Two files of canaries run before
and after the targets in the same process. If the targets pass there too, they must fail on altered code.
"""

import ast
import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from cdd_agent.errors import join_first
from cdd_agent.events import Notice
from cdd_agent.evidence import mutation
from cdd_agent.evidence.clean_copy import (
    PYTHON,
    CheckRequest,
    Findings,
    ProductChange,
    copy_ignored_files,
    explain_failure,
    find_not_passing,
    is_python,
    list_test_functions,
    note,
    refuse,
)
from cdd_agent.evidence.literals import (
    Function,
    find_docstrings,
    find_special_cases,
    list_functions,
    list_lines,
    parse,
    read_imports,
    resolve_name,
)
from cdd_agent.evidence.mutation import ALL_RAISE, Mutant, Survival, TimedRuns, TimeUp
from cdd_agent.git.runner import GitError
from cdd_agent.testrun.suite import Suite
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.gate import strip_parameters
from pytest_tdd_agent.report import Failure, Reason, SuiteReport

_INSTEAD = {
    "exit": "Return or raise instead. Call sys.exit only in the program's main function.",
    "test_tool": "Use test tools in tests only.",
    "under_test": "Make the product behave the same in tests and in production.",
    "stack": "Pass the information as an argument.",
    "equality": "Compare the values that make two objects equal, and return NotImplemented for other types.",
    "outcome": "Return a value or raise the product's own exception. Only tests decide their outcome.",
    "patch": "Do not change attributes of pytest, unittest or builtins.",
    "descriptor": "Open the file and use the file object.",
    "test_files": "Take the path as an argument. Do not name test files in the product.",
    "trace": "Leave tracing to debuggers and coverage tools.",
}

_TOOLS = frozenset({"pytest", "_pytest", "pluggy", "unittest", "pytest_tdd_agent", "xdist"})
_STACK_CALLS = (
    *("sys._getframe", "sys._current_frames", "inspect.stack", "inspect.currentframe", "inspect.getouterframes"),
    *("traceback.extract_stack", "traceback.walk_stack", "gc.get_objects", "gc.get_referrers"),
)
_CALLS = {
    **dict.fromkeys(("os._exit", "os.abort"), "exit"),
    **dict.fromkeys(_STACK_CALLS, "stack"),
    **dict.fromkeys(("sys.settrace", "sys.setprofile", "threading.settrace", "threading.setprofile"), "trace"),
}
_OUTCOMES = re.compile(r"(_?pytest(\.outcomes)?\.(skip|xfail|exit|fail|importorskip)|unittest(\.case)?\.SkipTest)")
_TEST_PATH = re.compile(r"(^|/)tests?/|(^|/)test_\w+\.py$|(^|/)conftest\.py$")
_OPENERS = re.compile(r"(^|\.)(open|fdopen|Path|read_text|read_bytes|glob|rglob|listdir|scandir|walk)$")
_TEXTS = {
    "test_files": (r"tdd[-_]agent", "{!r} names the report of the tests"),
    "under_test": (
        r"\A(PYTEST_(CURRENT_TEST|VERSION|XDIST_\w+|ADDOPTS)|TDD_AGENT\w*)\Z",
        "the variable {} reveals that a test is running",
    ),
    "descriptor": (r"/(proc/self|dev)/fd\b", "{!r} reaches the open files of the process"),
}
"""Kind -> pattern of a text, and what the text does."""
_FD_CALLS = frozenset({"os.write", "os.fdopen", "open", "os.closerange", "os.close", "os.pwrite", "os.ftruncate"})
_FD_PROBES = frozenset({"os.fstat", "os.dup", "os.lseek"})
_EQUAL_FOR_ALL = {"__eq__": (True, False), "__ne__": (True, False), "__contains__": (True,)}
_STATED = {
    "test_tool": r"pytest|_pytest|unittest|pluggy|xdist|plugins?|fixtures?",
    "stack": r"(sys\.)?_getframe|_current_frames|(inspect\.)?currentframe|(call )?stacks?|frames?|traceback",
    "trace": r"tracers?|traces?|tracing|settrace|profil(e|es|er|ers|ing)|coverage|debuggers?",
    "exit": r"(os\.)?_exit|(os\.)?forks?|(os\.)?abort|daemons?|child process(es)?",
}
"""Kind of code -> the words in a step that ask for it."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One suspicious line."""

    line: int
    kind: str
    what: str


def find_suspicious_code(request: CheckRequest) -> Findings:
    """Refuse each suspicious line, except kinds that the product had before the change."""
    reasons: list[Reason] = []
    known: set[str] | None = None
    for change in filter(is_python, request.changes):
        for suspicion in _find_new(change, stated=request.stated):
            if known is None:
                known = {old.kind for text in request.elsewhere() for old in find_suspicions(text)}
            if suspicion.kind not in known:
                message = f"{change.path}:{suspicion.line}: {suspicion.what}. {_INSTEAD[suspicion.kind]}"
                reasons.append(Reason(code="suspicious_code", nodeid=None, message=message))
    return Findings(reasons=tuple(dict.fromkeys(reasons)))


def _find_new(change: ProductChange, *, stated: str) -> tuple[Suspicion, ...]:
    before = {old.kind for old in find_suspicions(change.old or "")}
    now = find_suspicions(change.new or "", stated=stated)
    patterns = {kind: rf"(?<!\w)({words})(?!\w)" for kind, words in _STATED.items()}
    requested = {kind for kind, pattern in patterns.items() if re.search(pattern, stated, re.IGNORECASE)}
    return tuple(each for each in now if each.kind not in before | requested)


def find_suspicions(text: str, *, stated: str = "") -> tuple[Suspicion, ...]:
    """Return the suspicious lines of a source in order. There are none if it cannot be parsed."""
    tree = parse(text)
    if tree is None:
        return ()
    names = read_imports(tree)
    prose = find_docstrings(tree)
    forking = _find_forking_lines(tree, names)
    found: list[Suspicion] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found += _check_import(node)
        elif isinstance(node, ast.Call):
            found += _check_call(node, names, stated=stated)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
            found += _check_assignment(node, names)
        elif isinstance(node, ast.ClassDef):
            found += _check_class(node)
        elif isinstance(node, ast.Constant) and id(node) not in prose:
            found += _check_text(node)
        elif isinstance(node, (ast.Compare, ast.Subscript)):
            found += _check_lookup(node, names)
        elif isinstance(node, ast.Attribute) and node.attr in ("f_back", "tb_frame"):
            found.append(Suspicion(node.lineno, "stack", f"{node.attr} inspects the caller's frames"))
        elif isinstance(node, ast.For):
            found += _check_loop(node, names)
    # A forked child process must end with os._exit.
    suspicious = (each for each in found if not (each.kind == "exit" and each.line in forking))
    return tuple(sorted(dict.fromkeys(suspicious), key=lambda each: each.line))


def _check_import(node: ast.Import | ast.ImportFrom) -> Iterator[Suspicion]:
    relative = isinstance(node, ast.ImportFrom) and node.level
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    for module in modules:
        if not relative and module.partition(".")[0] in _TOOLS:
            yield Suspicion(node.lineno, "test_tool", f"the product imports {module}")


def _check_call(node: ast.Call, names: dict[str, str], *, stated: str) -> Iterator[Suspicion]:
    called = resolve_name(node.func, names)
    first = node.args[0] if node.args else None
    if called in _CALLS:
        yield Suspicion(node.lineno, _CALLS[called], f"{called} is called")
    if _OUTCOMES.fullmatch(called):
        yield Suspicion(node.lineno, "outcome", f"{called} is called, which ends a test before it has passed")
    if called in ("importlib.import_module", "__import__") and _is_tool(first):
        yield Suspicion(node.lineno, "test_tool", "the product imports a test tool")
    if called in ("setattr", "delattr") and first is not None and _is_machinery(resolve_name(first, names)):
        yield Suspicion(node.lineno, "patch", f"an attribute of {resolve_name(first, names)} is replaced")
    is_number = isinstance(first, ast.Constant) and type(first.value) is int
    if called in _FD_CALLS and is_number and int(getattr(first, "value", 0)) >= 3:
        yield Suspicion(node.lineno, "descriptor", f"{called} is called with the number of a file descriptor")
    if _OPENERS.search(called or getattr(node.func, "attr", "")):
        for word in (inner for argument in node.args for inner in ast.walk(argument)):
            text = _read_text(word)
            if _TEST_PATH.search(text) and text not in stated:
                yield Suspicion(node.lineno, "test_files", f"the product names {text!r}")


def _read_text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_tool(node: ast.expr | None) -> bool:
    return _read_text(node).partition(".")[0] in _TOOLS


def _is_machinery(owner: str) -> bool:
    return owner.partition(".")[0] in (_TOOLS - {"xdist"}) | {"builtins", "__builtins__"}


def _check_assignment(
    node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete, names: dict[str, str]
) -> Iterator[Suspicion]:
    targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
    for target in targets:
        owner = target.value if isinstance(target, (ast.Attribute, ast.Subscript)) else None
        name = resolve_name(owner, names) if owner is not None else ""
        # gettext.install and Python's prompt both set builtins._
        is_underscore = name == "builtins" and isinstance(target, ast.Attribute) and target.attr == "_"
        if name and _is_machinery(name) and not is_underscore:
            yield Suspicion(target.lineno, "patch", f"{ast.unparse(target)} is replaced")


def _check_class(node: ast.ClassDef) -> Iterator[Suspicion]:
    """Find comparisons that ignore the other object."""
    constant: dict[str, object] = {}
    for item in node.body:
        match item:
            case ast.FunctionDef(name=name):
                returned = (inner.value for inner in ast.walk(item) if isinstance(inner, ast.Return))
                results = {value.value if isinstance(value, ast.Constant) else None for value in returned}
                if len(results) == 1 and results != {None}:
                    constant[name] = results.pop()
                elif name in ("__eq__", "__ne__") and _ignores_other(item):
                    constant[name] = True
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(body=ast.Constant(value=value))):
                constant[name] = value
    for name, values in _EQUAL_FOR_ALL.items():
        if constant.get(name) in values and name in constant:
            yield Suspicion(node.lineno, "equality", f"{node.name}.{name} ignores the other object")
    true = {name for name, value in constant.items() if value is True}
    if true & {"__lt__", "__le__"} and true & {"__gt__", "__ge__"}:
        yield Suspicion(node.lineno, "equality", f"{node.name} is both less and greater than everything")


def _ignores_other(function: Function) -> bool:
    """Return whether a comparison returns a value without using its second argument."""
    if len(function.args.args) != 2:
        return False
    other = function.args.args[1].arg
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    is_answer = any(not (isinstance(value, ast.Name) and value.id == "NotImplemented") for value in values)
    return is_answer and not any(isinstance(node, ast.Name) and node.id == other for node in ast.walk(function))


def _check_text(node: ast.Constant) -> Iterator[Suspicion]:
    text = _read_text(node)
    for kind, (pattern, what) in _TEXTS.items():
        if re.search(pattern, text):
            yield Suspicion(node.lineno, kind, what.format(text))


def _check_lookup(node: ast.Compare | ast.Subscript, names: dict[str, str]) -> Iterator[Suspicion]:
    """Find lookups of a test tool among the loaded modules or in the command line."""
    parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.value, node.slice]
    inside = {resolve_name(inner, names) for part in parts for inner in ast.walk(part)}
    if inside & {"sys.modules", "sys.argv"} and any(_is_tool(part) for part in parts):
        yield Suspicion(node.lineno, "under_test", f"{ast.unparse(node)} checks whether a test is running")


def _check_loop(node: ast.For, names: dict[str, str]) -> Iterator[Suspicion]:
    is_range = isinstance(node.iter, ast.Call) and resolve_name(node.iter.func, names) == "range"
    if not is_range or not isinstance(node.target, ast.Name):
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and resolve_name(inner.func, names) in _FD_CALLS | _FD_PROBES:
            first = inner.args[0] if inner.args else None
            if isinstance(first, ast.Name) and first.id == node.target.id:
                yield Suspicion(inner.lineno, "descriptor", "file descriptors are tried by their numbers")


def _find_forking_lines(tree: ast.Module, names: dict[str, str]) -> set[int]:
    lines: set[int] = set()
    for function in list_functions(tree):
        calls = (resolve_name(inner.func, names) for inner in ast.walk(function) if isinstance(inner, ast.Call))
        if not {"os.fork", "os.forkpty", "pty.fork"}.isdisjoint(calls):
            lines |= set(list_lines(function))
    return lines


_SOURCE = """\
def {passes}():
    assert {word!r}.upper().lower() == {word!r}


def {fails}():
    assert {word!r}.upper() == {word!r}, {word!r}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One file with two tests."""

    file: str
    passes: str
    fails: str
    word: str


def plant(root: Path, targets: tuple[str, ...]) -> tuple[Canary, Canary] | None:
    """Write two canaries next to the first target, under names like its own, so that pytest collects them.

    Returns None and writes nothing if a link leads from that folder out of ``root``.
    """
    model = next((target for target in targets if target.partition("::")[0].endswith(".py")), "test_it.py::test_it")
    folder = (root / model.partition("::")[0]).parent
    is_free = not os.path.lexists(folder) or folder.is_dir()
    if not is_free or not folder.resolve().is_relative_to(root.resolve()):
        return None
    return _write(root, model), _write(root, model)


def remove(root: Path, canary: Canary) -> None:
    """Delete the file, if it still exists. Whatever the tests put in its place stays."""
    with contextlib.suppress(OSError, ValueError):
        ConfinedFolder(root.resolve()).unlink(_resolve(root, canary.file))


def _write(root: Path, model: str) -> Canary:
    file, _, test = model.partition("::")
    function = test.partition("[")[0].rpartition("::")[2]
    name = function if function.isidentifier() and function.isascii() else "test_it"
    mark, word = (f"w{secrets.token_hex(6)}" for _ in range(2))
    path = PurePosixPath(file).with_name(f"{_insert(PurePosixPath(file).stem, mark)}.py")
    passes, fails = _insert(name, f"{mark}a"), _insert(name, f"{mark}b")
    source = _SOURCE.format(passes=passes, fails=fails, word=word)
    ConfinedFolder(root.resolve()).write(_resolve(root, str(path)), source.encode())
    return Canary(file=str(path), passes=f"{path}::{passes}", fails=f"{path}::{fails}", word=word)


def _resolve(root: Path, path: str) -> str:
    """Return ``path`` below ``root`` without links among its folders. Raises ``ValueError`` if they lead out."""
    resolved = (root / path).parent.resolve() / PurePosixPath(path).name
    return resolved.relative_to(root.resolve()).as_posix()


def _insert(name: str, mark: str) -> str:
    # pytest collects by the beginning and the end of a name, so the mark goes into the middle.
    head, _, tail = name.partition("_")
    return f"{head}_{mark}_{tail}" if tail else f"{name}_{mark}"


def find_misreport(canary: Canary, report: SuiteReport) -> str | None:
    """Describe how the report is wrong about the two tests, or return None if it is right."""
    cases = {case.nodeid: case for case in report.tests}
    passing, failing = cases.get(canary.passes), cases.get(canary.fails)
    if passing is None or failing is None:
        return "a test that ran is not in the report"
    if passing.outcome != "passed":
        return f"a test that passes is reported as {passing.outcome}{_quote_first_line(passing.failure)}"
    if failing.outcome != "failed" or failing.failure is None:
        return f"a test that fails is reported as {failing.outcome}"
    if canary.word not in failing.failure.message:
        return f"a test that fails is reported with another message{_quote_first_line(failing.failure)}"
    return None


def _quote_first_line(failure: Failure | None) -> str:
    lines = failure.message.strip().splitlines() if failure is not None else []
    return f": {lines[0][:200]}" if lines else ""


def confirm(request: CheckRequest, *, runs: TimedRuns) -> Findings:
    """Return the reasons to refuse the change, and the checks that could not be done.

    Tests run only if the code looks honest. Work tree, index and history stay unchanged. The runs end with an event
    that sums them up. Canaries and altered code need Python; every language gets the clean copy.
    """
    findings = Findings()
    for check_source in (find_suspicious_code, find_special_cases):
        try:
            findings += check_source(request)
        except (RecursionError, MemoryError):
            findings += note("Some of the changed code could not be checked: it is nested too deeply.")
    if findings.reasons or not request.targets or not runs.limit_s:
        return findings
    is_python = runs.suite.conventions.is_python
    try:
        with runs.copy(green=request.green, red=request.red) as copy:
            check = _CopyCheck(request=request, runs=runs, copy=copy)
            reproduced, passes = check.reproduce()
            findings += reproduced
            if passes and not findings.reasons and is_python:
                findings += check.alter_code()
    except TimeUp as error:
        findings += note(error.happened)
    except (GitError, OSError) as error:
        findings += note(f"Not checked in a clean copy, because cdd could not create one: {explain_failure(error)}.")
    if findings == Findings() and (runs.noticed if is_python else runs.count):
        altered = f", and fail with {runs.noticed} altered ({runs.count} runs, " if is_python else " ("
        text = f"Checked in a clean copy: the tests pass there too{altered}{runs.spent_s():.1f} s)."
        runs.emit(Notice(text=text))
    return findings


@dataclass(frozen=True, kw_only=True)
class _CopyCheck:
    request: CheckRequest
    runs: TimedRuns
    copy: Suite

    def reproduce(self) -> tuple[Findings, bool]:
        """Run the targets, in Python between canaries. Return the findings, and whether the targets pass."""
        canaries = plant(self.copy.root, self.request.targets) if self._is_python else ()
        files = [canary.file for canary in canaries or ()]
        tests = (*files[:1], *self._select_tests(), *files[1:])
        report = self.runs.run(self.copy, "targets in a clean copy", tests=tests).report
        # Later runs collect all tests and must not find the canaries.
        for canary in canaries or ():
            remove(self.copy.root, canary)
        has_failed = report is None or bool(self._find_failing(report))
        if canaries is None:
            why = "A link leads from the folder of the target tests out of the project, so cdd cannot add known tests"
            return note(f"{why}, and the targets fail in a clean copy." if has_failed else f"{why}."), not has_failed
        misreports = [find_misreport(canary, report) for canary in canaries] if report is not None else []
        if misreport := next(filter(None, misreports), None):
            return self._explain_misreport(misreport), not has_failed
        return (self._explain_failure() if has_failed else Findings()), not has_failed

    def alter_code(self) -> Findings:
        """Run the targets on altered versions of the changed code. At least one run must fail."""
        mutants = mutation.build_mutants([change for change in self.request.changes if self._is_inside(change.path)])
        if not mutants.chosen:
            return note("No altered code was tried: the change has no Python code to alter.")
        altered = [mutant for mutant in mutants.chosen if mutant.how != ALL_RAISE]
        raising = [mutant for mutant in mutants.chosen if mutant.how == ALL_RAISE]
        first = self._try(altered)
        second = Survival() if first.noticed else self._try(raising)
        if noticed := first.noticed or second.noticed:
            self.runs.noticed = noticed.where
            if not (second.noticed and first.all_ended):
                return Findings()
            # Not a refusal: the change may be about what is written or called, or about not raising.
            return note(
                "The targets fail if the changed functions raise, but pass if their results are altered "
                f"({'; '.join(mutant.what for mutant in altered)}). Check that they assert the purpose of the change."
            )
        all_ended = all(outcome.all_ended for outcome, part in ((first, altered), (second, raising)) if part)
        doubt = self._find_doubt(mutants) if all_ended else "a run did not end"
        if doubt is not None:
            return note(f"No target failed when the changed code was altered, but that proves nothing: {doubt}.")
        tried = "; ".join(mutant.what for mutant in mutants.chosen)
        message = (
            f"The targets pass even if the changed code is altered ({tried}). Remove code that no test needs, and "
            "implement the behavior in the code that the targets call."
        )
        return refuse("unproven_change", message)

    @property
    def _is_python(self) -> bool:
        return self.copy.conventions.is_python

    def _select_tests(self) -> tuple[str, ...]:
        """Return the tests to run for the targets. pytest gets functions, because parameters may change."""
        targets = self.request.targets
        return list_test_functions(targets) if self._is_python else targets

    def _find_failing(self, report: SuiteReport) -> tuple[str, ...]:
        return find_not_passing(self.request.targets, report)

    def _explain_misreport(self, misreport: str) -> Findings:
        if not self._do_canaries_work():
            return note(f"cdd cannot add tests with a known result to this project: {misreport}.")
        message = (
            f"Next to the targets, {misreport}. Without the change, the report is right. Find how the change "
            "manipulates the process that tests it, and remove that."
        )
        return refuse("canary_failed", message)

    def _do_canaries_work(self) -> bool:
        red = self.request.red
        with self.runs.copy(green=red, red=red) as copy:
            canaries = plant(copy.root, self.request.targets)
            if canaries is None:
                return False
            files = tuple(canary.file for canary in canaries)
            report = self.runs.run(copy, "known tests without the change", tests=files).report
        return report is not None and all(find_misreport(canary, report) is None for canary in canaries)

    def _explain_failure(self) -> Findings:
        """Refuse the change if only targets fail in the copy. Otherwise the copy lacks something the tests need."""
        run = self.runs.run(self.copy, "all tests in a clean copy")
        if run.report is None and not (self._is_python and self._do_canaries_work()):
            return note(f"The tests cannot run in a clean copy of the tracked files: {run.problem}.")
        failing = self.request.targets if run.report is None else self._find_failing(run.report)
        if run.report is not None:
            passed = (case.nodeid for case in self.request.baseline.tests if case.outcome == "passed")
            lost = find_not_passing([nodeid for nodeid in passed if nodeid not in self.request.targets], run.report)
            if lost:
                count = f"{len(lost)} more fail there, {lost[0]} first"
                return note(f"The tests need more than a clean copy of the tracked files: {count}.")
        if not failing:
            return note("A target failed once in a clean copy, but passed when all tests ran there.")
        failing = tuple(target for target in failing if (self.copy.root / target.partition("::")[0]).exists())
        if not failing:
            return note("Git does not track the target tests, so they cannot run in a clean copy.")
        if need := self._try_ignored_files():
            return note(need)
        why = run.problem if run.report is None else _describe_failure(run.report, failing[0])
        message = (
            f"{failing[0]} passes in the work tree, but not in a clean copy with RED's tests and configuration: {why}. "
            "Make it pass with files that git tracks, without modules that git ignores."
        )
        return refuse("not_reproduced", message, nodeid=failing[0])

    def _try_ignored_files(self) -> str | None:
        copied = copy_ignored_files(self.runs.repository, self.runs.suite.root.resolve(), copy=self.copy.root)
        if copied is None:
            return "The targets fail in a clean copy of the tracked files, and there are too many ignored files to try."
        if not copied:
            return None
        report = self.runs.run(self.copy, "targets with ignored files", tests=self._select_tests()).report
        if report is None or self._find_failing(report):
            return None
        return f"The targets need files that git ignores, some of these: {join_first(copied, most=3)}."

    def _try(self, mutants: Sequence[Mutant]) -> Survival:
        run = partial(mutation.run_mutant, self.copy, tests=self._select_tests(), runs=self.runs)
        return mutation.try_mutants(mutants, run=run, targets=self.request.targets)

    def _is_inside(self, path: str) -> bool:
        # Writing through a link would alter a file outside the copy.
        file = self.copy.root / path
        return file.resolve() == Path(os.path.normpath(file))

    def _find_doubt(self, mutants: mutation.Mutants) -> str | None:
        """Return why surviving mutants prove nothing, or None if they do."""
        changes = self.request.changes
        if any(not change.path.endswith(PYTHON) for change in changes):
            return "the change includes files other than Python sources"
        if not mutants.is_exhaustive or not all(self._is_inside(change.path) for change in changes):
            return "not every changed line was altered"
        texts = dict.fromkeys((path for mutant in mutants.chosen for path in mutant.texts), "raise SystemError\n")
        # Targets that pass on files that cannot be imported use another copy, such as an installed one.
        broken = Mutant(where="changed files", how="cannot be imported", texts=texts)
        run = mutation.run_mutant(self.copy, broken, tests=self._select_tests(), runs=self.runs)
        is_loaded = run.report is None or bool(self._find_failing(run.report))
        return None if is_loaded else "the targets do not load the changed files, or load them from elsewhere"


def _describe_failure(report: SuiteReport, nodeid: str) -> str:
    function = strip_parameters(nodeid)
    tried = [case for case in report.tests if strip_parameters(case.nodeid) == function and case.failure is not None]
    failures = [case.failure for case in sorted(tried, key=lambda case: case.nodeid != nodeid)]
    failures += [error.failure for error in report.collect_errors if nodeid.startswith(error.nodeid)]
    if not failures or failures[0] is None:
        return "it did not run there"
    return f"{failures[0].kind}, {failures[0].exception}{_quote_first_line(failures[0])}"
