from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import BudgetSpent, CddError, ModelError, TurnMissing
from cdd_agent.events import Emit, Event
from cdd_agent.model.budget import (
    Ceiling,
    Ceilings,
    Meter,
    Tally,
    cost_usd,
    estimate_tokens,
    format_unknown_price,
    make_answer_lost,
)
from cdd_agent.model.conversation import Request, Text, ToolCall, ToolResult, Turn, UserMessage
from cdd_agent.model.recording import ReplayModel
from cdd_agent.work.state import Usage
from tests.fakes.clock import FakeClock

OPUS = "claude-opus-5-5"
HI = Request(system="", messages=(UserMessage(content=(Text(text="hi"),)),))
COUNTS = st.integers(0, 500_000)
USAGES = st.lists(
    st.builds(Usage, input_tokens=COUNTS, output_tokens=COUNTS, cache_read_tokens=COUNTS, cache_write_tokens=COUNTS),
    min_size=1,
    max_size=12,
)


class Counting:
    """A model that uses what it is told to, for as long as it is told to take, and raises those that are errors."""

    def __init__(
        self,
        uses: Iterable[Usage | CddError | KeyboardInterrupt],
        *,
        name: str = OPUS,
        clock: FakeClock | None = None,
        takes_s: float = 0.0,
    ) -> None:
        self.name = name
        self.uses = list(uses)
        self.asked = 0
        self._clock, self._takes_s = clock or FakeClock(), takes_s

    def check(self) -> None:
        """It can always be asked."""

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        self.asked += 1
        self._clock.sleep(self._takes_s)
        use = self.uses.pop(0)
        if isinstance(use, Usage):
            return Turn(content=(Text(text="well"),), stop_reason="end_turn", usage=use)
        emit(make_answer_lost(self.name, Usage(input_tokens=11, output_tokens=2)))
        raise use


def metered(
    inner: Counting,
    *,
    step: Ceiling | None = None,
    ticket: Ceiling | None = None,
    clock: FakeClock | None = None,
    tally: Tally | None = None,
) -> Meter:
    return Meter(
        inner,
        clock=clock or FakeClock(),
        work="the ticket sale",
        go_on="cdd exec sale",
        ceilings=Ceilings(step=step or Ceiling(), ticket=ticket or Ceiling()),
        tally=tally,
    )


def ask(meter: Meter, request: Request = HI) -> Turn:
    return meter.reply(request, emit=lambda _: None)


def until_refused(meter: Meter, calls: int) -> BudgetSpent | None:
    """The refusal, if there is one within so many calls."""
    for _ in range(calls):
        try:
            ask(meter)
        except BudgetSpent as error:
            return error
    return None


@given(USAGES)
def test_what_is_used_is_the_sum_of_its_parts(uses: list[Usage]) -> None:
    meter = metered(Counting(uses))
    for _ in range(len(uses)):
        ask(meter)
    whole = sum(uses, Usage())
    cost = sum(cost_usd(OPUS, usage) or 0.0 for usage in uses)
    for used in (meter.step, meter.ticket):
        assert (used.tokens, used.calls) == (whole.tokens, len(uses))
        assert (used.input_tokens, used.output_tokens) == (whole.input_tokens, whole.output_tokens)
        assert (used.cache_read_tokens, used.cache_write_tokens) == (whole.cache_read_tokens, whole.cache_write_tokens)
        assert (used.cost_usd or 0.0) == pytest.approx(cost)
        assert used.known_usd == pytest.approx(cost)


@given(USAGES, st.integers(1, 2_000_000), st.sampled_from(["step", "ticket"]))
def test_a_limit_of_tokens_is_passed_by_one_call_at_most(uses: list[Usage], limit: int, scope: str) -> None:
    inner = Counting(uses)
    ceiling = Ceiling(tokens=limit)
    meter = metered(inner, step=ceiling) if scope == "step" else metered(inner, ticket=ceiling)
    done = list(uses)
    error = until_refused(meter, len(uses))
    made = done[: inner.asked]
    before_last = sum(made[:-1], Usage()).tokens
    assert not made or before_last < limit
    if error is None:
        assert inner.asked == len(done)
    else:
        assert meter.ticket.tokens + estimate_tokens(HI) > limit
        assert f"max_tokens_per_{scope} is {limit:,}" in error.happened


@given(USAGES, st.integers(1, 400).map(lambda cents: cents / 100))
def test_a_limit_of_dollars_is_passed_by_one_call_at_most(uses: list[Usage], limit: float) -> None:
    inner = Counting(uses)
    meter, done = metered(inner, step=Ceiling(usd=limit)), list(uses)
    error = until_refused(meter, len(uses))
    before_last = sum(cost_usd(OPUS, usage) or 0.0 for usage in done[: inner.asked - 1])
    assert before_last < limit + 1e-9
    assert (error is None) == (inner.asked == len(done))


@given(st.integers(1, 20))
def test_a_limit_of_calls_is_never_passed(limit: int) -> None:
    inner = Counting([Usage()] * 30)
    error = until_refused(metered(inner, ticket=Ceiling(calls=limit)), 30)
    assert inner.asked == limit
    assert error is not None
    assert error.happened == (f"The ticket sale has used {limit} model calls, and max_calls_per_ticket is {limit}.")


