"""Ticket to commits, offline: what a newcomer sees."""

import json
import os
import re
import subprocess

import pytest

from tests.fakes.program import KEY, Demo
from tests.stories.conftest import Cdd, git

REFUSALS = {
    "csv-export": {
        ("1", "red", "already_green"),
        ("2", "red", "no_change"),  # of the wish, which needs no new test
        ("3", "green", "protected_changed"),
        ("3", "green", "target_missing"),
        ("3", "green", "test_removed"),
    },
    "minutes-lost": {("1", "green", "broke_others")},
}


def state_of(demo: Demo) -> dict[str, object]:
    content: dict[str, object] = json.loads((demo.folder / "tickets" / demo.name / "execution-state.json").read_text())
    return content


def attempts_of(demo: Demo) -> list[tuple[str, dict[str, object]]]:
    steps = state_of(demo)["step_executions"]
    assert isinstance(steps, dict)
    return [(number, attempt) for number, step in steps.items() for attempt in step["attempts"]]


def test_it_ends_well_and_says_where_the_project_lies(demo: Demo) -> None:
    assert demo.result.returncode == 0, demo.result.stdout + demo.result.stderr
    assert demo.result.stderr == ""
    assert f"The project is in {demo.folder}" in demo.result.stdout


def test_a_replay_neither_loads_the_sdk_nor_opens_a_connection_nor_reads_a_profile(demo: Demo) -> None:
    assert demo.seen == ""
    assert KEY not in demo.result.stdout


@pytest.mark.parametrize("demo", ["minutes-lost"], indirect=True)
def test_a_cycle_starts_few_git_processes(demo: Demo) -> None:
    """RED, two attempts at GREEN, and REFACTOR; a checkpoint before each phase, a landing after the first two."""
    made = demo.calls.index("pack-objects --revs")  # the run tree is ready
    cycle = demo.calls[made + 1 :]
    assert cycle.count("commit --quiet") == 2
    # One lists the ignored files for each run of the tests, whose plugin asks git otherwise.
    assert len(cycle) <= 63, "\n".join(cycle)


def test_every_refused_attempt_is_shown_with_its_reason(demo: Demo) -> None:
    closed = []
    for number, attempt in attempts_of(demo):
        outcome = attempt["outcome"]
        assert isinstance(outcome, dict)
        closed += [(number, attempt)] if outcome["type"] != "open" else []
    refusals = set()
    for number, attempt in closed:
        reasons = attempt["reasons"]
        assert isinstance(reasons, list)
        codes = {reason["code"] for reason in reasons}
        refusals |= {(number, attempt["phase"], code) for code in codes}
        # A wish that needs no new test is not refused; cdd only says what it does instead.
        assert all(code in demo.result.stdout for code in codes - {"no_change"})
    assert refusals == REFUSALS[demo.name]


def test_every_step_is_completed(demo: Demo) -> None:
    state = state_of(demo)
    assert state["status"] == "completed"
    steps = state["step_executions"]
    assert isinstance(steps, dict)
    assert {step["status"] for step in steps.values()} == {"completed"}


@pytest.mark.slow
@pytest.mark.parametrize("demo", ["csv-export"], indirect=True)
def test_a_fork_is_compared_merged_and_dropped(demo: Demo) -> None:
    shown = demo.result.stdout
    assert demo.result.returncode == 0, demo.result.stderr
    assert "\n$ cdd fork csv-export 4 'Show the exported lines'\n" in shown
    assert "\ngates     GREEN open                                    GREEN open" in shown
    assert "\nConflicts in 1 file:\n  README.md\n" in shown
    assert "date,text,amount" in (demo.folder / "README.md").read_text()
    assert git(demo.folder, "for-each-ref", "--format=%(refname)", "refs/heads").split() == ["refs/heads/main"]
    assert len(git(demo.folder, "log", "--merges", "--format=%H").split()) == 1


def test_the_history_holds_a_test_before_each_implementation(demo: Demo) -> None:
    prefixes = [subject.partition(":")[0] for subject in demo.subjects[1:]]
    assert prefixes[0] == "plan"
    assert set(prefixes) <= {"plan", "test", "feat", "fix", "refactor", "docs", "merge"}
    for place, prefix in enumerate(prefixes):
        if prefix in {"feat", "fix"}:
            assert prefixes[place - 1] == "test"


def test_every_phase_commit_carries_trailers_and_a_note_with_its_evidence(demo: Demo) -> None:
    runs = dict[str, str]()
    commits = git(demo.folder, "log", "--reverse", "--no-merges", "--format=%H", "HEAD").splitlines()[2:]
    for commit in commits:
        lines = git(demo.folder, "notes", "--ref=tdd-handoffs", "show", commit).splitlines()
        note = json.loads(lines[0])
        assert all(json.loads(line)["commit"] == commit for line in lines)
        assert note["gate"]["open"] is True
        assert len(note["gate"]["report_sha256"]) == 64
        body = git(demo.folder, "log", "-1", "--format=%B", commit)
        assert f"Ticket: {demo.name}\nPhase: {note['phase']}\n" in body
        found = re.search(
            rf"^Handoff-Id: {note['id']}\nSession: (run/[0-9-]+[a-z]+)\nCheckpoint: [0-9]+$", body, re.MULTILINE
        )
        assert found is not None, body
        runs[commit] = found[1]
    # A separate run carried out the fork, which was merged.
    ours = set(git(demo.folder, "log", "--first-parent", "--format=%H", "HEAD").splitlines())
    own = {run for commit, run in runs.items() if commit in ours}
    of_fork = {run for commit, run in runs.items() if commit not in ours}
    assert (len(own), len(of_fork)) == (1, 1 if demo.name == "csv-export" else 0)
    assert not own & of_fork


def test_the_last_note_says_that_the_ticket_is_complete(demo: Demo) -> None:
    last = git(demo.folder, "notes", "--ref=tdd-handoffs", "show", "HEAD").splitlines()[-1]
    assert json.loads(last)["nextPhase"] == "COMPLETE"


def test_the_project_is_clean_and_its_tests_pass(demo: Demo) -> None:
    assert git(demo.folder, "status", "--porcelain") == ""
    assert git(demo.folder, "stash", "list") == ""
    result = subprocess.run(
        [os.environ["CDD_PYTHON"], "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=demo.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.slow
def test_the_result_and_the_status_show_the_same_usage(demo: Demo, cdd: Cdd) -> None:
    status = cdd("status", demo.name, cwd=demo.folder).stdout
    used = re.compile(r"([\d,]+)\s+tokens\s+read,\s+([\d,]+)\s+written")
    (shown,) = used.findall(status)
    assert used.findall(demo.result.stdout)[-1] == shown


def test_running_the_finished_ticket_again_changes_nothing(demo: Demo, cdd: Cdd) -> None:
    head = git(demo.folder, "rev-parse", "HEAD")
    result = cdd("--yes", "exec", demo.name, cwd=demo.folder)
    assert result.returncode == 0, result.stderr
    assert git(demo.folder, "rev-parse", "HEAD") == head
    assert git(demo.folder, "status", "--porcelain") == ""
