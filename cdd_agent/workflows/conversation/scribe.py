"""The Scribe: writes to ``spec.yaml`` what Socrates found out, one shown change at a time, and nothing unseen."""

import difflib
import re
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from cdd_agent.agent.quoted import Marks
from cdd_agent.agent.tool import Tool, ToolOutput, define
from cdd_agent.errors import UsageError
from cdd_agent.events import SpecProposed, SpecSaved
from cdd_agent.model.conversation import Conversation
from cdd_agent.tickets import spec
from cdd_agent.tickets.spec import Change, Spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.workflows.conversation import criteria
from cdd_agent.workflows.conversation.desk import Desk

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
            breaches = criteria.breaches(changes.acceptance_criteria, known=known)
            if breaches:
                raise UsageError(f"Not saved: {'; '.join(breaches)}", hint="write these criteria anew")
            given["acceptance_criteria"] = criteria.numbered(changes.acceptance_criteria, known=known)
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
