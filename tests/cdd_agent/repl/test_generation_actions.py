"""The progress of a generation, on a terminal and elsewhere."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from cdd_agent.events import StepFinished, StepStarted, TurnEnded
from cdd_agent.generation.plan import GenerationPlan, load_plan
from cdd_agent.repl.generation_actions import GenerationProgress
from cdd_agent.repl.screen import Screen
from cdd_agent.work.state import RunState, Status, pending_steps
from tests.fakes.clock import FakeClock
from tests.fakes.demo import captured
from tests.fakes.program import EXAMPLES


@pytest.fixture(scope="module")
def plan() -> GenerationPlan:
    return load_plan(EXAMPLES / "ml-library" / "graph.json")


def begin(plan: GenerationPlan, *passed: int) -> RunState:
    steps = pending_steps(plan.number_steps(None))
    steps |= {number: replace(steps[number], status=Status.COMPLETED) for number in passed}
    return RunState(ticket_slug="ml", started_at="now", step_executions=steps)


def work(progress: GenerationProgress, numbers: Sequence[int], *, clock: FakeClock) -> None:
    for number in numbers:
        progress.write(StepStarted(number=number, total=50, title=f"node {number}"))
        clock.sleep(60)
        progress.write(StepFinished(number=number, status="completed", error=None))


def test_a_line_follows_every_ten_nodes_without_a_terminal(plan: GenerationPlan) -> None:
    clock = FakeClock()
    with captured() as (screen, printed):
        progress = GenerationProgress(plan, begin(plan, *range(1, 11)), screen=screen, clock=clock)
        work(progress, range(11, 31), clock=clock)
    # The time left is that of the nodes of this process.
    assert printed.getvalue().splitlines() == [
        "Completed 20/50 nodes (40%), ETA: 30 min",
        "Completed 30/50 nodes (60%), ETA: 20 min",
    ]


TURN = TurnEnded(
    agent="generator",
    text="",
    stop_reason="end_turn",
    input_tokens=10,
    output_tokens=1,
    cache_read_tokens=0,
    cost_usd=0.25,
)


class _Terminal:
    """A screen that keeps the last status."""

    has_status = True

    def __init__(self) -> None:
        self.symbols = {"full": "#", "empty": "."}
        self.status = ""

    def set_status(self, text: str) -> None:
        self.status = text


def test_a_terminal_shows_a_bar_with_time_left_cost_and_the_present_node(plan: GenerationPlan) -> None:
    clock, screen = FakeClock(), _Terminal()
    progress = GenerationProgress(plan, begin(plan), screen=cast(Screen, screen), clock=clock)
    work(progress, range(1, 6), clock=clock)
    progress.write(TURN)
    progress.write(StepStarted(number=6, total=50, title="node 6"))
    assert screen.status == "##.................. 5/50 nodes  ETA 45 min  0.25 USD  node 6"


def test_a_node_that_is_opened_again_counts_as_left(plan: GenerationPlan) -> None:
    clock, screen = FakeClock(), _Terminal()
    progress = GenerationProgress(plan, begin(plan, 1, 2), screen=cast(Screen, screen), clock=clock)
    progress.write(StepStarted(number=2, total=50, title="node 2"))
    assert " 1/50 nodes" in screen.status
