"""Projects for tests of the prompt and the command line: an example that was played to its end, and a fresh copy."""

import atexit
import io
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import pytest

from cdd_agent.cli.app import cdd
from cdd_agent.cli.chat import run_at_prompt
from cdd_agent.cli.demo import find_examples
from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.repl.render import Renderer
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.session import Session
from cdd_agent.repl.terminal import ReadLine
from cdd_agent.testrun.interpreter import Interpreter
from tests.fakes.program import played
from tests.fakes.suite import FakeSuite

EXAMPLE = next(example for example in find_examples() if example.name == "minutes-lost")
SLUG = EXAMPLE.script.ticket
RECORDING = EXAMPLE.recording
ANSWER = EXAMPLE.script.answers[0]


def fresh(folder: Path) -> Path:
    """Create the example's project in a new repository, its ticket not begun."""
    return copied(_committed(), folder)


@cache
def _committed() -> Path:
    """Commit the example's project once in this process; a copy of it takes no git process."""
    base = Path(tempfile.mkdtemp(prefix="cdd-example-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    folder = Path(shutil.copytree(EXAMPLE.folder / "project", base / "project"))
    repository = Repository.create(folder)
    repository.git("config", "user.name", "me")
    repository.git("config", "user.email", "me@localhost")
    commit_paths(repository, "first", paths=repository.list_uncommitted())
    return folder


def build_finished(temporary: pytest.TempPathFactory) -> Path:
    """The example played from spec to commits, once for all workers; to be copied, never changed."""
    return played(EXAMPLE.name, temporary).folder


def copied(finished: Path, folder: Path) -> Path:
    """A copy of a project, to be changed."""
    shutil.copytree(finished, folder, symlinks=True)
    return folder


@contextmanager
def captured(width: int = 80) -> Iterator[tuple[Screen, io.StringIO]]:
    """A screen of ``width`` columns and what is printed on it."""
    stream = io.StringIO()
    screen = Screen(stream)
    screen.console.width = width
    yield screen, stream


def in_process(project: Path) -> FakeSuite:
    """Return the project's tests, run in this process; the interpreter is not asked what it is."""
    path = Path(os.environ["CDD_PYTHON"])
    python = platform.python_version()
    return FakeSuite(
        root=project, interpreter=Interpreter(path=path, origin="CDD_PYTHON", python=python, pytest=pytest.__version__)
    )


class ProjectCrew(Composition):
    """A real project, the model played from a recording, its tests run in this process or by pytest."""

    def __init__(
        self, project: Path, *, screen: Screen, replay: Path | None = RECORDING, runs_pytest: bool = False
    ) -> None:
        super().__init__(
            Options(project=project, replay=replay),
            emit=Renderer(screen).write,
            environment={name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC")},
        )
        if not runs_pytest:
            vars(self)["suite"] = in_process(self.root)


def open_session(crew: ProjectCrew, *, screen: Screen, read: ReadLine, somebody_types: bool = True) -> Session:
    """A session that has the commands of the command line, as ``chat`` opens it."""
    run = partial(run_at_prompt, project=crew, screen=screen, commands=cdd.commands)
    return Session(crew, screen=screen, read=read, run=run, somebody_types=somebody_types)
