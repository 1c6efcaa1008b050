"""Socrates: one question at a time, until the ticket is a spec that can be tested; the rules of ``spec`` say when.

Acceptance criteria as the model writes them: held to EARS, and given the ids they have or are to have. Pure.

The Scribe: writes to ``spec.yaml`` what Socrates found out, one shown change at a time, and nothing unseen.
"""

import difflib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from cdd_agent.agent.quoting import Marks
from cdd_agent.agent.tool import Tool, ToolOutput, define
from cdd_agent.errors import CddError, UsageError
from cdd_agent.events import Notice, QuestionAsked, SpecProposed, SpecSaved
from cdd_agent.model.conversation import AssistantMessage, Conversation, Text
from cdd_agent.tickets import spec
from cdd_agent.tickets.criteria import explain_breach
from cdd_agent.tickets.spec import Change, Criterion, Spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.workflows.conversation import desk as questions
from cdd_agent.workflows.conversation.desk import ASKS, Desk, Question, checked


def find_breaches(texts: Sequence[str], *, known: Sequence[Criterion]) -> tuple[str, ...]:
    """What is wrong with the form of each new sentence; those that the file has already stay as they are."""
    there = {criterion.text for criterion in known}
    ids = {criterion.id for criterion in known}
    sentences = (_named(text.strip(), ids)[1] for text in texts)
    return tuple(
        told for sentence in sentences if sentence and sentence not in there and (told := explain_breach(sentence))
    )


def numbered(texts: Sequence[str], *, known: Sequence[Criterion]) -> tuple[Criterion, ...]:
    """The texts as criteria, each once: one that is there already keeps its id, and so does one that names its id.

    Steps of a plan refer to criteria by id, so a sentence that is put better stays the same criterion. A new one
    gets the next number that is free.
    """
    id_of = {criterion.text: criterion.id for criterion in known}
    ids = {criterion.id for criterion in known}
    given: dict[str, str | None] = {}
    for text in texts:
        named, sentence = _named(text.strip(), ids)
        if sentence:
            given.setdefault(sentence, id_of.get(sentence, named))
    taken = ids | {name for name in given.values() if name}
    free = (f"AC-{number}" for number in itertools.count(1) if f"AC-{number}" not in taken)
    found: dict[str, Criterion] = {}
    for sentence, name in given.items():
        criterion = Criterion(id=name if name and name not in found else next(free), text=sentence)
        found[criterion.id] = criterion
    return tuple(found.values())


def _named(text: str, ids: set[str]) -> tuple[str | None, str]:
    """The id that a sentence begins with, if there is such a criterion, and the sentence without it."""
    name, colon, sentence = text.partition(":")
    if colon and name.strip() in ids:
        return name.strip(), sentence.strip()
    return None, re.sub(r"^AC-\d+:\s*", "", text)


REFUSED = (
    "The developer refused this change; spec.yaml stays as it is. Do not hand the same change in again: ask what they "
    "want instead."
)
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChanges:
    """The keys of ``spec.yaml`` that get a new value."""

    title: Annotated[str | None, Meta(description="One line")] = None
    description: Annotated[str | None, Meta(description="What is wanted and why, for a person to read")] = None
    acceptance_criteria: Annotated[
        tuple[str, ...] | None, Meta(description="All of them: WHEN ... THE SYSTEM SHALL ...")
    ] = None
    out_of_scope: Annotated[tuple[str, ...] | None, Meta(description="What this ticket is not about")] = None
    technical_notes: Annotated[str | None, Meta(description="Limits the implementation has to keep")] = None
    open_questions: Annotated[tuple[str, ...] | None, Meta(description="What nobody could answer yet; [] for none")] = (
        None
    )


