"""Runs a project's tests with pytest, and returns a report that can be trusted or the reason why there is none.

The report is made of the records that the plugin sends while the tests run (see ``records``), not of a file. Each run
gets a private folder outside the project with a copy of the plugin, which is never installed in the project. The copy's
name is new for every run, so no package of the project can pose as the plugin, even in the workers of xdist. Bytecode
goes to cdd's own cache (see ``inside/run_plugin.py``). The runs of gates trust no bytecode that tests could write: for
them, ``CompiledSources`` keeps it as long as cdd runs.
"""

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shlex
import shutil
import signal
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

import pytest_tdd_agent
from cdd_agent.installation import build_install_command
from cdd_agent.sandbox.port import ISOLATING_LEVELS, Access, Command, Result, Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.storage import find_full_disk, read_ordinary
from cdd_agent.testrun.access import (
    Original,
    build_access,
    build_user_base_variable,
    find_protected_tests,
    find_test_code,
    find_top,
)
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.plain_run import RESULTS, build_arguments, delete_bytecode, read_results
from cdd_agent.testrun.records import RecordedRun, record_run
from cdd_agent.testrun.suite import PYTEST, Conventions, NoReport, SuiteRun, describe_time_out, save_report
from cdd_agent.untrusted.documents import encode_json
from pytest_tdd_agent.recording.assembly import UNFINISHED
from pytest_tdd_agent.report import Case, CollectError, Failure, Frame, SuiteReport, summarize_internal_error
from pytest_tdd_agent.wording import explain

_LEAST_BYTES = 30_000
"""Of sources: the process takes as long as pytest takes to compile these."""
_MOST_BYTES = 2_000_000
"""Of one source."""


@dataclass(kw_only=True)
class CompiledSources:
    """The bytecode of the sources seen so far, for one interpreter.

    A separate process compiles the files and runs nothing of the project. Runs only read the result, by the digest of
    each source.
    """

    folder: Path | None = None
    """Where it is; None: nowhere yet."""
    _known: set[str] = field(default_factory=set)

    def add(self, files: Iterable[Path], *, interpreter: Interpreter, sandbox: Sandbox, timeout_s: float) -> None:
        """Compile the Python files that are new or have changed, if they are many."""
        found: dict[str, bytes] = {}
        for file in files:
            if any(part.endswith("-packages") for part in file.parts):
                continue  # installed in the project's folder
            try:
                content = read_ordinary(file, limit_bytes=_MOST_BYTES)
            except OSError:
                continue
            is_test = file.name.startswith(("test_", "conftest.py")) or file.name.endswith("_test.py")
            found[f"{'rewritten' if is_test else 'plain'}-{hashlib.sha256(content).hexdigest()}"] = content
        new = found.keys() - self._known
        if sum(len(found[name]) for name in new) < _LEAST_BYTES:
            return
        self._known |= new
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="cdd-compiled-")).resolve()
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="cdd-sources-", ignore_cleanup_errors=True) as name:
            place = Path(name).resolve()
            (place / "sources").mkdir()
            for each in new:
                (place / "sources" / each).write_bytes(found[each])
            program = shutil.copy(Path(__file__).parent / "inside" / "compiler.py", place)
            command = Command(
                argv=(str(interpreter.path), "-B", str(program), str(place / "sources"), str(self.folder)),
                cwd=place,
                access=build_access(place, interpreter, read_write=(self.folder,)),
                variables=build_user_base_variable(interpreter.user_base),
                timeout_s=timeout_s,
            )
            sandbox.run(command)


_ORIGINS_LIMIT_BYTES = 64 * 1024 * 1024
REASON_CAP = 400
_NO_SPACE = os.strerror(errno.ENOSPC)
_MOST_ENDLESS = 3
"""Most tests that are left out; each costs a whole time limit."""

