"""The exchange with a model: what begins it, who keeps it, how long it is."""

from cdd_agent.model.conversation import AssistantMessage, Conversation, Message, Text, ToolResult, UserMessage
from tests.fakes.model import call, says


def test_the_preface_stands_before_the_first_words_and_nowhere_else() -> None:
    conversation = Conversation("You answer.", preface="Tabs, please.")
    conversation.say("Hello.")
    conversation.hear(says("Hello you."))
    conversation.say("Go on.")
    first, _, last = conversation.messages
    assert first == UserMessage(content=(Text(text="Tabs, please."), Text(text="Hello.")))
    assert last == UserMessage(content=(Text(text="Go on."),))


def test_each_message_is_kept_as_it_is_appended() -> None:
    kept: list[Message] = []
    conversation = Conversation("You answer.", keep=kept.append)
    conversation.say("Look.")
    conversation.hear(says(call("Read", file_path="a.py")))
    conversation.answer([ToolResult(tool_use_id="toolu_Read", content="x = 1")])
    assert tuple(kept) == conversation.messages


def test_a_key_is_masked_before_it_is_kept() -> None:
    kept: list[Message] = []
    conversation = Conversation("You answer.", preface="ghp_" + "a" * 36, keep=kept.append)
    conversation.say("It is ghp_" + "b" * 36)
    assert "ghp_" not in str(kept)


def test_earlier_messages_come_without_being_kept_again_or_prefaced() -> None:
    kept: list[Message] = []
    earlier = (UserMessage(content=(Text(text="Hello."),)), AssistantMessage(content=(Text(text="Hello you."),)))
    conversation = Conversation("You answer.", preface="Tabs.", keep=kept.append, messages=earlier)
    conversation.say("Go on.")
    assert conversation.messages == (*earlier, *kept)
    assert kept == [UserMessage(content=(Text(text="Go on."),))]


def test_its_length_is_estimated_until_the_model_has_counted() -> None:
    conversation = Conversation("You answer.", messages=[UserMessage(content=(Text(text="word" * 100),))])
    assert conversation.tokens == 100
    conversation.hear(says("Yes.", tokens=40))
    assert conversation.tokens == 80
