"""A ticket with spec and plan in the small project, an Executor on it, and runs that are made once and copied."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from cdd_agent.model.conversation import Model
from cdd_agent.runs.plan_steps import PlanSteps
from cdd_agent.runs.run import Run
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.tickets import ticket as tickets
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state import RunState
from cdd_agent.work.state_file import load_state
from tests.fakes.clock import FakeClock
from tests.fakes.model import ScriptedModel, says
from tests.fakes.project import Project, red, writes

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
CHAIN = plan((1, "First", "3"), (2, "Second", "none"), (3, "Third", "2"))
FEATURE = plan((1, "Ten percent off", "none"), kind="feature")


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
    ) -> Run[PlanSteps]:
        """An Executor as a new process would make it."""
        source = PlanSteps(self.ticket, repository=self.project.repository, refactor=refactor)
        context = self.project.context(
            model or ScriptedModel([]),
            max_attempts=max_attempts,
            edit_format=edit_format,
            left_out=source.files.list_folders(),
        )
        return Run(source, context=context, clock=FakeClock(), allow_dirty=allow_dirty)

    def run_all(self, model: Model, *, allow_dirty: bool = False) -> None:
        """Run all steps, as ``cdd exec`` does."""
        executor = self.executor(model, allow_dirty=allow_dirty)
        with executor.running():
            executor.run_all()

    def copy(self, folder: Path) -> "Work":
        """Copy the project with the ticket and all that was done for it."""
        project = self.project.copy(folder)
        return Work(project=project, ticket=tickets.find(folder, self.ticket.slug))

    @property
    def saved(self) -> RunState:
        """The state on disk."""
        state = load_state(self.ticket.state_path)
        assert state is not None
        return state

    @property
    def statuses(self) -> dict[int, str]:
        """Number -> status of each step, on disk."""
        return {number: str(step.status) for number, step in self.saved.step_executions.items()}


MakeWork = Callable[[str], Work]


def make_work(project: Project, content: str) -> Work:
    """Add a ticket with this plan to the project."""
    ticket = tickets.create(project.folder, "sale", title="A sale", type="feature")
    ticket.spec_path.write_text(SPEC)
    ticket.plan_path.write_text(content)
    return Work(project=project, ticket=ticket)


@pytest.fixture
def work(project: Project) -> MakeWork:
    return partial(make_work, project)


class Grounds:
    """Runs that many tests begin with; never to be changed, but copied."""

    def __init__(self, folder: Path, *, interpreter: Interpreter, bytecode: Path) -> None:
        """Nothing is run yet."""
        self._folder = folder
        self._interpreter = interpreter
        self._bytecode = bytecode
        self._made: dict[str, Work] = {}

    def make(self, name: str, content: str, run: Callable[[Work], object]) -> Work:
        """Return the ticket with this plan after ``run``, which is called once for each ``name``."""
        if name not in self._made:
            project = Project.make(self._folder / name, interpreter=self._interpreter, bytecode=self._bytecode)
            work = make_work(project, content)
            run(work)
            self._made[name] = work
        return self._made[name]


@pytest.fixture(scope="session")
def grounds(tmp_path_factory: pytest.TempPathFactory, *, interpreter: Interpreter, bytecode: Path) -> Grounds:
    return Grounds(tmp_path_factory.mktemp("grounds"), interpreter=interpreter, bytecode=bytecode)


@pytest.fixture
def completed(grounds: Grounds, tmp_path: Path) -> Work:
    """The only step is completed, by a file ``a.md``."""

    def run(work: Work) -> None:
        work.run_all(ScriptedModel([writes("a.md", "# a\n")]))

    return grounds.make("completed", ONE, run).copy(tmp_path / "project")


@pytest.fixture
def chained(grounds: Grounds, tmp_path: Path) -> Work:
    """Three steps, of which the first depends on the last, are completed by files ``a.md`` to ``c.md``."""

    def run(work: Work) -> None:
        work.run_all(ScriptedModel([writes(f"{name}.md", name) for name in "abc"]))

    return grounds.make("chained", CHAIN, run).copy(tmp_path / "project")


@pytest.fixture
def failed(grounds: Grounds, tmp_path: Path) -> Work:
    """The only step has failed: the model changed nothing, for 100 tokens each way."""
    ground = grounds.make("failed", ONE, lambda work: work.run_all(ScriptedModel([says("No.", tokens=100)])))
    return ground.copy(tmp_path / "project")


@pytest.fixture
def interrupted(grounds: Grounds, tmp_path: Path) -> Work:
    """The only step was interrupted in GREEN; RED has landed."""

    def run(work: Work) -> None:
        with pytest.raises(KeyboardInterrupt):
            work.run_all(ScriptedModel([red(), KeyboardInterrupt()]))

    return grounds.make("interrupted", FEATURE, run).copy(tmp_path / "project")