class Scribe:
    """Who keeps the spec of one ticket."""

    def __init__(self, ticket: Ticket, *, desk: Desk) -> None:
        """Nothing is read yet."""
        self._ticket = ticket
        self._desk = desk
        self._told: tuple[Conversation, str] | None = None

    def spec(self) -> Spec:
        """What is on disk; raises ``DocumentError``."""
        return self._parsed(self._text())

    def news(self, conversation: Conversation) -> str:
        """What the model of ``conversation`` has to be told of the file: all of it, unless it knows it as it is."""
        text = self._text()
        known = self._told
        if conversation.messages and known is not None and known[0] is conversation and known[1] == text:
            return ""
        self._told = (conversation, text)
        marks = Marks(conversation.token)
        says = "says now" if conversation.messages else "is"
        quoted = marks.around(text.removeprefix("\ufeff"), source="spec.yaml")
        lacks = _lacks(self._parsed(text), marks=marks)
        return f"spec.yaml of the ticket `{self._ticket.slug}` {says}:\n\n{quoted}\n\n{lacks}"

    def tool(self) -> Tool:
        """UpdateSpec: changes single keys of the file, keeps the rest as it is."""
        return define(
            "UpdateSpec",
            "Save new values for keys of spec.yaml; keys that are not given stay as they are. The developer sees the "
            "change first and may refuse it.",
            inputs=SpecChanges,
            run=self._update,
            subject=lambda changes: ", ".join(_given(changes)),
        )

    def leave_open(self, *questions: str) -> None:
        """Add to the open questions those that are not there; the change is shown, and nobody is asked."""
        before = self._text()
        there = self._parsed(before).open_questions
        new = tuple(dict.fromkeys(question for question in questions if question not in there))
        if new:
            after = self._with_status(before, {"open_questions": (*there, *new)})
            self._propose(before, after)
            self._save(before, after)

    def _update(self, changes: SpecChanges) -> ToolOutput:
        """Show the change, save it if the developer lets it, and say what is still missing."""
        before = self._text()
        if self._told is not None and self._told[1] != before:
            self._told = (self._told[0], before)
            raise UsageError(f"spec.yaml was changed meanwhile. It says now:\n{before}", hint="look at it, then go on")
        given = _given(changes)
        if changes.acceptance_criteria is not None:
            known = self._parsed(before).acceptance_criteria
            breaches = find_breaches(changes.acceptance_criteria, known=known)
            if breaches:
                raise UsageError(f"Not saved: {'; '.join(breaches)}", hint="write these criteria anew")
            given["acceptance_criteria"] = numbered(changes.acceptance_criteria, known=known)
        after = self._with_status(before, given)
        if after == before:
            still = _still(self._parsed(before))
            return ToolOutput(text=f"Nothing to save: spec.yaml says all this already. {still}")
        self._propose(before, after)
        objection = self._desk.objection() if self._desk.objection is not None else None
        if objection is not None:
            return ToolOutput(text=f"{REFUSED} Their words: {objection}" if objection else REFUSED)
        return ToolOutput(text=f"Saved. {_still(self._save(before, after))}")

    def _with_status(self, text: str, changes: dict[str, Change]) -> str:
        """``text`` with the changes, and with the status that then fits, unless the ticket is past the spec."""
        path = str(self._ticket.spec_path)
        changed = spec.update(text, changes, path=path)
        after = self._parsed(changed)
        status = "draft" if spec.find_missing(after) else "refined"
        if after.status in {"draft", "refined"} and after.status != status and changed != text:
            return spec.update(changed, {"status": status}, path=path)
        return changed

    def _propose(self, before: str, after: str) -> None:
        """Show what is to become of the file."""
        old, new = (_LINE_END.split(text.removeprefix("\ufeff")) for text in (before, after))
        name = self._ticket.spec_path.name
        diff = "\n".join(difflib.unified_diff(old, new, fromfile=name, tofile=name, lineterm=""))
        self._desk.emit(SpecProposed(ticket=self._ticket.slug, diff=diff))

    def _save(self, before: str, after: str) -> Spec:
        """Put ``after`` in the place of ``before``; ``UsageError`` if something else stands there by now."""
        if self._text() != before:
            raise UsageError("spec.yaml was changed while the change was looked at.", hint="hand the change in again")
        spec.save(self._ticket.spec_path, after)
        if self._told is not None and self._told[1] == before:
            self._told = (self._told[0], after)
        old, new = self._parsed(before), self._parsed(after)
        keys = (*SpecChanges.__dataclass_fields__,)
        changed = tuple(key for key in keys if getattr(old, key) != getattr(new, key))
        self._desk.emit(SpecSaved(ticket=self._ticket.slug, changed=changed, missing=spec.find_missing(new)))
        return new

    def _text(self) -> str:
        """The text of the file as it is."""
        return spec.load_text(self._ticket.spec_path)

    def _parsed(self, text: str) -> Spec:
        """The spec that ``text`` is; raises ``DocumentError``."""
        return spec.parse(text, path=str(self._ticket.spec_path))


def _lacks(wanted: Spec, *, marks: Marks) -> str:
    """What the spec lacks; it is told in words of the spec, its open questions, and so between marks too."""
    listed = "\n".join(f"- {item}" for item in (*spec.find_missing(wanted), *spec.find_vague_criteria(wanted)))
    if not listed:
        return "It lacks nothing: ask only if it cannot be tested as it is."
    return f"What it lacks:\n\n{marks.around(listed, source='what spec.yaml lacks')}"


def _still(wanted: Spec) -> str:
    """What the spec lacks, and what is weak in it, for the model."""
    missing = spec.find_missing(wanted)
    told = f"Still missing: {', '.join(missing)}." if missing else "It is complete."
    return " ".join([told, *(f"{remark}: put it better." for remark in spec.find_vague_criteria(wanted))])


def _given(changes: SpecChanges) -> dict[str, Change]:
    """Key -> new value, for the keys that have one."""
    values: dict[str, Change | None] = {key: getattr(changes, key) for key in SpecChanges.__dataclass_fields__}
    return {key: value for key, value in values.items() if value is not None}


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
