"""The project that tests of the command line look at."""

from pathlib import Path

import pytest

from tests.cdd_agent.cli.projects import build_finished, copied, fresh


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_finished(tmp_path_factory)


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    return copied(finished_once, tmp_path / "finished")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return fresh(tmp_path / "fresh")
