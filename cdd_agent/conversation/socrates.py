"""Socrates asks one question at a time until the ticket is a spec that can be tested.

Every change to ``spec.yaml`` is shown to the developer before ``SpecEditor`` saves it. The rules in ``tickets.spec``
decide when the spec is complete, not the model.
"""

import difflib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from msgspec import Meta

from cdd_agent.agent.tools import Tool, ToolOutput, define_tool
from cdd_agent.conversation import dialog as questions
from cdd_agent.conversation.dialog import ASK_TOOL, Dialog, Question
from cdd_agent.errors import CddError, UsageError
from cdd_agent.events import Notice, QuestionAsked, SpecProposed, SpecSaved
from cdd_agent.model.conversation import AssistantMessage, Conversation, Marks, Text
from cdd_agent.storage import write_atomic
from cdd_agent.tickets import spec
from cdd_agent.tickets.spec import Change, Criterion, Spec, explain_breach
from cdd_agent.tickets.ticket import Ticket

_REFUSED = "The developer refused this change, and spec.yaml is unchanged. Do not submit the same change again. "
_ASK_INSTEAD = "Ask what they want instead."
_TAKE_WORDS = "Take their words as the answer, and ask only about a point that they leave open. Their words: "
_LINE_END = re.compile(r"\r\n|\r|\n")


def find_breaches(texts: Sequence[str], *, known: Sequence[Criterion]) -> tuple[str, ...]:
    """Explain what is wrong with the form of each new sentence. Sentences already in the file are accepted."""
    known_texts = {criterion.text for criterion in known}
    ids = {criterion.id for criterion in known}
    sentences = (_split_id(text.strip(), ids)[1] for text in texts)
    new = (sentence for sentence in sentences if sentence and sentence not in known_texts)
    return tuple(breach for sentence in new if (breach := explain_breach(sentence)))


def assign_ids(texts: Sequence[str], *, known: Sequence[Criterion]) -> tuple[Criterion, ...]:
    """Return the texts as criteria, without repetitions.

    A known sentence keeps its id, and so does one that begins with a known id. Steps of a plan refer to criteria by
    id, so a reworded sentence must stay the same criterion. Others get the next free number.
    """
    id_of = {criterion.text: criterion.id for criterion in known}
    ids = {criterion.id for criterion in known}
    wanted: dict[str, str | None] = {}
    for text in texts:
        prefix, sentence = _split_id(text.strip(), ids)
        if sentence:
            wanted.setdefault(sentence, id_of.get(sentence, prefix))
    used = ids | {name for name in wanted.values() if name}
    free = (f"AC-{number}" for number in itertools.count(1) if f"AC-{number}" not in used)
    criteria: dict[str, Criterion] = {}
    for sentence, name in wanted.items():
        criterion = Criterion(id=name if name and name not in criteria else next(free), text=sentence)
        criteria[criterion.id] = criterion
    return tuple(criteria.values())


def _split_id(text: str, ids: set[str]) -> tuple[str | None, str]:
    name, colon, sentence = text.partition(":")
    if colon and name.strip() in ids:
        return name.strip(), sentence.strip()
    return None, re.sub(r"^AC-\d+:\s*", "", text)


Texts: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChanges:
    """Save new values for keys of spec.yaml; omitted keys keep their value.

    The developer sees the change first and may refuse it.
    """

    title: Annotated[str | None, Meta(description="One line")] = None
    description: Annotated[str | None, Meta(description="The goal and the reason, written for people")] = None
    acceptance_criteria: Annotated[Texts | None, Meta(description="All of them: WHEN ... THE SYSTEM SHALL ...")] = None
    out_of_scope: Annotated[Texts | None, Meta(description="What this ticket does not cover")] = None
    technical_notes: Annotated[str | None, Meta(description="Constraints on the implementation")] = None
    open_questions: Annotated[Texts | None, Meta(description="Unanswered questions; [] for none")] = None

    @property
    def values(self) -> dict[str, Change]:
        """The keys that have a new value."""
        values: dict[str, Change | None] = {key: getattr(self, key) for key in self.__dataclass_fields__}
        return {key: value for key, value in values.items() if value is not None}