_STOP_LINE = re.compile(r"^!{3,} (.+?) !{3,}$", re.MULTILINE)
_REFUSAL = re.compile(
    r"(?:: error: |^ERROR: (?!usage: )|^ImportError: (?=Error importing plugin))"
    r"(.+?)(?=\n  (?:config source|inifile|rootdir): |\n={3,} |\Z)",
    re.MULTILINE | re.DOTALL,
)
_NOT_FOUND = ("missing_module", "import_error")
"""Kinds of failures whose missing name may be a module."""
_CONFTEST = re.compile(r"^(ImportError while loading conftest '.+?')\..*?^E +(.+?)$", re.M | re.S)
_CONFTEST_FRAME = re.compile(r"^([^\s:]+\.py):(\d+): in (\S+)$", re.M)


def _add_endless_tests(report: SuiteReport, nodeids: tuple[str, ...], *, limit_s: float) -> SuiteReport:
    message = f"the test did not end within {limit_s:g} s"
    why = Failure(phase="call", kind="timeout", origin="test", exception="TimeoutError", message=message)
    cases = (Case(each, "failed", each.partition("::")[0], 0, limit_s, failure=why) for each in nodeids)
    collected, deselected = report.collected + len(nodeids), report.deselected - len(nodeids)
    return replace(report, tests=(*report.tests, *cases), exit_status=1, collected=collected, deselected=deselected)


def _report_conftest(result: Result, root: Path) -> SuiteReport | None:
    """Return a report in which the ``conftest.py`` that ended the run is a file that could not be collected."""
    found = _CONFTEST.search(result.output)
    text = result.output[found.start() :] if found is not None else ""
    frames = tuple(Frame(path, int(line), name) for path, line, name in _CONFTEST_FRAME.findall(text))
    if found is None or not frames:
        return None
    exception, _, message = found[2].partition(": ")
    failure = Failure(
        phase="collect", kind="error", origin="test", exception=exception, message=message, frames=frames, text=text
    )
    return SuiteReport(
        complete=True,
        exit_status=_INTERRUPTED,
        nonce="",
        python="",
        pytest="",
        rootdir=str(root),
        started_at="",
        duration_s=0.0,
        collect_errors=(CollectError(frames[0].path, failure),),
        sandbox=result.level,
    )


def find_uninstalled_module(report: SuiteReport, root: Path) -> str | None:
    """Return the module in ``src`` that no test could import, or None if tests ran or failed otherwise."""
    failures = (
        [] if any(not case.reason for case in report.tests) else [error.failure for error in report.collect_errors]
    )
    wanted = {each.missing_name or "" for each in failures if each.kind == "missing_module"}
    return next((name for name in sorted(filter(str.isidentifier, wanted)) if _is_in_src(name, root)), None)


def explain_outdated_links(report: SuiteReport, origins: Mapping[str, str], *, root: Path) -> str | None:
    """Return that a test could not import a module only because its package consists of links that are older.

    ``origins`` is as in ``SuiteRun``. setuptools' strict editable mode installs such a package.
    """
    failures = [*(case.failure for case in report.tests), *(error.failure for error in report.collect_errors)]
    for name in sorted({each.missing_name or "" for each in failures if each and each.kind in _NOT_FOUND}):
        package, _, own = name.rpartition(".")
        links = Path(origins.get(package, root / package)).parent
        sources = Path(origins.get(package, root / package)).resolve().parent
        for file in (f"{own}.py", f"{own}/__init__.py"):
            if links != sources and (sources / file).is_file() and not (links / file).exists():
                shown, folder = (os.path.relpath(path, root.resolve()) for path in (sources / file, links.resolve()))
                return (
                    f"{name} cannot be imported, although there is {shown}: {package} is imported from links in "
                    f"{folder}, which an installation made before that file."
                )
    return None


def _is_in_src(name: str, root: Path) -> bool:
    return (root / "src" / name / "__init__.py").is_file() or (root / "src" / f"{name}.py").is_file()


def describe_exit(status: int) -> str:
    """Describe how pytest ended; a negative status is the number of a signal."""
    if status >= 0:
        return f"pytest ended with status {status}"
    names = {item.value: item.name for item in signal.Signals}
    return f"pytest was ended by {names.get(-status, f'signal {-status}')}"


def explain_stop(output: str) -> tuple[str, str]:
    """Return ``: `` and pytest's last message about why it stopped, and what to do; both can be empty."""
    messages = _STOP_LINE.findall(output)
    if not messages:
        return f": {refused}" if (refused := find_refusal(output)) else "", ""
    is_option = "stopping after" in messages[-1] or "continuing from this test" in messages[-1]
    return f": {messages[-1]}", "remove -x, --maxfail and --stepwise from pytest's configuration" if is_option else ""


