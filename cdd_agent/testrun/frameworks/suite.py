"""The tests of a project that a command runs: any framework's, its results read into the report that gates judge."""

import os
import secrets
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cdd_agent.sandbox.port import Access, Command, Result, Sandbox
from cdd_agent.testrun.access import access_for, protected_tests
from cdd_agent.testrun.frameworks.environment import (
    MODULES,
    SHARED,
    Tools,
    copy_without,
    fingerprints,
    forget_own,
    is_built,
    lend_modules,
    parts,
    prepare,
    shown,
    tools_for,
    top_of,
)
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.names import names_of
from cdd_agent.testrun.suite import Conventions, SuiteRun
from pytest_tdd_agent.codec import dump
from pytest_tdd_agent.report import Case, Failure, SuiteReport

OUTPUT_CAP_BYTES = 32_000_000
"""Some frameworks tell their results in nothing but what they print."""
_HIDES_OTHERS = frozenset({"cargo", "nextest", "go", "maven", "gradle", "dotnet", "mocha"})
"""Where a test file that does not compile, or load, hides the tests of other files."""
_MOST_BROKEN = 10
"""So often a copy without such files is made."""
SHOWN_CHARACTERS = 200_000
"""Of what was printed, for who reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSuite:
    """The tests of a project that a command runs; node ids are relative to ``root``."""

    root: Path
    framework: Framework
    finding: Finding
    """How it was found; its command runs in the project's folder."""
    sandbox: Sandbox
    timeout_s: float
    cache: Path | None
    """Folder of ours for what is compiled, kept between runs. None: everything is compiled anew."""
    reads: tuple[Path, ...] = ()
    """What the tests need to read elsewhere."""
    accepts_exit_status: bool = False
    """Whether the user lets the exit status count where there are no results of single tests."""

    @property
    def conventions(self) -> Conventions:
        """What files and names are called here."""
        return Conventions(
            framework=self.framework.name,
            is_test=self.framework.is_test,
            names_of=names_of(self.framework.name, self.root),
            shared=SHARED,
            parts=parts,
            looked_for=f"{self.framework.name} is run by `{self.command}`, as {self.finding.why}",
            accepts_exit_status=self.accepts_exit_status,
        )

    @property
    def command(self) -> str:
        """What a person types in the project's folder to run all tests."""
        return " ".join(shown(part, self.root) for part in self.finding.argv)

    @property
    def variables(self) -> Mapping[str, str]:
        """What commands need to find the same tools; what they compile goes to another folder than the tests'."""
        return dict(_tools(self, _commands_cache(self)).variables)

    def in_copy(self, root: Path, *, reads: tuple[Path, ...] = ()) -> "CommandSuite":
        """The same tests in a copy, compiled from nothing; packages that are installed are lent to it by links."""
        modules = lend_modules(self.root, copy=root)
        return replace(
            self,
            root=root,
            finding=replace(self.finding, manifest=root / os.path.relpath(self.finding.manifest, self.root)),
            cache=None,
            reads=(*self.reads, *modules, *reads),
        )

    def anew(self) -> "CommandSuite":
        """The same tests; what was compiled of the project itself before does not take part."""
        if self.cache is not None:
            forget_own(self.cache, self.root)
        return self

    def within(self, timeout_s: float) -> "CommandSuite":
        """The same tests, with so much time for a run."""
        return replace(self, timeout_s=timeout_s)

    def shut_in(self, sandbox: Sandbox) -> "CommandSuite":
        """The same tests, run by another sandbox."""
        return replace(self, sandbox=sandbox)

    def access(self, *, locked: tuple[Path, ...] = (), tests_too: bool = False) -> Access:
        """What a command of the model's may reach."""
        tests = protected_tests(self.root, self.framework.is_test) if tests_too else ()
        tools = _tools(self, _commands_cache(self))
        return _access(self, tools, locked=(*tests, *locked))

    def run(self, targets: tuple[str, ...] = (), *, keep: Path | None = None) -> SuiteRun:
        """Run the tests that ``targets`` name, or all; the report is also written to ``keep``."""
        started, began = time.monotonic(), datetime.now(UTC)
        prints = fingerprints(self.root, self.conventions)
        for path in self.framework.stale(self.root):
            with suppress(OSError):
                path.unlink()
        with tempfile.TemporaryDirectory(prefix="cdd-testrun-", ignore_cleanup_errors=True) as folder:
            results, built = Path(folder).resolve() / "results", Path(folder).resolve() / "built"
            results.mkdir()
            built.mkdir()
            tools = _tools(self, self.cache or built)
            try:
                result = _command(self, tools, targets=targets, results=results)
            except OSError as error:
                return _ran_nothing(f"{self.finding.argv[0]} cannot be started: {error.strerror or error}", started)
            ended = Ended(root=self.root, results=results, output=result.output, exit_status=result.exit_status)
            found = self.framework.read(ended)
            if not result.timed_out and not targets and found.problem is None:
                found = beside_broken(self, found, folder=Path(folder).resolve())
        problem = _problem(self, result, found=found)
        if problem is not None:
            return _ran_nothing(problem, started, result=result)
        duration_s = time.monotonic() - started
        report = SuiteReport(
            complete=True,
            exit_status=result.exit_status,
            nonce=secrets.token_hex(16),
            python="",
            pytest="",
            rootdir=str(self.root),
            started_at=began.strftime("%Y-%m-%dT%H:%M:%SZ"),
            duration_s=duration_s,
            tests=_apart(found.tests),
            collect_errors=found.collect_errors,
            fingerprints=prints,
            collected=len(found.tests),
            sandbox=result.level,
            framework=self.framework.name,
            structured=found.is_structured,
        )
        if keep is not None:
            keep.parent.mkdir(parents=True, exist_ok=True)
            dump(report, keep)
        return SuiteRun(
            report=report,
            problem=None,
            output=_middle_out(result.output),
            duration_s=duration_s,
            notices=result.remarks,
        )


