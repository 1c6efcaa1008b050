"""What commits and notes tell of a run, whole and where some of them were lost."""

from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git import notes_repair
from cdd_agent.git.notes import NotesDamaged
from cdd_agent.git.repository import CommitId
from cdd_agent.runs import test_list
from cdd_agent.runs.feature import begin_feature, find_resumable, list_used_names, read_history
from cdd_agent.runs.ledger import Known, Ledger
from cdd_agent.work.handoff import CurrentTest
from cdd_agent.work.outcome import Covered
from cdd_agent.work.records import find_records
from cdd_agent.work.state import Status
from tests.cdd_agent.runs.listed_tests.conftest import (
    FIRST,
    REQUEST,
    RIGHT,
    SECOND,
    SLUG,
    SOURCE,
    TESTS,
    TITLES,
    Runs,
    StoppedAfter,
    nothing,
    plan,
    writes,
)
from tests.fakes.cases import soak_after
from tests.fakes.ledger import check_ledger
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project

NOW = "2026-01-31T12:00:00Z"


def test_a_project_without_notes_remembers_nothing(project: Project, tmp_path: Path) -> None:
    assert read_history(project.repository) is None
    assert list_used_names(project.repository) == frozenset()
    with pytest.raises(UsageError, match="no run to continue"):
        find_resumable(tmp_path, project.repository)


@soak_after(2, "phases", [1, 4, 2, 3, 5, 6, 7])
def test_after_each_landing_the_ledger_has_the_saved_state(stopped_after: StoppedAfter, phases: int) -> None:
    runs = stopped_after(phases)
    check_ledger(runs.project.repository, runs.folder / "execution-state.json")


@pytest.mark.slow
def test_the_request_and_every_cycle_are_told_by_the_history(stopped_after: StoppedAfter) -> None:
    project = stopped_after(7).project
    told = read_history(project.repository)
    assert told is not None
    assert (told.slug, told.text, told.is_complete) == (SLUG, REQUEST, True)
    ledger = Ledger(slug=SLUG, saved=None, repository=project.repository, project=project.folder)
    known = ledger.state_at(CommitId(str(project.repository.read_head())))
    assert isinstance(known, Known)
    state = known.state
    assert state.status == Status.COMPLETED
    first, second, end = state.step_executions.values()
    assert (first.title, tuple(first.commits)) == (TITLES[0], ("plan", "red", "green", "refactor"))
    assert (second.title, second.attempts[-1].outcome) == (TITLES[1], Covered("kept"))
    assert test_list.read_answer(end.attempts[0].answer or "") is None
    assert test_list.read_answer(first.attempts[0].answer or "") == CurrentTest(
        description=TITLES[0], test_file=TESTS, impl_file=SOURCE
    )


@pytest.mark.slow
def test_a_name_that_the_history_knows_is_not_given_twice(stopped_after: StoppedAfter, tmp_path: Path) -> None:
    project = stopped_after(7).project
    assert list_used_names(project.repository) == {SLUG}
    assert begin_feature(tmp_path, project.repository, text=REQUEST).slug == f"{SLUG}-2"


@pytest.mark.slow
def test_a_request_of_several_paragraphs_comes_back_whole(runs: Runs, project: Project) -> None:
    text = "A discount for everything\n\nTicket: not-this\nPhase: RED\n\n- ten percent\n# not a comment"
    with pytest.raises(KeyboardInterrupt):
        runs.begin(ScriptedModel([plan(1), KeyboardInterrupt()]), text=text)
    told = read_history(project.repository)
    assert told is not None
    assert told.text == text


@pytest.mark.slow
def test_the_newest_of_two_runs_is_told_unless_one_is_named(stopped_after: StoppedAfter) -> None:
    runs = stopped_after(7)
    project = runs.project
    again = ScriptedModel([plan(3, titles=(*TITLES, "takes more off")), KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        runs.begin(again, text="More discount")
    newest, named = read_history(project.repository), read_history(project.repository, slug=SLUG)
    assert newest is not None
    assert named is not None
    assert (newest.slug, newest.is_complete, newest.lines[-1].handoff.next_phase) == ("tdd-more-discount", False, "RED")
    assert (named.slug, named.is_complete) == (SLUG, True)


@pytest.mark.slow
def test_notes_that_cannot_be_read_are_an_error_with_the_way_out(stopped_after: StoppedAfter) -> None:
    project = stopped_after(2).project
    project.git("notes", "--ref=tdd-handoffs", "add", "-f", "-m", "words", "HEAD")
    with pytest.raises(NotesDamaged) as caught:
        read_history(project.repository)
    assert "cdd tdd repair-notes" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phases", "rest"),
    [
        pytest.param(
            1, [plan(1, done=0), writes(TESTS, FIRST), writes(SOURCE, RIGHT), nothing()], marks=pytest.mark.slow
        ),
        pytest.param(2, [writes(SOURCE, RIGHT), nothing()], marks=pytest.mark.slow),
        pytest.param(3, [nothing()], marks=pytest.mark.slow),
        (4, []),
    ],
)
def test_notes_that_were_made_up_from_the_commits_are_enough(
    stopped_after: StoppedAfter, *, phases: int, rest: list[object]
) -> None:
    runs = stopped_after(phases)
    project = runs.project
    project.git("update-ref", "-d", "refs/notes/tdd-handoffs")
    project.git("reflog", "expire", "--expire=now", "--all")
    project.git("gc", "-q", "--prune=now")
    (find_records(project.folder).folder / "runs" / SLUG / "execution-state.json").unlink()
    notes_repair.apply_repairs(project.repository, now=NOW)
    assert all(line["reconstructed"] for line in runs.notes())
    scripted = ScriptedModel([*rest, plan(2), writes(TESTS, SECOND), plan(3)])  # type: ignore[list-item]
    assert runs.resume(scripted).status == Status.COMPLETED
    assert scripted.queue == []
    assert project.log[-1] == "plan: complete, 2 of 2 tests"
    assert (project.folder / SOURCE).read_text() == RIGHT
