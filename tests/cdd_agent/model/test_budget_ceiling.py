from dataclasses import fields

import pytest

from cdd_agent.config.settings import Settings
from cdd_agent.errors import BudgetSpent, ExitCode
from cdd_agent.model.budget import Ceiling, Ceilings, format_unknown_price
from cdd_agent.work.state import Usage

USED = Usage(input_tokens=900, output_tokens=100, calls=7, minutes=2.5, cost_usd=None, known_usd=1.25)


def require(ceiling: Ceiling, *, next_tokens: int = 0) -> None:
    ceiling.require_room(USED, scope="step", name="step 2 of sale", next_tokens=next_tokens, go_on="cdd exec sale")


def refused(ceiling: Ceiling, *, next_tokens: int = 0) -> BudgetSpent:
    with pytest.raises(BudgetSpent) as caught:
        require(ceiling, next_tokens=next_tokens)
    assert caught.value.exit_code == ExitCode.BUDGET
    return caught.value


@pytest.mark.parametrize(
    ("ceiling", "told", "setting"),
    [
        (Ceiling(tokens=1000), "has used 1,000 tokens, and max_tokens_per_step is 1,000", "max_tokens_per_step"),
        (Ceiling(usd=1.2), "has used 1.25 USD, and max_usd_per_step is 1.2", "max_usd_per_step"),
        (Ceiling(calls=7), "has used 7 model calls, and max_calls_per_step is 7", "max_calls_per_step"),
        (Ceiling(minutes=2), "has used 2.5 minutes, and max_minutes_per_step is 2", "max_minutes_per_step"),
    ],
)
def test_a_limit_that_is_reached_is_named_with_what_is_used_and_how_to_go_on(
    ceiling: Ceiling, told: str, setting: str
) -> None:
    error = refused(ceiling)
    assert error.happened == f"Step 2 of sale {told}."
    assert error.hint == f"raise {setting} in .cdd/config.yaml, then continue with: cdd exec sale"


def test_the_settings_that_errors_name_are_those_there_are() -> None:
    names = {field.name for field in fields(Settings)}
    for kind in ("tokens", "usd", "calls", "minutes"):
        assert {f"max_{kind}_per_step", f"max_{kind}_per_ticket"} <= names


@pytest.mark.parametrize(
    "ceiling", [Ceiling(), Ceiling(tokens=1001), Ceiling(usd=1.26), Ceiling(calls=8), Ceiling(minutes=2.51)]
)
def test_below_a_limit_and_without_one_nothing_is_said(ceiling: Ceiling) -> None:
    require(ceiling)


def test_a_request_that_has_more_than_what_is_left_is_refused_with_both() -> None:
    error = refused(Ceiling(tokens=51_000), next_tokens=50_001)
    assert error.happened == (
        "Step 2 of sale has 50,000 tokens left (max_tokens_per_step is 51,000), but the next request needs about "
        "50,001."
    )
    assert "raise max_tokens_per_step" in error.hint
    require(Ceiling(tokens=51_000), next_tokens=50_000)


def test_the_limits_are_those_of_the_settings() -> None:
    settings = Settings(
        max_tokens_per_step=1,
        max_usd_per_step=2,
        max_calls_per_step=3,
        max_minutes_per_step=4,
        max_tokens_per_ticket=5,
        max_usd_per_ticket=6,
        max_calls_per_ticket=7,
        max_minutes_per_ticket=8,
    )
    assert Ceilings.from_settings(settings) == Ceilings(
        step=Ceiling(tokens=1, usd=2, calls=3, minutes=4), ticket=Ceiling(tokens=5, usd=6, calls=7, minutes=8)
    )


def test_an_option_replaces_the_dollars_of_a_whole_run() -> None:
    limited = Ceilings.from_settings(Settings()).limit_run(1.5)
    with pytest.raises(BudgetSpent, match="and --max-usd is 1") as error:
        limited.ticket.require_room(
            Usage(known_usd=2.0), scope="ticket", name="the ticket sale", next_tokens=0, go_on="cdd generate"
        )
    assert error.value.hint == "raise --max-usd, then continue with: cdd generate"
    assert limited.step == Ceilings.from_settings(Settings()).limit_run(None).step


def test_dollars_are_limited_if_either_scope_says_so() -> None:
    assert format_unknown_price("home-grown", Ceilings(step=Ceiling(usd=1))) is not None
    assert format_unknown_price("home-grown", Ceilings(ticket=Ceiling(usd=1))) is not None
    assert format_unknown_price("home-grown", Ceilings(step=Ceiling(tokens=1))) is None