def beside_broken(suite: CommandSuite, found: Results, *, folder: Path) -> Results:
    """The results with those of the tests that did not run because other test files do not compile or load.

    Where one such file hides the tests of others they are run in a copy without it; and again, as often as that copy
    shows one more such file: not every tool names all of them at once.
    """
    broken: frozenset[str] = frozenset()
    for number in range(_MOST_BROKEN):
        names = {error.nodeid for error in found.collect_errors}
        if suite.framework.name not in _HIDES_OTHERS or names == broken or not all(map(suite.framework.is_test, names)):
            break
        broken = frozenset(names)
        others = _without(suite, broken, folder=folder / f"beside-{number}")
        if others is None:
            break
        told = {case.nodeid for case in found.tests}
        found = replace(
            found,
            tests=(*found.tests, *(case for case in others.tests if case.nodeid not in told)),
            collect_errors=(
                *found.collect_errors,
                *(each for each in others.collect_errors if each.nodeid not in names),
            ),
        )
    return found


def _without(suite: CommandSuite, broken: frozenset[str], *, folder: Path) -> Results | None:
    """What comes of a copy of the project without the files ``broken``; None if that cannot be judged."""
    top, results = top_of(suite.root), folder / "results"
    copy = folder / suite.root.relative_to(top.parent)
    copy_without(suite.root, copy, left_out=broken)
    results.mkdir()
    others = suite.in_copy(copy, reads=(top,))
    tools = _tools(others, (suite.cache or folder).with_name("others"))
    try:
        result = _command(others, tools, targets=(), results=results)
    except OSError:
        return None
    ended = Ended(root=copy, results=results, output=result.output, exit_status=result.exit_status)
    read = suite.framework.read(ended)
    return None if result.timed_out or read.problem is not None else _as_in(suite.root, read, copy=copy)


