"""Runs of the orchestrator on the small real project, each as a new process would make it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cdd_agent.model.budget import Ceiling, Ceilings, Meter
from cdd_agent.model.conversation import Model, Turn
from cdd_agent.runs import feature as recollection
from cdd_agent.runs.feature import Feature
from cdd_agent.runs.listed_tests import ListedTests, require_built
from cdd_agent.runs.places import RESUME
from cdd_agent.runs.run import Run
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState
from cdd_agent.work.state_file import load_state
from tests.fakes.clock import FakeClock
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import Project

REQUEST = "A discount for everything"
SLUG = "tdd-a-discount-for-everything"
TESTS, SOURCE = "tests/test_discount.py", "discount.py"
TITLES = ("takes ten percent off", "takes nothing off nothing")
FIRST = "from discount import discount\n\n\ndef test_ten_percent():\n    assert discount(100) == 90\n"
SECOND = f"{FIRST}\n\ndef test_nothing():\n    assert discount(0) == 0\n"
WRONG, RIGHT = (f"def discount(price):\n    return price {way}\n" for way in ("- 10", "* 9 // 10"))

Item = dict[str, str]


def plan(number: int, *, titles: tuple[str, ...] = TITLES, done: int | None = None, **chosen: str) -> Turn:
    """The list agent's turn in a cycle: the list with the tests before ticked, then the choice of the next."""
    ticked = number - 1 if done is None else done
    lines = "".join(f"- [{'x' if at < ticked else ' '}] {title}\n" for at, title in enumerate(titles))
    test: Item | None = None
    if number <= len(titles):
        test = {"description": titles[number - 1], "testFile": TESTS, "implFile": SOURCE} | chosen
    return _turn("test-list.md", lines, said=json.dumps({"currentTest": test}))


def writes(path: str, content: str) -> Turn:
    """A turn that reads a file, writes it and hands it in."""
    return _turn(path, content)


def nothing() -> Turn:
    """A turn that changes nothing."""
    return says("It is fine.", call("CompleteImplementation", implementation_files=[]))


def gives_up() -> Turn:
    """A turn that reports a wrong test."""
    return says(call("ReportBlocked", why="test_is_wrong", reason="ten percent of what?"))


def cycle(number: int, *, test: str, code: str) -> list[Turn]:
    """All turns of a cycle in which nothing goes wrong."""
    return [plan(number), writes(TESTS, test), writes(SOURCE, code), nothing()]


def whole() -> list[Turn]:
    """All turns of the feature; its second test needs another way to take ten percent off."""
    return [*cycle(1, test=FIRST, code=WRONG), *cycle(2, test=SECOND, code=RIGHT), plan(3)]


def covered() -> list[Turn]:
    """All turns of a feature whose second test passes at once."""
    return [*cycle(1, test=FIRST, code=RIGHT), plan(2), writes(TESTS, SECOND), plan(3)]


def _turn(path: str, content: str, *, said: str = "") -> Turn:
    return says(
        *([said] if said else []),
        call("Read", file_path=path),
        call("Write", file_path=path, content=content),
        call("CompleteImplementation", implementation_files=[]),
    )


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The project, and how a run is begun or gone on with in it."""

    project: Project

    @property
    def folder(self) -> Path:
        """Of the run."""
        return find_records(self.project.folder).folder / "runs" / SLUG

    @property
    def state(self) -> RunState:
        """The state on disk."""
        state = load_state(self.folder / "execution-state.json")
        assert state is not None
        return state

    def begin(
        self, model: Model, *, text: str = REQUEST, calls: int = 0, evidence_timeout_s: float = 0, **options: bool
    ) -> RunState:
        """Run a new feature."""
        feature = recollection.begin_feature(self.project.folder, self.project.repository, text=text)
        made = self._orchestrator(feature, model, calls=calls, evidence_timeout_s=evidence_timeout_s, **options)
        return self._finish(made)

    def resume(self, model: Model, *, calls: int = 0, guidance: str = "", **options: bool) -> RunState:
        """Go on with the one there is."""
        feature = recollection.find_resumable(self.project.folder, self.project.repository)
        return self._finish(self._orchestrator(feature, model, calls=calls, **options), guidance)

    def _finish(self, run: Run[ListedTests], guidance: str = "") -> RunState:
        state = run.run(guidance)
        require_built(state)
        return state

    def _orchestrator(
        self, feature: Feature, model: Model, *, calls: int, evidence_timeout_s: float = 0, **options: bool
    ) -> Run[ListedTests]:
        source = ListedTests(feature, repository=self.project.repository, project=self.project.folder)
        context = self.project.context(model)
        context = replace(
            context,
            policy=replace(source.adapt_policy(context.policy), evidence_timeout_s=evidence_timeout_s),
            brief=source.brief,
            source=source.workflow,
            commands=source.commands,
            reports=find_records(self.project.folder).folder / "reports" / SLUG,
        )
        clock, ceilings = FakeClock(), Ceilings(ticket=Ceiling(calls=calls))
        meter = Meter(model, clock=clock, work=f"the ticket {SLUG}", go_on=RESUME, ceilings=ceilings)
        return Run(source, context=context, clock=clock, meter=meter, **options)

    def notes(self, commit: str = "HEAD") -> list[dict[str, object]]:
        """The lines of the note on a commit."""
        text = self.project.git("notes", "--ref=tdd-handoffs", "show", commit)
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def runs(project: Project) -> Runs:
    return Runs(project=project)


class Stops:
    """The feature of ``covered``, stopped after each of its phases; made once, to be copied."""

    def __init__(self, folder: Path, *, interpreter: Interpreter, bytecode: Path) -> None:
        """Nothing is run yet."""
        self._folder = folder
        begun = Project.make(folder / "begun", interpreter=interpreter, bytecode=bytecode)
        with pytest.raises(KeyboardInterrupt):
            Runs(project=begun).begin(ScriptedModel([KeyboardInterrupt()]))
        self._made = [begun]

    def after(self, phases: int) -> Project:
        """Return the project after so many phases, in the next of which the run was interrupted."""
        turns = covered()
        while len(self._made) <= phases:
            number = len(self._made)
            project = self._made[-1].copy(self._folder / f"after {number}")
            self._made.append(project)
            if number == len(turns):
                Runs(project=project).resume(ScriptedModel(turns[-1:]))
                break
            with pytest.raises(KeyboardInterrupt):
                Runs(project=project).resume(ScriptedModel([turns[number - 1], KeyboardInterrupt()]))
        return self._made[phases]


@pytest.fixture(scope="session")
def stops(tmp_path_factory: pytest.TempPathFactory, *, interpreter: Interpreter, bytecode: Path) -> Stops:
    return Stops(tmp_path_factory.mktemp("stops"), interpreter=interpreter, bytecode=bytecode)


StoppedAfter = Callable[[int], Runs]


@pytest.fixture
def stopped_after(stops: Stops, tmp_path: Path) -> StoppedAfter:
    """Copy the run that was stopped after so many phases."""
    return lambda phases: Runs(project=stops.after(phases).copy(tmp_path / "stopped"))
