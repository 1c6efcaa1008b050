from dataclasses import replace

import pytest

from cdd_agent.repl.dialogs import format_duration, show_summary
from cdd_agent.work.state import RunState, Status, StepExecution, Usage
from tests.fakes.demo import captured


def step(number: int, **fields: object) -> StepExecution:
    known = StepExecution(step_number=number, title=f"Step {number}", text_sha256="0", status=Status.COMPLETED)
    return replace(known, **fields)  # type: ignore[arg-type]


def told(*steps: StepExecution, width: int = 100, **fields: object) -> list[str]:
    state = RunState(
        ticket_slug="sale",
        status=Status.COMPLETED,
        started_at="2026-01-31T12:00:00Z",
        base_commit="0123456789abcdef",
        step_executions={step.step_number: step for step in steps},
    )
    with captured(width) as (screen, shown):
        show_summary(replace(state, **fields), screen=screen)  # type: ignore[arg-type]
    return shown.getvalue().splitlines()


def test_files_are_told_as_they_differ_from_before_the_run() -> None:
    first = step(1, files_created=("a.py", "gone.py", "z.py"), files_modified=("b.py",))
    second = step(2, files_modified=("a.py",), files_deleted=("gone.py", "b.py"))
    rows = told(first, second)
    assert "created  2: a.py, z.py" in rows
    assert "deleted  1: b.py" in rows
    assert not [row for row in rows if row.startswith("modified")]


def test_the_files_of_an_iterated_step_include_those_that_landed_before() -> None:
    landed = step(1, files_created=("a.py", "b.py"))
    rows = told(step(1, files_modified=("a.py",), files_deleted=("b.py",), landed=landed))
    assert [row for row in rows if ".py" in row] == ["created  1: a.py"]


def test_many_files_are_counted_and_not_all_named() -> None:
    rows = told(step(1, files_created=tuple(f"{letter}.py" for letter in "abcdefghijk")))
    assert "created  11: a.py, b.py, c.py, d.py, e.py, f.py, g.py, h.py and 3 more" in rows


def test_time_is_what_was_worked_whatever_the_clock_said() -> None:
    one = step(1, usage=Usage(minutes=1.5), started_at="2026-01-31T00:00:00Z")
    two = step(2, usage=Usage(minutes=0.5), started_at="2026-01-31T12:00:00Z", completed_at="2026-01-31T11:00:00Z")
    assert "time     2 min 0 s in all: step 1 1 min 30 s, step 2 30 s" in told(one, two, step(3))
    assert "time     30 s" in told(two)


@pytest.mark.parametrize(
    ("status", "following"),
    [
        (Status.COMPLETED, "next     cdd review sale, or: git log --oneline 0123456.."),
        (Status.FAILED, "next     change the plan or the code, then: cdd exec sale --retry 1"),
        (Status.PENDING, "next     cdd exec sale"),
        (Status.SKIPPED, "next     cdd exec sale --retry 1 runs the skipped step"),
    ],
)
def test_the_next_command_is_named(status: Status, following: str) -> None:
    assert told(step(1, status=status))[-1] == following


def test_a_cost_that_is_not_known_is_said_so() -> None:
    used = Usage(input_tokens=1000, cache_write_tokens=500, output_tokens=20)
    (row,) = [row for row in told(step(1), model="m", usage=used) if "tokens" in row]
    assert row == "completed: 1 of 1 step, 100 %; model m; 1,500 tokens read, 20 written; cost unknown"
    part = replace(used, known_usd=0.25)
    assert [row for row in told(step(1), model="m", usage=part) if row.endswith("; at least 0.25 USD")]
    assert [row for row in told(step(1), model="m", usage=replace(used, cost_usd=0.5)) if row.endswith("; 0.50 USD")]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (60, "1 min 0 s"), (7265, "2 h 1 min")]
)
def test_a_time_is_shown_as_a_person_reads_it(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown
