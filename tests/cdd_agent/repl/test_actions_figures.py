"""What /cost and /model say and change."""

import shutil
from pathlib import Path

import pytest

from cdd_agent.errors import ExitCode
from tests.cdd_agent.repl.typed_prompt import Prompt
from tests.fakes.demo import RECORDING, SLUG
from tests.fakes.model import ScriptedModel, says


def priced(*words: str) -> ScriptedModel:
    model = ScriptedModel([says(word, tokens=1_000) for word in words])
    model.name = "claude-opus-5-5"
    return model


def test_before_anything_was_asked_there_is_no_cost(project: Path) -> None:
    assert Prompt(project).says("/cost") == "this session: the model was not called\n"


def test_the_cost_of_the_sitting_is_in_tokens_and_dollars(project: Path) -> None:
    prompt = Prompt(project, model=priced("What is it for?"))
    prompt.says("/spec")
    told = prompt.says("/cost")
    assert told.startswith("this session: 1 call; 1,000 tokens read; 1,000 written; 0.0")
    assert told.endswith(" USD\n")
    assert prompt.session.prompt_status.cost in told


def test_an_unknown_price_is_said_to_be_unknown(project: Path) -> None:
    model = priced("What is it for?")
    model.name = "somebody-s-own"
    prompt = Prompt(project, model=model)
    prompt.says("/spec")
    assert "cost unknown" in prompt.says("/cost")


def test_the_ticket_s_own_cost_is_that_of_carrying_it_out(finished: Path) -> None:
    prompt = Prompt(finished)
    prompt.says("/exec")
    assert f"all of /exec {SLUG}: " in prompt.says("/cost")


def test_the_model_is_shown_with_its_context_and_prices(project: Path) -> None:
    prompt = Prompt(project, model=priced("What is it for?"))
    prompt.says("/spec")
    told = prompt.says("/model")
    assert "model    claude-opus-5-5\n" in told
    assert "context  1,000,000 tokens, 0 % full\n" in told
    assert "prices   USD per million tokens: " in told


def test_another_model_answers_from_now_on_in_the_same_conversation(project: Path) -> None:
    prompt = Prompt(project, model=priced("What is it for?"))
    prompt.says("/spec")
    told = prompt.says("/model claude-haiku-5-5")
    assert told == "claude-haiku-5-5 answers from now on. The conversations continue.\n"
    assert prompt.session.prompt_status.model == "claude-haiku-5-5"
    assert "What is it for?" in prompt.says("")


def test_a_model_without_a_price_is_taken_with_a_remark(project: Path) -> None:
    prompt = Prompt(project, model=priced())
    told = prompt.says("/model claude-haiku-55")
    assert "claude-haiku-55 answers from now on" in told
    assert "Its price is unknown" in told
    assert "Did you mean claude-haiku-5-5?" in told
    assert prompt.code == ExitCode.DONE


def test_a_recording_answers_whatever_the_model_is_called(project: Path) -> None:
    prompt = Prompt(project, replay=RECORDING)
    assert "A recording is being played back" in prompt.says("/model claude-haiku-5-5")
    assert prompt.code == ExitCode.USAGE
    assert "of unknown size" in prompt.says("/model")


@pytest.mark.parametrize("line", ["/model a b"])
def test_what_is_no_id_is_refused(project: Path, line: str) -> None:
    prompt = Prompt(project, model=priced())
    assert "is not the id of a model" in prompt.says(line)


def test_another_model_answers_though_a_ticket_is_gone_and_what_cannot_go_on_is_told(finished: Path) -> None:
    prompt = Prompt(finished)
    prompt.says("/spec")
    prompt.says("/plan")
    shutil.rmtree(finished / "tickets" / SLUG)
    told = prompt.says("/model claude-haiku-5-5")
    assert f"The conversation /plan {SLUG} cannot be continued" in told
    assert "claude-haiku-5-5 answers from now on" in told
    assert prompt.where[0] == "cdd"
    assert "No previous agent." in prompt.says("/back")
