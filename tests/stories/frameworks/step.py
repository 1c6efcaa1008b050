"""A step that a recorded model takes in a project of any language, from the project's files to its commits."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.events import Event
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.model.budget import Budget
from cdd_agent.runs.plan_steps import PlanSteps
from cdd_agent.tdd.context import Context, Policy, WorkItem, phases_of
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state as states
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, StepExecution, StepKey
from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import SuiteReport
from tests.fakes.approval import users_folder
from tests.stories.frameworks.language import Language


def recorded(language: Language, folder: Path) -> Path:
    """What the model says, attempt by attempt."""
    done = {"type": "tool_use", "name": "CompleteImplementation", "input": {"implementation_files": []}}

    def writes(path: str, content: str) -> list[object]:
        read = {"type": "tool_use", "name": "Read", "input": {"file_path": path}}
        return [read, {"type": "tool_use", "name": "Write", "input": {"file_path": path, "content": content}}, done]

    bend = f"cat > {language.test} <<'END'\n{language.bent}END"
    turns = [
        ["The test is written.", done],
        writes(language.test, language.test_text),
        [{"type": "tool_use", "name": "Bash", "input": {"command": bend}}, done],
        writes(language.source, language.wrong),
        writes(language.source, language.right),
        writes(language.source, language.tidy),
    ]
    path = folder / "recording.yaml"
    path.write_text(json.dumps([{"when": ".", "content": turn} for turn in turns]))
    return path


@dataclass(frozen=True, kw_only=True)
class Played:
    """What came of a step."""

    repository: Repository
    step: StepExecution
    how: str
    seen: list[Event]

    def reasons(self, phase: str) -> list[str]:
        """The code of the first reason of each attempt at a phase; ``open`` if there is none."""
        attempts = [attempt for attempt in self.step.attempts if attempt.phase == phase]
        return [attempt.reasons[0].code if attempt.reasons else "open" for attempt in attempts]

    @property
    def last(self) -> SuiteReport:
        """What the last gate judged."""
        kept = self.step.attempts[-1].report
        assert kept is not None
        return load(find_records(self.repository.root).folder / kept)


def written(language: Language, project: Path) -> Path:
    """The project as it was committed first."""
    project.mkdir()
    repository = Repository.create(project)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    for name, content in language.files.items():
        (project / name).parent.mkdir(exist_ok=True, parents=True)
        (project / name).write_text(content)
    commit_paths(repository, "first", paths=language.files)
    return project


def play(language: Language, project: Path, *, sandbox: str) -> Played:
    """The step, from the project's files to its commits."""
    repository, folder = Repository(project), project.parent
    seen: list[Event] = []
    options = Options(project=project, replay=recorded(language, folder), sandbox=sandbox, attended=True)
    context = context_of(Composition(options, emit=seen.append, environment=users_folder(folder)))
    item = WorkItem(
        ticket="sums",
        number=1,
        title="Numbers are multiplied",
        goal="Multiply.",
        kind="feature",
        phases=phases_of("feature", refactor=True),
        tests=(language.test,),
        sources=(language.source,),
    )
    ending = Cycle(item, started(repository), context=context, save=lambda _: None).run()
    return Played(repository=repository, step=ending.state.execution(1), how=ending.how, seen=seen)


def context_of(composition: Composition) -> Context:
    policy = Policy(max_attempts=3, budget=Budget(max_turns=4), evidence_timeout_s=120)
    ticket = Ticket(slug="sums", folder=composition.root / "tickets" / "sums")
    context = composition.context(PlanSteps(ticket, repository=composition.repository))
    return replace(context, policy=policy, permission=None)


def started(repository: Repository) -> RunState:
    key = StepKey(number=1, title="Numbers are multiplied", text_sha256="0")
    at = "2026-01-31T12:00:00Z"
    state = RunState(
        ticket_slug="sums", started_at=at, branch=repository.read_branch(), step_executions=states.pending_steps([key])
    )
    return states.start_step(state, key, now=at, base_commit=repository.read_head())
