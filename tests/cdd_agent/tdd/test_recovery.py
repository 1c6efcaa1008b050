"""The files of a step after an interruption or a failure."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import Notice, RolledBack
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.landing import Landed, LandingJournal, Landings
from cdd_agent.git.repository import CommitId
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.locks import alone_on
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import snapshot_ref
from cdd_agent.work.outcome import Closed, Open
from cdd_agent.work.records import find_records
from cdd_agent.work.state import AttemptRecord, Status, StepExecution, lock_repository
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project

TRIED = AttemptRecord(phase="red", number=1, outcome=Open())
MINE = "def total(prices):\n    return sum(prices)  # mine\n"


def begun(project: Project, context: Context) -> StepExecution:
    """A step that has begun."""
    fresh = project.start().execution(1)
    return replace(fresh, checkpoint=StepRecovery("sale", fresh, context=context).begin())


@pytest.fixture
def context(project: Project) -> Context:
    return project.context(ScriptedModel([]))


@pytest.fixture
def step(project: Project, context: Context) -> StepExecution:
    """Begun, with a file of the user's uncommitted."""
    project.write({"mine.txt": "mine\n"})
    return begun(project, context)


def commit(project: Project, name: str, content: str = "x = 1\n") -> CommitId:
    """Commit one file as the user."""
    project.write({name: content})
    project.git("add", name)
    project.git("commit", "--quiet", "-m", name)
    return CommitId(project.git("rev-parse", "HEAD"))


def land(context: Context, name: str, content: str = "x = 1\n") -> str:
    """Commit one file where the run works, and land it."""
    tip = context.workplace.tree.read_head()
    assert tip is not None
    write(context, name, content)
    made = commit_paths(context.workplace.tree, name, paths=[name])
    landed = context.workplace.adapt(made, tip=tip)
    context.workplace.land(landed, made=made, tip=tip)
    context.workplace.follow(landed, made=made, tip=tip)
    return landed


def write(context: Context, name: str, content: str) -> None:
    path = context.workspace.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def content_of(folder: Path) -> dict[str, str]:
    """The files of the project in ``folder``."""
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(name): (folder / name).read_text() for name in names if name.parts[0] not in (".git", ".cdd")}


# Interruptions in a run tree.


def test_an_interrupted_attempt_goes_back_to_the_checkpoint_and_the_users_files_stay(
    project: Project, context: Context, step: StepExecution
) -> None:
    before = content_of(context.workspace.root)
    write(context, "prices.py", "half done\n")
    write(context, "half.py", "")
    project.write({"prices.py": MINE})
    tip = StepRecovery("sale", step, context=context).restore()
    assert tip == project.repository.read_head()
    assert content_of(context.workspace.root) == before
    assert project.status == " M prices.py\n?? mine.txt"
    assert (project.folder / "prices.py").read_text() == MINE
    assert project.seen == [], "what is in a run tree is nobody's"


def test_the_work_of_the_last_attempt_is_restored_though_the_tree_was_lost(
    project: Project, context: Context, step: StepExecution
) -> None:
    write(context, "half.py", "of the model\n")
    tried = context.snapshots.take(snapshot_ref("sale", step, name="red-1"), message="red attempt 1")
    project.git("worktree", "remove", "--force", str(context.workplace.tree.root))
    underway = replace(step, attempts=(replace(TRIED, outcome=Closed(), checkpoint=tried.ref),))
    again = project.context(ScriptedModel([]))
    StepRecovery("sale", underway, context=again).restore()
    assert (again.workspace.root / "half.py").read_text() == "of the model\n"
    assert project.status == "?? mine.txt"


@pytest.mark.slow
def test_a_step_works_on_its_own_commit_whatever_the_user_commits_meanwhile(
    project: Project, context: Context, step: StepExecution
) -> None:
    tip = project.repository.read_head()
    theirs = commit(project, "theirs.py")
    assert StepRecovery("sale", step, context=context).restore() == tip
    assert not (context.workspace.root / "theirs.py").exists()
    assert project.repository.read_head() == theirs


@pytest.mark.slow
def test_changes_that_were_taken_along_are_there_after_an_interruption_as_they_were(
    project: Project, context: Context
) -> None:
    project.write({"prices.py": MINE})
    context.workplace.carries = True
    step = begun(project, context)
    project.write({"prices.py": "changed again\n"})
    write(context, "prices.py", "half done\n")
    tip = StepRecovery("sale", step, context=context).restore()
    assert (context.workspace.root / "prices.py").read_text() == MINE
    assert tip == context.workplace.tree.read_head() != project.repository.read_head()
    assert (project.folder / "prices.py").read_text() == "changed again\n"


