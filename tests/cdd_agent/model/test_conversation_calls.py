import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.model.conversation import AssistantMessage, Text, ToolCall, Turn, make_unusable_input, repair_calls
from cdd_agent.work.state import Usage
from tests.fakes.cases import soak_after


def turn(*calls: ToolCall) -> Turn:
    return Turn(content=(Text(text="Look."), *calls), stop_reason="tool_use", usage=Usage())


def call(call_id: str, name: str = "Read") -> ToolCall:
    return ToolCall(id=call_id, name=name, input={"file_path": "a"})


def test_a_turn_that_keeps_the_rules_stays_as_it_is() -> None:
    good = turn(call("toolu_1"), call("toolu_2", "Grep"))
    assert repair_calls(good, [AssistantMessage(content=(call("toolu_0"),))]) == good


def test_the_second_call_with_one_id_is_not_run() -> None:
    first, second = repair_calls(turn(call("x"), call("x")), ()).calls
    assert (first.id, first.defect) == ("x", None)
    assert second.id == "x-2"
    assert "another call has the same id" in str(second.defect)


def test_an_id_of_an_earlier_turn_is_replaced_and_the_call_is_run() -> None:
    (again,) = repair_calls(turn(call("call_0")), [AssistantMessage(content=(call("call_0"),))]).calls
    assert (again.id, again.input) == ("call_0-2", {"file_path": "a"})


@soak_after(1, "ids", [[""] * 5_000, [f"call_{number}" for number in range(5_000)]], ids=["one", "all"])
def test_thousands_of_calls_take_no_longer_than_they_must(ids: list[str]) -> None:
    many = turn(*map(call, ids))
    began_s = time.process_time()
    calls = repair_calls(many, ()).calls
    assert time.process_time() - began_s < 1
    assert len({one.id for one in calls}) == 5_000


@pytest.mark.parametrize(("name", "sent"), [("", "unnamed"), ("read file!", "read_file_"), ("x" * 300, "x" * 64)])
def test_a_name_that_no_request_may_hold_is_made_one_that_it_may(name: str, sent: str) -> None:
    assert repair_calls(turn(call("1", name)), ()).calls[0].name == sent


@given(st.lists(st.sampled_from(["", "a", "a-2", "é", "b" * 99]) | st.text(), max_size=8), st.booleans())
def test_every_id_is_one_that_may_be_sent_and_none_is_there_twice(ids: list[str], again: bool) -> None:
    said = [AssistantMessage(content=repair_calls(turn(*map(call, ids)), ()).content)] if again else []
    calls = repair_calls(turn(*map(call, ids)), said).calls
    earlier = [block.id for message in said for block in message.content if isinstance(block, ToolCall)]
    sent = [one.id for one in calls] + earlier
    assert len(set(sent)) == len(sent)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in sent)


def test_a_call_that_cannot_be_run_says_why_and_others_do_not() -> None:
    assert ToolCall(id="1", name="Read", input=make_unusable_input("it is cut")).defect == "it is cut"
    assert call("1").defect is None
    assert ToolCall(id="1", name="Read", input={}).defect is None
