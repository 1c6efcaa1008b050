"""The words that move the Executor, over a real plan whose only step failed."""

import json
from pathlib import Path

import msgspec
import pytest

from cdd_agent.errors import UsageError
from cdd_agent.repl import dialogs
from cdd_agent.runs.plan_steps import PlanSteps
from cdd_agent.runs.run import Run
from cdd_agent.tickets.ticket import find
from cdd_agent.work.finding import Finding
from cdd_agent.work.state import Status
from cdd_agent.work.state_file import seal_state
from tests.fakes.demo import SLUG, ProjectCrew, captured


class Talk:
    """The Executor, and what is printed of what is said to it."""

    def __init__(self, project: Path) -> None:
        with captured(width=200) as (self.screen, self._shown):
            crew = ProjectCrew(project, screen=self.screen)
        self.executor: Run[PlanSteps] = crew.executor(find(project, SLUG))
        self.is_listening = True

    def greets(self) -> str:
        self.is_listening = dialogs.start_execution(self.executor, screen=self.screen)
        return self._shown.getvalue()

    def says(self, words: str) -> str:
        before = len(self._shown.getvalue())
        self.is_listening = dialogs.handle_executor_input(self.executor, words, screen=self.screen)
        return self._shown.getvalue()[before:]


@pytest.fixture
def failed(finished: Path) -> Talk:
    path = find(finished, SLUG).state_path
    state = json.loads(path.read_text(encoding="utf-8"))
    state["step_executions"]["1"] |= {"status": "failed", "error": "GREEN was refused 3 times"}
    path.write_text(json.dumps(state | {"status": "failed"}), encoding="utf-8")
    seal_state(path, path.read_bytes())
    return Talk(finished)


def test_a_finished_plan_is_shown_and_nobody_listens(finished: Path) -> None:
    talk = Talk(finished)
    assert "1 of 1 steps are completed; nothing is left to do." in talk.greets()
    assert not talk.is_listening
    assert dialogs.format_current_step(talk.executor) == ""


def test_a_failed_step_is_told_with_the_words_that_help(failed: Talk) -> None:
    greeting = failed.greets()
    assert "Step 1 failed: GREEN was refused 3 times" in greeting
    assert greeting.endswith(
        "Step 1/1 failed and was rolled back. Type: retry, skip, status, exit, or say what to do differently\n"
    )
    assert failed.is_listening
    assert dialogs.format_current_step(failed.executor) == "1/1"


def test_a_step_that_used_up_its_turns_can_be_planned_anew(finished: Path, *, failed: Talk) -> None:
    path = failed.executor.ticket.state_path
    state = json.loads(path.read_text(encoding="utf-8"))
    finding = Finding(check="run", outcome="noted", case="ran_out")
    state["step_executions"]["1"]["attempts"][0]["evidence"] = [msgspec.to_builtins(finding)]
    path.write_text(json.dumps(state), encoding="utf-8")
    seal_state(path, path.read_bytes())
    talk = Talk(finished)
    assert "Type: split 1 (the Planner makes smaller steps of it), retry, skip" in talk.greets()
    request = dialogs.parse_split(talk.executor, "split 1 by criterion")
    assert request is not None
    assert request.startswith("Split step 1, 'Minutes after hours need no unit', into smaller steps")
    assert request.endswith("by criterion")
    assert dialogs.parse_split(talk.executor, "split the pattern in two") is None
    with pytest.raises(UsageError, match="no step 7"):
        dialogs.parse_split(talk.executor, "split 7")


def test_a_completed_step_is_not_split(finished: Path) -> None:
    talk = Talk(finished)
    talk.greets()
    with pytest.raises(UsageError, match="Step 1 is completed"):
        dialogs.parse_split(talk.executor, "split 1")


def test_a_failed_step_is_not_passed_over(failed: Talk) -> None:
    with pytest.raises(UsageError) as refused:
        failed.says("")
    assert refused.value.hint == "type retry, skip, exit, or a sentence for the model"


def test_an_unknown_word_names_the_nearest(failed: Talk) -> None:
    with pytest.raises(UsageError) as refused:
        failed.says("statsu")
    assert "did you mean status?" in refused.value.hint


def test_status_shows_the_steps_again(failed: Talk) -> None:
    assert "✘ failed" in failed.says("st")


def test_exit_leaves_the_executor(failed: Talk) -> None:
    assert "Return with /exec" in failed.says("exit")
    assert not failed.is_listening


def test_skip_leaves_the_failed_step_out(failed: Talk) -> None:
    assert "• Step 1 skipped: skipped by the user" in failed.says("skip")
    assert failed.executor.state.execution(1).status == Status.SKIPPED


def test_after_the_last_step_was_skipped_it_can_still_be_tried(failed: Talk) -> None:
    failed.greets()
    assert failed.says("skip").endswith("Only skipped steps are left: 1. Type: retry 1, done 1, exit\n")
    assert failed.is_listening
    again = Talk(failed.executor.ticket.folder.parent.parent)
    again.greets()
    assert again.is_listening


def test_without_a_step_that_could_use_it_guidance_is_refused(finished: Path) -> None:
    talk = Talk(finished)
    with pytest.raises(UsageError) as refused:
        talk.says("make it faster, please")
    assert "change this: WORDS" in refused.value.hint
