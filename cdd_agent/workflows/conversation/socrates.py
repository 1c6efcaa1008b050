"""Socrates: one question at a time, until the ticket is a spec that can be tested; the rules of ``spec`` say when."""

import itertools
import re
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from cdd_agent.agent.quoted import Marks
from cdd_agent.agent.tool import Tool, ToolOutput, define
from cdd_agent.events import SpecSaved
from cdd_agent.tickets import spec
from cdd_agent.tickets.spec import Change, Criterion
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.workflows.conversation.desk import Desk

_NOBODY = (
    "Nobody is there to answer. Look at the code, write down what can be inferred with UpdateSpec, and put what only "
    "the developer can decide into open_questions. Do not ask."
)


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


class Socrates:
    """One conversation about one ticket."""

    def __init__(self, ticket: Ticket, *, desk: Desk) -> None:
        """Reads the spec, so that an invalid one is told at once; says nothing yet."""
        self.ticket = ticket
        self._desk = desk
        self._conversation = desk.conversation("socrates", ticket=ticket.slug)
        self._begun = False
        spec.load(ticket.spec_path)

    @property
    def missing(self) -> tuple[str, ...]:
        """What the spec on disk lacks to be complete, by the stated rules."""
        return spec.missing(spec.load(self.ticket.spec_path))

    def check(self) -> None:
        """Raise ``ModelError`` if the spec needs questions and there is no model to ask them."""
        if self.missing:
            self._desk.model.check()

    def open(self, *, somebody_answers: bool) -> str:
        """What Socrates says first: a question, or, with nobody there, what was inferred."""
        marks = Marks(self._conversation.token)
        text = spec.load_text(self.ticket.spec_path).removeprefix("\ufeff")
        parts = [f"The ticket `{self.ticket.slug}`:\n\n{marks.around(text, source='spec.yaml')}", self._lacks(marks)]
        return self.hear("\n\n".join(parts if somebody_answers else [*parts, _NOBODY]))

    def hear(self, words: str) -> str:
        """What Socrates answers to the developer's words; the spec may be saved on the way."""
        self._conversation.say(words)
        return self._desk.ask(self._conversation, self._update_tool(), agent="socrates").text

    def _lacks(self, marks: Marks) -> str:
        """What the spec lacks; it is told in words of the spec, its open questions, and so between marks too."""
        listed = "\n".join(f"- {item}" for item in self.missing)
        if not listed:
            return "It lacks nothing: ask only if it cannot be tested as it is."
        return f"What it lacks:\n\n{marks.around(listed, source='what spec.yaml lacks')}"

    def _update_tool(self) -> Tool:
        """UpdateSpec: changes single keys of the file, keeps the rest as it is."""
        return define(
            "UpdateSpec",
            "Save new values for keys of spec.yaml; keys that are not given stay as they are.",
            inputs=SpecChanges,
            run=self._update,
            subject=lambda changes: ", ".join(_given(changes)),
        )

    def _update(self, changes: SpecChanges) -> ToolOutput:
        """Write the changes and say what is still missing."""
        path = self.ticket.spec_path
        before = spec.load(path)
        given = _given(changes)
        if changes.acceptance_criteria is not None:
            given["acceptance_criteria"] = _numbered(changes.acceptance_criteria, known=before.acceptance_criteria)
        text = spec.update(spec.load_text(path), given, path=str(path))
        after = spec.parse(text, path=str(path))
        missing = spec.missing(after)
        status = "draft" if missing else "refined"
        if before.status in {"draft", "refined"} and after.status != status:
            text = spec.update(text, {"status": status}, path=str(path))
        spec.save(path, text)
        self._desk.emit(SpecSaved(ticket=self.ticket.slug, changed=tuple(given), missing=missing))
        return ToolOutput(text=f"Saved. Still missing: {', '.join(missing)}." if missing else "Saved. It is complete.")


def _numbered(texts: tuple[str, ...], *, known: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
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
    numbered: dict[str, Criterion] = {}
    for sentence, name in given.items():
        criterion = Criterion(id=name if name and name not in numbered else next(free), text=sentence)
        numbered[criterion.id] = criterion
    return tuple(numbered.values())


def _named(text: str, ids: set[str]) -> tuple[str | None, str]:
    """The id that a sentence begins with, if there is such a criterion, and the sentence without it."""
    name, colon, sentence = text.partition(":")
    if colon and name.strip() in ids:
        return name.strip(), sentence.strip()
    return None, re.sub(r"^AC-\d+:\s*", "", text)


def _given(changes: SpecChanges) -> dict[str, Change]:
    """Key -> new value, for the keys that have one."""
    values: dict[str, Change | None] = {
        "title": changes.title,
        "description": changes.description,
        "acceptance_criteria": changes.acceptance_criteria,
        "out_of_scope": changes.out_of_scope,
        "technical_notes": changes.technical_notes,
        "open_questions": changes.open_questions,
    }
    return {key: value for key, value in values.items() if value is not None}
