"""A project to look at, with everything in its place; a test takes one thing away."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.config.settings import Settings
from cdd_agent.doctor import Check, run_checks
from cdd_agent.git.repository import Repository
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from tests.fakes.approval import users_folder
from tests.fakes.model import ScriptedModel

Look = Callable[..., dict[str, Check]]
PARTS = {"root", "settings", "suite", "model"}


@pytest.fixture
def project(tmp_path: Path, interpreter: Interpreter) -> Composition:
    root = tmp_path / "project"
    root.mkdir()
    (root / "test_one.py").write_text("def test_one():\n    assert True\n\n\ndef test_two():\n    assert False\n")
    repository = Repository.create(root)
    for key, value in (("user.name", "Ada"), ("user.email", "ada@example.org")):
        repository.git("config", key, value)
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    subprocess.run(["git", "commit", "-qm", "first"], cwd=root, check=True)
    environment = {**users_folder(tmp_path), "CDD_PYTHON": str(interpreter.path)}
    project = Composition(Options(sandbox="none"), emit=lambda _: None, environment=environment)
    suite = PytestSuite(root=root, interpreter=interpreter, sandbox=PlainSandbox(), timeout_s=60, bytecode=None)
    vars(project).update(root=root, settings=Settings(), suite=suite, model=ScriptedModel([]))
    return project


@pytest.fixture
def look(project: Composition) -> Look:
    """The checks by name, of the project with some of its parts made anew, and other options."""

    def looked(options: Options = project.options, **makes: object) -> dict[str, Check]:
        parts = {name: property(lambda _, make=make: make()) for name, make in makes.items()}  # type: ignore[misc]
        changed = type("Changed", (Composition,), parts)(options, emit=project.emit, environment=project.environment)
        vars(changed).update({name: part for name, part in vars(project).items() if name in PARTS - makes.keys()})
        return {check.name: check for check in run_checks(changed)}

    return looked
