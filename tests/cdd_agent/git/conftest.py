"""Real repositories in temporary folders."""

from pathlib import Path

import pytest

from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository with one commit of two files."""
    folder = tmp_path / "project"
    folder.mkdir()
    made = Repository.create(folder)
    made.git("config", "user.name", "Ada")
    made.git("config", "user.email", "ada@example.org")
    (folder / "a.txt").write_text("one\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "b.txt").write_text("two\n")
    commit_paths(made, "first", paths=["a.txt", "sub/b.txt"])
    return made
