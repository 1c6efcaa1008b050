"""What both conversations work with, and how their system prompts are made.

Questions to the developer: what the model asks, which one waits for an answer, and what an answer means. Pure.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from cdd_agent.agent.budget import Budget
from cdd_agent.agent.compaction import compact, needs_compaction
from cdd_agent.agent.loop import AgentRun, run_agent
from cdd_agent.agent.quoting import Marks, conventions
from cdd_agent.agent.sessions import Talk, Transcript, without_thoughts
from cdd_agent.agent.tool import Tool, read_input
from cdd_agent.agent.tools.files import file_tools, search_tools
from cdd_agent.errors import BudgetSpent, UsageError
from cdd_agent.events import Emit
from cdd_agent.model.conversation import (
    AssistantMessage,
    Conversation,
    Message,
    Model,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    draw_token,
)
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.memory import NO_MEMORY, Memory

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A project that can be read, and a model to talk with."""

    workspace: Workspace
    model: Model
    budget: Budget
    """Of one answer."""
    emit: Emit
    objection: Callable[[], str | None] | None = None
    """Asks the developer, who has seen a change, what speaks against saving it; None: nobody is there, it is saved."""
    memory: Memory = NO_MEMORY
    """Conventions of the project, with which every conversation begins."""
    transcript: Transcript | None = None
    """Keeps what is said for a later session; None: nobody would go on with it."""
    compact_at_percent: int = 0
    """How full of a conversation the model's context may be before a summary takes its place; 0: any."""

    def conversation(self, agent: str, *, ticket: str) -> Conversation:
        """A new conversation; the prompt's last line names agent and ticket, by which a recording finds its turns."""
        return self._conversation(agent, ticket=ticket, token=draw_token())

    def begun_anew(self, agent: str, *, ticket: str) -> Conversation:
        """A new conversation in the place of an earlier one, from now on also for a later session."""
        conversation = self.conversation(agent, ticket=ticket)
        self._copy(conversation, agent, ticket=ticket)
        return conversation

    def resumed(self, talk: Talk) -> Conversation:
        """A conversation of an earlier session, to be gone on with; the transcript has all of it from now on."""
        conversation = self._conversation(talk.agent, ticket=talk.ticket, token=talk.token, messages=talk.messages)
        self._copy(conversation, talk.agent, ticket=talk.ticket)
        return conversation

    def compacted(self, conversation: Conversation, agent: str, *, ticket: str) -> Conversation:
        """A conversation that begins with the conventions and a summary of ``conversation``; the model is asked."""
        summary = compact(conversation, model=self.model, emit=self.emit, agent=agent)
        shorter = self._conversation(agent, ticket=ticket, token=summary.token, messages=summary.messages)
        self._copy(shorter, agent, ticket=ticket)
        return shorter

    def fitting(self, conversation: Conversation, agent: str, *, ticket: str) -> Conversation:
        """``conversation``, or a summary of it in its place if it fills too much of the model's context."""
        is_long = needs_compaction(conversation.tokens, self.model.name, percent=self.compact_at_percent)
        return self.compacted(conversation, agent, ticket=ticket) if is_long else conversation

    def for_another_model(self, conversation: Conversation, agent: str, *, ticket: str) -> Conversation:
        """``conversation`` without thoughts, which only the model that had them can use."""
        messages = without_thoughts(conversation.messages)
        other = self._conversation(agent, ticket=ticket, token=conversation.token, messages=messages)
        self._copy(other, agent, ticket=ticket)
        return other

    def _conversation(self, agent: str, *, ticket: str, token: str, messages: tuple[Message, ...] = ()) -> Conversation:
        """A conversation with the role of ``agent``, what is said in it kept in the transcript."""
        role = (PROMPTS / f"{agent}.md").read_text(encoding="utf-8").strip()
        marks = Marks(token)
        keep = None
        if self.transcript is not None:
            keep = self.transcript.keeper(
                agent, ticket=ticket, model=lambda: self.model.name, token=token, is_begun=bool(messages)
            )
        return Conversation(
            f"{role}\n\n{marks.rule}\n\nWork: {agent} {ticket}",
            token=token,
            preface=conventions(self.memory, marks=marks),
            keep=keep,
            messages=messages,
        )

    def _copy(self, conversation: Conversation, agent: str, *, ticket: str) -> None:
        """Begin the transcript of ``conversation`` with what it has."""
        if self.transcript is not None:
            self.transcript.copy(conversation, agent, ticket=ticket, model=self.model.name)

    def ask(self, conversation: Conversation, *own: Tool, agent: str) -> AgentRun:
        """Let the model answer, with the reading tools and its ``own``; raises ``BudgetSpent`` if it never ends."""
        read, _write, _edit = file_tools(self.workspace, lambda _path: "A conversation changes no files.")
        tools: Sequence[Tool] = (read, *search_tools(self.workspace), *own)
        run = run_agent(conversation, tools, model=self.model, budget=self.budget, emit=self.emit, agent=agent)
        if run.end in {"out_of_turns", "out_of_tokens", "stuck"}:
            more = ", or raise max_turns in .cdd/config.yaml" if run.end == "out_of_turns" else ""
            again = "; nothing of the last ones worked" if run.end == "stuck" else ""
            raise BudgetSpent(
                f"{agent} used {run.turns} turns and {run.calls} tool calls without coming to an answer{again}.",
                hint=f"ask again in other words{more}",
            )
        return run


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
