"""What lies behind a run, at the prompt and on a narrow screen."""

import io
import time
from pathlib import Path

import pytest

from cdd_agent.errors import ExitCode
from cdd_agent.events import HandoffListed, RunStanding
from cdd_agent.git.repository import CommitId
from cdd_agent.repl.workflow_actions import show_history, show_run_status
from tests.cdd_agent.repl.typed_prompt import Prompt
from tests.cdd_agent.runs.made_runs import SLUG, Run, begun_in, copied, two_cycles
from tests.fakes.demo import captured

ROW = HandoffListed(
    ticket=SLUG,
    cycle=3,
    phase="GREEN",
    following="GREEN",
    result="CLOSED",
    retries=2,
    commit=CommitId("8ab2c01d11" * 4),
    description="divides\x1b[2J two numbers",
    error="assertion: 1 == 2\nand more",
    reconstructed=True,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A project with a run of two cycles; never to be changed."""
    return two_cycles(begun_in(tmp_path_factory.mktemp("run") / "project"))


@pytest.fixture
def ran(made: Run, tmp_path: Path) -> Run:
    return copied(made, tmp_path / "project")


def rows(told: str) -> list[str]:
    return [" ".join(line.split()) for line in told.splitlines() if line.strip()]


def test_a_failed_phase_has_its_error_in_the_row_and_nothing_that_acts_on_a_terminal() -> None:
    with captured(width=120) as (screen, stream):
        show_history([ROW], hidden=0, screen=screen)
    assert rows(stream.getvalue()) == [
        SLUG,
        "cycle phase result retries commit test error",
        "3 GREEN CLOSED 2 8ab2c01d11 divides two numbers (reconstructed from the commit) assertion: 1 == 2",
    ]


@pytest.mark.slow
def test_a_long_history_is_shown_in_full_and_soon() -> None:
    begun = time.process_time()
    with captured(width=130) as (screen, stream):
        show_history([ROW] * 3_000, hidden=0, screen=screen)
    assert time.process_time() - begun < 10
    told = stream.getvalue().splitlines()
    assert len(told) == 3_002
    assert "\x1b" not in stream.getvalue()
    assert told[-1].split()[:5] == ["3", "GREEN", "CLOSED", "2", "8ab2c01d11"]
    assert told[-1].endswith("assertion: 1 == 2")


def test_standing_tells_the_last_error_and_who_is_at_work() -> None:
    stands = RunStanding(
        run=ROW.ticket,
        last=ROW,
        completed=("a",),
        pending=tuple("bcdefg"),
        details=ROW.error,
        at_work="pid 4711 on bench since 2026-01-31T12:00:00Z: cdd tdd resume",
        next="wait until it finishes",
    )
    with captured(width=200) as (screen, stream):
        show_run_status(stands, screen=screen)
    assert rows(stream.getvalue())[3:] == [
        "tests 1 of 7 are done",
        "open b; c; d; and 3 more",
        "error GREEN failed after 3 attempts: assertion: 1 == 2",
        "and more",
        "at work pid 4711 on bench since 2026-01-31T12:00:00Z: cdd tdd resume",
        "next wait until it finishes",
    ]


def test_a_run_that_has_not_landed_anything_is_told_too() -> None:
    stands = RunStanding(
        run="tdd-add", last=None, completed=(), pending=(), details="no answer", at_work="", next="cdd tdd resume"
    )
    with captured(width=80) as (screen, stream):
        show_run_status(stands, screen=screen)
    assert rows(stream.getvalue()) == [
        "run tdd-add",
        "cycle 1, PLAN: no phase is finished yet",
        "error no answer",
        "next cdd tdd resume (continues with PLAN)",
    ]


@pytest.mark.slow
def test_at_the_prompt_commands_are_told_as_they_are_typed_there(ran: Run) -> None:
    prompt = Prompt(ran.root)
    assert rows(prompt.says("/tdd"))[-1] == "next /tdd resume (continues with PLAN)"
    assert rows(prompt.says("/tdd status")) == rows(prompt.says("/tdd"))
    assert len(rows(prompt.says("/tdd history -n 2"))) == 5
    assert len(rows(prompt.says("/tdd history"))) == 10
    assert "hint: /tdd history [OPTIONS]" in prompt.says("/tdd history -n many")
    assert "Did you mean 'history'?" in prompt.says("/tdd histroy")
    assert "/tdd rollback COMMIT" in prompt.says("/tdd rollback")
    assert "have no problems" in prompt.says("/tdd repair-notes")
    assert "unexpected extra argument" in prompt.says("/tdd repair-notes now")


@pytest.mark.slow
def test_at_the_prompt_a_rollback_is_asked_about(ran: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = Prompt(ran.root)
    monkeypatch.setattr("sys.stdin", io.StringIO("what?\nn\n"))
    told = prompt.says(f"/tdd rollback {ran.commits['red 2']}")
    assert told.count("[y/N]") == 2
    assert "Nothing was changed." in told
    assert ran.repository.read_head() == ran.commits["refactor 2"]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    told = prompt.says(f"/tdd rollback {ran.commits['red 2']}")
    assert "Continue with GREEN: /tdd resume" in told
    assert "/tdd rollback --undo" in told
    assert ran.repository.read_head() == ran.commits["red 2"]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    prompt.says("/tdd rollback --undo")
    assert prompt.code == ExitCode.DONE
    assert ran.repository.read_head() == ran.commits["refactor 2"]
