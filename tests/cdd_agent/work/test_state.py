import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import UsageError
from cdd_agent.events import Change
from cdd_agent.work import state
from cdd_agent.work.outcome import Closed
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepKey, Usage
from tests.fakes.reasons import make_reason

ONE, TWO = (StepKey(number=n, title=f"Step {n}", text_sha256=f"sha{n}") for n in (1, 2))
RED = AttemptRecord(phase="red", number=1, outcome=Closed(), reasons=(make_reason("already_green: it passes"),))


def new_run() -> RunState:
    return RunState(ticket_slug="csv", started_at="t0", step_executions=state.pending_steps([ONE, TWO]))


def started() -> RunState:
    return state.start_step(new_run(), ONE, now="t1", base_commit="c0")


def failed() -> RunState:
    run = state.enter_phase(started(), 1, phase="red", checkpoint="refs/cdd/1", baseline="reports/1.json")
    run = state.record_commit(state.record_attempt(run, 1, attempt=RED), 1, phase="red", commit="c1")
    return state.end_step(run, 1, status=state.Status.FAILED, error="no failing test", now="t2")


def test_a_new_run_has_every_step_pending() -> None:
    assert new_run().numbers(Status.PENDING) == (1, 2)


def test_a_started_step_is_the_current_one() -> None:
    run = started()

    assert run.current_step == 1
    assert (run.execution(1).status, run.execution(1).started_at, run.execution(1).base_commit) == (
        Status.IN_PROGRESS,
        "t1",
        "c0",
    )


def test_a_transition_leaves_the_state_it_was_given() -> None:
    run = new_run()

    state.start_step(run, ONE, now="t1")

    assert run == new_run()


def test_a_step_in_progress_goes_on_where_it_was() -> None:
    run = state.record_attempt(started(), 1, attempt=RED)

    resumed = state.start_step(run, ONE, now="t9", base_commit="c9")

    assert resumed == run


def test_a_step_is_started_with_the_text_the_plan_has_now() -> None:
    run = state.start_step(new_run(), StepKey(number=1, title="New", text_sha256="new"), now="t1")

    assert (run.execution(1).title, run.execution(1).text_sha256) == ("New", "new")


def test_a_phase_keeps_what_undoing_and_judging_it_need() -> None:
    run = state.enter_phase(started(), 1, phase="red", checkpoint="refs/cdd/1", baseline="reports/1.json")
    run = state.enter_phase(run, 1, phase="green", baseline="reports/2.json")

    step = run.execution(1)
    assert (step.phase, step.checkpoint, step.baseline) == ("green", "refs/cdd/1", "reports/2.json")


def test_attempts_and_commits_and_files_add_up() -> None:
    run = state.record_attempt(started(), 1, attempt=RED)
    run = state.record_commit(run, 1, phase="red", commit="c1")
    run = state.record_commit(run, 1, phase="green", commit="c2")
    changes = [Change(path="b.py", kind="modified"), Change(path="a.py", kind="created")]
    run = state.record_files(run, 1, changes=[*changes, Change(path="c.py", kind="deleted")])
    step = run.execution(1)

    assert (step.attempts, step.phase) == ((RED,), "red")
    assert step.commits == {"red": "c1", "green": "c2"}
    assert (step.files_created, step.files_modified, step.files_deleted) == (("a.py",), ("b.py",), ("c.py",))


def test_a_completed_step_has_no_error_left() -> None:
    run = state.start_step(state.retry_step(failed(), 1), ONE, now="t3")
    run = state.end_step(run, 1, status=state.Status.COMPLETED, now="t4")

    step = run.execution(1)
    assert (step.status, step.error, step.completed_at) == (Status.COMPLETED, None, "t4")
    assert run.current_step is None


def test_a_failed_step_says_why() -> None:
    run = failed()

    assert (run.execution(1).status, run.execution(1).error) == (Status.FAILED, "no failing test")
    assert run.current_step is None


def test_a_retried_step_begins_afresh_and_remembers_its_error() -> None:
    step = state.retry_step(failed(), 1).execution(1)

    assert (step.status, step.attempts, step.commits, step.checkpoint) == (Status.PENDING, (), {}, None)
    assert step.error == "no failing test"


