from cdd_agent.model.budget import Budget


def test_the_limits_of_an_agent_are_twenty_turns_of_ten_calls_unless_told_otherwise() -> None:
    budget = Budget()
    assert (budget.max_turns, budget.max_calls_per_turn, budget.max_tokens_total) == (20, 10, None)
