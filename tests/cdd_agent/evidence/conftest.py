"""Projects in temporary folders."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from cdd_agent.testrun.interpreter import Interpreter
from tests.cdd_agent.evidence.steps import Step

Make: TypeAlias = Callable[..., Step]


@pytest.fixture
def make(tmp_path: Path, *, interpreter: Interpreter, bytecode: Path) -> Make:
    """A step in a new project: what RED writes, what GREEN writes."""

    def made(red: Mapping[str, str], green: Mapping[str, str], *, inside: str = "", runs_pytest: bool = False) -> Step:
        folder = tmp_path / "project"
        return Step.make(
            folder,
            interpreter=interpreter,
            bytecode=bytecode,
            red=red,
            green=green,
            inside=inside,
            runs_pytest=runs_pytest,
        )

    return made
