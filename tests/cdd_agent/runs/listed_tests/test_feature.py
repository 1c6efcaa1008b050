import os
import shlex
from pathlib import Path

import msgspec
import pytest

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.runs import feature
from cdd_agent.runs.feature import make_slug
from cdd_agent.runs.places import locate_run
from cdd_agent.tickets.ticket import create
from cdd_agent.work.records import find_records
from cdd_agent.work.state import Origin, RunState, Status
from cdd_agent.work.state_file import save_state
from tests.cdd_agent.runs.made_runs import said


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Calculator with Add/Subtract!", "tdd-calculator-with-add-subtract"),
        ("Überweisung", "tdd-uberweisung"),
        ("計算機", "tdd-feature"),
        ("a" * 200, "tdd-" + "a" * 30),
        ("../../etc", "tdd-etc"),
        ("one two three four five six seven eight nine ten", "tdd-one-two-three-four-five-six-seven"),
    ],
)
def test_a_run_is_named_by_its_first_words(text: str, slug: str) -> None:
    assert make_slug(text) == slug


@pytest.mark.parametrize("text", ["", "  \n", "x" * 100_001])
def test_nothing_and_too_much_are_no_request(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        feature.make_feature(tmp_path, text)
    assert ("a file of the project" in caught.value.hint) == bool(text.strip())


def test_a_request_that_is_kept_is_found_again(tmp_path: Path) -> None:
    assert feature.find_latest(tmp_path) is None
    made = feature.make_feature(tmp_path, "  A calculator\n")
    assert feature.find_latest(tmp_path) is None, "nothing is written before it begins"
    made.save()
    assert feature.find_latest(tmp_path) == made
    assert made.text == "A calculator"


def test_another_run_waits_until_the_last_one_is_complete(tmp_path: Path) -> None:
    first = feature.make_feature(tmp_path, "A calculator")
    first.save()
    with pytest.raises(UsageError, match="tdd-a-calculator is not complete") as caught:
        feature.make_feature(tmp_path, "A clock")
    assert "cdd tdd resume" in caught.value.hint
    assert feature.make_feature(tmp_path, "A calculator ") == first, "the same command goes on"
    done = RunState(ticket_slug=first.slug, started_at="2026-01-31T12:00:00Z", status=Status.COMPLETED)
    save_state(first.ticket.state_path, done)
    assert feature.make_feature(tmp_path, "A calculator").slug == "tdd-a-calculator-2"
    assert feature.make_feature(tmp_path, "A clock", taken={"tdd-a-clock"}).slug == "tdd-a-clock-2"


def test_the_run_that_was_asked_for_last_is_the_one_in_work(tmp_path: Path) -> None:
    for number, name in enumerate(("tdd-a", "tdd-b", "other"), start=1):
        made = find_records(tmp_path).folder / "runs" / name
        made.mkdir(parents=True)
        (made / "request.md").write_text(name)
        os.utime(made / "request.md", (number, number))
    origin = Origin(workflow="toy", title="", resume="toy")
    state = RunState(ticket_slug="other", started_at="2026-01-31T12:00:00Z", origin=origin)
    save_state(made / "execution-state.json", state)
    found = feature.find_latest(tmp_path)
    assert found is not None
    assert found.slug == "tdd-b"


def test_a_name_from_a_note_leads_nowhere_else(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        feature.locate_feature(tmp_path, "tdd-../../x", text="")
    with pytest.raises(UsageError):
        feature.locate_feature(tmp_path, f"tdd-{'x' * 300}", text="")
    assert (
        feature.locate_feature(tmp_path, "tdd-x", text="t").folder == find_records(tmp_path).folder / "runs" / "tdd-x"
    )


def test_the_name_of_a_ticket_or_of_another_source_is_not_that_of_a_feature(tmp_path: Path) -> None:
    create(tmp_path, "sale", title="A sale")
    run = locate_run(tmp_path, "tdd-toy")
    origin = Origin(workflow="toy", title="", resume="toy")
    save_state(run.state_path, RunState(ticket_slug="tdd-toy", started_at="2026-01-31T12:00:00Z", origin=origin))
    for name in ("sale", "tdd-toy"):
        with pytest.raises(UsageError, match="is not the name of a run of cdd tdd"):
            feature.locate_feature(tmp_path, name, text="")


def test_a_note_is_of_a_feature_if_its_source_says_so_and_without_one_by_its_name() -> None:
    rows = {("tdd", "clock"): True, ("", "tdd-clock"): True, ("exec", "tdd-clock"): False, ("", "clock"): False}
    rows |= {("tdd", "../clock"): False, ("", "tdd-../clock"): False, ("tdd", "x" * 300): False}
    note = said("PLAN", 1, commit="c0", following="RED")
    found = {
        (source, ticket): feature.is_of_feature(msgspec.structs.replace(note, source=source, ticket=ticket))
        for source, ticket in rows
    }
    assert found == rows


@pytest.mark.parametrize(("text", "is_fix"), [("Fix the total", True), ("Bug: it adds", True), ("A fixture", False)])
def test_a_repair_is_asked_for_as_one(tmp_path: Path, text: str, *, is_fix: bool) -> None:
    assert feature.make_feature(tmp_path, text).is_fix == is_fix


def test_of_a_damaged_state_it_says_that_the_notes_know_all(tmp_path: Path) -> None:
    made = feature.make_feature(tmp_path, "A calculator")
    made.save()
    made.ticket.state_path.write_text("{")
    with pytest.raises(DocumentError) as caught:
        feature.make_feature(tmp_path, "A clock")
    assert caught.value.hint.endswith("or delete it and continue from the handoff notes: cdd tdd resume")


def test_giving_a_run_up_can_be_typed_as_it_is_shown(tmp_path: Path) -> None:
    root = tmp_path / "my project"
    root.mkdir()
    feature.make_feature(root, "A calculator").save()
    with pytest.raises(UsageError) as caught:
        feature.make_feature(root, "A clock")
    assert shlex.split(caught.value.hint)[-1] == str(find_records(root).folder / "runs" / "tdd-a-calculator")