class SpecEditor:
    """Reads and changes the spec of one ticket."""

    def __init__(self, ticket: Ticket, *, dialog: Dialog) -> None:
        """Create an editor. The file is not read yet."""
        self._ticket = ticket
        self._dialog = dialog
        self._shown: tuple[Conversation, str] | None = None
        """The text of the file that the model has seen, and in which conversation."""

    def spec(self) -> Spec:
        """Read the spec. Raises ``DocumentError``."""
        return self._parse(self._read_text())

    def describe_changes(self, conversation: Conversation) -> str:
        """Return the file's text for the model of ``conversation``, or nothing if it has seen this text."""
        text = self._read_text()
        shown = self._shown
        if conversation.messages and shown is not None and shown[0] is conversation and shown[1] == text:
            return ""
        self._shown = (conversation, text)
        marks = Marks(conversation.token)
        verb = "says now" if conversation.messages else "is"
        quoted = marks.wrap(text.removeprefix("\ufeff"), source="spec.yaml")
        current = self._parse(text)
        rows = "\n".join(f"- {item}" for item in (*spec.find_missing(current), *spec.find_vague_criteria(current)))
        gaps = "Nothing is missing. Ask only if it cannot be tested in this form."
        if rows:  # the open questions are words from the file, so the list needs marks like the file itself
            gaps = f"Missing or vague:\n\n{marks.wrap(rows, source='gaps in spec.yaml')}"
        return f"spec.yaml of the ticket `{self._ticket.slug}` {verb}:\n\n{quoted}\n\n{gaps}"

    def tool(self) -> Tool:
        """Return UpdateSpec, which changes single keys of the file."""
        return define_tool(
            "UpdateSpec", SpecChanges, run=self._update, subject=lambda changes: ", ".join(changes.values)
        )

    def leave_open(self, *questions: str) -> None:
        """Add new questions to the open questions. The change is shown and saved without asking."""
        before = self._read_text()
        present = self._parse(before).open_questions
        new = tuple(dict.fromkeys(question for question in questions if question not in present))
        if new:
            after = self._update_text(before, {"open_questions": (*present, *new)})
            self._propose(before, after)
            self._save(before, after)

    def _update(self, changes: SpecChanges) -> ToolOutput:
        before = self._read_text()
        if self._shown is not None and self._shown[1] != before:
            self._shown = (self._shown[0], before)
            raise UsageError(f"spec.yaml has changed. It says now:\n{before}", hint="read it, then repeat your change")
        values = changes.values
        if changes.acceptance_criteria is not None:
            known = self._parse(before).acceptance_criteria
            breaches = find_breaches(changes.acceptance_criteria, known=known)
            if breaches:
                raise UsageError(f"Not saved: {'; '.join(breaches)}", hint="rewrite these criteria")
            values["acceptance_criteria"] = assign_ids(changes.acceptance_criteria, known=known)
        after = self._update_text(before, values)
        if after == before:
            return ToolOutput(text=f"Nothing to save: spec.yaml already says this. {_report_gaps(self._parse(before))}")
        self._propose(before, after)
        objection = self._dialog.objection() if self._dialog.objection is not None else None
        if objection is not None:
            return ToolOutput(text=_REFUSED + (f"{_TAKE_WORDS}{objection}" if objection else _ASK_INSTEAD))
        return ToolOutput(text=f"Saved. {_report_gaps(self._save(before, after))}")

    def _update_text(self, text: str, changes: dict[str, Change]) -> str:
        """Apply ``changes``, and set the status to draft or refined unless the ticket is past the spec."""
        path = str(self._ticket.spec_path)
        changed = spec.update(text, changes, path=path)
        after = self._parse(changed)
        status = "draft" if spec.find_missing(after) else "refined"
        if after.status in {"draft", "refined"} and after.status != status and changed != text:
            return spec.update(changed, {"status": status}, path=path)
        return changed

    def _propose(self, before: str, after: str) -> None:
        old, new = (_LINE_END.split(text.removeprefix("\ufeff")) for text in (before, after))
        name = self._ticket.spec_path.name
        diff = "\n".join(difflib.unified_diff(old, new, fromfile=name, tofile=name, lineterm=""))
        self._dialog.emit(SpecProposed(ticket=self._ticket.slug, diff=diff))

    def _save(self, before: str, after: str) -> Spec:
        # The developer may have edited the file while looking at the proposed change.
        if self._read_text() != before:
            raise UsageError("spec.yaml changed while the developer reviewed your change.", hint="submit it again")
        write_atomic(self._ticket.spec_path, after.encode())
        if self._shown is not None and self._shown[1] == before:
            self._shown = (self._shown[0], after)
        old, new = self._parse(before), self._parse(after)
        changed = tuple(key for key in SpecChanges.__dataclass_fields__ if getattr(old, key) != getattr(new, key))
        self._dialog.emit(SpecSaved(ticket=self._ticket.slug, changed=changed, missing=spec.find_missing(new)))
        return new

    def _read_text(self) -> str:
        return spec.load_text(self._ticket.spec_path)

    def _parse(self, text: str) -> Spec:
        return spec.parse(text, path=str(self._ticket.spec_path))


def _report_gaps(current: Spec) -> str:
    missing = spec.find_missing(current)
    text = f"Still missing: {', '.join(missing)}." if missing else "It is complete."
    return " ".join([text, *(f"{remark}: make it precise." for remark in spec.find_vague_criteria(current))])


