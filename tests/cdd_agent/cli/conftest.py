"""The project that tests of the command line begin in."""

from pathlib import Path

import pytest

from tests.fakes.demo import fresh


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return fresh(tmp_path / "fresh")
