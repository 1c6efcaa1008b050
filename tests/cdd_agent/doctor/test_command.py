"""The commands doctor and trust."""

import io
import json
import os
import sys
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from tests.fakes.demo import RECORDING, fresh

REPLAY = ("--replay", str(RECORDING))


@pytest.fixture(autouse=True)
def nobody_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("CDD_SANDBOX", "none")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return fresh(tmp_path / "fresh")


@pytest.fixture
def hook(project: Path) -> Path:
    path = project / ".git" / "hooks" / "pre-commit"
    path.write_text("#!/bin/sh\nmake lint\n")
    path.chmod(0o755)
    return path


def cdd(project: Path, *arguments: str) -> int:
    return run(["--project", str(project), *REPLAY, *arguments])


def test_what_works_is_shown_and_the_exit_code_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cdd(project, "doctor") == 0
    shown = capsys.readouterr().out
    assert "✔ interpreter" in shown
    assert shown.endswith("Everything that a run needs is there.\n")


def test_what_is_missing_ends_with_4(project: Path, hook: Path, *, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--project", str(project), "doctor"]) == 4
    shown = capsys.readouterr().out
    assert "✘ model" in shown
    assert "fix: export ANTHROPIC_API_KEY" in shown
    assert "commit hooks, .git/hooks: not decided" in shown
    assert hook.exists()


@pytest.mark.slow
def test_no_confinement_is_said_plainly(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cdd(project, "doctor")
    assert capsys.readouterr().out.count("NOT refused: ") == (6 if os.getuid() else 7)


@pytest.mark.slow
def test_with_json_a_check_is_a_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cdd(project, "doctor", "--json") == 0
    output = capsys.readouterr()
    lines = [json.loads(line) for line in output.out.splitlines()]
    assert {line["event"] for line in lines} == {"Checked"}
    assert [line["name"] for line in lines][:3] == ["git", "folders", "trust"]
    assert set(lines[0]) == {"event", "name", "state", "told", "fix", "details"}
    assert "✔ git" in output.err


@pytest.mark.slow
def test_doctor_asks_nothing_and_decides_nothing(project: Path, hook: Path, *, tmp_path: Path) -> None:
    cdd(project, "doctor")
    assert hook.exists()
    assert not (tmp_path / "state" / "cdd" / "approvals.json").exists()


def test_a_repository_that_brings_nothing_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cdd(project, "trust") == 0
    assert capsys.readouterr().out == "Nothing in this repository needs your approval.\n"


def digest_in(shown: str) -> str:
    return next(line for line in shown.splitlines() if "sha256 " in line).rpartition("sha256 ")[2]


def test_without_a_terminal_offers_are_shown_and_nothing_is_decided(
    project: Path, hook: Path, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cdd(project, "trust") == 2
    output = capsys.readouterr()
    assert "make lint" in output.out
    assert len(digest_in(output.out)) == 64
    assert f"cdd --project {project} trust --digest SHA" in output.err
    assert not (tmp_path / "state" / "cdd" / "approvals.json").exists()
    assert hook.exists()


def test_a_digest_approves_just_that(project: Path, hook: Path, *, capsys: pytest.CaptureFixture[str]) -> None:
    cdd(project, "trust")
    digest = digest_in(capsys.readouterr().out)
    assert cdd(project, "trust", "--digest", digest) == 0
    assert cdd(project, "trust") == 0
    assert "approved, sha256" in capsys.readouterr().out
    hook.write_text("#!/bin/sh\nevil\n")
    assert cdd(project, "trust") == 2
    capsys.readouterr()
    assert cdd(project, "trust", "--digest", digest) == 2
    assert "The content was" in capsys.readouterr().err


def test_a_digest_that_is_not_there_approves_none_of_those_named_with_it(
    project: Path, hook: Path, *, capsys: pytest.CaptureFixture[str]
) -> None:
    cdd(project, "trust")
    digest = digest_in(capsys.readouterr().out)
    assert cdd(project, "trust", "--digest", digest, "--digest", "0" * 64) == 2
    assert cdd(project, "trust") == 2
    assert hook.exists()


def test_decisions_can_be_forgotten(project: Path, hook: Path, *, capsys: pytest.CaptureFixture[str]) -> None:
    cdd(project, "trust")
    cdd(project, "trust", "--digest", digest_in(capsys.readouterr().out))
    assert cdd(project, "trust", "--forget") == 0
    assert "Forgot 1 decision about" in capsys.readouterr().out
    assert cdd(project, "trust") == 2
    assert hook.exists()
