"""What a person does by hand between two steps."""

from pathlib import Path

import pytest

from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.events import Committed, GateJudged
from cdd_agent.runs.review import Intervention
from cdd_agent.work.state import Status
from cdd_agent.work.wording import format_reason
from tests.cdd_agent.runs.plan_steps.conftest import ONE, Grounds, MakeWork, Work, plan
from tests.fakes.model import ScriptedModel, says
from tests.fakes.project import CODE, TEST, TEST_FILE, Project, writes

FEATURES = plan((1, "Ten percent off", "none"), (2, "Thanks", "1"), kind="feature")


@pytest.fixture
def failed_feature(grounds: Grounds, tmp_path: Path) -> Work:
    """The first of two steps that begin with a test has failed: the model changed nothing."""
    ground = grounds.make("failed feature", FEATURES, lambda work: work.run_all(ScriptedModel([says("No.")])))
    return ground.copy(tmp_path / "project")


def test_changes_of_the_user_stand_in_the_way_of_the_next_step_and_tickets_do_not(
    work: MakeWork, project: Project
) -> None:
    made = work(ONE)
    executor = made.executor()
    assert Intervention(executor).list_blocking_changes(anew=False) == ()
    project.write({"prices.py": "# mine\n", "new.py": ""})
    assert Intervention(executor).list_blocking_changes(anew=False) == ("prices.py", "new.py")
    assert Intervention(made.executor(allow_dirty=True)).list_blocking_changes(anew=False) == ()


def test_changes_are_committed_as_the_users_own_and_nothing_else(failed: Work) -> None:
    project, executor = failed.project, failed.executor()
    project.write({"prices.py": "# mine\n", "new.py": "x = 1\n"})
    (project.folder / "pytest.ini").unlink()
    Intervention(executor).commit_changes("  Prices by hand ")
    assert project.git("log", "-1", "--format=%s|%an") == "Prices by hand|Ada"
    changed = project.git("show", "--format=", "--name-status", "HEAD").splitlines()
    assert sorted(changed) == ["A\tnew.py", "D\tpytest.ini", "M\tprices.py"]
    assert project.status == ""
    assert project.seen[-1] == Committed(
        phase="by hand", commit=project.git("rev-parse", "HEAD"), subject="Prices by hand"
    )
    with pytest.raises(UsageError, match="You have no uncommitted changes"):
        Intervention(executor).commit_changes()


def test_without_words_the_message_says_that_it_was_by_hand(failed: Work) -> None:
    project, executor = failed.project, failed.executor()
    project.write({"prices.py": "# mine\n"})
    Intervention(executor).commit_changes()
    assert project.log[-1] == "chore: changes made by hand"


def test_the_users_hooks_take_part_in_such_a_commit(failed: Work) -> None:
    project, executor = failed.project, failed.executor()
    hook = Path(project.git("rev-parse", "--absolute-git-dir")) / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not on a Friday >&2\nexit 1\n")
    hook.chmod(0o755)
    project.write({"prices.py": "# mine\n"})
    with pytest.raises(GateClosed, match="not on a Friday") as refused:
        Intervention(executor).commit_changes()
    assert "type commit again" in refused.value.hint
    assert project.status == " M prices.py"


def test_a_change_that_is_staged_in_part_is_neither_committed_nor_lost(failed: Work) -> None:
    project, executor = failed.project, failed.executor()
    head, before = project.git("rev-parse", "HEAD"), (project.folder / "prices.py").read_text()
    project.write({"prices.py": "# staged\n"})
    project.git("add", "prices.py")
    for there in (before, "# staged\n# and more\n"):
        project.write({"prices.py": there})
        with pytest.raises(UsageError, match=r"staged content differs from the file: prices\.py\."):
            Intervention(executor).commit_changes()
        assert project.git("show", ":prices.py") == "# staged"
        assert project.git("rev-parse", "HEAD") == head


