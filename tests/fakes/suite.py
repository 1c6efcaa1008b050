"""A suite without child processes: small test files run in this process, and answers can be scripted.

``FakeSuite`` imports the test files below its root, calls their functions, and classifies what they raise by the rules
of the plugin. A run takes milliseconds, so rules of the cycle, attempts, recovery and workflows are tested with it.
It knows functions and plain classes, ``skip``, ``xfail`` and ``parametrize``, and the fixtures in ``FIXTURES``.
Whatever else a test file needs (hooks, other fixtures, options, processes that die, time limits) raises
``NotImplementedError``: such a test takes the ``real_project`` fixture instead.
"""

import ast
import configparser
import contextlib
import inspect
import io
import itertools
import os
import re
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

import pytest
from _pytest.assertion.rewrite import rewrite_asserts
from _pytest.outcomes import Skipped

from cdd_agent.sandbox.port import Access, Command, Result, Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.access import Original, build_access, find_protected_tests
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.suite import PYTEST, Cause, Conventions, NoReport, SuiteRun
from pytest_tdd_agent import failure
from pytest_tdd_agent.codec import dump
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS, compute_digests
from pytest_tdd_agent.report import Case, CollectError, Failure, SuiteReport, list_failing

_ONE_AT_A_TIME = threading.RLock()
"""The import system and the working folder belong to the whole process."""

