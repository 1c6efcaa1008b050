import json
from dataclasses import replace

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import Committed, SuiteStarted
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import CommitId
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.step import (
    Landing,
    StepRecovery,
    find_broken_tests,
    has_hooks,
    make_handoff_id,
    require_branch,
    require_tests,
)
from cdd_agent.work.state import AttemptRecord, StepExecution, record_commit
from tests.fakes.model import ScriptedModel
from tests.fakes.project import TEST, TEST_FILE, Project, item
from tests.fakes.suite import TrustedSandbox

OPEN = AttemptRecord(phase="green", number=2, verdict="open", report="reports/sale/r.json")


@pytest.fixture
def context(project: Project) -> Context:
    """Of a run that has begun."""
    context = project.context(ScriptedModel([]))
    context.workplace.begin()
    return context


@pytest.fixture
def step(project: Project, context: Context) -> StepExecution:
    """The files of an attempt where the run works, and its report."""
    write(context, "discount.py", "x = 1\n")
    write(context, "more.txt", "more\n")
    project.write({".git/cdd/main/root/reports/sale/r.json": "{}"})
    return project.start().execution(1)


def write(context: Context, path: str, content: str) -> None:
    (context.workspace.root / path).write_text(content)


def make(landing: Landing, paths: tuple[str, ...]) -> CommitId:
    """Commit the files as they are."""
    snapshot = landing.context.snapshots.take("refs/cdd/now", message="now")
    return landing.make(paths, source=snapshot.commit)


def land(landing: Landing, paths: tuple[str, ...]) -> CommitId:
    """Land as the cycle does, when the user's branch rests."""
    context, tip = landing.context, landing.context.repository.read_head()
    assert tip is not None
    commit = make(landing, paths)
    context.workplace.land(commit, made=commit, tip=tip)
    landing.report(commit)
    return commit


def test_only_the_named_paths_are_committed_and_the_note_is_one_line_of_json(
    project: Project, context: Context, *, step: StepExecution
) -> None:
    commit = land(Landing(item=item(), attempt=OPEN, step=step, context=context), ("discount.py",))
    assert project.git("show", "--format=", "--name-only", commit) == "discount.py"
    (line,) = project.git("notes", "--ref=tdd-handoffs", "show", commit).splitlines()
    note = json.loads(line)
    assert note["retryCount"] == 1
    assert note["completedTests"] == ["tests/test_discount.py"]
    assert project.seen[-1] == Committed(phase="green", commit=commit, subject="feat: Ten percent off")
    assert (project.folder / "discount.py").read_text() == "x = 1\n"


def test_no_value_of_an_ignored_file_is_in_the_message_of_a_commit_or_in_its_note(project: Project) -> None:
    token = "Xk9vQ2mZ7Lp4Rt8s"
    project.write({"shop.log": f"token: {token}\n", ".git/cdd/main/root/reports/sale/r.json": "{}"})
    project.repository.read_included = lambda: b"*.log\n"
    context = project.context(ScriptedModel([]))
    context.workplace.begin()
    write(context, "discount.py", "x = 1\n")
    work = replace(item(), title=f"Use {token}", criteria=(("AC-1", f"WHEN {token.swapcase()} is sent"),))
    attempt = replace(OPEN, summary=f"It sends {token}.")
    landing = Landing(item=work, attempt=attempt, step=project.start().execution(1), context=context)
    commit = land(landing, ("discount.py",))
    said = project.git("log", "-1", "--format=%B", commit) + project.git("notes", "--ref=tdd-handoffs", "show", commit)
    assert token.lower() not in said.lower()
    assert "feat: Use [masked: value of an ignored file]" in said
    assert "Handoff-Id: " in said


def test_what_changes_after_the_gate_is_in_no_commit(
    project: Project, context: Context, *, step: StepExecution
) -> None:
    landing = Landing(item=item(), attempt=OPEN, step=step, context=context)
    (context.workspace.root / "prices.py").unlink()
    judged = context.snapshots.take("refs/cdd/judged", message="judged")
    write(context, "discount.py", "x = 2\n")
    write(context, "prices.py", "")
    commit = landing.make(("discount.py", "prices.py"), source=judged.commit)
    assert project.git("show", f"{commit}:discount.py") == "x = 1"
    changed = project.git("show", "--format=", "--name-status", commit)
    assert changed == "A\tdiscount.py\nD\tprices.py"


def test_a_landing_is_found_only_when_its_commit_is_on_the_users_branch(
    project: Project, context: Context, *, step: StepExecution
) -> None:
    landing = Landing(item=item(), attempt=OPEN, step=step, context=context)
    made = make(landing, ("discount.py",))
    assert landing.find() is None, "a commit of the run tree alone is not landed"
    assert (project.log, project.status) == ([], "")
    tip = CommitId(str(project.repository.read_head()))
    context.workplace.land(made, made=made, tip=tip)
    assert landing.find() == made


@pytest.mark.slow
def test_a_landing_that_is_reported_twice_has_one_line(
    project: Project, context: Context, *, step: StepExecution
) -> None:
    landing = Landing(item=item(), attempt=OPEN, step=step, context=context)
    first = land(landing, ("discount.py",))
    landing.report(first)
    assert project.log == ["feat: Ten percent off"]
    assert len(project.git("notes", "--ref=tdd-handoffs", "show", first).splitlines()) == 1


@pytest.mark.slow
def test_a_long_title_is_cut_in_the_subject(project: Project, context: Context, *, step: StepExecution) -> None:
    work = replace(item(), title="Ten percent off " * 10)
    land(Landing(item=work, attempt=OPEN, step=step, context=context), ("discount.py",))
    (subject,) = project.log
    assert len(subject) <= 72
    assert subject.endswith(" off…")
    body = project.git("log", "-1", "--format=%b")
    assert " ".join(body.split()).startswith(work.title.strip())
    assert max(map(len, body.splitlines())) <= 72


def test_the_commit_of_green_says_what_was_done(project: Project, context: Context, *, step: StepExecution) -> None:
    work = replace(item(), criteria=(("AC-1", "WHEN a price is given THE SYSTEM SHALL take ten percent off it"),))
    attempt = replace(OPEN, words="I disagree.", summary="Ten percent off.\n\nTicket: other")
    land(Landing(item=work, attempt=attempt, step=step, context=context), ("discount.py",))
    body = project.git("log", "-1", "--format=%b").split("\n\n")
    assert body[:3] == [
        "Ten percent off. Ticket: other",
        "Acceptance criteria:\n[x] AC-1: WHEN a price is given THE SYSTEM SHALL take ten percent off it",
        "Files:\nA discount.py",
    ]
    assert body[3].startswith("Ticket: sale\nPhase: GREEN\n")


def test_the_identity_is_that_of_the_phase_and_where_it_started() -> None:
    mine = make_handoff_id("sale", 1, phase="red", base="a")
    assert mine == make_handoff_id("sale", 1, phase="red", base="a")
    others = {
        make_handoff_id("sale", 1, phase="green", base="a"),
        make_handoff_id("sale", 1, phase="red", base="b"),
        make_handoff_id("sale", 2, phase="red", base="a"),
        make_handoff_id("other", 1, phase="red", base="a"),
    }
    assert mine not in others
    assert len(others) == 4


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
