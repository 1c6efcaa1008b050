"""Checks that a generated repository can be installed: in a new environment, in the sandbox, without a network.

An installation runs code: a build backend, and the modules that it installs. Only the download of wheels is outside of
the sandbox, by the pip of a Python outside of the repository; no code of a package runs there.
"""

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from cdd_agent.config.trust import is_reached_through
from cdd_agent.errors import EnvironmentMissing, format_count, join_first
from cdd_agent.generation.layout import SOURCES
from cdd_agent.generation.outcome import InstallationCheck, Installed, NotInstalled, NotVerified
from cdd_agent.generation.requirements import QUESTION, Environment, Requirements
from cdd_agent.sandbox.port import Access, Command, Result, Sandbox
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.access import guess_reads
from cdd_agent.testrun.frameworks.framework import read_junit
from cdd_agent.testrun.interpreter import remove_own_variables, run_outside
from cdd_agent.untrusted.text import clean, shorten

BACKEND = "setuptools>=70.1"
_TOOLS = ("pytest", "coverage>=7.6")
_DOWNLOAD_S = 300.0
_STEP_S = 300.0
_LONGEST = 300
_OUTPUT_CAP = 4_000_000
_COVERAGE_CAP_BYTES = 200_000_000
_PIP = "lib/python3*/*-packages/pip/__main__.py"
_NAMED = 5
_QUIET = ("--disable-pip-version-check", "--no-input", "--quiet")
_IMPORTS = """\
import importlib, json, sys
mark, folder, *modules = sys.argv[1:]
sys.path[:0] = [folder] if folder else []
for name in modules:
    print("\\n" + mark, json.dumps([name]), flush=True)
    missing = said = ""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing, said = (error.name or "").partition(".")[0], str(error)
    except BaseException as error:
        said = type(error).__name__ + ": " + str(error)
    print("\\n" + mark, json.dumps([name, missing, said]), flush=True)
"""
"""Imports each module, and prints before and after it what happens."""


def ask_environment(python: Path, *, sandbox: Sandbox, folder: Path) -> Environment:
    """Return the packages of an interpreter; none if it does not answer. ``folder`` is private to the question.

    It runs in the sandbox, because files of an environment can run code when Python starts.
    """
    command = Command(
        argv=(str(python), "-I", "-c", QUESTION),
        cwd=folder,
        access=Access(read_write=(folder,), read_only=guess_reads(python)),
        timeout_s=_STEP_S,
        variables={"PYTHONDONTWRITEBYTECODE": "1"},
        output_cap=_OUTPUT_CAP,
    )
    try:
        result = sandbox.run(command)
        return msgspec.json.decode(result.output.splitlines()[-1], type=Environment)
    except (OSError, IndexError, msgspec.DecodeError, RecursionError):
        return Environment()


Download: TypeAlias = Callable[[Sequence[str], Path], str | None]
"""Downloads wheels of the requirements, with all that these need, into a folder; returns why that was not possible."""


def download_wheels(
    requirements: Sequence[str], into: Path, *, python: Path, project: Path, variables: Mapping[str, str]
) -> str | None:
    """Download wheels for ``python``, outside of the sandbox; return why that was not possible.

    Nothing in ``project`` runs: the base of its environment does. ``variables``: those of the user, which say where
    packages come from.
    """
    base = python.resolve()
    if is_reached_through(project, base):
        return f"{base} is inside the repository, so it does not run outside of the sandbox."
    # A source distribution would run code of the package when pip reads its metadata.
    options = ("--only-binary=:all:", "--dest", str(into), *_QUIET)
    argv = (*build_pip_command(base, base), "download", *options, "--", *requirements)
    try:
        answer = run_outside(argv, variables=remove_own_variables(variables), timeout_s=_DOWNLOAD_S)
    except OSError as error:
        return f"pip could not download packages: {error.strerror or error}."
    if answer.returncode == 0:
        return None
    said = answer.stderr or answer.stdout
    if "No module named pip" in said:
        return f"{argv[0]} has no pip, which downloads {BACKEND}."
    return f"pip cannot download {join_first(requirements, most=_NAMED)} as wheels: {_read_end(said)}"


def build_pip_command(base: Path, target: Path) -> tuple[str, ...]:
    """Return the beginning of a pip command for the environment of ``target``."""
    return (str(_find_pip(base)), "-I", "-m", "pip", "--python", str(target))


def _find_pip(base: Path) -> Path:
    """Return a Python that has pip, if there is one: that of cdd, or the one below the project's."""
    known = (Path(sys.executable), Path(sys.executable).resolve(), base)
    return next((each for each in known if [*each.parent.parent.glob(_PIP)]), base)