def find_refusal(output: str) -> str | None:
    """Return in one line why pytest refused its options, its configuration or a ``conftest.py``."""
    if found := _CONFTEST.search(output):
        return f"{found[1]}: {found[2]}"[:REASON_CAP]
    found = _REFUSAL.search(output)
    if found is None:
        return None
    reason = found[1].splitlines()[0] if is_absent_plugin(found[1]) else found[1]
    return " ".join(reason.split())[:REASON_CAP]


def is_absent_plugin(reason: str) -> bool:
    """Return whether pytest refused an option or a plugin because a plugin is not installed."""
    return reason.startswith(("unrecognized arguments", "ambiguous option", "Error importing plugin"))


def suggest_fix(reason: str, python: Path) -> str:
    """Return what the user can do about a refusal."""
    pip = build_install_command(python)
    if reason.startswith("Missing required plugins: "):
        # A requirement such as b>=2 would be a redirection in the shell.
        return f"{pip} {shlex.join(reason.partition(': ')[2].split(', '))}"
    if found := re.search(r"'minversion' requires pytest-([\w.]+)", reason):
        return f"{pip} 'pytest>={found[1]}'"
    if is_absent_plugin(reason):
        return f"install the plugin with `{pip} PLUGIN`, or remove this from pytest's configuration"
    if reason.startswith(("file or directory not found", "not found: ", "found no collectors")):
        return "name existing tests"
    if reason.startswith("ImportError while loading conftest"):
        return f"fix that file, or install the missing package with `{pip} PACKAGE`"
    return "correct pytest's configuration"


