"""The examples, each complete, and what playing one leaves behind."""

import subprocess
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.cli.demo import find_examples
from cdd_agent.generation.plan import load_plan
from cdd_agent.tickets.ticket import find
from tests.fakes.demo import SLUG


def test_every_example_has_a_recording_and_a_project_with_its_ticket_or_a_graph() -> None:
    examples = {example.name: example for example in find_examples()}
    assert [*examples] == ["csv-export", "minutes-lost", "ml-library"]
    assert all(example.recording.is_file() for example in examples.values())
    graph = load_plan(examples.pop("ml-library").graph)
    assert (len(graph.nodes), len(graph.layout.rows), len(graph.groups), len(graph.graph.edges)) == (50, 15, 5, 10)
    for example in examples.values():
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


def test_a_graph_begins_with_its_skeleton_even_for_a_user_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "empty"))
    monkeypatch.delenv("USER", raising=False)
    assert run(["--replay", str(tmp_path / "none"), "demo", "ml-library", "--keep", str(tmp_path / "made")]) != 0
    words = ["git", "log", "--format=%an %ae %s"]
    log = subprocess.run(words, cwd=tmp_path / "made", capture_output=True, text=True, check=True).stdout
    assert log == "demo demo@localhost chore: scaffold and skeleton of ml_library (50 nodes)\n"