def test_a_file_that_is_taken_out_of_git_and_kept_is_not_put_back(failed: Work) -> None:
    project, executor = failed.project, failed.executor()
    project.git("rm", "--quiet", "--cached", "prices.py")
    project.write({".gitignore": "__pycache__/\nprices.py\n"})
    with pytest.raises(UsageError, match=r"staged content differs from the file: prices\.py\."):
        Intervention(executor).commit_changes()
    assert "D  prices.py" in project.status


def test_files_that_git_was_told_to_leave_alone_are_left_out_of_the_commit(failed: Work) -> None:
    project, executor = failed.project, failed.executor()
    project.git("update-index", "--skip-worktree", "prices.py")
    project.write({"prices.py": "# a password of mine\n"})
    with pytest.raises(UsageError, match=r"git is set to ignore these changes: prices\.py") as refused:
        Intervention(executor).commit_changes()
    assert "keep" in refused.value.hint
    project.write({"new.py": ""})
    Intervention(executor).commit_changes()
    assert project.git("show", "--format=", "--name-only", "HEAD") == "new.py"
    assert (project.folder / "prices.py").read_text() == "# a password of mine\n"


def test_names_of_any_kind_are_committed_as_they_are(failed: Work) -> None:
    project, executor = failed.project, failed.executor()
    names = ["a b.py", "q\"'.py", "n\nl.py", "-x.py", ":(top)y.py", "*.py"]
    project.write(dict.fromkeys(names, "x = 1\n"))
    (project.folder / "prices.py").rename(project.folder / "sums.py")
    project.git("checkout", "--quiet", "--detach")
    Intervention(executor).commit_changes()
    changed = project.git("show", "--format=", "--name-only", "--no-renames", "-z", "HEAD").split("\0")
    assert sorted(filter(None, changed)) == sorted([*names, "prices.py", "sums.py"])
    assert project.status == ""


@pytest.mark.slow
def test_a_failed_step_that_was_mended_and_committed_by_hand_goes_on(failed: Work) -> None:
    made, project = failed, failed.project
    project.write({"prices.py": "def total(prices):\n    return sum(prices) + 0\n"})
    executor = made.executor(ScriptedModel([writes("a.md", "# a\n")]))
    Intervention(executor).commit_changes()
    with executor.running():
        executor.retry(1)
        executor.run_all()
    assert made.statuses == {1: "completed"}
    assert project.log == ["plan: A sale", "chore: changes made by hand", "docs: Ten percent off"]
    assert made.saved.execution(1).files_modified == ()


@pytest.mark.slow
def test_changes_that_are_kept_are_taken_along_and_stay_out_of_all_commits(work: MakeWork, project: Project) -> None:
    made = work(plan((1, "First", "none"), (2, "Second", "none")))
    project.write({"prices.py": "def total(prices):\n    return sum(prices) + 0\n"})
    executor = made.executor(ScriptedModel([writes("a.md", "# a\n"), writes("b.md", "# b\n")]))
    Intervention(executor).keep_changes()
    with executor.running():
        executor.run_step(executor.step(1))
        assert "+ 0" in (executor.context.workspace.root / "prices.py").read_text()
        executor.run_step(executor.step(2))
    assert project.git("log", "-2", "--format=", "--name-only").split() == ["b.md", "tickets/sale/spec.yaml", "a.md"]
    assert project.status == " M prices.py"
    project.write({"prices.py": "def total(prices):\n    return sum(prices)\n"})
    with pytest.raises(UsageError, match="you cannot keep changes"):
        Intervention(executor).keep_changes()


