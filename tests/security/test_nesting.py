"""Files nested so deep that a recursive reader gives up: each reader says what it says of any damaged file."""

import os
from pathlib import Path

import pytest

from cdd_agent import events, journal
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.storage import holder_of
from cdd_agent.testrun.environments import candidates
from cdd_agent.testrun.probe import Probe
from cdd_agent.trust import Approvals, Offer
from tests.fakes.approval import users_folder

NESTED = '{"x":' + "[" * 100_000


def test_a_pyproject_names_no_environment(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("a = " + "[" * 5_000)
    assert list(candidates(tmp_path, {"PATH": ""})) == []


def test_the_answer_of_an_interpreter_is_asked_for_anew(tmp_path: Path) -> None:
    (tmp_path / ".cdd").mkdir()
    (tmp_path / ".cdd" / "interpreter.json").write_text(NESTED)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '" + NESTED[:10_000] + "'\n")
    python.chmod(0o755)
    assert isinstance(Probe(tmp_path, environment=os.environ).ask(python), str)


def test_an_event_is_none_of_this_program(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too deep"):
        events.decode(NESTED.encode())
    (tmp_path / "events.jsonl").write_text(NESTED + "\n")
    assert list(journal.read(tmp_path / "events.jsonl")) == []


def test_a_lock_names_no_holder(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("[" * 9_999)
    assert holder_of(tmp_path / "lock") is None


def test_a_file_of_approvals_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    approvals = Approvals(project, environment=users_folder(tmp_path))
    offer = Offer(subject="settings", source=".cdd/config.yaml", shown=(), content=b"model: x\n")
    approvals.record(offer, approved=True)
    approvals.path.write_text(NESTED)
    with pytest.raises(EnvironmentMissing, match="is damaged"):
        approvals.decision(offer)
