"""``cdd tdd run`` and ``resume`` as commands: arguments, output and exit codes."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.work.records import find_records
from tests.fakes.project import QUICK

LIST = {"file_path": "test-list.md", "content": "- [ ] adds two numbers\n"}
CHOSEN = {"currentTest": {"description": "adds two numbers", "testFile": "test_sum.py", "implFile": "sum.py"}}
DONE = {"type": "tool_use", "name": "CompleteImplementation", "input": {"implementation_files": []}}

Tdd = Callable[..., int]


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    folder = tmp_path / "sums"
    folder.mkdir()
    (folder / "pytest.ini").write_text(QUICK)
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "Ada"),
        ("config", "user.email", "ada@example.org"),
        ("add", "-A"),
        ("commit", "-q", "-m", "start"),
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


@pytest.fixture
def tdd(sums: Path, tmp_path: Path) -> Tdd:
    """Runs ``cdd tdd`` in the project with a list agent that does its work, and a tester that does none."""
    work = "^Work: tdd tdd-a-sum cycle 1"
    turns = [
        {
            "when": f"{work} plan attempt 1$",
            "content": [json.dumps(CHOSEN), {"type": "tool_use", "name": "Write", "input": LIST}, DONE],
        },
        *({"when": f"{work} red attempt {attempt}$", "content": ["Done.", DONE]} for attempt in (1, 2)),
    ]
    recording = tmp_path / "turns.json"
    recording.write_text(json.dumps(turns))

    def tdd(*arguments: str) -> int:
        return run(["--project", str(sums), "--replay", str(recording), "tdd", *arguments])

    return tdd


def test_a_run_that_ends_at_a_gate_has_exit_code_1_and_says_how_to_go_on(
    tdd: Tdd, sums: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tdd("run", "A", "sum", "--yes", "--json") == 1
    out, err = capfd.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events if event["event"].startswith("Run")] == ["RunStarted", "RunFinished"]
    assert events[-1]["status"] == "failed"
    assert "is aborted in cycle 1 (adds two numbers): RED was refused 2 times" in err
    assert "cdd tdd resume" in err
    assert (find_records(sums).folder / "journal" / "tdd-a-sum" / "events.jsonl").exists()
    assert tdd("run", "A difference", "--yes") == 2
    assert "The run tdd-a-sum is not complete." in capfd.readouterr().err


@pytest.mark.slow
def test_the_same_words_go_on_with_the_run(tdd: Tdd, capfd: pytest.CaptureFixture[str]) -> None:
    assert tdd("run", "A", "sum", "--yes") == 1
    capfd.readouterr()
    assert tdd("run", "A sum", "--yes") == 1
    out = capfd.readouterr().out
    assert "PLAN attempt" not in out
    assert "RED attempt 1 of 3" in out, "its attempts are made anew"
    assert tdd("run", "A difference", "--yes") == 2
    assert "The run tdd-a-sum is not complete." in capfd.readouterr().err


@pytest.mark.slow
def test_resume_goes_on_with_the_run(tdd: Tdd, capfd: pytest.CaptureFixture[str]) -> None:
    assert tdd("run", "A sum", "--yes") == 1
    capfd.readouterr()
    assert tdd("resume", "--yes") == 1, "its attempts are made anew"
    assert "RED attempt 1 of 3" in capfd.readouterr().out


def test_without_a_run_there_is_nothing_to_go_on_with(tdd: Tdd, capfd: pytest.CaptureFixture[str]) -> None:
    assert tdd("resume") == 2
    assert "cdd tdd run" in capfd.readouterr().err
    assert tdd("run") == 2


@pytest.mark.slow
def test_uncommitted_changes_are_refused_unless_they_are_allowed(
    tdd: Tdd, sums: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (sums / "mine.txt").write_text("mine\n")
    assert tdd("run", "A sum", "--yes") == 2
    assert "--allow-dirty" in capfd.readouterr().err
    assert tdd("run", "A sum", "--yes", "--allow-dirty") == 1