def _as_in(root: Path, found: Results, *, copy: Path) -> Results:
    """The results with the project's own paths: a copy's differ from run to run, and so would an error that stays."""

    def told(failure: Failure) -> Failure:
        texts = (text.replace(str(copy), str(root)) for text in (failure.message, failure.text, failure.output))
        message, text, output = texts
        return replace(failure, message=message, text=text, output=output)

    return replace(
        found,
        tests=tuple(
            case if case.failure is None else replace(case, failure=told(case.failure)) for case in found.tests
        ),
        collect_errors=tuple(replace(each, failure=told(each.failure)) for each in found.collect_errors),
    )


def _command(suite: CommandSuite, tools: Tools, *, targets: tuple[str, ...], results: Path) -> Result:
    """Run the command to its end; tests and what configures them cannot be changed by what they run.

    Tests that a build has compiled can: the command may be what compiles them.
    """

    def is_written(path: str) -> bool:
        return suite.framework.is_test(path) and not is_built(path, suite.framework.is_test)

    tests = protected_tests(suite.root, is_written)
    manifest = (suite.finding.manifest,) if suite.finding.manifest.is_file() else ()
    program, *words = suite.finding.argv
    return suite.sandbox.run(
        Command(
            argv=(
                str(suite.root / program) if "/" in program else program,
                *(*words, *tools.arguments, *suite.framework.arguments(targets, results)),
            ),
            cwd=suite.root,
            access=_access(suite, tools, locked=(*tests, *manifest), writes=(results,)),
            variables={**tools.variables, **dict(suite.framework.variables)},
            timeout_s=suite.timeout_s,
            output_cap=OUTPUT_CAP_BYTES,
        )
    )


def _tools(suite: CommandSuite, cache: Path) -> Tools:
    return tools_for(suite.framework.name, suite.finding.argv[0], cache=cache, root=suite.root)


def _commands_cache(suite: CommandSuite) -> Path:
    """Where commands of the model's keep what they compile; never what tests are judged by."""
    return (suite.cache or Path(tempfile.gettempdir()) / "cdd-build" / "any").with_name("commands")


def _access(suite: CommandSuite, tools: Tools, *, locked: tuple[Path, ...], writes: tuple[Path, ...] = ()) -> Access:
    """The project, what the tools need, and nothing that judges: installed packages stay as they are."""
    prepare(tools)
    modules = tuple(folder for folder in (suite.root / MODULES,) if folder.is_dir())
    return access_for(
        suite.root,
        tools,
        read_write=(*tools.writes, *writes),
        read_only=suite.reads,
        locked=(*locked, *modules),
    )


def _ran_nothing(problem: str, began: float, *, result: Result | None = None) -> SuiteRun:
    """A run without a report."""
    return SuiteRun(
        report=None,
        problem=problem,
        output="" if result is None else _middle_out(result.output),
        duration_s=time.monotonic() - began,
        notices=() if result is None else result.remarks,
    )


def _problem(suite: CommandSuite, result: Result, *, found: Results) -> str | None:
    """Why the results cannot be judged, if they cannot."""
    if result.timed_out:
        return f"the tests did not end within {suite.timeout_s:g} s"
    if result.dropped_bytes:
        return f"the tests printed more than {OUTPUT_CAP_BYTES} bytes, so that not all of it could be read"
    is_silent = found.is_structured and not (found.tests or found.collect_errors)
    if found.problem is None and is_silent and result.exit_status:
        last = (result.output.strip().splitlines() or ["no output"])[-1]
        return f"`{suite.command}` ended with status {result.exit_status} and told of no test: {last[:400]}"
    return found.problem


def _middle_out(output: str) -> str:
    half = SHOWN_CHARACTERS // 2
    if len(output) <= SHOWN_CHARACTERS:
        return output
    return f"{output[:half]}\n[... {len(output) - SHOWN_CHARACTERS} characters dropped ...]\n{output[-half:]}"


def _apart(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """The tests, those of one node id told apart by a number: the last of them must not speak for the others."""
    seen: dict[str, int] = {}
    told = []
    for case in cases:
        count = seen[case.nodeid] = seen.get(case.nodeid, 0) + 1
        told.append(case if count == 1 else replace(case, nodeid=f"{case.nodeid} #{count}"))
    return tuple(told)
