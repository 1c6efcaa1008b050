"""A repository is installed in a new environment, in the sandbox, and the packages that it lacks are named."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from cdd_agent.generation.installation import BACKEND, InstallationTrial, ask_environment, download_wheels
from cdd_agent.generation.outcome import InstallationCheck, Installed, NotInstalled, NotVerified
from cdd_agent.generation.requirements import Requirements
from cdd_agent.sandbox.port import Command, Result
from cdd_agent.sandbox.supervised import PlainSandbox

PROJECT = '[build-system]\nrequires = ["setuptools>=70.1"]\nbuild-backend = "setuptools.build_meta"\n\n[project]\n'
PROJECT += 'name = "lib"\nversion = "1"\n\n[tool.setuptools.packages.find]\nwhere = ["src"]\n'
JUNIT = '<testsuites><testsuite tests="2"><testcase name="a"/><testcase name="b"><failure/></testcase></testsuite>'
JUNIT += "</testsuites>"
PART = '{"summary": {"percent_covered": 75.0, "other": 1}}'
COVERAGE = f'{{"files": {{"src/a.py": {{"functions": {{"A.add": {PART}, "": {PART}}}, "classes": {{"A": {PART}}}}}}}}}'


@dataclass
class ScriptedSandbox:
    """Answers commands by the first text that they contain; imports run for real."""

    answers: dict[str, Result] = field(default_factory=dict)
    level: str = "fake"
    lines: list[str] = field(default_factory=list)

    def run(self, command: Command) -> Result:
        line = " ".join(command.argv)
        self.lines.append(line)
        for part, result in self.answers.items():
            if part in line:
                return result
        if "importlib" in line:  # without -I, so that the modules of the working folder are found
            return PlainSandbox().run(replace(command, argv=(sys.executable, *command.argv[2:])))
        if found := re.search(r"json .*-o (\S+)", line):
            Path(found[1]).write_text(COVERAGE)
        if found := re.search(r"--junit-xml=(\S+)", line):
            Path(found[1]).write_text(JUNIT)
            return result_of(1)
        return result_of(0)


def result_of(status: int, output: str = "") -> Result:
    return Result(exit_status=status, head=output, dropped_bytes=0, timed_out=False, duration_s=0, level="fake")


LATE = replace(result_of(-9), timed_out=True)


@dataclass
class FakeDownload:
    problem: str | None = None
    asked: list[str] = field(default_factory=list)

    def __call__(self, requirements: Sequence[str], into: Path) -> str | None:
        assert into.is_dir()
        self.asked += requirements
        return self.problem


Check = Callable[..., InstallationCheck]


@pytest.fixture
def sandbox() -> ScriptedSandbox:
    return ScriptedSandbox()


@pytest.fixture
def download() -> FakeDownload:
    return FakeDownload()


@pytest.fixture
def check(tmp_path: Path, sandbox: ScriptedSandbox, download: FakeDownload) -> Check:
    (tmp_path / "copy").mkdir()
    trial = InstallationTrial(
        python=Path(sys.executable), sandbox=sandbox, folder=tmp_path, copy=tmp_path / "copy", download=download
    )

    def run(
        modules: Sequence[str] = ("json",), *, agrees: bool = True, **requirements: tuple[str, ...]
    ) -> InstallationCheck:
        needed = Requirements(**{"lines": (), **requirements})
        return trial.check(modules, requirements=needed, confirm=lambda _: agrees)

    return run


def test_an_installed_repository_is_reported_with_its_modules_and_tests(check: Check, sandbox: ScriptedSandbox) -> None:
    measured = {("src/a.py", "A"): 75.0, ("src/a.py", "A.add"): 75.0}
    assert check(("json", "ast", "json.__main__")) == Installed(modules=3, tests=2, passed=1, coverage=measured)
    venv, tools, editable, imports, tests, _ = sandbox.lines
    assert "-m venv --without-pip" in venv
    assert "--no-index --find-links" in tools
    assert "--no-index --find-links" in editable
    assert "--no-deps" not in editable
    assert imports.endswith(" json ast")  # __main__ would run a command
    assert "-m pytest" in tests


def test_only_wheels_of_what_the_graph_lists_are_downloaded_after_a_yes(check: Check, download: FakeDownload) -> None:
    check(lines=("attrs>=1,<2", "made-up"), listed=("attrs>=1,<2",))
    assert download.asked == [BACKEND, "pytest", "coverage>=7.6", "attrs>=1,<2"]


def test_without_a_yes_it_is_installed_without_its_packages(
    check: Check, download: FakeDownload, sandbox: ScriptedSandbox
) -> None:
    check(agrees=False, lines=("attrs",), listed=("attrs",))
    assert download.asked == [BACKEND, "pytest", "coverage>=7.6"]
    assert "--no-deps" in sandbox.lines[2]


def test_without_an_index_it_is_not_verified(check: Check, download: FakeDownload, sandbox: ScriptedSandbox) -> None:
    download.problem = "no index"
    assert check() == NotVerified(reason="no index")
    assert sandbox.lines == []


@pytest.mark.parametrize(
    ("part", "ending"),
    [
        ("-m venv", (result_of(1, "gone"), NotVerified(reason="No environment could be created: gone"))),
        ("-- pytest", (result_of(1, "bad"), NotVerified(reason="The packages cannot be installed: bad"))),
        ("--editable", (result_of(1, "x\nERROR: no\ny"), NotInstalled(act="install", reason="ERROR: no"))),
        ("--editable", (LATE, NotInstalled(act="install", reason="it took longer than 300 seconds"))),
        ("-m pytest", (result_of(4, "usage"), NotInstalled(act="test", reason="usage"))),
    ],
)
def test_each_step_that_fails_is_named(
    check: Check, sandbox: ScriptedSandbox, *, part: str, ending: tuple[Result, InstallationCheck]
) -> None:
    sandbox.answers[part], expected = ending
    assert check() == expected


def test_a_missing_package_is_named_and_is_no_defect_of_the_repository(check: Check, tmp_path: Path) -> None:
    (tmp_path / "copy" / "uses.py").write_text("print('x', end='')\nimport nowhere.at_all")
    missing = "The code imports packages that are missing: nowhere."
    assert check(("json", "uses")) == NotVerified(reason=missing)
    declined = check(("uses",), agrees=False, lines=("nowhere", "numpy>=1"), listed=("numpy>=1",))
    assert declined == NotVerified(
        reason=f"{missing} Of requirements.txt, these were not installed: nowhere, numpy>=1."
    )


def test_a_module_that_cannot_be_imported_is_a_defect(check: Check, tmp_path: Path) -> None:
    (tmp_path / "copy" / "bad.py").write_text("1 / 0")
    (tmp_path / "copy" / "lacks.py").write_text("import lacks.part")
    (tmp_path / "copy" / "leaves.py").write_text("import sys; sys.exit(3)")
    (tmp_path / "copy" / "ends.py").write_text("import os; print('bye', flush=True); os._exit(3)")
    found = check(("bad", "lacks", "leaves", "json", "ends", "ast"))
    assert isinstance(found, NotInstalled)
    assert found.reason.split(", ") == [
        "bad: ZeroDivisionError: division by zero",
        "lacks: No module named 'lacks.part'; 'lacks' is not a package",
        "leaves: SystemExit: 3",
        "ends: the process ended with status 3",
    ]


def test_an_interpreter_inside_the_repository_downloads_nothing(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 3\n")
    said = download_wheels((BACKEND,), tmp_path, python=python, project=tmp_path, variables={})
    assert said == f"{python} is inside the repository, so it does not run outside of the sandbox."


def test_an_index_without_the_backend_is_named(tmp_path: Path) -> None:
    variables = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    said = download_wheels((BACKEND,), tmp_path, python=Path(sys.executable), project=tmp_path, variables=variables)
    assert said is not None
    assert said.startswith("pip cannot download setuptools>=70.1 as wheels: ERROR: No matching distribution found")


def test_the_packages_of_an_interpreter_are_asked_for_in_the_sandbox(tmp_path: Path) -> None:
    found = ask_environment(Path(sys.executable), sandbox=PlainSandbox(), folder=tmp_path)
    assert found.packages["yaml"] == ("PyYAML",)
    assert ask_environment(tmp_path / "none", sandbox=PlainSandbox(), folder=tmp_path).versions == {}


@pytest.mark.slow
def test_a_real_repository_is_installed_and_tested(tmp_path: Path) -> None:
    copy, python = tmp_path / "copy", Path(sys.executable)
    for path, text in {
        "pyproject.toml": PROJECT,
        "src/lib/__init__.py": "",
        "src/lib/mean.py": "def mean(numbers):\n    return sum(numbers) / len(numbers)\n",
        "tests/test_mean.py": "from lib.mean import mean\n\n\ndef test_mean():\n    assert mean([1, 2]) == 1.5\n",
    }.items():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text(text)
    download = partial(download_wheels, python=python, project=copy, variables=dict(os.environ))
    trial = InstallationTrial(python=python, sandbox=PlainSandbox(), folder=tmp_path, copy=copy, download=download)
    found = trial.check(("lib", "lib.mean"), requirements=Requirements(lines=()), confirm=lambda _: False)
    if isinstance(found, NotVerified):
        pytest.skip(found.reason)
    assert found == Installed(modules=2, tests=1, passed=1, coverage={("src/lib/mean.py", "mean"): 100.0})
