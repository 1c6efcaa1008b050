"""A ticket that was not begun."""

from pathlib import Path

import pytest

from tests.fakes.demo import fresh


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return fresh(tmp_path / "fresh")
