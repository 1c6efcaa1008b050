"""Which example a demo plays, and where; the playing itself is a story of its own."""

from pathlib import Path

import pytest

from cdd_agent.cli.app import run


def test_the_examples_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--list"]) == 0
    output = capsys.readouterr().out
    assert "csv-export    Feature: " in output
    assert "minutes-lost  Bug: " in output
    assert "ml-library    Graph: " in output


def test_an_unknown_example_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "csv-exprot"]) == 2
    assert "hint: did you mean: cdd demo csv-export" in capsys.readouterr().err


def test_a_folder_that_exists_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--keep", str(tmp_path)]) == 2
    assert "name a folder that does not exist yet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
