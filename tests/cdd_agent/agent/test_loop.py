from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from cdd_agent.agent.loop import CUT_OFF, EMPTY, STOPPED, AgentRun, run_agent
from cdd_agent.agent.tools import Tool, ToolOutput, define_tool
from cdd_agent.errors import ModelError, UsageError
from cdd_agent.events import (
    Emit,
    Event,
    GuidanceGiven,
    Notice,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from cdd_agent.model import conversation as wire
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import (
    AssistantMessage,
    Conversation,
    Marks,
    Opaque,
    Request,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    UserMessage,
    make_unusable_input,
)
from cdd_agent.work.state import Usage
from tests.fakes.message_rules import broken_rule
from tests.fakes.model import ScriptedModel, says


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """Input of the tools under test."""

    word: str


def echo(inputs: Echo) -> ToolOutput:
    if inputs.word == "bad":
        raise UsageError("bad is no word.", hint="say another")
    if inputs.word == "ctrl-c":
        raise KeyboardInterrupt
    return ToolOutput(text=f"{inputs.word}\nand again {inputs.word}")


def tool(name: str, run: Callable[[Echo], ToolOutput] = echo) -> Tool:
    return define_tool(name, Echo, run=run, subject=lambda inputs: inputs.word)


TOOLS = (tool("Read"), tool("Grep"), tool("Finish", lambda _: ToolOutput(text="done", ends_run=True)))


def call(number: int, word: str = "hello", name: str = "Read") -> ToolCall:
    return ToolCall(id=f"call-{number}", name=name, input={"word": word})


def run(model: ScriptedModel, *, budget: Budget | None = None) -> tuple[AgentRun, Conversation, list[Event]]:
    conversation = Conversation("be brief")
    conversation.say("begin")
    seen: list[Event] = []
    ended = run_agent(conversation, TOOLS, model=model, budget=budget or Budget(), emit=seen.append, agent="executor")
    return ended, conversation, seen


def results(conversation: Conversation) -> list[ToolResult]:
    return [
        block
        for message in conversation.messages
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, ToolResult)
    ]


def test_a_turn_without_calls_ends_the_run_as_answered() -> None:
    ended, conversation, seen = run(ScriptedModel([says("I am done", tokens=7)]))
    assert (ended.end, ended.text, ended.turns, ended.calls) == ("answered", "I am done", 1, 0)
    assert conversation.messages[-1] == AssistantMessage(content=(Text(text="I am done"),))
    assert seen == [
        TextDelta(text="I am ", agent="executor"),
        TextDelta(text="done", agent="executor"),
        TurnEnded(
            agent="executor",
            text="I am done",
            stop_reason="end_turn",
            input_tokens=7,
            output_tokens=7,
            cache_read_tokens=0,
            model="scripted",
        ),
    ]


def test_a_turn_is_told_with_the_model_and_what_it_cost() -> None:
    usage = Usage(input_tokens=1000, output_tokens=100, cache_read_tokens=5000, cache_write_tokens=200)
    model = ScriptedModel([replace(says("done"), usage=usage)])
    model.name = "claude-opus-5-5-20261101"
    _, _, seen = run(model)
    (told,) = (event for event in seen if isinstance(event, TurnEnded))
    assert (told.model, told.cache_write_tokens) == ("claude-opus-5-5-20261101", 200)
    assert told.cost_usd == pytest.approx((1000 * 4 + 100 * 20 + 5000 * 0.4 + 200 * 5) / 1e6)


def test_all_calls_of_a_turn_are_answered_in_order_in_the_next_message() -> None:
    model = ScriptedModel([says("look", call(1, "one"), call(2, "two", "Grep"), call(3, "bad")), says("seen")])
    ended, conversation, _ = run(model)
    assert ended.end == "answered"
    marks = Marks(conversation.token)
    assert model.requests[1].messages[-1] == UserMessage(
        content=(
            ToolResult(tool_use_id="call-1", content=marks.wrap("one\nand again one", source="Read one")),
            ToolResult(tool_use_id="call-2", content=marks.wrap("two\nand again two", source="Grep two")),
            ToolResult(
                tool_use_id="call-3",
                content=marks.wrap("bad is no word. (say another)", source="Read bad"),
                is_error=True,
            ),
        )
    )
    assert len(conversation.messages) == 4


