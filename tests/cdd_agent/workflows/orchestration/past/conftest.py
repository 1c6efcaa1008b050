"""A project with a run in it."""

from pathlib import Path

import pytest

from tests.cdd_agent.workflows.orchestration.past.runs import Run, begun_in, two_cycles


@pytest.fixture
def begun(tmp_path: Path) -> Run:
    """A run of which nothing has landed, in a project with one commit."""
    return begun_in(tmp_path / "project")


@pytest.fixture
def run(begun: Run) -> Run:
    """A run of two cycles."""
    return two_cycles(begun)
