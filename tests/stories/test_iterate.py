"""A reviewer comments on a line in the viewer, lets the step run again, and approves the result."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cdd_agent.repl.terminal_window import Window, needs_tmux
from tests.fakes.demo import SLUG, build_finished, copied
from tests.stories.conftest import git

FILE = "durations/reading.py"
OLD = "raise ValueError for anything else."
NEW = "raise ValueError for anything else, such as 1h90."


def turn(*calls: tuple[str, Mapping[str, object]]) -> Mapping[str, object]:
    return {"content": [{"type": "tool_use", "name": name, "input": given} for name, given in calls]}


@pytest.fixture
def finished(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    return copied(build_finished(tmp_path_factory), tmp_path / "finished")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Write a recording in which the model has nothing to test, and then changes one line of documentation."""
    done = ("CompleteImplementation", {"implementation_files": [FILE]})
    edit = ("Edit", {"file_path": FILE, "old_string": OLD, "new_string": NEW})
    path = tmp_path / "iteration.json"
    path.write_text(json.dumps([turn(done), turn(("Read", {"file_path": FILE}), edit, done)]))
    return path


@needs_tmux
@pytest.mark.slow
def test_a_comment_in_the_viewer_becomes_a_new_commit(finished: Path, tmp_path: Path, recording: Path) -> None:
    window = Window(tmp_path / "tmux", finished, arguments=("--replay", str(recording), "review", SLUG))
    window.resize(60, 20)
    try:
        window.screen_with("a approve", "files, +")
        window.type("n", "j", "c")
        window.screen_with("Comment:")
        window.type("Give an example.", "Enter")
        window.screen_with("user, open", "Give an example.")
        window.resize(100, 35)
        window.type("i")
        window.screen_with("What should change?")
        window.type("Name a text that is an error.", "Enter")
        window.screen_with("REFACTOR: gate open", f"M {FILE}  +1 -1", "Give an example.", within_s=180)
        window.type("?")
        window.screen_with("approve the step")
        window.type("q", "a")
        window.screen_with("Every completed step is approved")
    finally:
        window.close()
    assert NEW in (finished / FILE).read_text()
    assert git(finished, "log", "-1", "--format=%s").startswith("refactor: ")
    body = git(finished, "log", "-1", "--format=%b")
    assert "\n[x] AC-1: " in body
    assert f"M {FILE}" in body