def test_what_is_to_be_copied_back_keeps_characters_that_cannot_be_seen_and_anything_else_shows_them() -> None:
    tools = [
        tool("Read", lambda _: ToolOutput(text="a\u200bb", exact=True)),
        tool("Bash", lambda _: ToolOutput(text="a\u200bb\x1b[2J")),
    ]
    conversation = Conversation("be brief", token="kvqtzh")
    model = ScriptedModel([says(call(1), call(2, name="Bash")), says("end")])
    run_agent(conversation, tools, model=model, budget=Budget(), emit=lambda _: None, agent="executor")
    assert [result.content.split("\n")[1] for result in results(conversation)] == ["a\u200bb", "a<U+200B>b<U+001B>[2J"]


def test_a_tool_that_ends_the_run_does_so_after_every_result_is_given() -> None:
    ended, conversation, _ = run(ScriptedModel([says(call(1, "all", "Finish"), call(2))]))
    assert ended.end == "completed"
    assert [result.tool_use_id for result in results(conversation)] == ["call-1", "call-2"]


def test_what_follows_several_calls_of_a_turn_is_done_once_and_not_if_the_turn_ends_the_run() -> None:
    done: list[str] = []

    def follow_up() -> str:
        done.append("tests")
        return f"{len(done)} passed"

    tools = (*(replace(each, follow_up=follow_up) for each in TOOLS[:2]), TOOLS[2])
    conversation = Conversation("be brief")
    conversation.say("begin")
    turns = [says(call(1), call(2, name="Grep"), call(3, "bad")), says(call(4), call(5, name="Finish"))]
    run_agent(conversation, tools, model=ScriptedModel(turns), budget=Budget(), emit=lambda _: None, agent="agent")
    answers = [message for message in conversation.messages if isinstance(message, UserMessage)][1]
    texts = [block.content for block in answers.content if isinstance(block, ToolResult)]
    assert ["1 passed" in text for text in texts] == [False, True, False]
    assert done == ["tests"]


def test_tests_do_not_run_in_a_turn_that_failed_to_change_a_file() -> None:
    tools = (replace(TOOLS[0], use="changes", follow_up=lambda: "1 passed"), replace(TOOLS[1], use="tests"), TOOLS[2])
    conversation = Conversation("be brief")
    conversation.say("begin")
    turns = [says(call(1), call(2, "bad"), call(3, name="Grep")), says(call(4), call(5, name="Grep")), says("end")]
    run_agent(conversation, tools, model=ScriptedModel(turns), budget=Budget(), emit=lambda _: None, agent="agent")
    answers = [block for message in conversation.messages for block in message.content if isinstance(block, ToolResult)]
    assert [block.is_error for block in answers] == [False, True, True, False, False]
    assert answers[2].content.startswith("Not run: an earlier call of this turn failed to change a file.")
    assert ["1 passed" in block.content for block in answers] == [False, False, False, True, False]


def test_a_finishing_call_with_invalid_input_does_not_end_the_run() -> None:
    ended, _, _ = run(ScriptedModel([says(ToolCall(id="1", name="Finish", input={})), says("sorry")]))
    assert ended.end == "answered"


def test_events_tell_of_each_call_before_and_after_it_runs() -> None:
    _, _, seen = run(ScriptedModel([says(call(1, "one"), call(2, "bad")), says("end")]))
    assert seen[1:5] == [
        ToolCalled(call_id="call-1", name="Read", subject="one"),
        ToolReturned(call_id="call-1", name="Read", ok=True, summary="one"),
        ToolCalled(call_id="call-2", name="Read", subject="bad"),
        ToolReturned(call_id="call-2", name="Read", ok=False, summary="bad is no word. (say another)"),
    ]


