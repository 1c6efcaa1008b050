"""A feature from its request to its last test, by replay: four agents, and for each a gate, a commit and a note."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cdd_agent.work.records import find_records
from tests.stories.conftest import Cdd, bare, ended, git
from tests.stories.features.calculator import CASES, REQUEST, SLUG, Case, landed, recording

THREE = (CASES[0], CASES[1], CASES[4])
"""A wrong RED, a test that passes at once, a GREEN that breaks one, and a list agent that is done too early."""

Note = dict[str, object]
Make = Callable[[str], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a project without code or tests."""

    return lambda name: bare(tmp_path / name)


def subjects(folder: Path) -> list[str]:
    return git(folder, "log", "--reverse", "--format=%s").splitlines()[1:]


def notes(folder: Path) -> list[Note]:
    """What the notes say, oldest first, without what differs from run to run."""
    found: list[Note] = []
    for commit in git(folder, "rev-list", "--reverse", "HEAD").split()[1:]:
        for line in git(folder, "notes", "--ref=tdd-handoffs", "show", commit).splitlines():
            note = json.loads(line)
            gate = note.pop("gate")
            for name in ("id", "commit", "checkpoint", "baseCommit"):
                note.pop(name, None)
            found.append({**note, "open": gate["open"], "reasons": gate["reasons"]})
    return found


def closed(told: str) -> list[tuple[str, str]]:
    """Phase and first reason of the attempts that a gate refused."""
    events = [json.loads(line) for line in told.splitlines()]
    refused = [event for event in events if event["event"] == "GateJudged" and not event["open"]]
    return [(event["phase"], event["reasons"][0]["code"]) for event in refused]


def check(folder: Path, cases: Sequence[Case]) -> None:
    """The history, the notes and the list say what was done, and nothing is left over."""
    assert subjects(folder) == landed(cases)
    assert git(folder, "status", "--porcelain") == ""
    said = notes(folder)
    assert [note["seq"] for note in said] == sorted({int(str(note["seq"])) for note in said})
    assert (said[-1]["phase"], said[-1]["nextPhase"]) == ("PLAN", "COMPLETE")
    kept = [case for case in cases if not case.is_dropped]
    assert said[-1]["completedTests"] == [case.title for case in kept]
    assert said[-1]["pendingTests"] == []
    ends = [note["nextPhase"] for note in said if note["phase"] in ("RED", "REFACTOR")]
    assert ends.count("PLAN") == len(cases)
    listed = (folder / "test-list.md").read_text(encoding="utf-8")
    assert (listed.count("- [x] "), listed.count("[ ]")) == (len(kept), len(cases) - len(kept))
    assert listed.count("(covered)") == sum(case.code is None for case in kept)
    assert (folder / "tests" / "test_calculator.py").read_text(encoding="utf-8").count("def test_") == len(kept)


