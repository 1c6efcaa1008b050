"""cdd tdd status, history, rollback and repair-notes."""

import json
import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from cdd_agent.cli.app import run
from cdd_agent.events import HandoffListed, decode
from cdd_agent.work.records import find_records
from tests.cdd_agent.runs.made_runs import SLUG, Run, begun_in, copied, two_cycles
from tests.fakes.cases import soak_after
from tests.fakes.program import command, environment


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A project with a run of two cycles; never to be changed."""
    return two_cycles(begun_in(tmp_path_factory.mktemp("run") / "project"))


@pytest.fixture
def ran(made: Run, tmp_path: Path) -> Run:
    """A project with a run of two cycles."""
    return copied(made, tmp_path / "project")


def cdd(ran: Run, *arguments: str) -> int:
    return run(["--project", str(ran.root), "tdd", *arguments])


def lines(told: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in told.splitlines()]


def test_history_is_a_table_newest_first(ran: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cdd(ran, "history", "-n", "3") == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        SLUG,
        "cycle phase result retries commit test",
        f"2 REFACTOR PASS {ran.commits['refactor 2'][:10]} subtracts",
        f"2 GREEN PASS {ran.commits['green 2'][:10]} subtracts",
        f"2 RED FAIL {ran.commits['red 2'][:10]} subtracts",
        "5 older phases are not shown; -n 0 shows all.",
    ]
    assert cdd(ran, "history", "-n", "0") == 0
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_history_as_json_is_a_line_for_each_phase(ran: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cdd(ran, "history", "-n", "2", "--json") == 0
    out = capsys.readouterr().out
    assert isinstance(decode(out.encode().splitlines()[0]), HandoffListed)
    newest, _ = lines(out)
    assert newest == {
        "event": "HandoffListed",
        "ticket": SLUG,
        "cycle": 2,
        "phase": "REFACTOR",
        "following": "PLAN",
        "result": "PASS",
        "retries": 0,
        "commit": ran.commits["refactor 2"],
        "description": "subtracts",
        "error": "",
        "reconstructed": False,
    }


def test_status_tells_cycle_list_and_what_to_type(ran: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cdd(ran, "status") == 0
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        f"run {SLUG}",
        "cycle 2, REFACTOR: subtracts",
        f"commit {ran.commits['refactor 2'][:10]}",
        "tests 2 of 3 are done",
        "open divides",
        "next cdd tdd resume (continues with PLAN)",
    ]
    assert cdd(ran, "status", "--json") == 0
    (told,) = lines(capsys.readouterr().out)
    assert (told["event"], told["pending"], told["next"]) == ("RunStanding", ["divides"], "cdd tdd resume")


@soak_after(1, "words", [("status",), ("history",), ("rollback", "HEAD~1"), ("rollback", "--undo")])
def test_without_git_or_notes_they_say_so(words: tuple[str, ...], tmp_path: Path) -> None:
    assert run(["--project", str(tmp_path), "tdd", *words]) == 4
    empty = begun_in(tmp_path / "project")
    shutil.rmtree(find_records(empty.root).folder)
    assert cdd(empty, *words) == 2


@pytest.mark.slow
def test_a_damaged_note_is_told_with_what_mends_it(ran: Run, capsys: pytest.CaptureFixture[str]) -> None:
    ran.repository.git("notes", ("--ref=tdd-handoffs",), "add", ("--force", "-m"), "no JSON", ran.commits["red 1"])
    assert cdd(ran, "history") == 0
    assert "Show the repairs: cdd tdd repair-notes" in capsys.readouterr().out
    assert cdd(ran, "repair-notes") == 0
    planned = capsys.readouterr().out
    assert "Its last readable version is restored" in planned
    assert planned.splitlines()[-1] == "Nothing was changed yet. Apply the repairs: cdd tdd repair-notes --apply"
    assert cdd(ran, "repair-notes", "--apply") == 0
    undo = capsys.readouterr().out.splitlines()[-1].split()
    assert undo[:3] == ["git", "update-ref", "refs/notes/tdd-handoffs"]
    assert cdd(ran, "repair-notes") == 0
    assert capsys.readouterr().out == "The notes have no problems.\n"
    assert cdd(ran, "repair-notes", "--apply", "--json") == 0
    assert lines(capsys.readouterr().out) == [{"event": "NotesRepaired", "backup": None, "undo": None}]


@pytest.mark.slow
def test_a_broken_ref_is_an_error_and_mended(ran: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (ran.repository.location.common_dir / "refs" / "notes" / "tdd-handoffs").write_text("junk\n")
    for words in (("status",), ("history",), ("rollback", "HEAD~1", "--yes")):
        assert cdd(ran, *words) == 4
        assert "cdd tdd repair-notes" in capsys.readouterr().err
    assert cdd(ran, "repair-notes", "--apply") == 0
    capsys.readouterr()
    assert cdd(ran, "history", "-n", "1") == 0
    assert "2      REFACTOR  PASS" in capsys.readouterr().out


def test_rollback_shows_what_would_go_and_takes_a_yes(ran: Run, capsys: pytest.CaptureFixture[str]) -> None:
    target = ran.commits["refactor 1"]
    assert cdd(ran, "rollback", target[:8]) == 2
    told = capsys.readouterr()
    assert "Removed commits, 4:" in told.out
    assert "  D tests/data2.txt" in told.out
    assert "hint: the same command with --yes" in told.err
    assert ran.repository.read_head() == ran.commits["refactor 2"]
    assert cdd(ran, "rollback", target[:8], "--yes") == 0
    assert "Continue with PLAN: cdd tdd resume" in capsys.readouterr().out
    assert ran.repository.read_head() == target
    assert cdd(ran, "rollback", "--undo", "--yes", "--json") == 0
    planned, done = lines(capsys.readouterr().out)
    assert (planned["event"], planned["target"]) == ("RollbackPlanned", ran.commits["refactor 2"])
    assert isinstance(planned["coming"], list)
    assert len(planned["coming"]) == 4
    assert (done["event"], done["kept"]) == ("RolledBack", planned["kept"])
    assert ran.repository.read_head() == ran.commits["refactor 2"]


@pytest.mark.parametrize("words", [(), ("HEAD~1", "--undo")])
def test_rollback_wants_a_commit_or_undo(words: tuple[str, ...], ran: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cdd(ran, "rollback", *words, "--yes") == 2
    assert "cdd tdd rollback COMMIT, or cdd tdd rollback --undo" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "head"), [("n", "refactor 2"), ("y", "red 2")])
def test_in_a_terminal_it_is_asked(answer: str, head: str, *, ran: Run, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("tdd", "rollback", ran.commits["red 2"]),
        cwd=ran.root,
        env=environment(tmp_path, TERM="dumb"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        told = b""
        while b"[y/N]" not in told:
            told += os.read(ours, 10_000)
        assert b"Removed commits, 2:" in told
        os.write(ours, f"{answer}\n".encode())
        assert process.wait(timeout=60) == 0
    os.close(ours)
    assert ran.repository.read_head() == ran.commits[head]


@pytest.mark.slow
def test_what_was_cut_off_is_gone_on_with_by_the_next_command(ran: Run, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.cdd_agent.runs.test_back_kills import forth, killed_before

    assert killed_before("landing/removed-", lambda: forth(ran.root), root=ran.root)
    assert cdd(ran, "status") == 0
    told = capsys.readouterr().out
    assert "Finished what was interrupted: the rollback to" in told
    assert "1, GREEN: adds two numbers" in told
    assert ran.repository.read_head() == ran.commits["green 1"]


def test_notes_that_were_fetched_are_taken_in(ran: Run, capsys: pytest.CaptureFixture[str]) -> None:
    ran.repository.git("update-ref", "refs/notes/fetched", "refs/notes/tdd-handoffs")
    ran.repository.git("update-ref", "refs/notes/tdd-handoffs", "refs/notes/tdd-handoffs~1")
    assert cdd(ran, "repair-notes", "--merge", "refs/notes/fetched") == 0
    assert capsys.readouterr().out.splitlines() == [
        "• Merged refs/notes/fetched: the notes of 1 commit changed.",
        "The notes have no problems.",
    ]
    assert cdd(ran, "repair-notes", "--merge", "refs/notes/none") == 2
    assert "This repository has no refs/notes/none" in capsys.readouterr().err