def test_an_unknown_tool_is_answered_with_the_nearest_name() -> None:
    _, conversation, _ = run(ScriptedModel([says(call(1, name="read_file")), says("end")]))
    (result,) = results(conversation)
    assert result.is_error
    assert result.content == "There is no tool read_file. Did you mean Read? The tools are: Read, Grep, Finish."


def test_calls_above_the_limit_of_a_turn_are_answered_but_not_run() -> None:
    _, conversation, _ = run(
        ScriptedModel([says(*(call(number) for number in range(4))), says("end")]), budget=Budget(max_calls_per_turn=2)
    )
    assert [result.is_error for result in results(conversation)] == [False, False, True, True]
    assert "one turn may make 2 calls" in results(conversation)[3].content


def test_the_limit_of_turns_ends_the_run_with_every_call_answered() -> None:
    model = ScriptedModel(says(call(number)) for number in range(5))
    ended, conversation, _ = run(model, budget=Budget(max_turns=3))
    assert (ended.end, ended.turns, ended.calls) == ("out_of_turns", 3, 3)
    assert len(results(conversation)) == 3


def test_the_limit_of_tokens_is_checked_before_the_model_is_asked() -> None:
    model = ScriptedModel([says(call(1), tokens=30), says(call(2), tokens=30), says("never")])
    ended, _, _ = run(model, budget=Budget(max_tokens_total=100))
    assert (ended.end, ended.turns) == ("out_of_tokens", 2)
    assert ended.usage == Usage(input_tokens=60, output_tokens=60)
    assert len(model.requests) == 2


def test_the_last_tool_call_that_a_run_may_make_ends_it_and_those_after_it_are_not_run() -> None:
    model = ScriptedModel([says(call(1), call(2)), says(call(3), call(4)), says("never")])
    ended, conversation, _ = run(model, budget=Budget(max_calls_total=3))
    assert (ended.end, ended.turns) == ("out_of_calls", 2)
    assert [result.is_error for result in results(conversation)] == [False, False, False, True]
    assert "the limit of tool calls in this run is reached" in results(conversation)[3].content


def test_three_turns_in_a_row_of_nothing_but_errors_are_stuck() -> None:
    bad = says(call(1, "bad"), call(2, "bad"))
    ended, _, _ = run(ScriptedModel([bad, bad, says(call(1, "bad"), call(2)), bad, bad, bad, says("never")]))
    assert (ended.end, ended.turns) == ("stuck", 6)


def test_an_interrupt_leaves_every_call_answered_and_passes_through() -> None:
    conversation = Conversation("be brief")
    conversation.say("begin")
    model = ScriptedModel([says(call(1), call(2, "ctrl-c"), call(3))])
    with pytest.raises(KeyboardInterrupt):
        run_agent(conversation, TOOLS, model=model, budget=Budget(), emit=lambda _: None, agent="executor")
    assert [result.is_error for result in results(conversation)] == [False, True, True]
    assert [result.tool_use_id for result in results(conversation)] == ["call-1", "call-2", "call-3"]
    assert results(conversation)[1].content.startswith("Interrupted")


def test_calls_of_a_turn_that_was_cut_off_are_not_run() -> None:
    _, conversation, _ = run(ScriptedModel([replace(says(call(1)), stop_reason="max_tokens"), says("end")]))
    assert results(conversation)[0].is_error
    assert "ended with max_tokens" in results(conversation)[0].content


def test_an_answer_that_was_cut_off_is_asked_to_go_on() -> None:
    model = ScriptedModel([replace(says("half of"), stop_reason="max_tokens"), says("the answer")])
    ended, _, _ = run(model)
    assert (ended.end, ended.text) == ("answered", "the answer")
    assert model.requests[1].messages[-1] == UserMessage(content=(Text(text=CUT_OFF),))


