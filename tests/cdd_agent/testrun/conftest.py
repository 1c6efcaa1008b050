"""Environments and programs for the rules that look for an interpreter; runs of small projects."""

import venv
from pathlib import Path

import pytest

from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.interpreter import Interpreter, find_interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import SuiteRun
from tests.fakes.lean import lean_python


@pytest.fixture
def suite(tmp_path: Path, *, interpreter: Interpreter, bytecode: Path) -> PytestSuite:
    """The tests in the test's own folder."""
    return PytestSuite(root=tmp_path, interpreter=interpreter, sandbox=PlainSandbox(), timeout_s=60, bytecode=bytecode)


@pytest.fixture(scope="session")
def with_xdist(tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    """Return an interpreter that has pytest and xdist."""
    python = lean_python(tmp_path_factory.mktemp("with-xdist") / "env", "pytest-xdist", "execnet")
    return find_interpreter(tmp_path_factory.mktemp("no-environment"), environment={"CDD_PYTHON": str(python)})


def outcomes(result: SuiteRun) -> dict[str, str]:
    """What each test of a run came to."""
    assert result.report is not None, result.problem
    return {case.nodeid: case.outcome for case in result.report.tests}


def problem(result: SuiteRun) -> str:
    """Why a run has no report."""
    assert result.report is None
    assert result.problem is not None
    return result.problem


@pytest.fixture(scope="session")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without pytest."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


@pytest.fixture(scope="session")
def full_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that sees this interpreter's pytest."""
    folder = tmp_path_factory.mktemp("full") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    here = Path(pytest.__file__).parent.parent
    (site / "here.pth").write_text(f"{here}\n")
    return folder


class Confined(PlainSandbox):
    """Says that it confines."""

    level = "bwrap"


def program(path: Path, script: str) -> Path:
    """A program that does what the shell script says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
