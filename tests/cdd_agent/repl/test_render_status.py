"""Where tickets and steps stand."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import DocumentError
from cdd_agent.repl.render import show_steps, show_ticket, show_tickets
from cdd_agent.tickets.ticket import create, find, list_tickets
from cdd_agent.work.finding import read_old_finding
from cdd_agent.work.journal import journal_path
from cdd_agent.work.outcome import Closed, Open, Outcome
from cdd_agent.work.state import (
    AttemptRecord,
    Beyond,
    Phase,
    RunState,
    Status,
    StepKey,
    add_file,
    add_guidance,
    end_step,
    pending_steps,
    record_attempt,
    record_commit,
    retry_step,
    start_step,
)
from tests.fakes.demo import SLUG, captured

KEYS = (StepKey(number=1, title="One", text_sha256="a"), StepKey(number=2, title="Two", text_sha256="b"))
NEW = RunState(ticket_slug="t", started_at="2026-01-31T12:00:00Z", step_executions=pending_steps(KEYS))


def told(project: Path, slug: str, *, width: int = 100) -> str:
    with captured(width) as (screen, shown):
        show_ticket(find(project, slug), screen=screen, journal=journal_path(project, slug))
    return shown.getvalue()


def test_a_run_whose_last_step_was_undone_is_not_shown_as_whole() -> None:
    first, second = (replace(NEW.execution(number), status=Status.COMPLETED) for number in (1, 2))
    left = Beyond(steps=(second,), status=Status.COMPLETED, current_step=None, completed_at=None)
    state = replace(NEW, model="m", step_executions={1: first}, beyond=(left,))
    with captured(100) as (screen, shown):
        show_steps(state, screen=screen)
        show_steps(replace(state, step_executions={}), screen=screen)
    assert "in progress: 1 step done, the next is open; undone: step 2; model m" in shown.getvalue()
    assert "in progress: no step has begun; undone: step 2; model m" in shown.getvalue()


def test_a_finished_ticket_shows_its_gates_and_commits(finished: Path) -> None:
    text = told(finished, SLUG)
    assert text.splitlines()[0] == "minutes-lost  Minutes without a unit are lost"
    assert text.splitlines()[1].split() == ["step", "title", "status", "red", "green", "refactor"]
    row = text.splitlines()[2].split()
    assert row[:7] == ["1", "Minutes", "after", "hours", "need", "no", "unit"]
    assert row[7:11] == ["✔", "completed", "1✔", row[10]]
    assert [part for part in row[9:] if "✔" in part] == ["1✔", "2✔", "1✔"]
    assert "completed: 1 of 1 step, 100 %; model replay:recording.yaml;" in text
    assert "24,001 tokens read, 1,253 written" in " ".join(text.split())


def test_a_narrow_terminal_shows_the_gates_without_commits(finished: Path) -> None:
    row = told(finished, SLUG, width=60).splitlines()[2].split()
    assert row[-5:] == ["✔", "completed", "1✔", "2✔", "1✔"]


def test_each_stage_names_the_next_command(project: Path, finished: Path) -> None:
    create(project, "new-one", title="New one", type="feature")
    assert "cdd spec new-one" in told(project, "new-one")
    ticket = find(finished, SLUG)
    ticket.state_path.unlink()
    assert "next   cdd exec minutes-lost" in told(finished, SLUG)
    assert "Minutes after hours need no unit" in told(finished, SLUG)
    ticket.plan_path.unlink()
    assert "next   cdd plan minutes-lost" in told(finished, SLUG)


def test_all_tickets_are_listed_with_how_far_they_are(finished: Path) -> None:
    create(finished, "new-one", title="New one", type="feature")
    with captured() as (screen, shown):
        show_tickets(list_tickets(finished), screen=screen)
    _, first, second = shown.getvalue().splitlines()
    assert first.split()[-6:] == ["yes", "1", "of", "1,", "100", "%"]
    assert second.split()[:3] == ["new-one", "New", "one"]
    assert "missing" in second


def test_a_ticket_that_is_not_valid_hides_no_other(finished: Path) -> None:
    create(finished, "a-broken-one", title="Broken", type="bug").spec_path.write_text("x = [", encoding="utf-8")
    with captured(width=120) as (screen, shown):
        show_tickets(list_tickets(finished), screen=screen)
    text = " ".join(shown.getvalue().split())
    assert "a-broken-one not valid" in text
    assert "what is not valid: cdd status a-broken-one" in text
    assert "minutes-lost Minutes without a unit" in text
    with pytest.raises(DocumentError):
        told(finished, "a-broken-one")


def test_a_project_without_tickets_says_how_to_make_one() -> None:
    with captured() as (screen, shown):
        show_tickets((), screen=screen)
    assert "cdd new SLUG" in shown.getvalue()


def test_a_failed_step_shows_why_and_which_gate_stayed_closed() -> None:
    state = start_step(NEW, KEYS[0], now="2026-01-31T12:00:00Z")
    state = record_attempt(state, 1, attempt=AttemptRecord(phase="red", number=1, outcome=Closed()))
    state = end_step(state, 1, status=Status.FAILED, error="RED was \x1b[31mrefused", now="2026-01-31T12:00:00Z")
    with captured() as (screen, shown):
        show_steps(state, screen=screen)
    lines = shown.getvalue().splitlines()
    assert lines[1].split() == ["1", "One", "✘", "failed", "1✘"]
    assert lines[2].split() == ["2", "Two", "○", "pending"]
    assert lines[3] == "Step 1 failed: RED was refused"
    assert state.execution(1).status == Status.FAILED


def test_a_step_that_was_iterated_shows_the_phases_that_landed_before() -> None:
    state = start_step(NEW, KEYS[0], now="2026-01-31T12:00:00Z")
    for attempt in (
        AttemptRecord(phase="red", number=1, outcome=Open()),
        AttemptRecord(phase="green", number=1, outcome=Closed()),
        AttemptRecord(phase="green", number=2, outcome=Open()),
    ):
        state = record_attempt(state, 1, attempt=attempt)
    state = record_commit(state, 1, phase="red", commit="a" * 40)
    state = record_commit(state, 1, phase="green", commit="b" * 40)
    state = end_step(state, 1, status=Status.COMPLETED, now="2026-01-31T12:00:00Z")
    state = retry_step(add_guidance(state, 1, words="Shorter."), 1)
    state = start_step(state, KEYS[0], now="2026-01-31T12:00:00Z")
    state = record_attempt(state, 1, attempt=AttemptRecord(phase="red", number=1, outcome=Closed()))
    state = record_attempt(state, 1, attempt=AttemptRecord(phase="refactor", number=1, outcome=Open()))
    state = record_commit(state, 1, phase="refactor", commit="c" * 40)

    def show() -> list[str]:
        with captured() as (screen, shown):
            show_steps(state, screen=screen)
        return shown.getvalue().splitlines()[1].split()

    assert show() == ["1", "One", "→", "in", "progress", "1✘", "1✔", "ccccccc"]
    state = end_step(state, 1, status=Status.COMPLETED, now="2026-01-31T12:00:00Z")
    assert show() == ["1", "One", "✔", "completed", "1✔", "aaaaaaa", "2✔", "bbbbbbb", "1✔", "ccccccc"]


def test_a_step_in_progress_shows_what_was_written_so_far() -> None:
    state = start_step(NEW, KEYS[0], now="2026-01-31T12:00:00Z")
    for number in range(7):
        state = add_file(state, 1, path=f"{number}.py", is_new=number > 0)
    with captured() as (screen, shown):
        show_steps(state, screen=screen)
        show_steps(end_step(state, 1, status=Status.FAILED, error="no", now="2026-01-31T12:00:00Z"), screen=screen)
    assert shown.getvalue().count("so far") == 1
    assert "Step 1 has written so far: 1.py, 2.py, 3.py, 4.py, 5.py and 2 more\n" in shown.getvalue()


def test_a_step_that_was_not_verified_says_so() -> None:
    state, line = (
        start_step(NEW, KEYS[0], now="2026-01-31T12:00:00Z"),
        "Not verified: shop was loaded from /other/shop.py",
    )
    tries: tuple[tuple[Phase, Outcome, tuple[str, ...]], ...] = (
        ("green", Closed(), ("Not verified: an earlier attempt",)),
        ("green", Open(), ("Checked in a clean copy", line)),
        ("refactor", Open(), ()),
    )
    for phase, outcome, evidence in tries:
        found = tuple(map(read_old_finding, evidence))
        attempt = AttemptRecord(phase=phase, number=1, outcome=outcome, evidence=found)
        state = record_attempt(state, 1, attempt=attempt)
    with captured() as (screen, shown):
        show_steps(state, screen=screen)
    assert shown.getvalue().splitlines()[3:] == [f"Step 1: {line}"]


def test_only_the_titles_of_steps_are_wrapped() -> None:
    keys = [StepKey(number=1, title="A title that is too long for its column", text_sha256="a"), KEYS[1]]
    with captured(44) as (screen, shown):
        show_steps(
            record_attempt(
                start_step(NEW, KEYS[0], now="t"), 1, attempt=AttemptRecord(phase="red", number=1, outcome=Open())
            ),
            screen=screen,
        )
        show_steps(RunState(ticket_slug="t", started_at="t", step_executions=pending_steps(keys)), screen=screen)
    assert shown.getvalue().splitlines() == [
        "step  title  status         red",
        "1     One    → in progress  1✔",
        "2     Two    ○ pending",
        "step  title                        status",
        "1     A title that is too long     ○ pending",
        "      for its column",
        "2     Two                          ○ pending",
    ]