@pytest.mark.slow
def test_three_tests(make: Make, cdd: Cdd, tmp_path: Path) -> None:
    folder, turns = make("project"), str(recording(THREE, tmp_path / "turns.json"))
    done = cdd("--replay", turns, "tdd", "run", REQUEST, "--yes", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert closed(done.stdout) == [
        ("red", "wrong_reason"),
        ("red", "already_green"),
        ("plan", "list_open"),
        ("red", "several_tests"),
        ("green", "broke_others"),
    ]
    check(folder, THREE)
    first = notes(folder)[:4]
    assert [(note["phase"], note["nextPhase"], note["testResult"], note["retryCount"]) for note in first] == [
        ("PLAN", "RED", None, 0),
        ("RED", "GREEN", "FAIL", 1),
        ("GREEN", "REFACTOR", "PASS", 0),
        ("REFACTOR", "PLAN", "PASS", 0),
    ]
    assert first[1]["currentTest"] == {
        "description": "adds two numbers",
        "testFile": "tests/test_calculator.py",
        "implFile": "calculator.py",
    }
    assert REQUEST in git(folder, "log", "--format=%b", "--grep=^Cycle: 1$", "--grep=^Phase: PLAN$", "--all-match")
    again = cdd("--replay", turns, "tdd", "resume", "--yes", cwd=folder)
    assert (again.returncode, f"{SLUG} is complete" in again.stderr) == (2, True)


@pytest.mark.slow
def test_sixteen_tests(make: Make, cdd: Cdd, tmp_path: Path) -> None:
    folder, turns = make("project"), str(recording(CASES, tmp_path / "turns.json"))
    done = cdd("--replay", turns, "tdd", "run", REQUEST, "--yes", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    check(folder, CASES)
    refused = closed(done.stdout)
    assert [each for each in refused if each != ("red", "already_green")] == [
        ("red", "wrong_reason"),
        ("red", "several_tests"),
        ("green", "broke_others"),
        ("red", "source_changed"),
        ("green", "no_change"),
        ("green", "protected_changed"),
        ("plan", "list_open"),
    ]
    assert refused.count(("red", "already_green")) == sum(case.code is None for case in CASES)


@pytest.mark.slow
def test_a_run_that_is_rolled_back_comes_to_the_same_end(make: Make, cdd: Cdd, tmp_path: Path) -> None:
    folder, turns = make("project"), str(recording(THREE, tmp_path / "turns.json"))
    assert cdd("--replay", turns, "tdd", "run", REQUEST, "--yes", cwd=folder).returncode == 0
    tree, said = git(folder, "rev-parse", "HEAD^{tree}"), notes(folder)
    for phase, following in (("RED", "GREEN"), ("PLAN", "RED"), ("REFACTOR", "PLAN")):
        before = git(folder, "log", "-1", f"--grep=^Phase: {phase}$", "--grep=^Cycle: 3$", "--all-match", "--format=%H")
        back = cdd("tdd", "rollback", before, "--yes", cwd=folder)
        assert f"continues with {following}" in back.stdout, back.stderr
        done = cdd("--replay", turns, "tdd", "resume", "--yes", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert (git(folder, "rev-parse", "HEAD^{tree}"), notes(folder)) == (tree, said)


def run_killed(folder: Path, home: Path, *, turns: str, after_s: float | None) -> int:
    """The exit code of the run, begun or gone on with, and killed after some seconds unless it has ended by then."""
    begun = any((find_records(folder).folder / "runs").glob("*/request.md"))
    arguments = ("--replay", turns, "--yes", "tdd", *(("resume",) if begun else ("run", REQUEST)))
    status, errors = ended(arguments, folder=folder, home=home, after_s=after_s)
    is_over = status == 2 and "is complete" in errors
    assert status in {0, -9} or is_over, errors
    return 0 if is_over else status


def killed(folder: Path, home: Path, *, cases: Sequence[Case], moments: Sequence[float]) -> None:
    """Kill the run after each of ``moments``, and let it come to its end."""
    turns = str(recording(cases, folder.parent / f"{folder.name}.json"))
    for moment in moments:
        run_killed(folder, home, turns=turns, after_s=moment)
    assert run_killed(folder, home, turns=turns, after_s=None) == 0


@pytest.mark.slow
def test_a_run_that_is_killed_comes_to_the_same_end(make: Make, home: Path) -> None:
    folder = make("project")
    killed(folder, home, cases=CASES[:1], moments=[2.0, 4.5])
    check(folder, CASES[:1])


@pytest.mark.slow
@pytest.mark.parametrize(("cases", "kills"), [*[(THREE, 10)] * 3, (CASES, 40)])
def test_random_kills_change_neither_files_nor_notes(
    make: Make, home: Path, *, cases: Sequence[Case], kills: int
) -> None:
    whole, folder = make("whole"), make("project")
    killed(whole, home, cases=cases, moments=[])
    moments = [random.uniform(0.3, 8.0) for _ in range(kills)]
    print(f"killed after {moments}")  # noqa: T201 (shown when the test fails)
    killed(folder, home, cases=cases, moments=moments)
    assert git(folder, "rev-parse", "HEAD^{tree}") == git(whole, "rev-parse", "HEAD^{tree}")
    assert notes(folder) == notes(whole)
    assert subjects(folder) == landed(cases)
    assert git(folder, "status", "--porcelain") == ""
