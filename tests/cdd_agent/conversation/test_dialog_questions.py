import pytest

from cdd_agent.conversation.dialog import (
    Question,
    extract_questions,
    find_pending,
    find_questions,
    is_postponed,
    normalize,
    resolve_answer,
)
from cdd_agent.errors import UsageError
from cdd_agent.model.conversation import AssistantMessage, Message, Text, ToolResult, UserMessage
from tests.fakes.model import call

EMPTY = Question(question="What should an empty list be?", options=("The header only", "An error"))


def turn(*questions: str, words: str = "", tool: str = "AskDeveloper") -> AssistantMessage:
    calls = [call(tool, f"toolu_{number}", question=asked) for number, asked in enumerate(questions)]
    return AssistantMessage(content=(*([Text(text=words)] if words else []), *calls))


def taken(*are_errors: bool) -> UserMessage:
    return UserMessage(
        content=tuple(
            ToolResult(tool_use_id=f"toolu_{number}", content="", is_error=is_error)
            for number, is_error in enumerate(are_errors)
        )
    )


@pytest.mark.parametrize("words", ["2", " 2 ", "2.", "2)", "(2)"])
def test_the_number_of_an_option_means_its_text(words: str) -> None:
    assert resolve_answer(EMPTY, words) == "An error"


@pytest.mark.parametrize("words", ["0", "3", "7", "2 lines", "an error", "-1", "1,2"])
def test_any_other_words_are_the_answer(words: str) -> None:
    assert resolve_answer(EMPTY, words) == words


def test_a_question_without_options_takes_a_number_as_it_is() -> None:
    assert resolve_answer(Question(question="How many lines?"), "1") == "1"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("later", True), (" Later. ", True), ("skip", True), ("later than noon", False), ("", False)],
)
def test_later_leaves_a_question_open(words: str, expected: bool) -> None:
    assert is_postponed(words) == expected


def test_a_question_stands_in_one_line_with_each_option_once() -> None:
    asked = Question(question=" What\nthen? ", options=("An  error", "An error", " ", "Nothing"))
    assert normalize(asked) == Question(question="What then?", options=("An error", "Nothing"))


@pytest.mark.parametrize("asked", [Question(question=" "), Question(question="How many?", options=("2", "3"))])
def test_a_question_that_cannot_be_answered_clearly_is_refused(asked: Question) -> None:
    with pytest.raises(UsageError):
        normalize(asked)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], None),
        ([turn("Why?"), taken(False)], "Why?"),
        ([taken(), turn("Why?", "How?"), taken(False, True)], "Why?"),
        ([turn("", "How?"), taken(True, False)], "How?"),
        ([turn("Why?"), taken(True)], None),
        ([turn("Why?", tool="Grep"), taken(False)], None),
        ([turn("Why?"), taken(False), turn(words="Well.")], None),
        ([turn("Why?"), taken(False), UserMessage(content=(Text(text="So."),))], None),
    ],
    ids=["nothing", "asked", "two", "the first refused", "refused", "another tool", "talked on", "answered"],
)
def test_what_waits_for_an_answer_is_read_from_the_conversation(messages: list[Message], expected: str | None) -> None:
    question = find_pending(messages)
    assert (question and question.question) == expected


def test_what_is_asked_in_words_is_found_by_the_paragraph() -> None:
    text = "I read a?b and it is empty.\n\n**What then?**\nAn error, or nothing?\n\n- And when?\n\nDone."
    assert extract_questions(text) == ["What then? An error, or nothing?", "And when?"]


def test_what_nobody_answered_is_each_question_of_the_tool_and_of_the_last_words() -> None:
    messages: list[Message] = [
        turn("Why?", words="Who?"),
        taken(True),
        turn("Why?", "How?"),
        taken(True, True),
        turn(words="Well: **when?**"),
    ]
    assert find_questions(messages) == ("Why?", "How?", "Well: when?")
    assert find_questions(messages[:2]) == ("Why?",)
    assert find_questions([]) == ()
