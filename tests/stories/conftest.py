"""The program as a user starts it, and the examples that it has played."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.fakes.program import Demo, command, environment, played

Cdd: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def cdd(home: Path) -> Cdd:
    """Runs the program; keyword arguments are variables of its environment, ``cwd`` its folder."""

    def run(*arguments: str, cwd: Path | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command(*arguments),
            cwd=cwd or home,
            env=environment(home, **variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(params=["csv-export", "minutes-lost"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """A finished demo; never to be changed."""
    return played(request.param, tmp_path_factory)
