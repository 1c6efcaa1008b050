"""A ground on each rung."""

from pathlib import Path

import pytest

from tests.cdd_agent.sandbox.rungs import ALL, Ground


@pytest.fixture(params=ALL)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return Ground.lay(tmp_path, level=request.param)
