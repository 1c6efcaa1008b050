"""A project with a run in it."""

from pathlib import Path

import pytest

from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from tests.cdd_agent.workflows.orchestration.past.runs import Run


@pytest.fixture
def begun(tmp_path: Path) -> Run:
    """A run of which nothing has landed, in a project with one commit."""
    folder = tmp_path / "project"
    folder.mkdir()
    repository = Repository.create(folder)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    (folder / "README.md").write_text("Calculator\n")
    (folder / ".gitignore").write_text("*.log\n")
    commit_paths(repository, "first", paths=["README.md", ".gitignore"])
    return Run(repository, repository.root)


@pytest.fixture
def run(begun: Run) -> Run:
    """A run of two cycles."""
    begun.cycle(1)
    begun.cycle(2)
    return begun
