"""cdd audit, over a ticket that the Executor has carried out from its recording."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.events import SuiteStarted, decode
from cdd_agent.work.records import find_records
from tests.fakes.cases import soak_after
from tests.fakes.demo import SLUG
from tests.fakes.program import command, environment

NOTES = "refs/notes/tdd-handoffs"


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def forge(folder: Path) -> str:
    """Edit the note on RED's commit by hand; its id."""
    commit = git(folder, "log", "-1", "--grep=^test:", "--format=%H").strip()
    text = git(folder, "notes", f"--ref={NOTES}", "show", commit).replace('"ticket":"', '"ticket":"not-')
    subprocess.run(
        ["git", "notes", f"--ref={NOTES}", "add", "-f", "-F", "-", commit], cwd=folder, check=True, input=text.encode()
    )
    return commit


@pytest.mark.slow
def test_a_ticket_of_the_executor_is_all_true_until_a_note_of_it_is_forged(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--project", str(finished), "audit"]) == 0
    told = capsys.readouterr().out
    assert f"\n{SLUG}\ncycle  phase" in told
    assert "\n1      RED" in told
    assert "all true." in told
    assert "✘" not in told
    commit = forge(finished)
    assert run(["--project", str(finished), "audit"]) == 1
    told = capsys.readouterr().out
    assert f"RED of {SLUG}, cycle 1, {commit[:8]}: commit: The note says ticket not-{SLUG}, but" in " ".join(
        told.split()
    )
    assert "2 false." in told, "the checkpoint is of another ticket, too"


@pytest.mark.slow
def test_json_is_one_event_a_line_and_the_same_exit_code(finished: Path, capfd: pytest.CaptureFixture[str]) -> None:
    commit = forge(finished)
    assert run(["--project", str(finished), "--json", "audit", f"{commit}^!"]) == 1
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    failed = [event for event in events if event["event"] == "ClaimChecked" and event["holds"] is False]
    assert [(event["claim"], event["commit"]) for event in failed] == [("commit", commit), ("listed", commit)]
    assert events[-1] == {
        "event": "HandoffsAudited",
        "handoffs": 1,
        "held": events[-1]["held"],
        "failed": 2,
        "unknown": 0,
    }


@pytest.mark.slow
def test_an_undecided_claim_changes_the_exit_code_if_the_audit_is_strict(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(find_records(finished).folder / "reports")
    commit = git(finished, "log", "-1", "--grep=^test:", "--format=%H").strip()
    assert run(["--project", str(finished), "audit", f"{commit}^!", "--strict"]) == 1
    told = capsys.readouterr().out
    assert "report: The report is not on this machine" in " ".join(told.split())
    assert "1 unknown, the rest true." in told


@soak_after(
    1,
    ("arguments", "code", "hint"),
    [
        (("nowhere",), 2, "write a range as for git log"),
        (("--", "--output=x"), 2, "write a range as for git log"),
        (("--outptu",), 2, "cdd audit [OPTIONS] [RANGE]"),
    ],
)
def test_a_range_that_is_none_is_a_slip(
    arguments: tuple[str, ...], code: int, hint: str, *, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--project", str(finished), "audit", *arguments]) == code
    assert hint in capsys.readouterr().err


def test_without_notes_and_with_broken_ones_the_surroundings_are_at_fault(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ref = finished / ".git" / NOTES
    kept = ref.read_text()
    ref.write_text("junk\n")
    assert run(["--project", str(finished), "audit"]) == 4
    assert "cdd tdd repair-notes" in capsys.readouterr().err
    ref.write_text(kept)
    git(finished, "update-ref", "-d", NOTES)
    assert run(["--project", str(finished), "audit"]) == 4
    assert f"git fetch origin {NOTES}:{NOTES}" in capsys.readouterr().err


@pytest.mark.slow
def test_kill_9_in_the_middle_of_a_run_leaves_nothing_of_it_in_the_project(finished: Path, tmp_path: Path) -> None:
    def known() -> dict[str, str]:
        asked = (("status", "--porcelain"), ("worktree", "list"), ("for-each-ref",), ("stash", "list"))
        found = {" ".join(each): git(finished, *each) for each in asked}
        return {**found, "index": (finished / ".git" / "index").read_bytes().hex()}

    before = known()
    with subprocess.Popen(
        command("--json", "audit"),
        cwd=finished,
        env=environment(tmp_path / "home", CDD_SANDBOX="none", TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if isinstance(decode(line), SuiteStarted):
                break
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert known() == before
