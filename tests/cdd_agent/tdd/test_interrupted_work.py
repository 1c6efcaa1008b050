"""The work of an interrupted attempt is in the files of the next one, which is asked to continue it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cdd_agent.errors import BudgetSpent, CddError
from cdd_agent.events import Notice
from cdd_agent.model.conversation import Text, Turn
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.phase_run import Ending
from cdd_agent.testrun.suite import SuiteRun
from cdd_agent.work import state as states
from cdd_agent.work.state import InterruptedWork, RunState, StepExecution
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, TIDY, Project, content_as_it_is, green, item, red, writes

CONTINUE = "Your earlier, interrupted work is in the files. It was not judged. Continue it."
HANDS_IN = content_as_it_is()
HALF_TEST, HALF_CODE = TEST.replace("90", "...  # which?"), "def discount(price): ...\n"
WRONG = writes("discount.py", "def discount(price):\n    return price\n")


def half(path: str, content: str) -> Turn:
    """Write a file and go on."""
    return says("Half of it.", call("Write", file_path=path, content=content))


class Killed(BaseException):
    """Ends a run without a last word, as ``kill -9`` does."""


class Interrupted(ScriptedModel):
    """Raises after its last turn."""

    def __init__(self, turns: list[Turn], end: BaseException) -> None:
        """Raise ``end``."""
        super().__init__(turns)
        self.end = end

    def reply(self, *args: object, **named: object) -> Turn:
        """Answer or raise."""
        if not self.queue:
            raise self.end
        return super().reply(*args, **named)  # type: ignore[arg-type]


def run(context: Context, state: RunState, kept: list[RunState]) -> Ending:
    return Cycle(item(), state, context=context, save=kept.append).run()


def interrupt(project: Project, turns: list[Turn], *, end: BaseException, state: RunState | None = None) -> RunState:
    """Run until ``end``, and return the last state that was saved."""
    kept = [state or project.start()]
    context = project.context(Interrupted(turns, end))
    with pytest.raises(type(end)):
        run(context, kept[-1], kept)
    return kept[-1]


def ends() -> Mapping[str, BaseException]:
    """Return the ways in which a run ends early."""
    spent = BudgetSpent("The budget is used up.", hint="raise it")
    return {"ctrl-c": KeyboardInterrupt(), "kill": Killed(), "no budget": spent}


def task(model: ScriptedModel, number: int = 0) -> str:
    """The whole text of the first message of a request."""
    return "\n".join(block.text for block in model.requests[number].messages[0].content if isinstance(block, Text))


def resume(project: Project, state: RunState, *turns: Turn) -> tuple[ScriptedModel, Ending]:
    model = ScriptedModel(turns)
    return model, run(project.context(model), state, [])


BEFORE: Mapping[str, list[Turn]] = {"red": [], "green": [red()], "refactor": [red(), green()]}
FILE = {"red": TEST_FILE, "green": "discount.py", "refactor": "discount.py"}
WORK = {"red": HALF_TEST, "green": HALF_CODE, "refactor": TIDY}
REST: Mapping[str, list[Turn]] = {
    "red": [says(call("Read", file_path=TEST_FILE)), red(), green(), HANDS_IN],
    "green": [green(), HANDS_IN],
    "refactor": [HANDS_IN],
}


@soak_after(0, "end", tuple(ends()))
@pytest.mark.parametrize(
    "phase", ["green", *(pytest.param(each, marks=pytest.mark.slow) for each in ("red", "refactor"))]
)
def test_an_attempt_continues_the_files_of_the_one_that_was_interrupted(
    project: Project, *, phase: str, end: str
) -> None:
    reads = [says(call("Read", file_path="discount.py"))] if phase == "refactor" else []
    turns = [*BEFORE[phase], *reads, half(FILE[phase], WORK[phase])]
    state = interrupt(project, turns, end=ends()[end])
    seen = list[str]()

    class Looks(ScriptedModel):
        def reply(self, *args: object, **named: object) -> Turn:
            seen.append((context.workspace.root / FILE[phase]).read_text())
            return super().reply(*args, **named)  # type: ignore[arg-type]

    model = Looks(REST[phase])
    context = project.context(model)
    ending = run(context, state, [])
    assert seen[0] == WORK[phase]
    asked = task(model)
    assert asked.count(CONTINUE) == 1
    assert asked.endswith(f"Work: executor sale step 1 {phase} attempt 1"), "the interrupted attempt does not count"
    assert "The gate refused" not in asked
    assert "An earlier try" not in asked
    assert "Do not repeat" not in asked
    assert ("Half of it." in asked) == (end != "kill")
    assert CONTINUE not in task(model, len(model.requests) - 1) or len(model.requests) == 1
    assert ending.how == "done"
    assert [attempt.number for attempt in ending.state.execution(1).attempts] == [1, 1, 1]
    assert ending.state.execution(1).interrupted is None
    assert project.status == ""


def test_work_that_is_interrupted_twice_is_continued_whole(project: Project) -> None:
    first = interrupt(project, [red(), half("discount.py", CODE)], end=Killed())
    second = interrupt(project, [half("rates.py", "TEN = 10\n")], end=KeyboardInterrupt(), state=first)
    third = interrupt(project, [], end=Killed(), state=second)
    model, ending = resume(project, third, HANDS_IN, HANDS_IN)
    assert ending.how == "done"
    assert "+TEN = 10" in task(model)
    assert project.git("show", "--format=", "--name-only", "HEAD") == "discount.py\nrates.py"


@pytest.mark.slow
def test_what_the_agent_takes_back_before_the_next_interruption_stays_gone(project: Project) -> None:
    first = interrupt(project, [red(), half("rates.py", "TEN = 10\n")], end=Killed())
    gone = says(call("Bash", command="rm rates.py"))
    second = interrupt(project, [gone], end=KeyboardInterrupt(), state=first)
    assert second.execution(1).interrupted is None
    model, ending = resume(project, second, green(), HANDS_IN)
    assert ending.how == "done"
    assert CONTINUE not in task(model)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["ctrl-c", "kill"])
def test_files_of_a_test_run_that_was_interrupted_are_no_work(project: Project, *, end: str) -> None:
    context = project.context(ScriptedModel([red(), green()]))
    kept = [project.start()]

    class Stops:
        def __getattr__(self, name: str) -> object:
            return getattr(context.suite, name)

        def without_cache(self) -> "Stops":
            return self

        def run(self, *arguments: tuple[str, ...], **named: object) -> SuiteRun:
            if (context.workspace.root / "discount.py").exists():
                (context.workspace.root / "left.db").write_text("of a test")
                raise ends()[end]
            return context.suite.run(*arguments, **named)  # type: ignore[arg-type]

    with pytest.raises((KeyboardInterrupt, Killed)):
        run(replace(context, suite=Stops()), kept[-1], kept)  # type: ignore[arg-type]
    model, ending = resume(project, kept[-1], HANDS_IN, HANDS_IN)
    assert ending.how == "done"
    assert CONTINUE in task(model)
    assert "left.db" not in task(model)
    assert project.git("show", "--format=", "--name-only", "HEAD") == "discount.py"


def test_an_interruption_after_a_refusal_keeps_both_memories_apart(project: Project) -> None:
    state = interrupt(project, [red(), WRONG, half("rates.py", "TEN = 10\n")], end=KeyboardInterrupt())
    model, ending = resume(project, state, writes("discount.py", CODE), HANDS_IN)
    assert ending.how == "done"
    asked = task(model)
    assert asked.endswith("Work: executor sale step 1 green attempt 2")
    assert "The gate refused attempt 1" in asked
    assert CONTINUE in asked
    assert "+TEN = 10" in asked


@pytest.mark.slow
def test_after_a_rollback_the_files_have_the_interrupted_work_alone(project: Project) -> None:
    breaks = says(
        call("Read", file_path="prices.py"),
        call("Write", "b", file_path="prices.py", content="def total(prices):\n    return 0\n"),
        call("CompleteImplementation", implementation_files=[]),
    )
    state = interrupt(project, [red(), breaks, half("discount.py", CODE)], end=Killed())
    model, ending = resume(project, state, HANDS_IN, HANDS_IN)
    assert ending.how == "done"
    assert "the files have only your interrupted work since then" in task(model)
    assert project.git("show", "--format=", "--name-only", "HEAD") == "discount.py"


@pytest.mark.slow
def test_a_first_attempt_that_was_killed_is_continued_on_the_commits_of_the_user(project: Project) -> None:
    state = interrupt(project, [half(TEST_FILE, TEST)], end=KeyboardInterrupt())
    project.write({"notes.txt": "mine\n"})
    project.git("add", "notes.txt")
    project.git("commit", "-qm", "mine")
    model, ending = resume(project, state, HANDS_IN, green(), HANDS_IN)
    assert ending.how == "done"
    assert CONTINUE in task(model)
    assert project.log == ["mine", "test: Ten percent off", "feat: Ten percent off"]


@pytest.mark.slow
def test_work_that_does_not_fit_the_users_commits_is_shown_and_kept(project: Project) -> None:
    state = interrupt(project, [half(TEST_FILE, TEST)], end=KeyboardInterrupt())
    project.write({TEST_FILE: "def test_mine():\n    pass\n"})
    project.git("add", TEST_FILE)
    project.git("commit", "-qm", "mine")
    work = state.execution(1).interrupted
    assert work is not None
    model = ScriptedModel([])
    with pytest.raises(CddError):
        run(project.context(model), state, [])
    asked = task(model)
    assert "Its changes are not in the files now." in asked
    assert "+    assert discount(100) == 90" in asked
    assert CONTINUE not in asked
    assert project.git("show", f"{work.files}:{TEST_FILE}") == TEST.rstrip()
    assert any(str(work.files) in event.text for event in project.seen if isinstance(event, Notice))


def test_a_file_that_a_kill_left_half_written_is_no_work(project: Project) -> None:
    state = interrupt(project, [red(), half("discount.py", HALF_CODE)], end=Killed())
    (tree,) = (project.folder / ".cdd" / "worktrees").iterdir()
    (tree / ".discount.py.cdd-a1b2c3d4.tmp").write_text("def disc")
    model, ending = resume(project, state, green(), HANDS_IN)
    assert ending.how == "done"
    assert CONTINUE in task(model)
    assert ".tmp" not in task(model)


@pytest.mark.slow
def test_work_that_was_killed_in_a_run_tree_that_is_gone_is_forgotten(project: Project) -> None:
    state = interrupt(project, [red(), half("discount.py", HALF_CODE)], end=Killed())
    (tree,) = (project.folder / ".cdd" / "worktrees").iterdir()
    project.git("worktree", "remove", "--force", str(tree))
    model, ending = resume(project, state, green(), HANDS_IN)
    assert ending.how == "done"
    assert CONTINUE not in task(model)


# The state.


def test_a_retry_and_the_end_of_a_step_forget_interrupted_work(project: Project) -> None:
    work = InterruptedWork(phase="green", files="refs/cdd/attempts/sale/step-1-interrupted-1")
    state = states.record_interruption(project.start(), 1, work=work)
    steps: list[StepExecution] = [states.retry_step(state, 1).execution(1)]
    steps += [
        states.end_step(state, 1, status=status, now="2026-01-31T12:00:00Z").execution(1)
        for status in (states.Status.COMPLETED, states.Status.FAILED)
    ]
    assert [step.interrupted for step in steps] == [None, None, None]