_LIMIT_S = 5


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One run that a suite was asked for."""

    root: Path
    targets: tuple[str, ...]
    keep: Path | None
    timeout_s: float
    is_anew: bool
    sandbox: Sandbox


@dataclass(frozen=True, kw_only=True)
class FakeSuite:
    """The port ``Suite`` over a folder with small test files. Copies of it share ``answers`` and ``asked``."""

    root: Path
    interpreter: Interpreter
    sandbox: Sandbox = field(default_factory=PlainSandbox)
    timeout_s: float = 60
    seconds_per_test: float | None = None
    conventions: Conventions = PYTEST
    is_anew: bool = False
    original: Original | None = None
    setup: str = ""
    answers: list[SuiteRun | BaseException | Callable[[Path], None] | None] = field(default_factory=list)
    """What the next runs return (``SuiteRun``), raise, or do first to the folder; None runs the tests as they are."""
    asked: list[Asked] = field(default_factory=list)

    @property
    def command(self) -> str:
        """What a person types to run all tests."""
        return f"{self.interpreter.path} -m pytest"

    @property
    def signature(self) -> tuple[str, ...] | None:
        """The command: a run in this process sees only the project. None if answers are scripted."""
        return None if self.answers else ("fake", self.command)

    @property
    def variables(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def with_root(self, root: Path, *, reads: tuple[Path, ...] = ()) -> "FakeSuite":
        """Return the same tests in a copy of the project."""
        original = None if self.original is None else replace(self.original, git=None)
        return replace(self, root=root, original=original)

    def in_run_tree(self, root: Path, *, original: Original) -> "FakeSuite":
        """Return the same tests in a run tree."""
        return replace(self, root=root, original=original)

    def without_cache(self) -> "FakeSuite":
        """Return the same tests; ``asked`` tells that they were to be compiled anew."""
        return replace(self, is_anew=True)

    def with_timeout(self, timeout_s: float) -> "FakeSuite":
        """Return the same tests; ``asked`` tells the time limit."""
        return replace(self, timeout_s=timeout_s)

    def with_test_limit(self, seconds: float | None) -> "FakeSuite":
        """Return the same tests; ``seconds_per_test`` tells the time limit."""
        return replace(self, seconds_per_test=seconds)

    def with_tracing(self) -> "FakeSuite":
        return self

    def with_sandbox(self, sandbox: Sandbox) -> "FakeSuite":
        """Return the same tests with another sandbox."""
        return replace(self, sandbox=sandbox)

    def build_access(self, *, locked: tuple[Path, ...] = (), tests_too: bool = False) -> Access:
        """Return what the real suite returns."""
        tests = find_protected_tests(self.root) if tests_too else ()
        return build_access(self.root, self.interpreter, locked=(*tests, *locked), original=self.original)

    def run(self, targets: tuple[str, ...] = (), *, keep: Path | None = None) -> SuiteRun:
        """Return the next scripted answer, or run the tests in this process, where no plugin is loaded."""
        if any(target.startswith("-p") for target in targets):
            return no_report("it loads no plugin")
        self.asked.append(
            Asked(
                root=self.root,
                targets=targets,
                keep=keep,
                timeout_s=self.timeout_s,
                is_anew=self.is_anew,
                sandbox=self.sandbox,
            )
        )
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, SuiteRun):
            run = answer
        else:
            if answer is not None:
                answer(self.root)
            with _ONE_AT_A_TIME, _import_from(self.root), _limit_time():
                run = _run_tests(self.root, targets, level=self.sandbox.level)
        if run.report is not None and keep is not None:
            keep.parent.mkdir(parents=True, exist_ok=True)
            dump(run.report, keep)
        return run


class TrustedSandbox:
    """Says that it isolates, and does not: for programs of tests, which write nothing outside their folder."""

    level = "bwrap"

    def run(self, command: Command) -> Result:
        """Run the program."""
        return PlainSandbox().run(command)


def no_report(problem: str, *, output: str = "", cause: Cause = "other") -> SuiteRun:
    """Return the answer of a run that has no report."""
    return SuiteRun(report=None, failed=NoReport(happened=problem, cause=cause), output=output, duration_s=0.1)


def with_report(
    *passed: str, failed: Mapping[str, str] | None = None, fingerprints: Mapping[str, str] | None = None
) -> SuiteRun:
    """Return a scripted answer: node ids that passed, and node id -> failure kind of those that failed."""
    why = {
        nodeid: Failure("call", kind, "test", "AssertionError", f"{kind} in {nodeid}")
        for nodeid, kind in (failed or {}).items()
    }
    cases = [_case(nodeid, "passed") for nodeid in passed]
    cases += [_case(nodeid, "failed", found=found) for nodeid, found in why.items()]
    return _answer(Path("/"), cases, [], level="none", fingerprints=dict(fingerprints or {}))


def _case(nodeid: str, outcome: str, *, line: int = 1, found: Failure | None = None) -> Case:
    return Case(
        nodeid=nodeid,
        outcome=outcome,
        file=nodeid.partition("::")[0],
        line=line,
        duration_s=0.001,
        phases={"setup": 0.0, "call": 0.001, "teardown": 0.0},
        failure=found,
    )


def _answer(
    root: Path, cases: list[Case], errors: list[CollectError], *, level: str, fingerprints: dict[str, str]
) -> SuiteRun:
    """Return what a run that came to its end says."""
    status = 1 if errors or any(case.failure for case in cases) else 0 if cases else 5
    report = SuiteReport(
        complete=True,
        exit_status=status,
        nonce="0" * 32,
        python=sys.version.partition(" ")[0],
        pytest=pytest.__version__,
        rootdir=str(root),
        started_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        duration_s=0.01,
        tests=tuple(cases),
        collect_errors=tuple(errors),
        fingerprints=fingerprints,
        collected=len(cases),
        audited=True,
        sandbox=level,
    )
    texts = [case.failure.text for case in cases if case.failure] + [error.failure.text for error in errors]
    summary = f"{sum(not case.failure for case in cases)} passed, {len(list_failing(report))} failed"
    return SuiteRun(report=report, output="\n\n".join((*texts, summary)) + "\n", duration_s=0.01)


@contextlib.contextmanager
def _import_from(root: Path) -> Iterator[None]:
    """Import modules of ``root`` anew, and leave this process as it was."""
    folders = [folder for folder in (root, root / "src") if folder.is_dir()]
    tests = {path.parent for path in _test_files(root)}
    own = {path.name.partition(".")[0] for folder in (*folders, *tests) for path in folder.iterdir()}
    # The project may have modules of the names of this test suite's, as ``tests``.
    hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in own}
    before, path, folder, exits = set(sys.modules), list(sys.path), Path.cwd(), os._exit
    keeps_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    for name in hidden:
        del sys.modules[name]
    _forget_importers(root)
    sys.path[:0] = map(str, folders)
    os._exit = _refuse_to_exit
    os.chdir(root)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # those of this test suite would be errors, as for an unclosed file
            yield
    finally:
        os._exit = exits
        os.chdir(folder)
        sys.path[:] = path
        sys.dont_write_bytecode = keeps_bytecode
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in own or (name not in before and _is_below(module, root)):
                del sys.modules[name]
        sys.modules.update(hidden)
        _forget_importers(root)


def _is_below(module: ModuleType, root: Path) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(f"{root}{os.sep}")


def _forget_importers(root: Path) -> None:
    """Have folders below ``root`` listed anew: what they hold may have changed within the same tick of the clock."""
    for entry in list(sys.path_importer_cache):
        if entry == str(root) or entry.startswith(f"{root}{os.sep}"):
            del sys.path_importer_cache[entry]


@contextlib.contextmanager
def _limit_time() -> Iterator[None]:
    """Raise in a test that does not end; its CPU time counts, so that a busy machine changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    before = signal.signal(signal.SIGVTALRM, _refuse_to_go_on)
    signal.setitimer(signal.ITIMER_VIRTUAL, _LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _refuse_to_go_on(number: int, frame: FrameType | None) -> NoReturn:
    raise NotImplementedError(f"what does not end within {_LIMIT_S} s takes the real suite")


def _refuse_to_exit(status: int) -> NoReturn:
    raise NotImplementedError(f"what ends its process with status {status} takes the real suite")


def _test_files(root: Path) -> list[Path]:
    """Return the files that pytest would collect, in its order."""
    found: list[Path] = []
    for entry in sorted(root.iterdir()):
        if entry.is_dir() and entry.name not in IGNORED_FOLDERS and not entry.name.startswith("."):
            found += [] if entry.is_symlink() else _test_files(entry)  # one to a parent would have no end
        elif entry.suffix == ".py" and (entry.name.startswith("test_") or entry.stem.endswith("_test")):
            found.append(entry)
    return found


def _run_tests(root: Path, targets: tuple[str, ...], *, level: str) -> SuiteRun:
    if any(target.startswith("-") for target in targets):
        raise NotImplementedError(f"options take the real suite: {targets}")
    _refuse_configuration(root)
    fingerprints = compute_digests(root)
    for path in sorted(root.rglob("conftest.py")):
        if why := _load_conftest(path, root):
            return no_report(f"pytest refused to run: {why}", output=why, cause="refused")
    cases: list[Case] = []
    errors: list[CollectError] = []
    selected = _selected(root, targets)
    if isinstance(selected, str):
        return _refused(selected)
    for path, names in selected.items():
        file = path.relative_to(root).as_posix()
        try:
            tests = list(_collect(_import(path), file))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a test file raises is its result
            found = _describe(error, phase="collect", root=root, file=file)
            if any("::" in name for name in names):
                return _refused(f"found no collectors for {root / names[0]}")
            errors.append(CollectError(file, found))
            continue
        for name in names:
            if "::" in name and not any(_is_named(test.nodeid, name) for test in tests):
                return _refused(f"not found: {root / name} (no match in any of [<Module {path.name}>])")
        wanted = [test for test in tests if not names or any(_is_named(test.nodeid, name) for name in names)]
        cases += [_call(test, root=root, file=file) for test in wanted]
    return _answer(root, cases, errors, level=level, fingerprints=fingerprints)


def _refuse_configuration(root: Path) -> None:
    """Raise where ``pytest.ini`` says more than which plugins to leave out, and where code and tests are."""
    found = configparser.ConfigParser(interpolation=None)
    found.read(root / "pytest.ini")
    settings = dict(found["pytest"]) if found.has_section("pytest") else {}
    options = re.sub(r"-p no:\S+|--import-mode=importlib", "", settings.pop("addopts", "")).strip()
    known = {"pythonpath"} | ({"testpaths"} if settings.get("testpaths") == "tests" else set())
    if options or settings.keys() - known:
        raise NotImplementedError(f"what pytest.ini says takes the real suite: {options} {settings}")


def _refused(reason: str) -> SuiteRun:
    problem = f"pytest refused to run: {reason}; name existing tests"
    return no_report(problem, output=f"ERROR: {reason}\n", cause="refused")


def _load_conftest(path: Path, root: Path) -> str | None:
    """Import a ``conftest.py``, and return why that failed."""
    try:
        module = _import(path)
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return f"ImportError while loading conftest '{path}': {type(error).__name__}: {error}"
    hooks = [name for name in vars(module) if name.startswith("pytest_")]
    if hooks:
        raise NotImplementedError(f"hooks take the real suite: {hooks} in {path.relative_to(root)}")
    return None


def _selected(root: Path, targets: tuple[str, ...]) -> dict[Path, tuple[str, ...]] | str:
    """Return file -> the targets in it, none for all of it; or why pytest refuses one."""
    everything = _test_files(root)
    if not targets:
        return dict.fromkeys(everything, ())
    chosen: dict[Path, tuple[str, ...]] = {}
    for target in targets:
        file, _, name = target.partition("::")
        path = root / file
        if not path.exists():
            return f"file or directory not found: {target}"
        below = [found for found in everything if path in found.parents] if path.is_dir() else [path]
        for found in below:
            earlier = chosen.get(found)
            whole = not name or earlier == ()
            chosen[found] = () if whole else (*(earlier or ()), f"{file}::{name}")
    return chosen


def _is_named(nodeid: str, target: str) -> bool:
    return nodeid == target or nodeid.startswith((f"{target}::", f"{target}["))


def _import(path: Path) -> ModuleType:
    """Import one test file as pytest does, with its assertions rewritten."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    source = path.read_bytes()
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    tree = ast.parse(source, str(path))
    rewrite_asserts(tree, source, str(path))
    exec(compile(tree, str(path), "exec", dont_inherit=True), vars(module))
    return module


@dataclass(frozen=True, kw_only=True)
class _Test:
    nodeid: str
    function: Callable[..., object]
    arguments: Mapping[str, object]
    line: int
    marks: tuple[pytest.Mark, ...]


def _collect(module: ModuleType, file: str) -> Iterator[_Test]:
    """Yield the tests of a module in the order of its lines."""
    for name, value in list(vars(module).items()):
        if name.startswith("test") and inspect.isfunction(value):
            yield from _expand(f"{file}::{name}", value, value)
        elif name.startswith("Test") and inspect.isclass(value) and value.__module__ == module.__name__:
            for method, function in vars(value).items():
                if method.startswith("test") and inspect.isfunction(function):
                    yield from _expand(f"{file}::{name}::{method}", function, getattr(value(), method))


def _expand(nodeid: str, function: Callable[..., object], bound: Callable[..., object]) -> Iterator[_Test]:
    """Yield a test for each set of parameters."""
    marks: tuple[pytest.Mark, ...] = tuple(getattr(function, "pytestmark", ()))
    line = inspect.unwrap(function).__code__.co_firstlineno
    sets = [list(_parameter_sets(mark)) for mark in marks if mark.name == "parametrize"]
    for chosen in itertools.product(*sets):
        arguments = {name: value for _, values in chosen for name, value in values.items()}
        label = "-".join(identity for identity, _ in chosen)
        yield _Test(
            nodeid=f"{nodeid}[{label}]" if chosen else nodeid,
            function=bound,
            arguments=arguments,
            line=line,
            marks=marks,
        )


def _parameter_sets(mark: pytest.Mark) -> Iterator[tuple[str, dict[str, object]]]:
    given, rows = mark.args[:2]
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
    for index, row in enumerate(rows):
        values = [row] if len(names) == 1 else list(row)
        identities = [
            str(value) if isinstance(value, str | int | float | None) else f"{name}{index}"
            for name, value in zip(names, values, strict=True)
        ]
        ids = mark.kwargs.get("ids")
        yield (ids[index] if ids else "-".join(identities)), dict(zip(names, values, strict=True))


FIXTURES = ("tmp_path", "monkeypatch")
"""Those that a test may ask for."""


def _call(test: _Test, *, root: Path, file: str) -> Case:
    """Run one test and return what came of it."""
    marks = {mark.name for mark in test.marks}
    if "skip" in marks:
        return _case(test.nodeid, "skipped", line=test.line)
    wanted = [
        name
        for name, parameter in inspect.signature(test.function).parameters.items()
        if name not in test.arguments and parameter.default is parameter.empty
    ]
    if unknown := set(wanted) - set(FIXTURES):
        raise NotImplementedError(f"{test.nodeid} takes the real suite: it asks for {sorted(unknown)}")
    patched = pytest.MonkeyPatch()
    try:
        with tempfile.TemporaryDirectory() as folder:
            given = {"tmp_path": Path(folder), "monkeypatch": patched}
            test.function(**test.arguments, **{name: given[name] for name in wanted})
    except Skipped:
        return _case(test.nodeid, "skipped", line=test.line)
    except (Exception, SystemExit, pytest.fail.Exception) as error:
        if isinstance(error, NotImplementedError) and "takes the real suite" in str(error):
            raise
        if "xfail" in marks:
            return _case(test.nodeid, "xfailed", line=test.line)
        found = _describe(error, phase="call", root=root, file=file)
        return _case(test.nodeid, "failed", line=test.line, found=found)
    finally:
        patched.undo()
    return _case(test.nodeid, "xpassed" if "xfail" in marks else "passed", line=test.line)


def _describe(error: BaseException, *, phase: str, root: Path, file: str) -> Failure:
    """Return what the plugin says of an exception, with a text like pytest's."""

    def source(name: str) -> bytes | None:
        path = root / name
        return path.read_bytes() if path.is_file() else None

    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    found = failure.describe(
        error.with_traceback(traceback), phase=phase, places=failure.Places(str(root)), test_file=file, source=source
    )
    message = (f"{found.exception}: " if found.kind != "assertion" else "") + found.message
    lines: list[str] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if Path(code.co_filename).is_relative_to(root):
            first = code.co_firstlineno if phase == "call" else traceback.tb_lineno
            shown = Path(code.co_filename).read_text().splitlines()[first - 1 : traceback.tb_lineno]
            lines += [*(f"    {line}" for line in shown[:-1]), f">   {shown[-1]}"]
        traceback = traceback.tb_next
    lines += [f"E       {line}" for line in message.splitlines()]
    return replace(found, text="\n".join((*lines, "", f"{found.path}:{found.line}: {found.exception}")))


def make_failed_report(failure: Failure, *, nodeid: str = "t.py::test") -> SuiteReport:
    """Return the report of a run in which one test failed."""
    case = Case(nodeid=nodeid, outcome="failed", file="t.py", line=1, duration_s=0.0, failure=failure)
    return SuiteReport(
        complete=True,
        exit_status=1,
        nonce="",
        python="",
        pytest="",
        rootdir="",
        started_at="",
        duration_s=0.0,
        tests=(case,),
    )