def test_a_request_that_is_longer_than_what_is_left_is_not_sent() -> None:
    inner = Counting([Usage(input_tokens=400), Usage()])
    meter = metered(inner, step=Ceiling(tokens=1000))
    ask(meter)
    long = Request(system="", messages=(UserMessage(content=(Text(text="x" * 3 * 600),)),))
    with pytest.raises(BudgetSpent, match="has 600 tokens left"):
        ask(meter, long)
    assert inner.asked == 1
    assert meter.step.calls == 1
    ask(meter)


def test_a_step_begins_anew_and_the_ticket_goes_on() -> None:
    meter = metered(Counting([Usage(input_tokens=100)] * 9), step=Ceiling(tokens=290), ticket=Ceiling(tokens=600))
    for number in (1, 2):
        meter.begin(f"step {number} of sale", used=Usage())
        ask(meter)
        ask(meter)
    assert (meter.step.tokens, meter.ticket.tokens) == (200, 400)
    meter.begin("step 2 of sale", used=Usage(input_tokens=200))
    assert meter.step.tokens == 200
    ask(meter)
    with pytest.raises(BudgetSpent, match="Step 2 of sale has used 300 tokens"):
        ask(meter)
    meter.begin("step 3 of sale", used=Usage())
    with pytest.raises(BudgetSpent, match="The ticket sale has 100 tokens left"):
        ask(meter, Request(system="x" * 300, messages=HI.messages))


def test_an_earlier_sitting_counts_for_the_ticket_alone() -> None:
    meter = metered(Counting([Usage(input_tokens=10)]), ticket=Ceiling(tokens=1000))
    meter.resume(Usage(output_tokens=900))
    meter.begin("step 1 of sale", used=Usage())
    ask(meter)
    assert (meter.step.tokens, meter.ticket.tokens) == (10, 910)
    with pytest.raises(BudgetSpent, match="The ticket sale has 90 tokens left"):
        ask(meter, Request(system="x" * 600, messages=HI.messages))


def test_what_others_may_be_using_counts_for_the_ticket_alone() -> None:
    meter = metered(Counting([]), step=Ceiling(usd=1.0), ticket=Ceiling(usd=4.0))
    meter.reserved = Usage(known_usd=3.5, cost_usd=3.5)
    meter.check()
    meter.reserved = Usage(known_usd=4.0, cost_usd=4.0)
    with pytest.raises(BudgetSpent, match="max_usd_per_ticket is 4"):
        meter.check()


def test_all_that_work_for_a_ticket_share_what_it_may_use() -> None:
    tally, limit = Tally(Usage(input_tokens=400)), Ceiling(tokens=1000)
    socrates, executor = (
        metered(Counting([Usage(input_tokens=250)]), ticket=limit, tally=tally) for _ in ("socrates", "executor")
    )
    executor.resume(Usage(input_tokens=300))
    ask(socrates)
    ask(executor)
    assert tally.used.tokens == 900
    assert (socrates.ticket.tokens, executor.ticket.tokens) == (250, 550), "each state keeps its own part"
    for meter in (socrates, executor):
        with pytest.raises(BudgetSpent, match="The ticket sale has 100 tokens left"):
            ask(meter, Request(system="x" * 600, messages=HI.messages))


def test_a_conversation_that_another_model_goes_on_with_keeps_its_limit() -> None:
    tally = Tally(Usage())
    ask(metered(Counting([Usage(input_tokens=1000)]), step=Ceiling(calls=2), tally=tally))
    other = metered(Counting([Usage()] * 2, name="claude-haiku-5-5"), step=Ceiling(calls=2), tally=tally)
    assert other.step.tokens == 1000
    ask(other)
    with pytest.raises(BudgetSpent, match="This conversation about the ticket sale has used 2 model calls"):
        ask(other)


def test_a_limit_that_is_reached_is_told_before_any_call() -> None:
    inner = Counting([])
    meter = metered(inner, step=Ceiling(minutes=5))
    meter.check()
    meter.begin("step 1 of sale", used=Usage(minutes=5.0))
    with pytest.raises(BudgetSpent, match=r"Step 1 of sale has used 5\.0 minutes, and max_minutes_per_step is 5"):
        meter.check()
    assert inner.asked == 0


def test_the_time_of_a_step_runs_from_its_first_call_on_until_the_work_pauses() -> None:
    clock = FakeClock()
    meter = metered(Counting([Usage()] * 3, clock=clock, takes_s=60), step=Ceiling(minutes=10), clock=clock)
    meter.begin("step 1 of sale", used=Usage(minutes=1.0))
    clock.sleep(300)
    assert meter.step.minutes == 1.0
    ask(meter)
    clock.sleep(120)
    assert (meter.step.minutes, meter.ticket.minutes) == (4.0, 3.0)
    meter.pause()
    clock.sleep(6000)
    assert (meter.step.minutes, meter.ticket.minutes) == (4.0, 3.0)
    meter.begin("step 1 of sale", used=meter.step)
    ask(meter)
    clock.sleep(300)
    with pytest.raises(BudgetSpent, match=r"has used 10\.0 minutes"):
        ask(meter)