_ABSENT_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
OUTPUT_CAP_BYTES = 200_000
_IMPORTS = "imports"
"""The folder with the redirection of imports."""
_REFUSED = "pytest refused to run"
_INTERRUPTED = 2
"""The exit status with which pytest ends after errors in collection."""
_USAGE_ERROR = 4
"""The exit status with which pytest refuses to run."""
_CHECKED_HASH = b"\x03\0\0\0"
"""Bytes 4 to 8 of bytecode that is checked against a hash of its source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PytestSuite:
    """The tests of a project that uses pytest; node ids are relative to its folder.

    In a copy, packages that are installed in editable form are imported from the copy.
    """

    root: Path
    interpreter: Interpreter
    sandbox: Sandbox
    timeout_s: float
    bytecode: Path | None
    """Folder for bytecode between runs; with None, the project is compiled from its sources."""
    compiled: CompiledSources | None = None
    """Sources that are compiled already, for runs without ``bytecode``."""
    seconds_per_test: float | None = None
    """The time limit of one test; None: only that of the run."""
    traces: bool = False
    """Whether the functions that tests enter are noted too: see ``SuiteRun.entered``."""
    flaky: int = 0
    """How often to rerun a test that fails unexpectedly."""
    reads: tuple[Path, ...] = ()
    """Further files and folders that the tests read."""
    original: Original | None = None
    """The project that ``root`` is a copy of."""
    setup: str = ""
    """The shell command that prepares a copy."""
    redirects: tuple[Path, Path] | None = None
    """A folder, and the copy from which its modules are imported instead; by default the original and ``root``."""
    conventions: Conventions = PYTEST
    options: tuple[str, ...] = ()
    """Options of every run, as in ``addopts``."""
    selects: tuple[str, ...] = ()
    """Arguments of a run of all tests: paths, as in ``testpaths``, and options that deselect tests."""
    is_plain: bool = False
    """Whether pytest runs without cdd's plugin, and its exit status and JUnit XML are the results."""
    hides_run: bool = False
    """Whether tests of a plain run do not see by variables and log handlers that pytest runs them."""
    hash_seed: str = ""
    """The seed of the hashes of texts, on which the order in sets depends; empty: another one in each run."""

    @property
    def command(self) -> str:
        """The command line that runs all tests."""
        return shlex.join((str(self.interpreter.path), "-m", "pytest", *self.options, *self.selects))

    @property
    def signature(self) -> tuple[str, ...] | None:
        """The interpreter and the options; None outside an isolating sandbox, where a run can see anything."""
        if self.sandbox.level not in ISOLATING_LEVELS:
            return None
        python = self.interpreter
        flags = (self.seconds_per_test or "", self.traces, self.is_plain, self.hides_run)
        chosen = (str(self.flaky), *map(str, flags), self.hash_seed, self.setup)
        return self.sandbox.level, self.command, python.python, python.pytest, python.user_base, *chosen

    @property
    def variables(self) -> Mapping[str, str]:
        """The path on which the model's commands find the interpreter first, and the tools beside it."""
        python = self.interpreter.path
        return {"PATH": os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath)))}

    def with_root(self, root: Path, *, reads: tuple[Path, ...] = ()) -> "PytestSuite":
        """Return the tests of a copy of the project, compiled from scratch."""
        original = None if self.original is None else replace(self.original, git=None, list_ignored=None)
        redirects = ((self.redirects or (self.root,))[0], root)
        reads = (*self.reads, *reads)
        return replace(self, root=root, bytecode=None, reads=reads, original=original, redirects=redirects)

    def in_run_tree(self, root: Path, *, original: Original) -> "PytestSuite":
        """Return the tests of the run tree ``root``, with the same bytecode."""
        return replace(self, root=root, original=original)

    def run_program(self, program: Path, root: Path, *, is_shown: bool) -> Result:
        """Run a Python program in its folder's subfolder ``empty``, with the project's packages from its copy ``root``.

        ``is_shown``: the program finds the copy at the project's path, where the sandbox can show it there. No variable
        names a test tool. The program may write to its folder.
        """
        folder = program.parent
        _write_redirection(folder / _IMPORTS, ((self._redirects or (self.root,))[0], root))
        access = build_access(
            root, self.interpreter, read_write=(folder,), read_only=self.reads, original=self.original
        )
        variables = {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(folder / _IMPORTS), os.environ.get("PYTHONPATH")))),
            **({"PYTHONHASHSEED": self.hash_seed} if self.hash_seed else {}),
            **build_user_base_variable(self.interpreter.user_base),
        }
        command = Command(
            argv=(str(self.interpreter.path), "-B", str(program)),
            cwd=folder / "empty",
            # The rest is where the copy's git folder names it.
            access=replace(access, shown_at={p: at for p, at in access.shown_at.items() if is_shown or p != root}),
            variables=variables,
            timeout_s=self.timeout_s,
            output_cap=OUTPUT_CAP_BYTES,
        )
        return self.sandbox.run(command)

    def without_cache(self) -> "PytestSuite":
        """Return the same tests without bytecode, which an earlier run could have planted."""
        return replace(self, bytecode=None)

    def with_timeout(self, timeout_s: float) -> "PytestSuite":
        """Return the same tests with another time limit for a run."""
        return replace(self, timeout_s=timeout_s)

    def with_test_limit(self, seconds: float | None) -> "PytestSuite":
        """Return the same tests with another time limit for each test."""
        return replace(self, seconds_per_test=seconds)

    def with_tracing(self) -> "PytestSuite":
        """Return the same tests, whose runs also note the functions that they enter; no failing test runs again."""
        return replace(self, traces=True, flaky=0)

    def with_sandbox(self, sandbox: Sandbox) -> "PytestSuite":
        """Return the same tests in another sandbox."""
        return replace(self, sandbox=sandbox)

    def build_access(self, *, locked: tuple[Path, ...] = (), tests_too: bool = False) -> Access:
        """Build the access of the model's commands."""
        tests = find_protected_tests(self.root) if tests_too else ()
        return build_access(self.root, self.interpreter, locked=(*tests, *locked), original=self.original)

    def run(self, targets: tuple[str, ...] = (), *, keep: Path | None = None) -> SuiteRun:
        """Run the tests in ``targets``, or all; also save the report to ``keep``.

        A saved report is whole: a test that runs into the time limit has failed in it, and the others ran without it.
        """
        if self.is_plain:
            return self._run_plainly(targets)
        started = time.monotonic()
        selects = () if any(not target.startswith("-") for target in targets) else self.selects
        targets = (*self.options, *selects, *targets)
        with tempfile.TemporaryDirectory(prefix="cdd-testrun-", ignore_cleanup_errors=True) as folder:
            private = Path(folder)
            nonce = secrets.token_hex(16)
            _prepare_folder(private, nonce, redirects=self._redirects)
            if self.bytecode is not None:
                _drop_dated_bytecode(self.bytecode, self.interpreter.path)
            run = self._pytest(private, nonce, arguments=targets)
            endless: tuple[str, ...] = ()
            while keep is not None and (found := self._find_endless_tests(run, known=endless)):
                endless += found
                run = self._pytest(private, nonce, arguments=targets, left_out=endless)
            why = _explain_absent_plugin(run, python=self.interpreter.path)
            if why is not None:
                run = self._pytest(private, nonce, arguments=("-o", "addopts=", *targets))
            report, failed = self._judge_records(run, private)
            # Where tests wait for code, their conftest.py can wait too.
            if failed is not None and failed.cause == "refused" and self.traces:
                report = _report_conftest(run.result, self.root)
                failed = failed if report is None else None
            noted = tuple(_read_origins(private))
            origins = _list_origins(noted, root=self.root)
            if report is not None and endless:
                report = _add_endless_tests(report, endless, limit_s=self.timeout_s)
            if self.bytecode is not None:
                shutil.rmtree(self.bytecode / private.resolve().relative_to("/"), ignore_errors=True)
        if report is not None:
            save_report(report, keep)
        if keep is not None and (compiled := self._find_compiled()) is not None:
            own = [Path(each) for each in origins.values() if each.startswith(f"{self.root}{os.sep}")]
            compiled.add(own, interpreter=self.interpreter, sandbox=self.sandbox, timeout_s=self.timeout_s)
        return SuiteRun(
            report=report,
            failed=failed,
            output=run.result.output,
            duration_s=time.monotonic() - started,
            notices=(
                *([why] if why else []),
                *(f"{each} did not end: it counts as failed." for each in endless),
                *run.result.remarks,
            ),
            origins=origins,
            entered=_list_entered(noted),
            outdated=self._find_outdated(report, origins),
            broken=run.recording.problem,
        )

    def _find_outdated(self, report: SuiteReport | None, origins: Mapping[str, str]) -> tuple[str, str] | None:
        what = None if report is None else explain_outdated_links(report, origins, root=self.root)
        return None if what is None else (what, self._install_command)

    @property
    def _install_command(self) -> str:
        project = redirects[0] if (redirects := self._redirects) else self.root
        return f"{build_install_command(self.interpreter.path)} -e {project}"

    @property
    def _redirects(self) -> tuple[Path, Path] | None:
        return (self.original.root, self.root) if self.original else self.redirects

    def _find_compiled(self) -> CompiledSources | None:
        """Return the compiled sources if this run may use them: no test can write there."""
        return self.compiled if self.bytecode is None and self.sandbox.level != PlainSandbox.level else None

    def _find_endless_tests(self, run: RecordedRun, *, known: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tests that ran for most of the time limit, unless all the tests together were too slow."""
        # Each record is sent at once, so nothing has begun or ended since the last one.
        is_endless = run.result.timed_out and run.silent_s > self.timeout_s / 2
        return run.recording.running if is_endless and len(known) < _MOST_ENDLESS else ()

    def _pytest(
        self, private: Path, nonce: str, *, arguments: tuple[str, ...], left_out: tuple[str, ...] = ()
    ) -> RecordedRun:
        """Run pytest with the plugin in the folder ``private``, and read its records."""
        flaky = ("--tdd-agent-flaky", str(self.flaky)) if self.flaky else ()
        limit = ("--tdd-agent-test-timeout", str(self.seconds_per_test)) if self.seconds_per_test else ()
        # Most tests fail while code is missing. For each failure, pytest would parse the sources in its traceback, and
        # search the reports of all tests for its summary: with 6,500 failures, that took longer than the tests.
        short = ("--tb=native", "--no-summary") if self.traces else ()
        run_plugin, plugin = f"tdd_agent_run_{nonce}", f"tdd_agent_{nonce}"
        arguments = (
            *("-p", run_plugin, "-p", f"no:{pytest_tdd_agent.__name__}", "-p", plugin),
            *("--tdd-agent-report", str(private / "report.json"), "--tdd-agent-nonce", nonce),
            *("--tdd-agent-audit", *flaky, *limit, *short),
            *("--rootdir=.", "--continue-on-collection-errors", "--maxfail=0", "--color=no", *arguments),
        )
        task = {
            "bytecode": str(self.bytecode or ""),
            "modules": (run_plugin, plugin),
            "arguments": arguments,
            # Else the plugin asks git, and nobody could tell whether the tests do, too.
            "ignored": self.original.list_ignored() if self.original and self.original.list_ignored else None,
        }
        (private / "task.json").write_bytes(encode_json(task))
        variables = {
            "PYTHONDONTWRITEBYTECODE": "1",
            "CDD_LEFT_OUT": "\n".join(left_out),
            "CDD_TRACES": str(int(self.traces)),
            **({"PYTHONHASHSEED": self.hash_seed} if self.hash_seed else {}),
            **build_user_base_variable(self.interpreter.user_base),
        }
        sources = self._find_compiled()
        compiled = () if sources is None or sources.folder is None else (sources.folder,)
        if compiled:
            variables["CDD_COMPILED"] = str(compiled[0])
        if self.bytecode is not None:
            self.bytecode.mkdir(parents=True, exist_ok=True)
        variables |= self._build_import_path(private)
        access = build_access(
            self.root,
            self.interpreter,
            read_write=(private, *(() if self.bytecode is None else (self.bytecode,))),
            read_only=(private / "plugins", private / "launcher.py", private / _IMPORTS, *compiled, *self.reads),
            # The code under test must not change the tests or pytest's configuration while they run.
            locked=find_test_code(self.root),
            original=self.original,
        )
        command = Command(
            argv=(str(self.interpreter.path), str(private / "launcher.py")),
            cwd=self.root,
            access=access,
            variables=variables,
            timeout_s=self.timeout_s,
            output_cap=OUTPUT_CAP_BYTES,
        )
        return record_run(lambda stdout: self.sandbox.run(replace(command, stdout=stdout)), nonce=nonce)

    def _build_import_path(self, private: Path) -> dict[str, str]:
        """Return the variable that makes every Python of the run import from this copy of the project."""
        entries = [str(private / _IMPORTS)] if self._redirects else []
        entries += [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        return {"PYTHONPATH": os.pathsep.join(entries)} if entries else {}

    def _run_plainly(self, targets: tuple[str, ...]) -> SuiteRun:
        """Run pytest without the plugin; the report is made of its JUnit XML, which is read after its processes ended.

        Bytecode in the project is deleted first, because a program could have left other code there.
        """
        with tempfile.TemporaryDirectory(prefix="cdd-testrun-", ignore_cleanup_errors=True) as name:
            private = Path(name).resolve()
            if self._redirects is not None:
                _write_redirection(private / _IMPORTS, self._redirects)
            delete_bytecode(self.root)
            results = private / RESULTS
            result = self._start_plainly(private, targets)
            if not results.exists() and is_absent_plugin(find_refusal(result.output) or ""):
                result = self._start_plainly(private, targets, options=("-o", "addopts="))
            report, problem = read_results(results, selects=targets, exit_status=result.exit_status)
            origins = _list_origins(_read_origins(private), root=self.root)
        failed = None if problem is None else NoReport(happened=problem)
        if result.timed_out:
            report, failed = None, describe_time_out(self.timeout_s)
        elif report is None and (reason := find_refusal(result.output)) is not None:
            failed = NoReport(happened=f"{_REFUSED}: {reason}", cause="refused")
        seconds = result.duration_s
        return SuiteRun(report=report, failed=failed, output=result.output, duration_s=seconds, origins=origins)

    def _start_plainly(self, private: Path, targets: tuple[str, ...], *, options: tuple[str, ...] = ()) -> Result:
        program = private / "launcher.py"  # a name without pytest's
        shutil.copy(Path(__file__).parent / "inside" / "plain_pytest.py", program)
        # The path of a test's temporary folder names pytest too.
        hiding = ("--basetemp", str(private / "files")) if self.hides_run else ()
        options = (*self.options, *options, *hiding)
        arguments = build_arguments(private / RESULTS, root=self.root, options=options, selects=targets)
        (private / "task.json").write_bytes(encode_json({"arguments": arguments, "hides_run": self.hides_run}))
        access = build_access(
            self.root,
            self.interpreter,
            read_write=(private,),
            read_only=(program, private / _IMPORTS, *self.reads),
            locked=find_test_code(self.root),
            original=self.original,
        )
        variables = {
            "PYTHONDONTWRITEBYTECODE": "1",
            **({"PYTHONHASHSEED": self.hash_seed} if self.hash_seed else {}),
            **build_user_base_variable(self.interpreter.user_base),
            **self._build_import_path(private),
        }
        command = Command(
            argv=(str(self.interpreter.path), str(program)),
            cwd=self.root,
            access=access,
            variables=variables,
            timeout_s=self.timeout_s,
            output_cap=OUTPUT_CAP_BYTES,
        )
        return self.sandbox.run(command)

    def _judge_records(self, run: RecordedRun, private: Path) -> tuple[SuiteReport | None, NoReport | None]:
        """Return the report if it can be trusted, and is complete or names a test that did not end; or the problem."""
        result, report, broken, running = (
            run.result,
            run.recording.report,
            run.recording.problem,
            run.describe_running(),
        )
        if result.timed_out:
            return None, describe_time_out(self.timeout_s, running and f": ended{running}")
        if broken is not None and broken.code not in UNFINISHED:
            advice = "Find the code that writes to the plugin's descriptor"
            return None, NoReport(happened=f"the results cannot be trusted: {explain(broken)}. {advice}")
        if report is not None and broken is not None and broken.code == "endless_test":
            return replace(report, sandbox=result.level, problem=broken), None
        # The project's own hooks may end the process with any status after the session was finished.
        if report is None or broken is not None or (result.exit_status == _USAGE_ERROR and not report.complete):
            absent = _ABSENT_MODULE.search(find_refusal(result.output) or "")
            if absent and _is_in_src(absent[1], self.root):
                return None, self._explain_uninstalled(absent[1])
            failed = _explain_missing_report(run, python=self.interpreter.path)
            full = _find_full_disk(result.output, private, self.root)
            return None, replace(failed, happened=failed.happened + full)
        if not report.complete:
            why, advice = explain_stop(result.output)
            if raised := summarize_internal_error(report):
                why, advice = f": {raised[:REASON_CAP]}", ""
            happened = f"the run ended early (pytest status {report.exit_status}){running}{why}"
            return None, NoReport(happened=happened, advice=advice)
        if module := find_uninstalled_module(report, self.root):
            return None, self._explain_uninstalled(module)
        return replace(report, sandbox=result.level), None

    def _explain_uninstalled(self, module: str) -> NoReport:
        happened = f"no test can import {module}, which is in src and not installed"
        return NoReport(happened=happened, cause="not_installed", advice=self._install_command)


class _Origins(msgspec.Struct):
    root: str
    modules: dict[str, str]
    entered: dict[str, list[str]] = msgspec.field(default_factory=dict)


def _read_origins(private: Path) -> Iterator[_Origins]:
    """Yield what the processes of a run noted about modules and tests."""
    for path in private.glob("origins-*.json"):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            yield msgspec.json.decode(read_ordinary(path, limit_bytes=_ORIGINS_LIMIT_BYTES), type=_Origins)


def _list_origins(noted: Iterable[_Origins], *, root: Path) -> dict[str, str]:
    """Return module -> file, relative to the project's folder ``root`` if it is there; empty if none is known."""
    found: dict[str, str] = {}
    top = find_top(root)
    for origins in noted:
        # A sandbox shows the copy, whose top may be above the project's folder, at the original's path.
        shown = os.path.normpath(os.path.join(origins.root, os.path.relpath(top, root)))
        found |= {name: _relocate(file, shown, top=top) for name, file in origins.modules.items()}
    return found


def _list_entered(noted: Iterable[_Origins]) -> dict[str, frozenset[str]]:
    """Return what ``SuiteRun.entered`` is."""
    found: dict[str, frozenset[str]] = {}
    for origins in noted:
        for path, tests in origins.entered.items():
            found[path] = found.get(path, frozenset()) | frozenset(tests)
    return found


def _relocate(file: str, shown: str, *, top: Path) -> str:
    return str(top / os.path.relpath(file, shown)) if file.startswith(shown + os.sep) else file


def _is_dated(path: Path) -> bool:
    """Return whether bytecode is checked by the size and time of its source, not by a hash."""
    with path.open("rb") as stream:
        return stream.read(8)[4:] != _CHECKED_HASH


def _prepare_folder(private: Path, nonce: str, *, redirects: tuple[Path, Path] | None) -> None:
    here, plugins = Path(__file__).parent / "inside", private / "plugins"
    package = Path(pytest_tdd_agent.__file__).parent
    shutil.copytree(package, plugins / f"tdd_agent_{nonce}", ignore=shutil.ignore_patterns("*pytest-*.pyc"))
    shutil.copy(here / "run_plugin.py", plugins / f"tdd_agent_run_{nonce}.py")
    shutil.copy(here / "launcher.py", private)
    if redirects is not None:
        _write_redirection(private / _IMPORTS, redirects)


def _write_redirection(folder: Path, redirects: tuple[Path, Path]) -> None:
    """Write the program that redirects imports from the work tree around one project to that around the other."""
    folder.mkdir()
    original, copy = redirects
    up = os.path.relpath(find_top(copy), copy)
    redirects = (Path(os.path.normpath(original / up)), Path(os.path.normpath(copy / up)))
    shutil.copy(Path(__file__).parent / "inside" / "redirect.py", folder / "sitecustomize.py")
    (folder / "folders").write_bytes(b"\0".join(map(os.fsencode, redirects)))


def _drop_dated_bytecode(cache: Path, python: Path) -> None:
    # Tests and pytest itself write bytecode that is checked by date only: it could hide an edit in the same second.
    prefixes = (python.parent.parent.absolute(), python.resolve().parent.parent)
    installed = tuple(str(prefix / "lib" / "python3") for prefix in prefixes)
    for path in cache.rglob("*.pyc"):
        if f"/{path.relative_to(cache)}".startswith(installed) or path.is_dir():
            continue
        if path.is_symlink() or not path.is_file() or _is_dated(path):
            path.unlink()


def _explain_missing_report(run: RecordedRun, *, python: Path) -> NoReport:
    result, running, has_begun = run.result, run.describe_running(), run.recording.report is not None
    reason = find_refusal(result.output)
    if not running and reason is not None:
        return NoReport(happened=f"{_REFUSED}: {reason}", cause="refused", advice=suggest_fix(reason, python))
    last = (result.output.strip().splitlines() or ["no output"])[-1]
    if not has_begun:
        return NoReport(happened=f"{describe_exit(result.exit_status)} and left no report: {last}")
    why = ": a test or hook ended the process or closed its descriptors" if result.exit_status >= 0 else ""
    when = running or " before the session was finished"
    return NoReport(happened=f"{describe_exit(result.exit_status)}{when}{why}. The last line of the output: {last}")


def _find_full_disk(output: str, *folders: Path) -> str:
    """Return the end of a sentence that names the full disk that explains a missing file; else empty."""
    if full := next(filter(None, map(find_full_disk, folders)), None):
        return f". {full.happened} (hint: {full.hint})"
    return f"; the tests said: {_NO_SPACE}" if _NO_SPACE in output else ""


def _explain_absent_plugin(run: RecordedRun, *, python: Path) -> str | None:
    """Return the notice if pytest ran nothing because ``addopts`` needs a plugin that is not installed."""
    result = run.result
    reason = find_refusal(result.output)
    has_run = run.recording.report is not None and result.exit_status != _USAGE_ERROR
    if result.timed_out or has_run or reason is None or not is_absent_plugin(reason):
        return None
    fix = suggest_fix(reason, python)
    return f"the tests ran without the project's addopts, which pytest refused: {reason}; {fix}"
