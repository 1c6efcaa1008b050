"""A source that the product does not know, as small as one can be: everything that works for a run works for it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.events import Emit, Notice, RunFinished, StepFinished, StepStarted
from cdd_agent.model.conversation import Request, Turn
from cdd_agent.repl.render import show_ticket, summarize_ticket
from cdd_agent.runs.back import Back, Move
from cdd_agent.runs.places import find_run, locate_run
from cdd_agent.runs.plan_steps import make_brief
from cdd_agent.runs.run import Run, Source
from cdd_agent.runs.story import load_story
from cdd_agent.tdd.context import Brief, Context, Phase, Policy, ResumeCommands, WorkItem
from cdd_agent.tdd.phase_run import Ending, How
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state as states
from cdd_agent.work.journal import journal_path
from cdd_agent.work.state import RunState, Status, StepExecution
from cdd_agent.work.state_file import load_state
from tests.fakes.approval import approves
from tests.fakes.demo import captured, in_process
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project, writes
from tests.fakes.suite import FakeSuite

SLUG = "toy-list"


@dataclass
class Lines:
    """Work items from a file, one a line."""

    path: Path
    ticket: Ticket
    workflow: str = "toy"
    makes_project: bool = False
    title: str = "The lines of a file"
    commands: ResumeCommands = field(default=ResumeCommands(resume="toy", restart="toy --anew", unit="step"))
    is_open_ended: bool = False
    depends: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def adapt_policy(self, policy: Policy) -> Policy:
        return policy

    def read(self, *, now: str) -> RunState:
        keys = [self._make_item(number).key for number in range(1, len(self._lines) + 1)]
        fresh = RunState(ticket_slug=SLUG, started_at=now, step_executions=states.pending_steps(keys))
        return load_state(self.ticket.state_path) or fresh

    def open(self, run: Run[Source]) -> RunState:
        return run.state

    def next(self, state: RunState) -> WorkItem | None:
        number = next(iter(state.numbers(Status.IN_PROGRESS, Status.PENDING)), None)
        return None if number is None else self._make_item(number)

    def find(self, state: RunState, number: int) -> WorkItem | None:
        return self._make_item(number)

    def list_changes(self, context: Context) -> tuple[str, ...]:
        return ()

    def start(self, state: RunState, number: int, *, context: Context) -> RunState:
        return state

    def brief(self, item: WorkItem, phase: Phase, *, context: Context) -> Brief:
        return make_brief(item, phase)

    def accept(self, state: RunState, ending: Ending, *, now: str) -> RunState:
        status = Status.COMPLETED if ending.how == How.DONE else Status.FAILED
        return states.end_step(
            state, states.require_current(state).step_number, status=status, now=now, error=ending.why
        )

    def describe_end(self, step: StepExecution, *, context: Context) -> tuple[str, ...]:
        return ()

    @property
    def _lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def _make_item(self, number: int) -> WorkItem:
        line, total = self._lines[number - 1], len(self._lines)
        work = {"goal": line, "kind": "docs", "phases": ("green",), "tests": (), "sources": ()}
        return WorkItem(ticket=SLUG, number=number, title=line, total=total, **work)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Toy:
    """A project with such a file, and the program in it."""

    project: Project

    @property
    def run_folder(self) -> Ticket:
        return find_run(self.project.folder, SLUG)

    @property
    def state(self) -> RunState:
        state = load_state(self.run_folder.state_path)
        assert state is not None
        return state

    def compose(self, *turns: Turn) -> Composition:
        options = Options(project=self.project.folder, ask=approves)
        made = Composition(options, emit=self.project.seen.append)
        vars(made).update(suite=self.project.suite, model=ScriptedModel(turns))
        return made

    def run(self, *turns: Turn) -> None:
        self.compose(*turns).make_run(lines_of(self.project.folder)).run()


def lines_of(project: Path) -> Lines:
    path = project.parent / "lines.txt"
    path.write_text("Write a\nWrite b\n")
    return Lines(path=path, ticket=locate_run(project, SLUG))


class Killing(ScriptedModel):
    """Ends this process when it is asked."""

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def run_into_kill(project: str) -> None:
    """Begin the run in a process of its own, which is killed in the first step."""
    made = Composition(Options(project=Path(project), ask=approves), emit=lambda _: None)
    vars(made).update(suite=in_process(Path(project)), model=Killing([]))
    made.make_run(lines_of(Path(project))).run()


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory, *, interpreter: Interpreter, bytecode: Path) -> Toy:
    """The first process was killed at the first line, and a later one has done both."""
    folder = tmp_path_factory.mktemp("toy") / "project"
    toy = Toy(project=Project.make(folder, interpreter=interpreter, bytecode=bytecode))
    code = f"from {__name__} import run_into_kill; run_into_kill({str(folder)!r})"
    killed = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [step.status for step in toy.state.step_executions.values()] == [Status.IN_PROGRESS, Status.PENDING]
    toy.run(writes("a.md", "# a\n"), writes("b.md", "# b\n"))
    return toy


@pytest.fixture
def toy(made_once: Toy, tmp_path: Path) -> Toy:
    return replace(made_once, project=made_once.project.copy(tmp_path / "project"))


def test_a_later_process_continues_what_was_killed(toy: Toy) -> None:
    state, seen = toy.state, toy.project.seen
    assert (state.status, [str(step.status) for step in state.step_executions.values()]) == (
        "completed",
        ["completed", "completed"],
    )
    assert toy.project.log == ["docs: Write a", "docs: Write b"]
    told = [(event.number, event.total, event.title) for event in seen if isinstance(event, StepStarted)]
    assert told == [(1, 2, "Write a"), (2, 2, "Write b")]
    assert [event.status for event in seen if isinstance(event, RunFinished)] == ["completed"]
    assert [event.status for event in seen if isinstance(event, StepFinished)] == ["completed", "completed"]


def test_nothing_of_the_run_is_in_the_users_folder(toy: Toy) -> None:
    assert not toy.run_folder.folder.is_relative_to(toy.project.folder / "tickets")
    assert toy.project.status == ""


def test_status_names_its_title_its_steps_and_how_it_continues(toy: Toy) -> None:
    listed = summarize_ticket(toy.run_folder)
    assert (listed.title, listed.status, listed.completed, listed.steps) == ("The lines of a file", "completed", 2, 2)
    assert toy.state.resume == "toy"
    with captured() as (screen, printed):
        show_ticket(toy.run_folder, screen=screen, journal=journal_path(toy.project.folder, SLUG))
    assert "toy-list  The lines of a file" in printed.getvalue()
    assert "Write b" in printed.getvalue()


def test_review_shows_its_changes_and_takes_decisions(toy: Toy) -> None:
    opened = toy.compose().review(toy.run_folder)
    assert [[file.path for file in step.files] for step in opened.steps] == [["a.md"], ["b.md"]]
    opened.approve()
    opened.approve()
    end = opened.finish()
    assert end is not None
    assert {file.path for file in end.files} == {"a.md", "b.md"}


def test_report_tells_its_story(toy: Toy) -> None:
    made = toy.compose()
    story = load_story(toy.run_folder, project=toy.project.folder, comments=made.comments(), forks=made.forks)
    assert (story.title, sorted(story.files)) == ("The lines of a file", ["a.md", "b.md"])
    assert [len(step.attempts) for step in story.steps] == [1, 1]


def test_audit_confirms_its_notes(toy: Toy) -> None:
    audited = toy.compose().auditor().run()
    assert len(audited) == 2
    assert not any(each.failed for each in audited)


def test_a_fork_begins_before_a_step_and_has_its_own_run(toy: Toy) -> None:
    made = toy.compose()
    fork, _ = made.ticket_forks().start(toy.run_folder, "in capitals", number=2)
    project = made.forks.find_project(fork)
    state = load_state(find_run(project, SLUG).state_path)
    assert state is not None
    assert [str(step.status) for step in state.step_executions.values()] == ["completed", "pending"]
    assert state.execution(2).guidance == "in capitals"
    assert (project / "a.md").exists()
    assert not (project / "b.md").exists()


def test_undo_and_redo_move_branch_files_and_state(toy: Toy) -> None:
    project, before = toy.project, toy.state
    back = Back.of_project(project.folder, emit=project.seen.append)
    back.go(back.plan_step())
    assert (project.log, project.status) == (["docs: Write a"], "")
    assert not (project.folder / "b.md").exists()
    assert [str(step.status) for step in toy.state.step_executions.values()] == ["completed", "pending"]
    back.go(back.plan_return())
    assert (project.log, project.status) == (["docs: Write a", "docs: Write b"], "")
    assert toy.state == before


def test_a_step_that_was_undone_is_carried_out_again(toy: Toy) -> None:
    back = Back.of_project(toy.project.folder, emit=toy.project.seen.append)
    back.go(back.plan_step())
    toy.run(writes("c.md", "# c\n"))
    assert toy.state.status == Status.COMPLETED
    assert (toy.project.folder / "c.md").exists()


class Interrupted(Back):
    """Is interrupted once the branch has moved, before the state of the run has followed."""

    def _end(self, move: Move, runs: Iterable[Ticket]) -> None:
        raise KeyboardInterrupt


def test_a_run_first_finishes_an_undo_that_was_interrupted(toy: Toy) -> None:
    back = Interrupted.of_project(toy.project.folder, emit=toy.project.seen.append)
    with pytest.raises(KeyboardInterrupt):
        back.go(back.plan_step())
    assert toy.state.status == Status.COMPLETED
    toy.run(writes("c.md", "# c\n"))
    assert "Finished what was interrupted: step 2 of toy-list." in [
        event.text for event in toy.project.seen if isinstance(event, Notice)
    ]
    assert toy.state.status == Status.COMPLETED
    assert (toy.project.folder / "c.md").exists()


class Impatient(Lines):
    def adapt_policy(self, policy: Policy) -> Policy:
        return replace(policy, test_timeout_s=40, seconds_per_test=3)


def test_the_policy_of_a_source_limits_the_time_of_a_run_and_of_each_test(toy: Toy) -> None:
    lines = lines_of(toy.project.folder)
    suite = toy.compose().context(Impatient(path=lines.path, ticket=lines.ticket)).suite
    assert isinstance(suite, FakeSuite)
    assert (suite.timeout_s, suite.seconds_per_test) == (40, 3)
