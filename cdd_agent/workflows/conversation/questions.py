"""Questions to the developer: what the model asks, which one waits for an answer, and what an answer means. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from cdd_agent.agent.tool import read_input
from cdd_agent.errors import UsageError
from cdd_agent.model.conversation import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage

ASKS = "AskDeveloper"
"""The tool that asks."""

PUTS_OFF = frozenset({"later", "skip", "don't know", "dont know", "no idea"})
"""What leaves a question open, in any case, with or without a full stop."""

_NUMBER = re.compile(r"\(?(?P<number>\d{1,2})[.)]?")
_PARAGRAPHS = re.compile(r"\n[ \t]*\n")
_ASKING = re.compile(r"\?(?=[\s*_)\"'\u201d]|$)")
_EMPHASIS = re.compile(r"\*\*|__|^\s*(?:[-*+#]+|\d+[.)])\s+", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question, as the model asks it."""

    question: Annotated[str, Meta(description="One question about what a user would notice, ending in ?")]
    options: Annotated[
        tuple[str, ...],
        Meta(description="The likely answers, each a few words that say all; [] if none is likelier", max_length=5),
    ] = ()


def checked(asked: Question) -> Question:
    """The question in one line with its options, each once; raises ``UsageError`` for one that cannot be answered."""
    words = " ".join(asked.question.split())
    options = tuple(dict.fromkeys(option for told in asked.options if (option := " ".join(told.split()))))
    if not words:
        raise UsageError("The question is empty.", hint="ask about one thing")
    for option in options:
        if _NUMBER.fullmatch(option):
            raise UsageError(
                f"The option {option} cannot be told from the number it is chosen by.",
                hint=f"write what it counts, such as `{option} lines`",
            )
    return replace(asked, question=words, options=options)


def waiting(messages: Sequence[Message]) -> Question | None:
    """The question that the last turn of a conversation asked and nobody has answered yet."""
    match messages:
        case [*_, AssistantMessage() as turn, UserMessage(content=results)]:
            taken = {block.tool_use_id for block in results if isinstance(block, ToolResult) and not block.is_error}
            return next((question for call, question in _asked(turn) if call.id in taken), None)
    return None


def meant(question: Question, words: str) -> str:
    """What ``words`` say in answer: the text of the option whose number they are, else they themselves."""
    number = _NUMBER.fullmatch(words.strip())
    if number and 1 <= int(number["number"]) <= len(question.options):
        return question.options[int(number["number"]) - 1]
    return words


def is_put_off(words: str, *, options: Sequence[str] = ()) -> bool:
    """Whether ``words`` leave the question open; the words of one of its ``options`` are its answer.

    >>> is_put_off("Later."), is_put_off("later than noon"), is_put_off("skip", options=["Skip", "Stop"])
    (True, False, False)
    """
    said = _bare(words)
    return said in PUTS_OFF and said not in map(_bare, options)


def _bare(words: str) -> str:
    """``words`` in lower case, without what ends a sentence."""
    return words.strip().rstrip(".!").lower()


def left_unanswered(messages: Iterable[Message]) -> tuple[str, ...]:
    """Every question in ``messages`` that was asked with the tool, or in the words that ended the last turn."""
    turns = [message for message in messages if isinstance(message, AssistantMessage)]
    found = [question.question for turn in turns for _, question in _asked(turn)]
    last = turns[-1].content if turns else ()
    if not any(isinstance(block, ToolCall) for block in last):
        found += asked_in_words("\n\n".join(block.text for block in last if isinstance(block, Text)))
    return tuple(dict.fromkeys(found))


def asked_in_words(text: str) -> list[str]:
    """The paragraphs of ``text`` that ask something, each in one line, without emphasis.

    >>> asked_in_words("It is empty.\\n\\n**What then?** An error, or nothing?")
    ['What then? An error, or nothing?']
    """
    return [
        " ".join(_EMPHASIS.sub("", paragraph).split())
        for paragraph in _PARAGRAPHS.split(text)
        if _ASKING.search(paragraph)
    ]


def _asked(turn: AssistantMessage) -> list[tuple[ToolCall, Question]]:
    """The calls of the asking tool in ``turn`` that can be understood."""
    found = []
    for block in turn.content:
        if isinstance(block, ToolCall) and block.name == ASKS:
            try:
                found.append((block, checked(read_input(block.input, Question))))
            except UsageError:
                continue
    return found
