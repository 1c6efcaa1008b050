from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.work import state as work
from cdd_agent.work.state import RunState, Status, StepKey, reconcile


def key(number: int, title: str, text: str = "") -> StepKey:
    return StepKey(number=number, title=title, text_sha256=text or title)


A, B, C = key(1, "A"), key(2, "B"), key(3, "C")


def run(*completed: int) -> RunState:
    state = RunState(ticket_slug="csv", started_at="t0", step_executions=work.pending_steps([A, B, C]))
    for step in (A, B, C):
        if step.number in completed:
            state = work.end_step(
                work.start_step(state, step, now="t1"), step.number, status=work.Status.COMPLETED, now="t2"
            )
    return state


def statuses(state: RunState) -> dict[int, tuple[str, str]]:
    return {number: (step.title, step.status.value) for number, step in state.step_executions.items()}


def test_an_unchanged_plan_changes_nothing() -> None:
    assert reconcile(run(1, 2), [A, B, C]) == (run(1, 2), ())


def test_a_step_put_before_others_moves_them_without_mixing_them_up() -> None:
    state, notices = reconcile(run(1, 2), [key(1, "New"), key(2, "A"), key(3, "B"), key(4, "C")])

    assert statuses(state) == {1: ("New", "pending"), 2: ("A", "completed"), 3: ("B", "completed"), 4: ("C", "pending")}
    assert all(number == step.step_number for number, step in state.step_executions.items())
    assert notices == ("step 1 'New' is new",)


def test_a_renamed_step_is_known_by_its_text() -> None:
    state, notices = reconcile(run(1, 2), [key(1, "New"), key(2, "A, renamed", "A"), key(3, "B"), key(4, "C")])

    assert statuses(state)[2] == ("A, renamed", "completed")
    assert notices == ("step 1 'New' is new",)


def test_a_step_that_was_not_begun_and_is_gone_is_told() -> None:
    assert reconcile(run(1), [A, C])[1] == ("step 2 'B' is no longer in the plan",)


def test_a_completed_step_whose_text_changed_is_stale_and_reported_until_it_is_done_again() -> None:
    steps = [A, key(2, "B", "other text"), C]

    state, notices = reconcile(run(1, 2), steps)

    assert state.execution(2).status is Status.COMPLETED
    assert notices == ("step 2 'B' is stale: its text changed after it was completed",)
    assert reconcile(state, steps) == (state, notices)

    again = work.start_step(work.retry_step(state, 2), steps[1], now="t5")
    assert reconcile(work.end_step(again, 2, status=work.Status.COMPLETED, now="t6"), steps)[1] == ()


def test_a_step_rewritten_altogether_is_known_by_its_number() -> None:
    state, notices = reconcile(run(1, 2), [A, key(2, "Rewritten"), C])

    assert statuses(state)[2] == ("Rewritten", "completed")
    assert notices == ("step 2 'Rewritten' is stale: its text changed after it was completed",)


def test_a_pending_step_takes_the_new_text() -> None:
    state, notices = reconcile(run(), [A, key(2, "B", "other text"), C])

    assert state.execution(2).text_sha256 == "other text"
    assert notices == ()


def test_a_step_in_progress_goes_on_and_its_change_is_reported() -> None:
    started = work.start_step(run(), B, now="t1")

    state, notices = reconcile(started, [A, key(5, "B", "other text"), C])

    assert state.current_step == 5
    assert notices == ("step 5 'B' continues, but its text changed after it started",)


def test_a_completed_step_that_left_the_plan_is_reported() -> None:
    state, notices = reconcile(run(1, 2), [A, C])

    assert list(state.step_executions) == [1, 3]
    assert notices == ("step 2 'B' is completed and no longer in the plan; its commits stay",)


def test_a_current_step_that_left_the_plan_is_current_no_more() -> None:
    assert reconcile(work.start_step(run(), B, now="t1"), [A, C])[0].current_step is None


def test_titles_that_are_there_twice_decide_nothing() -> None:
    twice = [key(1, "Same", "a"), key(2, "Same", "b")]
    state = RunState(ticket_slug="csv", started_at="t0", step_executions=work.pending_steps(twice))
    state = work.end_step(work.start_step(state, twice[1], now="t1"), 2, status=work.Status.COMPLETED, now="t2")

    moved, notices = reconcile(state, [key(1, "Same", "b"), key(2, "Same", "a")])

    assert [step.status for step in moved.step_executions.values()] == [Status.COMPLETED, Status.PENDING]
    assert notices == ()


titles = st.text("ABC", min_size=1, max_size=2)
plans = st.lists(st.tuples(titles, titles), max_size=6).map(
    lambda pairs: [key(number, *pair) for number, pair in enumerate(pairs, start=1)]
)


@given(plans, plans)
def test_the_run_has_exactly_the_steps_of_the_plan(old: list[StepKey], new: list[StepKey]) -> None:
    state = RunState(ticket_slug="csv", started_at="t0", step_executions=work.pending_steps(old))

    moved, _ = reconcile(state, new)

    assert [(s.step_number, s.title, s.text_sha256) for s in moved.step_executions.values()] == [
        (step.number, step.title, step.text_sha256) for step in new
    ]
    assert reconcile(moved, new) == (moved, ())
    assert replace(moved, step_executions={}) == replace(state, step_executions={})
