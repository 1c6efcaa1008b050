"""A small real project for the tests that take one; what every run in it needs is found once."""

from pathlib import Path

import pytest

from cdd_agent.testrun.interpreter import Interpreter, find_interpreter
from tests.fakes.demo import build_finished, copied
from tests.fakes.project import Project


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    return find_interpreter(tmp_path_factory.mktemp("no-environment"))


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture
def project(tmp_path: Path, *, interpreter: Interpreter, bytecode: Path) -> Project:
    """A project whose tests run in this process, within milliseconds."""
    return Project.make(tmp_path / "project", interpreter=interpreter, bytecode=bytecode)


@pytest.fixture
def real_project(tmp_path: Path, *, interpreter: Interpreter, bytecode: Path) -> Project:
    """A project whose tests run by pytest in a child process; each run takes a tenth of a second."""
    return Project.make(tmp_path / "project", interpreter=interpreter, bytecode=bytecode, runs_pytest=True)


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_finished(tmp_path_factory)


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    return copied(finished_once, tmp_path / "finished")