_BEGIN = (
    "The developer has opened this ticket and waits for your first question. The ticket is all that they have said so "
    "far. Read the code that it is about, then ask."
)
_NOBODY = (
    "Nobody is there to answer, so you cannot ask. Read the code, save everything you can infer with UpdateSpec, and "
    "put the decisions that only the developer can make into open_questions."
)
_POSTPONED = "The developer will answer this later. The question is in open_questions. Do not ask it again now."
_LEFT_OPEN = {
    "a title": "What is the title of this ticket?",
    "a description": "What is the goal, who needs it, and why?",
    "an acceptance criterion": "How can one tell that it is done?",
    "an acceptance criterion that can be tested": "Which number, output or example shows that it is done?",
}
"""Missing part -> the question to leave open if the model asked none."""


class Socrates:
    """One conversation about one ticket."""

    def __init__(self, ticket: Ticket, *, dialog: Dialog) -> None:
        """Start a conversation without calling the model. Raises ``DocumentError`` for an invalid spec."""
        self.ticket = ticket
        self.dialog = dialog.of("socrates", ticket.slug)
        self.conversation = self.dialog.start()
        """The conversation. The caller may replace it between two answers."""
        self._editor = SpecEditor(ticket, dialog=dialog)
        self._asked: Question | None = None
        self._editor.spec()

    @property
    def missing(self) -> tuple[str, ...]:
        """The parts that the spec on disk still needs to be complete."""
        return spec.find_missing(self._editor.spec())

    @property
    def question(self) -> Question | None:
        """The question that the developer has not answered yet."""
        messages = self.conversation.messages
        return questions.find_pending(messages) or (self._asked if messages else None)

    def check(self) -> None:
        """Raise ``ModelError`` if the spec is incomplete and no model can ask about it."""
        if self.missing:
            self.dialog.model.check()

    def open(self, *, somebody_answers: bool) -> str:
        """Let Socrates speak first; if nobody answers, its questions become the spec's open questions."""
        if somebody_answers:
            return self._talk(self._editor.tool(), self._ask_tool(), words=_BEGIN)
        begin = len(self.conversation.messages)
        text = self._talk(self._editor.tool(), words=_NOBODY)
        self._editor.leave_open(*questions.find_questions(self.conversation.messages[begin:]))
        if not self._editor.spec().open_questions:
            self._editor.leave_open(*(_LEFT_OPEN[part] for part in self.missing))
        return text

    def hear(self, words: str) -> str:
        """Pass the developer's words to the model and return its answer. The model may save the spec meanwhile.

        An option can be given by its number. ``later`` moves the question to the spec's open questions.
        """
        question = self.question
        self.conversation = self.dialog.summarize_if_long(self.conversation)
        added = self.dialog.submit(self.conversation, words).removeprefix(words)
        words = (words if question is None else self._interpret(question, words)) + added
        try:
            return self._talk(self._editor.tool(), self._ask_tool(), words=words)
        except (CddError, KeyboardInterrupt):
            self._asked = self._asked or question  # the model never saw the answer, so the question stays open
            raise

    def ask_again(self) -> str:
        """Show the pending question again and return it, or return Socrates' last words if there is none."""
        if self.question is not None:
            self._show(self.question)
            return self.question.question
        turns = [message for message in self.conversation.messages if isinstance(message, AssistantMessage)]
        return "".join(block.text for block in turns[-1].content if isinstance(block, Text)) if turns else ""

    def _interpret(self, question: Question, words: str) -> str:
        if questions.is_postponed(words, options=question.options):
            self._editor.leave_open(question.question)
            answer = _POSTPONED
        else:
            answer = questions.resolve_answer(question, words)
            if answer != words:
                self.dialog.emit(Notice(text=f"your answer: {answer}"))
        is_known = questions.find_pending(self.conversation.messages) is not None
        return answer if is_known else f'To the question "{question.question}": {answer}'

    def _talk(self, *tools: Tool, words: str = "") -> str:
        """Send ``words`` to the model, after the spec if it has changed, and return the answer."""
        self._asked = None
        outline = self.dialog.outline(self.conversation)
        parts = (self._editor.describe_changes(self.conversation), words)
        said = "\n\n".join(part for part in parts if part) or "Continue."
        self.conversation.say(*filter(None, (outline, said)))
        run = self.dialog.ask(self.conversation, *tools)
        question = self.question
        if question is not None:
            self._show(question)
        return run.text

    def _show(self, question: Question) -> None:
        self.dialog.emit(QuestionAsked(agent="socrates", question=question.question, options=question.options))

    def _ask_tool(self) -> Tool:
        return define_tool(ASK_TOOL, Question, run=self._ask, subject=lambda question: question.question)

    def _ask(self, question: Question) -> ToolOutput:
        if self._asked is not None:
            text = f'Ask one question at a time: "{self._asked.question}" is pending. Ask this one after its answer.'
            return ToolOutput(text=text, is_error=True)
        self._asked = questions.normalize(question)
        return ToolOutput(text="Asked. The developer's next message is the answer.", ends_run=True)