@dataclass(frozen=True, kw_only=True)
class InstallationTrial:
    """One trial of an installation, and what it needs."""

    python: Path
    """The interpreter with which the repository was tested. The new environment has its base."""
    sandbox: Sandbox
    folder: Path
    """A new folder of this trial alone, with real path; it contains the copy of the repository."""
    copy: Path
    """A copy of the repository, below ``folder``. The installation changes it."""
    download: Download

    def check(
        self, modules: Sequence[str], *, requirements: Requirements, confirm: Callable[[tuple[str, ...]], bool]
    ) -> InstallationCheck:
        """Install the copy, import ``modules`` and run its tests; return how that went.

        ``confirm`` is asked once whether the packages that the graph lists may be downloaded. Those that only the code
        imports are not: a model may have made up their names.
        """
        listed = requirements.listed
        accepted = listed if listed and confirm(listed) else ()
        declined = tuple(each for each in requirements.lines if each not in accepted)
        self._wheels.mkdir(exist_ok=True)
        problem = self.download((BACKEND, *_TOOLS, *accepted), self._wheels)
        if problem is not None:
            return NotVerified(reason=problem)
        try:
            return self._try(modules, packages=accepted, declined=declined)
        except EnvironmentMissing as error:
            return NotVerified(reason=error.happened)
        except OSError as error:
            return NotVerified(reason=f"A program could not be started: {error.strerror or error}.")

    @property
    def _base(self) -> Path:
        """The interpreter below an environment. Its folder, not the environment's, is outside of the project."""
        return self.python.resolve()

    @property
    def _wheels(self) -> Path:
        return self.folder / "wheels"

    @property
    def _new_python(self) -> Path:
        return self.folder / "environment" / "bin" / "python"

    def _try(self, modules: Sequence[str], *, packages: Sequence[str], declined: Sequence[str]) -> InstallationCheck:
        made = self._run(str(self._base), "-I", "-m", "venv", "--without-pip", str(self.folder / "environment"))
        if made.exit_status:
            return NotVerified(reason=f"No environment could be created: {_read_end(made.output)}")
        pip = build_pip_command(self._base, self._new_python)
        local = ("install", *_QUIET, "--no-index", "--find-links", str(self._wheels))
        tools = self._run(*pip, *local, "--", *_TOOLS, *packages)
        if tools.exit_status:
            return NotVerified(reason=f"The packages cannot be installed: {_read_end(tools.output)}")
        alone = ("--no-deps",) if declined else ()
        installed = self._run(*pip, *local, *alone, "--editable", str(self.copy))
        if installed.exit_status:
            return NotInstalled(act="install", reason=_describe(installed))
        return self._import(modules, declined=declined) or self._test(len(modules))

    def _import(self, modules: Sequence[str], *, declined: Sequence[str]) -> InstallationCheck | None:
        """Import each module in the new environment; return what went wrong, if anything did."""
        imported = import_modules(modules, run=lambda *code: self._run(str(self._new_python), *code))
        if imported.failed:
            shown = join_first([f"{name}: {said}" for name, said in imported.failed.items()], most=_NAMED)
            return NotInstalled(act="import", reason=shown)
        if imported.missing:
            hint = f" Of requirements.txt, these were not installed: {', '.join(declined)}." if declined else ""
            missing = ", ".join(imported.missing)
            return NotVerified(reason=f"The code imports packages that are missing: {missing}.{hint}")
        if imported.unknown:
            known = len(modules) - len(imported.unknown)
            return NotVerified(reason=f"Only {known} of {format_count(len(modules), 'module')} were imported.")
        return None

    def _test(self, modules: int) -> InstallationCheck:
        results, measured = self.folder / "results.xml", self.folder / "coverage.json"
        options = ("-q", "-p", "no:cacheprovider", "--color=no", f"--junit-xml={results}")
        coverage = (str(self._new_python), "-m", "coverage")
        data = f"--data-file={self.folder / 'coverage.data'}"
        result = self._run(*coverage, "run", data, f"--source={SOURCES}", "-m", "pytest", *options)
        cases, problem = read_junit(results) if results.is_file() else ((), "pytest wrote no JUnit XML")
        if problem is not None or result.exit_status not in (0, 1, 5):  # 5: without tests
            return NotInstalled(act="test", reason=_describe(result))
        counted = [case for case in cases if case.outcome != "skipped"]
        passed = sum(case.outcome == "passed" for case in counted)
        self._run(*coverage, "json", data, "--quiet", "-o", str(measured))
        return Installed(modules=modules, tests=len(counted), passed=passed, coverage=_read_coverage(measured))

    def _run(self, *argv: str) -> Result:
        reads = dict.fromkeys((*guess_reads(self._base), *guess_reads(_find_pip(self._base))))
        command = Command(
            argv=argv,
            cwd=self.copy,
            access=Access(read_write=(self.folder,), read_only=tuple(reads)),
            timeout_s=_STEP_S,
            output_cap=_OUTPUT_CAP,
            variables={"PYTHONDONTWRITEBYTECODE": "1", "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_CACHE_DIR": "1"},
        )
        return self.sandbox.run(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What happened when modules were imported."""

    failed: Mapping[str, str]
    """Module -> why it cannot be imported."""
    missing: tuple[str, ...]
    """Packages that the modules import and that are not installed."""
    unknown: tuple[str, ...]
    """Modules that were not tried, because the process had ended."""


def import_modules(modules: Sequence[str], *, run: Callable[..., Result], folder: str = "") -> Imported:
    """Import modules one after the other in a process that ``run`` starts, from ``folder`` if it is given.

    ``run`` gets the arguments of an interpreter.
    """
    mark = secrets.token_hex(8)
    named = [name for name in modules if not name.endswith("__main__")]  # this one would run a command
    result = run("-I", "-c", _IMPORTS, mark, folder, *named)
    began, ended = set[str](), dict[str, tuple[str, str]]()
    for found in _read_answers(result.output, mark):
        began.add(found[0])
        if len(found) == 3:
            ended[found[0]] = (found[1], found[2])
    first = {name.partition(".")[0] for name in named}
    missing = sorted({each for each, _ in ended.values() if each and each not in first | sys.stdlib_module_names})
    failed = {
        name: shorten(clean(said), _LONGEST)
        for name, (lacking, said) in ended.items()
        if said and lacking not in missing
    }
    for name in sorted(began - ended.keys()):
        ending = "took too long" if result.timed_out else f"ended with status {result.exit_status}"
        failed[name] = f"the process {ending}"
    return Imported(
        failed=failed, missing=tuple(missing), unknown=tuple(name for name in named if name not in {*ended, *began})
    )


def import_skeleton(repository: Path, modules: Sequence[str], *, python: Path, sandbox: Sandbox) -> Imported:
    """Import the modules of a repository that is not installed, in the sandbox, where it is read-only."""

    def run(*arguments: str) -> Result:
        command = Command(
            argv=(str(python), *arguments),
            cwd=repository,
            access=Access(read_only=(repository, *guess_reads(python))),
            timeout_s=_STEP_S,
            variables={"PYTHONDONTWRITEBYTECODE": "1"},
            output_cap=_OUTPUT_CAP,
        )
        return sandbox.run(command)

    return import_modules(modules, run=run, folder=str(repository / SOURCES))


class _CoverageSummary(msgspec.Struct):
    percent_covered: float


class _CoverageRegion(msgspec.Struct):
    summary: _CoverageSummary


class _CoverageFile(msgspec.Struct):
    functions: dict[str, _CoverageRegion] = {}
    classes: dict[str, _CoverageRegion] = {}


class _CoverageReport(msgspec.Struct):
    files: dict[str, _CoverageFile]


def _read_coverage(path: Path) -> Mapping[tuple[str, str], float]:
    """Return the percentages in a report of ``coverage json``; none if it cannot be read."""
    try:
        report = msgspec.json.decode(read_ordinary(path, limit_bytes=_COVERAGE_CAP_BYTES), type=_CoverageReport)
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}
    return {
        (file, name): region.summary.percent_covered
        for file, found in report.files.items()
        for name, region in (*found.classes.items(), *found.functions.items())
        if name
    }


def _read_answers(output: str, mark: str) -> Iterator[list[str]]:
    for line in output.splitlines():
        if line.startswith(f"{mark} "):
            try:
                yield msgspec.json.decode(line.removeprefix(f"{mark} "), type=list[str])
            except msgspec.DecodeError:
                continue


def _describe(result: Result) -> str:
    if result.timed_out:
        return f"it took longer than {_STEP_S:g} seconds"
    return _read_end(result.output) or f"exit status {result.exit_status}"


def _read_end(output: str) -> str:
    """Return the last line that says something, or pip's last error."""
    lines = [line for line in clean(output).splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().lstrip().startswith("error")]
    return shorten((errors or lines or ["no output"])[-1], _LONGEST)
