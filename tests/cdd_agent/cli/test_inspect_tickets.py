"""new, status and review."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cdd_agent.cli.app import run
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.runs.feature import locate_feature
from cdd_agent.runs.places import locate_run
from cdd_agent.tickets.ticket import find
from cdd_agent.work.finding import read_old_finding
from cdd_agent.work.state import Origin, RunState, Status
from cdd_agent.work.state_file import load_state, save_state, seal_state
from tests.fakes.demo import SLUG
from tests.fakes.program import command, environment


def test_a_new_ticket_says_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--project", str(tmp_path), "new", "export-as-csv", "--type", "bug"]) == 0
    assert "Created tickets/export-as-csv/spec.yaml." in capsys.readouterr().out
    assert 'title: "Export as csv"\ntype: bug' in (tmp_path / "tickets/export-as-csv/spec.yaml").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("Bad Slug",), "hint: write it as: bad-slug"),
        (("x", "--type", "bgu"), "did you mean 'bug'?"),
        ((SLUG,), "hint: continue with: cdd spec minutes-lost"),
    ],
)
def test_a_ticket_that_cannot_be_made_is_refused(
    arguments: tuple[str, ...], told: str, *, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--project", str(project), "new", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_status_lists_the_tickets_and_shows_one(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--project", str(finished), "status"]) == 0
    assert "1 of 1" in capsys.readouterr().out
    assert run(["--project", str(finished), "status", SLUG]) == 0
    assert "✔ completed" in capsys.readouterr().out


def lines(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """What ``cdd ARGUMENTS`` printed, line by line."""
    assert run(arguments) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_status_as_json_is_a_line_for_each_ticket(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (finished / "tickets" / "broken").mkdir()
    (finished / "tickets" / "broken" / "spec.yaml").write_text("- no\n", encoding="utf-8")
    run(["--project", str(finished), "new", "another"])
    capsys.readouterr()
    another, broken, done = lines(["--project", str(finished), "--json", "status"], capsys)
    assert {line["event"] for line in (another, broken, done)} == {"TicketListed"}
    assert (another["ticket"], another["has_plan"], another["steps"]) == ("another", False, 0)
    assert another["missing"] != []
    assert (broken["ticket"], bool(broken["problem"])) == ("broken", True)
    assert (done["status"], done["completed"], done["failed"], done["missing"]) == ("completed", 1, 0, [])


def test_status_of_a_ticket_as_json_has_a_line_for_each_step(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ticket, step = lines(["--project", str(finished), "status", SLUG, "--json"], capsys)
    assert ticket["ticket"] == SLUG
    assert (step["event"], step["number"], step["status"]) == ("StepListed", 1, "completed")
    assert step["attempts"] == ["red 1 open", "green 1 closed", "green 2 open", "refactor 1 open"]
    assert step["unverified"] == []
    why = "Not verified: shop was loaded from /home/ada/shop.py, not from the clean copy."
    path = finished / "tickets" / SLUG / "execution-state.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    findings = [msgspec.to_builtins(read_old_finding(text)) for text in (why, "Looks like a profiler.")]
    state["step_executions"]["1"]["attempts"][-1]["evidence"] = findings
    path.write_text(json.dumps(state), encoding="utf-8")
    seal_state(path, path.read_bytes())
    _, again = lines(["--project", str(finished), "status", SLUG, "--json"], capsys)
    assert again["unverified"] == [why]
    assert [str(commit).split()[0] for commit in step["commits"]] == ["red", "green", "refactor"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_json_is_utf_8_wherever_it_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--project", str(tmp_path), "new", "menu", "--title", "Café"]) == 0
    ascii_only = environment(tmp_path, PYTHONIOENCODING="ascii")
    arguments = command("--project", str(tmp_path), "--json", "status")
    done = subprocess.run(arguments, env=ascii_only, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout.decode("utf-8"))["title"] == "Café"


def test_status_names_the_runs_without_a_ticket_that_can_be_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_other_runs(tmp_path)
    assert run(["--project", str(tmp_path), "status"]) == 0
    _, *others = capsys.readouterr().out.splitlines()
    assert others == [
        "green-sum has no ticket and is not complete: cdd green tests/test_sum.py",
        "tdd-broken has no ticket and is not complete: cdd status tdd-broken",
        "tdd-clock has no ticket and is not complete: cdd tdd resume",
    ]
    listed = lines(["--project", str(tmp_path), "--json", "status"], capsys)
    assert [(each["ticket"], bool(each["problem"])) for each in listed] == [
        ("green-sum", False),
        ("tdd-broken", True),
        ("tdd-clock", False),
    ]


def make_other_runs(project: Path) -> None:
    """One that is complete, one that failed, one with a damaged state, and one that has not begun a step."""
    for name, status in (("green-done", Status.COMPLETED), ("green-sum", Status.FAILED)):
        origin = Origin(workflow="green", title="sums", resume="cdd green tests/test_sum.py")
        state = RunState(ticket_slug=name, started_at="2026-01-31T12:00:00Z", origin=origin, status=status)
        save_state(locate_run(project, name).state_path, state)
    for name in ("tdd-broken", "tdd-clock"):
        locate_feature(project, name, text="A clock").save()
    locate_run(project, "tdd-broken").state_path.write_text("{")


def test_the_commands_of_a_ticket_name_the_command_that_continues_a_run_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_other_runs(tmp_path)
    for word, name in (("spec", "tdd-clock"), ("plan", "green-sum"), ("exec", "tdd-clock")):
        assert run(["--project", str(tmp_path), word, name]) == 2
        said = capsys.readouterr().err
        assert f"{name} is a run without a ticket" in said
        assert "cdd new" not in said
        assert ("cdd tdd resume" if name == "tdd-clock" else "cdd green tests/test_sum.py") in said


def test_where_the_records_of_a_run_are_missing_its_notes_are_named(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(finished / "tickets" / SLUG)
    head = Repository(finished).read_head()
    for word in ("status", "report", "review"):
        assert run(["--project", str(finished), word, SLUG]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert f"The records of the run {SLUG} are missing here; 2 commits with handoff notes of it are left." in said
        assert f"cdd review {str(head)[:10]}" in said


def test_status_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--project", str(tmp_path), "status"]) == 0
    assert "cdd new SLUG" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_review_shows_each_step_and_keeps_what_is_approved(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--project", str(finished), "review", SLUG]) == 0
    shown = capsys.readouterr().out
    assert "RED: gate open; its report is unchanged" in shown
    assert shown.rstrip().endswith("not reviewed")
    assert run(["--project", str(finished), "review", SLUG, "--approve", "1"]) == 0
    assert "  approved\nThe whole ticket: 3 files, +21 -6 in 2 commits.\n" in capsys.readouterr().out


@pytest.mark.slow
def test_the_size_of_a_ticket_counts_an_iteration_that_came_last(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = find(finished, SLUG).state_path
    state = load_state(path)
    assert state is not None
    (finished / "README.md").write_text("# Iterated\n", encoding="utf-8")
    repository = Repository.find(finished)
    head = commit_paths(repository, "iterated", paths=["README.md"])
    first, base = state.execution(1), repository.git("rev-parse", "HEAD^").strip()
    steps = {1: replace(first, base_commit=base, commits={"refactor": head}), 2: replace(first, step_number=2)}
    save_state(path, replace(state, step_executions=steps))
    assert run(["--project", str(finished), "review", SLUG, "--approve", "1", "--approve", "2"]) == 0
    assert "The whole ticket: 4 files, +22 -" in (shown := capsys.readouterr().out)
    assert "in 3 commits." in shown


def test_a_review_can_be_read_by_a_program(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--project", str(finished), "review", SLUG, "--json"]) == 0
    (step,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (step["event"], step["number"], step["decision"]) == ("StepReviewed", 1, None)
    assert "durations/reading.py" in step["files"]


def test_a_step_that_is_not_there_is_not_approved(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--project", str(finished), "review", SLUG, "--approve", "9"]) == 2
    assert "has no step 9" in capsys.readouterr().err


def test_status_shows_a_plan_that_cannot_be_carried_out_as_invalid(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = finished / "tickets" / SLUG / "plan.md"
    plan.write_text(plan.read_text(encoding="utf-8").replace("Criteria: AC-1", "Criteria: AC-77"), encoding="utf-8")
    (listed,) = lines(["--project", str(finished), "--json", "status"], capsys)
    assert "AC-77" in str(listed["problem"])
    assert run(["--project", str(finished), "status"]) == 0
    assert f"what is not valid: cdd status {SLUG}" in capsys.readouterr().out
    assert run(["--project", str(finished), "status", SLUG]) == 2
    assert "AC-77" in capsys.readouterr().err
