"""Socrates: one question at a time, until the ticket is a spec that can be tested; the rules of ``spec`` say when."""

from cdd_agent.agent.tool import Tool, ToolOutput, define
from cdd_agent.errors import CddError
from cdd_agent.events import Notice, QuestionAsked
from cdd_agent.model.conversation import AssistantMessage, Text
from cdd_agent.tickets import spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.workflows.conversation import questions
from cdd_agent.workflows.conversation.desk import Desk
from cdd_agent.workflows.conversation.questions import ASKS, Question, checked
from cdd_agent.workflows.conversation.scribe import Scribe

_NOBODY = (
    "Nobody is there to answer. Look at the code, write down what can be inferred with UpdateSpec, and put what only "
    "the developer can decide into open_questions. Do not ask."
)
_PUT_OFF = "The developer answers this later; it stands in open_questions. Do not ask it again now."
_LEFT_OPEN = {
    "a title": "What is the title of this ticket?",
    "a description": "What is wanted, for whom and why?",
    "an acceptance criterion": "How can one tell that it is done?",
    "an acceptance criterion that can be tested": "By which number, output or example can one tell that it is done?",
}
"""What is lacking -> the question that is left open where nobody said anything of it."""


class Socrates:
    """One conversation about one ticket."""

    def __init__(self, ticket: Ticket, *, desk: Desk) -> None:
        """Reads the spec, so that an invalid one is told at once; says nothing yet."""
        self.ticket = ticket
        self.conversation = desk.conversation("socrates", ticket=ticket.slug)
        """May be replaced by another one between two answers."""
        self._desk = desk
        self._scribe = Scribe(ticket, desk=desk)
        self._asked: Question | None = None
        self._scribe.spec()

    @property
    def missing(self) -> tuple[str, ...]:
        """What the spec on disk lacks to be complete, by the stated rules."""
        return spec.find_missing(self._scribe.spec())

    @property
    def question(self) -> Question | None:
        """What the developer was asked, with answers to choose from, and has not answered yet."""
        messages = self.conversation.messages
        return questions.waiting(messages) or (self._asked if messages else None)

    def check(self) -> None:
        """Raise ``ModelError`` if the spec needs questions and there is no model to ask them."""
        if self.missing:
            self._desk.model.check()

    def open(self, *, somebody_answers: bool) -> str:
        """What Socrates says first: a question, or, with nobody there, what was inferred.

        With nobody there, what it would have asked stands in the spec's open questions afterwards.
        """
        if somebody_answers:
            return self._talk(self._scribe.tool(), self._ask_tool())
        begin = len(self.conversation.messages)
        text = self._talk(self._scribe.tool(), words=_NOBODY)
        self._scribe.leave_open(*questions.left_unanswered(self.conversation.messages[begin:]))
        if not self._scribe.spec().open_questions:
            self._scribe.leave_open(*(_LEFT_OPEN[lack] for lack in self.missing))
        return text

    def hear(self, words: str) -> str:
        """What Socrates answers to the developer's words; the spec may be saved on the way.

        The number of an option means its text, and ``later`` puts the question into the spec's open questions.
        """
        question = self.question
        self.conversation = self._desk.fitting(self.conversation, "socrates", ticket=self.ticket.slug)
        if question is not None:
            words = self._answered(question, words)
        try:
            return self._talk(self._scribe.tool(), self._ask_tool(), words=words)
        except (CddError, KeyboardInterrupt):
            self._asked = self._asked or question  # nothing came of the answer: it can be given again
            raise

    def ask_again(self) -> str:
        """Put the question that waits once more; without one, the words that Socrates said last."""
        if self.question is not None:
            self._put(self.question)
            return self.question.question
        turns = [message for message in self.conversation.messages if isinstance(message, AssistantMessage)]
        return "".join(block.text for block in turns[-1].content if isinstance(block, Text)) if turns else ""

    def _answered(self, question: Question, words: str) -> str:
        """What the model is to hear of the developer's answer."""
        if questions.is_put_off(words, options=question.options):
            self._scribe.leave_open(question.question)
            told = _PUT_OFF
        else:
            told = questions.meant(question, words)
            if told != words:
                self._desk.emit(Notice(text=f"your answer: {told}"))
        is_known = questions.waiting(self.conversation.messages) is not None
        return told if is_known else f'To the question "{question.question}": {told}'

    def _talk(self, *tools: Tool, words: str = "") -> str:
        """Say ``words``, and before them what spec.yaml says if that is news, and let the model answer."""
        self._asked = None
        told = (self._scribe.news(self.conversation), words)
        self.conversation.say("\n\n".join(part for part in told if part) or "Go on.")
        run = self._desk.ask(self.conversation, *tools, agent="socrates")
        asked = self.question
        if asked is not None:
            self._put(asked)
        return run.text

    def _put(self, question: Question) -> None:
        """Show a question to the developer."""
        self._desk.emit(QuestionAsked(agent="socrates", question=question.question, options=question.options))

    def _ask_tool(self) -> Tool:
        """AskDeveloper: ends the turn; the developer's next words are the answer."""
        return define(
            ASKS,
            "Ask the developer one question, with the likely answers to choose from. It ends your turn.",
            inputs=Question,
            run=self._ask,
            subject=lambda asked: asked.question,
        )

    def _ask(self, asked: Question) -> ToolOutput:
        """Take the question, the first one of a turn."""
        if self._asked is not None:
            told = f'One question at a time: "{self._asked.question}" is asked. Ask this one when that is answered.'
            return ToolOutput(text=told, is_error=True)
        self._asked = checked(asked)
        return ToolOutput(text="Asked. What the developer says next is the answer.", ends_run=True)
