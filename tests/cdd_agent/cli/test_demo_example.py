"""The examples, each complete, and what playing one leaves behind."""

import subprocess
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.cli.demo import find_examples
from cdd_agent.tickets.ticket import find
from tests.fakes.demo import SLUG


def test_every_example_has_a_project_with_its_ticket_and_a_recording() -> None:
    assert [example.name for example in find_examples()] == ["csv-export", "minutes-lost"]
    for example in find_examples():
        assert example.recording.is_file()
        assert find(example.folder / "project", example.script.ticket).spec_path.is_file()
        assert example.script.answers


def test_a_played_example_is_a_clean_repository_with_its_commits(finished: Path) -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=finished, capture_output=True, text=True, check=True).stdout

    assert git("status", "--short") == ""
    subjects = git("log", "--reverse", "--format=%s").splitlines()
    assert [subject.partition(":")[0] for subject in subjects] == ["The project as it was", "plan", "test", "fix"]
    assert '"completed"' in find(finished, SLUG).state_path.read_text(encoding="utf-8")


def test_an_example_begins_in_a_commit_even_for_a_user_whose_name_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "")
    run(["--replay", str(tmp_path / "none"), "demo", SLUG, "--keep", str(tmp_path / "made")])
    assert list((tmp_path / "made" / ".git" / "refs" / "heads").iterdir()) != []