def test_a_skipped_step_is_not_completed() -> None:
    run = state.end_step(new_run(), 2, status=state.Status.SKIPPED, error="not needed", now="t1")

    assert run.numbers(Status.SKIPPED) == (2,)
    assert run.numbers(Status.COMPLETED) == ()


def test_only_a_step_in_progress_can_be_completed() -> None:
    with pytest.raises(UsageError, match="Step 1 is pending; only a step that is in progress can be completed"):
        state.end_step(new_run(), 1, status=state.Status.COMPLETED, now="t1")


def test_a_failed_step_is_not_started_again_without_a_retry() -> None:
    with pytest.raises(UsageError) as error:
        state.start_step(failed(), ONE, now="t3")

    assert error.value.hint == "start the step again: cdd exec csv --retry 1"


def test_an_unknown_step_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="The run has no step 9; it has 1, 2"):
        state.retry_step(new_run(), 9)


def test_a_run_left_half_way_stays_in_progress() -> None:
    run = state.end_step(started(), 1, status=state.Status.COMPLETED, now="t2")

    finished = state.finish(run, now="t3")

    assert (finished.status, finished.completed_at) == (Status.IN_PROGRESS, None)


def test_a_run_with_a_failed_step_has_failed() -> None:
    assert state.finish(failed(), now="t3").status == Status.FAILED


def test_a_run_is_completed_when_nothing_is_left_to_do() -> None:
    run = state.end_step(
        state.end_step(started(), 1, status=state.Status.COMPLETED, now="t2"),
        2,
        status=state.Status.SKIPPED,
        error="not needed",
        now="t3",
    )

    finished = state.finish(run, now="t4")

    assert (finished.status, finished.completed_at) == (Status.COMPLETED, "t4")


def test_a_retry_puts_a_failed_run_back_in_progress() -> None:
    run = state.retry_step(state.finish(failed(), now="t3"), 1)

    assert (run.status, run.completed_at) == (Status.IN_PROGRESS, None)


counts = st.integers(0, 10**9)
dollars = st.integers(0, 10**6).map(float)
usages = st.builds(
    Usage,
    input_tokens=counts,
    output_tokens=counts,
    cache_read_tokens=counts,
    cache_write_tokens=counts,
    calls=counts,
    minutes=dollars,
    cost_usd=st.none() | dollars,
    known_usd=dollars,
)


def test_usage_adds_up() -> None:
    first = Usage(
        input_tokens=1,
        output_tokens=2,
        cache_read_tokens=3,
        cache_write_tokens=4,
        calls=1,
        minutes=1.5,
        cost_usd=0.5,
        known_usd=0.5,
    )

    assert (first + first).tokens == 20
    assert first + first == Usage(
        input_tokens=2,
        output_tokens=4,
        cache_read_tokens=6,
        cache_write_tokens=8,
        calls=2,
        minutes=3.0,
        cost_usd=1.0,
        known_usd=1.0,
    )


@given(usages, usages, usages)
def test_the_order_in_which_usage_is_added_does_not_matter(a: Usage, b: Usage, c: Usage) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Usage() == a


def test_minutes_and_calls_without_tokens_leave_the_cost_known() -> None:
    known = Usage(input_tokens=1, cost_usd=0.5, known_usd=0.5)

    assert (known + Usage(calls=1, minutes=2.0)).cost_usd == 0.5
    assert (Usage(calls=1) + Usage(minutes=1.0)).cost_usd is None


def test_a_cost_that_is_unknown_in_part_is_unknown() -> None:
    known = Usage(input_tokens=1, cost_usd=0.5)
    unknown = Usage(input_tokens=1)

    assert (known + unknown).cost_usd is None
    assert (unknown + known).cost_usd is None


def test_what_is_known_of_a_cost_stays_known() -> None:
    known, unknown = Usage(input_tokens=1, cost_usd=0.5, known_usd=0.5), Usage(input_tokens=1)

    assert (known + unknown + known).known_usd == 1.0


def test_a_step_that_is_tried_again_has_used_what_its_earlier_tries_did() -> None:
    used = Usage(input_tokens=7, calls=1)
    run = state.retry_step(state.record_usage(failed(), 1, step=used, ticket=used), 1)

    assert run.execution(1).usage == used
    assert run.execution(2).usage == Usage()
