"""Files and conversation go back to a message, forward again, and back, with a kill in between; then a step does."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cdd_agent.repl.terminal_window import Window, needs_tmux
from tests.fakes.demo import SLUG, build_finished, copied
from tests.fakes.files import describe_files
from tests.stories.conftest import git

pytestmark = [needs_tmux, pytest.mark.slow]

TURNS = "- content: [Hours and minutes.]\n- content: [Not yet.]\n"
RESTORE = "Restore these files and cut the conversation? [y/N]"


@pytest.fixture
def project(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = copied(build_finished(tmp_path_factory), tmp_path / "project")
    (project / ".git" / "info" / "exclude").write_text("*.log\n")
    (project / "kept.log").write_text("ignored\n")
    git(project, "add", "README.md")  # refreshes the index
    return project


@contextmanager
def opened(project: Path, name: str, *arguments: str) -> Iterator[Window]:
    recording = project.parent / "talk.yaml"
    recording.write_text(TURNS)
    told = ("--replay", str(recording), *arguments)
    window = Window(project.parent / name, project, arguments=told)
    try:
        yield window
    finally:
        window.close()


def files(project: Path) -> object:
    return describe_files(project, leave_out=(".cdd", ".git", "tickets"))


def edit(project: Path, readme: str, notes: str | None) -> object:
    (project / "README.md").write_text(readme)
    if notes is None:
        (project / "notes.txt").unlink()
    else:
        (project / "notes.txt").write_text(notes)
    return files(project)


def move(window: Window, command: str, question: str, *, then: str) -> None:
    window.type_at("cdd>", "C-l", command, "Enter")
    window.type_at(question, "y", "Enter")
    window.screen_with(then)


def test_a_rewind_is_undone_and_redone_and_a_step_is_taken_back(project: Path) -> None:
    landed, index = git(project, "rev-parse", "HEAD"), (project / ".git" / "index").read_bytes()
    with opened(project, "one") as first:
        first.type_at("cdd>", "what does minutes read?", "Enter")
        first.screen_with("Hours and minutes.")
        good = edit(project, "# Mine\n", "mine\n")
        first.type_at("cdd>", "and days?", "Enter")
        first.screen_with("Not yet.")
        worse = edit(project, "# Worse\n", None)
        first.send(signal.SIGKILL)
        first.wait_until_closed()
    with opened(project, "two", "--resume") as second:
        second.type_at("cdd>", "/rewind", "Enter")
        second.type_at("Which one? [1-6]", "2", "Enter")
        second.type_at(RESTORE, "y", "Enter")
        second.screen_with("Cut 2 messages")
        assert files(project) == good
        for _ in range(2):
            move(second, "/checkpoint undo", RESTORE, then="Brought back 2 messages")
            assert files(project) == worse
            move(second, "/checkpoint redo", RESTORE, then="Cut 2 messages")
            assert files(project) == good
        assert (project / ".git" / "index").read_bytes() == index
        move(second, "/undo", f"Take step 1 of {SLUG} back? [y/N]", then="was taken back")
        assert git(project, "log", "-1", "--format=%s").startswith("plan: ")
        move(second, "/redo", f"Bring step 1 of {SLUG} back? [y/N]", then="is back")
    assert (git(project, "rev-parse", "HEAD"), files(project)) == (landed, good)
    assert git(project, "status", "--porcelain").split() == ["M", "README.md", "??", "notes.txt"]
