"""Which project a command means."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.config.options import Options
from cdd_agent.errors import UsageError
from cdd_agent.testrun.root import find_root
from tests.cdd_agent.testrun.test_project_detection import lay


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return lay(tmp_path / "repository", {".git/HEAD": "", "a/go.mod": "", "a/cmd/main.go": "", "b/x.py": ""})


def test_what_is_named_counts_wherever_one_stands(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository / "a")
    assert find_root(Options(), {"CDD_PROJECT_ROOT": str(repository)}) == repository
    assert find_root(Options(project=repository / "b"), {"CDD_PROJECT_ROOT": str(repository)}) == repository / "b"
    with pytest.raises(UsageError, match="does not exist"):
        find_root(Options(), {"CDD_PROJECT_ROOT": "/gone"})


@pytest.mark.parametrize(("here", "project"), [("a", "a"), ("a/cmd", "a"), ("b", "."), (".", ".")])
def test_else_the_nearest_folder_up_to_the_top_that_has_a_framework(
    repository: Path, monkeypatch: pytest.MonkeyPatch, *, here: str, project: str
) -> None:
    monkeypatch.chdir(repository / here)
    assert find_root(Options(), {}) == repository / project


def test_outside_of_a_work_tree_it_is_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path, {"go.mod": "", "inner/x": ""})
    monkeypatch.chdir(tmp_path / "inner")
    assert find_root(Options(), {}) == tmp_path / "inner"


@pytest.mark.parametrize(
    ("project", "typed"),
    [
        (None, "cdd trust"),
        ("", "cdd --project . trust"),
        ("b", "cdd --project b trust"),
        ("my shop", "cdd --project 'my shop' trust"),
        ("..", "cdd --project {above} trust"),
    ],
)
def test_a_command_is_typed_with_the_project_that_was_named(
    repository: Path, monkeypatch: pytest.MonkeyPatch, *, project: str | None, typed: str
) -> None:
    monkeypatch.chdir(repository)
    options = Options(project=None if project is None else Path(project))
    assert options.as_command("trust") == typed.format(above=repository.parent)
    with_sandbox = replace(options, sandbox="none").as_command("trust")
    assert with_sandbox == options.as_command("trust").replace("cdd", "cdd --sandbox none", 1)