def test_an_answer_that_is_cut_off_is_told_to_the_user() -> None:
    _, _, seen = run(ScriptedModel([replace(says("half of"), stop_reason="max_tokens"), says("the answer")]))
    assert Notice(text="The model's answer was cut off at max_tokens (16000); it continues.") in seen


def test_answers_that_are_cut_off_again_and_again_are_stuck() -> None:
    cut = replace(says("half of"), stop_reason="max_tokens")
    ended, _, _ = run(ScriptedModel([cut, cut, cut, says("never")]))
    assert (ended.end, ended.turns) == ("stuck", 3)


def test_an_empty_answer_is_asked_about_and_thoughts_alone_are_not_sent_back() -> None:
    thought = Opaque(wire={"type": "thinking", "thinking": "hm", "signature": "s"})
    model = ScriptedModel([says(call(1)), says(thought), says("  \n"), says("done")])
    ended, conversation, _ = run(model)
    assert (ended.end, ended.text) == ("answered", "done")
    assert conversation.messages[3:5] == (UserMessage(content=(Text(text=EMPTY),)),) * 2


def test_answers_that_are_empty_again_and_again_are_stuck() -> None:
    ended, _, _ = run(ScriptedModel([says(), says(), says(), says("never")]))
    assert (ended.end, ended.turns) == ("stuck", 3)


def test_a_call_that_could_not_be_read_is_answered_with_why() -> None:
    cut = ToolCall(id="1", name="Read", input=make_unusable_input("its input is cut"))
    ended, conversation, _ = run(ScriptedModel([says(cut), says(cut), says(cut), says("never")]))
    assert ended.end == "stuck"
    assert results(conversation)[0] == ToolResult(
        tool_use_id="1", content="Not run: its input is cut. Send the whole call again.", is_error=True
    )


def test_a_key_in_what_a_tool_answers_reaches_neither_the_model_nor_the_events() -> None:
    key = "sk-ant-api03-canary-0123456789"
    _, conversation, seen = run(ScriptedModel([says(call(1, key)), says(call(2, "bad")), says("end")]))
    assert "[masked: Anthropic key]" in results(conversation)[0].content
    assert key not in f"{results(conversation)}"
    assert all(key not in event.summary for event in seen if isinstance(event, ToolReturned))


def test_a_paused_turn_is_carried_on_as_it_is() -> None:
    model = ScriptedModel([replace(says("wait"), stop_reason="pause_turn"), says("done")])
    ended, _, _ = run(model)
    assert ended.text == "done"
    assert model.requests[1].messages[-1] == AssistantMessage(content=(Text(text="wait"),))


def test_a_refusal_is_an_end_of_its_own_and_an_empty_turn_is_not_kept() -> None:
    ended, conversation, _ = run(ScriptedModel([replace(says(), stop_reason="refusal")]))
    assert ended.end == "refused"
    assert len(conversation.messages) == 1


def test_the_tools_are_offered_in_the_same_order_every_time() -> None:
    model = ScriptedModel([says(call(1, name="Grep")), says(call(2)), says("end")])
    run(model)
    assert {tuple(spec.name for spec in request.tools) for request in model.requests} == {("Read", "Grep", "Finish")}


def test_an_error_of_the_model_passes_through() -> None:
    with pytest.raises(ModelError, match="no turn left"):
        run(ScriptedModel([]))


class Stopped:
    """A model that the user stops after it has emitted ``events``, and that answers when it is asked again."""

    name = "stopped"

    def __init__(self, *events: Event) -> None:
        self.requests: list[Request] = []
        self._events = events

    def check(self) -> None:
        pass

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        self.requests.append(request)
        if len(self.requests) > 1:
            return says("done")
        for event in self._events:
            emit(event)
        raise KeyboardInterrupt


def stopped(*events: Event) -> tuple[Conversation, Stopped, list[Event]]:
    conversation, model, seen = Conversation("be brief"), Stopped(*events), list[Event]()
    conversation.say("begin")
    with pytest.raises(KeyboardInterrupt):
        run_agent(conversation, TOOLS, model=model, budget=Budget(), emit=seen.append, agent="socrates")
    return conversation, model, seen


