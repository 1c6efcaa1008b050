"""One run of a project's tests, read back as a report that can be trusted or a reason why it cannot.

The plugin goes onto the project's path as a private folder that holds only that package; it is never installed
there. Its name is new for every run, so that no package of the project can pass for it, not even in xdist's workers.
Report and plugin lie outside the project, in a folder that is new for every run. Bytecode goes to a cache of our own,
where the project's is told from its source by content (``run_plugin``): the usual kind is told by size and whole
seconds, so an edit within the same second could be judged by the version before.

Why a run has no report to judge, in words: what stopped it, in which test, and what to do about it.
"""

import io
import os
import re
import secrets
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest_tdd_agent
from cdd_agent.sandbox.port import Access, Command, Result, Sandbox
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.access import access_for, code_of_tests, protected_tests, user_base
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.suite import PYTEST, Conventions, SuiteRun
from pytest_tdd_agent.codec import ReportError, dump, load
from pytest_tdd_agent.recording.spool import in_flight
from pytest_tdd_agent.report import SuiteReport

SHOWN_TESTS = 5
_STREAM_LIMIT_BYTES = 64 * 1024 * 1024
"""Of a stream that is read: half a million tests."""
REASON_CAP = 400

_STOP_LINE = re.compile(r"^!{3,} (.+?) !{3,}$", re.MULTILINE)
_REFUSAL = re.compile(
    r"(?:: error: |^ERROR: (?!usage: )|^ImportError: (?=Error importing plugin))"
    r"(.+?)(?=\n  (?:config source|inifile|rootdir): |\n={3,} |\Z)",
    re.MULTILINE | re.DOTALL,
)
_CONFTEST = re.compile(r"^(ImportError while loading conftest '.+?')\..*?^E +(.+?)$", re.M | re.S)
_INTERNAL_ERROR = re.compile(r"^INTERNALERROR> ([\w.]+(?:Error|Exception|Exit|Warning)\b.*)$", re.MULTILINE)


def running_in(stream: Path) -> str:
    """`` while ... was running``, by the stream of a run; nothing where no test was."""
    try:
        tests = in_flight(io.BytesIO(read_ordinary(stream, limit_bytes=_STREAM_LIMIT_BYTES)))
    except OSError:
        return ""
    if not tests:
        return ""
    more = f" and {len(tests) - SHOWN_TESTS} more" if len(tests) > SHOWN_TESTS else ""
    return f" while {', '.join(tests[:SHOWN_TESTS])}{more} {'was' if len(tests) == 1 else 'were'} running"


def not_installed(report: SuiteReport, root: Path) -> str | None:
    """The module in the project's ``src`` for want of which no test could be collected; None if it is not that."""
    if report.tests:
        return None
    wanted = {error.failure.missing_name for error in report.collect_errors if error.failure.kind == "missing_module"}
    for name in sorted(name for name in wanted if name and name.isidentifier()):
        if (root / "src" / name / "__init__.py").is_file() or (root / "src" / f"{name}.py").is_file():
            return name
    return None


def ending(status: int) -> str:
    """How a process ended, by its status; negative: by a signal."""
    if status >= 0:
        return f"pytest ended with status {status}"
    names = {item.value: item.name for item in signal.Signals}
    return f"pytest was ended by {names.get(-status, f'signal {-status}')}"


def stop(output: str) -> str:
    """``: `` and what pytest said of its stopping, the last of that kind; options that stop a run are named."""
    said = _STOP_LINE.findall(output) or _INTERNAL_ERROR.findall(output)
    if not said:
        refused = refusal(output)
        return f": {refused}" if refused else ""
    is_option = "stopping after" in said[-1] or "continuing from this test" in said[-1]
    hint = "; take -x, --maxfail and --stepwise out of the tests' configuration" if is_option else ""
    return f": {said[-1]}{hint}"


def refusal(output: str) -> str | None:
    """Why pytest refused its options, its configuration or a ``conftest.py``, on one line."""
    if found := _CONFTEST.search(output):
        return f"{found[1]}: {found[2]}"[:REASON_CAP]
    found = _REFUSAL.search(output)
    if found is None:
        return None
    said = found[1].splitlines()[0] if is_absent_plugin(found[1]) else found[1]
    return " ".join(said.split())[:REASON_CAP]


def is_absent_plugin(reason: str) -> bool:
    """Whether pytest refused an option that no plugin has, or a plugin that is not there."""
    return reason.startswith(("unrecognized arguments", "ambiguous option", "Error importing plugin"))


