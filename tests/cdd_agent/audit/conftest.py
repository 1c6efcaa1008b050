"""A history that is made once, and copied for every test that changes it."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.testrun.interpreter import Interpreter
from tests.cdd_agent.audit.made_history import History, landed
from tests.fakes.project import Project


@pytest.fixture(scope="session")
def landed_once(tmp_path_factory: pytest.TempPathFactory, interpreter: Interpreter, bytecode: Path) -> History:
    folder = tmp_path_factory.mktemp("landed") / "project"
    return landed(Project.make(folder, interpreter=interpreter, bytecode=bytecode))


@pytest.fixture
def real_history(landed_once: History, tmp_path: Path) -> History:
    """The same, with tests that run as a user's do."""
    copy = landed_once.copy(tmp_path / "project")
    return replace(copy, project=replace(copy.project, runs_pytest=True))


@pytest.fixture
def history(landed_once: History, tmp_path: Path) -> History:
    return landed_once.copy(tmp_path / "project")
