"""A project to look at, with everything in its place; a test takes one thing away."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.config.settings import Settings
from cdd_agent.config.trust import Approvals
from cdd_agent.doctor import Check, ProjectParts, run_checks
from cdd_agent.git.repository import Repository
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from tests.fakes.approval import users_folder
from tests.fakes.model import ScriptedModel

Look = Callable[..., dict[str, Check]]


@pytest.fixture
def parts(tmp_path: Path, interpreter: Interpreter) -> ProjectParts:
    root = tmp_path / "project"
    root.mkdir()
    (root / "test_one.py").write_text("def test_one():\n    assert True\n\n\ndef test_two():\n    assert False\n")
    repository = Repository.create(root)
    for key, value in (("user.name", "Ada"), ("user.email", "ada@example.org")):
        repository.git("config", key, value)
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    subprocess.run(["git", "commit", "-qm", "first"], cwd=root, check=True)
    environment = {**users_folder(tmp_path), "CDD_PYTHON": str(interpreter.path)}
    return ProjectParts(
        brings=lambda _: True,
        root=root,
        environment=environment,
        approvals=Approvals(root, environment=environment),
        sandbox="none",
        replay=None,
        record=None,
        settings=Settings,
        repository=lambda: Repository.find(root),
        suite=lambda: PytestSuite(
            root=root, interpreter=interpreter, sandbox=PlainSandbox(), timeout_s=60, bytecode=None
        ),
        model=lambda: ScriptedModel([]),
    )


@pytest.fixture
def look(parts: ProjectParts) -> Look:
    """The checks by name, of the parts with some of them changed."""

    def looked(**changes: object) -> dict[str, Check]:
        return {check.name: check for check in run_checks(replace(parts, **changes))}  # type: ignore[arg-type]

    return looked