def test_a_step_done_by_hand_counts_once_all_tests_pass(failed_feature: Work) -> None:
    made, project = failed_feature, failed_feature.project
    executor = made.executor()
    project.write({"discount.py": CODE, TEST_FILE: TEST})
    with pytest.raises(UsageError, match="uncommitted changes"), executor.running():
        Intervention(executor).mark_done(executor.step(1))
    Intervention(executor).commit_changes()
    with executor.running():
        Intervention(executor).mark_done(executor.step(1))
    step = made.saved.execution(1)
    assert (step.status, step.attempts[-1].verdict) == (Status.COMPLETED, "open")
    assert tuple(map(format_reason, step.attempts[-1].reasons)) == (
        "by_hand: the user marked the step done; all tests passed",
    )
    following = executor.find_next_step()
    assert following is not None
    assert following.number == 2
    with pytest.raises(UsageError, match="Step 1 is completed"):
        Intervention(executor).mark_done(executor.step(1))


@pytest.mark.slow
def test_of_a_step_without_tests_it_is_kept_that_only_the_users_word_speaks_for_it(work: MakeWork) -> None:
    made = work(ONE)
    executor = made.executor()
    with executor.running():
        Intervention(executor).mark_done(executor.step(1))
    (attempt,) = made.saved.execution(1).attempts
    told = "by_hand: the user marked the step done; all tests passed, but the step names no tests"
    assert tuple(map(format_reason, attempt.reasons)) == (told,)


def test_a_step_is_not_done_by_hand_while_its_test_fails_or_is_not_there(failed_feature: Work) -> None:
    made, project = failed_feature, failed_feature.project
    executor = made.executor()
    with pytest.raises(GateClosed, match="target_missing"), executor.running():
        Intervention(executor).mark_done(executor.step(1))
    project.write({"discount.py": "def discount(price):\n    return 0\n", TEST_FILE: TEST})
    Intervention(executor).commit_changes()
    with pytest.raises(GateClosed, match="target_failed") as refused, executor.running():
        Intervention(executor).mark_done(executor.step(1))
    assert "retry 1" in refused.value.hint
    assert made.statuses == {1: "failed", 2: "pending"}
    assert not [event for event in project.seen if isinstance(event, GateJudged) and event.open]


def test_a_step_that_waits_for_another_is_not_marked_done(work: MakeWork) -> None:
    executor = work(FEATURES).executor()
    with pytest.raises(UsageError, match="Step 2 depends on step 1"), executor.running():
        Intervention(executor).mark_done(executor.step(2))


@pytest.mark.slow
def test_steps_skipped_for_want_of_one_come_back_when_it_is_done_by_hand(work: MakeWork, project: Project) -> None:
    made = work(FEATURES)
    executor = made.executor()
    with executor.running():
        executor.skip(1, reason="skipped by the user")
        executor.run_all()
    assert made.statuses == {1: "skipped", 2: "skipped"}
    project.write({"discount.py": CODE, TEST_FILE: TEST})
    Intervention(executor).commit_changes()
    with executor.running():
        Intervention(executor).mark_done(executor.step(1))
    assert made.statuses == {1: "completed", 2: "pending"}


def test_while_a_step_is_interrupted_the_user_can_commit(interrupted: Work) -> None:
    project, executor = interrupted.project, interrupted.executor()
    project.write({"prices.py": "def total(prices):\n    return sum(list(prices))\n"})
    assert Intervention(executor).list_blocking_changes(anew=False) == ()
    Intervention(executor).commit_changes()
    assert project.git("show", "--format=", "--name-only", "HEAD") == "prices.py"


@pytest.mark.slow
def test_a_plan_that_a_step_was_marked_done_by_has_not_changed_since(failed_feature: Work) -> None:
    made, project = failed_feature, failed_feature.project
    executor = made.executor()
    made.ticket.plan_path.write_text(FEATURES + "\nNow in other words.\n")
    project.write({"discount.py": CODE, TEST_FILE: TEST})
    Intervention(executor).commit_changes()
    executor = made.executor()
    assert executor.source.changed == ("plan.md has changed since the last step",)
    with executor.running():
        Intervention(executor).mark_done(executor.step(1))
    assert made.executor().source.changed == ()