def test_of_a_conversation_only_the_minutes_of_the_model_count() -> None:
    clock = FakeClock()
    meter = metered(Counting([Usage()] * 2, clock=clock, takes_s=30), step=Ceiling(minutes=2), clock=clock)
    ask(meter)
    clock.sleep(100_000)
    ask(meter)
    assert (meter.step.minutes, meter.ticket.minutes) == (1.0, 1.0)


def test_a_conversation_is_named_so() -> None:
    meter = metered(Counting([Usage()]), step=Ceiling(calls=1))
    ask(meter)
    with pytest.raises(BudgetSpent, match="This conversation about the ticket sale has used 1 model calls"):
        ask(meter)


@pytest.mark.parametrize("why", [ModelError("It broke off.", hint="again"), KeyboardInterrupt()])
def test_a_call_that_fails_is_counted_with_what_it_cost(why: CddError | KeyboardInterrupt) -> None:
    clock, seen = FakeClock(), list[Event]()
    meter = metered(Counting([why], clock=clock, takes_s=6), clock=clock)
    with pytest.raises(type(why)):
        meter.reply(HI, emit=seen.append)
    used = meter.step
    assert (used.calls, used.input_tokens, used.output_tokens, used.minutes) == (1, 11, 2, 0.1)
    assert used.cost_usd == pytest.approx((11 * 4 + 2 * 20) / 1e6)
    assert seen == [make_answer_lost(OPUS, Usage(input_tokens=11, output_tokens=2))]


def test_a_turn_that_a_recording_lacks_is_not_a_call() -> None:
    meter = metered(Counting([TurnMissing("No such turn.", hint="record it")]))
    with pytest.raises(TurnMissing):
        meter.reply(replace(HI, is_optional=True), emit=lambda _: None)
    assert meter.step.calls == 0


def test_a_turn_of_another_model_has_the_price_of_that_model() -> None:
    meter = metered(Counting([Usage(input_tokens=1_000_000)], name="home-grown"))
    meter.reply(replace(HI, model=OPUS), emit=lambda _: None)
    assert meter.step.cost_usd == pytest.approx(4)


def test_where_the_price_is_not_known_dollars_are_not_limited_and_tokens_are() -> None:
    inner = Counting([Usage(input_tokens=1_000_000)] * 9, name="home-grown")
    meter = metered(inner, step=Ceiling(usd=0.01, tokens=5_000_000))
    error = until_refused(meter, 9)
    assert inner.asked == 5
    assert error is not None
    assert "max_tokens_per_step" in error.happened
    assert (meter.step.cost_usd, meter.step.known_usd) == (None, 0.0)


def test_what_is_known_of_a_cost_counts_where_the_rest_is_not() -> None:
    meter = metered(Counting([]), ticket=Ceiling(usd=5))
    meter.resume(Usage(input_tokens=9, cost_usd=None, known_usd=5.5))
    with pytest.raises(BudgetSpent, match=r"The ticket sale has used 5\.50 USD, and max_usd_per_ticket is 5"):
        meter.check()


def test_it_has_the_name_of_the_model_and_passes_on_what_that_cannot_do() -> None:
    class Unable(Counting):
        def check(self) -> None:
            raise ModelError("No key.", hint="set it")

    meter = metered(Unable([], name="claude-x"), step=Ceiling(tokens=1))
    assert meter.name == "claude-x"
    with pytest.raises(ModelError, match="No key"):
        meter.check()


@given(st.text(), st.text(), st.text())
def test_a_request_is_expected_to_have_a_token_for_every_three_characters(said: str, told: str, system: str) -> None:
    request = Request(
        system=system, messages=(UserMessage(content=(Text(text=said), ToolResult(tool_use_id="a", content=told))),)
    )
    sent = len(system.strip() and system) + (len(said) if said.strip() else 0) + len(told)
    assert estimate_tokens(request) * 3 >= sent


def test_half_a_character_in_a_call_can_be_counted() -> None:
    from cdd_agent.model.conversation import AssistantMessage

    call = ToolCall(id="1", name="Write", input={"content": "x\ud800"})
    request = Request(system="", messages=(*HI.messages, AssistantMessage(content=(call,))))
    assert estimate_tokens(request) > estimate_tokens(HI)


def test_a_model_without_a_price_is_told_of_where_dollars_are_limited() -> None:
    limited = Ceilings(ticket=Ceiling(usd=1))
    assert format_unknown_price(OPUS, limited) is None
    assert format_unknown_price("home-grown", Ceilings()) is None
    told = format_unknown_price("home-grown", limited)
    assert told is not None
    assert told.startswith("The price of home-grown is not known, so max_usd_per_step and max_usd_per_ticket have no")


def test_a_recording_that_is_played_has_no_cost() -> None:
    replayed = ReplayModel([], source="opus.yaml")
    assert cost_usd(replayed.name, Usage(input_tokens=5)) is None