def advice(reason: str, python: Path) -> str:
    """What to do about a refusal of pytest's in the interpreter ``python``."""
    pip = f"{python} -m pip install"
    if reason.startswith("Missing required plugins: "):
        return f"{pip} {reason.partition(': ')[2].replace(',', '')}"
    if found := re.search(r"'minversion' requires pytest-([\w.]+)", reason):
        return f"{pip} 'pytest>={found[1]}'"
    if is_absent_plugin(reason):
        return f"install what this belongs to with `{pip} PLUGIN`, or take it out of pytest's configuration"
    if reason.startswith(("file or directory not found", "not found: ", "found no collectors")):
        return "name tests that are there"
    if reason.startswith("ImportError while loading conftest"):
        return f"mend that file, or install what it misses with `{pip} PACKAGE`"
    return "correct pytest's configuration"


OUTPUT_CAP_BYTES = 200_000
_REFUSED = "pytest refused to run"
_USAGE_ERROR = 4
"""Pytest's exit status when it refuses to run."""
_CHECKED_HASH = b"\x03\0\0\0"
"""Bytes 4 to 8 of compiled code that is told from its source by content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PytestSuite:
    """The tests of a project that pytest runs; node ids are relative to it, wherever its configuration lies.

    In a copy of the project, what is installed in editable form, or named on PYTHONPATH by an absolute path, is still
    imported from where it was.
    """

    root: Path
    interpreter: Interpreter
    sandbox: Sandbox
    timeout_s: float
    bytecode: Path | None
    """Folder for compiled code, kept between runs.

    None: the project is compiled anew, whatever compiled code a test has left, and what is installed is used as it is.
    """
    flaky: int = 0
    """How often a test that fails unexpectedly is run again."""
    reads: tuple[Path, ...] = ()
    """What the tests need to read elsewhere."""
    conventions: Conventions = PYTEST
    options: tuple[str, ...] = ()
    """Of every run, as ``addopts`` has them."""
    selects: tuple[str, ...] = ()
    """Of runs of all tests: paths, as ``testpaths`` has them, and options that leave tests out."""

    @property
    def command(self) -> str:
        """What a person types to run all tests."""
        return shlex.join((str(self.interpreter.path), "-m", "pytest", *self.options, *self.selects))

    @property
    def variables(self) -> Mapping[str, str]:
        """Nothing: the interpreter is named by its path."""
        return {}

    def in_copy(self, root: Path, *, reads: tuple[Path, ...] = ()) -> "PytestSuite":
        """The same tests in a copy of the project, compiled anew."""
        return replace(self, root=root, bytecode=None, reads=(*self.reads, *reads))

    def anew(self) -> "PytestSuite":
        """The same tests, compiled anew: no compiled code that an earlier run may have planted takes part."""
        return replace(self, bytecode=None)

    def within(self, timeout_s: float) -> "PytestSuite":
        """The same tests, with so much time for a run."""
        return replace(self, timeout_s=timeout_s)

    def shut_in(self, sandbox: Sandbox) -> "PytestSuite":
        """The same tests, run by another sandbox."""
        return replace(self, sandbox=sandbox)

    def access(self, *, locked: tuple[Path, ...] = (), tests_too: bool = False) -> Access:
        """What a command of the model's may reach."""
        tests = protected_tests(self.root) if tests_too else ()
        return access_for(self.root, self.interpreter, locked=(*tests, *locked))

    def run(self, targets: tuple[str, ...] = (), *, keep: Path | None = None) -> SuiteRun:
        """Run the tests that ``targets`` name, or all; the report is also written to ``keep``."""
        started = time.monotonic()
        selects = () if any(not target.startswith("-") for target in targets) else self.selects
        targets = (*self.options, *selects, *targets)
        with tempfile.TemporaryDirectory(prefix="cdd-testrun-", ignore_cleanup_errors=True) as folder:
            private = Path(folder)
            nonce = secrets.token_hex(16)
            _equip(private, nonce)
            if self.bytecode is not None:
                _drop_dated_bytecode(self.bytecode, self.interpreter.path)
            result = self._pytest(private, nonce, arguments=targets)
            notices: tuple[str, ...] = ()
            if why := _absent_plugin(private / "report.json", result, python=self.interpreter.path):
                result = self._pytest(private, nonce, arguments=("-o", "addopts=", *targets))
                notices = (why,)
            notices += result.remarks
            report, problem = self._read_back(private / "report.json", nonce, result=result)
            if self.bytecode is not None:
                shutil.rmtree(self.bytecode / private.resolve().relative_to("/"), ignore_errors=True)
        if report is not None and keep is not None:
            keep.parent.mkdir(parents=True, exist_ok=True)
            dump(report, keep)
        return SuiteRun(
            report=report,
            problem=problem,
            output=result.output,
            duration_s=time.monotonic() - started,
            notices=notices,
            was_refused=problem is not None and problem.startswith(_REFUSED),
        )

    def _pytest(self, private: Path, nonce: str, *, arguments: tuple[str, ...]) -> Result:
        """Run pytest with what is in ``private``, and a report there."""
        flaky = ("--tdd-agent-flaky", str(self.flaky)) if self.flaky else ()
        run_plugin, plugin = f"tdd_agent_run_{nonce}", f"tdd_agent_{nonce}"
        argv = [
            *(str(self.interpreter.path), str(private / "launcher.py"), str(self.bytecode or ""), run_plugin, plugin),
            *("-p", run_plugin, "-p", f"no:{pytest_tdd_agent.__name__}", "-p", plugin),
            *("--tdd-agent-report", str(private / "report.json"), "--tdd-agent-nonce", nonce),
            *("--tdd-agent-audit", *flaky),
            *("--rootdir=.", "--continue-on-collection-errors", "--maxfail=0", "--color=no", *arguments),
        ]
        variables = {"PYTHONDONTWRITEBYTECODE": "1", **user_base(self.interpreter.user_base)}
        if self.bytecode is not None:
            self.bytecode.mkdir(parents=True, exist_ok=True)
        if "PYTHONPATH" in os.environ:
            variables["PYTHONPATH"] = os.environ["PYTHONPATH"]
        return self.sandbox.run(
            Command(
                argv=tuple(argv),
                cwd=self.root,
                access=self._access(private),
                variables=variables,
                timeout_s=self.timeout_s,
                output_cap=OUTPUT_CAP_BYTES,
            )
        )

    def _access(self, private: Path) -> Access:
        """The project without what judges it: tests and pytest's configuration cannot be changed by what they run."""
        return access_for(
            self.root,
            self.interpreter,
            read_write=(private, *(() if self.bytecode is None else (self.bytecode,))),
            read_only=(private / "plugins", private / "launcher.py", *self.reads),
            locked=code_of_tests(self.root),
        )

    def _read_back(self, path: Path, nonce: str, *, result: Result) -> tuple[SuiteReport | None, str | None]:
        """The report at ``path`` if it is whole and of this run, else what is wrong with it."""
        running = running_in(path.with_suffix(".jsonl"))
        if result.timed_out:
            return None, f"the tests did not end within {self.timeout_s:g} s{running and f': ended{running}'}"
        if not path.exists() or result.exit_status == _USAGE_ERROR:
            return None, _no_report(result, running, python=self.interpreter.path)
        try:
            report = load(path)
        except ReportError as error:
            return None, f"the report cannot be read: {error}"
        if report.nonce != nonce:
            return None, "the report is not of this run"
        if not report.complete:
            why = stop(result.output)
            return None, f"the run ended early (pytest status {report.exit_status}){running}{why}"
        module = not_installed(report, self.root)
        if module is not None:
            install = f"{self.interpreter.path} -m pip install -e {self.root}"
            return None, f"no test can import {module}, which lies in src and is not installed: {install}"
        return replace(report, sandbox=result.level), None


