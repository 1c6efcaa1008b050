import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import SuiteStarted
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import CommitId
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.landing import find_broken_tests, has_hooks, require_branch, require_tests
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.work.state import record_commit
from tests.fakes.model import ScriptedModel
from tests.fakes.project import TEST, TEST_FILE, Project
from tests.fakes.suite import TrustedSandbox


@pytest.fixture
def context(project: Project) -> Context:
    """Return the context of a run that has begun."""
    context = project.context(ScriptedModel([]))
    context.workplace.begin()
    return context


def write(context: Context, path: str, content: str) -> None:
    (context.workspace.root / path).write_text(content)


def test_hooks_count_only_if_they_can_run(project: Project) -> None:
    hook = project.folder / ".git" / "hooks" / "pre-commit"
    assert not has_hooks(project.repository), "git's samples are none"
    hook.write_text("#!/bin/sh\n")
    assert not has_hooks(project.repository)
    hook.chmod(0o755)
    assert has_hooks(project.repository)
    project.git("config", "core.hooksPath", "elsewhere")
    assert not has_hooks(project.repository)


def test_a_run_lands_only_on_the_branch_on_which_it_began(project: Project, context: Context) -> None:
    state = project.start()
    require_branch(state, context=context)
    project.git("switch", "--quiet", "-c", "other")
    with pytest.raises(UsageError, match="HEAD is on other, but the run began on main") as refused:
        require_branch(state, context=context)
    assert "git switch main" in refused.value.hint
    project.git("branch", "--quiet", "-D", "main")
    with pytest.raises(UsageError, match="HEAD is on other") as refused:
        require_branch(state, context=context)
    assert "git switch -c main" in refused.value.hint
    (project.folder / ".git" / "rebase-merge").mkdir()
    with pytest.raises(UsageError, match="a rebase is in progress"):
        require_branch(state, context=context)


def test_a_commit_breaks_what_passed_before_it_and_not_what_failed(project: Project) -> None:
    failing = "def test_old():\n    assert 1 == 2\n"
    project.write({"tests/test_old.py": failing})
    project.git("add", "-A")
    project.git("commit", "--quiet", "-m", "an old failure")
    context = project.context(ScriptedModel([]))
    context.workplace.begin()
    write(context, "prices.py", "def total(prices):\n    return 0\n")
    write(context, "tests/test_new.py", failing)
    commit = commit_paths(context.workplace.tree, "wrong", paths=["prices.py", "tests/test_new.py"])
    assert find_broken_tests(commit, context=context) == ("tests/test_prices.py::test_total",)
    assert project.log == ["an old failure"]


@pytest.mark.slow
def test_trees_that_were_tested_before_are_not_tested_again(real_project: Project) -> None:
    context = real_project.confine(real_project.context(ScriptedModel([])), TrustedSandbox())
    context.workplace.begin()
    write(context, "prices.py", "def total(prices):\n    return 0\n")
    commit = commit_paths(context.workplace.tree, "wrong", paths=["prices.py"])
    context.workplace.resume(commit)
    context.run_suite("all tests")
    for _ in range(2):
        assert find_broken_tests(commit, context=context) == ("tests/test_prices.py::test_total",)
    started = [event.purpose for event in real_project.seen if isinstance(event, SuiteStarted)]
    assert started == ["all tests", "all tests of your branch"]


@pytest.mark.slow
def test_a_test_that_needs_an_ignored_file_has_it_if_the_list_names_it(project: Project) -> None:
    reads = "def test_new():\n    assert open('data.log').read() == 'mine'\n"
    project.write({"data.log": "mine"})
    context = project.context(ScriptedModel([]))
    context.workplace.user.read_included = lambda: b"data.log\n"
    context.workplace.begin()
    write(context, "tests/test_new.py", reads)
    commit = commit_paths(context.workplace.tree, "new", paths=["tests/test_new.py"])
    assert find_broken_tests(commit, fixed=["tests/test_new.py::test_new"], context=context) == ()


def test_a_test_that_the_user_took_off_the_branch_is_missed(project: Project, context: Context) -> None:
    write(context, TEST_FILE, TEST)
    landed = commit_paths(context.workplace.tree, "test", paths=[TEST_FILE])
    state = record_commit(project.start(), 1, phase="red", commit=landed)
    recovery = StepRecovery("sale", state.execution(1), context=context)
    tests = [f"{TEST_FILE}::test_discount", "tests/test_uncommitted.py::test_a"]
    require_tests(landed, tests, recovery=recovery)
    with pytest.raises(UsageError, match=f"{TEST_FILE} is no longer on your branch") as refused:
        require_tests(CommitId(project.git("rev-parse", "HEAD")), tests, recovery=recovery)
    assert f"git checkout {landed[:10]} -- {TEST_FILE}" in refused.value.hint
    assert "cdd exec sale --retry 1" in refused.value.hint
