"""The suite of a project whose tests a command runs."""

import os
import secrets
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cdd_agent.config.trust import find_top
from cdd_agent.sandbox.port import ISOLATING_LEVELS, Access, Command, Result, Sandbox
from cdd_agent.testrun.access import Original, build_access, find_protected_tests
from cdd_agent.testrun.frameworks import environment
from cdd_agent.testrun.frameworks.environment import Tools
from cdd_agent.testrun.frameworks.framework import FinishedRun, Framework, FrameworkMatch, ParsedResults, number_cases
from cdd_agent.testrun.frameworks.sources import shorten
from cdd_agent.testrun.suite import Conventions, NoReport, SuiteRun, describe_time_out, save_report
from pytest_tdd_agent.report import Case, Failure, SuiteReport

OUTPUT_CAP_BYTES = 32_000_000
"""A large limit, because some frameworks report results only in their output."""
SHOWN_CHARACTERS = 200_000
"""Length to which the output in a report is cut."""
_MOST_BROKEN = 10
"""How often to repeat the run without broken files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSuite:
    """The tests of a project that a command runs; node ids are relative to ``root``."""

    root: Path
    framework: Framework
    finding: FrameworkMatch
    """Its command runs in the project's folder."""
    sandbox: Sandbox
    timeout_s: float
    cache: Path | None
    """Folder for build results between runs; with None, everything is compiled from scratch."""
    reads: tuple[Path, ...] = ()
    """Further files and folders that the tests read."""
    original: Original | None = None
    """The project that ``root`` is a copy of."""
    setup: str = ""
    """The shell command that prepares a copy."""
    accepts_exit_status: bool = False
    """Whether the user accepts the exit status where single tests have no results."""

    @property
    def conventions(self) -> Conventions:
        """The framework's names of files and modules."""
        return Conventions(
            framework=self.framework.name,
            is_test=self.framework.is_test,
            list_names=partial(self.framework.list_names, root=self.root),
            shared=environment.SHARED,
            digest_parts=environment.digest_parts,
            discovery=f"{self.framework.name} is run by `{self.command}`, as {self.finding.why}",
            accepts_exit_status=self.accepts_exit_status,
        )

    @property
    def command(self) -> str:
        """The command line that runs all tests in the project's folder."""
        return " ".join(environment.show_word(word, self.root) for word in self.finding.argv)

    @property
    def signature(self) -> tuple[str, ...] | None:
        """The command and its variables; None outside an isolating sandbox, where a run can see anything."""
        if self.sandbox.level not in ISOLATING_LEVELS:
            return None
        variables = (f"{name}={value}" for name, value in self.variables.items())
        return self.sandbox.level, self.command, str(self.accepts_exit_status), self.setup, *variables

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables that let the model's commands find the same tools."""
        return dict(self._tools(self._commands_cache).variables)

    def with_root(self, root: Path, *, reads: tuple[Path, ...] = ()) -> "CommandSuite":
        """Return the tests of a copy, compiled from scratch, with links to installed packages."""
        linked = () if self._is_shown else environment.link_modules(self.root, copy=root)
        reads = (*self.reads, *linked, *reads)
        original = None if self.original is None else replace(self.original, git=None)
        return replace(self, root=root, finding=self._move_finding(root), cache=None, reads=reads, original=original)

    def in_run_tree(self, root: Path, *, original: Original) -> "CommandSuite":
        """Return the tests of the run tree ``root``, with the same cache."""
        return replace(self, root=root, finding=self._move_finding(root), original=original)

    def _move_finding(self, root: Path) -> FrameworkMatch:
        return replace(self.finding, manifest=root / os.path.relpath(self.finding.manifest, self.root))

    @property
    def _is_shown(self) -> bool:
        """Whether programs find the copy at the path of its original, with the packages that are installed there."""
        return self.original is not None and self.sandbox.level in ISOLATING_LEVELS

    def without_cache(self) -> "CommandSuite":
        """Return the same tests, after dropping the build results of the project's own code."""
        if self.cache is not None:
            environment.forget_own_crates(self.cache, self.root)
        return self

    def with_timeout(self, timeout_s: float) -> "CommandSuite":
        """Return the same tests with another time limit for a run."""
        return replace(self, timeout_s=timeout_s)

    def with_test_limit(self, seconds: float | None) -> "CommandSuite":
        """Return the same tests."""
        return self

    def with_tracing(self) -> "CommandSuite":
        """Return the same tests."""
        return self

    def with_sandbox(self, sandbox: Sandbox) -> "CommandSuite":
        """Return the same tests in another sandbox."""
        return replace(self, sandbox=sandbox)

    def build_access(self, *, locked: tuple[Path, ...] = (), tests_too: bool = False) -> Access:
        """Build the access of the model's commands."""
        tests = find_protected_tests(self.root, self.framework.is_test) if tests_too else ()
        return self._access(self._tools(self._commands_cache), locked=(*tests, *locked))

    def run(self, targets: tuple[str, ...] = (), *, keep: Path | None = None) -> SuiteRun:
        """Run the tests in ``targets``, or all; also save the report to ``keep``."""
        started, began = time.monotonic(), datetime.now(UTC)
        paths = (target.partition("::")[0].removeprefix("./").rstrip("/") for target in targets)
        files = tuple(dict.fromkeys(paths))
        fingerprints = environment.fingerprint(self.root, self.conventions)
        with tempfile.TemporaryDirectory(prefix="cdd-testrun-", ignore_cleanup_errors=True) as name:
            folder = Path(name).resolve()
            results, built = folder / "results", folder / "built"
            for each in (results, built):
                each.mkdir()
            try:
                result = self._execute(self._tools(self.cache or built), files=files, results=results)
            except OSError as error:
                reason = f"{self.finding.argv[0]} cannot be started: {error.strerror or error}"
                return _report_problem(NoReport(happened=reason), started)
            found = self._read(result, results)
            if not result.timed_out and not targets and found.problem is None:
                found = self.add_hidden_tests(found, folder=folder)
        failed = self._explain_failure(result, found)
        if failed is not None:
            return _report_problem(failed, started, result=result)
        tests, duration_s = _select_tests(number_cases(found.tests), targets), time.monotonic() - started
        report = SuiteReport(
            complete=True,
            exit_status=result.exit_status,
            nonce=secrets.token_hex(16),
            python="",
            pytest="",
            rootdir=str(self.root),
            started_at=began.strftime("%Y-%m-%dT%H:%M:%SZ"),
            duration_s=duration_s,
            tests=tests,
            collect_errors=found.collect_errors,
            fingerprints=fingerprints,
            collected=len(tests),
            sandbox=result.level,
            framework=self.framework.name,
            structured=found.is_structured,
        )
        save_report(report, keep)
        output = shorten(result.output, SHOWN_CHARACTERS)
        return SuiteRun(report=report, output=output, duration_s=duration_s, notices=result.remarks)

    def add_hidden_tests(self, found: ParsedResults, *, folder: Path) -> ParsedResults:
        """Add the tests that did not run because other test files do not compile or load.

        They run in a copy without those files. Not every tool reports all broken files at once, so this repeats until
        the copy shows no other one.
        """
        broken: frozenset[str] = frozenset()
        for number in range(_MOST_BROKEN if self.framework.hides_other_tests else 0):
            names = {error.nodeid for error in found.collect_errors}
            if names == broken or not all(map(self.framework.is_test, names)):
                break
            broken = frozenset(names)
            others = self._run_without(broken, folder=folder / f"beside-{number}")
            if others is None:
                break
            known = {case.nodeid for case in found.tests}
            tests = (case for case in others.tests if case.nodeid not in known)
            errors = (each for each in others.collect_errors if each.nodeid not in names)
            found = replace(found, tests=(*found.tests, *tests), collect_errors=(*found.collect_errors, *errors))
        return found

    def _run_without(self, broken: frozenset[str], *, folder: Path) -> ParsedResults | None:
        """Return the results of a copy without the files ``broken``, or None if there is a problem."""
        top, results = find_top(self.root), folder / "results"
        copy = folder / self.root.resolve().relative_to(top.parent)
        environment.copy_without(self.root, copy, left_out=broken)
        results.mkdir()
        others = self.with_root(copy, reads=(top,))
        tools = others._tools((self.cache or folder).with_name("others"))
        try:
            result = others._execute(tools, files=(), results=results)
        except OSError:
            return None
        found = others._read(result, results)
        return None if result.timed_out or found.problem is not None else _restore_paths(found, copy, root=self.root)

    def _execute(self, tools: Tools, *, files: tuple[str, ...], results: Path) -> Result:
        """Run the command to its end; it can change neither the tests nor their configuration."""
        for path in self.framework.old_reports(self.root):
            path.unlink()  # the tool keeps them if the code does not compile

        def is_locked(path: str) -> bool:
            # The command itself may compile the tests.
            return self.framework.is_test(path) and not environment.is_built(path, self.framework.is_test)

        tests = find_protected_tests(self.root, is_locked)
        manifest = (self.finding.manifest,) if self.finding.manifest.is_file() else ()
        arguments = (*tools.arguments, *self.framework.arguments(files, results))
        program, *words = self.finding.build_command(arguments, is_selected=bool(files), folder=self.root)
        program = str(self.root / program) if "/" in program else program
        command = Command(
            argv=(program, *words),
            cwd=self.root,
            access=self._access(tools, locked=(*tests, *manifest), writes=(results,)),
            variables={**tools.variables, **dict(self.framework.variables)},
            timeout_s=self.timeout_s,
            output_cap=OUTPUT_CAP_BYTES,
        )
        return self.sandbox.run(command)

    def _read(self, result: Result, results: Path) -> ParsedResults:
        output, exit_status = result.output, result.exit_status
        if self.original is not None and self._is_shown:
            # The program named its files as it found them.
            shown, root = str(self.original.root), str(self.root)
            output = output.replace(shown, root)
            for path in results.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    path.write_bytes(path.read_bytes().replace(shown.encode(), root.encode()))
        run = FinishedRun(root=self.root, results=results, output=output, exit_status=exit_status)
        found = self.framework.read(run)
        if not (found.is_structured and found.tests) or found.explains_status:
            return found
        # Code under test can write into the results, but not decide how the process ends that cdd waits for.
        return run.conclude(found, f"`{self.command}` ended with status {exit_status} although no test failed")

    def _tools(self, cache: Path) -> Tools:
        root = self.root
        if self.original is not None:
            root = self.original.root if self._is_shown else self.root
            if not self._is_shown:
                environment.link_modules(self.original.root, copy=self.root)
        return environment.find_tools(self.framework.toolchains, self.finding.argv[0], cache=cache, root=root)

    @property
    def _commands_cache(self) -> Path:
        # Build results of the model's commands must never be used by cdd's own runs.
        return (self.cache or Path(tempfile.gettempdir()) / "cdd-build" / "any").with_name("commands")

    def _access(self, tools: Tools, *, locked: tuple[Path, ...], writes: tuple[Path, ...] = ()) -> Access:
        modules: tuple[Path, ...] = ()
        if self._is_shown:
            # The packages are the user's: caches of tools are dropped there with each command, or refused.
            own = tuple(path for path in tools.writes if path.name not in environment.MODULE_CACHES)
            tools = replace(tools, writes=own)
        else:
            modules = tuple(folder for folder in (self.root / environment.MODULES,) if folder.is_dir())
        for folder in tools.writes:  # a sandbox can mount only existing folders
            is_possible = folder.name not in environment.MODULE_CACHES or folder.parent.is_dir()
            if is_possible and not folder.is_symlink():
                folder.mkdir(exist_ok=True, parents=True)
        writable, locked = (*tools.writes, *writes), (*locked, *modules)
        return build_access(
            self.root, tools, read_write=writable, read_only=self.reads, locked=locked, original=self.original
        )

    def _explain_failure(self, result: Result, found: ParsedResults) -> NoReport | None:
        """Return why the results cannot be judged, or None if they can."""
        if result.timed_out:
            return describe_time_out(self.timeout_s)
        if result.dropped_bytes:
            return NoReport(happened=f"the tests printed more than {OUTPUT_CAP_BYTES} bytes, the most that can be read")
        is_silent = found.is_structured and not (found.tests or found.collect_errors)
        if found.problem is None and is_silent and result.exit_status:
            last = (result.output.strip().splitlines() or ["no output"])[-1]
            happened = f"`{self.command}` ended with status {result.exit_status} and reported no test: {last[:400]}"
            return NoReport(happened=happened)
        return None if found.problem is None else NoReport(happened=found.problem)


