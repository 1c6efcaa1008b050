"""What steps and tickets may use, with real files, git and pytest."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.errors import BudgetSpent, ExitCode
from cdd_agent.events import Event, Notice, TurnEnded
from cdd_agent.model.budget import Ceiling, Ceilings, Meter
from cdd_agent.model.conversation import Turn
from cdd_agent.runs.plan_steps import PlanSteps
from cdd_agent.runs.run import Run
from cdd_agent.tickets.ticket import find
from cdd_agent.work.state import Status, Usage
from tests.cdd_agent.runs.plan_steps.conftest import MakeWork, Work, plan
from tests.fakes.approval import approves, users_folder
from tests.fakes.clock import FakeClock
from tests.fakes.demo import RECORDING, SLUG, fresh
from tests.fakes.model import ScriptedModel, says
from tests.fakes.project import Project, green, red, writes

FEATURE = plan((1, "Ten percent off", "none"), kind="feature")
CALL = Usage(input_tokens=900_000, output_tokens=100_000)
"""A million tokens, 5.60 USD at the price of the model below."""
OPUS = "claude-opus-5-5"


def answering(*turns: Turn | KeyboardInterrupt, name: str = OPUS) -> ScriptedModel:
    model = ScriptedModel([replace(turn, usage=CALL) if isinstance(turn, Turn) else turn for turn in turns])
    model.name = name
    return model


def executor(work: Work, model: ScriptedModel, **limits: Ceiling) -> Run[PlanSteps]:
    """An Executor of a new process with these limits."""
    source = PlanSteps(work.ticket, repository=work.project.repository, refactor=False)
    left_out = source.files.list_folders()
    context = work.project.context(model, max_attempts=1, left_out=left_out)
    clock = FakeClock()
    meter = Meter(model, clock=clock, work="the ticket sale", go_on="cdd exec sale", ceilings=Ceilings(**limits))
    return Run(source, context=context, clock=clock, meter=meter)


def run_all(made: Run[PlanSteps]) -> None:
    with made.running():
        made.run_all()


def refused(made: Run[PlanSteps]) -> BudgetSpent:
    with pytest.raises(BudgetSpent) as caught:
        run_all(made)
    assert caught.value.exit_code == ExitCode.BUDGET
    return caught.value


def test_a_limit_in_the_middle_of_a_step_leaves_it_at_its_checkpoint_and_a_higher_one_goes_on(
    work: MakeWork, project: Project
) -> None:
    made = work(FEATURE)
    low, high = Ceiling(tokens=1_000_000), Ceiling(tokens=2_500_000)
    error = refused(executor(made, answering(red(), green()), step=low))
    assert error.happened == "Step 1 of sale has used 1,000,000 tokens, and max_tokens_per_step is 1,000,000."
    assert error.hint == "raise max_tokens_per_step in .cdd/config.yaml, then continue with: cdd exec sale"
    assert (made.statuses, made.saved.current_step) == ({1: "in_progress"}, 1)
    assert (project.log, project.status) == (["plan: A sale", "test: Ten percent off"], "")
    assert made.saved.usage.tokens == made.saved.execution(1).usage.tokens == 1_000_000

    before, unasked = made.ticket.state_path.read_bytes(), answering(green())
    refused(executor(made, unasked, step=low))
    assert unasked.requests == []
    assert made.ticket.state_path.read_bytes() == before

    run_all(executor(made, answering(green()), step=high))
    assert project.log == ["plan: A sale", "test: Ten percent off", "feat: Ten percent off"]
    saved = made.saved
    assert saved.status == Status.COMPLETED
    assert (saved.usage.tokens, saved.usage.calls) == (2_000_000, 2)
    assert saved.execution(1).usage == saved.usage


@pytest.mark.slow
def test_each_step_has_the_limit_for_itself_and_the_ticket_has_one_for_all(work: MakeWork) -> None:
    made = work(plan((1, "First", "none"), (2, "Second", "none"), (3, "Third", "none")))
    turns = [writes(f"{name}.md", name) for name in "abc"]
    error = refused(executor(made, answering(*turns), step=Ceiling(tokens=1_000_000), ticket=Ceiling(tokens=2_000_000)))
    assert error.happened == "The ticket sale has used 2,000,000 tokens, and max_tokens_per_ticket is 2,000,000."
    assert made.statuses == {1: "completed", 2: "completed", 3: "pending"}, "it is told before the step is begun"
    run_all(executor(made, answering(turns[2]), ticket=Ceiling(tokens=3_000_000)))
    assert [step.usage.tokens for step in made.saved.step_executions.values()] == [1_000_000] * 3
    assert made.saved.usage.tokens == 3_000_000


@pytest.mark.slow
def test_what_is_used_is_priced_and_unknown_as_soon_as_a_part_is(work: MakeWork) -> None:
    made = work(plan((1, "First", "none"), (2, "Second", "none")))
    first = executor(made, answering(writes("a.md", "a")), ticket=Ceiling(usd=5.0))
    refused(first)
    assert made.saved.usage.cost_usd == pytest.approx(5.6)
    run_all(executor(made, answering(writes("b.md", "b"), name="home-grown"), ticket=Ceiling(usd=6.0)))
    usage = made.saved.usage
    assert (usage.cost_usd, made.saved.execution(2).usage.cost_usd) == (None, None)
    assert usage.known_usd == made.saved.execution(1).usage.cost_usd == pytest.approx(5.6)


@pytest.mark.slow
def test_a_step_that_is_tried_again_counts_on(work: MakeWork) -> None:
    made = work(plan((1, "First", "none")))
    limit = Ceiling(calls=3)
    run_all(executor(made, answering(says("No."))))
    assert made.statuses == {1: "failed"}
    again = executor(made, answering(says("No.")))
    with again.running():
        again.retry(1)
        again.run_all()
    assert made.saved.execution(1).usage.calls == 2
    last = executor(made, answering(says("Maybe."), writes("a.md", "a"), writes("b.md", "b")), step=limit)
    with last.running():
        last.retry(1)
        with pytest.raises(BudgetSpent):  # words alone are asked about once, which costs a call
            last.run_all()
    used = made.saved.execution(1).usage
    assert used == made.saved.usage
    assert (used.tokens, used.calls) == (3_000_000, 3)
    assert used.cost_usd == pytest.approx(16.8)


@pytest.mark.slow
def test_what_was_used_before_an_interrupt_is_kept_though_nothing_else_has_changed(work: MakeWork) -> None:
    made = work(FEATURE)
    with pytest.raises(KeyboardInterrupt):
        run_all(executor(made, answering(KeyboardInterrupt())))
    once = made.saved
    with pytest.raises(KeyboardInterrupt):
        run_all(executor(made, answering(KeyboardInterrupt())))
    assert (once.usage.calls, made.saved.usage.calls) == (1, 2)
    assert made.saved.execution(1).usage.calls == 2


@pytest.mark.slow
def test_an_example_that_reaches_a_limit_of_its_settings_goes_on_once_it_is_raised(
    finished: Path, tmp_path: Path
) -> None:
    project, seen = fresh(tmp_path / "project"), list[Event]()
    done = find(finished, SLUG)
    for path in (done.spec_path, done.plan_path):
        (find(project, SLUG).folder / path.name).write_bytes(path.read_bytes())

    def run(calls: int) -> None:
        (project / ".cdd").mkdir(exist_ok=True)
        (project / ".cdd" / "config.yaml").write_text(f"max_calls_per_step: {calls}\n")
        options = Options(project=project, replay=RECORDING, ask=approves, allow_dirty=True)
        composition = Composition(options, emit=seen.append, environment=users_folder(tmp_path))
        run_all(composition.executor(find(project, SLUG)))

    with pytest.raises(BudgetSpent, match="Step 1 of minutes-lost has used 1 model calls, and max_calls_per_"):
        run(1)
    run(100)
    state = find(project, SLUG).state_path.read_text()
    assert '"status": "completed"' in state
    turns = [event for event in seen if isinstance(event, TurnEnded)]
    assert {event.cost_usd for event in turns} == {None}, "a recording costs nothing that could be told"
    assert f'"calls": {len(turns)},' in state
    assert not any("price" in event.text for event in seen if isinstance(event, Notice))