def _is_dated(path: Path) -> bool:
    """Whether compiled code is told from its source by size and time."""
    with path.open("rb") as stream:
        return stream.read(8)[4:] != _CHECKED_HASH


def _equip(private: Path, nonce: str) -> None:
    """Put into ``private`` what a run needs: launcher and plugins."""
    here, plugins = Path(__file__).parent / "inside", private / "plugins"
    package = Path(pytest_tdd_agent.__file__).parent
    shutil.copytree(package, plugins / f"tdd_agent_{nonce}", ignore=shutil.ignore_patterns("*pytest-*.pyc"))
    shutil.copy(here / "run_plugin.py", plugins / f"tdd_agent_run_{nonce}.py")
    shutil.copy(here / "launcher.py", private)


def _drop_dated_bytecode(cache: Path, python: Path) -> None:
    """Drop from the cache what is told by its date, except of what is installed: a test, or pytest, made it."""
    prefixes = (python.parent.parent.absolute(), python.resolve().parent.parent)
    installed = tuple(str(prefix / "lib" / "python3") for prefix in prefixes)
    for path in cache.rglob("*.pyc"):
        if f"/{path.relative_to(cache)}".startswith(installed) or path.is_dir():
            continue
        if path.is_symlink() or not path.is_file() or _is_dated(path):
            path.unlink()


def _no_report(result: Result, running: str, *, python: Path) -> str:
    """Why there is none: pytest refused to run, or its process died."""
    reason = refusal(result.output)
    if not running and reason is not None:
        return f"{_REFUSED}: {reason}; {advice(reason, python)}"
    last = (result.output.strip().splitlines() or ["no output"])[-1]
    return f"{ending(result.exit_status)}{running} and left no report: {last}"


def _absent_plugin(report: Path, result: Result, *, python: Path) -> str | None:
    """What to say if pytest refused the project's ``addopts`` for want of a plugin, and so ran nothing."""
    reason = refusal(result.output)
    has_run = report.exists() and result.exit_status != _USAGE_ERROR
    if result.timed_out or has_run or reason is None or not is_absent_plugin(reason):
        return None
    what_to_do = advice(reason, python)
    return f"the tests ran without the project's addopts, which pytest refused: {reason}; {what_to_do}"