def _select_tests(tests: tuple[Case, ...], targets: tuple[str, ...]) -> tuple[Case, ...]:
    """Return the tests that ``targets`` name, and others whose names begin alike; tools select by file only."""
    names = tuple(target.removeprefix("./") for target in targets)
    is_by_name = bool(names) and all("::" in name for name in names)
    return tuple(case for case in tests if case.nodeid.startswith(names)) if is_by_name else tests


def _restore_paths(found: ParsedResults, copy: Path, *, root: Path) -> ParsedResults:
    """Return the results with the project's paths, so that the same error looks the same in every copy."""

    def restore(failure: Failure) -> Failure:
        texts = {name: getattr(failure, name).replace(str(copy), str(root)) for name in ("message", "text", "output")}
        return replace(failure, **texts)

    tests = (replace(case, failure=restore(case.failure)) if case.failure else case for case in found.tests)
    errors = (replace(each, failure=restore(each.failure)) for each in found.collect_errors)
    return replace(found, tests=tuple(tests), collect_errors=tuple(errors))


def _report_problem(failed: NoReport, began: float, *, result: Result | None = None) -> SuiteRun:
    output, notices = (shorten(result.output, SHOWN_CHARACTERS), result.remarks) if result else ("", ())
    duration_s = time.monotonic() - began
    return SuiteRun(report=None, failed=failed, output=output, duration_s=duration_s, notices=notices)
