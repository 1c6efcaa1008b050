"""The prompt of the Executor when a person works beside it: by words alone, over a real project."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.errors import CddError
from cdd_agent.model.conversation import Model
from cdd_agent.repl import dialogs
from cdd_agent.runs.plan_steps import PlanSteps
from cdd_agent.runs.run import Run
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.tickets import ticket as tickets
from tests.cdd_agent.runs.plan_steps.conftest import ONE, SPEC, Work, plan
from tests.fakes.demo import captured
from tests.fakes.model import ScriptedModel, says
from tests.fakes.project import CODE, TEST, TEST_FILE, Project, writes

CHAIN = plan((1, "First", "none"), (2, "Second", "1"), (3, "Third", "2"))


class Talk:
    """An Executor of a ticket, what is printed, and whether it still listens."""

    def __init__(self, work: Work, executor: Run[PlanSteps]) -> None:
        self.work = work
        self.executor = executor
        with captured() as (self.screen, self._shown):
            self.is_listening = True

    def greets(self) -> str:
        return self._printed(lambda: dialogs.start_execution(self.executor, screen=self.screen))

    def says(self, words: str) -> str:
        return self._printed(lambda: dialogs.handle_executor_input(self.executor, words, screen=self.screen))

    def refuses(self, words: str) -> CddError:
        with pytest.raises(CddError) as refused:
            self.says(words)
        return refused.value

    def _printed(self, act: Callable[[], bool]) -> str:
        before = len(self._shown.getvalue())
        self.is_listening = act()
        return " ".join(self._shown.getvalue()[before:].split())


MakeTalk = Callable[[str, Model], Talk]


@pytest.fixture
def project(tmp_path: Path, *, interpreter: Interpreter, bytecode: Path) -> Project:
    return Project.make(tmp_path / "project", interpreter=interpreter, bytecode=bytecode)


@pytest.fixture
def talk(project: Project) -> MakeTalk:
    def make(content: str, model: Model) -> Talk:
        ticket = tickets.create(project.folder, "sale", title="A sale", type="feature")
        ticket.spec_path.write_text(SPEC)
        ticket.plan_path.write_text(content)
        work = Work(project=project, ticket=ticket)
        return Talk(work, work.executor(model))

    return make


@pytest.mark.slow
def test_words_and_numbers_are_read_in_any_case(talk: MakeTalk) -> None:
    made = talk(CHAIN, ScriptedModel([]))
    assert "waits for step 1, which was skipped" in made.says("SKIP 1")
    assert "Type: retry 1, done 1, skip 2" in made.says("Skip step 3")
    assert made.work.statuses == {1: "skipped", 2: "pending", 3: "skipped"}


@pytest.mark.parametrize("words", ["continue 2", "status now", "exit 1", "keep it"])
def test_words_that_take_no_number_get_none(talk: MakeTalk, words: str) -> None:
    assert "Unknown input" in talk(CHAIN, ScriptedModel([])).refuses(words).happened


def test_a_step_that_is_named_otherwise_than_by_number_is_asked_for(talk: MakeTalk) -> None:
    refused = talk(CHAIN, ScriptedModel([])).refuses("retry two")
    assert refused.hint == "for example: retry 2"


def test_changes_made_by_hand_are_listed_and_committed_by_a_word(talk: MakeTalk, project: Project) -> None:
    made = talk(ONE, ScriptedModel([says("No."), writes("a.md", "# a\n")]))
    assert "failed and was rolled back" in made.says("")
    project.write({"prices.py": "def total(prices):\n    return sum(prices) + 0\n"})
    told = made.says("retry")
    assert "You have uncommitted changes. cdd did not touch them: prices.py commit" in told
    assert "Type: commit, keep or leave, and the step runs." in told
    assert made.work.statuses == {1: "failed"}
    assert "1 of 1 steps are completed; nothing is left to do." in made.says("commit Prices, by Hand")
    assert not made.is_listening
    assert project.log == ["plan: A sale", "Prices, by Hand", "docs: Ten percent off"]


@pytest.mark.slow
def test_a_retry_that_waited_for_a_decision_runs_when_enter_finds_no_changes(talk: MakeTalk, project: Project) -> None:
    made = talk(ONE, ScriptedModel([says("No."), writes("a.md", "# a\n")]))
    made.says("")
    project.write({"extra.py": ""})
    assert "You have uncommitted changes" in made.says("retry 1")
    assert "You have uncommitted changes" in made.says("")
    (project.folder / "extra.py").unlink()
    assert "nothing is left to do" in made.says("")


def test_a_retry_that_waited_for_a_decision_is_forgotten_on_leaving(talk: MakeTalk, project: Project) -> None:
    made = talk(ONE, ScriptedModel([]))
    project.write({"extra.py": ""})
    assert "You have uncommitted changes" in made.says("retry 1")
    made.says("exit")
    assert "The next steps take your changes along" in made.says("keep")
    assert made.is_listening


@pytest.mark.slow
def test_changes_made_by_hand_can_be_kept_out_of_the_commits(talk: MakeTalk, project: Project) -> None:
    made = talk(ONE, ScriptedModel([writes("a.md", "# a\n")]))
    project.write({"prices.py": "def total(prices):\n    return sum(prices) + 0\n"})
    assert "You have uncommitted changes" in made.says("")
    assert "You have uncommitted changes" in made.says("")
    told = made.says("keep")
    assert "take your changes along" in told
    assert "nothing is left to do" in told
    assert project.status == " M prices.py"
    assert project.git("show", "--format=", "--name-only", "HEAD").split() == ["a.md", "tickets/sale/spec.yaml"]


@pytest.mark.slow
def test_a_step_whose_test_passes_already_is_offered_to_be_marked_done(talk: MakeTalk, project: Project) -> None:
    made = talk(plan((1, "Ten percent off", "none"), kind="feature"), ScriptedModel([writes(TEST_FILE, TEST)]))
    project.write({"discount.py": CODE})
    made.says("commit The discount, by hand")
    told = made.says("")
    assert "its test passes without a change, so the code may already exist. Type: done 1" in told
    assert "target_missing" in made.refuses("done").happened
    project.write({TEST_FILE: TEST})
    made.says("commit")
    assert "✔ completed" in made.says("DONE 1")
    assert not made.is_listening


@pytest.mark.slow
def test_the_dependency_that_a_step_waits_for_is_named(talk: MakeTalk) -> None:
    made = talk(CHAIN, ScriptedModel([says("No."), writes("a.md", "# a\n"), writes("b.md", "# b\n")]))
    assert "Step 1/3 failed and was rolled back; steps 2 and 3 wait for it." in made.says("")
    assert "Step 2/3 waits for step 1, which was skipped. Type: retry 1, done 1, skip 2" in made.says("skip")
    assert "Step 2/3 waits for step 1" in made.says("")
    assert "Enter runs step 2/3: Second" in made.says("retry 1")
    assert "Enter runs step 3/3: Third" in made.says("")


@pytest.mark.slow
def test_a_plan_that_was_changed_is_told_before_anything_is_run(talk: MakeTalk) -> None:
    made = talk(CHAIN, ScriptedModel([writes("a.md", "# a\n"), writes("b.md", "# b\n")]))
    made.says("")
    changed = plan((1, "First", "none"), (2, "Fourth", "none")) + "\nIn other words.\n"
    made.work.ticket.plan_path.write_text(changed)
    told = made.says("")
    assert "plan.md has changed since the last step" in told
    assert "step 3 'Third' is no longer in the plan" in told
    assert "To change the plan with the Planner: /plan" in told
    assert made.work.statuses == {1: "completed", 2: "pending", 3: "pending"}
    assert "nothing is left to do" in made.says("")


@pytest.mark.slow
@pytest.mark.parametrize("words", ["skip 1", "done 1"])
def test_a_number_is_that_of_the_plan_that_was_seen(talk: MakeTalk, words: str) -> None:
    made = talk(CHAIN, ScriptedModel([writes("a.md", "# a\n")]))
    made.says("")
    made.work.ticket.plan_path.write_text(plan((1, "Zeroth", "none"), (2, "First", "none"), (3, "Second", "2")))
    assert "plan.md has changed since the last step" in made.says(words)
    assert set(made.work.statuses.values()) == {"completed", "pending"}
    made.says("skip 1")
    assert made.work.statuses[1] == "skipped"


@pytest.mark.slow
def test_a_stale_step_keeps_the_executor_listening_and_can_be_done_again(talk: MakeTalk) -> None:
    made = talk(ONE, ScriptedModel([writes("a.md", "# a\n")]))
    made.says("")
    made.work.ticket.plan_path.write_text(ONE + "\nNow in other words.\n")
    again = Talk(made.work, made.work.executor(ScriptedModel([writes("b.md", "# b\n")])))
    greeting = again.greets()
    assert "step 1 'Ten percent off' is stale" in greeting
    assert "the text of step 1 has changed. Type: retry 1, exit" in greeting
    assert again.is_listening
    assert "1 of 1 steps are completed; nothing is left to do." in again.says("retry")
    assert not again.is_listening


@pytest.mark.slow
def test_the_end_is_a_summary_with_files_time_and_the_next_command(talk: MakeTalk) -> None:
    told = talk(ONE, ScriptedModel([writes("a.md", "# a\n")])).says("")
    assert "created 1: a.md" in told
    assert "review sale, or: git log --oneline" in told


def get_first_message(model: ScriptedModel) -> str:
    return str(model.requests[-1].messages[0].content)


@pytest.mark.slow
def test_a_sentence_after_a_refusal_is_guidance_for_the_next_attempts(talk: MakeTalk, project: Project) -> None:
    model = ScriptedModel([says("No."), says("No."), writes("a.md", "# a\n")])
    made = talk(ONE, model)
    assert "or say what to do differently" in made.says("")
    assert "failed and was rolled back" in made.says("use one heading only")
    assert "use one heading only" in get_first_message(model)
    project.write({"prices.py": "def total(prices):\n    return sum(prices) + 0\n"})
    assert "You have uncommitted changes" in made.says("retry 1 and name it a")
    assert "nothing is left to do" in made.says("keep")
    assert "use one heading only\\nand name it a" in get_first_message(model)


def test_a_sentence_before_the_first_attempt_is_guidance_too(talk: MakeTalk) -> None:
    model = ScriptedModel([writes("a.md", "# a\n")])
    made = talk(ONE, model)
    assert "nothing is left to do" in made.says("use one heading only")
    assert "use one heading only" in get_first_message(model)
    assert made.executor.state.execution(1).guidance == ""


@pytest.mark.slow
def test_a_completed_step_runs_again_with_guidance_only(talk: MakeTalk, project: Project) -> None:
    model = ScriptedModel([writes("a.md", "# a\n"), writes("b.md", "# b\n")])
    made = talk(ONE, model)
    made.says("")
    assert "its text has not changed" in made.refuses("retry 1").happened
    assert "nothing is left to do" in made.says("retry 1 call it b")
    assert "call it b" in str(model.requests[-1].messages), "the conversation of the first run continues"
    assert project.git("show", "--format=", "--name-only", "HEAD").split() == ["b.md"]