@pytest.mark.slow
def test_a_new_try_at_a_step_begins_on_the_users_commit(
    project: Project, context: Context, step: StepExecution
) -> None:
    write(context, "half.py", "")
    theirs = commit(project, "theirs.py")
    recovery = StepRecovery("sale", step, context=context)
    recovery.begin()
    assert recovery.refs.read_tip() == theirs
    assert (context.workspace.root / "theirs.py").exists()
    assert not (context.workspace.root / "half.py").exists()


# What is known of a step.


@pytest.mark.slow
def test_a_step_is_underway_while_there_is_something_to_lose(context: Context, step: StepExecution) -> None:
    assert not StepRecovery("sale", step, context=context).is_underway(), "nothing has come of it yet"
    tried = replace(step, attempts=(replace(TRIED, outcome=Closed()),))
    assert StepRecovery("sale", tried, context=context).is_underway()
    assert not StepRecovery("sale", replace(tried, status=Status.FAILED), context=context).is_underway()


@soak_after(1, "name", ["start", "tip"])
def test_a_step_whose_checkpoint_or_tip_is_gone_is_refused_with_the_way_to_restart(
    project: Project, context: Context, *, step: StepExecution, name: str
) -> None:
    tried = StepRecovery("sale", replace(step, attempts=(TRIED,)), context=context)
    tried.require_snapshots()
    project.git("update-ref", "-d", tried.refs.ref(name))
    assert not tried.is_underway()
    with pytest.raises(UsageError, match=rf"-{name} is not in this repository(.|\n)*Nothing was touched") as refused:
        tried.require_snapshots()
    assert "cdd exec sale --retry 1" in refused.value.hint


@pytest.mark.slow
def test_a_step_that_has_begun_is_known_whatever_number_an_edited_plan_gives_it(
    project: Project, context: Context, step: StepExecution
) -> None:
    renumbered = StepRecovery("sale", replace(step, step_number=3), context=context)
    assert renumbered.refs.read_tip() == project.repository.read_head()
    assert renumbered.refs.ref("tip") == snapshot_ref("sale", step, name="tip")


@pytest.mark.slow
def test_a_new_number_finds_no_checkpoint_of_the_step_that_had_it(context: Context, step: StepExecution) -> None:
    other = replace(step, base_commit="0" * 40, checkpoint=None)
    assert snapshot_ref("sale", step, name="start") != snapshot_ref("sale", other, name="start")
    StepRecovery("sale", other, context=context).begin()
    assert context.snapshots.find(str(step.checkpoint)) is not None


@pytest.mark.slow
def test_a_phase_that_was_given_up_leaves_no_checkpoint_to_go_on_from(context: Context, step: StepExecution) -> None:
    green = context.snapshots.take("refs/cdd/checkpoints/sale/green", message="green")
    refused = context.snapshots.take("refs/cdd/checkpoints/sale/refused", message="refused")
    attempts = (
        AttemptRecord(phase="green", number=1, outcome=Open(), checkpoint=green.ref),
        AttemptRecord(phase="refactor", number=1, outcome=Closed(), checkpoint=refused.ref),
    )
    over = replace(step, attempts=attempts, commits={"green": "g", "refactor": "g"})
    assert StepRecovery("sale", over, context=context).refs.find_last() == green
    at_work = replace(over, commits={"green": "g"})
    assert StepRecovery("sale", at_work, context=context).refs.find_last() == refused


# Undoing.


def test_undoing_takes_the_steps_commits_off_and_keeps_them(
    project: Project, context: Context, step: StepExecution
) -> None:
    red = land(context, "tests/test_a.py")
    assert (project.folder / "tests/test_a.py").exists()
    StepRecovery("sale", replace(step, commits={"red": red}), context=context).undo(why="over")
    assert project.log == []
    assert project.status == "?? mine.txt"
    assert project.git("for-each-ref", "--format=%(objectname)", "refs/cdd/abandoned/") == red


@pytest.mark.slow
def test_undoing_keeps_the_refused_work(project: Project, context: Context, step: StepExecution) -> None:
    write(context, "half.py", "of the model\n")
    StepRecovery("sale", step, context=context).undo(why="over")
    (event,) = [event for event in project.seen if isinstance(event, RolledBack)]
    assert event.why == "over"
    assert project.git("show", f"{event.kept}:half.py") == "of the model"
    assert not (context.workspace.root / "half.py").exists()


