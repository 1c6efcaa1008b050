"""Projects and keys for tests of the prompt."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from tests.fakes.demo import SLUG, fresh


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return fresh(tmp_path / "fresh")


@pytest.fixture
def planned(finished: Path) -> Path:
    (finished / "tickets" / SLUG / "execution-state.json").unlink()
    return finished


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys
