"""The program as a user starts it, and the examples that it has played."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.fakes.program import Demo, command, environment, played
from tests.fakes.project import QUICK

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


def under_git(folder: Path, *, message: str = "start") -> None:
    """Make a repository of ``folder`` with one commit of all that is in it."""
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "Ada"),
        ("config", "user.email", "ada@example.org"),
        ("add", "-A"),
        ("commit", "-q", "-m", message),
    ):
        git(folder, *arguments)


def bare(folder: Path) -> Path:
    """A new project without code or tests."""
    folder.mkdir()
    (folder / "pytest.ini").write_text(QUICK, encoding="ascii")
    (folder / ".gitignore").write_text("__pycache__/\n", encoding="ascii")
    under_git(folder)
    return folder


def ended(arguments: Sequence[str], *, folder: Path, home: Path, after_s: float | None) -> tuple[int, str]:
    """Exit code and errors of the program, killed after some seconds unless it has ended by then."""
    process = subprocess.Popen(
        command(*arguments), cwd=folder, env=environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        _, errors = process.communicate(timeout=after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
    return process.returncode, errors.decode()


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(params=[pytest.param("csv-export", marks=pytest.mark.slow), "minutes-lost"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """A finished demo; never to be changed."""
    return played(request.param, tmp_path_factory)
