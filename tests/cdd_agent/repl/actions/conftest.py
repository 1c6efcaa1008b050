"""A project whose ticket has a plan that was not begun."""

from pathlib import Path

import pytest

from tests.fakes.demo import SLUG


@pytest.fixture
def planned(finished: Path) -> Path:
    (finished / "tickets" / SLUG / "execution-state.json").unlink()
    return finished