def test_undoing_never_takes_somebody_elses_commit_off(project: Project, context: Context, step: StepExecution) -> None:
    red = land(context, "tests/test_a.py")
    commit(project, "theirs.py")
    StepRecovery("sale", replace(step, commits={"red": red}), context=context).undo(why="over")
    assert project.log == ["tests/test_a.py", "theirs.py"]
    assert project.status == "?? mine.txt"
    assert any("did not make" in event.text for event in project.seen if isinstance(event, Notice))


@pytest.mark.slow
def test_undoing_leaves_a_commit_on_which_the_steps_own_has_landed(
    project: Project, context: Context, step: StepExecution
) -> None:
    theirs = commit(project, "theirs.py")
    red = land(context, "tests/test_a.py")
    assert project.log == ["theirs.py", "tests/test_a.py"]
    StepRecovery("sale", replace(step, commits={"red": red}), context=context).undo(why="over")
    assert project.repository.read_head() == theirs
    assert (project.folder / "theirs.py").exists()
    assert not (project.folder / "tests/test_a.py").exists()
    assert project.status == "?? mine.txt"


@pytest.mark.slow
def test_undoing_leaves_a_commit_between_those_of_the_step_with_all_below_it(
    project: Project, context: Context, step: StepExecution
) -> None:
    red = land(context, "tests/test_a.py")
    theirs = commit(project, "theirs.py")
    green = land(context, "a.py")
    StepRecovery("sale", replace(step, commits={"red": red, "green": green}), context=context).undo(why="over")
    assert project.log == ["tests/test_a.py", "theirs.py"]
    assert any(f"returns to {theirs[:10]}" in event.text for event in project.seen if isinstance(event, Notice))
    assert project.status == "?? mine.txt"


def test_undoing_leaves_what_the_user_has_changed_in_the_same_file(
    project: Project, context: Context, step: StepExecution
) -> None:
    ten = "".join(f"line {number}\n" for number in range(10))
    red = land(context, "tests/ten.txt", ten)
    green = land(context, "tests/ten.txt", ten.replace("line 9", "of the run"))
    project.write({"tests/ten.txt": ten.replace("line 9", "of the run").replace("line 0", "mine")})
    undone = replace(step, base_commit=red, commits={"green": green})
    StepRecovery("sale", undone, context=context).undo(why="over")
    assert project.repository.read_head() == red
    assert (project.folder / "tests/ten.txt").read_text() == ten.replace("line 0", "mine")


def test_taking_a_step_back_after_an_interruption_leaves_the_users_changes_and_commits(
    project: Project, context: Context, step: StepExecution
) -> None:
    write(context, "half.py", "the model's\n")
    tried = context.snapshots.take(snapshot_ref("sale", step, name="red-1"), message="red attempt 1")
    underway = replace(step, attempts=(replace(TRIED, outcome=Closed(), checkpoint=tried.ref),))
    theirs = commit(project, "theirs.py")
    project.write({"half.py": "a person's\n", "prices.py": MINE})
    StepRecovery("sale", underway, context=context).undo_if_underway(why="anew")
    assert project.repository.read_head() == theirs
    assert project.status == " M prices.py\n?? half.py\n?? mine.txt"
    assert (project.folder / "half.py").read_text() == "a person's\n"
    (kept,) = [event.kept for event in project.seen if isinstance(event, RolledBack)]
    assert project.git("show", f"{kept}:half.py") == "the model's"


# Locks.


class KilledLandings(Landings):
    """Are killed after the branch has moved."""

    def _update(self, journal: LandingJournal) -> Landed:
        raise KeyboardInterrupt


def interrupt_landing(project: Project, context: Context) -> None:
    write(context, "a.py", "x = 1\n")
    made = commit_paths(context.workplace.tree, "a", paths=["a.py"])
    tip = project.repository.read_head()
    assert tip is not None
    with pytest.raises(KeyboardInterrupt):
        KilledLandings(project.repository, context.records.landing, files=project.folder / ".cdd" / "landing").land(
            made, expected=tip, base=tip, result=made
        )


def test_a_landing_that_was_killed_is_finished_before_anything_else(
    project: Project, context: Context, step: StepExecution
) -> None:
    interrupt_landing(project, context)
    assert (project.log, (project.folder / "a.py").exists()) == (["a"], False)
    with alone_on(find_records(project.folder).folder / "exec" / "sale", context=context):
        assert (project.folder / "a.py").read_text() == "x = 1\n"
    assert project.status == "?? mine.txt"


def test_a_run_begins_while_another_holds_the_repository(project: Project, context: Context) -> None:
    folder = find_records(project.folder).folder / "exec" / "sale"
    with lock_repository(project.repository.location.common_dir), alone_on(folder, context=context):
        pass
