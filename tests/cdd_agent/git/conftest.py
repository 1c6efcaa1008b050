"""Real repositories in temporary folders."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from tests.cdd_agent.git.notes_written import copied


@pytest.fixture(scope="session")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit of two files, to be copied."""
    folder = tmp_path_factory.mktemp("committed") / "project"
    folder.mkdir()
    made = Repository.create(folder)
    made.git("config", "user.name", "Ada")
    made.git("config", "user.email", "ada@example.org")
    (folder / "a.txt").write_text("one\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "b.txt").write_text("two\n")
    commit_paths(made, "first", paths=["a.txt", "sub/b.txt"])
    return folder


@pytest.fixture
def repository(committed: Path, tmp_path: Path) -> Repository:
    """A repository with one commit of two files."""
    return copied(committed, tmp_path / "project")


@pytest.fixture
def around_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has shell commands run right before and right after each call of git from now on, as somebody else's might."""

    def wrap(*, before: str = "", after: str = "") -> None:
        folder = tmp_path / "around"
        folder.mkdir()
        (folder / "git").write_text(
            f'#!/bin/sh\n{before}\n"{shutil.which("git")}" "$@"\nstatus=$?\n{after}\nexit $status\n'
        )
        (folder / "git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return wrap