def test_words_of_an_answer_that_the_user_stops_stay_as_the_models_with_a_line_that_says_so() -> None:
    conversation, model, seen = stopped(TextDelta(text="I would "), TextDelta(text="delete it and\n"))
    assert conversation.messages[1:] == (AssistantMessage(content=(Text(text=f"I would delete it and\n\n{STOPPED}"),)),)
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "I would delete it and\n"
    conversation.say("no, keep it")
    run_agent(conversation, TOOLS, model=model, budget=Budget(), emit=seen.append, agent="socrates")
    assert model.requests[1].messages == conversation.messages[:-1]
    assert [type(message) for message in conversation.messages] == [UserMessage, AssistantMessage] * 2


def test_what_was_not_shown_of_a_stopped_answer_does_not_stay() -> None:
    conversation, _, _ = stopped(TextDelta(text="the key is sk-ant-api03-ca"))
    assert conversation.messages[1:] == (AssistantMessage(content=(Text(text=f"the key is\n\n{STOPPED}"),)),)


def test_what_was_taken_back_before_the_user_stopped_does_not_stay() -> None:
    again = RetryScheduled(why="cut", wait_s=1.0, number=2, limit=4, withdrawn=True)
    conversation, _, _ = stopped(TextDelta(text="first words "), again, TextDelta(text="second words "))
    assert conversation.messages[1:] == (AssistantMessage(content=(Text(text=f"second words\n\n{STOPPED}"),)),)


@pytest.mark.parametrize("events", [(), (TextDelta(text=" \n"),), (ThinkingDelta(text="hm hm "),)])
def test_an_answer_that_is_stopped_before_any_words_leaves_nothing_and_the_user_can_go_on(
    events: tuple[Event, ...],
) -> None:
    conversation, model, _ = stopped(*events)
    assert len(conversation.messages) == 1
    conversation.say("are you there?")
    ended = run_agent(conversation, TOOLS, model=model, budget=Budget(), emit=lambda _: None, agent="socrates")
    assert ended.end == "answered"
    assert broken_rule(wire.encode_request(model.requests[1], model="m"), ()) is None


def steered(
    model: ScriptedModel, *said: tuple[str, ...], max_turns: int = 9
) -> tuple[AgentRun, list[Request], list[str]]:
    """Let the user say something before each request, and at the end of an answer."""
    waiting, shown = list(said), list[str]()
    conversation = Conversation("be brief", hear_user=lambda: waiting.pop(0) if waiting else ())
    conversation.say("begin")

    def tell(event: Event) -> None:
        shown.extend([event.text] if isinstance(event, GuidanceGiven) else [])

    ended = run_agent(conversation, TOOLS, model=model, budget=Budget(max_turns=max_turns), emit=tell, agent="executor")
    return ended, model.requests, shown


def test_words_of_the_user_reach_the_model_at_its_next_turn_behind_the_results_of_its_calls() -> None:
    model = ScriptedModel([says(call(1)), says("done")])
    _, requests, shown = steered(model, (), ("use tabs", "and no semicolons"))
    assert shown == ["use tabs", "and no semicolons"]
    blocks = [block for message in requests[1].messages[2:] for block in message.content]
    assert isinstance(blocks[0], ToolResult)
    assert [block.text.splitlines()[-1] for block in blocks if isinstance(block, Text)] == shown
    assert len(wire.encode_messages(requests[1].messages)) == 3


def test_an_answer_does_not_end_the_run_while_the_user_has_said_something() -> None:
    ended, requests, _ = steered(ScriptedModel([says("first"), says("second")]), (), ("not so fast",))
    assert (ended.end, ended.text, len(requests)) == ("answered", "second", 2)


def test_words_that_no_turn_can_get_any_more_are_left_for_the_next_run() -> None:
    ended, requests, shown = steered(ScriptedModel([says("first")]), (), ("too late",), max_turns=1)
    assert (ended.end, len(requests), shown) == ("answered", 1, [])
