"""Scout answers questions about the project, and proposes a ticket for a request to change it.

The model decides which of the two it is: it answers in words, or calls ProposeTicket. Nothing is created before the
developer agrees. A small change becomes a ticket with a complete spec and a plan of one step, ready for the Executor.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from cdd_agent.agent.tools import ToolOutput, define_tool
from cdd_agent.conversation import planner
from cdd_agent.conversation.dialog import Dialog
from cdd_agent.conversation.socrates import Texts, assign_ids, find_breaches
from cdd_agent.errors import Problem, UsageError
from cdd_agent.storage import write_atomic
from cdd_agent.tickets import plan_markdown, spec, ticket
from cdd_agent.tickets.plan import find_problems
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.untrusted.text import format_line

AGENT = "scout"
_MOST_TITLE_CHARACTERS = 72
_MOST_SLUG_WORDS = 5

_PLAN = """\
# Implementation Plan: {title}

## Overview

{goal}

## Steps

### Step 1: {title}
- [ ] done
- Depends on: none
- Files: {files}
- Tests: {tests}
- Criteria: {criteria}
- Kind: {kind}
- Size: small

{goal}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketProposal:
    """Propose a ticket for the change that the developer wants. It ends your turn; the developer decides."""

    title: Annotated[str, Meta(description="The change, in one line", max_length=ticket.MOST_TITLE_CHARACTERS)]
    slug: Annotated[str, Meta(description="A short name: lower-case letters, digits and dashes")]
    kind: Annotated[Literal["feature", "bug"], Meta(description="bug: the code does not do what it should")]
    size: Annotated[Literal["small", "large"], Meta(description="small: nothing is left to decide")]
    goal: Annotated[str, Meta(description="The change and its reason, for a reader who knows nothing of this talk")]
    criteria: Annotated[Texts, Meta(description="small: how to tell that it is done")] = ()
    files: Annotated[Texts, Meta(description="small: the files to change or create, without the tests")] = ()
    tests: Annotated[Texts, Meta(description="small: the tests to add, such as tests/test_a.py::test_b")] = ()


class Scout:
    """One conversation about a project."""

    def __init__(self, root: Path, *, dialog: Dialog) -> None:
        """Start a conversation without calling the model."""
        self.dialog = dialog.of(AGENT)
        self.conversation = self.dialog.start()
        """The conversation. The caller may replace it between two answers."""
        self._root = root
        self._proposal: TicketProposal | None = None

    def hear(self, words: str) -> TicketProposal | None:
        """Let the model answer ``words``. Return the ticket that it proposes, or None if it only answered."""
        self.dialog.model.check()
        self._proposal = None
        self.conversation = self.dialog.summarize_if_long(self.conversation)
        said = self.dialog.submit(self.conversation, words)
        self.conversation.say(*filter(None, (self.dialog.outline(self.conversation), said)))
        tool = define_tool("ProposeTicket", TicketProposal, run=self._propose, subject=lambda proposal: proposal.slug)
        self.dialog.ask(self.conversation, tool)
        return self._proposal

    def _propose(self, proposal: TicketProposal) -> ToolOutput:
        ticket.require_free(self._root, proposal.slug)
        if proposal.size == "small":
            self._check_small(proposal)
        self._proposal = proposal
        return ToolOutput(text="Shown to the developer, who decides.", ends_run=True)

    def _check_small(self, proposal: TicketProposal) -> None:
        """Raise ``UsageError`` for a small change that the Executor could not carry out."""
        empty = [name for name in ("criteria", "files", "tests") if not getattr(proposal, name)]
        if empty:
            raise UsageError(f"A small change needs {', '.join(empty)}.", hint="add them, or propose it as large")
        breaches = find_breaches(proposal.criteria, known=())
        if breaches:
            raise UsageError("; ".join(breaches), hint="rewrite these criteria")
        plan = plan_markdown.parse(_format_plan(proposal), path="plan.md")
        ids = [criterion.id for criterion in assign_ids(proposal.criteria, known=())]
        problems = (*find_problems(plan, criteria=ids), *planner.find_problems(plan, workspace=self.dialog.workspace))
        if problems:
            raise UsageError("; ".join(map(_format_problem, problems)), hint="correct the proposal")


def _format_problem(problem: Problem) -> str:
    # Without the line: the model has not seen the plan.
    return f"{problem.message} ({problem.hint})"


def create_ticket(root: Path, proposal: TicketProposal, *, words: str) -> Ticket:
    """Create the proposed ticket, whose description begins with ``words``, the developer's own.

    A small change has its criteria and its plan, too. Raises ``UsageError`` if the name is used meanwhile.
    """
    made = ticket.create(root, proposal.slug, title=proposal.title, type=proposal.kind)
    changes: dict[str, spec.Change] = {"description": f"{words}\n\n{proposal.goal}".strip()}
    if proposal.size == "small":
        changes |= {"acceptance_criteria": assign_ids(proposal.criteria, known=()), "status": "planned"}
        write_atomic(made.plan_path, _format_plan(proposal).encode())
    text = spec.load_text(made.spec_path)
    write_atomic(made.spec_path, spec.update(text, changes, path=str(made.spec_path)).encode())
    return made


def name_ticket(root: Path, words: str) -> TicketProposal:
    """Return a ticket for ``words``, with a name made of the first ones that is free."""
    title = format_line(words.strip().splitlines()[0])
    if len(title) > _MOST_TITLE_CHARACTERS:
        title = f"{title[: _MOST_TITLE_CHARACTERS - 3].rsplit(' ', 1)[0]}..."
    parts = re.findall(r"[a-z0-9]+", words.lower())[:_MOST_SLUG_WORDS]
    slug = "-".join(parts)[:40].strip("-") or "request"
    known = {each.slug for each in ticket.list_tickets(root)}
    free = next(name for number in range(1, len(known) + 2) if (name := _number(slug, number)) not in known)
    return TicketProposal(title=title, slug=free, kind="feature", size="large", goal="")


def _number(slug: str, number: int) -> str:
    return slug if number == 1 else f"{slug}-{number}"


def _format_plan(proposal: TicketProposal) -> str:
    criteria = assign_ids(proposal.criteria, known=())
    return _PLAN.format(
        title=format_line(proposal.title),
        goal=proposal.goal.strip(),
        files=", ".join(f"`{path}`" for path in proposal.files),
        tests=", ".join(f"`{test}`" for test in proposal.tests),
        criteria=", ".join(criterion.id for criterion in criteria),
        kind=proposal.kind,
    )
