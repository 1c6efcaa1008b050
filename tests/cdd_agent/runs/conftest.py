"""A project with a run in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cdd_agent.runs.made_runs import Run, begun_in, copied, two_cycles
from tests.fakes.identity import git_identity


@pytest.fixture(scope="module")
def identity() -> Iterator[None]:
    """The author of commits, which a generation in a new folder needs."""
    with git_identity():
        yield


@pytest.fixture
def begun(tmp_path: Path) -> Run:
    """A run of which nothing has landed, in a project with one commit."""
    return begun_in(tmp_path / "project")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two cycles; never to be changed."""
    return two_cycles(begun_in(tmp_path_factory.mktemp("run") / "project"))


@pytest.fixture
def run(made: Run, tmp_path: Path) -> Run:
    """A run of two cycles."""
    return copied(made, tmp_path / "project")
