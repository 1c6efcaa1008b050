"""A ticket with spec and plan in the small real project, and an Executor on it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pytest

from cdd_agent.model.port import Model
from cdd_agent.tickets import ticket as tickets
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state_file
from cdd_agent.work.state import RunState
from cdd_agent.workflows.execution.documents import ticket_folders
from cdd_agent.workflows.execution.executor import Executor
from tests.fakes.clock import FakeClock
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project

SPEC = """\
schema: cdd/1
title: A sale
type: feature
status: refined
description: Cheaper.
technical_notes: Integers only.
acceptance_criteria:
  - id: AC-1
    text: WHEN it is day THE SYSTEM SHALL sell
"""


def plan(*steps: tuple[int, str, str], kind: str = "docs") -> str:
    """A plan of steps: number, title, what it depends on."""
    parts = ["# Implementation Plan: A sale\n\n## Steps\n"]
    for number, title, depends in steps:
        parts.append(
            f"### Step {number}: {title}\n- Depends on: {depends}\n- Files: `discount.py`\n"
            f"- Criteria: AC-1\n- Kind: {kind}\n"
            + ("- Tests: `tests/test_discount.py::test_discount`\n" if kind in {"feature", "bug"} else "")
        )
    return "\n".join(parts)


ONE = plan((1, "Ten percent off", "none"))


@dataclass(frozen=True, kw_only=True)
class Work:
    """The project, the ticket and the model of the next Executor."""

    project: Project
    ticket: Ticket

    def executor(
        self,
        model: Model | None = None,
        *,
        max_attempts: int = 1,
        allow_dirty: bool = False,
        refactor: bool = False,
        edit_format: Literal["tools", "blocks"] = "tools",
    ) -> Executor:
        """An Executor as a new process would make it."""
        bench = self.project.bench(
            model or ScriptedModel([]),
            max_attempts=max_attempts,
            edit_format=edit_format,
            left_out=ticket_folders(self.project.repository, self.ticket),
        )
        return Executor(self.ticket, bench=bench, clock=FakeClock(), refactor=refactor, allow_dirty=allow_dirty)

    @property
    def saved(self) -> RunState:
        """The state on disk."""
        state = state_file.load(self.ticket.state_path)
        assert state is not None
        return state

    @property
    def statuses(self) -> dict[int, str]:
        """Number -> status of each step, on disk."""
        return {number: str(step.status) for number, step in self.saved.step_executions.items()}


MakeWork = Callable[[str], Work]


@pytest.fixture
def work(project: Project) -> MakeWork:
    def make(content: str = ONE) -> Work:
        ticket = tickets.create(project.folder, "sale", title="A sale", type="feature")
        ticket.spec_path.write_text(SPEC)
        ticket.plan_path.write_text(content)
        return Work(project=project, ticket=ticket)

    return make
