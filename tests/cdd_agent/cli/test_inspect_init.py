"""What ``cdd init`` creates, and what it leaves as it is."""

from dataclasses import asdict
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.config.settings import CONFIG_FILE, Settings, parse_settings
from tests.fakes.demo import fresh


def test_the_settings_file_states_the_defaults_and_needs_no_approval(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--project", str(project), "init"]) == 0
    printed = capsys.readouterr().out
    assert ".cdd/config.yaml created" in printed
    assert "with pytest" in printed
    content = (project / CONFIG_FILE).read_text(encoding="utf-8")
    assert parse_settings(content.encode()) == Settings()
    enabled = "\n".join(line.removeprefix("# ") for line in content.splitlines()[1:])
    assert set(asdict(Settings())) <= {line.partition(":")[0] for line in enabled.splitlines()}
    assert parse_settings(enabled.encode()) == Settings()
    assert run(["--project", str(project), "trust"]) == 0


def test_what_exists_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = fresh(tmp_path / "project")
    (project / ".cdd").mkdir()
    (project / CONFIG_FILE).write_text("max_turns: 7\n", encoding="utf-8")
    before = {path: path.read_bytes() for path in (project / "tickets").rglob("*") if path.is_file()}
    assert run(["--project", str(project), "init"]) == 0
    printed = capsys.readouterr().out
    assert ".cdd/config.yaml exists already" in printed
    assert "tickets exists already" in printed
    assert (project / CONFIG_FILE).read_text(encoding="utf-8") == "max_turns: 7\n"
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tickets").write_text("a list", encoding="utf-8")
    assert run(["--project", str(tmp_path), "init"]) == 2
    error = capsys.readouterr().err
    assert "is a file, but cdd needs a folder of that name" in error
    assert "hint: move it away: mv " in error
