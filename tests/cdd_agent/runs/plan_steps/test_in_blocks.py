"""The Executor with a model without tools: RED, GREEN and REFACTOR by whole files in fenced blocks, to real commits."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cdd_agent.agent.loop import CUT_OFF_WITHOUT_TOOLS
from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.errors import UsageError
from cdd_agent.events import GateJudged, ToolCalled, ToolReturned
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import Request, Text
from cdd_agent.tdd.context import Context
from cdd_agent.work.state import Status
from tests.cdd_agent.runs.plan_steps.conftest import MakeWork, plan
from tests.fakes.approval import approves, users_folder
from tests.fakes.model import ScriptedModel, says
from tests.fakes.project import CODE, TEST, TEST_FILE, TIDY, Project, item

FEATURE = plan((1, "Ten percent off", "none"), kind="feature")


def block(path: str, content: str, *, fence: str = "```") -> str:
    return f"{fence}python:{path}\n{content}{fence}\n"


def said_to(request: Request) -> str:
    """The last thing that the model was told."""
    return "".join(part.text for part in request.messages[-1].content if isinstance(part, Text))


def context(project: Project, model: ScriptedModel, *, max_turns: int = 4, max_answer_tokens: int = 4_000) -> Context:
    made = project.context(model, max_attempts=1, edit_format="blocks")
    limits = Budget(max_turns=max_turns, max_answer_tokens=max_answer_tokens)
    return replace(made, policy=replace(made.policy, budget=limits))


@pytest.mark.slow
def test_a_recording_in_blocks_becomes_three_commits(work: MakeWork, *, project: Project, tmp_path: Path) -> None:
    made = work(FEATURE)
    project.write({".cdd/config.yaml": "edit_format: blocks\nevidence_timeout_s: 0\n"})
    project.git("add", ".cdd/config.yaml")
    project.git("commit", "-qm", "settings")
    turns = [
        {"when": "step 1 red attempt 1$", "content": [f"The test first.\n\n{block(TEST_FILE, TEST)}"]},
        {"when": "step 1 green attempt 1$", "content": [block("discount.py", CODE)]},
        {"when": "step 1 refactor attempt 1$", "content": [f"Percent by percent.\n{block('discount.py', TIDY)}"]},
    ]
    (tmp_path / "recording.yaml").write_text(yaml.safe_dump(turns))
    options = Options(project=project.folder, replay=tmp_path / "recording.yaml", ask=approves)
    composition = Composition(options, emit=project.seen.append, environment=users_folder(tmp_path))
    executor = composition.executor(made.ticket)
    with executor.running():
        executor.run_all()
    assert project.log == [
        "settings",
        "plan: A sale",
        "test: Ten percent off",
        "feat: Ten percent off",
        "refactor: Ten percent off",
    ]
    assert (project.folder / "discount.py").read_text() == TIDY
    assert made.saved.execution(1).files_created == ("discount.py", TEST_FILE)
    assert project.status == ""


def test_the_model_gets_no_tools_and_the_files_of_the_step_whole(project: Project) -> None:
    model = ScriptedModel([says(block(TEST_FILE, TEST)), says("No.")])
    step, why = project.run(replace(item(), sources=("prices.py", "discount.py")), context=context(project, model))
    red, green = model.requests
    assert red.tools == green.tools == ()
    assert "def total(prices):\n    return sum(prices)\n</data-" in said_to(red)
    assert "These files do not exist yet: discount.py, tests/test_discount.py" in said_to(red)
    assert "def test_discount():\n    assert discount(100) == 90\n</data-" in said_to(green)
    assert why is not None
    assert "no_change" in why
    assert [attempt.verdict for attempt in step.attempts] == ["open", "closed"]


def test_an_answer_without_a_file_is_a_failed_attempt(project: Project) -> None:
    model = ScriptedModel([says("I have implemented it.\n\n```python\nprint('done')\n```\n")])
    _, why = project.run(item(), context=context(project, model))
    assert why is not None
    assert "no_change: no file was changed: an answer alone is not enough" in why
    assert project.status == ""


def test_nothing_is_written_unless_every_block_may_be(project: Project) -> None:
    both = block(TEST_FILE, TEST) + block("discount.py", CODE)
    model = ScriptedModel([says(both), says(block(TEST_FILE, TEST)), says("No.")])
    project.run(item(), context=context(project, model))
    told = said_to(model.requests[1])
    assert "No file of your answer was written:\n- discount.py: " in told
    assert "RED may only change tests" in told
    returned = [(event.ok, event.summary) for event in project.seen if isinstance(event, ToolReturned)]
    assert returned[0] == (False, "tests/test_discount.py was not written because another file was refused")
    assert returned[2] == (True, "tests/test_discount.py: 5 lines")
    assert [event.subject for event in project.seen if isinstance(event, ToolCalled)][:2] == [TEST_FILE, "discount.py"]


WRONG = (
    (block(TEST_FILE, TEST).removesuffix("```\n"), "is not closed"),
    (block("", TEST), "the path is empty"),
    (block(TEST_FILE, TEST) + block(TEST_FILE, TEST), "is already in the answer"),
    (block("../outside.py", TEST), "contains '..'"),
    (block("/etc/outside.py", TEST), "is outside the project"),
    (block(".git/hooks/pre-commit", TEST), "is in .git"),
    (block(TEST_FILE, TEST + "\n# ... rest of the tests unchanged\n"), "is a placeholder for omitted code"),
    (block("tests/test_prices.py", "def broken(:\n"), "would no longer be valid Python"),
    (block("tests/test_a.py", "# \x1b[2J\n"), "contains invisible characters"),
)
"""Answers, and what the model is told is wrong with each."""


def test_what_is_wrong_with_an_answer_goes_back_to_the_model(project: Project) -> None:
    answers = [answer for answer, _ in WRONG]
    model = ScriptedModel([*map(says, answers), says(block(TEST_FILE, TEST))])
    given = replace(item(), tests=(TEST_FILE, "tests/test_prices.py::test_total"))
    step, _ = project.run(given, context=context(project, model, max_turns=len(WRONG) + 1))
    for request, (_, said) in zip(model.requests[1:], WRONG, strict=True):
        assert said in said_to(request)
    assert model.queue == []
    assert [attempt.number for attempt in step.attempts] == [1]
    assert project.git("ls-files", "--others", "--exclude-standard") == ""
    assert not (project.folder.parent / "outside.py").exists()


def test_an_answer_that_is_cut_off_is_not_taken_in_parts(project: Project) -> None:
    half = replace(says(f"```python:{TEST_FILE}\n{TEST[:30]}"), stop_reason="max_tokens")
    model = ScriptedModel([half, says(block(TEST_FILE, TEST)), says("No.")])
    project.run(item(), context=context(project, model))
    assert said_to(model.requests[1]) == CUT_OFF_WITHOUT_TOOLS


def test_a_file_that_the_model_has_not_seen_is_given_to_it_before_it_is_replaced(project: Project) -> None:
    more = "from prices import total\n\n\ndef test_total():\n    assert total([1, 2]) == 4\n"
    model = ScriptedModel([says(block("tests/test_prices.py", more)), says("No.")])
    project.run(item(), context=context(project, model))
    told = said_to(model.requests[1])
    assert "tests/test_prices.py exists, but you have not seen it." in told
    assert "    assert total([1, 2]) == 3\n</data-" in told


def test_the_same_thing_wrong_three_times_ends_the_attempt(project: Project) -> None:
    model = ScriptedModel([says(block("discount.py", CODE))] * 4)
    project.run(item(), context=context(project, model))
    assert len(model.requests) == 3


def test_a_file_too_large_for_an_answer_is_refused_before_the_model_is_asked(project: Project) -> None:
    project.write({TEST_FILE: "# a line\n" * 1000})
    project.git("add", TEST_FILE)
    project.git("commit", "-qm", "large")
    model = ScriptedModel([])
    with pytest.raises(UsageError, match=r"tests/test_discount\.py has 9,000 characters") as refused:
        project.run(item(), context=context(project, model, max_answer_tokens=1_000))
    assert "edit_format: tools" in refused.value.hint
    assert model.requests == []


@pytest.mark.slow
def test_a_refactor_without_files_leaves_the_code_as_green_has_it(work: MakeWork, project: Project) -> None:
    made = work(FEATURE)
    answers = [says(block(TEST_FILE, TEST)), says(block("discount.py", CODE)), says("It is good as it is.")]
    executor = made.executor(ScriptedModel(answers), refactor=True, edit_format="blocks")
    with executor.running():
        executor.run_all()
    assert made.saved.execution(1).status == Status.COMPLETED
    assert [event.open for event in project.seen if isinstance(event, GateJudged)] == [True, True, True]
    assert "status: done\n" in project.git("show", f"HEAD:{made.ticket.spec_path.relative_to(project.folder)}")
