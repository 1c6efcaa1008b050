"""Which item of a list comes next, by the state alone."""

from cdd_agent.runs.feature import make_feature
from cdd_agent.runs.listed_tests import ListedTests
from cdd_agent.tdd.phase_run import Ending, How
from cdd_agent.work.outcome import Open
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepExecution
from tests.cdd_agent.runs.listed_tests.conftest import REQUEST, SLUG
from tests.fakes.project import Project

NOW = "2026-01-31T12:00:00Z"
CHOSEN = AttemptRecord(
    phase="plan",
    number=1,
    outcome=Open(),
    answer='{"currentTest": {"description": "adds", "testFile": "tests/test_sum.py", "implFile": "sum.py"}}',
)
NONE = AttemptRecord(phase="plan", number=1, outcome=Open(), answer='{"currentTest": null}')


def source(project: Project) -> ListedTests:
    return ListedTests(make_feature(project.folder, REQUEST), repository=project.repository, project=project.folder)


def state(*steps: StepExecution, current: int | None = None) -> RunState:
    return RunState(
        ticket_slug=SLUG,
        started_at=NOW,
        current_step=current,
        step_executions={each.step_number: each for each in steps},
    )


def step(number: int, status: Status, *attempts: AttemptRecord, **commits: str) -> StepExecution:
    return StepExecution(
        step_number=number, title="t", text_sha256="", status=status, attempts=attempts, commits=dict(commits)
    )


def test_plan_comes_first_and_then_the_test_that_it_has_chosen(project: Project) -> None:
    listed = source(project)
    first = listed.next(state())
    assert first is not None
    assert (first.number, first.phases, first.total) == (1, ("plan",), 0)
    chosen = listed.next(state(step(1, Status.IN_PROGRESS, CHOSEN, plan="a")))
    assert chosen is not None
    assert (chosen.phases, chosen.tests, chosen.title) == (("red", "green", "refactor"), ("tests/test_sum.py",), "adds")


def test_a_cycle_that_was_undone_comes_before_a_new_one(project: Project) -> None:
    undone = state(
        step(1, Status.COMPLETED, CHOSEN, plan="a", red="b"), step(2, Status.PENDING), step(3, Status.PENDING)
    )
    found = source(project).next(undone)
    assert found is not None
    assert (found.number, found.phases) == (2, ("plan",))


def test_where_plan_chooses_none_the_run_is_complete_without_the_undone_cycles(project: Project) -> None:
    over = state(step(1, Status.IN_PROGRESS, NONE, plan="a"), step(2, Status.PENDING), current=1)
    done = source(project).accept(over, Ending(state=over, how=How.DONE), now=NOW)
    assert (done.status, list(done.step_executions)) == (Status.COMPLETED, [1])
    assert source(project).next(done) is None
