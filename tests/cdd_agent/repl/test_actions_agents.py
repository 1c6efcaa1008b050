"""Agents are switched between, and each goes on in its conversation."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import ExitCode
from cdd_agent.model.conversation import Text
from cdd_agent.work.state import Status, StepKey, pending_steps
from cdd_agent.work.state_file import load_state, save_state
from tests.cdd_agent.repl.typed_prompt import Prompt
from tests.fakes.demo import SLUG
from tests.fakes.model import ScriptedModel, call, says


def test_back_returns_to_the_agent_before_with_its_conversation(planned: Path) -> None:
    model = ScriptedModel([says("Which part?"), says("That part, then.")])
    prompt = Prompt(planned, model=model)
    prompt.says("/spec")
    prompt.says("Something is wrong.")
    prompt.says("/plan")
    assert prompt.where == ("plan", SLUG)
    told = prompt.says("/back")
    assert told.startswith(f"Back in /spec {SLUG}.\n")
    assert "Which part?" in told
    prompt.says("The second.")
    assert "Which part?" in str(model.requests[-1].messages)


@pytest.mark.slow
def test_back_is_a_stack_that_ends_at_the_plain_prompt(planned: Path) -> None:
    prompt = Prompt(planned, model=ScriptedModel([]))
    for line in ("/spec", "/plan", "/exec"):
        prompt.says(line)
    assert prompt.where == ("exec", SLUG)
    for agent in ("plan", "spec", "cdd"):
        prompt.says("/back")
        assert prompt.where == (agent, SLUG)
    assert "No previous agent." in prompt.says("/back")
    assert prompt.code == ExitCode.USAGE


def test_back_opens_the_executor_where_its_state_is(planned: Path) -> None:
    prompt = Prompt(planned, model=ScriptedModel([]))
    prompt.says("/exec")
    prompt.says("/plan")
    assert "Enter runs step 1/1" in prompt.says("/back")
    assert prompt.where == ("exec", SLUG)


def test_a_line_with_a_command_in_it_is_questioned_and_reaches_no_model(planned: Path) -> None:
    prompt = Prompt(planned, model=(model := ScriptedModel([])))
    prompt.says("/exec")
    for line in ("q/fork merge x", "continue /undo", "use tabs, then /undo"):
        told = prompt.says(line)
        assert f"This line contains the command /{line.split('/')[1]}. Nothing was sent." in told
    assert prompt.where == ("exec", SLUG)
    assert model.requests == []


def test_split_lets_the_planner_make_smaller_steps(planned: Path) -> None:
    plan = planned / "tickets" / SLUG / "plan.md"
    head, step = plan.read_text(encoding="utf-8").split("### Step 1: ")
    title, rest = step.split("\n", 1)
    second = rest.replace("Depends on: none", "Depends on: 1").replace("[x]", "[ ]")
    drafted = f"{head}### Step 1: Only minutes below sixty\n{rest}\n### Step 2: {title}\n{second}"
    model = ScriptedModel([says(call("WritePlan", content=drafted))])
    prompt = Prompt(planned, model=model)
    prompt.says("/exec")
    told = prompt.says("split 1")
    assert prompt.where == ("plan", SLUG)
    assert "Only minutes below sixty" in told
    assert "into smaller steps" in str(model.requests[0].messages)
    assert "Enter runs step 1/2" in prompt.says("/exec")


def test_the_same_agent_twice_goes_on_and_asks_no_model(project: Path) -> None:
    model = ScriptedModel([says("What is it for?")])
    prompt = Prompt(project, model=model)
    prompt.says("/spec")
    assert "What is it for?" in prompt.says("/spec")
    assert len(model.requests) == 1
    prompt.says("/back")
    assert prompt.where == ("cdd", SLUG)


def test_an_agent_that_cannot_be_opened_leaves_the_one_that_listens(project: Path) -> None:
    prompt = Prompt(project, model=ScriptedModel([says("What is it for?")]))
    prompt.says("/spec")
    assert "is not complete" in prompt.says("/plan")
    assert "There is no ticket" in prompt.says("/exec nothing")
    assert prompt.where == ("spec", SLUG)


def test_a_file_that_is_named_is_given_to_the_agent_between_marks(project: Path) -> None:
    model = ScriptedModel([says("What is it for?"), says("I see.")])
    prompt = Prompt(project, model=model)
    prompt.says("/spec")
    (project / ".env").write_text("PASSWORD=hunter2", encoding="utf-8")
    told = prompt.says("Look at @durations/reading.py and @.env")
    assert "@.env is not attached: " in told
    (text,) = (block.text for block in model.requests[-1].messages[-1].content if isinstance(block, Text))
    assert "Look at @durations/reading.py and @.env\n\n<data-" in text
    assert "def minutes(text):" in text
    assert "hunter2" not in str(model.requests)


@pytest.mark.slow
def test_conventions_of_the_project_begin_every_conversation_and_are_told_once(planned: Path) -> None:
    (planned / "AGENTS.md").write_text("Indent with tabs.\n", encoding="utf-8")
    model = ScriptedModel([says("Which part?"), says("Why?")])
    prompt = Prompt(planned, model=model)
    assert "Project memory: AGENTS.md (18 bytes)" in prompt.says("/spec")
    prompt.says("Something is wrong.")
    first = model.requests[0].messages[0].content[0]
    assert isinstance(first, Text)
    assert "AGENTS.md>\nIndent with tabs.\n</data-" in first.text
    assert "Project memory" not in prompt.says("/plan")


def test_after_ctrl_c_the_conversation_goes_on(project: Path) -> None:
    model = ScriptedModel([KeyboardInterrupt(), says("What is it for?")])
    prompt = Prompt(project, model=model)
    told = prompt.says("/spec")
    assert "Stopped. The conversation so far is saved. Write a message to continue." in told
    assert prompt.code == ExitCode.INTERRUPTED
    assert "What is it for?" in prompt.says("Well?")
    assert prompt.where == ("spec", SLUG)


def test_an_executor_with_nothing_left_to_do_is_not_gone_back_to(finished: Path) -> None:
    prompt = Prompt(finished, model=ScriptedModel([]))
    prompt.says("/spec")
    prompt.says("/exec")
    assert prompt.where == ("cdd", SLUG)
    prompt.says("/back")
    assert prompt.where == ("spec", SLUG)


def test_skipping_the_last_step_ends_a_ticket_whose_other_steps_are_approved(finished: Path) -> None:
    plan = finished / "tickets" / SLUG / "plan.md"
    head, step = plan.read_text(encoding="utf-8").split("### Step 1: ")
    more = step.split("\n", 1)[1].replace("[x]", "[ ]")
    plan.write_text(f"{head}### Step 1: {step}\n### Step 2: One more\n{more}", encoding="utf-8")
    path = finished / "tickets" / SLUG / "execution-state.json"
    state = load_state(path)
    assert state is not None
    approved = replace(state.execution(1), review="approved")
    steps = {1: approved, **pending_steps([StepKey(number=2, title="One more", text_sha256="")])}
    save_state(path, replace(state, status=Status.IN_PROGRESS, step_executions=steps))
    prompt = Prompt(finished, model=ScriptedModel([]))
    assert "The whole ticket" not in prompt.says("/exec")
    told = prompt.says("skip 2")
    assert f"Every completed step of {SLUG} is approved." in told
    assert "The whole ticket:" in told
