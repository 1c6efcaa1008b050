"""Cycles that are killed, crash or are interrupted, and what the user does until they continue."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import CddError, ModelError, UsageError
from cdd_agent.events import Event, GateJudged, Notice, SuiteStarted
from cdd_agent.git.landing import LandingConflict
from cdd_agent.model.conversation import Text, ToolCall, Turn
from cdd_agent.model.recording import RecordedTurn, ReplayModel
from cdd_agent.work.state import RunState
from cdd_agent.work.state_file import load_state, save_state
from cdd_agent.work.wording import format_reason
from tests.fakes.cases import soak_after
from tests.fakes.command_line import run_words
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, Project, content_as_it_is, green, item, red, runs, writes

DOCS = item("docs", tests=())
"""Work of a single phase."""

FILES_MINE = "def total(prices):\n    return sum(prices)  # mine\n"
LANDED = ["test: Ten percent off", "feat: Ten percent off"]


def played(phase: str, turns: list[tuple[str, Turn]]) -> list[RecordedTurn]:
    """Turns of one phase by the number of the attempt, found by the last line of the prompt."""
    return [
        RecordedTurn(
            number=number,
            content=tuple(block for block in turn.content if isinstance(block, Text | ToolCall)),
            stop_reason="tool_use" if turn.calls else "end_turn",
            when=f"^Work: executor sale step 1 {phase} attempt {attempt}$",
        )
        for number, (attempt, turn) in enumerate(turns, start=1)
    ]


def story() -> ReplayModel:
    """RED, a GREEN in words only, GREEN, and no refactoring."""
    return ReplayModel(
        [
            *played("red", [("1", red())]),
            *played("green", [("1", says("It is done.")), ("2", green())]),
            *played("refactor", [("1", content_as_it_is())]),
        ]
    )


SAVES = 13
"""States that the story saves on its way."""


@pytest.mark.slow
def test_the_story_saves_as_often_as_the_crashes_below_assume(project: Project) -> None:
    saved: list[RunState] = []
    _, why = project.run(item(), context=project.context(story()), save=saved.append)
    assert why is None
    assert len(saved) == SAVES


QUICK = {7}
"""A landing; the soak has all of them, and the shorter story below has the other moments of a phase."""


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in range(SAVES)]
)
def test_a_crash_at_any_save_changes_nothing_in_the_end(project: Project, number: int) -> None:
    saved = [project.start()]

    def crash(state: RunState) -> None:
        if len(saved) > number:
            raise OSError("No space left on device")
        saved.append(state)

    with pytest.raises(OSError, match="No space"):
        project.run(item(), context=project.context(story()), state=saved[-1], save=crash)
    step, why = project.run(item(), context=project.context(story()), state=saved[-1], save=saved.append)
    assert why is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
    assert [attempt.phase for attempt in step.attempts] == ["red", "green", "green", "refactor"]
    assert (project.folder / "discount.py").read_text() == CODE
    assert project.status == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, *(pytest.param(number, marks=pytest.mark.slow) for number in (5, 8))])
def test_an_interruption_right_after_any_save_changes_nothing_in_the_end(project: Project, number: int) -> None:
    saved = [project.start()]

    def stop(state: RunState) -> None:
        saved.append(state)
        if len(saved) > number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        project.run(item(), context=project.context(story()), state=saved[-1], save=stop)
    step, why = project.run(item(), context=project.context(story()), state=saved[-1], save=saved.append)
    assert why is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
    assert [attempt.phase for attempt in step.attempts] == ["red", "green", "green", "refactor"]
    assert project.status == ""


@soak_after(1, "number", [1, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2, 4))])
def test_a_crash_at_any_save_of_a_single_phase_changes_nothing_in_the_end(project: Project, number: int) -> None:
    saved = [project.start()]
    turns = [("1", says("It is done.")), ("2", writes("README.md", "# Prices\n"))]

    def crash(state: RunState) -> None:
        if len(saved) > number:
            raise OSError("No space left on device")
        saved.append(state)

    with pytest.raises(OSError, match="No space"):
        project.run(DOCS, context=project.context(ReplayModel(played("green", turns))), state=saved[-1], save=crash)
    step, why = project.run(
        DOCS, context=project.context(ReplayModel(played("green", turns))), state=saved[-1], save=saved.append
    )
    assert why is None
    assert (len(step.attempts), project.log, project.status) == (2, ["docs: Ten percent off"], "")


@soak_after(0, "end", ("ctrl-c", "kill"))
def test_an_end_right_after_a_commit_is_saved_leaves_commit_and_index_in_order(
    end: str, *, project: Project, tmp_path: Path
) -> None:
    kept = tmp_path / "state.json"

    def save(state: RunState) -> None:
        save_state(kept, state)
        if "red" in state.execution(1).commits:
            if end == "kill":
                os._exit(9)
            raise KeyboardInterrupt

    context = project.context(ScriptedModel([red()]))
    if end == "kill" and (process := os.fork()):
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9
    else:
        with pytest.raises(KeyboardInterrupt):
            project.run(item(refactor=False), context=context, save=save)
    state = load_state(kept)
    assert state is not None
    step, why = project.run(item(refactor=False), context=project.context(ScriptedModel([green()])), state=state)
    assert (why, len(step.attempts), project.status) == (None, 2, "")
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]


@pytest.mark.slow
def test_what_a_commit_hook_reformats_is_where_the_next_phase_goes_on_from(project: Project) -> None:
    hook = project.folder / ".git" / "hooks" / "pre-commit"
    hook.write_text(f"#!/bin/sh\necho '# formatted' >> {TEST_FILE}\ngit add {TEST_FILE}\n")
    hook.chmod(0o755)
    state = stopped_in_green(project)
    assert project.status == ""
    assert any("A commit hook changed files" in event.text for event in project.seen if isinstance(event, Notice))
    hook.unlink()
    context = project.context(ScriptedModel([green()]))
    assert project.run(item(refactor=False), context=context, state=state)[1] is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]


def interrupted_at(number: int, stop: CddError | KeyboardInterrupt) -> ScriptedModel:
    turns: list[Turn | CddError | KeyboardInterrupt] = [
        says(call("Write", file_path=TEST_FILE, content=TEST)),
        says("The test is written."),
        says(call("Write", file_path="discount.py", content=CODE)),
        says("The code is written."),
    ]
    return ScriptedModel([*turns[:number], stop])


def no_answer() -> ModelError:
    return ModelError("Overloaded.", hint="wait")


def stopped_in_green(project: Project) -> RunState:
    saved = [project.start()]
    with pytest.raises(KeyboardInterrupt):
        project.run(
            item(),
            context=project.context(ScriptedModel([red(), KeyboardInterrupt()])),
            state=saved[-1],
            save=saved.append,
        )
    return saved[-1]


def test_a_killed_run_loses_its_half_done_attempt_and_nothing_else(project: Project) -> None:
    saved = [project.start()]
    stops = project.context(ScriptedModel([says("It is done."), KeyboardInterrupt()]))
    with pytest.raises(KeyboardInterrupt):
        project.run(DOCS, context=stops, state=saved[-1], save=saved.append)
    tree = stops.workplace.tree
    for name, content in (("half.py", ""), ("README.md", "half\n")):
        (tree.root / name).write_text(content)
    for command in (("checkout", "-qb", "half"), ("add", "-A")):
        run_words(tree, *command)
    project.write({"mine.txt": "mine\n"})
    context = project.context(ScriptedModel([writes("README.md", "# Prices\n")]))
    step, why = project.run(DOCS, context=context, state=saved[-1])
    assert why is None
    assert (len(step.attempts), project.log, project.status) == (2, ["docs: Ten percent off"], "?? mine.txt")
    assert project.git("symbolic-ref", "--short", "HEAD") == "main"
    assert project.git("show", "--format=", "--name-only", "HEAD") == "README.md"
    assert not (tree.root / "half.py").exists()


@pytest.mark.slow
def test_a_run_tree_that_was_deleted_is_made_again_with_the_work_of_the_last_attempt(project: Project) -> None:
    saved = [project.start()]
    model = ScriptedModel([red(), writes("discount.py", "def discount(price): pass\n"), KeyboardInterrupt()])
    stops = project.context(model)
    with pytest.raises(KeyboardInterrupt):
        project.run(item(refactor=False), context=stops, state=saved[-1], save=saved.append)
    assert project.status == "", "a refused attempt stays in the run tree"
    project.git("worktree", "remove", "--force", str(stops.workplace.tree.root))
    edits = runs("sed -i 's/pass/return price - 10/' discount.py")
    context = project.context(ScriptedModel([edits]))
    assert project.run(item(refactor=False), context=context, state=saved[-1])[1] is None
    assert (project.folder / "discount.py").read_text() == "def discount(price): return price - 10\n"


@pytest.mark.parametrize(
    ("number", "stop"),
    [
        (3, KeyboardInterrupt),
        *(pytest.param(number, KeyboardInterrupt, marks=pytest.mark.slow) for number in (0, 1, 2)),
        pytest.param(3, no_answer, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_attempt_leaves_nothing_and_the_next_run_goes_on(
    project: Project, *, number: int, stop: Callable[[], CddError | KeyboardInterrupt]
) -> None:
    saved = [project.start()]
    context = project.context(interrupted_at(number, stop()))
    with pytest.raises((KeyboardInterrupt, ModelError)):
        project.run(item(refactor=False), context=context, state=saved[-1], save=saved.append)
    assert project.log == LANDED[: number // 2]
    assert project.status == "", "an interrupted attempt leaves no half-written file"

    rest = ScriptedModel([red(), green()][number // 2 :])
    _, why = project.run(item(refactor=False), context=project.context(rest), state=saved[-1])
    assert why is None
    assert project.log == LANDED
    assert project.status == ""


# What the user does meanwhile.


def continued(project: Project, state: RunState, *turns: Turn, max_attempts: int = 3) -> str | None:
    """Continue in GREEN, and return why the cycle failed."""
    context = project.context(ScriptedModel([*turns]), max_attempts=max_attempts)
    return project.run(item(refactor=False), context=context, state=state)[1]


def test_what_the_user_changes_meanwhile_stays_uncommitted(project: Project) -> None:
    state = stopped_in_green(project)
    project.write({"prices.py": FILES_MINE, "half.py": ""})
    project.git("add", "half.py")
    assert continued(project, state, green()) is None
    assert project.log == LANDED
    assert project.status == "A  half.py\n M prices.py"
    assert (project.folder / "prices.py").read_text() == FILES_MINE


@pytest.mark.slow
def test_what_the_user_commits_meanwhile_stays_and_the_step_lands_on_it(project: Project) -> None:
    state = stopped_in_green(project)
    project.write({"prices.py": FILES_MINE, "half.py": ""})
    project.git("commit", "--quiet", "-am", "mine")
    assert continued(project, state, green()) is None
    assert project.log == ["test: Ten percent off", "mine", "feat: Ten percent off"]
    assert project.git("show", "--format=", "--name-only", "HEAD") == "discount.py"
    assert project.status == "?? half.py"
    assert (project.folder / "prices.py").read_text() == FILES_MINE


@pytest.mark.slow
def test_a_file_that_the_user_creates_where_the_run_does_waits_for_a_decision(project: Project) -> None:
    state = stopped_in_green(project)
    project.write({"discount.py": "mine\n"})
    saved = [state]
    context = project.context(ScriptedModel([green()]))
    with pytest.raises(LandingConflict, match=r"discount\.py: you changed the same lines, or created it"):
        project.run(item(refactor=False), context=context, state=state, save=saved.append)
    assert (project.log, project.status) == (["test: Ten percent off"], "?? discount.py")
    assert (project.folder / "discount.py").read_text() == "mine\n"
    (project.folder / "discount.py").rename(project.folder / "mine.py")
    assert continued(project, saved[-1]) is None, "the attempt is not made again"
    assert (project.log, project.status) == (LANDED, "?? mine.py")
    assert (project.folder / "discount.py").read_text() == CODE


@pytest.mark.slow
def test_on_another_branch_nothing_lands_until_the_user_returns(project: Project) -> None:
    state = stopped_in_green(project)
    project.git("switch", "--quiet", "-c", "other")
    saved = [state]
    context = project.context(ScriptedModel([green()]))
    with pytest.raises(UsageError, match="HEAD is on other, but the run began on main"):
        project.run(item(refactor=False), context=context, state=state, save=saved.append)
    assert (project.log, project.status) == (["test: Ten percent off"], "")
    project.git("switch", "--quiet", "main")
    assert continued(project, saved[-1]) is None, "the attempt is not made again"
    assert (project.log, project.status) == (LANDED, "")
    assert project.git("log", "-1", "--format=%s", "other") == "test: Ten percent off"


def test_after_the_branch_was_renamed_the_hint_names_the_way_on(project: Project) -> None:
    state = stopped_in_green(project)
    project.git("branch", "-m", "trunk")
    project.git("branch", "-m", "later")
    context, saved = project.context(ScriptedModel([green()])), [state]
    with pytest.raises(UsageError, match="HEAD is on later, but the run began on main") as refused:
        project.run(item(refactor=False), context=context, state=state, save=saved.append)
    command = refused.value.hint.partition(": ")[2].partition(",")[0]
    assert command == "git branch -m main"
    project.git(*command.split()[1:])
    assert continued(project, saved[-1]) is None
    assert (project.log, project.status) == (LANDED, "")


@pytest.mark.slow
def test_on_a_branch_without_commits_nothing_lands(project: Project) -> None:
    state = stopped_in_green(project)
    project.git("switch", "--quiet", "--orphan", "empty")
    with pytest.raises(UsageError, match="HEAD is on empty, but the run began on main"):
        continued(project, state, green())
    project.git("switch", "--quiet", "main")
    assert (project.log, project.status) == (["test: Ten percent off"], "")


def test_nothing_lands_on_a_branch_to_which_the_user_switches_while_tests_run(project: Project) -> None:
    state = stopped_in_green(project)
    project.git("commit", "--quiet", "--allow-empty", "-m", "mine")
    context = project.context(ScriptedModel([green()]))

    def switch(event: Event) -> None:
        if isinstance(event, SuiteStarted) and event.purpose == "all tests of your branch":
            project.git("switch", "--quiet", "-c", "other")

    with pytest.raises(UsageError, match="HEAD is on other, but the run began on main"):
        project.run(item(refactor=False), context=replace(context, emit=switch), state=state)
    assert project.log == ["test: Ten percent off", "mine"]


@pytest.mark.slow
def test_files_that_are_deleted_after_the_gate_are_deleted_in_no_commit(project: Project) -> None:
    state = stopped_in_green(project)
    context = project.context(ScriptedModel([green()]))

    def delete(event: Event) -> None:
        if isinstance(event, GateJudged):
            for path in context.workspace.root.glob("*.py"):
                path.unlink()

    assert project.run(item(refactor=False), context=replace(context, emit=delete), state=state)[1] is None
    assert project.git("show", "--format=", "--name-status", "HEAD") == "A\tdiscount.py"
    assert (project.log, project.status) == (LANDED, "")


@pytest.mark.slow
def test_a_commit_that_breaks_a_test_of_the_users_is_refused(project: Project) -> None:
    state = stopped_in_green(project)
    theirs = "import pathlib\n\n\ndef test_size():\n    assert not pathlib.Path('extra.md').exists()\n"
    project.write({"tests/test_size.py": theirs})
    project.git("add", "-A")
    project.git("commit", "--quiet", "-m", "mine")
    breaks = runs("printf 'def discount(price):\\n    return price - 10\\n' > discount.py; touch extra.md")
    assert continued(project, state, breaks, runs("rm extra.md")) is None
    closed = [event for event in project.seen if isinstance(event, GateJudged) and not event.open]
    (reason,) = closed[-1].reasons
    assert format_reason(reason).startswith("commit_refused: On your branch")
    assert "tests/test_size.py::test_size" in format_reason(reason)
    assert project.log == ["test: Ten percent off", "mine", "feat: Ten percent off"]
    assert project.status == ""


@pytest.mark.slow
def test_a_failed_step_takes_its_own_commits_off_and_none_of_the_users(project: Project) -> None:
    saved = [project.start()]
    stops = project.context(ScriptedModel([KeyboardInterrupt()]))
    with pytest.raises(KeyboardInterrupt):
        project.run(item(refactor=False), context=stops, state=saved[-1], save=saved.append)
    project.write({"prices.py": FILES_MINE, "mine.txt": "mine\n"})
    project.git("commit", "--quiet", "-am", "mine")
    wrong = writes("discount.py", "def discount(price):\n    return price\n")
    context = project.context(ScriptedModel([red(), wrong]), max_attempts=1)
    step, why = project.run(item(refactor=False), context=context, state=saved[-1])
    assert why is not None
    assert "red" in step.commits
    assert (project.log, project.status) == (["mine"], "?? mine.txt")
    assert (project.folder / "prices.py").read_text() == FILES_MINE
    assert not (project.folder / TEST_FILE).exists()


@pytest.mark.slow
def test_a_failed_step_leaves_a_commit_of_the_users_on_top_of_its_own(project: Project) -> None:
    state = stopped_in_green(project)
    project.write({"prices.py": FILES_MINE})
    project.git("commit", "--quiet", "-am", "mine")
    wrong = writes("discount.py", "def discount(price):\n    return price\n")
    assert continued(project, state, wrong, max_attempts=1) is not None
    assert (project.log, project.status) == (["test: Ten percent off", "mine"], "")
    assert any("did not make" in event.text for event in project.seen if isinstance(event, Notice))
